"""Sections as aligned plain text, as wide as the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from collscope.reports.rendering.layout import (
    BAR,
    NAME,
    NUMBER,
    PATH,
    PROSE,
    TEXT,
    Column,
    Item,
    Section,
    Table,
    in_lines,
)
from collscope.writing import folded, one_line

WIDTH = 120  # columns of the text form where nothing names another width; most of a sentence
COMMAND = "collscope "  # a block that begins so runs as it stands: it is not folded
_NARROWEST_PAGE = 40  # of a terminal; a narrower one folds the lines
_NARROWEST = 16  # text is not cut below this
_MOST_NAMES = 3  # columns that are repeated in each part of a table, before a text and behind it
_NAMED = 0.6  # of the width, at most, for columns that name a row
_GAP = "  "


def terminal_width() -> int | None:
    """COLUMNS of the environment, else columns of the terminal that standard output is.

    None: there is neither.
    """
    try:
        named = int(os.environ.get("COLUMNS", "0"))
    except ValueError:
        named = 0
    if named <= 0 and (sys.stdout is None or not sys.stdout.isatty()):
        return None
    return max(shutil.get_terminal_size((WIDTH, 0)).columns, _NARROWEST_PAGE)


def text_width() -> int:
    """Columns as `terminal_width` has them, else 120."""
    return terminal_width() or WIDTH


def to_text(
    title: str, sections: Iterable[Section], *, wide: bool = False, before: str = ""
) -> str:
    """Plain text, at most `text_width` columns wide but for a word that is longer.

    wide    tables have the width that they need, so that nothing is cut
    before  every line, such as the sign of a comment
    """
    width = text_width() - len(before)
    prose, tables = min(width, WIDTH), None if wide else width
    title = one_line(title)
    lines = [title, "=" * len(title)]
    for section in in_lines(sections):
        if section.title:
            lines += ["", section.title, "-" * len(section.title)]
        for last, block in zip((None, *section.blocks), section.blocks, strict=False):
            if last is not None and (isinstance(block, Table) or isinstance(last, Table)):
                lines.append("")
            lines += _text_block(block, prose, tables)
    return "".join(f"{before}{line}".rstrip() + "\n" for line in lines)


def _text_block(block: str | Item | Table, prose: int, tables: int | None) -> list[str]:
    if isinstance(block, Table):
        return text_table(block, tables)
    if isinstance(block, str):
        return [block] if block.startswith(COMMAND) else folded(block, prose)
    lines = folded(block.head, prose, rest="  ")
    for line in block.lines:
        lines += folded(line, prose, "    ", "      ")
    return lines


def text_table(block: Table, width: int | None) -> list[str]:
    """Lines of a table; one that is too wide folds its titles, cuts long texts, and then goes on
    below in parts, each with the columns that name its rows.

    width  of the lines; None: what the table needs
    """
    titles = [column.title for column in block.columns]
    cells = [max((len(row[i]) for row in block.rows), default=0) for i in range(len(titles))]
    widths = [max(len(title), cell) for title, cell in zip(titles, cells, strict=True)]
    if width is None or _total(widths) <= width:
        return _text_part(block, widths, range(len(widths)))
    words = [max(map(len, title.split()), default=0) for title in titles]
    full = [max(word, cell) for word, cell in zip(words, cells, strict=True)]
    widths = list(full)
    _cut_texts(block.columns, widths, words, width)
    names = _names(block, widths, width)
    rest = [i for i in range(len(widths)) if i not in names]
    parts = []
    for part in _parts(names, rest, widths, width):
        wider = _widened(widths, full, part, rest, width)
        parts.append(_text_part(block, wider, part))
    return [line for part in parts for line in ("", *part)][1:]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _cut_texts(
    columns: Sequence[Column], widths: list[int], words: Sequence[int], width: int
) -> None:
    """Make columns of text narrower, the widest first, as far as that is needed and bearable."""
    cut = (TEXT, PATH, NAME, BAR, PROSE)
    texts = [i for i, column in enumerate(columns) if column.kind in cut]
    while _total(widths) > width:
        wide = [i for i in texts if widths[i] > max(_NARROWEST, words[i])]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def _names(block: Table, widths: Sequence[int], width: int) -> list[int]:
    """Columns that name a row: the first text and what stands before it, where that is little;
    else the first column. Next to them as many as distinguish rows, where there is room."""
    first = next((i for i, column in enumerate(block.columns) if column.kind != NUMBER), 0)
    names = list(range(first + 1 if first < _MOST_NAMES else 1))
    for i in range(len(names), min(len(names) + _MOST_NAMES, len(widths))):
        more = [*names, i]
        telling = _distinct(block, more) > _distinct(block, names)
        if telling and _total([widths[j] for j in more]) <= _NAMED * width:
            names = more
    return names


def _distinct(block: Table, columns: Sequence[int]) -> int:
    """How many rows some columns distinguish."""
    return len({tuple(row[i] for i in columns) for row in block.rows})


def _parts(
    names: list[int], rest: Sequence[int], widths: Sequence[int], width: int
) -> list[list[int]]:
    """Columns of each part: those that name a row, and as many others as there is room for."""
    parts = [names]
    for i in rest:
        if _total([widths[j] for j in (*parts[-1], i)]) > width and len(parts[-1]) > len(names):
            parts.append(names)
        parts[-1] = [*parts[-1], i]
    return parts


def _widened(
    widths: Sequence[int], full: Sequence[int], part: Sequence[int], which: list[int], width: int
) -> list[int]:
    """Widths with what a part leaves free, for those of its columns that were cut."""
    wider = list(widths)
    for i in sorted(set(part).intersection(which), key=lambda i: full[i] - widths[i]):
        room = width - _total([wider[j] for j in part])
        wider[i] += max(0, min(room, full[i] - wider[i]))
    return wider


def _text_part(block: Table, widths: Sequence[int], part: Sequence[int]) -> list[str]:
    """Lines of some columns; titles that are too long take several lines."""
    columns, widths = [block.columns[i] for i in part], [widths[i] for i in part]
    titles = [
        folded(column.title, max(width, 1)) for column, width in zip(columns, widths, strict=True)
    ]
    height = max(map(len, titles), default=0)
    # All end on the same line, above the rule.
    filled = [[""] * (height - len(title)) + title for title in titles]
    heads = list(zip(*filled, strict=True))
    rows = [
        line for row in block.rows for line in _row_lines(columns, widths, [row[i] for i in part])
    ]
    return [
        _text_row(columns, widths, row)
        for row in (*heads, ["-" * width for width in widths], *rows)
    ]


def _row_lines(
    columns: Sequence[Column], widths: Sequence[int], row: Sequence[str]
) -> Iterable[Sequence[str]]:
    """A row in as many lines as its longest sentence needs."""
    cells = [
        folded(text, width) if column.kind == PROSE else [text]
        for column, width, text in zip(columns, widths, row, strict=True)
    ]
    return zip_longest(*cells, fillvalue="")


def _text_row(columns: Sequence[Column], widths: Sequence[int], row: Sequence[str]) -> str:
    cells = [
        text.rjust(width) if column.kind == NUMBER else _cut(text, width, column.kind).ljust(width)
        for column, width, text in zip(columns, widths, row, strict=True)
    ]
    return _GAP.join(cells)


def _cut(text: str, width: int, kind: str) -> str:
    """Text of at most `width` characters: of a path the end is kept, of a name both ends but for
    its arguments, which distinguish least, of other text the start.

    >>> [_cut("AllReduce_RING_LL(args)", 11, kind) for kind in (NAME, PATH, TEXT)]
    ['AllRe~NG_LL', '~G_LL(args)', 'AllReduce_~']
    >>> _cut("AllReduce_RING_LL(args)", 20, NAME)
    'AllReduce_RING_LL~'
    """
    if len(text) <= width:
        return text
    if kind == NAME:
        complete, text = text, _without_arguments(text)
        if len(text) < width and text != complete:
            return f"{text}~"
        end = (width - 1) // 2
        return text[: width - 1 - end] + "~" + text[len(text) - end :]
    return "~" + text[1 - width :] if kind == PATH else text[: width - 1] + "~"


def _without_arguments(name: str) -> str:
    """A function's name without the list in brackets that it ends with.

    >>> _without_arguments("(anonymous)::f<int (*)(int)>(float*, g(int))"), _without_arguments("f)")
    ('(anonymous)::f<int (*)(int)>', 'f)')
    """
    depth = 0
    for i in range(len(name) - 1, -1, -1) if name.endswith(")") else ():
        depth += (name[i] == ")") - (name[i] == "(")
        if depth == 0:
            return name[:i] or name
    return name
