"""Traces of several profiled periods or jobs in one run, put into runs of their own."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path, PurePath

from collscope.match.periods import Recording, assign_periods
from collscope.store.connection import transaction

_TWICE = """
SELECT EXISTS (
    SELECT 1 FROM _trace t JOIN _source USING (source_id)
    WHERE run_id = :run GROUP BY t.rank HAVING t.rank IS NOT NULL AND COUNT(*) > 1
)
"""
# A trace's kernels are in the order of their start.
_TRACES = """
SELECT t.source_id, s.run_id, s.path, t.rank, t.world_size, COALESCE(k.start_ns, 0)
FROM _trace t JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _kernel k ON k.kernel_id = t.first_kernel AND k.source_id = t.source_id
WHERE r.run_id = :run OR r.period_of = :run ORDER BY t.trace_id
"""


def separate_periods(connection: sqlite3.Connection, store: Path, run: int) -> list[str]:
    """Give every period or job beside a run's first a run of its own, as NAME.2.

    A file stays where it is when its traces are of several.

    returns  the labels of those runs, be they new or not; none while no rank is traced twice
    """
    if connection.execute(_TWICE, {"run": run}).fetchone()[0]:
        with transaction(connection, store):
            _separate(connection, run)
    rows = connection.execute(
        "SELECT DISTINCT label, run_id FROM _run JOIN _source USING (run_id)"
        " WHERE period_of = ? ORDER BY run_id",
        (run,),
    )
    return [label for label, _ in rows]


def _separate(connection: sqlite3.Connection, run: int) -> None:
    rows = connection.execute(_TRACES, {"run": run}).fetchall()
    periods = assign_periods(
        [
            Recording(rank, size, start, str(PurePath(path).parent))
            for _, _, path, rank, size, start in rows
        ]
    )
    of_source: dict[int, set[int]] = defaultdict(set)
    runs: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    at: dict[int, int] = {}
    for (source, own, *_), period in zip(rows, periods, strict=True):
        of_source[source].add(period)
        runs[period][own] += 1
        at[source] = own
    # A period stays where most of it is already; the first one that was read is the run's own.
    target: dict[int, int] = {0: run}
    for period in range(1, len(runs)):
        free = {r: n for r, n in runs[period].items() if r not in target.values()}
        target[period] = max(free, key=lambda r: free[r]) if free else _new_run(connection, run)
    for source, found in of_source.items():
        wanted = target[min(found)] if len(found) == 1 else at[source]
        if wanted != at[source]:
            for table in ("_source", "_diagnostic"):
                connection.execute(
                    f"UPDATE {table} SET run_id = ? WHERE source_id = ?", (wanted, source)
                )
            connection.execute(
                "UPDATE _run SET matched = 0 WHERE run_id IN (?, ?)", (wanted, at[source])
            )


def _new_run(connection: sqlite3.Connection, run: int) -> int:
    """A run with the next free name behind that of `run`."""
    (label,) = connection.execute("SELECT label FROM _run WHERE run_id = ?", (run,)).fetchone()
    taken = {name for (name,) in connection.execute("SELECT label FROM _run")}
    number = next(n for n in range(2, len(taken) + 3) if f"{label}.{n}" not in taken)
    return int(
        connection.execute(
            "INSERT INTO _run (label, period_of, steps)"
            " SELECT ?, run_id, steps FROM _run WHERE run_id = ? RETURNING run_id",
            (f"{label}.{number}", run),
        ).fetchone()[0]
    )
