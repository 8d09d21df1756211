"""Systems as TOML: the shape of a file, and what is checked in it.

The format is described in docs/roofline.md. Every problem is an `InputError` that names the file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from math import isclose

import msgspec

from collscope.errors import InputError
from collscope.model import Op, parse_op
from collscope.roofline.fit import Curve, CurveKey, Fit, envelope
from collscope.roofline.links import Usable, link_kinds
from collscope.roofline.nccl_constants import CONSTANTS, NCCL_LL_NET
from collscope.roofline.system import (
    UNIFORM_WIRINGS,
    Fabric,
    InNetwork,
    Network,
    Published,
    System,
    TuningChoice,
    uniform_capacity,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SOURCE_KINDS = ("src", "std", "calc", "inf", "user")
CONFIDENCES = ("high", "medium", "low")
_MAX_GPUS = 576
# The TOML reader takes time with the square of a key's parts; the format has keys of two.
_MOST_DOTS = 32
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*"""
_LONG_KEY = re.compile(rf"(?<![\w-])(?:{_PART}\.[ \t]*){{{_MOST_DOTS}}}")


class _InNetworkFile(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    efficiency: float
    source: str
    efficiency_low: float | None = None


class _RateFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What links and NICs have in common: a rate and its source."""

    uni_gbps: float
    source: str
    bi_gbps: float | None = None
    link: str | None = None
    usable_fraction: float | None = None
    usable_source: str | None = None
    in_network: _InNetworkFile | None = None
    source_kind: str = "user"
    confidence: str = "medium"


class _FabricFile(_RateFile, forbid_unknown_fields=True, kw_only=True):
    wiring: str
    gpus: int
    links_per_gpu: int | None = None
    gpu_bi_gbps: float | None = None
    links: list[list[float]] | None = None
    switches: int = 0
    rings: list[list[int]] = []
    hosts: int = 1
    gpu_models: list[str] = []


class _NetworkFile(_RateFile, forbid_unknown_fields=True, kw_only=True):
    name: str
    nics: int


class _PublishedFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    op: str
    nranks: int
    busbw_gbps: float
    size_bytes: int
    source: str
    nnodes: int = 1
    in_network: bool = False


class _MeasuredFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    op: str
    nranks: int
    sizes: list[int]
    times_us: list[float]
    source: str
    nnodes: int = 1


class _SystemFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    title: str
    aliases: list[str] = []
    base: str | None = None
    published: list[_PublishedFile] = []
    measured: list[_MeasuredFile] = []
    fabric: _FabricFile | None = None
    network: _NetworkFile | None = None
    tuning: TuningChoice | None = None


def parse_system(content: str, where: str, load: Callable[[str], System] | None = None) -> System:
    """System of a TOML text; `where` names it in errors.

    load    finds the system that `base` names, whose links and NICs this one has
    raises  InputError when the text is not TOML, or describes something impossible
    """
    if _LONG_KEY.search(content):
        raise InputError(
            f"{where}: a key of more than {_MOST_DOTS} parts. Compare with docs/roofline.md."
        )
    try:
        file = msgspec.convert(tomllib.loads(content), _SystemFile, strict=False)
    except RecursionError as error:
        raise InputError(
            f"{where}: lists or tables nested too deeply. Compare with docs/roofline.md."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: not TOML ({error}). Correct that line.") from error
    except msgspec.ValidationError as error:
        raise InputError(
            f"{where}: {str(error).replace('`', '')}. Compare with docs/roofline.md."
        ) from error
    base = None if file.base is None or load is None else load(file.base)
    if base is None and file.fabric is None and file.network is None:
        raise InputError(f"{where}: neither links nor NICs. Add [fabric], [network] or base.")
    fabric = None if file.fabric is None else _fabric(file.fabric, where)
    network = None if file.network is None else _network(file.network, where)
    tuning = None if file.tuning is None else _known_tuning(file.tuning, where)
    return System(
        name=file.name,
        title=file.title,
        fabric=fabric if base is None else fabric or base.fabric,
        network=network if base is None else network or base.network,
        tuning=tuning if base is None else tuning or base.tuning,
        aliases=tuple(file.aliases),
        notes=() if base is None else base.notes,
        published=tuple(_published(row, where) for row in file.published)
        + (() if base is None else base.published),
        measured=_measured(file.measured, where),
    )


def _measured(rows: list[_MeasuredFile], where: str) -> tuple[Curve, ...]:
    """Curves of known operations, one of each shape."""
    curves: dict[CurveKey, Curve] = {}
    for row in rows:
        op = parse_op(row.op)
        key = (op, row.nranks, row.nnodes)
        what = f"measured: {row.op} of {row.nranks} ranks"
        if op is Op.UNKNOWN or row.nranks < 2 or row.nnodes < 1 or key in curves:
            raise _refuse(where, what, "Give each operation and shape once")
        pairs = list(zip(row.sizes, row.times_us, strict=False))
        if not pairs or len(row.sizes) != len(row.times_us):
            raise _refuse(where, what, "Give as many times as sizes, one at least")
        if any(size < 1 or not 0 < time < float("inf") for size, time in pairs):
            raise _refuse(where, what, "Give bytes and microseconds above 0")
        curves[key] = envelope(key, dict(pairs), row.source)
    return tuple(curves.values())


def system_text(name: str, title: str, base: str, fitted: Fit) -> str:
    """The TOML of a system with the links of `base` and the curves of a fit, for `parse_system`.

    title  of the base. Strings are written as JSON, which TOML reads alike.
    """
    source = json.dumps(f"measurements of label {fitted.name}, best of each size")
    lines = [f"{key} = {json.dumps(value)}" for key, value in
             (("name", name), ("title", f"{title}, as measured"), ("base", base))]  # fmt: skip
    for curve in fitted.curves.values():
        op, nranks, nnodes = curve.key
        lines += [
            "",
            "[[measured]]",
            f'op = "{op.value}"',
            f"nranks = {nranks}",
            f"nnodes = {nnodes}",
            f"sizes = {list(curve.sizes)}",
            f"times_us = {[round(time, 3) for time in curve.times_us]}",
            f"source = {source}",
        ]
    return "\n".join(lines) + "\n"


def _published(row: _PublishedFile, where: str) -> Published:
    """A published figure of a known operation."""
    op = parse_op(row.op)
    if op is Op.UNKNOWN or not row.busbw_gbps > 0 or row.nranks < 2 or row.nnodes < 1:
        raise _refuse(
            where, f"published: {row.op} of {row.busbw_gbps:g} GB/s", "Give an operation and GB/s"
        )
    return Published(
        op, row.nranks, row.nnodes, row.size_bytes, row.busbw_gbps, row.in_network, row.source
    )


def _refuse(where: str, what: str, to_do: str) -> InputError:
    """The error for a value that cannot be."""
    return InputError(f"{where}: {what}. {to_do}.")


def _check_rates(part: _RateFile, where: str, section: str) -> None:
    """Rates, fraction and labels that both kinds of section have."""
    if not 0 < part.uni_gbps < float("inf"):
        raise _refuse(where, f"{section}.uni_gbps is not positive", "Give GB/s of one direction")
    if part.bi_gbps is not None and not isclose(part.bi_gbps, 2 * part.uni_gbps, rel_tol=1e-6):
        raise _refuse(
            where,
            f"{section}.bi_gbps is {part.bi_gbps:g}, not twice uni_gbps {part.uni_gbps:g}",
            "Give one direction as uni_gbps and the sum of both as bi_gbps",
        )
    if part.link is not None and part.link not in link_kinds():
        raise _refuse(
            where, f"{section}.link '{part.link}'", f"Use one of {', '.join(link_kinds())}"
        )
    if part.usable_fraction is not None and not 0 < part.usable_fraction <= 1:
        raise _refuse(where, f"{section}.usable_fraction is not between 0 and 1", "Give a fraction")
    if part.in_network is not None and not 0 < part.in_network.efficiency <= 1:
        raise _refuse(
            where, f"{section}.in_network.efficiency is not between 0 and 1", "Give a fraction"
        )
    if not part.source.strip():
        raise _refuse(where, f"{section}.source is empty", "Name the source of the rates")
    for name, value, known in (
        ("source_kind", part.source_kind, SOURCE_KINDS),
        ("confidence", part.confidence, CONFIDENCES),
    ):
        if value not in known:
            raise _refuse(where, f"{section}.{name} '{value}'", f"Use one of {', '.join(known)}")


def _fabric(part: _FabricFile, where: str) -> Fabric:
    """Checked fabric with its capacities."""
    _check_rates(part, where, "fabric")
    if not 1 <= part.gpus <= _MAX_GPUS or part.hosts < 1 or part.switches < 0:
        raise _refuse(
            where, f"fabric with {part.gpus} GPUs", f"Give 1 to {_MAX_GPUS} GPUs of one node"
        )
    if part.wiring in UNIFORM_WIRINGS:
        capacity = _uniform(part, where)
    elif part.wiring == "matrix":
        capacity = _matrix(part, where)
    else:
        kinds = ", ".join((*UNIFORM_WIRINGS, "matrix"))
        raise _refuse(where, f"fabric.wiring '{part.wiring}'", f"Use one of {kinds}")
    return Fabric(
        wiring=part.wiring,
        gpus=part.gpus,
        uni_gbps=part.uni_gbps,
        bi_gbps=2 * part.uni_gbps if part.bi_gbps is None else part.bi_gbps,
        links_per_gpu=part.links_per_gpu,
        gpu_bi_gbps=part.gpu_bi_gbps,
        capacity=capacity,
        rings=_rings(part, where),
        hosts=part.hosts,
        usable=_usable(part),
        in_network=_in_network(part.in_network),
        source=part.source,
        source_kind=part.source_kind,
        confidence=part.confidence,
        gpu_models=tuple(model.upper() for model in part.gpu_models),
    )


def _uniform(part: _FabricFile, where: str) -> tuple[tuple[float, ...], ...]:
    """Capacities of a mesh or a switch; the data sheet's sum is checked."""
    if part.links_per_gpu is None or part.links_per_gpu < 1:
        raise _refuse(where, "fabric.links_per_gpu is missing", "Give the links of one GPU")
    if part.wiring == "mesh" and part.gpus < 2:
        raise _refuse(where, "a mesh of one GPU", "Give fabric.gpus of 2 or more")
    egress = part.links_per_gpu * part.uni_gbps
    if part.gpu_bi_gbps is not None and not isclose(part.gpu_bi_gbps, 2 * egress, rel_tol=1e-3):
        raise _refuse(
            where,
            f"fabric.gpu_bi_gbps is {part.gpu_bi_gbps:g}, but {part.links_per_gpu} links of "
            f"{part.uni_gbps:g} GB/s in both directions are {2 * egress:g}",
            "Correct the links or the rate",
        )
    return uniform_capacity(part.wiring, part.gpus, part.links_per_gpu, part.uni_gbps)


def _matrix(part: _FabricFile, where: str) -> tuple[tuple[float, ...], ...]:
    """Capacities of a matrix of link counts, row to column."""
    size = part.gpus + part.switches
    rows = part.links or []
    if len(rows) != size or any(len(row) != size for row in rows):
        raise _refuse(
            where,
            f"fabric.links is not {size} rows of {size} numbers",
            "Give the links from each GPU (row) to each GPU (column), then the switches",
        )
    if any(not 0 <= value < float("inf") for row in rows for value in row):
        raise _refuse(where, "fabric.links has a number below 0", "Give counts of links")
    if any(rows[i][i] for i in range(size)):
        raise _refuse(where, "fabric.links joins a GPU to itself", "Put 0 on the diagonal")
    return tuple(tuple(value * part.uni_gbps for value in row) for row in rows)


def _rings(part: _FabricFile, where: str) -> tuple[tuple[int, ...], ...]:
    """Rings over all GPUs that the matrix has room for, all at once."""
    if not part.rings:
        return ()
    left = [list(row) for row in part.links or []]
    for ring in part.rings:
        if sorted(ring) != list(range(part.gpus)):
            raise _refuse(
                where, f"fabric.rings: {ring} does not visit every GPU once", "Correct the ring"
            )
        for i, j in zip(ring, [*ring[1:], ring[0]], strict=True):
            if not left or left[i][j] < 1:
                raise _refuse(
                    where,
                    f"fabric.rings need more links from GPU {i} to GPU {j} than there are",
                    "Take a ring out",
                )
            left[i][j] -= 1
    return tuple(tuple(ring) for ring in part.rings)


def _network(part: _NetworkFile, where: str) -> Network:
    """Checked network."""
    _check_rates(part, where, "network")
    if part.nics < 1:
        raise _refuse(where, f"network.nics is {part.nics}", "Give the NICs of one node")
    return Network(
        name=part.name,
        nics=part.nics,
        uni_gbps=part.uni_gbps,
        bi_gbps=2 * part.uni_gbps if part.bi_gbps is None else part.bi_gbps,
        usable=_usable(part),
        in_network=_in_network(part.in_network),
        source=part.source,
        source_kind=part.source_kind,
        confidence=part.confidence,
    )


def _usable(part: _RateFile) -> Usable:
    """The part of the rate that data can use: from the file, else from its kind of link."""
    if part.usable_fraction is not None:
        return Usable(
            part.usable_fraction,
            part.usable_fraction,
            part.usable_fraction,
            part.usable_source or "the system's file",
        )
    if part.link is not None:
        return link_kinds()[part.link]
    return Usable(1.0, 0.5, 1.0, "not known: the line rate is used", assumed=True)


def _in_network(part: _InNetworkFile | None) -> InNetwork | None:
    """In-network reduction, where the section has one."""
    return (
        None
        if part is None
        else InNetwork(part.name, part.efficiency, part.source, part.efficiency_low)
    )


def _known_tuning(part: TuningChoice, where: str) -> TuningChoice:
    """The choice, where its constants exist."""
    known = [f"{c.library} {c.architecture}" for c in CONSTANTS]
    if f"{part.library} {part.architecture}" not in known:
        raise _refuse(
            where,
            f"tuning: no constants of {part.library} {part.architecture}",
            f"Use one of {', '.join(known)}, or leave [tuning] out",
        )
    if part.cpu not in NCCL_LL_NET:
        raise _refuse(where, f"tuning.cpu '{part.cpu}'", "Use amd or intel")
    if part.graph_gbps is not None and not part.graph_gbps > 0:
        raise _refuse(where, "tuning.graph_gbps is not positive", "Give GB/s or leave it out")
    return part
