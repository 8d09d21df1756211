"""Speed of a computation during transfers and collectives; 1 is undisturbed.

Tables with a column of queue pairs or message sizes and one of relative performance per library,
and sentences that name a collective and its figure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope.model import Interference, MeasurementSet, Op, Severity
from collscope.parsers._grid import Grid, grids
from collscope.parsers._names import op_of_text
from collscope.parsers._notes import Notes
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Reader, anywhere
from collscope.parsers.tables._columns import (
    is_size_table,
    setting_of,
    size_of,
    unit_of,
    without_unit,
)
from collscope.parsers.tables._measure import decimal, integer
from collscope.units import count

if TYPE_CHECKING:
    from collscope.parsers.hints import TableHints

DIALECT = "relative_compute"
# "relative compute performance"; 相对计算性能 is the same in Chinese
_WORDS = r"(?:相对计算性能|relative comput(?:e|ation|ing)(?: performance)?)"
_TITLE = re.compile(_WORDS, re.IGNORECASE)
_PAIRS = re.compile(r"#?\s*(?:number of )?(?:qps?|queue[ _-]?pairs?)", re.IGNORECASE)
# - Nvlink NCCL allgather 相对计算性能：0.858（…） / NVLink NCCL AllGather relative compute: 0.858
_SENTENCE = re.compile(
    rf"[\s*-]*(\S.{{0,60}}?)\s*{_WORDS}\s*[:：]\s*(\d(?:\.\d{{1,6}})?)(?![\d.%])", re.IGNORECASE
)
# 6) Allgather 对计算的影响（8 进程/8 GPU，每 GPU 1GB）
_RANKS = re.compile(r"(\d{1,6})\s*(?:进程|processes|ranks)", re.IGNORECASE)
_NEAR = 6  # lines above a sentence that may give the ranks
_MOST = 10.0  # a computation is not ten times faster during a transfer

_NUMBER_TEXT = "Rows whose figure or first column cannot be read were left out."


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Relative performance of computations, labelled with the columns' titles.

    An operation that neither title nor sentence names is asked for; the ranks' own computation,
    the device and the times behind the ratio are unknown.
    """
    notes = Notes()
    found: list[Interference] = []
    claimed: set[int] = set()
    for grid in grids(text):
        near = (*grid.header, *grid.above[:1])
        if any(_TITLE.search(line) for line in near) and _is_sweep(grid):
            claimed.update(row.line for row in (*grid.rows, *grid.cut))
            found += _of_table(grid, text, hints, notes)
    found += _of_sentences(text, hints)
    found.sort(key=lambda row: row.line or 0)
    return MeasurementSet(
        DIALECT,
        lines=line_count(text),
        diagnostics=notes.diagnostics,
        interference=tuple(found),
        claimed=frozenset(claimed),
    )


def _is_sweep(grid: Grid) -> bool:
    """True where the first column holds queue pairs or sizes."""
    return _PAIRS.fullmatch(grid.header[0]) is not None or is_size_table(grid)


def _of_table(grid: Grid, text: str, hints: TableHints, notes: Notes) -> list[Interference]:
    setting = setting_of(grid, text, hints, notes)
    if setting is None:
        return []
    for row in grid.cut:
        notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, row.line, " ".join(row.cells))
    found = []
    for row in grid.rows:
        first = row.cells[0]
        size = size_of(first, unit_of(grid.header[0])) if is_size_table(grid) else None
        pairs = None if is_size_table(grid) else integer(first)
        for name, cell in zip(grid.header[1:], row.cells[1:], strict=True):
            ratio = decimal(cell)
            if (size is None and pairs is None) or not ratio or ratio > _MOST:
                notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, row.line, cell)
                continue
            label = without_unit(name)
            label = label if pairs is None else f"{label}, {count(pairs, 'queue pair')}"
            found.append(
                Interference(
                    setting.op,
                    hints.datatype,
                    size_bytes=size,
                    nranks=setting.nranks,
                    nnodes=setting.nnodes,
                    relative_compute=ratio,
                    label=f"{hints.label}: {label}" if hints.label else label,
                    line=row.line,
                )
            )
    return found


def _of_sentences(text: str, hints: TableHints) -> list[Interference]:
    # A last line without its end may have lost digits.
    lines = [line[:400] for line in text.split("\n")[:-1]]
    found = []
    for at, line in enumerate(lines):
        match = _SENTENCE.match(line)
        op = op_of_text(match[1]) if match else None
        if match is None or op is None or op is Op.UNKNOWN:
            continue
        above = (other for other in lines[max(0, at - _NEAR) : at][::-1] if op_of_text(other) is op)
        ranks = next((int(m[1]) for other in above if (m := _RANKS.search(other))), None)
        label = " ".join(match[1].split())
        found.append(
            Interference(
                op,
                hints.datatype,
                nranks=hints.nranks or ranks,
                nnodes=hints.nnodes,
                relative_compute=float(match[2]),
                label=f"{hints.label}: {label}" if hints.label else label,
                line=at + 1,
            )
        )
    return found


READER = Reader(DIALECT, "table", anywhere, lambda source, hints: parse(source.text(), hints.table))
