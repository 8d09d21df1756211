"""Tables of latencies: a column of sizes, one of microseconds per library or setting.

As in MSCCL's documentation (size, NCCL, MSCCL, speed-up). Sizes count as nccl-tests' size S,
total bytes of a call. Speed-up columns are compared with the times and not kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.model import Measurement, MeasurementSet, Severity
from collscope.parsers._grid import Grid, grids
from collscope.parsers._notes import Notes
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Reader, anywhere
from collscope.parsers.tables._columns import (
    Column,
    columns_of,
    datatype_of,
    is_size_table,
    label_of,
    setting_of,
    words_of,
)
from collscope.parsers.tables._measure import Result, decimal, interval, measure

if TYPE_CHECKING:
    from collscope.parsers.hints import TableHints

DIALECT = "latency_table"
METHOD = "a table of latencies"
# "All-Gather Latency (us)"; "NCCL (us)"
_TIME = re.compile(r"latency|\btime\b|\(\s*(?:us|µs|μs|usec)\s*\)", re.IGNORECASE)
_TO_US = {"": 1.0, "us": 1.0, "µs": 1.0, "μs": 1.0, "usec": 1.0, "ms": 1e3, "s": 1e6, "ns": 1e-3}
_SPEEDUP = re.compile(r"speed-?\s?up", re.IGNORECASE)

_SPEEDUP_TEXT = "A printed speed-up is not the ratio of the printed times."


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Measurements of every table of latencies in a text, labelled with the columns' titles."""
    notes = Notes()
    found: list[Measurement] = []
    for grid in grids(text):
        if is_size_table(grid) and _TIME.search(words_of(grid)):
            found += _measurements(grid, text, hints, notes)
    lines = line_count(text)
    return MeasurementSet(DIALECT, tuple(found), None, None, lines, notes.diagnostics)


def _measurements(grid: Grid, text: str, hints: TableHints, notes: Notes) -> list[Measurement]:
    columns = list(columns_of(grid, notes))
    timed = [c for c in columns if c.unit in _TO_US and not _SPEEDUP.search(c.label)]
    timed = [c for c in timed if not any("x" in cell or "%" in cell for _, _, cell in c.cells)]
    setting = setting_of(grid, text, hints, notes) if timed else None
    if setting is None:
        return []
    for speedup in (c for c in columns if _SPEEDUP.search(c.label)):
        _check_speedup(speedup, timed, notes)
    datatype = datatype_of(grid, hints)
    found = []
    for column in timed:
        label = label_of(column, len(timed) > 1, hints)
        named = replace(setting, label=label, method=METHOD)
        for line, size, cell in column.cells:
            printed = decimal(cell)
            time = cell if printed is None else f"{printed * _TO_US[column.unit]:.17g}"
            result = Result(line, size, time, datatype=datatype)
            if (m := measure(result, named, notes)) is not None:
                found.append(m)
    return found


def _check_speedup(speedup: Column, timed: list[Column], notes: Notes) -> None:
    """Compare a speed-up with the first column's time divided by that of the column it names."""
    name = _SPEEDUP.sub("", speedup.label).strip()
    other = next((c for c in timed if c.label == name), timed[-1])
    for (line, _, cell), before, after in zip(
        speedup.cells, timed[0].cells, other.cells, strict=True
    ):
        printed = interval(cell.rstrip("x"))
        first, second = interval(before[2]), interval(after[2])
        if printed is None or first is None or second is None or second[0] <= 0:
            continue
        if first[1] / second[0] < printed[0] or first[0] / second[1] > printed[1]:
            notes.add(Severity.NOTICE, "speedup_mismatch", _SPEEDUP_TEXT, line, cell)


READER = Reader(
    "latency_table", "table", anywhere, lambda source, hints: parse(source.text(), hints.table)
)
