"""Text of ``select * from top`` as pasted from the sqlite3 shell.

Output modes list, tabs, csv, quote, column, box, table and markdown, with or without prompts;
list mode is also known without a header. Durations are microseconds unless the header names
another unit.
"""

from __future__ import annotations

import csv
import re
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from collscope.model import Diagnostic, Profile, Severity
from collscope.parsers._rows import Rows, TopColumns, column_key, number, text_lines, top_columns
from collscope.parsers.reader import one_profile, text_profile_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    _Split = Callable[[str], list[str]]

# Name|TotalCalls|TotalDuration|Ave|Percentage, the columns of an RPD file's top
_BARE = TopColumns(
    width=5, scale_ns=1000, name=0, calls=1, total=2, minimum=None, maximum=None, percentage=4
)
# sqlite> select * from top where Name like '%ccl%';
#    ...>   limit 10;
_PROMPT = re.compile(r"\s*(?:sqlite>|\.\.\.>)")
# sum(Percentage)
_SUM = re.compile(r"[\W_]*sum\s*\(", re.IGNORECASE)
# Lines without a row: rulers of the boxed modes, fences, the number below sum(…), SQL, .commands
_IDLE = re.compile(
    r"[\s│|┌┐└┘├┤┬┴┼─╭╮╰╯+:-]*|```.*|[\s│|]*\d+(?:\.\d+)?[\s│|]*"
    r"|\s*(?:select|from|where|order|limit|group)\b.*|\s*\.\w+.*",
    re.IGNORECASE,
)
_WHOLE = 100.01  # percent, as rounded
_RULER = re.compile(r"\s*-+(?:\s+-+)+\s*")


class _Table(msgspec.Struct, frozen=True):
    """A header seen, and how its rows are cut."""

    columns: TopColumns
    split: _Split
    wraps: bool = False  # the mode breaks long names over several lines


def sniff_text(head: str) -> bool:
    """True when a header or a row of a pasted ``top`` is in the text."""
    return any(
        _PROMPT.match(line) is None
        and (_header(line) is not None or _aligned(line) or _bare_row(line) is not None)
        for line in text_lines(head)
    )


def parse(text: str | Iterable[str]) -> Profile:
    """Totals of every row; no spans.

    text     whole text, or its lines
    returns  totals in ns with the printed percentages; diagnostic ``partial_top`` when those do
             not add up to 100, as after ``where Name like '%ccl%'``
    """
    reader = _Reader()
    for line_number, line in enumerate(text_lines(text), start=1):
        reader.feed(line_number, line)
    reader.flush()
    reader.rows.check_percentages()
    return reader.rows.profile("top_text")


class _Reader:
    """Table being read, and the row that a wrapped name may still continue."""

    def __init__(self) -> None:
        self.rows = Rows()
        self._table: _Table | None = None
        self._titles: str | None = None  # header of column mode: the ruler below it has the widths
        self._row: list[str] | None = None
        self._row_line = 0
        self._seen: set[tuple[str, ...]] = set()

    def feed(self, line_number: int, line: str) -> None:
        """Take one line."""
        if _PROMPT.match(line) or _SUM.match(line[:100]):
            self._end_table()
        elif not (
            self._start_table(line) or self._take(line_number, line) or _IDLE.fullmatch(line)
        ):
            self._complain(line_number, line)

    def flush(self) -> None:
        """Add the row that was waiting for a continuation."""
        if self._row is not None and self._table is not None:
            self._add(self._table.columns, self._row, self._row_line)
        self._row = None

    def _end_table(self) -> None:
        self.flush()
        self._table = self._titles = None

    def _start_table(self, line: str) -> bool:
        table = _header(line)
        if table is None and self._titles is not None and _RULER.fullmatch(line):
            table = _column_table(self._titles, line)
        aligned = table is None and _aligned(line)
        if table is None and not aligned:
            return False
        self._end_table()
        self._table = table
        self._titles = line if aligned else None
        return True

    def _take(self, line_number: int, line: str) -> bool:
        """Read the line as a row; False when it is none."""
        table = self._table
        if table is None:
            cells = _bare_row(line)
            if cells is None:
                return False
            self._add(_BARE, cells, line_number)
            return True
        if _IDLE.fullmatch(line):
            return False
        cells = table.split(line)
        if len(cells) != table.columns.width:
            return False
        name = table.columns.name
        rest = [cell.strip() for place, cell in enumerate(cells) if place != name]
        if table.wraps and self._row is not None and not any(rest):
            self._row[name] += cells[name]
        elif table.wraps and not all(rest):
            return False  # cut
        else:
            self.flush()
            self._row, self._row_line = cells, line_number
        return True

    def _add(self, columns: TopColumns, cells: Sequence[str], line_number: int) -> None:
        row = tuple(cell.strip().strip("'") for cell in cells)  # modes quote and qbox quote names
        if row in self._seen:
            message = "Rows that the text repeats were counted once."
            name = row[columns.name]
            found = Diagnostic(Severity.NOTICE, "repeated_row", message, line_number, name)
            self.rows.note(found)
            return
        self._seen.add(row)
        self.rows.add_top(columns, row, line_number)

    def _complain(self, line_number: int, line: str) -> None:
        if self._table is not None:
            self.rows.skip("torn_row", line, line_number)
            return
        message = "Lines outside a table were skipped."
        self.rows.note(Diagnostic(Severity.NOTICE, "unread_line", message, line_number, line))


def _titled(line: str) -> bool:
    # rocprof's statistics have "Calls" and "TotalDurationNs".
    key = column_key(line)
    return "totalcalls" in key or ("calls" in key and "totalduration" in key)


def _header(line: str) -> _Table | None:
    """Table of a header line of any mode but column, or None."""
    # │        Name         │ TotalCalls │ …      box
    # | Name | TotalCalls | …                    table, markdown
    # Name|TotalCalls|TotalDuration|Ave|Percentage    list; tabs and csv alike
    text = line.strip().removeprefix("\ufeff")
    if not _titled(text):
        return None
    for bar in ("│", "|"):
        if text.startswith(bar) and text.endswith(bar):
            columns = top_columns(_barred(text, bar))
            if columns is not None:
                return _Table(columns, partial(_barred, bar=bar), wraps=True)
    for mark in ("|", "\t"):
        columns = top_columns(text.split(mark))
        if columns is not None:
            return _Table(columns, partial(_listed, mark=mark, width=columns.width))
    # The CSV files of rocprof belong to another parser.
    columns = top_columns(_comma_separated(text)) if "totalcalls" in column_key(text) else None
    return None if columns is None else _Table(columns, _comma_separated)


def _aligned(line: str) -> bool:
    # Name                  TotalCalls  TotalDuration  Ave   Percentage      column mode
    return _titled(line) and top_columns(line.split()) is not None


def _column_table(titles: str, ruler: str) -> _Table | None:
    starts = [match.start() for match in re.finditer(r"-+", ruler)]
    ends: list[int | None] = [match.end() for match in re.finditer(r"-+", ruler)]
    ends[-1] = None

    def split(line: str) -> list[str]:
        return [line[start:end] for start, end in zip(starts, ends, strict=True)]

    columns = top_columns(split(titles))
    return None if columns is None else _Table(columns, split, wraps=True)


def _barred(line: str, bar: str) -> list[str]:
    """Cells between bars; each has one blank of padding on both sides.

    Markdown may leave out the last bar.
    """
    text = line.strip()
    closed = text.endswith(bar) or bar == "|"
    if not (len(text) > 1 and text.startswith(bar) and closed):
        return []
    cells = text[1:].removesuffix(bar).split(bar)
    return [cell.removeprefix(" ").removesuffix(" ") for cell in cells]


def _listed(line: str, mark: str, width: int) -> list[str]:
    """Cells of list mode; a name may hold the mark, the numbers behind it cannot."""
    cells = line.split(mark)
    extra = len(cells) - width
    return [mark.join(cells[: extra + 1]), *cells[extra + 1 :]] if extra > 0 else cells


def _comma_separated(line: str) -> list[str]:
    try:
        quote = "'" if line.startswith("'") else '"'
        return next(csv.reader([line], quotechar=quote), [])
    except csv.Error:
        return []


def _bare_row(line: str) -> list[str] | None:
    """Cells of a list-mode row that has no header above it."""
    # ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)|26592|69872574|2627|10.45
    cells = _listed(line, mark="|", width=_BARE.width)
    if len(cells) != _BARE.width or not cells[0].strip():
        return None
    values = [number(cell) for cell in cells[1:]]
    if None in values:
        return None
    calls, total, mean, percentage = (float(value) for value in values if value is not None)
    # abc123 | 20000 | 126.3 | 19873.7 | 1560.80 is a row of another table: its mean is none.
    same = calls >= 1 and abs(total / calls - mean) <= max(1.0, 0.01 * mean)
    return cells if same and 0 <= percentage <= _WHOLE else None


READER = text_profile_reader("top_text", sniff_text, lambda text: one_profile(parse(text)))
