"""Summaries of bandwidths: a column of sizes, one of GB/s per setting, and no times.

The time of a call is computed from the bandwidth, as exact as the digits that were printed. A
column without a unit is a bus bandwidth when the table has "Message Size" and nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.model import Measurement, MeasurementSet, Severity, bus_factor
from collscope.parsers._grid import Grid, grids
from collscope.parsers._notes import Notes
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Reader, anywhere
from collscope.parsers.tables._columns import (
    TO_GBPS,
    Column,
    columns_of,
    datatype_of,
    is_size_table,
    label_of,
    setting_of,
    words_of,
)
from collscope.parsers.tables._measure import Result, decimal, measure

if TYPE_CHECKING:
    from collscope.parsers.hints import TableHints

DIALECT = "summary_table"
METHOD = "time computed from a printed bandwidth"
_TITLE_UNIT = re.compile(r"\b(GB/s|Gbps|Gbit/s)", re.IGNORECASE)
_BANDWIDTH = re.compile(r"bandwidth|\b(?:alg|bus)?bw\b", re.IGNORECASE)
_ALGORITHM = re.compile(r"alg(?:orithm)?\s*(?:bw|bandwidth)", re.IGNORECASE)
_BARE = re.compile(r"message\s+size", re.IGNORECASE)
_OTHER = re.compile(r"latency|\btime\b|\bus\b|relative|speed-?\s?up|per second", re.IGNORECASE)

_UNIT_TEXT = "Tables with sizes but no unit were left out: what they hold is not known."
_RANKS_TEXT = (
    "A table of bus bandwidths does not give the number of ranks, so there are no times. Give it"
    " with collscope ingest table --ranks N"
)
_NUMBER_TEXT = "Cells without a readable bandwidth were left out."
_BELOW_TEXT = "Bandwidths printed as zero are too small for the printed digits: they were left out."
_AGAIN_TEXT = "A table that the text repeats was read once."


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Measurements of every summary of bandwidths, labelled with the columns' titles."""
    notes = Notes()
    found: list[Measurement] = []
    seen: set[tuple[object, ...]] = set()
    for grid in grids(text):
        if not is_size_table(grid) or not _is_bandwidth(grid, notes):
            continue
        key = (grid.header, tuple(row.cells for row in grid.rows))
        if key in seen:
            notes.add(Severity.NOTICE, "repeated_table", _AGAIN_TEXT, grid.line)
            continue
        seen.add(key)
        found += _measurements(grid, text, hints, notes)
    lines = line_count(text)
    return MeasurementSet(DIALECT, tuple(found), None, None, lines, notes.diagnostics)


def _is_bandwidth(grid: Grid, notes: Notes) -> bool:
    words = words_of(grid)
    if _TITLE_UNIT.search(words) or _BANDWIDTH.search(words):
        return True
    if _OTHER.search(words):
        return False
    if _BARE.match(grid.header[0].strip("# ")):
        return True
    notes.add(Severity.NOTICE, "no_unit", _UNIT_TEXT, grid.line, " ".join(grid.header))
    return False


def _measurements(grid: Grid, text: str, hints: TableHints, notes: Notes) -> list[Measurement]:
    setting = setting_of(grid, text, hints, notes)
    if setting is None:
        return []
    setting = replace(setting, method=METHOD)
    algorithm = bool(_ALGORITHM.search(words_of(grid)))
    factor = 1.0 if algorithm else bus_factor(setting.op, setting.nranks)
    if factor is None:
        notes.add(Severity.DATA_LOSS, "nranks_unknown", _RANKS_TEXT, grid.line)
        return []
    title = _TITLE_UNIT.search(grid.above[0]) if grid.above else None
    datatype = datatype_of(grid, hints)
    columns = [c for c in columns_of(grid, notes) if not c.unit or c.unit in TO_GBPS]
    found = []
    for column in columns:
        label = label_of(column, len(columns) > 1, hints)
        unit = TO_GBPS.get(column.unit or (title[1].lower() if title else ""), 1.0)
        for result in _results(column, unit, factor, notes):
            row = replace(result, datatype=datatype, busbw=None if algorithm else result.busbw)
            if (m := measure(row, replace(setting, label=label), notes)) is not None:
                found.append(m)
    return found


def _results(column: Column, unit: float, factor: float, notes: Notes) -> list[Result]:
    """Results with the time that a bandwidth means."""
    found = []
    for line, size, cell in column.cells:
        printed = decimal(cell)
        if not printed:
            severity, code, message = (
                (Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT)
                if printed is None
                else (Severity.NOTICE, "below_precision", _BELOW_TEXT)
            )
            notes.add(severity, code, message, line, cell)
            continue
        gbps = printed * unit
        # busbw [GB/s] = factor * size / time [us] / 1000
        time_us = factor * size / gbps * 1e-3
        found.append(Result(line, size, f"{time_us:.17g}", busbw=f"{gbps:.12g}"))
    return found


READER = Reader(
    "summary_table", "table", anywhere, lambda source, hints: parse(source.text(), hints.table)
)
