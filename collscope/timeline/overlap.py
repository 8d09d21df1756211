"""Collective time that compute hides and that it does not, by interval arithmetic (pure).

All in one sweep over the sorted bounds of intervals: linear after the sort.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints, Kind
from collscope.timeline.records import RankOverlap, StreamOverlap
from collscope.timeline.waits import CallTimes, warm_up_lengths, warmed_up

_N = TypeVar("_N", Ints, npt.NDArray[np.float64])


def union(start: _N, end: _N) -> tuple[_N, _N]:
    """Disjoint intervals, rising, that cover what the given ones cover; `start` must rise.

    >>> union(np.array([0, 2, 9]), np.array([3, 5, 10]))
    (array([0, 9]), array([ 5, 10]))
    """
    if not len(start):
        return start, end
    reach = np.maximum.accumulate(end)
    opens = np.concatenate([[True], start[1:] > reach[:-1]])
    closes = np.append(opens[1:], True)
    return start[opens], reach[closes]


def covered(start: _N, end: _N, times: _N) -> _N:
    """Measure of the disjoint intervals before each of `times`."""
    if not len(start):
        return np.zeros_like(times)
    before = np.concatenate([[0], np.cumsum(end - start)])
    k = np.searchsorted(start, times, side="right")
    result: _N = before[k] + np.clip(times - end[k - 1], None, 0) * (k > 0)
    return result


def rank_overlaps(
    rows: Rows, calls: Calls, times: CallTimes, pauses: Ints
) -> tuple[list[RankOverlap], Ints]:
    """Overlap of each rank, and the exposed time of every row (0 for rows of no collective).

    Rows that start before the rank's last warm-up call has ended are left out, and pauses.

    pauses  as in `Steps`
    """
    exposed = np.zeros(len(rows), dtype=np.int64)
    begin = warm_until(rows, calls, times)
    found = []
    for t in range(len(rows.ranks)):
        trace_rows = rows.of(t)
        start = rows.start[trace_rows]
        first = trace_rows.start + int(np.searchsorted(start, begin[t]))
        chosen = np.arange(first, trace_rows.stop)
        own = pauses[(pauses[:, 0] == t) & (pauses[:, 1] >= begin[t])]
        overlap, part = _overlap(rows, t, chosen, int((own[:, 2] - own[:, 1]).sum()))
        exposed[chosen] = part
        found.append(overlap)
    return found, exposed


def warm_until(rows: Rows, calls: Calls, times: CallTimes) -> Ints:
    """Per trace the end of its last warm-up call, on its own clock; before all rows if none."""
    until = np.full(len(rows.ranks), np.iinfo(np.int64).min)
    warm = times.warm_up[calls.call_of_part]
    np.maximum.at(until, calls.trace[warm], rows.end[calls.row[warm]])
    return until


def own_warm_until(rows: Rows) -> Ints:
    """Per trace the end of the warm-up by that trace alone; before all rows if there is none.

    The first collectives of its streams that last far longer than its others. What holds for one
    file does not depend on those that lie beside it: no other rank counts.
    """
    until = np.full(len(rows.ranks), np.iinfo(np.int64).min)
    between = np.array([not e.op.point_to_point for e in rows.entries] + [False])
    collective = np.flatnonzero(between[rows.entry] & ~warmed_up(rows)[rows.trace])
    collective = collective[np.argsort(rows.stream[collective], kind="stable")]
    cuts = np.flatnonzero(np.diff(rows.stream[collective])) + 1
    for stream_rows in np.split(collective, cuts):
        warm = stream_rows[
            : len(
                warm_up_lengths(
                    rows.end[stream_rows] - rows.start[stream_rows], rows.entry[stream_rows]
                )
            )
        ]
        np.maximum.at(until, rows.trace[warm], rows.end[warm])
    return until


def _overlap(rows: Rows, trace: int, chosen: Ints, paused: int) -> tuple[RankOverlap, Ints]:
    start, end = rows.start[chosen], rows.end[chosen]
    collective = rows.entry[chosen] >= 0
    compute = (rows.kind[chosen] == Kind.KERNEL) & ~collective
    copy = ~compute & ~collective
    busy = union(start[compute], end[compute])
    hidden = covered(*busy, end) - covered(*busy, start)
    exposed = np.where(collective, end - start - hidden, 0)
    communicating = union(start[collective], end[collective])
    total = _measure(communicating)
    under = int((covered(*busy, communicating[1]) - covered(*busy, communicating[0])).sum())
    helped = union(start[~collective], end[~collective])
    beside = covered(*helped, communicating[1]) - covered(*helped, communicating[0])
    span = int(end.max() - start[0]) - paused if len(start) else 0
    return (
        RankOverlap(
            rank=rows.ranks[trace],
            span_ns=span,
            compute_ns=_measure(busy),
            copy_ns=_measure(union(start[copy], end[copy])),
            collective_ns=total,
            exposed_ns=total - under,
            hidden_ns=under,
            copy_only_ns=int(beside.sum()) - under,
            idle_ns=span - _measure(union(start, end)),
            streams=_streams(rows, rows.stream[chosen], collective, end - start, exposed),
        ),
        exposed,
    )


def _measure(intervals: tuple[Ints, Ints]) -> int:
    return int((intervals[1] - intervals[0]).sum())


def _streams(
    rows: Rows,
    stream: npt.NDArray[np.int32],
    collective: npt.NDArray[np.bool_],
    duration: Ints,
    exposed: Ints,
) -> tuple[StreamOverlap, ...]:
    found = []
    for number in np.unique(stream[collective]).tolist():
        on_stream = collective & (stream == number)
        total, open_ = int(duration[on_stream].sum()), int(exposed[on_stream].sum())
        found.append(StreamOverlap(rows.streams[number][1], total, open_, total - open_))
    return tuple(found)
