"""How the bandwidth of recorded calls changes over the run."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import msgspec

from collscope.model import bus_bandwidth, parse_op
from collscope.reports.tolerances import (
    CHANGE_PROBABILITY,
    MIN_CALLS_PER_SEGMENT,
    MIN_CHANGE,
)

_CALLS = """
SELECT t.comm_id, t.class_id, l.op, l.size_bytes, l.nranks, t.seq, t.transfer_ns
FROM call_times t JOIN classes l USING (run, class_id)
WHERE t.run = :run AND NOT t.warm_up AND t.transfer_ns > 0 AND l.size_bytes > 0
AND EXISTS (SELECT 1 FROM rank_waits w WHERE w.run = :run AND w.origin = 'recording')
ORDER BY t.comm_id, t.class_id, t.seq
"""


class DriftSegment(msgspec.Struct, frozen=True):
    """Calls that follow each other and take the same time, but for scatter."""

    first_seq: int  # order on the communicator, from 0
    last_seq: int
    calls: int  # with a known transfer
    transfer_ns: float  # median
    busbw_gbps: float | None


class DriftRow(msgspec.Struct, frozen=True):
    """One class on one communicator over the run."""

    comm_id: int
    class_id: int
    op: str
    size_bytes: int
    nranks: int | None
    segments: tuple[DriftSegment, ...]  # one: no change was found

    @property
    def slowdown(self) -> float:
        """Ratio of the slowest segment's transfer to that of the fastest one before it."""
        fastest, worst = math.inf, 1.0
        for segment in self.segments:
            worst = max(worst, segment.transfer_ns / fastest)
            fastest = min(fastest, segment.transfer_ns)
        return worst


def read_drift(connection: sqlite3.Connection, run: str) -> tuple[DriftRow, ...]:
    """Classes with enough recorded calls for two segments; most transfer time first."""
    calls: dict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    for *key, seq, transfer in connection.execute(_CALLS, {"run": run}):
        calls[tuple(key)].append((seq, transfer))
    enough = [item for item in calls.items() if len(item[1]) >= 2 * MIN_CALLS_PER_SEGMENT]
    enough.sort(key=lambda item: -sum(transfer for _, transfer in item[1]))
    return tuple(_row(key, own) for key, own in enough)


def _row(key: tuple[object, ...], calls: Sequence[tuple[int, int]]) -> DriftRow:
    comm, class_, op, size, nranks = msgspec.convert(key, tuple[int, int, str, int, int | None])
    cuts = [0, *change_points([transfer for _, transfer in calls]), len(calls)]
    segments = []
    for a, b in pairwise(cuts):
        transfer = float(median(ns for _, ns in calls[a:b]))
        busbw = bus_bandwidth(parse_op(op), size=size, time_s=transfer * 1e-9, nranks=nranks)
        segments.append(DriftSegment(calls[a][0], calls[b - 1][0], b - a, transfer, busbw))
    return DriftRow(comm, class_, op, size, nranks, tuple(segments))


def change_points(values: Sequence[float]) -> tuple[int, ...]:
    """Places at which the level of a series changes: first value of each new level.

    Pettitt's test of ranks finds whether it changes; the place is where the ranks on both sides
    differ most for their number (Mann and Whitney); each part is tested again.
    source  A. N. Pettitt, A non-parametric approach to the change-point problem, Applied
            Statistics 28 (1979), p about 2 exp(-6 K^2 / (n^3 + n^2))

    >>> change_points([10.0] * 30 + [20.0] * 30)
    (30,)
    """
    n = len(values)
    if n < 2 * MIN_CALLS_PER_SEGMENT:
        return ()
    statistic, total, place, most = 0.0, 0.0, 0, 0.0
    for k, rank in enumerate(_ranks(values), 1):
        total += 2 * rank - (n + 1)
        statistic = max(statistic, abs(total))
        inside = MIN_CALLS_PER_SEGMENT <= k <= n - MIN_CALLS_PER_SEGMENT
        contrast = abs(total) / math.sqrt(k * (n - k)) if inside else 0.0
        if contrast > most:
            most, place = contrast, k
    before, behind = median(values[:place] or [0.0]), median(values[place:])
    probability = 2 * math.exp(-6 * statistic**2 / (n**3 + n**2))
    changed = max(before, behind) > (1 + MIN_CHANGE) * min(before, behind)
    if place == 0 or probability > CHANGE_PROBABILITY or not changed:
        return ()
    left, right = change_points(values[:place]), change_points(values[place:])
    return (*left, place, *(place + k for k in right))


def _ranks(values: Sequence[float]) -> list[float]:
    """Rank of each value from 1; equal values share their mean rank.

    >>> _ranks([5, 1, 5])
    [2.5, 1.0, 2.5]
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    begin = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or values[order[end]] != values[order[begin]]:
            for k in order[begin:end]:
                found[k] = (begin + 1 + end) / 2
            begin = end
    return found
