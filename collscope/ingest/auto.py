"""Files of any kind into the store, each as every kind of source that it holds."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from collscope._logscan import Scanner
from collscope.ingest.adding import CUT, EMPTY, OTHER_KIND, unusable
from collscope.ingest.files import HEAD_BYTES, Input
from collscope.ingest.logs import PARSED, store_log, tells_nothing
from collscope.ingest.measurements import CSV, TABLE, ingest_csv, ingest_table
from collscope.ingest.metrics import METRIC, ingest_metric
from collscope.ingest.profiles import ingest_profile, is_sqlite, text_profile
from collscope.ingest.result import Ingested
from collscope.ingest.scan import Progress, Scanned, scan_log
from collscope.ingest.traces import ingest_trace, is_totals, is_trace
from collscope.model import MeasurementSet
from collscope.parsers import registry
from collscope.parsers.hints import Hints, MetricHints, TableHints
from collscope.parsers.metrics import MetricSet
from collscope.parsers.reader import Fit

# Longer texts, after decompression, are not looked through for what stands inside a document.
DOCUMENT_BYTES = 8 << 20
# Why a file is unusable for one reader, and nothing that the user could mend for that one.
_OF_ONE_KIND = (OTHER_KIND, EMPTY, CUT, "empty_trace")
_NO_OP = "op_unknown"  # a table that lacks the name of its operation
_NOTHING = "no profile, trace, replay CSV, log, benchmark table or figures found"


def ingest_any(
    connection: sqlite3.Connection, db: Path, run: str, file: Input, progress: Progress
) -> list[Ingested]:
    """Put one file into a run.

    An SQLite file, a trace, a recording and a replay CSV are of one kind. A text is a log where it
    tells of more than itself; one of at most `DOCUMENT_BYTES` is also looked through for a
    profiler's table, benchmark tables and figures with a unit. Each kind is a source.

    returns  a result per kind that holds something; else one, known or unusable
    raises   InputError when the file cannot be read or the store refuses
    """
    head = file.head(DOCUMENT_BYTES + 1)
    if is_sqlite(head):
        profile = ingest_profile(connection, db, run, file)
        if profile.status != "unusable":
            return [profile]
        spans = ingest_trace(connection, db, run, file)
        return [profile if spans.status == "unusable" else spans]
    trace = ingest_trace(connection, db, run, file) if is_trace(head) else None
    if trace is not None and trace.status != "unusable":
        return [trace]
    if registry.fit(CSV, head[:HEAD_BYTES]) is Fit.WHOLE:
        return [ingest_csv(connection, db, run, file, None, None)]
    found = _document(connection, db, run, file, head, progress)
    nothing = all(r.status == "unusable" for r in found)
    return [trace] if trace is not None and nothing else found


def kind_of(file: Input) -> str | None:
    """The ingest command that a file looks like it is for; None when it is told by none.

    raises  InputError when the file cannot be read
    """
    head = file.head(DOCUMENT_BYTES + 1)
    if is_sqlite(head):
        return "profile"
    if is_trace(head) or is_totals(head):
        return "trace"
    if registry.fit(CSV, head[:HEAD_BYTES]) is Fit.WHOLE:
        return CSV
    if text_profile(head):
        return "profile"
    return _kind_of_text(head)


def _kind_of_text(head: bytes) -> str | None:
    scanner = Scanner()
    scanner.feed(head)
    counters = scanner.finish()["counters"]
    if any(counters[name] for name in PARSED):
        return "log"
    measured = registry.read_bytes(TABLE, head, Hints())
    if isinstance(measured, MeasurementSet) and measured.measurements:
        return TABLE
    figures = registry.read_bytes(METRIC, head, Hints())
    rated = isinstance(figures, MetricSet) and any(m.unit is not None for m in figures.metrics)
    return METRIC if rated else None


def _document(
    connection: sqlite3.Connection, db: Path, run: str, file: Input, head: bytes, progress: Progress
) -> list[Ingested]:
    """What every reader of texts makes of a file."""
    small = len(head) <= DOCUMENT_BYTES
    found: list[Ingested] = []
    if small or text_profile(head):
        read = ingest_trace if is_totals(head) else ingest_profile
        found.append(read(connection, db, run, file))
        if found[0].dialect.startswith("rocprof"):  # one table from the first line to the last
            return found
    log = scan_log(file, progress)
    if not tells_nothing(log):
        found.append(store_log(connection, db, run, log))
    if small:
        found.append(ingest_table(connection, db, run, file, TableHints()))
        found.append(ingest_metric(connection, db, run, file, MetricHints(), rated=True))
    added = [r for r in found if r.status == "added"]
    known = [r for r in found if r.status == "known"]
    if not added and not known:
        return [_rejected(found, log)]
    # A table that lacks an option, beside what could be read, is not passed over in silence.
    lacking = [r for r in found if r.status == "unusable" and r.code == _NO_OP]
    return [*(added or known[:1]), *lacking]


def _rejected(found: list[Ingested], log: Scanned) -> Ingested:
    """The one result of a file that no reader can use: what the user can mend, else all kinds."""
    mendable = ((r.code, r.reason) for r in found if r.code not in _OF_ONE_KIND)
    code, reason = next(mendable, (OTHER_KIND, _NOTHING))
    return unusable(log.path, code, reason, size=log.size_bytes, truncated=log.truncated)
