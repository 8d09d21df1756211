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


def has_sources(connection: sqlite3.Connection, label: str) -> bool:
    """Whether the store holds anything of a run."""
    query = "SELECT 1 FROM sources WHERE run = ? LIMIT 1"
    return connection.execute(query, (label,)).fetchone() is not None


def remove_run(store: Path, label: str) -> int:
    """Remove a run and all that stands below it, in one transaction.

    returns  how many sources it had; 0 where there is no such run
    raises   InputError when the store refuses
    """
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


def clear_timeline(connection: sqlite3.Connection, run: int) -> None:
    """Forget what the analysis of a run's traces found; its calls are cleared elsewhere."""
    traces = "(SELECT trace_id FROM _trace JOIN _source USING (source_id) WHERE run_id = ?)"
    for table in ("_trace_rank", "_trace_stream", "_trace_step"):
        connection.execute(f"DELETE FROM {table} WHERE trace_id IN {traces}", (run,))
    for table in ("_analysis", "_progress", "_disagreement"):
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run,))


def clear_matching(connection: sqlite3.Connection, run: int) -> None:
    """Forget what was matched before; children first, since cascades go row by row."""
    comms = "(SELECT comm_id FROM _comm WHERE run_id = :run)"
    calls = f"(SELECT call_id FROM _call WHERE comm_id IN {comms})"
    # By their own rows, which are few: a run of traces has kernels by the million.
    of_run = (
        "EXISTS (SELECT 1 FROM _kernel k JOIN _source USING (source_id)"
        " WHERE k.kernel_id = {0}.kernel_id AND run_id = :run)"
    )
    for table, which in (("_rank_wait", "TRUE"), ("_kernel_call", "call_id IS NULL")):
        query = f"DELETE FROM {table} WHERE {which} AND {of_run.format(table)}"
        connection.execute(query, {"run": run})
    recorded = "(SELECT source_id FROM _recording JOIN _source USING (source_id) WHERE run_id = ?)"
    connection.execute(f"DELETE FROM _kernel WHERE source_id IN {recorded}", (run,))
    if connection.execute(f"SELECT EXISTS {comms}".replace(":run", "?"), (run,)).fetchone()[0]:
        for table in ("_deviation", "_transfer", "_kernel_call", "_call_time"):
            connection.execute(f"DELETE FROM {table} WHERE call_id IN {calls}", {"run": run})
        connection.execute(f"DELETE FROM _call_row WHERE call_id IN {calls}", {"run": run})
        for table in ("_call_total", "_member"):
            connection.execute(f"DELETE FROM {table} WHERE comm_id IN {comms}", {"run": run})
        connection.execute("DELETE FROM _comm WHERE run_id = ?", (run,))
    connection.execute("DELETE FROM _class WHERE run_id = ?", (run,))
    connection.execute("DELETE FROM _diagnostic WHERE run_id = ? AND source_id IS NULL", (run,))


def sizes_by_logs(connection: sqlite3.Connection, run: str) -> bool:
    """Whether logs hold the sizes of all the run's calls, even where its traces lack them."""
    return bool(connection.execute(_SIZES_BY_LOGS, {"run": run}).fetchone()[0])


_SIZES_BY_LOGS = """
SELECT EXISTS (SELECT 1 FROM sources WHERE run = :run AND kind = 'log')
   AND NOT EXISTS (SELECT 1 FROM classes WHERE run = :run AND calls > 0 AND size_bytes IS NULL)
"""
