"""The systems that ship, and the bounds and roofs of one of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from collscope.errors import InputError, NoVerdictError, UsageError
from collscope.ingest.match import reading
from collscope.model import Op, parse_op
from collscope.roofline.catalogue import SystemRow, catalogue_rows, load_system
from collscope.roofline.fit import Curve, Fit, fit
from collscope.roofline.system_file import system_text
from collscope.roofline.tables import (
    TABLE_OPS,
    TABLE_SIZES,
    BoundRow,
    RoofRow,
    bound_rows,
    roof_rows,
)
from collscope.store.measurements import measurement_labels, no_such_label, read_measurements
from collscope.units import count

SCHEMA = "collscope.roofline/2"


class Roofline(msgspec.Struct, frozen=True):
    """Either the systems that ship, or the bounds and roofs of one shape on one system."""

    system: str | None  # None: the list of systems
    title: str | None  # what it is
    nranks: int | None
    nnodes: int | None
    fitted: str | None  # label of the measurements behind the fit
    systems: tuple[SystemRow, ...]  # those that ship; empty unless listed
    bounds: tuple[BoundRow, ...]  # by operation
    roofs: tuple[RoofRow, ...]  # by operation and size
    schema: str = SCHEMA


def listed() -> Roofline:
    """List the shipped systems."""
    return Roofline(None, None, None, None, None, catalogue_rows(), (), ())


def roofline(
    system: str,
    nranks: int | None = None,
    nnodes: int = 1,
    op: str | None = None,
    fitted: Fit | None = None,
) -> Roofline:
    """Bounds and roofs of a shape on a system.

    nranks  None: every GPU of the nodes
    op      as the library or nccl-tests spells it; None: bounds of every operation, roofs of
            AllReduce
    fitted  adds a ceiling, and its sizes are those of the table
    raises  InputError for an unknown system; UsageError for an unknown operation, or a shape that
            the system cannot hold
    """
    found = load_system(system)
    if nranks is None:
        if found.fabric is None:
            raise UsageError(
                f"{found.name}: a network alone, without links between GPUs. Give --ranks and "
                f"--nodes, or name a node with this network, as in h100+{found.name}."
            )
        nranks = found.fabric.gpus * -(-nnodes // found.fabric.hosts)
    if nranks < 2:
        raise UsageError(f"--ranks {nranks}: one rank moves no data. Give two or more.")
    chosen = Op.ALL_REDUCE if op is None else _operation(op)
    curve = None if fitted is None else _curve(fitted, chosen, nranks, nnodes)
    sizes = TABLE_SIZES if curve is None else curve.sizes
    bounds = bound_rows(found, nranks, nnodes)
    return Roofline(
        found.name,
        found.title,
        nranks,
        nnodes,
        None if fitted is None else fitted.name,
        (),
        tuple(row for row in bounds if op is None or row.op == chosen.value),
        roof_rows(found, chosen, nranks, nnodes, sizes=sizes, fitted=fitted),
    )


def roofline_of_store(
    db: Path, system: str, shape: tuple[int | None, int], op: str | None, label: str | None
) -> Roofline:
    """`roofline`, with a fit of the measurements that the store has of a label.

    shape   ranks and nodes
    label   None: no fit, and the store is not opened
    raises  as `roofline` and `fit_of_label`
    """
    nranks, nnodes = shape
    if label is None:
        return roofline(system, nranks, nnodes, op)
    with reading(db) as connection:
        return roofline(system, nranks, nnodes, op, fit_of_label(connection, label, nnodes))


def fitted_system(db: Path, system: str, label: str, nnodes: int, path: Path) -> str:
    """The TOML of a system that reaches what the measurements of a label reached.

    system  has the links and NICs
    path    of the file, which names the system
    raises  as `fit_of_label`; InputError for a system that is not one of the list
    """
    with reading(db) as connection:
        fitted = fit_of_label(connection, label, nnodes)
    return text_of_fit(system, fitted, path)


def text_of_fit(system: str, fitted: Fit, path: Path) -> str:
    """The TOML of a system with the curves of a fit, as `fitted_system`."""
    require_base(system)
    return system_text(path.stem, load_system(system).title, system, fitted)


def require_base(system: str) -> None:
    """Raise InputError for a system that no other can be based on."""
    load_system(system)
    if system.endswith((".toml", ".xml")) or "/" in system:
        raise InputError(
            f"{system}: a file cannot be the base of another. Name a system of collscope roofline "
            "--list, or add the [[measured]] tables to that file."
        )


def _operation(name: str) -> Op:
    """An operation that has bounds.

    raises  UsageError for every other name
    """
    op = parse_op(name.replace("_", ""))
    if op not in TABLE_OPS:
        known = ", ".join(known.value for known in TABLE_OPS)
        raise UsageError(f"--op {name}: this operation has no ceilings. Choose one of {known}.")
    return op


def _curve(fitted: Fit, op: Op, nranks: int, nnodes: int) -> Curve:
    """The curve of a shape.

    raises  NoVerdictError when the fit has others only
    """
    curve = fitted.curve(op, nranks, nnodes)
    if curve is not None:
        return curve
    shapes = (
        f"{o.value} with {count(n, 'rank')} on {count(nodes, 'node')}"
        for o, n, nodes in fitted.curves
    )
    raise NoVerdictError(
        f"--fit {fitted.name}: no measurement of {op.value} with {count(nranks, 'rank')} on"
        f" {count(nnodes, 'node')} "
        f"(measured: {', '.join(shapes)}). Name what was measured with --op, --ranks and --nodes."
    )


def fit_of_label(connection: sqlite3.Connection, label: str, nnodes: int) -> Fit:
    """Fit of all measurements of a label.

    nnodes  of measurements with an unknown number of nodes
    raises  InputError when there are none, NoVerdictError when none has size, ranks and time
    """
    rows = read_measurements(connection, label=label)
    if not rows:
        raise no_such_label(label, measurement_labels(connection))
    return fit((row.measurement for row in rows), label, nnodes=nnodes)
