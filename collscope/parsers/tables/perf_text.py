"""Tables that nccl-tests and rccl-tests print, of every generation, in files as people keep them.

Also inside logs, job outputs, issue texts and slides; several tables in one text are separated.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.model import Datatype, Measurement, MeasurementSet, Op, Severity, size_bytes
from collscope.parsers._names import op_of_program, op_of_text
from collscope.parsers._notes import Notes
from collscope.parsers._rows import text_lines
from collscope.parsers.reader import Reader, anywhere
from collscope.parsers.tables._context import Context
from collscope.parsers.tables._measure import (
    LIMIT,
    Result,
    Setting,
    factor_of,
    measure,
    ranks_by_factor,
)
from collscope.parsers.tables._rows import (
    Layout,
    begins_row,
    clean,
    continues_row,
    layout_of,
    results_of,
    split_choice,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from collscope.parsers.hints import TableHints

DIALECT = "perf_text"
# "# Avg bus bandwidth    : 70.742", and no sentence about it; two where processes write at once
_TRAILER = re.compile(r"Avg bus bandwidth\s*:\s*[\d.eE+-]+\s*(?:$|#)")

_CUT_TEXT = "Rows that are cut or broken were left out."
_MIXED_TEXT = (
    "Rows of two or more runs are mixed in one table and cannot be separated: they are kept as "
    "one. If the tests were built without MPI, every process prints its own table."
)
_HEADER_TEXT = "A damaged table header was not used: the columns were read by position."
_TYPE_TEXT = "Unknown element types: their rows are kept without a type."
_OP_TEXT = (
    "A table was left out because its text does not name the operation. Name it with"
    " collscope ingest table --op NAME"
)
_RANKS_TEXT = (
    "The text does not give the number of ranks: it was computed from the printed times and"
    " bandwidths."
)
_OTHER_RANKS_TEXT = (
    "The printed bandwidths imply another number of ranks than the text names; the implied number "
    "is used. Override it with collscope ingest table --ranks N"
)
_LIKE_ALL_REDUCE = (
    "; its bus bandwidths exceed its algorithm bandwidths, as only AllReduce and its variants do"
)
_NO_RANKS_TEXT = (
    "The text does not give the number of ranks, so there is no bus bandwidth. Give it with"
    " collscope ingest table --ranks N"
)
_PART_TEXT = (
    "The sizes are one rank's part, and the text does not give the number of ranks: the table was"
    " left out. Give it with collscope ingest table --ranks N"
)
_SIZE_TEXT = (
    "Sizes do not fit the count, element type and ranks of this operation. Check operation and"
    " ranks: collscope"
    " ingest "
    "table --op NAME --ranks N"
)


def parse(text: str | Iterable[str], hints: TableHints) -> MeasurementSet:
    """Measurements of all tables of a text; out of place and in place are two.

    hints    the user's facts; they override the text
    returns  labels: the hint's, and where the text holds several tables the title above each;
             tables of unknown operation are left out and counted
    """
    reader = _Reader(hints)
    last = 0
    for last, line in enumerate(text_lines(text), start=1):
        reader.feed(last, line)
    found = reader.finish(last)
    context = reader.context
    return MeasurementSet(
        DIALECT, found, context.library, context.library_version, last, reader.notes.diagnostics
    )


class _Table:
    """Rows of one table, and the evidence that they are of one run."""

    def __init__(
        self, layout: Layout, setting: Setting, title: str | None, *, foreign: bool
    ) -> None:
        self.layout = layout
        self.setting = setting
        self.title = title
        self.foreign = foreign  # nccl-tests prints that it ran a test of another operation
        self.results: list[Result] = []
        self.mixed_at: int | None = None
        self._first = self._last = 0
        self._key: object = None

    def concluded(self, op: Op) -> None:
        """Take the operation of the trailer; none where the head has another."""
        # # Collective test concluded: all_gather_perf
        stated = self.setting.op
        self.foreign |= stated not in (Op.UNKNOWN, op)
        self.setting = replace(self.setting, op=Op.UNKNOWN if self.foreign else op)

    def part(self, results: list[Result]) -> _Table:
        """A table of some of the rows."""
        own = _Table(self.layout, self.setting, self.title, foreign=self.foreign)
        own.results = results
        return own

    def add(self, results: list[Result]) -> None:
        """Take a row. Sizes of a sweep rise; a fall to another size than the first is a mix."""
        row = results[0]
        key = (row.datatype, row.redop, row.root)
        if key != self._key or not self.results or row.size == self._first:
            self._key, self._first = key, row.size
        elif row.size < self._last:
            self.mixed_at = self.mixed_at or row.line
        self._last = row.size
        self.results += results


class _Reader:
    """Line by line: the table being read, and a row that broke."""

    def __init__(self, hints: TableHints) -> None:
        self.hints = hints
        self.notes = Notes()
        self.context = Context()
        self._tables: list[_Table] = []
        self._open = False
        self._layout = Layout()
        self._broken: tuple[int, list[str]] | None = None  # line and cells of an unfinished row
        self._awaited = 0  # headers since the last row
        self._ended = 0  # averages printed since the last row
        self._mixed_at: int | None = None

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        text = clean(line)
        cells = text.split()
        if begins_row(cells):
            self._drop_broken()
            self._row(number, cells, text)
        elif self._broken is not None and continues_row(split_choice(cells)[0]):
            start, known = self._broken
            self._broken = None
            self._row(start, known + cells, text)
        elif layout := layout_of(text):
            self._header(number, layout)
        else:
            self._other(number, line, text, cells)

    def _row(self, number: int, printed: list[str], text: str) -> None:
        cells, choice = split_choice(printed)
        width = len(self._layout.block)
        at = text.rfind(cells[-width]) if len(cells) > width and "\t" not in text else None
        if at is not None and len(cells) < 5 + 2 * width:
            at = _offset(text, len(cells) - width)
        results = results_of(cells, self._layout, number, at)
        if results is None:
            self._broken = (number, printed)
            return
        results = [replace(result, choice=choice) for result in results]
        if results[0].datatype is Datatype.UNKNOWN:
            self.notes.add(Severity.NOTICE, "unknown_datatype", _TYPE_TEXT, number, cells[2])
        if not self._open:
            self._tables.append(
                _Table(
                    self._layout,
                    self.context.setting(),
                    self.context.titles.title,
                    foreign=self.context.op is Op.UNKNOWN,
                )
            )
            self._open = True
        self._tables[-1].mixed_at = self._tables[-1].mixed_at or self._mixed_at
        self._tables[-1].add(results)
        self.context.rows_seen = True
        self._awaited = self._ended = 0
        self._mixed_at = None

    def _header(self, number: int, layout: Layout) -> None:
        self._drop_broken()
        if layout.damaged:
            self.notes.add(Severity.NOTICE, "damaged_header", _HEADER_TEXT, number)
        if self._awaited == 0 and self._open:
            self.context.op = None
        self._awaited += 1
        if self._awaited > 1:  # two headers, and no row between them
            self._mixed_at = self._mixed_at or number
        self._open = False
        self._layout = layout

    def _other(self, number: int, line: str, text: str, cells: list[str]) -> None:
        if _TRAILER.search(text):
            self.context.op = None  # the next run has a line of its own
            self._ended += 1
            if self._ended > 1 and self._tables:
                self._tables[-1].mixed_at = self._tables[-1].mixed_at or number
            self._open = False
        elif self._open and len(cells) < 3 and continues_row(cells) and not self._broken:
            self._broken = (number, cells)
            return
        program = op_of_program(text)
        if program is not None and "oncluded" not in text:
            self._open = False
        elif program is not None and self._tables:
            self._tables[-1].concluded(program)
        if self.context.read(line if "ersion" in line else text):
            self._open = False
            self._layout = Layout()
            # Another run begins: the last one may have failed before its rows.
            self._awaited = self._ended = 0

    def _drop_broken(self) -> None:
        if self._broken is not None:
            line, cells = self._broken
            self.notes.add(Severity.DATA_LOSS, "cut_row", _CUT_TEXT, line, " ".join(cells))
            self._broken = None

    def finish(self, last: int) -> tuple[Measurement, ...]:
        """Measurements of all tables."""
        self._drop_broken()
        used: Counter[object] = Counter()
        found: list[Measurement] = []
        for table in self._tables:
            found += self._measurements(table, used)
        return tuple(found)

    def _measurements(self, table: _Table, used: Counter[object]) -> list[Measurement]:
        found: list[Measurement] = []
        for part in _parts(table):
            found += self._of_part(part, used)
        if found and table.mixed_at is not None:
            self.notes.add(Severity.DATA_LOSS, "interleaved_tables", _MIXED_TEXT, table.mixed_at)
        return found

    def _of_part(self, table: _Table, used: Counter[object]) -> list[Measurement]:
        setting = self._complete(table)
        if setting.op is Op.UNKNOWN or not self._whole_sizes(table, setting):
            return []
        label = self._label(table, setting, used)
        setting = replace(setting, label=label)
        if table.layout.host_clock and "host clock" not in (setting.method or ""):
            setting = replace(setting, method=f"{setting.method}, host clock")
        measured = (measure(result, setting, self.notes) for result in _rounds(table.results))
        return [m for m in measured if m is not None]

    def _whole_sizes(self, table: _Table, setting: Setting) -> bool:
        """Make the sizes those of all ranks; False, counted, where their number is not known."""
        if not _of_one_rank(table, setting.op):
            return True
        if setting.nranks is None:
            line = table.results[0].line
            self.notes.add(Severity.DATA_LOSS, "nranks_unknown", _PART_TEXT, line)
            return False
        scaled = [replace(r, size=r.size * setting.nranks) for r in table.results]
        table.results = [r for r in scaled if r.size < LIMIT]
        for r in scaled:
            if r.size >= LIMIT:
                self.notes.add(Severity.DATA_LOSS, "cut_row", _CUT_TEXT, r.line)
        return True

    def _label(self, table: _Table, setting: Setting, used: Counter[object]) -> str | None:
        """The user's; of several tables the titles above them; numbers where both are equal."""
        if len(self._tables) == 1:
            return self.hints.label
        parts = [part for part in (self.hints.label, table.title) if part]
        label = ": ".join(parts) or "table"
        used[label, setting.op, setting.nranks] += 1
        count = used[label, setting.op, setting.nranks]
        return f"{label} ({count})" if count > 1 else label

    def _complete(self, table: _Table) -> Setting:
        """Setting of a table with what the user and the rows themselves say."""
        hints, setting, rows = self.hints, table.setting, table.results
        line = rows[0].line
        op = hints.op or (setting.op if setting.op is not Op.UNKNOWN else None)
        if op is None and not table.foreign:
            op = op_of_program(hints.name) or op_of_text(hints.name)
        factor = factor_of(rows)
        if op is None:
            # Not shown by the columns: those of all_reduce_bias_perf are all_reduce_perf's.
            exceeds = factor is not None and 1 < factor[0] <= factor[1]
            text = _OP_TEXT + _LIKE_ALL_REDUCE * exceeds
            self.notes.add(Severity.DATA_LOSS, "op_unknown", text, line)
            return setting
        nranks = hints.nranks or setting.nranks
        possible = [] if factor is None else ranks_by_factor(op, factor)
        least = () if setting.least is None else (setting.least,)
        likely = next((n for n in least if n in possible), None)
        alone = possible[0] if len(possible) == 1 else likely
        if nranks is None and not _of_one_rank(table, op):
            nranks = _ranks_of_sizes(op, rows) or alone
            found = nranks is not None
            self.notes.add(
                Severity.NOTICE,
                "nranks_inferred" if found else "nranks_unknown",
                _RANKS_TEXT if found else _NO_RANKS_TEXT,
                line,
            )
        elif hints.nranks is None and alone is not None and alone != nranks:
            self.notes.add(Severity.NOTICE, "nranks_inferred", _OTHER_RANKS_TEXT, line)
            nranks, setting = alone, replace(setting, nnodes=None)
        for r in rows:
            if not _of_one_rank(table, op) and not _size_fits(op, r, nranks):
                self.notes.add(Severity.NOTICE, "size_mismatch", _SIZE_TEXT, r.line)
        return replace(setting, op=op, nranks=nranks, nnodes=hints.nnodes or setting.nnodes)


def _parts(table: _Table) -> list[_Table]:
    """The table, or its sweeps where their bandwidths are of different numbers of ranks.

    Who prints the last lines of several outputs (grep) makes one table of them.
    """
    lines = [list(of_line) for _, of_line in groupby(table.results, key=lambda r: r.line)]
    sweeps = [lines[:1]]
    for before, here in pairwise(lines):
        if here[0].size <= before[0].size:
            sweeps.append([])
        sweeps[-1].append(here)
    factors = [factor_of(r for of_line in sweep for r in of_line) for sweep in sweeps]
    known = [f for f in factors if f is not None and f[0] <= f[1]]
    complete = all(len(sweep) > 1 for sweep in sweeps) and len(known) == len(sweeps)
    if not complete or max(f[0] for f in known) <= min(f[1] for f in known):
        return [table]
    return [table.part([r for of_line in sweep for r in of_line]) for sweep in sweeps]


def _of_one_rank(table: _Table, op: Op) -> bool:
    """True where sizes are one rank's part of the whole, as the tests of NCCL 1 print them.

    nccl-tests has printed the whole from its beginning, and one rank's elements.
    """
    parts = op.count_is_part and table.layout.milliseconds
    return parts and all(_bytes(row) == row.size for row in table.results)


def _offset(text: str, index: int) -> int:
    """Character at which the cell of an index begins."""
    at = 0
    for place, cell in enumerate(text.split()):
        at = text.index(cell, at)
        if place == index:
            return at
        at += len(cell)
    return at


def _bytes(row: Result) -> int:
    itemsize = row.datatype.itemsize if row.datatype else None
    return (row.count or 0) * (itemsize or 0)


def _ranks_of_sizes(op: Op, rows: Sequence[Result]) -> int | None:
    """Ranks of an operation whose size is that of all ranks' elements."""
    if size_bytes(op, count=1, datatype=Datatype.INT8, nranks=2) != 2:
        return None
    ratios = {r.size / _bytes(r) for r in rows if _bytes(r)}
    ratio = next(iter(ratios), 0.5)
    return int(ratio) if len(ratios) == 1 and ratio.is_integer() else None


def _size_fits(op: Op, row: Result, nranks: int | None) -> bool:
    if row.datatype in (None, Datatype.UNKNOWN) or row.count is None:
        return True
    size = size_bytes(op, count=row.count, datatype=row.datatype, nranks=nranks)
    return size is None or size == row.size


def _rounds(results: Sequence[Result]) -> list[Result]:
    """Results with their round where a table repeats its rows (run cycles, -N)."""
    keys = [(r.size, r.count, r.datatype, r.redop, r.root, r.in_place) for r in results]
    sized = [key for key in keys if key[0]]  # small sweeps repeat size zero
    if len(set(sized)) == len(sized):
        return list(results)
    seen: Counter[object] = Counter()
    numbered = []
    for key, result in zip(keys, results, strict=True):
        seen[key] += 1
        numbered.append(replace(result, round=seen[key]))
    return numbered


READER = Reader(
    "perf_text", "table", anywhere, lambda source, hints: parse(source.text(), hints.table)
)
