"""Which streams of several traces carry one group's collectives, where the traces share a clock.

Ranks of one host do. The kernels of one call end together there, to some µs, whatever calls a trace
begins with; those of two groups end whenever they do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collscope.model.trace import Ints

Intervals = tuple[Ints, Ints]
"""Starts and ends, ns, both rising."""

_TOGETHER_NS = (20_000, 60_000)  # ends of one call scatter by less than this at least, and at most,
_TOGETHER = 0.1  # and by less than this part of what it lasts in between
_SHARE = 0.7  # of the calls in the time that two ranks have in common
_NEXT = 0.9  # of the share with the best partner: groups that do the same at once agree somewhat
_FEWEST = 3


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
            if share[k, m] < _SHARE:
                break
            near = share[k, m] >= _NEXT * max(share[k].max(), share[m].max())
            a, b = group_of[k], group_of[m]
            traces = {members[other][0] for other in a + b}
            if a is b or len(traces) < len(a) + len(b):
                continue
            if near or (alone and min(len(a), len(b)) == 1):
                joined = a + b
                for other in joined:
                    group_of[other] = joined
    found = {min(g): sorted(g) for g in group_of if len(g) > 1}
    return [found[first] for first in sorted(found)]


def agreement(a: Intervals, b: Intervals) -> float:
    """Share of the calls in the common time that end together; 0 where there are too few."""
    begin, finish = max(a[0][0], b[0][0]), min(a[1][-1], b[1][-1])
    shares = []
    for (start, end), (_, other) in ((a, b), (b, a)):
        inside = (end > begin) & (end <= finish)
        if inside.sum() < _FEWEST:
            return 0.0
        own, lasts = end[inside], (end - start)[inside]
        right = np.clip(np.searchsorted(other, own), 1, len(other) - 1)
        apart = np.minimum(np.abs(own - other[right - 1]), np.abs(own - other[right]))
        shares.append(float((apart <= np.clip(_TOGETHER * lasts, *_TOGETHER_NS)).mean()))
    return min(shares)
