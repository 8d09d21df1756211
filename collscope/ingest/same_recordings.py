"""Files of a run that hold what another one holds, as a file beside its compressed copy."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from collscope.model import Diagnostic, Severity
from collscope.model.trace import TraceFile
from collscope.store.sources import insert_diagnostics
from collscope.store.trace_columns import decode_recording, decode_trace

_TEXT = "files that hold the same recording as an earlier file of the run: counted once"
_FAMILY = "run_id IN (SELECT run_id FROM _run WHERE run_id = :run OR period_of = :run)"
# Sources that may be copies have all but the key in common.
_TRACES = f"""
SELECT source_id, dialect, GROUP_CONCAT(key, ';') FROM (
    SELECT source_id, s.dialect, COALESCE(rank, '-') || ',' || COALESCE(device, '-')
           || ',' || kernels AS key
    FROM _trace JOIN _source s USING (source_id) WHERE {_FAMILY} AND kernels > 0 ORDER BY trace_id)
GROUP BY source_id ORDER BY source_id
"""
_RECORDINGS = f"""
SELECT source_id, s.dialect, rank, host, begin_ns, end_ns, process, part, LENGTH(calls)
FROM _recording JOIN _source s USING (source_id)
WHERE {_FAMILY} ORDER BY source_id
"""
_LOGS = f"""
SELECT source_id, s.dialect, lines, parsed, LENGTH(columns), GROUP_CONCAT(process, ';') FROM (
    SELECT source_id, COALESCE(host, '') || ':' || pid AS process FROM _process
    JOIN _source USING (source_id) WHERE {_FAMILY} ORDER BY process_id)
JOIN _segment USING (source_id) JOIN _source s USING (source_id)
GROUP BY source_id HAVING COUNT(process) = COUNT(*) ORDER BY source_id
"""
# What a log gave, but for its keys.
_OF_LOG = (
    "SELECT columns FROM _segment WHERE source_id = ?",
    "SELECT host, pid FROM _process WHERE source_id = ? ORDER BY process_id",
    "SELECT comm_ptr, generation, rank, nranks, bus_id, comm_hash, first_line FROM _comm_handle"
    " JOIN _process USING (process_id) WHERE source_id = ? ORDER BY handle_id",
    "SELECT kind, value, line, count FROM _fact WHERE source_id = ? ORDER BY line, kind, value",
    "SELECT name, value, origin, line FROM _setting WHERE source_id = ? ORDER BY line, name",
    "SELECT src_rank, dst_rank, transport, channels, line FROM _link WHERE source_id = ?"
    " ORDER BY line",
    "SELECT op_count, start_ns, end_ns, line FROM _kernel WHERE source_id = ? ORDER BY line",
)
_GIVEN = (
    "_fact", "_link", "_setting", "_segment", "_message_bin", "_kernel", "_kernel_total", "_trace",
    "_recording", "_process", "_diagnostic",
)  # fmt: skip


def forget_same_recordings(connection: sqlite3.Connection, run: int) -> list[Diagnostic]:
    """Keep of a run's sources with equal content only what the first one gave; say how many.

    The others stay as files that were read, with a diagnostic each. Two profiled periods have other
    times, and stay two.
    """
    found: list[str] = []
    for query, content in ((_TRACES, _traces), (_RECORDINGS, _calls), (_LOGS, _log)):
        for original, copy in _copies(connection, query, run, content):
            found.append(_forget(connection, original, copy))
    if not found:
        return []
    paths = found[0] if len(found) == 1 else f"{found[0]} and {len(found) - 1} more"
    return [Diagnostic(Severity.NOTICE, "same_recording", f"{_TEXT} ({paths})", count=len(found))]


def _copies(
    connection: sqlite3.Connection,
    query: str,
    run: int,
    content: Callable[[sqlite3.Connection, int], Hashable],
) -> Iterable[tuple[int, int]]:
    """Sources of equal content in pairs: the first one, and a later one."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for source, *shown in connection.execute(query, {"run": run}).fetchall():
        alike[tuple(shown)].append(source)
    for group in alike.values():
        if len(group) == 1:  # as nearly all are
            continue
        first: dict[Hashable, int] = {}
        for source in group:
            original = first.setdefault(content(connection, source), source)
            if original != source:
                yield original, source


def _traces(connection: sqlite3.Connection, source: int) -> Hashable:
    """The times and names of all that the GPUs executed, by the clock of the trace."""
    query = "SELECT columns FROM _trace WHERE source_id = ? ORDER BY trace_id"
    rows = connection.execute(query, (source,)).fetchall()
    return tuple(_events(decode_trace(columns, host=False)) for (columns,) in rows)


def _events(trace: TraceFile) -> Hashable:
    c = trace.columns
    times = tuple(np.ascontiguousarray(t).tobytes() for t in (c.start_ns, c.end_ns, c.kind))
    labels = tuple(_labels(t, n) for t, n in ((trace.names, c.name), (trace.streams, c.stream)))
    known = (trace.rank, trace.named_rank, trace.world_size, trace.host, trace.device, trace.steps)
    return known, times, labels


def _labels(table: tuple[str, ...], rows: np.ndarray[Any, Any]) -> tuple[bytes, tuple[str, ...]]:
    """Labels of rows, whatever their order in the table: numbers by first use, and the labels."""
    used, first, numbers = np.unique(rows, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(used), dtype=np.int64)
    place[order] = np.arange(len(used))
    return place[numbers].tobytes(), tuple(table[k] if k >= 0 else "" for k in used[order].tolist())


def _calls(connection: sqlite3.Connection, source: int) -> Hashable:
    """A recording's calls."""
    query = "SELECT calls FROM _recording WHERE source_id = ?"
    ((calls,),) = connection.execute(query, (source,)).fetchall()
    return calls if decode_recording(calls).distinct else source


def _log(connection: sqlite3.Connection, source: int) -> Hashable:
    """All that was read from a log."""
    return tuple(tuple(connection.execute(query, (source,))) for query in _OF_LOG)


def _forget(connection: sqlite3.Connection, original: int, copy: int) -> str:
    """Keep of a source that it was read; it goes to the run of the original. Returns its path."""
    for table in _GIVEN:
        connection.execute(f"DELETE FROM {table} WHERE source_id = ?", (copy,))
    query = "SELECT run_id, path FROM _source WHERE source_id = ?"
    own, path = connection.execute(query, (copy,)).fetchone()
    run, _ = connection.execute(query, (original,)).fetchone()
    connection.execute("UPDATE _source SET run_id = ? WHERE source_id = ?", (run, copy))
    connection.execute("UPDATE _run SET matched = 0 WHERE run_id IN (?, ?)", (own, run))
    note = Diagnostic(Severity.NOTICE, "same_recording", _TEXT)
    insert_diagnostics(connection, run, copy, [note])
    return str(path)
