"""Evidence from the flight recorder's dumps that a store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.errors import InputError
from collscope.hang.dumps import dump_evidence, dump_of
from collscope.model import Diagnostic, Severity
from collscope.store.trace_columns import decode_recording

if TYPE_CHECKING:
    import sqlite3

    from collscope.hang.records import Evidence

_DUMPS = """
SELECT s.path, c.calls, (
    SELECT d.code FROM _diagnostic d
    WHERE d.source_id = s.source_id AND d.severity IN ('data_loss', 'error')
)
FROM _recording c JOIN _source s USING (source_id) JOIN _run r USING (run_id)
WHERE r.label = ? AND s.dialect IN ('flight_recorder', 'flight_pickle')
ORDER BY c.recording_id
"""


def evidence_of_run(connection: sqlite3.Connection, run: str) -> tuple[Evidence, ...]:
    """What the dumps of a run say. Of its other sources the store keeps no order of all calls.

    raises  InputError when it has none
    """
    dumps = []
    for path, encoded, lost in connection.execute(_DUMPS, (run,)):
        calls = decode_recording(encoded)
        if lost is not None:
            found = Diagnostic(Severity.DATA_LOSS, lost, "Found when the dump was read.")
            calls = replace(calls, diagnostics=(found,))
        dumps.append(dump_of(path, calls))
    evidence = dump_evidence(filter(None, dumps), ())
    if evidence is None:
        raise InputError(
            f"run '{run}': it has no dumps of the flight recorder. Name the files:"
            " collscope hang dumps/ logs/ stderr/"
        )
    return (evidence,)
