"""Traces and recordings of a run out of the store's views."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import TypeVar

from collscope.reports.beside import read_beside
from collscope.reports.late_causes import read_late_causes
from collscope.reports.timeline_records import (
    ClassTimeRow,
    ClockRow,
    DisagreementRow,
    GroupRow,
    PlaceRow,
    ProgressRow,
    RankRow,
    RankWaits,
    StepRow,
    TimelineReport,
    TracedRanks,
)

_RANKS = """
SELECT rank, calls, transfer_ns, wait_ns, unknown_ns, late_of, late_last, late_behind,
       late_typical_ns, late_total_ns, caused_wait_ns, late_share, straggler,
       span_ns, compute_ns, copy_ns, collective_ns, exposed_ns, hidden_ns, idle_ns
FROM rank_times WHERE run = ? ORDER BY rank
"""

_LOGGED = """
SELECT rank, calls, transfer_ns, wait_ns, unknown_ns, late_of, late_last, late_behind,
       late_typical_ns, late_total_ns, caused_wait_ns, late_share, straggler
FROM rank_waits WHERE run = ? AND origin = 'kernel_log' ORDER BY rank
"""

_CLOCKS = """
SELECT rank, host, clock_offset_ns, clock_error_ns, clock_component, clock_calls
FROM traces WHERE run = ? AND used ORDER BY rank
"""

_GROUPS = """
SELECT c.name, COUNT(DISTINCT c.comm_id), MAX(c.nranks), COUNT(DISTINCT k.call_id),
       SUM(k.duration_ns), SUM(k.exposed_ns),
       CASE WHEN COUNT(k.wait_ns) = COUNT(*) THEN SUM(k.wait_ns) END
FROM kernels k JOIN call_times t ON t.run = k.run AND t.call_id = k.call_id
JOIN communicators c ON c.run = t.run AND c.comm_id = t.comm_id
WHERE k.run = :run AND NOT t.warm_up GROUP BY c.name ORDER BY SUM(k.duration_ns) DESC
"""

_TRACED = "SELECT COUNT(*), MAX(world_size) FROM traces WHERE run = ? AND used"

_STEPS = """
SELECT rank, COUNT(*), AVG(duration_ns), MIN(duration_ns), MAX(duration_ns), step_from
FROM steps WHERE run = ? GROUP BY rank ORDER BY rank
"""

_CALLS = """
SELECT class_id, warm_up, COALESCE(ranks_traced < ranks_expected, 1), suspect, transfer_ns,
       start_skew_ns, end_skew_ns
FROM call_times WHERE run = ?
"""

_CLASSES = "SELECT class_id, op, size_bytes, nranks FROM classes WHERE run = ?"

_SUMS = """
SELECT t.class_id, CAST(TOTAL(k.transfer_ns) AS INTEGER), CAST(TOTAL(k.wait_ns) AS INTEGER)
FROM kernels k JOIN call_times t USING (call_id) WHERE k.run = ? AND t.run = k.run
GROUP BY t.class_id
"""

_DISAGREEMENTS = "SELECT origin, kind, message, count FROM disagreements WHERE run = ?"

_PROGRESS = """
SELECT group_name, rank, last_called, last_completed, first_missing, first_open
FROM progress WHERE run = ? ORDER BY group_name, rank
"""

_KINDS = "SELECT kind FROM rank_places WHERE run = ? GROUP BY kind HAVING COUNT(DISTINCT place) > 1"

_PLACES = """
SELECT kind, place, ranks, calls, transfer_ns, wait_ns, late_last, caused_wait_ns, busbw_gbps
FROM place_times WHERE run = ? AND transfer_ns > 0 ORDER BY kind, caused_wait_ns DESC, place
"""

_TRUTH = 12  # column of `straggler`
_Rank = TypeVar("_Rank", bound=RankWaits)
_Call = tuple[int, int, int, int | None, int | None, int | None]


def read_timeline(connection: sqlite3.Connection, run: str) -> TimelineReport:
    """What the traces and recordings of a run tell."""
    ranks = _ranks(connection, _RANKS, run, RankRow)
    steps = tuple(StepRow(*row) for row in connection.execute(_STEPS, (run,)))
    return TimelineReport(
        ranks=tuple(ranks),
        clocks=tuple(ClockRow(*row) for row in connection.execute(_CLOCKS, (run,))),
        classes=_classes(connection, run),
        disagreements=tuple(
            DisagreementRow(*row) for row in connection.execute(_DISAGREEMENTS, (run,))
        ),
        progress=tuple(ProgressRow(*row) for row in connection.execute(_PROGRESS, (run,))),
        groups=_groups(connection, run),
        causes=read_late_causes(connection, run, ranks),
        traced=_traced(connection, run),
        logged=() if ranks else tuple(_ranks(connection, _LOGGED, run, RankWaits)),
        places=_places(connection, run),
        beside=read_beside(connection, run),
        steps=steps,
        cpu_activities=bool(steps) and _cpu_activities(connection, run),
    )


def _cpu_activities(connection: sqlite3.Connection, run: str) -> bool:
    # A report without traces does not load the analysis of them.
    from collscope.store.traces import read_cpu_activities  # noqa: PLC0415

    return read_cpu_activities(connection, run)


def _ranks(
    connection: sqlite3.Connection, query: str, run: str, kind: Callable[..., _Rank]
) -> list[_Rank]:
    """Rows of a query as records; the 13th column is a truth value."""
    return [
        kind(*row[:_TRUTH], bool(row[_TRUTH]), *row[_TRUTH + 1 :])
        for row in connection.execute(query, (run,))
    ]


def _places(connection: sqlite3.Connection, run: str) -> tuple[PlaceRow, ...]:
    """Roll-ups by kind of place; none of a kind with one place, which says what the whole does."""
    kinds = {kind for (kind,) in connection.execute(_KINDS, (run,))}
    if not kinds:
        return ()
    return tuple(
        PlaceRow(kind, place, tuple(sorted(json.loads(ranks))), *rest)
        for kind, place, ranks, *rest in connection.execute(_PLACES, (run,))
        if kind in kinds
    )


def _groups(connection: sqlite3.Connection, run: str) -> tuple[GroupRow, ...]:
    rows = [GroupRow(*row) for row in connection.execute(_GROUPS, {"run": run})]
    return tuple(rows) if any(row.name for row in rows) else ()


def _traced(connection: sqlite3.Connection, run: str) -> TracedRanks | None:
    ranks, world = connection.execute(_TRACED, (run,)).fetchone()
    return TracedRanks(ranks, world) if world is not None and ranks < world else None


def _classes(connection: sqlite3.Connection, run: str) -> tuple[ClassTimeRow, ...]:
    calls: dict[int, list[_Call]] = defaultdict(list)
    for class_id, *columns in connection.execute(_CALLS, (run,)):
        calls[class_id].append(tuple(columns))
    if not calls:
        return ()
    sums = {row[0]: row[1:] for row in connection.execute(_SUMS, (run,))}
    rows = [
        _class(tuple(key), calls[key[0]], sums.get(key[0], (0, 0)))
        for key in connection.execute(_CLASSES, (run,))
        if key[0] in calls
    ]
    return tuple(sorted(rows, key=lambda row: -(row.transfer_ns + row.wait_ns)))


def _class(
    key: tuple[int, str, int | None, int | None],
    calls: list[_Call],
    sums: tuple[int | None, int | None],
) -> ClassTimeRow:
    counted = [call for call in calls if not call[0]]
    transfers = [call[3] for call in counted if call[3] is not None]
    return ClassTimeRow(
        *key,
        calls=len(counted),
        incomplete=sum(call[1] for call in counted),
        warm_up=len(calls) - len(counted),
        suspect=sum(call[2] for call in counted),
        transfer_ns_median=_median(transfers),
        transfer_ns_min=min(transfers, default=None),
        transfer_ns_max=max(transfers, default=None),
        start_skew_ns_median=_median([call[4] for call in counted if call[4] is not None]),
        end_skew_ns_median=_median([call[5] for call in counted if call[5] is not None]),
        transfer_ns=sums[0] or 0,
        wait_ns=sums[1] or 0,
    )


def _median(values: list[int]) -> float | None:
    return float(median(values)) if values else None
