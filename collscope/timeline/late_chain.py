"""Lateness that a rank inherits: it waited for another rank in another group before (pure).

The gap between the last rank of a call and the second last grows by what the last one waited
elsewhere since the group's previous call, less what the second last did. Such waiting counts where
no compute kernel hid it: only then did it hold the rank up. What a rank inherits is handed on to
the ranks that it waited for, and from them to those that they waited for.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.timeline.waits import CallTimes

_HOPS = 8  # from rank to rank; what is left then stays where it is


class _Before(NamedTuple):
    """The call of a group before the present one."""

    last: int
    second: int
    gap: int  # between the two; ns
    inherited: float  # of the gap
    waited: int  # exposed, by the second last in this call


def first_causes(
    calls: Calls, times: CallTimes, exposed: Ints, late: npt.NDArray[np.bool_], traces: int
) -> npt.NDArray[np.float64]:
    """Per trace the lateness that it is the first cause of, ns; the sum is that of all lateness.

    exposed  (rows,) ns of each collective with no compute kernel beside it
    late     (calls,) those whose lateness counts
    """
    own = np.zeros(traces)
    np.add.at(own, times.last[late], times.lateness[late])
    if len(np.unique(calls.group[late])) < 2:
        return own
    held = np.minimum(np.clip(times.wait, 0, None), exposed[calls.row])  # per part
    inherited = _inherited(calls, times, held, late, traces)
    to = _waited_for(calls, times, held, traces)
    handed = np.zeros(traces)
    rest = dict(enumerate(own.tolist()))
    for _ in range(_HOPS):
        following: dict[int, float] = defaultdict(float)
        for t, amount in rest.items():
            share = inherited[t] / own[t] if own[t] and to[t] else 0.0
            handed[t] += amount * (1 - share)
            whole = sum(to[t].values())
            for other, ns in to[t].items():
                following[other] += amount * share * ns / whole
        rest = following
    for t, amount in rest.items():
        handed[t] += amount
    return handed


def _inherited(
    calls: Calls, times: CallTimes, held: Ints, late: npt.NDArray[np.bool_], traces: int
) -> npt.NDArray[np.float64]:
    """Per trace how much of its lateness it inherits, ns."""
    # Exposed waiting of each rank up to each of its parts.
    order = np.lexsort((times.start, calls.trace))
    before = np.zeros(len(order), dtype=np.int64)
    before[order] = np.cumsum(held[order]) - held[order]
    by_start = np.lexsort((times.start, calls.call_of_part))
    final = calls.offsets[1:] - 1
    last, second = by_start[final], by_start[np.maximum(final - 1, calls.offsets[:-1])]
    # A rank's waiting between two calls of a group, outside of the first of them.
    since = _since(calls, times, before, held)
    found = np.zeros(traces)
    known: dict[int, _Before] = {}
    chosen = np.flatnonzero(late)
    for call in chosen[np.lexsort((times.arrival[chosen], calls.group[chosen]))].tolist():
        group, gap = int(calls.group[call]), int(times.lateness[call])
        a, b = int(last[call]), int(second[call])
        mine, other = int(calls.trace[a]), int(calls.trace[b])
        carried = 0.0
        previous = known.get(group)
        if previous is not None and (previous.last, previous.second) == (mine, other):
            left = max(0, previous.gap - previous.waited)
            carried = previous.inherited * left / max(previous.gap, 1)
        more = min(float(gap), max(0.0, carried + int(since[a] - since[b])))
        found[mine] += more
        known[group] = _Before(mine, other, gap, more, int(held[b]))
    return found


def _since(calls: Calls, times: CallTimes, before: Ints, held: Ints) -> Ints:
    """Per part the rank's exposed waiting since its previous call of the same group, ns."""
    group = calls.group[calls.call_of_part]
    order = np.lexsort((times.start, group, calls.trace))
    trace_of, group_of = calls.trace[order], group[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (trace_of[1:] != trace_of[:-1]) | (group_of[1:] != group_of[:-1])
    waited = before[order].copy()
    waited[1:] -= np.where(first[1:], waited[1:], before[order][:-1] + held[order][:-1])
    waited[0] = 0
    result = np.empty_like(waited)
    result[order] = waited
    return result


def _waited_for(calls: Calls, times: CallTimes, held: Ints, traces: int) -> list[dict[int, float]]:
    """Per trace the ranks that it waited for, and how long, ns."""
    found: list[dict[int, float]] = [{} for _ in range(traces)]
    last = times.last[calls.call_of_part]
    part = (last >= 0) & (held > 0) & (last != calls.trace)
    pair = calls.trace[part].astype(np.int64) * traces + last[part]
    pairs, index = np.unique(pair, return_inverse=True)
    sums = np.bincount(index, weights=held[part]) if len(pairs) else np.empty(0)
    for key, ns in zip(pairs.tolist(), sums.tolist(), strict=True):
        found[key // traces][key % traces] = ns
    return found
