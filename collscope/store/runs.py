"""The runs of a store: what each holds, and how one is removed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from collscope.store.connection import open_store, transaction

COLUMNS = ("run", "sources", "calls", "measurements", "matched")


def list_runs(connection: sqlite3.Connection) -> list[tuple[str, int, int, int, str]]:
    """Each run by name: its number of sources, of calls and of measurements; if it is matched.

    An unmatched run may have calls of an earlier matching.
    """
    return connection.execute(
        "SELECT run, COUNT(*),"
        " (SELECT COALESCE(SUM(calls), 0) FROM call_totals c WHERE c.run = s.run),"
        " (SELECT COUNT(*) FROM measurements m WHERE m.run = s.run),"
        " (SELECT CASE WHEN matched THEN 'yes' ELSE 'no' END FROM _run WHERE label = s.run)"
        " FROM sources s GROUP BY run ORDER BY run"
    ).fetchall()


def remove_run(store: Path, label: str) -> int:
    """Remove a run and all that stands below it, in one transaction.

    returns  how many sources it had; 0 where there is no such run
    raises   InputError when the store refuses
    """
    # They load numpy, which a list of runs does not need.
    from collscope.store.matching import clear_matching  # noqa: PLC0415
    from collscope.store.traces import clear_timeline  # noqa: PLC0415

    with closing(open_store(store)) as connection, transaction(connection, store):
        row = connection.execute("SELECT run_id FROM _run WHERE label = ?", (label,)).fetchone()
        if row is None:
            return 0
        sources = connection.execute(
            "SELECT COUNT(*) FROM _source WHERE run_id = ?", row
        ).fetchone()[0]
        clear_timeline(connection, row[0])
        clear_matching(connection, row[0])
        connection.execute("DELETE FROM _run WHERE run_id = ?", row)
    return int(sources)
