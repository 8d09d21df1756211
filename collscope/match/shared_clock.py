"""Which streams of several traces carry one group's collectives, where the traces share a clock.

Ranks of one host do. The kernels of one call end together there, to some µs, whatever calls a trace
begins with; those of two groups end whenever they do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from collscope.match.tolerances import (
    END_SCATTER_NS,
    END_SCATTER_SHARE,
    MAX_END_SCATTER_NS,
    MIN_CALLS_OF_PAIR,
    MIN_CALLS_TO_SPLIT,
    MIN_EITHER_ORDER,
    MIN_RANKS_TO_SPLIT,
    MIN_SHARED_CALLS,
    MIN_STANDING_OFF,
    NEAR_BEST_PARTNER,
)
from collscope.model.trace import Ints

Intervals = tuple[Ints, Ints]
"""Starts and ends, ns, both rising."""


def match_by_clock(members: Sequence[tuple[int, Intervals]]) -> list[list[int]]:
    """Members that carry one group's calls, as places in `members`; those that meet none are left.

    members  (trace, intervals of a stream's collectives) each; a group has one of a trace at most
    """
    share = np.zeros((len(members), len(members)))
    for k, (trace, own) in enumerate(members):
        for m, (theirs, other) in enumerate(members[:k]):
            if trace != theirs:
                share[k, m] = share[m, k] = agreement(own, other)
    group_of = [[m] for m in range(len(members))]
    places = np.dstack(np.unravel_index(np.argsort(-share, axis=None), share.shape))[0].tolist()
    # What is left alone in the first round joins where it agrees enough.
    for alone in (False, True):
        for k, m in places:
            if share[k, m] < MIN_SHARED_CALLS:
                break
            near = share[k, m] >= NEAR_BEST_PARTNER * max(share[k].max(), share[m].max())
            a, b = group_of[k], group_of[m]
            traces = {members[other][0] for other in a + b}
            if a is b or len(traces) < len(a) + len(b):
                continue
            if near or (alone and min(len(a), len(b)) == 1):
                joined = a + b
                for other in joined:
                    group_of[other] = joined
    groups = {min(g): sorted(g) for g in group_of if len(g) > 1}
    found = [
        [group[place] for place in bunch]
        for group in groups.values()
        for bunch in split_members(_common_ends([members[m][1] for m in group]))
    ]
    return sorted(found)


def agreement(a: Intervals, b: Intervals) -> float:
    """Share of the calls in the common time that end together; 0 where there are too few."""
    begin, finish = max(a[0][0], b[0][0]), min(a[1][-1], b[1][-1])
    shares = []
    for (start, end), (_, other) in ((a, b), (b, a)):
        inside = (end > begin) & (end <= finish)
        if inside.sum() < MIN_CALLS_OF_PAIR:
            return 0.0
        own, lasts = end[inside], (end - start)[inside]
        right = np.clip(np.searchsorted(other, own), 1, len(other) - 1)
        distance = np.minimum(np.abs(own - other[right - 1]), np.abs(own - other[right]))
        scatter = np.clip(END_SCATTER_SHARE * lasts, END_SCATTER_NS, MAX_END_SCATTER_NS)
        shares.append(float((distance <= scatter).mean()))
    return min(shares)


def _common_ends(members: Sequence[Intervals]) -> Ints:
    """Ends of the calls in the time that all have in common, shape (calls, members)."""
    begin, finish = max(m[0][0] for m in members), min(m[1][-1] for m in members)
    first = members[0][1]
    calls = first[(first > begin) & (first <= finish)]
    columns = []
    for _, end in members:
        right = np.clip(np.searchsorted(end, calls), 1, len(end) - 1)
        nearer = calls - end[right - 1] <= end[right] - calls
        columns.append(np.where(nearer, end[right - 1], end[right]))
    return np.stack(columns, axis=1)


def split_members(ends: Ints) -> list[list[int]]:
    """Bunches of members whose ends differ; one bunch of all where none do.

    ends  (calls, members) of calls that end at about the same time on all
    """
    n = ends.shape[1]
    bunch_of = [[m] for m in range(n)]
    if len(ends) < MIN_CALLS_TO_SPLIT or n < MIN_RANKS_TO_SPLIT:
        return [list(range(n))]
    distance = np.median(np.abs(ends[:, :, None] - ends[:, None, :]), axis=0)
    places = np.dstack(np.unravel_index(np.argsort(distance, axis=None), distance.shape))[0]
    for k, m in places.tolist():
        a, b = bunch_of[k], bunch_of[m]
        if a is b or (min(len(a), len(b)) > 1 and _stand_apart(ends[:, a], ends[:, b])):
            continue
        joined = a + b
        for other in joined:
            bunch_of[other] = joined
    return [sorted(bunch) for k, bunch in enumerate(bunch_of) if k == min(bunch)]


def _stand_apart(a: Ints, b: Ints) -> bool:
    """Whether two bunches are further from each other than wide, in either order."""
    width = np.maximum(np.ptp(a, axis=1), np.ptp(b, axis=1))
    orders: list[npt.NDArray[np.bool_]] = [
        b.min(axis=1) - a.max(axis=1) > width, a.min(axis=1) - b.max(axis=1) > width
    ]  # fmt: skip
    shares = [float(order.mean()) for order in orders]
    return sum(shares) >= MIN_STANDING_OFF and min(shares) >= MIN_EITHER_ORDER
