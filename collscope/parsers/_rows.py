"""Rows of profiles into totals and spans: the checks and counters that all dialects share.

A bad row is skipped and counted by kind; nothing in a profile's content raises.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope import stamps
from collscope.kernel_names import MARKERS, classify
from collscope.model import Diagnostic, KernelSpan, KernelTotal, Profile, Severity
from collscope.parsers._calls import CallRows, end_and_longest, missing_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from collscope.model.profile import ProfiledCalls, ProfiledDevice
    from collscope.model.trace import Ints

_LIMIT = 2**63  # first value a 64-bit signed integer cannot hold
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_NUMBER_LENGTH = 64  # characters; no profiler prints more, and int() refuses very long ones
_EXCERPT = 200
_TOLERANCE = 0.5  # percent that rounding of printed percentages may add up to

# CopyHostToDevice, FillBuffer (roctracer); MEMORY_COPY_HOST_TO_DEVICE (rocprofiler-sdk);
# [CUDA memcpy HtoD] (nsys); Memcpy DtoD (Device -> Device), Memset (Device) (PyTorch).
# copy_kernel(float*) is a kernel.
_COPY = re.compile(
    r"Copy(?:Host|Device|Peer|Buffer|Image)\w*|Fill(?:Buffer|Image)\w*|MEMORY_COPY_\w+"
    r"|(?:HOST|DEVICE)_TO_(?:HOST|DEVICE)|\[CUDA mem(?:cpy|set).*\]"
    r"|Mem(?:cpy \w+|set) \(.*"
)
_UNITS_NS = {"": 1000, "ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}
_TOTAL_COLUMN = re.compile(r"totalduration(ns|us|ms|s|)")

# Rows of statistics that are host calls or whole domains: hipMemcpy, hsa_signal_wait_scacquire,
# ncclAllReduce, HIP_API, KERNEL_DISPATCH. Kernels of those names have arguments or underscores.
_HOST = re.compile(
    r"(?:__)?hip[A-Z]\w*|hsa_\w+|p?nccl(?!\w*Kernel)[A-Z][A-Za-z]*|rocdec\w+|omp_\w+"
    r"|[A-Z0-9_]+_API(?:_EXT)?|KERNEL_DISPATCH|MEMORY_COPY|MEMORY_ALLOCATION|SCRATCH_MEMORY"
)
_HOST_TEXT = (
    "Rows of host calls or whole domains were left out: they are not GPU time. "
    "Ingest the file of kernel statistics (kernel_stats.csv)."
)
_PROBLEMS = {
    "row_without_name": "Rows without a kernel name were skipped.",
    "bad_number": "Rows with a missing, negative or unreadable number were skipped.",
    "ends_before_start": "Rows that end before they start were skipped.",
    "torn_row": "Rows with too few or too many fields were skipped.",
}


def number(value: object) -> int | float | None:
    """Value as a finite number from 0 to 2^63, or None; text may hold a decimal number."""
    if isinstance(value, str):
        text = value.strip()
        # The pattern's digits may be any script's, which int() and float() read as well.
        if len(text) > _NUMBER_LENGTH or not _NUMBER.fullmatch(text):
            return None
        value = int(text) if text.isdigit() else float(text)
    if not isinstance(value, int | float) or not 0 <= value < _LIMIT:
        return None
    return value


def parse_int(value: object, scale: int = 1) -> int | None:
    """`number(value)` times `scale`, rounded; None when the value or the product is no number."""
    if type(value) is int and scale == 1:  # most are
        return value if 0 <= value < _LIMIT else None
    found = number(value)
    if found is None or found * scale >= _LIMIT:
        return None
    return round(found * scale)


def kind_of(name: str) -> str:
    """``copy`` for the names that profilers give to copies and fills, else ``kernel``."""
    return "copy" if _COPY.fullmatch(name) else "kernel"


def text_lines(source: str | Iterable[str]) -> Iterable[str]:
    """Lines of a text, or of an open file, without line ends."""
    lines = source.removesuffix("\n").split("\n") if isinstance(source, str) else source
    return (line.rstrip("\r\n") for line in lines)


def line_count(text: str) -> int:
    """Lines of a text, as `text_lines` gives them.

    >>> line_count("a\\nb\\n"), line_count("a\\nb")
    (2, 2)
    """
    return text.count("\n") + (not text.endswith("\n"))


def column_key(title: str) -> str:
    """Title of a column in lower case without marks: ``gpu-id`` and ``GPU_ID`` are one."""
    return re.sub(r"[^a-z0-9]", "", title.lower())


class TopColumns(msgspec.Struct, frozen=True):
    """Places of the columns of a "top" table."""

    width: int  # columns in the table
    scale_ns: int  # ns of one unit of the durations
    name: int
    calls: int
    total: int
    minimum: int | None
    maximum: int | None
    percentage: int | None


def top_columns(titles: Sequence[str]) -> TopColumns | None:
    """Places of the columns of a header, or None when it is not the header of a "top" table.

    Durations are microseconds unless the title of the total has another unit.

    >>> top_columns(["Name", "TotalCalls", "TotalDuration", "Ave", "Percentage"]).scale_ns
    1000
    """
    keys = [column_key(title) for title in titles]
    unit = next((match[1] for key in keys if (match := _TOTAL_COLUMN.fullmatch(key))), None)
    calls = next((key for key in ("totalcalls", "calls") if key in keys), None)
    if unit is None or calls is None or "name" not in keys:
        return None

    def place(key: str) -> int | None:
        return keys.index(key) if key in keys else None

    return TopColumns(
        width=len(keys),
        scale_ns=_UNITS_NS[unit],
        name=keys.index("name"),
        calls=keys.index(calls),
        total=keys.index("totalduration" + unit),
        minimum=place("min" + unit),
        maximum=place("max" + unit),
        percentage=place("percentage"),
    )


class _Sum(msgspec.Struct):
    """Running total of one name on one device."""

    calls: int
    total_ns: int
    min_ns: int
    max_ns: int


class Rows:
    """Collects the good rows of one profile and counts the rest."""

    def __init__(self) -> None:
        """Start without rows."""
        self._sums: dict[tuple[str, str | None, str], _Sum] = {}
        self._totals: list[KernelTotal] = []
        self._spans: list[KernelSpan] = []
        self._processes: list[int] = []  # of the spans
        self._notes: dict[str, Diagnostic] = {}
        self._shared: dict[str, str] = {}  # one object per distinct name, not one per row
        self._gone: list[Diagnostic] = []  # each counts the same executions by other evidence
        self._numbers: dict[Hashable, set[int]] = defaultdict(set)  # of executions, by sequence

    @property
    def launched(self) -> set[int]:
        """Numbers of the calls that the executions so far name."""
        return {span.call for span in self._spans if span.call is not None}

    def launched_named(self, wanted: Callable[[str], object]) -> set[int]:
        """Those of them whose executions have a wanted name."""
        names = {name for name in {span.name for span in self._spans} if wanted(name)}
        return {s.call for s in self._spans if s.call is not None and s.name in names}

    @property
    def empty(self) -> bool:
        """True while no row was kept."""
        return not self._totals and not self._spans

    def note(self, found: Diagnostic) -> None:
        """Count a problem; the first one of a code keeps its line and excerpt."""
        known = self._notes.get(found.code)
        if known is not None:
            self._notes[found.code] = replace(known, count=known.count + found.count)
            return
        cut = None if found.excerpt is None else found.excerpt[:_EXCERPT]
        self._notes[found.code] = replace(found, excerpt=cut)

    def skip(self, code: str, row: object, line: int | None = None) -> None:
        """Count a row that is not kept; `code` is one of the module's problems."""
        excerpt = row if isinstance(row, str) else _words(row)
        self.note(Diagnostic(Severity.DATA_LOSS, code, _PROBLEMS[code], line, excerpt))

    def add_span(
        self,
        row: Sequence[object],
        kind: str = "kernel",
        line: int | None = None,
        process: int = 0,
    ) -> None:
        """Add one execution.

        row      name, start in ns, end in ns, device, stream; the last two are anything printable;
                 and where the source has them the number of the call behind it, and thread blocks
        kind     ``kernel`` or ``copy``
        process  that it is of, where two may give streams one name
        """
        name, start, end, device, stream, *more = row
        start_ns, end_ns = parse_int(start), parse_int(end)
        if not isinstance(name, str) or not name.strip():
            self.skip("row_without_name", row, line)
        elif start_ns is None or end_ns is None:
            self.skip("bad_number", row, line)
        elif end_ns < start_ns:
            self.skip("ends_before_start", row, line)
        elif name not in MARKERS:
            name = self._shared.setdefault(name, name)
            where, queue = self._label(device), self._label(stream)
            call, blocks = (parse_int(value) or None for value in (*more, None, None)[:2])
            self._spans.append(KernelSpan(name, start_ns, end_ns, where, queue, kind, call, blocks))
            self._processes.append(process)

    def _label(self, value: object) -> str | None:
        if value is None or value == "":
            return None
        text = str(value)
        return self._shared.setdefault(text, text)

    def _accumulate(self, span: KernelSpan) -> None:
        duration_ns = span.end_ns - span.start_ns
        key = (span.name, span.device, span.kind)
        known = self._sums.get(key)
        if known is None:
            self._sums[key] = _Sum(1, duration_ns, duration_ns, duration_ns)
            return
        known.calls += 1
        known.total_ns += duration_ns
        known.min_ns = min(known.min_ns, duration_ns)
        known.max_ns = max(known.max_ns, duration_ns)

    def look_for_lost(self, calls: CallRows) -> None:
        """Look for kernels that were launched and are not among the executions."""
        start = np.array([s.start_ns for s in self._spans], dtype=np.float64)
        end = np.array([s.end_ns for s in self._spans], dtype=np.float64)
        self._gone += calls.lost(end_and_longest(start, end - start))

    def add_number(self, sequence: Hashable, value: object) -> None:
        """Take the number that the source gives an execution, in a sequence of its own.

        value  counted up by one for each execution; what is no number is left out
        """
        counted = parse_int(value)
        if counted is not None:
            self._numbers[sequence].add(counted)

    def _note_gone(self) -> None:
        """Note executions that are gone, by launches or numbers, whichever shows more."""
        present = sum(len(own) for own in self._numbers.values())
        between = sum(max(own) - min(own) + 1 for own in self._numbers.values())
        if between > present:
            self._gone.append(missing_numbers(between - present, between))
        if self._gone:
            self.note(max(self._gone, key=lambda found: found.count))

    def _repeated(self, start: Ints) -> set[int]:
        """Spans that equal another of their process and are of no other call; they are noted."""
        end = np.array([s.end_ns for s in self._spans], dtype=np.int64)
        order = np.lexsort((end, start))
        # Rows that have both times in common are few, so only they are looked at.
        same = np.flatnonzero((np.diff(start[order]) == 0) & (np.diff(end[order]) == 0))
        if not len(same):
            return set()
        alike: dict[tuple[int, KernelSpan], list[int]] = defaultdict(list)
        for k in np.unique(np.concatenate([order[same], order[same + 1]])).tolist():
            alike[self._processes[k], replace(self._spans[k], call=None)].append(k)
        repeated: set[int] = set()
        for rows in alike.values():
            first: dict[int | None, int] = {}
            for k in rows:
                first.setdefault(self._spans[k].call, k)
            if len(first) > 1:  # those that name no call equal one that does
                first.pop(None, None)
            repeated.update(set(rows) - set(first.values()))
        if repeated:
            name, number = self._spans[min(repeated)].name, len(repeated)
            self.note(Diagnostic(Severity.NOTICE, *stamps.REPEATED, excerpt=name, count=number))
        return repeated

    def _believed(self) -> list[KernelSpan]:
        """Spans whose times can be true, once each; the others are counted.

        See `collscope.stamps`.
        """
        start = np.array([s.start_ns for s in self._spans], dtype=np.int64)
        repeated = self._repeated(start)
        kept = [k for k in range(len(start)) if k not in repeated]
        spans = [self._spans[k] for k in kept] if repeated else self._spans
        streams: dict[tuple[int, str | None, str], int] = defaultdict(count().__next__)
        known = {name: classify(name) is not None for name in {s.name for s in spans}}
        found = stamps.judge(
            start[kept],
            np.array([s.end_ns for s in spans], dtype=np.int64),
            np.array(
                [
                    -1 if s.stream is None else streams[self._processes[k], s.device, s.stream]
                    for k, s in zip(kept, spans, strict=True)
                ],
                dtype=np.int64,
            ),
            np.array([s.kind == "kernel" and known[s.name] for s in spans], dtype=bool),
            _launches(spans),
            kernel=np.array([s.kind == "kernel" for s in spans], dtype=bool),
        )
        for note in stamps.diagnostics(found, lambda row: _span_words(spans[row])):
            self.note(note)
        return [s for s, good in zip(spans, found.believed.tolist(), strict=True) if good]

    def add_top(self, columns: TopColumns, cells: Sequence[object], line: int | None) -> None:
        """Add one row of a "top" table; durations are in the table's unit."""
        name = cells[columns.name]
        calls = parse_int(cells[columns.calls])
        total_ns = parse_int(cells[columns.total], columns.scale_ns)
        if not isinstance(name, str) or not name.strip():
            self.skip("row_without_name", cells, line)
            return
        if _HOST.fullmatch(name.strip()):
            self.note(Diagnostic(Severity.NOTICE, "host_api_stats", _HOST_TEXT, line, name))
            return
        # No execution lasts longer than `stamps` believes of one.
        if calls is None or total_ns is None or total_ns > max(calls, 1) * stamps.LONGEST_NS:
            self.skip("bad_number", cells, line)
            return

        def optional(place: int | None) -> object:
            return None if place is None else cells[place]

        percentage = number(optional(columns.percentage))
        self._totals.append(
            KernelTotal(
                name.strip(),
                calls,
                total_ns,
                min_ns=parse_int(optional(columns.minimum), columns.scale_ns),
                max_ns=parse_int(optional(columns.maximum), columns.scale_ns),
                kind=kind_of(name.strip()),
                reported_percentage=None if percentage is None else float(percentage),
            )
        )

    def check_percentages(self) -> None:
        """Note when the printed percentages do not add up to 100: rows are missing."""
        printed = [t.reported_percentage for t in self._totals if t.reported_percentage is not None]
        if not printed:
            return
        covered = math.fsum(printed)
        if abs(covered - 100) > _TOLERANCE:
            message = (
                f"The percentages of the table add up to {covered:.4g} %, not 100 %: rows are "
                f"{'missing' if covered < 100 else 'counted twice'}. The printed percentages "
                "are the shares."
            )
            self.note(Diagnostic(Severity.NOTICE, "partial_top", message))

    def profile(
        self,
        dialect: str,
        calls: ProfiledCalls | None = None,
        devices: tuple[ProfiledDevice, ...] = (),
    ) -> Profile:
        """Records of the profile: totals largest first, spans in the source's order."""
        self._note_gone()
        spans = self._believed()
        for span in spans:
            self._accumulate(span)
        totals = self._totals + [
            KernelTotal(name, s.calls, s.total_ns, s.min_ns, s.max_ns, device, kind)
            for (name, device, kind), s in self._sums.items()
        ]
        totals.sort(key=lambda t: (-t.total_ns, t.name, t.device or ""))
        if not totals and not self._notes:
            message = "The profile holds no kernels and no copies."
            self.note(Diagnostic(Severity.NOTICE, "no_rows", message))
        notes = tuple(self._notes.values())
        return Profile(dialect, tuple(totals), tuple(spans), notes, calls, devices)


def _launches(spans: Sequence[KernelSpan]) -> stamps.Launches:
    """Which spans are of one call; when calls began is a matter of the trace of each device."""
    calls = np.array([s.call or -1 for s in spans], dtype=np.int64)
    known, place = np.unique(calls, return_inverse=True)
    number = np.where(known[place] < 0, -1, place).astype(np.int32)
    return stamps.Launches(np.full(len(spans), -1, dtype=np.int64), call=number)


def _words(row: object) -> str:
    """A row as evidence: its cells, one after the other."""
    if isinstance(row, (list, tuple)):
        return ", ".join("" if cell is None else str(cell) for cell in row)
    return str(row)


def _span_words(span: KernelSpan) -> str:
    return f"{span.name}: {span.start_ns} to {span.end_ns} ns"
