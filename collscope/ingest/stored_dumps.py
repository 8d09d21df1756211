"""The flight recorder's dumps of a run, as they were read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.model import Diagnostic, Severity
from collscope.store.trace_columns import decode_recording

if TYPE_CHECKING:
    import sqlite3

    from collscope.model.trace import RecordedCalls

_DUMPS = """
SELECT s.path, c.calls, (
    SELECT d.code FROM _diagnostic d
    WHERE d.source_id = s.source_id AND d.severity IN ('data_loss', 'error')
)
FROM _recording c JOIN _source s USING (source_id) JOIN _run r USING (run_id)
WHERE r.label = ? AND s.dialect IN ('flight_recorder', 'flight_pickle')
ORDER BY c.recording_id
"""


def read_dumps(connection: sqlite3.Connection, run: str) -> list[tuple[str, RecordedCalls]]:
    """Path and calls of each dump; one that was damaged has a diagnostic."""
    dumps = []
    for path, encoded, lost in connection.execute(_DUMPS, (run,)):
        calls = decode_recording(encoded)
        if lost is not None:
            found = Diagnostic(Severity.DATA_LOSS, lost, "Found when the dump was read.")
            calls = replace(calls, diagnostics=(found,))
        dumps.append((path, calls))
    return dumps
