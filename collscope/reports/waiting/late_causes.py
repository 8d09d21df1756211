"""Why a rank comes late: what it does more of than the others before it comes."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec
from msgspec.structs import replace

from collscope.reports.tolerances import MIN_CAUSE_SHARE, MIN_CAUSE_TO_NEXT, MIN_LAUNCHED_ROWS
from collscope.reports.waiting.ranks import RankRow

# Of the last `span` ns of a rank: when they begin, how many rows there are and how many have their
# launch; how long the GPU idles before them, and how long of that they were not launched yet.
_IDLE = """
WITH own AS (
    SELECT start_ns, end_ns, COALESCE(launch_ns, -1) AS launch_ns FROM kernels
    WHERE run = :run AND rank = :rank AND end_ns IS NOT NULL
          AND source_id IN (SELECT source_id FROM traces WHERE run = :run)
),
begins AS (SELECT MAX(end_ns) - :span AS begin_ns FROM own),
follows AS (
    SELECT start_ns, launch_ns, begin_ns, MAX(end_ns) OVER
           (ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM own, begins WHERE start_ns >= begin_ns
)
SELECT MAX(begin_ns), COUNT(*), TOTAL(launch_ns >= 0), TOTAL(MAX(start_ns - before_ns, 0)),
       TOTAL(MIN(MAX(launch_ns - before_ns, 0), MAX(start_ns - before_ns, 0)))
FROM follows
"""

_COMPUTE = """
SELECT name, COUNT(*), SUM(duration_ns) FROM kernels
WHERE run = ? AND rank = ? AND kind = 'kernel' AND family IS NULL AND call_id IS NULL
      AND end_ns IS NOT NULL AND start_ns >= ? GROUP BY name
"""

_Kernels = Mapping[str, tuple[int, int]]  # calls and ns by name


class LateCause(msgspec.Struct, frozen=True):
    """Why a straggler is late: what it has more of than the others. Times are sums, in ns."""

    rank: int
    cause: str  # host, idle, more, slower, inherited, unknown
    idle_host_ns: int | None  # its GPU idles, and the next work is not launched; None: not known
    more_compute_ns: int  # of compute kernels that the others lack; below 0: it has fewer
    slower_compute_ns: int  # of the same kernels that last longer; below 0: shorter
    inherited_ns: int  # of its lateness: it waits itself, for ranks late in other groups
    first_rank: int | None  # the first cause of most of this; None where it is little
    # ranks that wait for this one, and so arrive late at calls of other ranks
    inheriting_ranks: tuple[int, ...] = msgspec.field(name="heirs", default=())


class _Rank(msgspec.Struct, frozen=True):
    """What one rank's GPU did per collective call; times in ns."""

    idle_host: float | None  # idle, and what ran next was not launched yet; None: not known
    idle: float
    kernels: _Kernels
    calls: int


def read_late_causes(
    connection: sqlite3.Connection, run: str, ranks: Sequence[RankRow]
) -> tuple[LateCause, ...]:
    """Cause of each straggler's lateness; the traces' rows are read only where there is one."""
    late = [rank for rank in ranks if rank.straggler]
    if not late:
        return ()
    found = {row.rank: _read(connection, run, row) for row in ranks if row.calls}
    inheriting_ranks: dict[int, list[int]] = {}
    for rank in ranks:
        first = rank.late_first_rank
        if first is None or rank.straggler:
            continue
        if rank.late_inherited_ns >= MIN_CAUSE_SHARE * rank.late_total_ns:
            inheriting_ranks.setdefault(first, []).append(rank.rank)
    return tuple(
        replace(_cause(rank, found), inheriting_ranks=tuple(inheriting_ranks.get(rank.rank, ())))
        for rank in late
    )


def _read(connection: sqlite3.Connection, run: str, row: RankRow) -> _Rank:
    parameters = {"run": run, "rank": row.rank, "span": row.span_ns}
    begin, rows, launched, idle, unlaunched = connection.execute(_IDLE, parameters).fetchone()
    if not rows:  # a trace without its rank
        return _Rank(None, float(row.idle_ns), {}, row.calls)
    compute = connection.execute(_COMPUTE, (run, row.rank, begin))
    return _Rank(
        unlaunched if launched / rows >= MIN_LAUNCHED_ROWS else None,
        idle,
        {name: (calls, ns) for name, calls, ns in compute},
        row.calls,
    )


def _cause(late: RankRow, found: Mapping[int, _Rank]) -> LateCause:
    own = found[late.rank]
    others = [rank for number, rank in found.items() if number != late.rank]
    host = None
    if own.idle_host is not None:
        known = [o.idle_host * own.calls / o.calls for o in others if o.idle_host is not None]
        host = own.idle_host - median(known) if known else None
    idle = own.idle - median(o.idle * own.calls / o.calls for o in others)
    more, slower = _compute(own, others)
    parts = {
        "host" if host is not None else "idle": idle if host is None else host,
        "more": more,
        "slower": slower,
        "inherited": late.late_inherited_ns,
    }
    best, second = sorted(parts, key=lambda name: -parts[name])[:2]
    clear = (
        parts[best] >= MIN_CAUSE_SHARE * late.late_total_ns
        and parts[best] >= MIN_CAUSE_TO_NEXT * parts[second]
    )
    return LateCause(
        rank=late.rank,
        cause=best if clear else "unknown",
        idle_host_ns=None if own.idle_host is None else round(own.idle_host),
        more_compute_ns=round(more),
        slower_compute_ns=round(slower),
        inherited_ns=late.late_inherited_ns,
        first_rank=late.late_first_rank,
    )


def _compute(own: _Rank, others: Sequence[_Rank]) -> tuple[float, float]:
    """Compute time beyond that of other ranks: of extra kernels, and of slower equal ones."""
    more = slower = 0.0
    for name in {name for rank in (own, *others) for name in rank.kernels}:
        launches, ns = own.kernels.get(name, (0, 0))
        theirs = [rank.kernels.get(name, (0, 0)) for rank in others]
        lasts = [t / n for n, t in theirs if n]
        typical = median(lasts) if lasts else ns / launches
        usual = median(
            n * own.calls / rank.calls for (n, _), rank in zip(theirs, others, strict=True)
        )
        more += (launches - usual) * typical
        slower += ns - launches * typical
    return more, slower
