"""What the traces and recordings of a run show, from the store's views."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from statistics import median
from typing import Annotated, TypeVar

import msgspec

from collscope.ingest.periods import Period, read_periods
from collscope.reports.waiting.drift import DriftRow, read_drift
from collscope.reports.waiting.hidden_cost import BesideRow, read_beside
from collscope.reports.waiting.late_causes import LateCause, read_late_causes
from collscope.reports.waiting.ranks import (
    RankRow,
    RankWaits,
    read_logged_by,
    read_logged_ranks,
    read_ranks,
)
from collscope.reports.waiting.withheld import Withheld, read_withheld
from collscope.store.trace_header import read_cpu_activities

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

_WORLD_UNKNOWN = """
SELECT MAX(used) AND MAX(world_size) IS NULL
AND EXISTS (SELECT 1 FROM communicators WHERE run = :run AND matched_by = 'inferred')
FROM traces WHERE run = :run AND used
"""

_CUT = """
SELECT DISTINCT t.rank FROM traces t
JOIN sources s ON s.run = t.run AND s.source_id = t.source_id
JOIN diagnostics d ON d.run = s.run AND d.path = s.path
WHERE t.run = ? AND t.used AND d.severity = 'data_loss'
AND d.code IN ('truncated_trace', 'truncated_compression', 'cut_database') ORDER BY t.rank
"""

_WARM_UP = """
SELECT COUNT(DISTINCT k.call_id), MAX(k.duration_ns) FROM kernels k
JOIN call_times t ON t.run = k.run AND t.call_id = k.call_id WHERE k.run = ? AND t.warm_up
"""

_LOST = """
SELECT TOTAL(count) FROM diagnostics WHERE run = ? AND code = 'kernels_lost'
"""

_QUEUED = """
SELECT MIN(message) FROM diagnostics WHERE run = ? AND code = 'idle_while_queued'
"""

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

_Kind = TypeVar("_Kind", bound="TimelineReport")
_Call = tuple[int, int, int, int | None, int | None, int | None]


class ClockRow(msgspec.Struct, frozen=True):
    """The clock of one rank's trace against the first comparable one; removed from all times."""

    rank: int
    host: str | None
    offset_ns: int
    error_ns: float
    component: int  # clocks of different ones cannot be compared
    calls: int  # behind the estimate


class ClassTimeRow(msgspec.Struct, frozen=True):
    """Calls of one class in the job, warm-up left out. Medians are over calls."""

    class_id: int
    op: str
    size_bytes: int | None
    nranks: int | None
    calls: int
    incomplete: int  # calls that lack a rank, traced or not: their transfer is not known
    warm_up: int  # calls left out
    suspect: int  # calls whose two estimates of the transfer disagree
    transfer_ns_median: float | None
    transfer_ns_min: int | None
    transfer_ns_max: int | None
    start_skew_ns_median: float | None
    end_skew_ns_median: float | None
    transfer_ns: int  # sums over calls and ranks
    wait_ns: int


class DisagreementRow(msgspec.Struct, frozen=True):
    """What ranks disagree on, by their recordings or traces."""

    origin: Annotated[str, ("recording", "trace")]  # its source: recordings of calls, or traces
    # stopped, missing, different, open, unmatched, different_size
    kind: Annotated[str, ("stopped", "missing", "different", "open", "unmatched", "different_size")]
    message: str  # one sentence
    count: int  # places


class ProgressRow(msgspec.Struct, frozen=True):
    """How far one rank got in one group."""

    group_name: str  # process group or communicator as recorded
    rank: int  # world rank where the group's ranks are known, else rank in the group
    last_called: int | None  # last collective called
    last_completed: int | None  # last known to be completed
    first_missing: int | None  # first that another rank called and this one did not
    first_open: int | None  # first called and not completed


class GroupRow(msgspec.Struct, frozen=True):
    """Process groups of one name, warm-up left out. Times are sums over calls and ranks."""

    name: str | None  # what the program calls it; None: groups without a name
    communicators: int
    nranks: int | None  # of the largest
    calls: int
    kernel_ns: int
    exposed_ns: int
    wait_ns: int | None  # None where some of it is not known


class TracedRanks(msgspec.Struct, frozen=True):
    """Ranks with a trace, and how many the job has."""

    ranks: int
    world: int


class PlaceRow(msgspec.Struct, frozen=True):
    """Ranks of one GPU, node or NIC together. Times are sums over their calls."""

    kind: Annotated[str, ("GPU", "node", "NIC")]
    place: str
    ranks: tuple[int, ...]  # a rank may use several NICs
    calls: int
    transfer_ns: int
    wait_ns: int
    late_last: int  # calls that one of them arrived last at
    caused_wait_ns: int  # of other ranks
    busbw_gbps: float | None  # mean of their calls, weighted by time; None: sizes not known


class StepRow(msgspec.Struct, frozen=True):
    """Steps of one rank, with the profiler."""

    rank: int
    steps: int
    mean_ns: float
    min_ns: int
    max_ns: int
    # as in the view `steps`
    step_from: Annotated[str, ("marks", "graphs", "kernels", "period", "given")]


class TimelineReport(msgspec.Struct, frozen=True):
    """Everything from traces and recordings; empty where the run has none."""

    ranks: tuple[RankRow, ...]
    clocks: tuple[ClockRow, ...]
    classes: tuple[ClassTimeRow, ...]  # most time first
    disagreements: tuple[DisagreementRow, ...]
    progress: tuple[ProgressRow, ...]
    groups: tuple[GroupRow, ...] = ()  # most kernel time first; empty where no group has a name
    causes: tuple[LateCause, ...] = ()  # one for each straggler
    traced: TracedRanks | None = None  # None: all ranks, or their number is not known
    # their number is not known: a rank without a trace may be the last
    world_unknown: bool = msgspec.field(name="untold_world", default=False)
    logged: tuple[RankWaits, ...] = ()  # by `logged_by`, where there is no trace
    # the kernel trace of RCCL's logs, or GPU times of a recorder; None: neither
    logged_by: Annotated[str | None, ("kernel_log", "recording", None)] = None
    drift: tuple[DriftRow, ...] = ()  # recorded classes over the run; most transfer time first
    places: tuple[PlaceRow, ...] = ()  # kinds with several places, most costing first
    beside: tuple[BesideRow, ...] = ()  # most hidden time first; needs interference measurements
    steps: tuple[StepRow, ...] = ()  # one per rank; empty where no step recurs
    cpu_activities: bool = False  # the traces of the steps show them: a slower host
    profilers: tuple[str, ...] = ()  # dialects of the traces, where there are steps
    cut: tuple[int, ...] = ()  # ranks whose trace lacks its end
    warm_up_calls: int = 0  # left out of all sums
    warm_up_longest_ns: int = 0  # of their kernels
    kernels_lost: int = 0  # launched in the traces, which do not hold them
    queued: str | None = None  # why idle time is doubtful: work was launched and did not run
    # Contradictions in the traces for which times or steps are not known; the most frequent first.
    withheld: tuple[Withheld, ...] = ()
    # profiled periods or jobs that were read together, this run's among them; empty: only this one
    periods: tuple[Period, ...] = ()

    @classmethod
    def read(cls: type[_Kind], connection: sqlite3.Connection, run: str) -> _Kind:
        """What the traces and recordings of a run show."""
        ranks = read_ranks(connection, run)
        steps = tuple(StepRow(*row) for row in connection.execute(_STEPS, (run,)))
        warm_up, longest = connection.execute(_WARM_UP, (run,)).fetchone() if ranks else (0, 0)
        return cls(
            ranks=ranks,
            clocks=tuple(ClockRow(*row) for row in connection.execute(_CLOCKS, (run,))),
            classes=_classes(connection, run),
            disagreements=tuple(
                DisagreementRow(*row) for row in connection.execute(_DISAGREEMENTS, (run,))
            ),
            progress=tuple(ProgressRow(*row) for row in connection.execute(_PROGRESS, (run,))),
            groups=_groups(connection, run),
            causes=read_late_causes(connection, run, ranks),
            traced=_traced(connection, run),
            world_unknown=bool(connection.execute(_WORLD_UNKNOWN, {"run": run}).fetchone()[0]),
            logged=() if ranks else read_logged_ranks(connection, run),
            logged_by=None if ranks else read_logged_by(connection, run),
            drift=read_drift(connection, run),
            places=_places(connection, run),
            beside=read_beside(connection, run),
            steps=steps,
            cpu_activities=bool(steps) and read_cpu_activities(connection, run),
            profilers=_profilers(connection, run) if steps else (),
            warm_up_calls=warm_up,
            warm_up_longest_ns=longest or 0,
            kernels_lost=int(connection.execute(_LOST, (run,)).fetchone()[0]),
            queued=connection.execute(_QUEUED, (run,)).fetchone()[0],
            withheld=read_withheld(connection, run),
            cut=tuple(rank for (rank,) in connection.execute(_CUT, (run,))),
            periods=read_periods(connection, run),
        )


def _profilers(connection: sqlite3.Connection, run: str) -> tuple[str, ...]:
    query = (
        "SELECT DISTINCT dialect FROM traces JOIN sources USING (run, source_id)"
        " WHERE run = ? ORDER BY 1"
    )
    return tuple(dialect for (dialect,) in connection.execute(query, (run,)))


def _places(connection: sqlite3.Connection, run: str) -> tuple[PlaceRow, ...]:
    """Sums by kind of place; a kind with one place is left out, as it equals the whole run."""
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
