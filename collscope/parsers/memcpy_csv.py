"""The CSV of `collscope bench memcpy` (schemas/memcpy-csv.md), also several joined to one file.

Rows are read one by one, so a torn line costs only itself. Bandwidths are computed again from time
and size, so that every figure of the store comes from one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from collscope.model import Diagnostic, Severity
from collscope.parsers._notes import Notes, cells
from collscope.parsers._rows import number, text_lines, whole

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1
DIALECT = "memcpy_csv"
# Rows that copy nothing, and so have no bandwidth.
HANDLES = ("ipc_open", "ipc_close", "window_open", "window_close")
_MARK = "# collscope.memcpy_csv/"
_HEADER_START = "label,round,kind,src_device,"
_NEEDED = {"kind", "size_bytes", "time_us_median", "status"}
_STATUSES = {"ok", "wrong", "failed", "timeout", "skipped"}
_INTEGERS = ("round", "src_device", "dst_device", "size_bytes", "iterations", "n_wrong")
_REALS = ("time_us_median", "time_us_min", "time_us_max", "time_us_mad")

_VERSION_TEXT = f"The file is of another version than {VERSION}. Read it with a newer release."
_TORN_TEXT = "Rows with too few or too many fields, or of no known status, were skipped."
_NUMBER_TEXT = "Rows with an unreadable number were skipped."
_HEADER_TEXT = "Rows before any header line were skipped."


@dataclass(frozen=True, slots=True)
class CopyTime:
    """What one copy of one size took; kinds as in schemas/memcpy-csv.md.

    Times are of one repetition in microseconds, bandwidths of one direction (GB = 1e9 bytes).
    """

    kind: str
    size_bytes: int  # of one copy in one direction
    label: str | None = None
    round: int | None = None
    src_device: int | None = None  # None: memory of the host
    dst_device: int | None = None
    direction: str = "one"  # one, both
    access: str | None = None  # peer, none; None: does not apply
    time_us_median: float | None = None
    time_us_min: float | None = None
    time_us_max: float | None = None
    time_us_mad: float | None = None
    iterations: int | None = None
    bandwidth_gbps: float | None = None  # None: nothing is copied, or not measured
    n_wrong: int | None = None  # bytes; None: not checked
    checked: str | None = None  # all, sample
    status: str = "ok"  # ok, wrong, failed, timeout, skipped
    message: str | None = None
    device: str | None = None
    runtime: str | None = None  # of the GPU, else the MPI; name and version
    hostname: str | None = None
    started: str | None = None  # UTC, ISO 8601
    line: int | None = None
    samples_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CopySet:
    """Everything that one file holds."""

    copies: tuple[CopyTime, ...]
    lines: int
    diagnostics: tuple[Diagnostic, ...] = field(default=())
    dialect: str = DIALECT


def sniff(head: str) -> bool:
    """True when a text begins like the CSV of `bench memcpy`."""
    return head.lstrip("\ufeff").startswith((_MARK, _HEADER_START))


@dataclass(slots=True)
class _State:
    """Where the reading stands."""

    header: list[str] | None = None
    refused: bool = False


def parse(text: str | Iterable[str]) -> CopySet:
    """Copies of a text, or of its lines, one per row.

    Of a part of another version there is nothing but a diagnostic, ``other_version``.
    """
    notes, state = Notes(), _State()
    found: list[CopyTime] = []
    last = 0
    for last, line in enumerate(text_lines(text), start=1):
        bare = line.lstrip("\ufeff")
        if bare.startswith(_MARK):
            # # collscope.memcpy_csv/1
            state.refused = bare[len(_MARK) :].strip() != str(VERSION)
            if state.refused:
                notes.add(Severity.ERROR, "other_version", _VERSION_TEXT, last, bare)
        elif bare.startswith(_HEADER_START):
            # Again where files were joined.
            state.header = cells(bare)
        elif bare.strip() and not bare.startswith("#") and not state.refused:
            copy = _row(bare, state.header, notes, last)
            if copy is not None:
                found.append(copy)
    return CopySet(tuple(found), last, notes.diagnostics)


def _row(line: str, header: list[str] | None, notes: Notes, at: int) -> CopyTime | None:
    # memcpy,0,peer_async,0,1,one,peer,4096,2.1,2.0,2.9,0.05,420,1.95,0,all,ok,,NVIDIA H200,…
    if header is None or not _NEEDED.issubset(header):
        notes.add(Severity.DATA_LOSS, "no_header", _HEADER_TEXT, at, line)
        return None
    values = cells(line)
    row = dict(zip(header, values, strict=False))
    if len(values) != len(header) or row["status"] not in _STATUSES or not row["kind"]:
        notes.add(Severity.DATA_LOSS, "torn_row", _TORN_TEXT, at, line)
        return None
    copy = _copy(row, at)
    if copy is None:
        notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, at, line)
    return copy


def _copy(row: dict[str, str], at: int) -> CopyTime | None:
    """A row with all its numbers; None when one cannot be read."""
    wholes = {name: whole(row.get(name, "")) for name in _INTEGERS}
    times = {name: _real(row.get(name, "")) for name in _REALS}
    parts = [part for part in row.get("samples_us", "").split(";") if part]
    samples = tuple(value for part in parts if (value := _real(part)) is not None)
    read: dict[str, float | None] = {**wholes, **times}
    unreadable = any(value is None and row.get(name) for name, value in read.items())
    size, median = wholes["size_bytes"], times["time_us_median"]
    if unreadable or size is None or len(samples) != len(parts):
        return None
    rated = median is not None and median > 0 and row["kind"] not in HANDLES
    return CopyTime(
        kind=row["kind"],
        size_bytes=size,
        label=row.get("label") or None,
        round=wholes["round"],
        src_device=wholes["src_device"],
        dst_device=wholes["dst_device"],
        direction=row.get("direction") or "one",
        access=row.get("access") or None,
        time_us_median=median,
        time_us_min=times["time_us_min"],
        time_us_max=times["time_us_max"],
        time_us_mad=times["time_us_mad"],
        iterations=wholes["iterations"],
        bandwidth_gbps=size / median / 1e3 if rated and median is not None else None,
        n_wrong=wholes["n_wrong"],
        checked=row.get("checked") or None,
        status=row["status"],
        message=row.get("message") or None,
        device=row.get("device") or None,
        runtime=row.get("runtime") or None,
        hostname=row.get("hostname") or None,
        started=row.get("started") or None,
        line=at,
        samples_us=samples,
    )


def _real(text: str) -> float | None:
    value = number(text)
    return None if value is None else float(value)
