"""Tables with a column of message sizes and one column of results per setting: what they share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from collscope.errors import UsageError
from collscope.model import Datatype, Op, Severity
from collscope.parsers._grid import Grid
from collscope.parsers._names import datatype_of_text, only_program, op_of_program, op_of_text
from collscope.parsers.tables._measure import LIMIT, Setting
from collscope.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collscope.parsers._notes import Notes
    from collscope.parsers.hints import TableHints

# Message Size, Message  Size, Size, # Size, size (B), Bytes
_SIZE_COLUMN = re.compile(
    r"#?\s*(?:message\s+|msg\s+)?(?:size|bytes)\s*(\([^()]*\))?", re.IGNORECASE
)
# "64 nodes, 512 ranks" / "All_reduce on 2 nodes, 16 ranks (-n16 -N2)"
_RANKS = re.compile(r"(\d{1,6})[\s-]*(?:ranks|processes|gpus)\b", re.IGNORECASE)
_NODES = re.compile(r"(\d{1,6})[\s-]*nodes\b", re.IGNORECASE)
_UNIT = re.compile(r"\(([^()]{1,20})\)")
# "Pickle (Gbps)": bits; "busbw (GB/s)": bytes
TO_GBPS = {"gb/s": 1.0, "gbps": 0.125, "gbit/s": 0.125, "tb/s": 1e3}

_OP_TEXT = (
    "Tables without an operation were left out. Name it with collscope ingest table --op NAME"
)
_ASSUMED_TEXT = (
    "A table does not name its operation: the only one that the text names is used. Name another "
    "with collscope ingest table --op NAME."
)
_CUT_TEXT = "Rows that are cut or broken were left out."
_SIZE_TEXT = "Rows with an unreadable size were left out."


class Column(msgspec.Struct, frozen=True):
    """Results of one setting: label, unit as printed, and (line, size in bytes, cell) each."""

    label: str
    unit: str
    cells: tuple[tuple[int, int, str], ...]


def is_size_table(grid: Grid) -> bool:
    """True when the first column holds message sizes."""
    return _SIZE_COLUMN.fullmatch(grid.header[0]) is not None


def words_of(grid: Grid) -> str:
    """Title and header, for a look at what the numbers are."""
    return " ".join((*grid.above[:1], *grid.header))


def unit_of(cell: str) -> str:
    """Unit in parentheses at a header's cell, lower case; empty when there is none.

    >>> unit_of("Pickle Bw(Gbps)")
    'gbps'
    """
    found = _UNIT.findall(cell)
    return found[-1].strip().lower() if found else ""


def without_unit(cell: str) -> str:
    """A header's cell without its unit.

    >>> without_unit("Pickle Bw(Gbps)")
    'Pickle Bw'
    """
    return " ".join(_UNIT.sub(" ", cell).split()) or cell


def columns_of(grid: Grid, notes: Notes) -> Iterator[Column]:
    """One column per setting; sizes have binary prefixes, their own or the title's: Size (MB)."""
    for row in grid.cut:
        notes.add(Severity.DATA_LOSS, "cut_row", _CUT_TEXT, row.line, " ".join(row.cells))
    sizes = []
    unit = unit_of(grid.header[0])
    for row in grid.rows:
        size = size_of(row.cells[0], unit)
        if size is None:
            notes.add(Severity.DATA_LOSS, "bad_size", _SIZE_TEXT, row.line, row.cells[0])
        sizes.append(size)
    for place, name in enumerate(grid.header[1:], start=1):
        cells = tuple(
            (row.line, size, row.cells[place])
            for row, size in zip(grid.rows, sizes, strict=True)
            if size
        )
        yield Column(without_unit(name), unit_of(name), cells)


def size_of(text: str, unit: str = "") -> int | None:
    """Bytes of a size below 2^63; `unit` is that of a bare number, by its column's title.

    >>> size_of("64.00 KB"), size_of("4", "mb"), size_of("many")
    (65536, 4194304, None)
    """
    if len(text) > 24:
        return None
    bare = text.strip()[-1:].isdecimal() and unit not in ("", "byte", "bytes")
    try:
        size = parse_size(text + unit if bare else text)
    except UsageError:
        return None
    return size if size < LIMIT else None


def setting_of(grid: Grid, text: str, hints: TableHints, notes: Notes) -> Setting | None:
    """Operation, ranks and hosts of a table by its title; None, counted, without an operation.

    text  that the table is in: the last resort, where it names one operation's program only
    """
    op = hints.op or next((o for line in grid.above if (o := op_of_text(line))), None)
    op = op or op_of_text(" ".join(grid.header)) or op_of_program(hints.name)
    op = op or op_of_text(hints.name)
    if op is None and (op := only_program(text)) is not None:
        notes.add(Severity.NOTICE, "op_assumed", _ASSUMED_TEXT, grid.line, " ".join(grid.header))
    if op is None or op is Op.UNKNOWN:
        notes.add(Severity.DATA_LOSS, "op_unknown", _OP_TEXT, grid.line, " ".join(grid.header))
        return None
    return Setting(
        op=op,
        nranks=hints.nranks or _first(_RANKS, grid.above) or (2 if op is Op.SEND_RECV else None),
        nnodes=hints.nnodes or _first(_NODES, grid.above),
    )


def datatype_of(grid: Grid, hints: TableHints) -> Datatype | None:
    """Element type by the user or by the lines above the table."""
    found = (datatype_of_text(line) for line in grid.above)
    return hints.datatype or next((d for d in found if d), None)


def label_of(column: Column, several: bool, hints: TableHints) -> str | None:
    """A column's label; the user's comes first, and stands alone when there is one column."""
    if not several:
        return hints.label or column.label
    return f"{hints.label}: {column.label}" if hints.label else column.label


def _first(pattern: re.Pattern[str], lines: tuple[str, ...]) -> int | None:
    return next((int(m[1]) for line in lines if (m := pattern.search(line))), None)
