"""Traces, recordings and pasted totals into the store, each recognised by its content.

Readers of what few files are get imported where they are needed: start-up counts.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collscope.ingest.adding import OTHER_KIND, cut_short, identity_of, known, unusable
from collscope.ingest.files import HEAD_BYTES, Input
from collscope.ingest.paths import printable
from collscope.ingest.result import Ingested
from collscope.ingest.stored_traces import insert_recording, insert_trace
from collscope.model import Diagnostic
from collscope.model.trace import RecordedCalls, TraceFile
from collscope.parsers import registry
from collscope.parsers.hints import Hints, TableHints
from collscope.parsers.reader import Fit, is_sqlite, text_of
from collscope.store import sources
from collscope.store.connection import transaction
from collscope.units import count

TRACE = "trace"  # what the kind of such a source is called
_EMPTY = "the trace holds no kernel, copy or collective"
# Its GPU work may be at the end: nothing of it is left then.
_NO_COMMUNICATOR = (
    "it holds {rows} of calls, and none of their communicators: the lines that name them are gone"
)
_CUT = "cut, or not written to its end; it holds no kernel, copy or collective"
_LARGE = (
    "one of its values exceeds the reader's limit; the part that was read holds no kernel, copy "
    "or collective"
)
_UNTIMED = (
    "none of its {rows} has a possible time: such traces hold microseconds, and nanoseconds are "
    "too large. Divide ts and dur by 1000, or export the trace again"
)
_UNKNOWN = "not a known trace or recording"
# job.rank0.json, rank_0.pt.trace.json, worker0.1790000000000.pt.trace.json, rank0/trace.json
_RANK = re.compile(r"(?<![a-z])(?:rank|worker)[._-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_DOCUMENT = re.compile(rb"\s*(?:\{|\[\s*\{)")  # JSON, as no table begins


class _Parsed(msgspec.Struct, frozen=True):
    """What one file holds."""

    traces: list[TraceFile]
    recording: RecordedCalls | None = None

    @property
    def dialect(self) -> str:
        first = self.recording or next(iter(self.traces), None)
        return first.dialect if first else ""

    @property
    def diagnostics(self) -> list[Diagnostic]:
        found = [d for trace in self.traces for d in trace.diagnostics]
        return [*found, *(self.recording.diagnostics if self.recording else ())]

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        calls = len(self.recording.calls) if self.recording else 0
        return (
            ("ranks", len(self.traces) if len(self.traces) > 1 else 0),
            ("kernels and copies", sum(len(t.columns) for t in self.traces)),
            (
                "collective kernels",
                sum(int((t.columns.collective >= 0).sum()) for t in self.traces),
            ),
            ("recorded calls", calls),
        )


def ingest_trace(connection: sqlite3.Connection, store: Path, run: str, file: Input) -> Ingested:
    """Put one file into the store, in one transaction; its calls are matched later.

    Tables of totals (key_averages, perftools, DeepSpeed) become profiles and measurements.
    raises  InputError when the file cannot be read or the store refuses
    """
    path = file.path
    parsed = _parse(file)
    if isinstance(parsed, str):
        totals = _totals(connection, store, run, file)
        if totals.status != "unusable" or is_sqlite(file.head()):
            return totals  # of an SQLite file it knows better why it is none
        return unusable(path, OTHER_KIND, parsed, size=file.size_bytes, truncated=file.truncated)
    diagnostics = parsed.diagnostics
    identity = sources.identity(file.sha256, "trace")
    for own in _identities(connection, run, file):
        if sources.has_source(connection, run, own):
            return known(connection, run, path, own)
    if not any(n for _, n in parsed.counts):
        code, reason = _why_empty(diagnostics)
        return unusable(path, code, reason, size=file.size_bytes, truncated=file.truncated)
    diagnostics += cut_short(file)
    version = next((t.library_version for t in parsed.traces if t.library_version), None)
    if parsed.recording is not None:
        version = parsed.recording.library_version
    library = _library(parsed, version)
    row = sources.SourceRow(printable(path), identity, "trace", parsed.dialect, library, version)
    with transaction(connection, store):
        if sources.has_source(connection, run, identity):
            return known(connection, run, path, identity)  # another process was faster
        run_key = sources.run_id(connection, run)
        source = sources.insert_source(connection, run_key, row)
        for trace in parsed.traces:
            insert_trace(connection, source, trace)
        if parsed.recording is not None:
            insert_recording(connection, source, parsed.recording)
        sources.insert_diagnostics(connection, run_key, source, diagnostics)
        connection.execute("UPDATE _run SET matched = 0 WHERE run_id = ?", (run_key,))
    return Ingested(path, "added", parsed.dialect, parsed.counts, tuple(diagnostics))


def _identities(connection: sqlite3.Connection, run: str, file: Input) -> Iterator[str]:
    """As what a run may hold the file already."""
    yield sources.identity(file.sha256, TRACE)
    # A large trace is unpacked once more only where there is something to compare with.
    if sources.has_kind(connection, run, "profile"):
        yield identity_of(connection, run, file, "profile")


def _why_empty(diagnostics: Iterable[Diagnostic]) -> tuple[str, str]:
    """Code and reason of a trace without usable content."""
    counts = {d.code: d.count for d in diagnostics}
    if "untimed_activity" in counts:
        rows = count(counts["untimed_activity"], "kernel or copy", "kernels and copies")
        return "untimed_activity", _UNTIMED.format(rows=rows)
    if "large_value" in counts:
        return "large_value", _LARGE
    if "record_without_communicator" in counts:
        rows = count(counts["record_without_communicator"], "record", "records")
        return "record_without_communicator", _NO_COMMUNICATOR.format(rows=rows)
    return ("truncated_trace", _CUT) if "truncated_trace" in counts else ("empty_trace", _EMPTY)


def rank_of_name(path: str) -> int | None:
    """Rank in the name of a file, or of its folder; None where neither has one.

    >>> rank_of_name("job/rank_3.json"), rank_of_name("rank3/trace.json"), rank_of_name("a.3.json")
    (3, 3, None)
    """
    for name in reversed(path.replace("\\", "/").split("/")[-2:]):
        if found := _RANK.search(name):
            return int(found[1])
    return None


def _library(parsed: _Parsed, version: str | None) -> str | None:
    """Library of a trace; its version line is of NCCL's interface, which RCCL reports as well."""
    if version is None:
        return None
    return "rccl" if parsed.dialect.startswith(("rccl", "rocprof")) else "nccl"


def _parse(file: Input) -> _Parsed | str:
    """Records of a file, or the reason why it holds none."""
    head = file.head()
    if is_sqlite(head):
        from collscope.ingest.profiles import read_profiles
        from collscope.parsers.traces.of_profile import profile_traces

        profiles = read_profiles(file)
        traces = profile_traces(profiles.tables[0].profile) if profiles else []
        return _Parsed(traces) if traces else _UNKNOWN
    found = registry.read(TRACE, file, head, Hints()) if _is_trace(head) else None
    if isinstance(found, RecordedCalls):
        return _Parsed([], found)
    if not isinstance(found, list):
        return _UNKNOWN
    if len(found) == 1 and found[0].rank is None:
        found = [replace(found[0], named_rank=rank_of_name(file.path))]
    return _Parsed(found)


def _is_trace(head: bytes) -> bool:
    """True for the first bytes of a trace or a recording."""
    return registry.fit(TRACE, head[:HEAD_BYTES]) is Fit.WHOLE and not is_totals(head)


def is_totals(head: bytes) -> bool:
    """True for text with a table of totals."""
    if _DOCUMENT.match(head):
        return False
    from collscope.parsers import deepspeed, key_averages, perftools

    text = head[:HEAD_BYTES].decode("utf-8", errors="replace")
    tables = (key_averages, perftools, deepspeed)
    return not is_sqlite(head) and any(module.sniff_text(text) for module in tables)


def _totals(connection: sqlite3.Connection, store: Path, run: str, file: Input) -> Ingested:
    """A table of totals as a profile or as measurements."""
    from collscope.ingest.measurements import ingest_table
    from collscope.ingest.profiles import ingest_profile
    from collscope.parsers import deepspeed

    profile = ingest_profile(connection, store, run, file)
    if profile.status != "unusable":
        return profile
    if not deepspeed.sniff_text(text_of(file.head())):
        return profile
    return ingest_table(connection, store, run, file, TableHints())
