"""Tables of Cray perftools (``pat_report``): time per function and messages per size bin, as text.

Either as pat_report prints them, columns parted by bars and titles over several lines, or copied
from slides, columns parted by tabs and titles torn. Table "Time and Bytes Transferred for
Accelerator Regions" and "MPI Message Stats by Caller" (perftools 7.1 to 24).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from collscope.model import KernelTotal, Profile, ProfileSet, ProfileTable, Severity, SizeBin
from collscope.parsers._notes import Notes
from collscope.parsers._rows import text_lines
from collscope.parsers.reader import text_profile_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DIALECT = "perftools"
# 4KiB<=, 16<=, <16
_FROM = re.compile(r"(\d{1,6})(B|KiB|MiB|GiB)?<=")
_BELOW = re.compile(r"<(\d{1,6})(B|KiB|MiB|GiB)?\b")
_UNITS = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# 100.0%, 2.273511, 6,121.2, 14,665; "--" and "" say that there is none
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,9})?|\d{1,18}(?:\.\d{1,9})?")
_PERCENT = re.compile(r"\d{1,3}(?:\.\d{1,3})?%")
_TITLE = re.compile(r"\s*(?:Time|MPI|Acc|NCCL|RCCL)%?\s*[|\t]")
_RULE = re.compile(r"[\s|!]*[-=]{3,}[\s|=-]*")
# The slides' header row has a word per column and tears "Acc Copy In" and "Acc To Acc" in two.
_TORN_PAIRS = {("acc", "copy"): "acc copy", ("acc", "to"): "acc to"}
_DIRECTIONS = {"htoa": "HtoA", "atoh": "AtoH", "acc to": "AtoA"}
_MESSAGES = "MsgSz"
_BOUNDS = (16, 256, 4 << 10, 64 << 10, 1 << 20, 16 << 20)  # of pat_report's ranges
_TREE = re.compile(r"^[|!]+")
_SOURCE = re.compile(r"/|^line\.")
_LIMIT = 2**63
_LONGEST_LINE = 4000
_MOST_TITLES = 12  # lines


class _Bin(msgspec.Struct, frozen=True):
    place: int
    what: str
    low: int
    high: int | None


class _Columns(msgspec.Struct, frozen=True):
    """Places of the columns of one table; -1 where it has none."""

    width: int
    time: int
    percent: int
    calls: int
    name: int
    bins: tuple[_Bin, ...]
    fixed: bool  # rows have a field for every title


def sniff_text(head: str) -> bool:
    """True when such a table is in the text."""
    return "Accelerator Regions" in head or re.search(r"MPI Message Stats", head) is not None


def parse(text: str | Iterable[str]) -> ProfileSet:
    """Functions with their time and their counts per size range, of every table of a report.

    Of a tree of callers the first level is kept, so that nothing is counted twice; "Total", source
    files and rows that only continue a name are left out.
    """
    reader = _Reader()
    for number, line in enumerate(text_lines(text), start=1):
        reader.feed(line[:_LONGEST_LINE], number)
    # Two tables may be two measurements of one program: their times are no sum.
    tables = [
        ProfileTable(line, Profile(DIALECT, tuple(rows))) for line, rows in reader.totals.items()
    ]
    if not tables:
        notes = Notes()
        if not reader.bins:
            notes.add(Severity.NOTICE, "no_rows", "The report holds no table of functions.", 1)
        tables = [ProfileTable(1, Profile(DIALECT, (), diagnostics=notes.diagnostics))]
    return ProfileSet(tuple(tables), tuple(reader.bins))


class _Reader:
    """Titles of the table being read, and what its rows held."""

    def __init__(self) -> None:
        self.totals: dict[int, list[KernelTotal]] = {}  # by the line of their table's titles
        self.bins: list[SizeBin] = []
        self._titles: list[list[str]] = []
        self._columns: _Columns | None = None
        self._line = 1  # of the titles

    def feed(self, line: str, number: int) -> None:
        """Take one line, the `number`-th."""
        cells = _cells(line)
        if _PERCENT.fullmatch(cells[0]):
            if self._titles:
                self._columns, self._titles = _columns_of(self._titles, "\t" in line), []
            # || 50.0% | …: a caller
            if self._columns is not None and not line.startswith(("||", "|!", "!!")):
                self._take(cells, self._columns)
        elif _TITLE.match(line) and not self._titles:
            self._titles, self._columns, self._line = [cells], None, number
        elif self._titles and not _RULE.fullmatch(line):
            self._titles.append(cells)
            if len(self._titles) > _MOST_TITLES:
                self._titles = []

    def _take(self, cells: Sequence[str], columns: _Columns) -> None:
        place = _name_place(cells, columns)
        if place is None or cells[place] == "Total":
            return
        name = cells[place]
        seconds = _number(cells, columns.time)
        if seconds is not None and seconds * 10**9 < _LIMIT:
            percent = _number(cells, columns.percent)
            calls = _calls(cells, place, columns)
            self.totals.setdefault(self._line, []).append(
                KernelTotal(
                    name,
                    calls=int(calls or 0),
                    total_ns=round(seconds * 10**9),
                    reported_percentage=None if percent is None else float(percent),
                )
            )
        for column in columns.bins:
            # Rows of a damaged table have as many fields as its titles up to the last of the host.
            if columns.fixed or column.what != "AtoA" or place == columns.width - 1:
                count = _number(cells, column.place)
                if count:
                    self.bins.append(
                        SizeBin(name, column.what, column.low, column.high, float(count))
                    )


def _cells(line: str) -> list[str]:
    if "\t" in line:
        return [cell.strip() for cell in line.split("\t")]
    return [cell.strip() for cell in _TREE.sub("", line).split("|")]


def _name_place(cells: Sequence[str], columns: _Columns) -> int | None:
    """Place of a row's function; None when it names none."""
    if columns.fixed:
        known = 0 <= columns.name < len(cells) and cells[columns.name]
        return columns.name if known else None
    # Damaged: the name is the first text behind the numbers that is no place in a source file.
    return next(
        (
            place
            for place, cell in enumerate(cells)
            if re.match(r"[A-Za-z_\[]", cell) and not _SOURCE.search(cell)
        ),
        None,
    )


def _calls(cells: Sequence[str], place: int, columns: _Columns) -> Decimal | None:
    """Events of a row whose name is at `place`; in a damaged one the last number before it."""
    if columns.fixed:
        return _number(cells, columns.calls)
    # 4,732  distributed/FSDP/utils/train_utils.py  main
    before = (_number(cells, at) for at in range(place - 1, 0, -1))
    return next((number for number in before if number is not None), None)


def _columns_of(titles: Sequence[Sequence[str]], torn: bool) -> _Columns:
    words = _torn_titles(titles[0]) if torn else _joined_titles(titles)
    lower = [word.lower() for word in words]

    def place(*wanted: str) -> int:
        return next((i for i, word in enumerate(lower) if word in wanted), -1)

    percent, time = place("acc time%", "acc time %"), place("acc time")
    if torn and time < 0 and "acc" in lower:
        # Acc  Acc: their second words stand a line below
        percent = lower.index("acc")
        time = percent + 1
    return _Columns(
        width=len(words),
        time=time,
        percent=percent,
        calls=place("events", "calls"),
        name=next((i for i, word in enumerate(lower) if word.startswith("function")), -1),
        bins=_bins(words),
        fixed=not torn,
    )


def _torn_titles(row: Sequence[str]) -> list[str]:
    # Time%  Time  Acc  Acc  Acc  Copy  HtoA  16<=  256<=  …  Acc  Copy  AtoH  16<=  Acc  To  …
    joined: list[str] = []
    for word in row:
        pair = (joined[-1].lower(), word.lower()) if joined else ("", "")
        if pair in _TORN_PAIRS:
            joined[-1] = _TORN_PAIRS[pair]
        elif word:
            joined.append(word)
    return joined


def _joined_titles(rows: Sequence[Sequence[str]]) -> list[str]:
    # MPI | MPI Msg | MsgSz |  16<= | Function   /   Msg% | Count | <16 | MsgSz | Caller   / …
    width = max(len(row) for row in rows)
    return [
        " ".join(row[place] for row in rows if place < len(row) and row[place])
        for place in range(width)
    ]


def _bins(titles: Sequence[str]) -> tuple[_Bin, ...]:
    """Size ranges of the titles. Those that nothing fell into are left out of a report."""
    found = []
    what = _MESSAGES
    for place, title in enumerate(titles):
        what = next((w for key, w in _DIRECTIONS.items() if title.lower().startswith(key)), what)
        low = _FROM.search(title)
        if low is None and not _BELOW.search(title) and title not in ("HtoA", "AtoH"):
            continue
        start = int(low[1]) * _UNITS[low[2]] if low else 0
        end = next((bound for bound in _BOUNDS if bound > start), None)
        found.append(_Bin(place, what, start, end))
    return tuple(found)


def _number(cells: Sequence[str], place: int) -> Decimal | None:
    cell = cells[place] if 0 <= place < len(cells) else ""
    number = cell.removesuffix("%")
    return Decimal(number.replace(",", "")) if _NUMBER.fullmatch(number) else None


READER = text_profile_reader(DIALECT, sniff_text, parse)
