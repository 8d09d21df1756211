"""Logs that were read, grew, and were read again: the later reading holds the earlier one."""

from __future__ import annotations

import sqlite3

from collscope.ingest.observation_blob import decode
from collscope.ingest.paths import STDIN
from collscope.ingest.stored_calls import load_handles
from collscope.match.copies import LogRows, extends
from collscope.store.sources import remove_source

# Of each path of a run: its logs, the earlier before the later.
_SAME_PATH = """
WITH log AS MATERIALIZED (
    SELECT source_id, path FROM _source JOIN _segment USING (source_id)
    WHERE run_id = ? AND path <> ?
),
again AS (SELECT path FROM log GROUP BY path HAVING COUNT(*) > 1)
SELECT a.source_id, b.source_id FROM again JOIN log a USING (path) JOIN log b USING (path)
WHERE a.source_id < b.source_id ORDER BY 1, 2
"""
_RECORDS = """
SELECT 'fact', line, kind, value FROM _fact WHERE source_id = :source
UNION ALL SELECT 'setting', line, name, value FROM _setting WHERE source_id = :source
UNION ALL SELECT 'link', line, transport, excerpt FROM _link WHERE source_id = :source
"""


def forget_grown(connection: sqlite3.Connection, run: int) -> int:
    """Remove the earlier readings of logs that were read again after they grew; returns how many.

    A file of the same path whose first lines are others, as of another job, leaves both.
    """
    gone: set[int] = set()
    for earlier, later in connection.execute(_SAME_PATH, (run, STDIN)).fetchall():
        if earlier not in gone and extends(_read(connection, later), _read(connection, earlier)):
            remove_source(connection, earlier)
            gone.add(earlier)
    return len(gone)


def _read(connection: sqlite3.Connection, source: int) -> LogRows:
    """What a log gave."""
    lines, blob = connection.execute(
        "SELECT lines, columns FROM _source JOIN _segment USING (source_id) WHERE source_id = ?",
        (source,),
    ).fetchone()
    rows = connection.execute(
        "SELECT process_id, COALESCE(host, ''), pid FROM _process WHERE source_id = ?"
        " ORDER BY process_id",
        (source,),
    ).fetchall()
    number = {row[0]: i for i, row in enumerate(rows)}
    _, handles = load_handles(connection, source, number)
    return LogRows(
        lines or 0,
        tuple((host, pid) for _, host, pid in rows),
        decode(blob, handles),
        frozenset(connection.execute(_RECORDS, {"source": source})),
    )
