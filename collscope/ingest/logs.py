"""NCCL and RCCL text logs into the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from collscope.ingest.adding import CUT_TEXT, EMPTY, OTHER_KIND, known, unusable
from collscope.ingest.observation_blob import encode
from collscope.ingest.paths import printable
from collscope.ingest.result import Ingested
from collscope.ingest.scan import Scanned
from collscope.match.observe import Observed, observe
from collscope.model import Diagnostic, LibraryVersion, LogRecord, Severity
from collscope.model.scanned_log import PARSED, LogScan
from collscope.parsers.bounds import bounded_log
from collscope.parsers.log_scan import cut_end
from collscope.parsers.nccl_log import parse_messages
from collscope.store import sources
from collscope.store.connection import transaction

# What the scanner counts as damage, with what each means.
_DAMAGE = {
    "torn": "lines cut before their end: not counted as calls",
    "invalid_number": "lines with a number that cannot be read",
    "overlong": "lines too long to be the library's",
}
_NO_CALLS = (
    "NCCL or RCCL lines, but none about communicators or calls: set NCCL_DEBUG_SUBSYS=INIT,COLL"
)
_DAMAGED = (
    "every NCCL or RCCL line is cut or damaged ({} of them), and no call is complete: copy the"
    " original file, or set NCCL_DEBUG_FILE to write one file per process"
)
_EMPTY = (
    "the file is empty. With NCCL_LOG_PLUGIN set (NCCL 2.31 on) the plugin gets the log and"
    " NCCL_DEBUG_FILE stays empty: unset it, or look where the plugin writes"
)
NO_LOG = "no line of NCCL or RCCL: not a log of NCCL_DEBUG=INFO"
OWN = "own_output"  # why a file is unusable
_OWN = (
    "a store or output of collscope, or another SQLite file: the log lines that it quotes are not "
    "read"
)
_EXCERPT = 200  # characters of a line kept in a diagnostic


def store_log(connection: sqlite3.Connection, store: Path, run: str, log: Scanned) -> Ingested:
    """Put a scanned log into the store, in one transaction; its calls are matched later.

    raises  InputError when the store refuses
    """
    path, scan = log.path, log.found
    identity = sources.identity(log.sha256, "log")
    if sources.has_source(connection, run, identity):
        return known(connection, run, path, identity)
    if not log.size_bytes and not log.truncated:
        return Ingested(path, "unusable", reason=_EMPTY, code=EMPTY)
    if log.own:
        return Ingested(path, "unusable", reason=_OWN, code=OWN)
    if not log.found.is_log:
        code, why = _why_unusable(scan)
        return unusable(path, code, why, size=log.size_bytes, truncated=log.truncated)
    parsed, found = parse_messages(scan.messages)
    scan, records, beyond = bounded_log(scan, parsed)
    observed = observe(scan, records)
    diagnostics = [*found, *beyond, *observed.diagnostics, *_scan_diagnostics(scan)]
    if cut := cut_end(log.found):
        last = scan.counters["lines"], log.found.unended[:_EXCERPT]
        diagnostics.append(Diagnostic(cut[0], "torn_last_line", cut[1], *last))
    if log.truncated:
        diagnostics.append(Diagnostic(Severity.DATA_LOSS, "truncated_compression", CUT_TEXT))
    row = _source_row(path, identity, scan, records)
    with transaction(connection, store):
        if sources.has_source(connection, run, identity):
            return known(connection, run, path, identity)  # another process was faster
        _insert(connection, run, _Parsed(row, scan, records, observed, diagnostics))
    counters = scan.counters
    counts = (
        ("lines", counters["lines"]),
        ("observations", len(observed.observations)),
        ("kernels", len(observed.kernels)),
        ("communicator pointers", len(observed.observations.handles)),
    )
    return Ingested(path, "added", row.dialect, counts, tuple(diagnostics))


def has_no_content(log: Scanned) -> bool:
    """True for messages of the library without a communicator, a link, a setting or a fact."""
    counters = log.found.counters
    if not counters["messages"] or any(counters[n] for n in PARSED if n != "messages"):
        return False
    records, _ = parse_messages(log.found.messages)
    return not records


def _why_unusable(scan: LogScan) -> tuple[str, str]:
    """Code and words."""
    counters = scan.counters
    if counters["unknown"]:
        return "no_calls", _NO_CALLS
    if damaged := sum(counters[name] for name in _DAMAGE):
        return "damaged_log", _DAMAGED.format(damaged)
    return OTHER_KIND, NO_LOG


def _source_row(
    path: str, sha256: str, scan: LogScan, records: list[LogRecord]
) -> sources.SourceRow:
    counters = scan.counters
    version = next(
        (r for r in records if isinstance(r, LibraryVersion) and r.component in ("nccl", "rccl")),
        None,
    )
    # RCCL alone prints a rank or a kernel trace with its calls.
    rccl = (scan.comms.global_rank >= 0).any() or len(scan.kernel.line)
    return sources.SourceRow(
        path=printable(path),
        sha256=sha256,
        kind="log",
        dialect="nccl_log",
        library=version.component if version else "rccl" if rccl else None,
        library_version=version.version if version else None,
        lines=counters["lines"],
        parsed=sum(counters[name] for name in PARSED),
        ignored=counters["unknown"] + counters["structure_skipped"] + counters["data_trace"],
        foreign_lines=counters["foreign"],
        damaged=sum(counters[name] for name in _DAMAGE),
    )


def _scan_diagnostics(scan: LogScan) -> list[Diagnostic]:
    """Damage and strangers among the lines, counted by the scanner."""
    first: dict[str, tuple[int | None, str | None]] = {}
    for line, code, excerpt in scan.damage:
        first.setdefault(code, (line, excerpt[:_EXCERPT]))
    for line, text in scan.unknown_samples[:1]:
        first["unknown"] = (line, text[:_EXCERPT])
    kinds = [(code, f"{code}_line", Severity.DATA_LOSS, text) for code, text in _DAMAGE.items()]
    kinds += [
        (
            "interleaved", "interleaved_line", Severity.NOTICE,
            "lines interrupted by another process's line: complete lines were read",
        ),
        (
            "repeated", "repeated_line", Severity.DATA_LOSS,
            "lines that Ray dropped because they differ only in numbers from a line it kept "
            "([repeated 7x across cluster]): calls of other processes are missing; set "
            "RAY_DEDUP_LOGS=0",
        ),
        (
            "unknown", "other_line", Severity.INFO,
            "NCCL or RCCL lines of forms that collscope does not know",
        ),
    ]  # fmt: skip
    counters = scan.counters
    return [
        Diagnostic(severity, name, text, *first.get(code, (None, None)), counters[code])
        for code, name, severity, text in kinds
        if counters[code]
    ]


class _Parsed(msgspec.Struct, frozen=True):
    """One log, ready to be stored."""

    row: sources.SourceRow
    scan: LogScan
    records: list[LogRecord]
    observed: Observed
    diagnostics: list[Diagnostic]


def _insert(connection: sqlite3.Connection, run: str, log: _Parsed) -> None:
    run_key = sources.run_id(connection, run)
    source = sources.insert_source(connection, run_key, log.row)
    first = sources.insert_processes(connection, source, log.scan.processes)
    handles = log.observed.observations.handles
    first_handle = sources.insert_handles(connection, first, handles)
    lives = sources.HandlesByPointer(first_handle, handles, log.records)
    messages = log.scan.messages
    texts = dict(zip(messages.line.tolist(), messages.text, strict=True))
    keys = sources.LogKeys(source, first, lives, texts)
    sources.insert_records(connection, keys, log.records)
    sources.insert_traced_kernels(connection, source, first, log.observed.kernels)
    sources.insert_diagnostics(connection, run_key, source, log.diagnostics)
    connection.execute(
        "INSERT INTO _segment VALUES (?, ?)", (source, encode(log.observed.observations))
    )
    connection.execute("UPDATE _run SET matched = 0 WHERE run_id = ?", (run_key,))
