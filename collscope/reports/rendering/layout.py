"""What a report consists of: sections of sentences, items and tables of formatted cells."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from collscope.reports.rendering.origin import Origin
from collscope.units import count
from collscope.writing import one_line, visible

# Kinds of column; words are not cut, of names the middle is; bars of # are drawn by pages; prose
# goes on in further lines.
TEXT, PATH, NAME, WORD, NUMBER, BAR = "text", "path", "name", "word", "number", "bar"
PROSE = "prose"
UNKNOWN = "-"  # cell of a missing value


class Column(msgspec.Struct, frozen=True):
    """Heading of a table column, with its unit, and its kind: numbers are aligned right."""

    title: str
    kind: str


class Table(msgspec.Struct, frozen=True):
    """Cells by row, already formatted; a missing value is `-`."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    origins: tuple[Origin | None, ...] = ()  # of each row; none: no view holds them


class Item(msgspec.Struct, frozen=True):
    """A headline with lines that belong to it."""

    head: str
    lines: tuple[str, ...]


class Section(msgspec.Struct, frozen=True):
    """A heading and what stands below it: sentences (str), items and tables."""

    title: str
    blocks: tuple[str | Item | Table, ...]


def table(
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[object]],
    origins: Iterable[Origin | None] = (),
) -> Table:
    """Table of plain values.

    columns  (title with unit, kind)
    rows     values; None becomes `-`, a float four digits
    origins  where each row comes from
    """
    return Table(
        tuple(Column(title, kind) for title, kind in columns),
        tuple(tuple(cell(value) for value in row) for row in rows),
        tuple(origins),
    )


def without_unknown(found: Table, titles: Collection[str]) -> Table:
    """The table without those columns of these titles that hold no value.

    >>> rows = table([("class", NUMBER), ("nodes", NUMBER)], [(1, None), (2, None)])
    >>> [column.title for column in without_unknown(rows, {"class", "nodes"}).columns]
    ['class']
    """
    kept = [
        place
        for place, column in enumerate(found.columns)
        if column.title not in titles or any(row[place] != UNKNOWN for row in found.rows)
    ]
    return Table(
        tuple(found.columns[place] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in found.rows),
        found.origins,
    )


def legend(found: Table, meanings: Mapping[str, str]) -> str:
    """What the columns of a table mean, of those that it has, in one line."""
    titles = {column.title for column in found.columns}
    return " ".join(f"{title}: {text}." for title, text in meanings.items() if title in titles)


def on_ranks(found: Table) -> str:
    """What `AllReduce x8` means, where the column of operations has such names."""
    ops = (n for n, column in enumerate(found.columns) if column.title == "op")
    return "op xN: on N ranks. " * any(" x" in str(row[n]) for n in ops for row in found.rows)


def cell(value: object) -> str:
    """Text of one value.

    >>> cell(None), cell(True), cell(12), cell(0.012345), cell(123456.7)
    ('-', 'yes', '12', '0.01235', '123457')
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return visible(" ".join(str(value).split()))  # here already, since columns are aligned


def scaled(value: float | None, unit: float) -> float | None:
    """Value in `unit`, for instance ns in us with unit 1e3."""
    return None if value is None else value / unit


def percent(ratio: float | None) -> str | None:
    """A ratio as a percentage with two decimals, without the sign."""
    return None if ratio is None else f"{100 * ratio:.2f}"


def or_unknown(value: object) -> str:
    """Text of a value within a sentence."""
    return "unknown" if value is None else str(value)


def in_lines(sections: Iterable[Section]) -> Iterable[Section]:
    """The same sections, each of whose texts is one line: no text of an input begins another.

    Every form for people is made of what this gives.
    """
    return (
        Section(one_line(section.title), tuple(map(_block_in_lines, section.blocks)))
        for section in sections
    )


def _block_in_lines(block: str | Item | Table) -> str | Item | Table:
    if isinstance(block, str):
        return one_line(block)
    if isinstance(block, Item):
        return Item(one_line(block.head), tuple(map(one_line, block.lines)))
    columns = tuple(Column(one_line(column.title), column.kind) for column in block.columns)
    rows = tuple(tuple(map(one_line, row)) for row in block.rows)
    return Table(columns, rows, block.origins)


MOST_ROWS = 20  # rows of settings, facts, sources and diagnostics


def more_not_shown(number: int, what: str) -> Iterable[str]:
    """A line on the rows of a table that was cut; none where it was not."""
    if number > MOST_ROWS:
        yield f"{count(number - MOST_ROWS, f'more {what}')} not shown."
