"""The readers, one per dialect, and what they make of a file together.

A new dialect is one module with a `READER` and its line here. Modules are imported when asked for.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.model import Diagnostic, MeasurementSet, MetricSet, Severity
from collscope.parsers._notes import CUT_TEXT
from collscope.parsers.bounds import bounded
from collscope.parsers.reader import Fit, InMemory, Reader, Records, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from collscope.parsers.hints import Hints

_EXCERPT = 200  # characters
_ROW_BEGINS = re.compile(r"\s*(?:\d|#|\|)")  # of a table, or a comment in one
HEAD_BYTES = 65_536  # what readers recognise their files by
# By kind, in the order in which `ingest auto` asks them, and in a kind in the order in which its
# readers are asked.
DIALECTS = {
    # The binary recording has no magic number, so it is asked last.
    "trace": (
        "traces.rocprof_json",
        "traces.kineto",
        "recorders.own_recorder",
        "recorders.flight_pickle",
        "recorders.flight_recorder",
        "recorders.clog",
        "recorders.accl_profiler",
        "recorders.inspector",
        "recorders.profiler_plugin",
        "recorders.rccl_recorder_text",
        "recorders.rccl_recorder_binary",
    ),
    "csv": ("replay_csv", "memcpy_csv", "interference_csv", "rccl_replayer_csv"),
    "profile": (
        "rocpd",
        "rpd",
        "nsys",
        "rocprof_csv",
        "rocm_json",
        "nsys_stats",
        "rocprofv3_summary",
        "key_averages",
        "top_text",
        "perftools",
    ),
    "log": ("log_scan",),
    "table": (
        "tables.perf_json",
        "tables.perf_csv",
        "tables.perf_text",
        "tables.osu",
        "tables.queue_pairs",
        "tables.relative_compute",
        "tables.copy_table",
        "tables.ipc_handles",
        "tables.wrapper_times",
        "tables.transferbench",
        "tables.primus_rccl",
        "deepspeed",
        # Tables of any program are tried at the end.
        "tables.latency_table",
        "tables.summary_table",
    ),
    "metric": (
        "nvbandwidth",
        "rocm_bandwidth_test",
        "ras_json",
        "ras_text",
        "fusion_times",
        "iteration_lines",
        "metrics",
    ),
}


def readers(kind: str) -> Iterator[Reader]:
    """The readers that become sources of a kind, each loaded when it is asked."""
    return (_reader(name) for name in DIALECTS[kind])


@cache
def _reader(name: str) -> Reader:
    found: Reader = import_module(f"collscope.parsers.{name}").READER
    return found


def _fitting(kind: str, head: bytes) -> Iterator[tuple[Fit, Reader]]:
    """The readers that fit, the best first."""
    less = []
    for reader in readers(kind):
        fits = reader.sniff(head)
        if fits is Fit.WHOLE:
            yield fits, reader
        elif fits:
            less.append((fits, reader))
    yield from sorted(less, key=lambda pair: pair[0], reverse=True)


def fit(kind: str, head: bytes) -> Fit:
    """How well the best reader of a kind fits a file that begins so.

    >>> fit("csv", b"label,round,kind,src_device,").name
    'WHOLE'
    """
    return next((fits for fits, _ in _fitting(kind, head)), Fit.NONE)


def read(kind: str, source: Source, head: bytes, hints: Hints) -> Records | None:
    """Records of a file: of the reader that fits best; of tables and figures, what all find.

    A line is of the first reader that knows it: the later ones do not see it.

    head     its first 64 KiB
    returns  None when no reader knows it
    """
    tables: list[MeasurementSet] = []
    figures: list[MetricSet] = []
    once = _SharedText(source)
    for fits, reader in _fitting(kind, head):
        raw = reader.read(once, hints)
        found = None if raw is None else bounded(raw)
        if isinstance(found, MeasurementSet) and fits is not Fit.WHOLE:
            tables.append(found)
            once.take(found.claimed.union(row.line for row in found.rows if row.line))
        elif isinstance(found, MetricSet) and fits is not Fit.WHOLE:
            figures.append(found)
            once.take(frozenset(metric.line for metric in found.metrics if metric.line))
        elif found is not None:
            return found
    if any(found.rows or found.claimed or found.diagnostics for found in tables):
        return joined([*tables, *_cut_end(once.text(), tables[0])])
    if tables:
        return None
    return _joined_figures(figures)


def read_bytes(kind: str, data: bytes, hints: Hints) -> Records | None:
    """Records of bytes at hand, as `read` finds them."""
    return read(kind, InMemory([data]), data[:HEAD_BYTES], hints)


class _SharedText:
    """A source whose text is made once for all readers, without what one of them has taken."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._text: str | None = None
        self.name, self.chunks, self.read_all = source.name, source.chunks, source.read_all
        self.database = source.database

    def text(self) -> str:
        """The text."""
        if self._text is None:
            self._text = self._source.text()
        return self._text

    def take(self, lines: frozenset[int]) -> None:
        """Leave lines, counted from 1, empty from now on."""
        if lines:
            kept = self.text().split("\n")
            self._text = "\n".join(
                "" if at in lines else line for at, line in enumerate(kept, start=1)
            )


def joined(found: Sequence[MeasurementSet]) -> MeasurementSet | None:
    """Tables of several dialects in one text; None when none has a row or a reason.

    returns  `dialect` joins the names of the dialects found with "+"
    """
    sets = [s for s in found if s.rows]
    if not sets:  # a table that could not be used has a reason, the loss of data first
        why = sorted((d for s in found for d in s.diagnostics), key=_by_severity)
        return replace(found[0], diagnostics=tuple(why)) if why else None
    return replace(
        sets[0],
        dialect="+".join(s.dialect for s in sets),
        measurements=tuple(m for s in sets for m in s.measurements),
        copies=tuple(c for s in sets for c in s.copies),
        interference=tuple(i for s in sets for i in s.interference),
        diagnostics=tuple(d for s in found for d in s.diagnostics),
    )


def _cut_end(rest: str, like: MeasurementSet) -> Iterator[MeasurementSet]:
    """A set without rows that counts a last line which is a part of a row.

    rest  the text without the lines that a reader knew; whole rows need no line end, and prose may
          end without one
    """
    body, _, last = rest.rpartition("\n")
    if _ROW_BEGINS.match(last):
        at = body.count("\n") + 2
        note = Diagnostic(Severity.DATA_LOSS, "cut_row", CUT_TEXT, at, last[:_EXCERPT])
        yield replace(like, measurements=(), copies=(), interference=(), diagnostics=(note,))


def _joined_figures(found: Sequence[MetricSet]) -> MetricSet | None:
    """Figures of several dialects in one text; `dialect` joins their names with "+"."""
    if not found:
        return None
    return replace(
        found[0],
        dialect="+".join(s.dialect for s in found),
        metrics=tuple(m for s in found for m in s.metrics),
        diagnostics=tuple(d for s in found for d in s.diagnostics),
    )


def _by_severity(found: Diagnostic) -> bool:
    return found.severity is not Severity.DATA_LOSS
