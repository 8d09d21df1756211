"""Files of any kind into the store, each as every kind of source that it holds."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec

from collscope.ingest.adding import CUT, EMPTY, OTHER_KIND, unusable
from collscope.ingest.files import HEAD_BYTES, Input
from collscope.ingest.logs import OWN, has_no_content, store_log
from collscope.ingest.measurements import CSV, TABLE, ingest_csv, ingest_table
from collscope.ingest.metrics import METRIC, ingest_metric
from collscope.ingest.profiles import PROFILE, ingest_profile
from collscope.ingest.result import Ingested
from collscope.ingest.scan import Report, Scanned, scan_log
from collscope.ingest.traces import TRACE, ingest_trace, is_totals
from collscope.model import MeasurementSet, MetricSet
from collscope.model.scanned_log import LogScan
from collscope.parsers import registry
from collscope.parsers.hints import Hints, MetricHints, TableHints
from collscope.parsers.reader import Fit

# Longer texts, after decompression, are not looked through for what stands inside a document.
DOCUMENT_BYTES = 8 << 20
LOG = "log"
# A JSON document over several lines, or one line alone; not one object a line, as of figures.
_JSON = re.compile(rb'\s*(?:\{\s*["}]|\[\s*\{\s*")')
# Why a file is unusable for one reader, and nothing that the user could mend for that one.
_OF_ONE_KIND = (OTHER_KIND, EMPTY, CUT, OWN, "empty_trace", "torn_last_line")
_LOST = ("record_without_communicator", "untimed_activity", "large_value")
_NO_OP = "op_unknown"  # a table that lacks the name of its operation
_NOTHING = "no profile, trace, replay CSV, log, benchmark table or figures found"


# Formats that other programs keep to themselves, by the end of the name, and what to read instead.
_EXPORTS = {
    ".nsys-rep": "Nsight Systems' own format: run 'nsys export --type sqlite' on it",
    ".qdrep": "Nsight Systems' own format: run 'nsys export --type sqlite' on it",
    ".ncu-rep": "Nsight Compute's own format, of single kernels: use Nsight Systems",
    ".xplane.pb": "a profile of JAX or TensorFlow: log NCCL, or use Nsight Systems",
    ".pftrace": "Perfetto's own format: give rocprofv3 '--output-format rocpd', or json",
}


class _Destination(msgspec.Struct, frozen=True):
    """Where files go."""

    connection: sqlite3.Connection
    db: Path
    run: str
    report: Report


def ingest_any(
    connection: sqlite3.Connection, db: Path, run: str, file: Input, report: Report
) -> list[Ingested]:
    """Put one file into a run, as every kind of source that the readers find in it.

    A file that is of one dialect as a whole is of one kind. Others are read as a log, as what they
    begin with, and, up to `DOCUMENT_BYTES`, as all that may stand inside of a document.

    returns  a result per kind that holds something; else one, known or unusable
    raises   InputError when the file cannot be read or the store refuses
    """
    refused = _of_another_program(file)
    into = _Destination(connection, db, run, report)
    return _ingest_kinds(into, file) if refused is None else [refused]


def _ingest_kinds(into: _Destination, file: Input) -> list[Ingested]:
    head = file.head(DOCUMENT_BYTES + 1)
    # Of a JSON document figures are read, and no lines of tables.
    small = len(head) <= DOCUMENT_BYTES
    inside = {LOG, *([METRIC] * small), *([TABLE, PROFILE] * (small and not _is_json(head)))}
    found: list[Ingested] = []
    first: Ingested | None = None  # of what looks like one kind alone
    log: Scanned | None = None
    # What is figures as a whole, as an answer of the RAS service, has lines of the library's name.
    all_figures = registry.fit(METRIC, head[:HEAD_BYTES]) is Fit.WHOLE
    for kind in registry.DIALECTS:
        fits = registry.fit(kind, head[:HEAD_BYTES])
        if all_figures and fits is Fit.PART:
            continue
        if fits is Fit.PART and kind in inside and log is None:
            log = scan_log(file, into.report)
            # A log without a line of another program holds nothing else.
            inside = {LOG} if _is_pure(log) else inside
        if fits is Fit.NONE or (fits is Fit.PART and kind not in inside):
            continue
        if kind == LOG:
            result = _put_log(into, log or scan_log(file, into.report))
        else:
            result = _PUT[kind](into, file)
        if result is None:
            continue
        alone = fits is Fit.WHOLE and kind != TABLE  # the file of a table may hold figures as well
        # Some traces match by few marks: one without content may be something else, unless it has
        # lost it.
        if alone and (kind != TRACE or result.status != "unusable" or result.code in _LOST):
            return [result]
        if alone:
            first = result
        else:
            found.append(result)
    added = [r for r in found if r.status == "added"]
    known = [r for r in found if r.status == "known"]
    if not added and not known:
        return [first or _rejected(found, file)]
    # A table that lacks an option, next to what could be read, is not silently skipped.
    lacking = [r for r in found if r.status == "unusable" and r.code == _NO_OP]
    return [*(added or known[:1]), *lacking]


def _of_another_program(file: Input) -> Ingested | None:
    """What to give instead of a format that its program keeps to itself.

    Such a file may hold lines of a log: Nsight Systems keeps what the program printed.
    """
    name = file.path.lower().removesuffix(".gz").removesuffix(".zst").removesuffix(".xz")
    export = next((words for end, words in _EXPORTS.items() if name.endswith(end)), None)
    if export is None:
        return None
    return unusable(file.path, OTHER_KIND, export, size=file.size_bytes, truncated=file.truncated)


def _is_json(head: bytes) -> bool:
    """Whether a text begins as one JSON document."""
    if _JSON.match(head) is None:
        return False
    first, _, rest = head.lstrip().partition(b"\n")
    return not rest.strip() or not first.rstrip().endswith((b"}", b"},", b"}]"))


def _is_pure(log: Scanned) -> bool:
    pure = log.found.is_log and not log.found.counters["foreign"] and not log.own
    return pure and not has_no_content(log)


def _put_log(into: _Destination, log: Scanned) -> Ingested | None:
    return None if has_no_content(log) else store_log(into.connection, into.db, into.run, log)


def _put_metric(into: _Destination, file: Input) -> Ingested:
    return ingest_metric(into.connection, into.db, into.run, file, MetricHints(), rated=True)


_PUT: dict[str, Callable[[_Destination, Input], Ingested]] = {
    TRACE: lambda into, file: ingest_trace(into.connection, into.db, into.run, file),
    CSV: lambda into, file: ingest_csv(into.connection, into.db, into.run, file, None, None),
    PROFILE: lambda into, file: ingest_profile(into.connection, into.db, into.run, file),
    TABLE: lambda into, file: ingest_table(into.connection, into.db, into.run, file, TableHints()),
    METRIC: _put_metric,
}


def _rejected(found: list[Ingested], file: Input) -> Ingested:
    """The one result of a file that no reader can use: what the user can mend, else all kinds."""
    mendable = ((r.code, r.reason) for r in found if r.code not in _OF_ONE_KIND)
    code, reason = next(mendable, (OTHER_KIND, _NOTHING))
    return unusable(file.path, code, reason, size=file.size_bytes, truncated=file.truncated)


def kind_of(file: Input) -> str | None:
    """The ingest command that a file looks like it is for; None when no kind matches.

    raises  InputError when the file cannot be read
    """
    head = file.head(DOCUMENT_BYTES + 1)
    if is_totals(head):  # `ingest trace` reads all of them, `ingest profile` all but one
        return TRACE
    return next((kind for kind in registry.DIALECTS if _speaks_for(kind, head)), None)


def _speaks_for(kind: str, head: bytes) -> bool:
    """True where a file that begins so is of the kind, by its readers or by what they find."""
    fits = registry.fit(kind, head[:HEAD_BYTES])
    if fits is not Fit.PART or kind == PROFILE:
        return fits > Fit.PART
    found = registry.read_bytes(kind, head, Hints())
    if isinstance(found, MetricSet):
        return any(metric.unit is not None for metric in found.metrics)
    if isinstance(found, MeasurementSet):
        return bool(found.rows)
    return isinstance(found, LogScan) and found.is_log
