"""The CSV of `collscope replay` (schemas/replay-csv.md), also several appended to one file.

Rows are read one by one, so a torn line costs only itself. Bandwidths are computed again from
time, size and ranks, so that every figure of the store comes from one place.
"""

from __future__ import annotations

from typing import Any

import msgspec

from collscope.model import (
    Datatype,
    Measurement,
    MeasurementSet,
    Op,
    Severity,
    algorithm_bandwidth,
    bus_bandwidth,
    parse_op,
)
from collscope.parsers._notes import CUT_TEXT, Notes, cells, ended_lines
from collscope.parsers._rows import number, whole
from collscope.parsers.reader import Reader, whole_if

VERSION = 1
DIALECT = "replay_csv"
_MARK = "# collscope-replay:"
_HEADER_START = "op,datatype,redop,root,count,"
_NEEDED = {"op", "nranks", "time_us_median", "status"}
_STATUSES = {"ok", "wrong", "failed", "timeout", "skipped"}
_TOLERANCE = 0.005  # of a bandwidth computed again, for the digits that the file rounds away
# Columns of the file are fields of the record by the same name, but for what is computed here.
_COMPUTED = {"algbw_gbps", "busbw_gbps", "reported_busbw_gbps", "line"}
_READ = {name: of for name, of in Measurement.__annotations__.items() if name not in _COMPUTED}
_INTEGERS = tuple(name for name, of in _READ.items() if of == "int | None")
_REALS = tuple(name for name, of in _READ.items() if of == "float | None")
_TEXTS = tuple(name for name, of in _READ.items() if of == "str | None")

_VERSION_TEXT = f"The file is of another version than {VERSION}. Read it with a newer release."
_TORN_TEXT = "Rows with too few or too many fields, or with an unknown status, were skipped."
_NUMBER_TEXT = "Rows with an unreadable number were skipped."
_OP_TEXT = "Rows with an unknown operation or datatype were skipped."
_HEADER_TEXT = "Rows before any header line were skipped."
_BUSBW_TEXT = (
    "The bus bandwidth in the file does not follow from its time, size and ranks: it was computed"
    " again."
)


def sniff(head: str) -> bool:
    """True when a text begins like a replay CSV."""
    first = head.lstrip("\ufeff")
    return first.startswith((_MARK, _HEADER_START))


class _State(msgspec.Struct):
    """Where the reading stands: header and metadata in force."""

    header: list[str] | None = None
    label: str | None = None
    refused: bool = False


def parse(text: str) -> MeasurementSet:
    """Measurements of a replay CSV, one per row.

    returns  nothing from a part of another version (diagnostic ``other_version``), and nothing
             from a last row without a line end (``cut_row``)
    """
    notes, state = Notes(), _State()
    found: list[Measurement] = []
    last = 0
    for last, line, ended in ended_lines(text):
        bare = line.lstrip("\ufeff")
        if bare.startswith("#"):
            _metadata(bare, state, notes, last)
        elif bare.startswith(_HEADER_START):
            # Again where files were joined.
            state.header = cells(bare)
        elif bare.strip() and not state.refused:
            if not ended:
                notes.add(Severity.DATA_LOSS, "cut_row", CUT_TEXT, last, bare)
            elif (measurement := _row(bare, state, notes, last)) is not None:
                found.append(measurement)
    library, version = _library(found)
    return MeasurementSet(DIALECT, tuple(found), library, version, last, notes.diagnostics)


def _metadata(line: str, state: _State, notes: Notes, at: int) -> None:
    # # collscope-replay: 1
    # # label: plugin
    key, _, value = line[1:].partition(":")
    if line.startswith(_MARK):
        # What is appended goes on below the header that the file has.
        state.label = None
        state.refused = value.strip() != str(VERSION)
        if state.refused:
            notes.add(Severity.ERROR, "other_version", _VERSION_TEXT, at, line)
    elif key.strip() == "label":
        state.label = value.strip() or None


def _row(line: str, state: _State, notes: Notes, at: int) -> Measurement | None:
    # AllReduce,Bfloat16,Sum,,4194304,8388608,1,4,1,26,61.2,60.9,63.0,0.1,420,137.0,205.6,0,batch,…
    if state.header is None or not _NEEDED.issubset(state.header):
        notes.add(Severity.DATA_LOSS, "no_header", _HEADER_TEXT, at, line)
        return None
    values = cells(line)
    row = dict(zip(state.header, values, strict=False))
    if len(values) != len(state.header) or row["status"] not in _STATUSES:
        notes.add(Severity.DATA_LOSS, "torn_row", _TORN_TEXT, at, line)
        return None
    op, datatype = parse_op(row["op"]), Datatype.of_label(row.get("datatype"))
    if op is Op.UNKNOWN or (row.get("datatype") and datatype is None):
        notes.add(Severity.DATA_LOSS, "unknown_class", _OP_TEXT, at, line)
        return None
    numbers = _numbers(row)
    if numbers is None:
        notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, at, line)
        return None
    return _measurement(row, (op, datatype), numbers, state.label, (notes, at, line))


def _measurement(
    row: dict[str, str],
    what: tuple[Op, Datatype | None],
    numbers: _Numbers,
    label: str | None,
    where: tuple[Notes, int, str],
) -> Measurement:
    op, datatype = what
    read: dict[str, Any] = {**numbers.wholes, **numbers.reals}
    read |= {name: row.get(name) or None for name in _TEXTS}
    size, median = read["size_bytes"], read["time_us_median"]
    seconds = None if median is None else median * 1e-6
    busbw = bus_bandwidth(op, size=size, time_s=seconds, nranks=read["nranks"])
    _compare(row.get("busbw_gbps", ""), busbw, where)
    read["label"] = read["label"] or label
    return Measurement(
        op=op,
        datatype=datatype,
        in_place={"1": True, "0": False}.get(row.get("in_place", "")),
        algbw_gbps=algorithm_bandwidth(size, seconds),
        busbw_gbps=busbw,
        status=row["status"],
        samples_us=numbers.samples_us,
        line=where[1],
        **read,
    )


class _Numbers(msgspec.Struct, frozen=True):
    """Numbers of a row by column; None where the field is empty."""

    wholes: dict[str, int | None]
    reals: dict[str, float | None]
    samples_us: tuple[float, ...]


def _numbers(row: dict[str, str]) -> _Numbers | None:
    """Numbers of a row; None when one cannot be read."""
    wholes = {name: whole(row.get(name, "")) for name in _INTEGERS}
    reals = {name: _real(row.get(name, "")) for name in _REALS}
    parts = [part for part in row.get("samples_us", "").split(";") if part]
    samples = [value for part in parts if (value := _real(part)) is not None]
    read: dict[str, float | None] = {**wholes, **reals}
    if any(value is None and row.get(name) for name, value in read.items()):
        return None
    return None if len(samples) != len(parts) else _Numbers(wholes, reals, tuple(samples))


def _real(text: str) -> float | None:
    value = number(text)
    return None if value is None else float(value)


def _compare(reported: str, busbw: float | None, where: tuple[Notes, int, str]) -> None:
    """Note a bandwidth in the file that is not the one computed here."""
    if not reported:
        return
    value = number(reported)
    if value is None or busbw is None or abs(value - busbw) > _TOLERANCE * busbw + 1e-4:
        notes, at, line = where
        notes.add(Severity.NOTICE, "busbw_differs", _BUSBW_TEXT, at, line)


def _library(found: list[Measurement]) -> tuple[str | None, str | None]:
    """Name and version of the library, where all rows were measured with one.

    A row's library is, for instance, ``nccl 2.28.9``.
    """
    named = {m.library for m in found if m.library}
    if len(named) != 1:
        return None, None
    name, _, version = named.pop().partition(" ")
    return (name, version or None) if name in ("nccl", "rccl") else (None, None)


READER = Reader(DIALECT, "csv", whole_if(sniff), lambda source, _hints: parse(source.text()))
