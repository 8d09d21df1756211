"""Tables of a heading and numbers inside any text: HTML, Markdown, tab-separated, CSV, aligned.

A grid is a header line whose cells after the first are words, and the lines below it with as many
cells. The cells after the first are numbers; all but one may be marks for no number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from collscope.parsers._notes import cells as csv_cells
from collscope.parsers._rows import text_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NUMERIC = re.compile(r"-?\d{1,19}(?:\.\d{0,19})?(?:[eE][+-]?\d{1,3})?[x%]?", re.ASCII)
# "", -, N/A: not measured
_MISSING = re.compile(r"[-\u2013\u2014]{0,3}|n/?a|nan", re.IGNORECASE)
# 64KB, 1.5 MiB, 64 nodes
_LEADING = re.compile(r"\d{1,19}(?:\.\d{1,19})?\s?[A-Za-z]{0,8}", re.ASCII)
_TAG = re.compile(r"<(/?)(table|tr|th|td)\b[^<>]{0,200}>", re.IGNORECASE)
_MARKUP = re.compile(r"<[^<>]{0,200}>|&nbsp;")
_RULER = re.compile(r"[\s|:+=-]+")
_GAP = re.compile(r"\t| {2,}")
_NEAR = 3  # lines above and below that may name the table
_FAR = 20  # lines, with blank ones
_LONGEST = 2000  # characters of a line that can be a table's


class Row(msgspec.Struct, frozen=True):
    """Cells of one line; `line` counts from 1."""

    line: int
    cells: tuple[str, ...]


class Grid(msgspec.Struct, frozen=True):
    """One table. `above` and `below` are the lines of text nearest to it, nearest first."""

    header: tuple[str, ...]
    rows: tuple[Row, ...]
    above: tuple[str, ...]
    below: tuple[str, ...] = ()
    cut: tuple[Row, ...] = ()  # rows with other cells than the header's, or no numbers in them

    @property
    def line(self) -> int:
        """Line of the first row."""
        return self.rows[0].line


def grids(text: str) -> list[Grid]:
    """Tables of a text, in order.

    >>> [g.header for g in grids("Size\\tA\\tB\\n1 KB\\t2\\t3\\n")]
    [('Size', 'A', 'B')]
    """
    lines = list(text_lines(text))
    # A last line without its end may have lost digits, unless a bar closes it.
    ended = text.endswith("\n") or lines[-1].rstrip().endswith("|")
    found = [*_html(text), *_plain(lines, len(lines) if ended else len(lines) - 1)]
    return sorted(found, key=lambda grid: grid.line)


def _plain(lines: Sequence[str], ended: int) -> Iterator[Grid]:
    """Tables of lines; the first `ended` lines have their end."""
    at = 0
    while at + 1 < len(lines):
        header = _split(lines[at])
        if not _is_header(header):
            at += 1
            continue
        rows, cut, end = _rows(lines, at + 1, len(header), ended)
        if rows:
            above, below = (
                _nearest(lines[max(0, at - 20) : at][::-1]),
                _nearest(lines[end : end + 20]),
            )
            yield Grid(header, tuple(rows), above, below, tuple(cut))
        at = max(end, at + 1)


def _rows(
    lines: Sequence[str], at: int, width: int, ended: int
) -> tuple[list[Row], list[Row], int]:
    """Rows below a header, those that cannot be used, and the first line after them."""
    rows: list[Row] = []
    cut: list[Row] = []
    while at < len(lines):
        row = Row(at + 1, _split(lines[at]))
        if not _RULER.fullmatch(lines[at]) or not lines[at].strip():
            if at < ended and _is_row(row.cells, width):
                rows.append(row)
            elif _is_cut(row.cells, width) and (rows or len(row.cells) > 1):
                cut.append(row)
            else:
                break
        at += 1
    return rows, cut, at


def _is_row(cells: tuple[str, ...], width: int) -> bool:
    return (
        len(cells) == width
        and all(NUMERIC.fullmatch(c) or _MISSING.fullmatch(c) for c in cells[1:])
        and any(NUMERIC.fullmatch(c) for c in cells[1:])
    )


def _is_cut(cells: tuple[str, ...], width: int) -> bool:
    """True for what begins like a row: it lost cells, or they are not numbers."""
    numbers = all(NUMERIC.fullmatch(c) for c in cells[1:])
    return bool(cells and _LEADING.fullmatch(cells[0])) and (numbers or len(cells) == width)


def _split(line: str) -> tuple[str, ...]:
    text = line.strip("\r\n")
    if not text.strip() or len(text) > _LONGEST:
        return ()
    if text.lstrip().startswith("|"):
        parts = text.strip().strip("|").split("|")
    elif "\t" in text or "  " in text.strip():
        parts = _GAP.split(text.rstrip() if "\t" in text else text.strip())
    else:
        parts = csv_cells(text) if "," in text else [text]
    return tuple(part.strip(" \t\f*`") for part in parts)


def _is_header(cells: tuple[str, ...]) -> bool:
    return len(cells) > 1 and all(c and not NUMERIC.fullmatch(c) for c in cells[1:])


def _nearest(lines: Sequence[str]) -> tuple[str, ...]:
    """The first lines that hold something, without markup."""
    found = []
    for line in lines:
        text = _MARKUP.sub(" ", line[:_LONGEST]).strip(" \t\r\n#*`")
        if text:
            found.append(text)
        if len(found) == _NEAR:
            break
    return tuple(found)


def _html(text: str) -> Iterator[Grid]:
    """HTML tables: rows of th and td; a row of one cell is a title."""
    rows: list[Row] = []
    cells: list[str] = []
    cell_at: int | None = None
    line, counted, table_at = 1, 0, 0
    for tag in _TAG.finditer(text):
        line += text.count("\n", counted, tag.start())
        counted = tag.start()
        closes, name = bool(tag[1]), tag[2].lower()
        if name in ("td", "th"):
            if closes and cell_at is not None:
                cells.append(" ".join(_MARKUP.sub(" ", text[cell_at : tag.start()]).split()))
            cell_at = None if closes else tag.end()
        elif name == "tr":
            if closes and cells:
                rows.append(Row(line, tuple(cells)))
            cells = []
        else:
            if closes or rows:
                yield from _html_grid(rows, text[max(0, table_at - 4000) : table_at])
            rows, table_at = [], tag.start()
    if cells:
        rows.append(Row(line, tuple(cells)))
    yield from _html_grid(rows, text[max(0, table_at - 4000) : table_at])


def _html_grid(rows: list[Row], before: str) -> Iterator[Grid]:
    titles = [row.cells[0] for row in rows if len(row.cells) == 1]
    wide = [row for row in rows if len(row.cells) > 1]
    if len(wide) < 2 or not _is_header(wide[0].cells):
        return
    header = wide[0].cells
    full = tuple(r for r in wide[1:] if _is_row(r.cells, len(header)))
    rest = (r for r in wide[1:] if not _is_row(r.cells, len(header)))
    if full:
        above = (*titles, *_nearest(before.splitlines()[-_FAR:][::-1]))
        cut = tuple(r for r in rest if _is_cut(r.cells, len(header)))
        yield Grid(header, full, above, (), cut)
