"""Traces of several profiled periods, starts or jobs in one run, put into runs of their own."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import msgspec

from collscope.match.periods import Recording, assign_periods
from collscope.model.profile import other_profilers
from collscope.store.connection import transaction
from collscope.store.trace_header import read_cpu_activities
from collscope.units import count

_TWICE = """
SELECT EXISTS (
    SELECT 1 FROM _trace t JOIN _source USING (source_id)
    WHERE run_id = :run GROUP BY t.rank HAVING t.rank IS NOT NULL AND COUNT(*) > 1
)
"""
# A trace's kernels are in the order of their start.
_TRACES = """
SELECT t.source_id, s.run_id, s.path, t.rank, t.world_size, t.trace_id,
       COALESCE(k.start_ns, 0), COALESCE(e.end_ns, 0)
FROM _trace t JOIN _source s USING (source_id) JOIN _run r USING (run_id)
LEFT JOIN _kernel k ON k.kernel_id = t.first_kernel AND k.source_id = t.source_id
LEFT JOIN _kernel e ON e.kernel_id = t.first_kernel + t.kernels - 1 AND e.source_id = t.source_id
WHERE r.run_id = :run OR r.period_of = :run ORDER BY t.trace_id
"""


_FAMILY = """
SELECT label FROM _run
WHERE COALESCE(period_of, run_id) = (SELECT COALESCE(period_of, run_id) FROM _run WHERE label = ?)
AND run_id IN (SELECT s.run_id FROM _trace JOIN _source s USING (source_id)) ORDER BY run_id
"""
_HELD = """
SELECT MIN(path), COUNT(DISTINCT source_id), COUNT(DISTINCT rank),
       COALESCE(GROUP_CONCAT(DISTINCT dialect), '')
FROM traces JOIN sources USING (run, source_id) WHERE run = ?
"""
_STEPS = """
SELECT COUNT(*), AVG(duration_ns) FROM steps WHERE run = ? GROUP BY rank ORDER BY 2 DESC LIMIT 1
"""


class Period(msgspec.Struct, frozen=True):
    """What the traces of one profiled period or job hold."""

    run: str  # its label
    path: str  # of the first of its files, by name
    files: int
    ranks: int  # with a trace
    dialects: tuple[str, ...]  # of the traces
    cpu_activities: bool  # the traces show them
    steps: int  # of the rank whose steps take longest; 0: none recur
    step_ns: float | None  # their mean, with the profiler; None: none recur

    @property
    def words(self) -> str:
        """What distinguishes it: file, ranks, activities, steps."""
        named = other_profilers(self.dialects)
        shown = "CPU and GPU activities" if self.cpu_activities else "GPU activities"
        step = "no step that recurs"
        if self.step_ns is not None:
            step = f"{count(self.steps, 'step')} of {self.step_ns / 1e6:.2f} ms"
        more = f" and {self.files - 1} more" if self.files > 1 else ""
        ranks = count(self.ranks, "rank")
        return ", ".join([f"{self.path}{more}", ranks, " and ".join(named) or shown, step])


def read_periods(connection: sqlite3.Connection, run: str) -> tuple[Period, ...]:
    """The periods or jobs that were read together with a run, itself among them.

    returns  the first one that was read first; none where the run has no relatives
    """
    labels = [label for (label,) in connection.execute(_FAMILY, (run,))]
    return tuple(_period(connection, label) for label in labels) if len(labels) > 1 else ()


def _period(connection: sqlite3.Connection, run: str) -> Period:
    path, files, ranks, dialects = connection.execute(_HELD, (run,)).fetchone()
    steps, step_ns = connection.execute(_STEPS, (run,)).fetchone() or (0, None)
    names = tuple(sorted(dialects.split(",")))
    shown = read_cpu_activities(connection, run)
    return Period(run, path, files, ranks, names, shown, steps, step_ns)


def separate_periods(connection: sqlite3.Connection, store: Path, run: int) -> list[str]:
    """Give every period, start or job after a run's first a run of its own, as NAME.2.

    A file stays where it is when its traces are of several.

    returns  the labels of those runs, new or not; none while all traces are of one
    """
    starts = _starts(connection, run)
    if starts or connection.execute(_TWICE, {"run": run}).fetchone()[0]:
        with transaction(connection, store):
            _separate(connection, run, starts)
    rows = connection.execute(
        "SELECT DISTINCT label, run_id FROM _run JOIN _source USING (run_id)"
        " WHERE period_of = ? ORDER BY run_id",
        (run,),
    )
    return [label for label, _ in rows]


def _starts(connection: sqlite3.Connection, run: int) -> dict[int, int]:
    """The start of the job of each trace, by its key; empty where all are of one.

    Few runs have a period whose traces lie far from each other; the others need not be read for it.
    """
    rows = connection.execute(_TRACES, {"run": run}).fetchall()
    if not rows:
        return {}
    # Imported here: a run of logs needs none of it, nor does a report of periods.
    from collscope.ingest.stored_traces import load_traces  # noqa: PLC0415
    from collscope.match.job_starts import find_job_starts, separate_windows  # noqa: PLC0415

    windows: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for k, period in enumerate(_assign(rows, {})):
        windows[period][k] = rows[k][6:8]
    if all(len(separate_windows(own)) < 2 for own in windows.values()):
        return {}
    given = [
        load_traces(connection, own, host=False) for own in dict.fromkeys(row[1] for row in rows)
    ]
    keys = [key for part in given for key in part.trace_ids]
    found = find_job_starts([trace for part in given for trace in part.traces]).start
    return dict(zip(keys, found, strict=True)) if any(found) else {}


def _assign(rows: Sequence[tuple[Any, ...]], starts: Mapping[int, int]) -> list[int]:
    """Period of each of the `_TRACES`, with its start where there are several."""
    return assign_periods(
        [
            Recording(rank, size, first, str(PurePath(path).parent), starts.get(key, 0), last)
            for _, _, path, rank, size, key, first, last in rows
        ]
    )


def _separate(connection: sqlite3.Connection, run: int, starts: Mapping[int, int]) -> None:
    rows = connection.execute(_TRACES, {"run": run}).fetchall()
    periods = _assign(rows, starts)
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
