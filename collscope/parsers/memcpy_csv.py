"""The CSV of `collscope bench memcpy` (schemas/memcpy-csv.md), also several joined to one file.

Bandwidths are computed again from time and size, so that every figure of the store comes from one
place.
"""

from __future__ import annotations

from collscope.model import CopyTime, MeasurementSet, Severity
from collscope.parsers._contradictions import checked_copy
from collscope.parsers._notes import Notes
from collscope.parsers._own_csv import Layout, Row, count_unreadable, numbers_of, read_rows
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Reader, whole_if

DIALECT = "memcpy_csv"
# Rows that copy nothing, and so have no bandwidth.
HANDLES = ("ipc_open", "ipc_close", "window_open", "window_close")
_LAYOUT = Layout(
    f"# collscope.{DIALECT}/",
    "label,round,kind,src_device,",
    frozenset(("kind", "size_bytes", "time_us_median", "status")),
    frozenset(("ok", "wrong", "failed", "timeout", "skipped")),
)
_INTEGERS = ("round", "src_device", "dst_device", "size_bytes", "iterations", "n_wrong")
_REALS = ("time_us_median", "time_us_min", "time_us_max", "time_us_mad")

_KIND_TEXT = "Rows without a kind were skipped."


def sniff(head: str) -> bool:
    """True when a text begins like the CSV of `bench memcpy`."""
    return _LAYOUT.sniff(head)


def parse(text: str) -> MeasurementSet:
    """Copies of a text, one per row; a last row without a line end is none (``cut_row``).

    Of a part of another version there is only a diagnostic, ``other_version``.
    """
    notes = Notes()
    rows = read_rows(text, _LAYOUT, notes)
    found = tuple(copy for row in rows if (copy := _copy(row, notes)) is not None)
    return MeasurementSet(
        DIALECT, copies=found, lines=line_count(text), diagnostics=notes.diagnostics
    )


def _copy(read: Row, notes: Notes) -> CopyTime | None:
    # memcpy,0,peer_async,0,1,one,peer,4096,2.1,2.0,2.9,0.05,420,1.95,0,all,ok,,NVIDIA H200,…
    row = read.fields
    if not row["kind"]:
        notes.add(Severity.DATA_LOSS, "torn_row", _KIND_TEXT, read.at, read.line)
        return None
    numbers = numbers_of(read, _INTEGERS, _REALS, ("samples_us",), notes)
    if numbers is None:
        return None
    wholes, times = numbers.wholes, numbers.reals
    size, median = wholes["size_bytes"], times["time_us_median"]
    if size is None:
        count_unreadable(read, notes)
        return None
    rated = median is not None and median > 0 and row["kind"] not in HANDLES
    found = CopyTime(
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
        line=read.at,
        samples_us=numbers.lists["samples_us"],
    )
    return checked_copy(found, read.line, notes)


READER = Reader(DIALECT, "csv", whole_if(sniff), lambda source, _hints: parse(source.text()))
