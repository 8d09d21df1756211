"""The CSV of `bench interference` (schemas/interference-csv.md), also of several launches.

Bandwidths are computed again from time, size and ranks.
"""

from __future__ import annotations

import msgspec

from collscope.model import (
    Datatype,
    Interference,
    MeasurementSet,
    Op,
    Severity,
    bus_bandwidth,
    parse_op,
)
from collscope.parsers._notes import Notes
from collscope.parsers._rows import whole
from collscope.parsers._tables import Layout, TableRow, read_table, real
from collscope.parsers.reader import Reader, whole_if

DIALECT = "interference_csv"
_LAYOUT = Layout(
    DIALECT,
    "label,round,op,datatype,redop,size_bytes,count,shape,",
    frozenset(("op", "nranks", "rank", "relative_compute", "relative_busbw", "status")),
    frozenset(("ok", "wrong", "failed", "timeout", "uncovered")),
)
_TEXTS = (
    "redop", "shape", "backend", "compute", "compute_description", "channels", "priority",
    "device", "library", "runtime", "environment", "message", "label",
)  # fmt: skip
_INTEGERS = (
    "count", "size_bytes", "nranks", "nnodes", "rank", "samples", "covered", "multiprocessors",
    "round",
)  # fmt: skip
_REALS = (
    "compute_alone_us", "compute_with_us", "relative_compute", "relative_compute_mad",
    "relative_compute_noise", "comm_alone_us", "comm_with_us", "relative_busbw",
    "relative_busbw_mad", "relative_busbw_noise",
)  # fmt: skip
_LISTS = ("relative_compute_samples", "relative_busbw_samples")

_NUMBER_TEXT = "Rows with an unreadable number were skipped."
_OP_TEXT = "Rows with an unknown operation or datatype were skipped."


def sniff(head: str) -> bool:
    """True when a text begins like an interference CSV."""
    return _LAYOUT.sniff(head)


def parse(text: str) -> MeasurementSet:
    """Measurements of an interference CSV, one per row: a class on one rank.

    returns  nothing from a part of another version (diagnostic ``other_version``), and nothing
             from a last row without a line end (``cut_row``)
    """
    notes = Notes()
    rows, lines = read_table(text, _LAYOUT, notes)
    found = [m for row in rows if (m := _row(row, notes)) is not None]
    library, version = _library(found)
    return MeasurementSet(
        DIALECT, (), library, version, lines, notes.diagnostics, interference=tuple(found)
    )


def _row(row: TableRow, notes: Notes) -> Interference | None:
    # 2 channels,1,AllReduce,Bfloat16,Sum,67108864,33554432,,4,1,0,3,cuda,kernel,…
    fields = row.fields
    op, datatype = parse_op(fields["op"]), Datatype.of_label(fields.get("datatype"))
    if op is Op.UNKNOWN or (fields.get("datatype") and datatype is None):
        notes.add(Severity.DATA_LOSS, "unknown_class", _OP_TEXT, row.at, row.line)
        return None
    numbers = _numbers(fields)
    if numbers is None:
        notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, row.at, row.line)
        return None
    return _interference(fields, op, datatype, numbers, row.at)


class _Numbers(msgspec.Struct, frozen=True):
    """Numbers of a row by column; None where the field is empty."""

    wholes: dict[str, int | None]
    reals: dict[str, float | None]
    lists: dict[str, tuple[float, ...]]


def _numbers(row: dict[str, str]) -> _Numbers | None:
    """Numbers of a row; None when one cannot be read."""
    wholes = {name: whole(row.get(name, "")) for name in _INTEGERS}
    reals = {name: real(row.get(name, "")) for name in _REALS}
    lists = {}
    for name in _LISTS:
        parts = [real(part) for part in row.get(name, "").split(";") if part]
        if None in parts:
            return None
        lists[name] = tuple(part for part in parts if part is not None)
    read: dict[str, float | None] = {**wholes, **reals}
    if any(value is None and row.get(name) for name, value in read.items()):
        return None
    return _Numbers(wholes, reals, lists)


def _interference(
    row: dict[str, str], op: Op, datatype: Datatype | None, numbers: _Numbers, at: int
) -> Interference:
    def busbw(name: str) -> float | None:
        us = numbers.reals[name]
        return bus_bandwidth(
            op,
            size=numbers.wholes["size_bytes"],
            time_s=None if us is None else us * 1e-6,
            nranks=numbers.wholes["nranks"],
        )

    texts = {name: row.get(name) or None for name in _TEXTS}
    return Interference(
        op=op,
        datatype=datatype,
        in_place={"1": True, "0": False}.get(row.get("in_place", "")),
        busbw_alone_gbps=busbw("comm_alone_us"),
        busbw_with_gbps=busbw("comm_with_us"),
        host=row.get("hostname") or None,
        status=row["status"],
        line=at,
        **texts,  # type: ignore[arg-type]
        **numbers.wholes,  # type: ignore[arg-type]
        **numbers.reals,  # type: ignore[arg-type]
        **numbers.lists,  # type: ignore[arg-type]
    )


def _library(found: list[Interference]) -> tuple[str | None, str | None]:
    """Name and version of the library, where all rows were measured with one: ``nccl 2.28.9``."""
    named = {m.library for m in found if m.library}
    if len(named) != 1:
        return None, None
    name, _, version = named.pop().partition(" ")
    return (name, version or None) if name in ("nccl", "rccl") else (None, None)


READER = Reader(DIALECT, "csv", whole_if(sniff), lambda source, _hints: parse(source.text()))
