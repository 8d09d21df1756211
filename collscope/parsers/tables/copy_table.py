"""Tables of copies: a column of sizes, and pairs of columns with times and bandwidths.

As a benchmark of cudaMemcpyAsync between GPUs of two processes prints them. Bandwidths are computed
again from time and size; a printed one that differs is counted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope.model import CopyTime, MeasurementSet, Severity
from collscope.parsers._grid import Grid, grids
from collscope.parsers._notes import Notes
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Reader, anywhere
from collscope.parsers.tables._columns import size_of, unit_of, without_unit
from collscope.parsers.tables._measure import decimal, interval

if TYPE_CHECKING:
    from collscope.parsers.hints import TableHints

DIALECT = "copy_table"
# Chunk Size (Bytes), Async Without Overhead (ms), Async Without Overhead (GB/s), …
_FIRST = re.compile(r"#?\s*(?:chunk|copy|buffer|transfer)\s+size\s*(?:\([^()]*\))?", re.IGNORECASE)
_TO_US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
_COPIES = re.compile(r"(?:cuda|hip)?memcpy", re.IGNORECASE)
_IPC = re.compile(r"ipc", re.IGNORECASE)
_PEER = re.compile(r"peer|p2p|d2d", re.IGNORECASE)
_ASYNC = re.compile(r"async", re.IGNORECASE)
_SYNC = re.compile(r"sync", re.IGNORECASE)
_WITH = re.compile(r"(?<!out )with overhead|with open", re.IGNORECASE)

_KIND_TEXT = (
    "Tables of copies were left out because they name neither peers nor IPC handles, or neither"
    " async nor sync."
)
_NUMBER_TEXT = "Cells without a readable size or time were left out."
_DIFFERS_TEXT = "A printed bandwidth is not size / time, beyond its digits: it was computed again."


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Copies of every such table; kinds as in schemas/memcpy-csv.md, devices not known."""
    notes = Notes()
    found: list[CopyTime] = []
    claimed: set[int] = set()
    for grid in grids(text):
        near = " ".join((*grid.header, *grid.above))
        if _FIRST.fullmatch(grid.header[0]) and _COPIES.search(near):
            claimed.update(row.line for row in (*grid.rows, *grid.cut))
            found += _copies(grid, near, hints, notes)
    return MeasurementSet(
        DIALECT,
        lines=line_count(text),
        diagnostics=notes.diagnostics,
        copies=tuple(found),
        claimed=frozenset(claimed),
    )


def _copies(grid: Grid, near: str, hints: TableHints, notes: Notes) -> list[CopyTime]:
    found = []
    for row in grid.cut:
        notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, row.line, " ".join(row.cells))
    units = [unit_of(name) for name in grid.header]
    names = [without_unit(name) for name in grid.header]
    for place, unit in enumerate(units):
        if not place or unit not in _TO_US:
            continue
        kind = _kind(names[place], near)
        if kind is None:
            notes.add(Severity.NOTICE, "kind_unknown", _KIND_TEXT, grid.line, grid.header[place])
            continue
        beside = next(
            (p for p, u in enumerate(units) if u == "gb/s" and names[p] == names[place]), None
        )
        label = f"{hints.label}: {names[place]}" if hints.label else names[place]
        for row in grid.rows:
            size, time = size_of(row.cells[0], units[0]), decimal(row.cells[place])
            if not size or not time:
                notes.add(
                    Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, row.line, row.cells[place]
                )
                continue
            time_us = time * _TO_US[unit]
            if beside is not None and not _agrees(
                size, row.cells[place], _TO_US[unit], row.cells[beside]
            ):
                notes.add(
                    Severity.NOTICE,
                    "bandwidth_mismatch",
                    _DIFFERS_TEXT,
                    row.line,
                    row.cells[beside],
                )
            found.append(
                CopyTime(
                    kind,
                    size,
                    label=label,
                    time_us_median=time_us,
                    bandwidth_gbps=size / time_us / 1e3,
                    line=row.line,
                )
            )
    return found


def _kind(column: str, near: str) -> str | None:
    """Kind of the copies of a column, by its title and by the words near the table."""
    words = f"{column} {near}"
    where = "ipc" if _IPC.search(words) else "peer" if _PEER.search(words) else None
    if where is None or not _SYNC.search(column):
        return None
    if _ASYNC.search(column):
        return f"{where}_async"
    opens = where == "ipc" and _WITH.search(column)
    return f"{where}_sync_open" if opens else f"{where}_sync"


def _agrees(size: int, time: str, to_us: float, gbps: str) -> bool:
    times, rates = interval(time), interval(gbps)
    if times is None or rates is None or times[0] <= 0:
        return True
    least, most = (size / (end * to_us) / 1e3 for end in reversed(times))
    return least <= rates[1] and rates[0] <= most


READER = Reader(DIALECT, "table", anywhere, lambda source, hints: parse(source.text(), hints.table))
