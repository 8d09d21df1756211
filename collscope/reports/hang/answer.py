"""The verdict of a stored run's dumps, by the function that `collscope hang` uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from collscope.hang.records import Verdict

_HAS_DUMPS = """
SELECT 1 FROM sources WHERE run = ? AND dialect IN ('flight_recorder', 'flight_pickle') LIMIT 1
"""


def read_hang(connection: sqlite3.Connection, run: str) -> Verdict | None:
    """Who holds up the run; None without dumps, and where these do not show that it hangs."""
    if connection.execute(_HAS_DUMPS, (run,)).fetchone() is None:
        return None
    from collscope.hang.dumps import recorded_evidence  # noqa: PLC0415 - most runs have no dumps
    from collscope.hang.judge import judge  # noqa: PLC0415
    from collscope.ingest.stored_dumps import read_dumps  # noqa: PLC0415

    evidence = recorded_evidence(read_dumps(connection, run))
    if evidence is None:
        return None
    verdict = judge([evidence])
    # Dumps of a job that runs have open calls, too.
    return verdict if verdict.decided or evidence.timed_out else None
