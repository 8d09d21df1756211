"""Tables of bandwidths over queue pairs: a column of their number, one of GB/s per library.

The size of the messages is in the title. The time of a call is computed from the bandwidth, as
exact as the digits that were printed.
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
from collscope.parsers.tables._columns import TO_GBPS, setting_of, size_of, unit_of, without_unit
from collscope.parsers.tables._measure import Result, decimal, integer, measure
from collscope.units import count

if TYPE_CHECKING:
    from collscope.parsers.hints import TableHints

DIALECT = "queue_pairs"
METHOD = "time computed from a printed bandwidth"
# QP  Pickle (Gbps)  NCCL (Gbps) / Number of QPs / queue pairs
_FIRST = re.compile(r"#?\s*(?:number of )?(?:qps?|queue[ _-]?pairs?)", re.IGNORECASE)
# "RDMA P2P bandwidth vs QP (message 1GB)"
_SIZE = re.compile(r"(?<![\w.])(\d{1,6}(?:\.\d{1,3})?\s?[KMGT]i?B)(?![\w/])", re.IGNORECASE)

_SIZE_TEXT = "A table over queue pairs was left out because its title gives no message size."
_RANKS_TEXT = (
    "A table of bus bandwidths does not give the number of ranks, so there are no times. Give it"
    " with collscope ingest table --ranks N"
)
_NUMBER_TEXT = "Rows without a readable number of queue pairs, or a bandwidth, were left out."


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Measurements of every such table, labelled with library and number of queue pairs."""
    notes = Notes()
    found: list[Measurement] = []
    claimed: set[int] = set()
    for grid in grids(text):
        units = [unit_of(name) for name in grid.header[1:]]
        if _FIRST.fullmatch(grid.header[0]) and any(unit in TO_GBPS for unit in units):
            claimed.update(row.line for row in (*grid.rows, *grid.cut))
            found += _measurements(grid, text, hints, notes)
    return MeasurementSet(
        DIALECT,
        tuple(found),
        lines=line_count(text),
        diagnostics=notes.diagnostics,
        claimed=frozenset(claimed),
    )


def _measurements(grid: Grid, text: str, hints: TableHints, notes: Notes) -> list[Measurement]:
    setting = setting_of(grid, text, hints, notes)
    if setting is None:
        return []
    size = _size(grid.above[:1])
    if size is None:
        notes.add(Severity.DATA_LOSS, "size_unknown", _SIZE_TEXT, grid.line)
        return []
    factor = bus_factor(setting.op, setting.nranks)
    if factor is None:
        notes.add(Severity.DATA_LOSS, "nranks_unknown", _RANKS_TEXT, grid.line)
        return []
    for row in grid.cut:
        notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, row.line, " ".join(row.cells))
    found = []
    for name, place in zip(grid.header[1:], range(1, len(grid.header)), strict=True):
        scale = TO_GBPS.get(unit_of(name))
        for row in grid.rows if scale else ():
            pairs, printed = integer(row.cells[0]), decimal(row.cells[place])
            if pairs is None or not printed or not scale:
                notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, row.line)
                continue
            gbps = printed * scale
            label = f"{without_unit(name)}, {count(pairs, 'queue pair')}"
            full = f"{hints.label}: {label}" if hints.label else label
            # busbw [GB/s] = factor * size / time [us] / 1000
            time = f"{factor * size / gbps * 1e-3:.17g}"
            result = Result(row.line, size, time, datatype=hints.datatype, busbw=f"{gbps:.12g}")
            measured = measure(result, replace(setting, label=full, method=METHOD), notes)
            found += [] if measured is None else [measured]
    return found


def _size(title: tuple[str, ...]) -> int | None:
    """Bytes that a title names, where it names one size."""
    sizes = {size for line in title for size in _SIZE.findall(line)}
    return size_of(sizes.pop()) if len(sizes) == 1 else None


READER = Reader(DIALECT, "table", anywhere, lambda source, hints: parse(source.text(), hints.table))
