"""Recordings of a run, as they were stored."""

from __future__ import annotations

import sqlite3

from collscope.model.trace import RecordedCalls
from collscope.store.trace_columns import decode_recording

_RECORDINGS = """
SELECT c.calls FROM _recording c JOIN _source s USING (source_id) JOIN _run r USING (run_id)
WHERE r.label = ? AND s.dialect = ? ORDER BY c.recording_id
"""


def recordings_of(connection: sqlite3.Connection, run: str, dialect: str) -> list[RecordedCalls]:
    """Recordings of a dialect, in the order in which they were read.

    raises  InputError when the bytes of one are damaged
    """
    rows = connection.execute(_RECORDINGS, (run, dialect))
    return [decode_recording(calls) for (calls,) in rows]
