"""CSVs that collscope itself writes, also several joined to one file: rows by column.

Rows are read one by one, so a torn line costs only itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from collscope.model import Datatype, Interference, Measurement, Op, Severity, parse_op
from collscope.parsers._gaps import count_missing
from collscope.parsers._notes import CUT_TEXT, Notes, cells, ended_lines
from collscope.parsers._rows import number, parse_int

VERSION = "1"
_VERSION_TEXT = f"The file is of another version than {VERSION}. Read it with a newer release."
_TORN_TEXT = "Rows with too few or too many fields, or with an unknown status, were skipped."
_HEADER_TEXT = "Rows before any header line were skipped."
_NUMBER_TEXT = "Rows with an unreadable number were skipped."
_OP_TEXT = "Rows with an unknown operation or datatype were skipped."


_PLANNED = ("classes", "sizes")  # a writer of one of them writes an end, too
_SAMPLES = ("samples_us", "relative_compute_samples")  # which no second measurement has alike
_MISSING_TEXT = "Rows are missing: the last line of the file counts more than it holds."
_LACKING_TEXT = "Some class numbers have no row: their rows were left out, or lost."
_DIGITS = 10  # of a class's number; a longer one is damaged
_NO_END_TEXT = (
    "The file has no last line '# end': the measurement was stopped, or the file is cut, and"
    " further rows may be missing."
)
_TWICE_TEXT = "Rows that appear twice in the file were read once."


class Layout(msgspec.Struct, frozen=True):
    """What distinguishes one CSV from another.

    mark    what the line begins with that ends with the version
    needed  columns without which there is nothing to read, `status` among them
    """

    mark: str
    header_start: str
    needed: frozenset[str]
    statuses: frozenset[str]

    def sniff(self, head: str) -> bool:
        """True when a text begins like this CSV."""
        return head.lstrip("\ufeff").startswith((self.mark, self.header_start))


class Row(msgspec.Struct, frozen=True):
    """One row: its line, and its fields by column."""

    at: int
    line: str
    fields: dict[str, str]
    label: str | None  # of all rows below a line that gives it
    nranks: int | None  # of the job, likewise


class Numbers(msgspec.Struct, frozen=True):
    """Numbers of a row by column; None where the field is empty."""

    wholes: dict[str, int | None]
    reals: dict[str, float | None]
    lists: dict[str, tuple[float, ...]]


class _Extent:
    """How many rows a file should have by its own numbers, and how many it has.

    Its writer gives the number of classes above the rows, and behind them ``# end: N rows``, the
    rows since the beginning or the last such line. Files of earlier releases have neither, but
    number their classes from 0 on.
    """

    def __init__(self, notes: Notes) -> None:
        self.rows = 0  # since the last end
        self._notes = notes
        self._seen: set[str] = set()
        self._planned: int | None = None  # classes of the rows below
        self._open = False  # an end is to come
        # By label and round.
        self._classes: dict[tuple[str | None, str | None], set[str]] = defaultdict(set)
        self._expected: dict[tuple[str | None, str | None], int] = {}

    def read(self, key: str, value: str, line: int) -> None:
        """Take a line of metadata."""
        if key in _PLANNED:
            self._open = True
            self._planned = parse_int(value) if key == "classes" else None
        elif key == "end" and (written := parse_int(value.partition(" ")[0])) is not None:
            missing = max(written - self.rows, 0)
            self._notes.add(Severity.DATA_LOSS, "rows_missing", _MISSING_TEXT, line, count=missing)
            self._begin_anew()

    def _begin_anew(self) -> None:
        self.rows, self._open, self._planned = 0, False, None
        self._classes.clear()
        self._expected.clear()

    def take(self, line: str, fields: Mapping[str, str], at: int) -> bool:
        """Take a row; False for one that is there already."""
        if line in self._seen and any(fields.get(name) for name in _SAMPLES):
            self._notes.add(Severity.NOTICE, "counted_once", _TWICE_TEXT, at, line)
            return False
        self._seen.add(line)
        if fields.get("class_id"):
            key = fields.get("label"), fields.get("round")
            self._classes[key].add(fields["class_id"])
            if self._planned is not None:
                self._expected[key] = max(self._expected.get(key, 0), self._planned)
        return True

    def finish(self) -> None:
        """The text ends."""
        if not self._open:
            # Without the number of classes a file may be a part of another, taken out on purpose.
            names = set().union(*self._classes.values())
            numbers = [int(n) for n in names if n.isdecimal() and len(n) < _DIGITS]
            missing = count_missing(numbers, first=0)
            self._notes.add(Severity.NOTICE, "classes_missing", _LACKING_TEXT, 1, count=missing)
            return
        planned = sum(self._expected.values())
        measured = sum(map(len, self._classes.values()))
        if measured < planned:
            text = (
                f"{measured} of {planned} classes are measured: the measurement was stopped, or the"
                " file is cut."
            )
            missing = planned - measured
            self._notes.add(Severity.DATA_LOSS, "classes_missing", text, 1, count=missing)
        else:
            self._notes.add(Severity.NOTICE, "no_end", _NO_END_TEXT, 1)


def read_rows(text: str, layout: Layout, notes: Notes) -> Iterator[Row]:
    """Whole rows of a text, one after the other.

    Of a part of another version there is only a diagnostic, ``other_version``; of a last row
    without a line end another one, ``cut_row``. Rows that the file should have by its own
    numbers and lacks are counted: ``rows_missing``, ``classes_missing``, ``no_end``. A row that
    appears twice is read once.
    """
    header: list[str] | None = None
    above: dict[str, str] = {}  # metadata of the rows below it
    refused = False
    extent = _Extent(notes)
    for at, line, ended in ended_lines(text):
        bare = line.lstrip("\ufeff")
        if bare.startswith(layout.mark):
            # # collscope.memcpy_csv/1
            # What is appended goes on below the header that the file has.
            above, refused = {}, bare[len(layout.mark) :].strip() != VERSION
            if refused:
                notes.add(Severity.ERROR, "other_version", _VERSION_TEXT, at, bare)
        elif bare.startswith("#"):
            # # label: plugin
            key, _, value = bare[1:].partition(":")
            above[key.strip()] = value.strip()
            extent.read(key.strip(), value.strip(), at)
        elif bare.startswith(layout.header_start):
            # Again where files were joined.
            header = cells(bare)
        elif bare.strip() and not refused:
            extent.rows += 1
            if not ended:
                notes.add(Severity.DATA_LOSS, "cut_row", CUT_TEXT, at, bare)
                continue
            fields = _fields(bare, header, layout, (notes, at))
            if fields is not None and extent.take(bare, fields, at):
                yield Row(
                    at, bare, fields, above.get("label") or None, parse_int(above.get("nranks"))
                )
    extent.finish()


def _fields(
    line: str, header: list[str] | None, layout: Layout, where: tuple[Notes, int]
) -> dict[str, str] | None:
    notes, at = where
    if header is None or not layout.needed.issubset(header):
        notes.add(Severity.DATA_LOSS, "no_header", _HEADER_TEXT, at, line)
        return None
    values = cells(line)
    fields = dict(zip(header, values, strict=False))
    if len(values) != len(header) or fields["status"] not in layout.statuses:
        notes.add(Severity.DATA_LOSS, "torn_row", _TORN_TEXT, at, line)
        return None
    return fields


def what_ran(row: Row, notes: Notes) -> tuple[Op, Datatype | None] | None:
    """Operation and datatype of a row; None, which is counted, where one is unknown."""
    written = row.fields.get("datatype")
    op, datatype = parse_op(row.fields["op"]), Datatype.of_label(written)
    if op is Op.UNKNOWN or (written and datatype is None):
        notes.add(Severity.DATA_LOSS, "unknown_class", _OP_TEXT, row.at, row.line)
        return None
    return op, datatype


def numbers_of(
    row: Row, wholes: Iterable[str], reals: Iterable[str], lists: Iterable[str], notes: Notes
) -> Numbers | None:
    """Numbers of a row; None, which is counted, where one cannot be read.

    wholes, reals, lists  the columns; values of a list stand between semicolons
    """
    found = Numbers(
        {name: parse_int(row.fields.get(name, "")) for name in wholes},
        {name: _real(row.fields.get(name, "")) for name in reals},
        {},
    )
    read: dict[str, float | None] = {**found.wholes, **found.reals}
    complete = all(value is not None or not row.fields.get(name) for name, value in read.items())
    for name in lists:
        parts = [_real(part) for part in row.fields.get(name, "").split(";") if part]
        found.lists[name] = tuple(part for part in parts if part is not None)
        complete = complete and None not in parts
    if not complete:
        count_unreadable(row, notes)
    return found if complete else None


def count_unreadable(row: Row, notes: Notes) -> None:
    """Count a row with a number that cannot be read."""
    notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, row.at, row.line)


def _real(text: str) -> float | None:
    """A number that is not negative; None for everything else."""
    value = number(text)
    return None if value is None else float(value)


def library_of(found: Sequence[Measurement | Interference]) -> tuple[str | None, str | None]:
    """Name and version of the library, where all rows were measured with one.

    A row's library is, for instance, ``nccl 2.28.9``.
    """
    named = {m.library for m in found if m.library}
    if len(named) != 1:
        return None, None
    name, _, version = named.pop().partition(" ")
    return (name, version or None) if name in ("nccl", "rccl") else (None, None)
