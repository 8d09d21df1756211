"""Lateness that a rank inherits: it waited for another rank in another group before (pure).

The gap between the last rank of a call and the second last grows by what the last one waited
elsewhere since the group's previous call, less what the second last did. Such waiting counts where
no compute kernel hid it: only then did it hold the rank up. What a rank inherits is handed on to
the ranks that it waited for, and from them to those that they waited for.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.timeline.tolerances import MAX_LATENESS_HOPS, MIN_LATE_SHARE
from collscope.timeline.waits import CallTimes

Floats = npt.NDArray[np.float64]


class Inheritance(msgspec.Struct, frozen=True):
    """Where the lateness of each rank comes from. Columns per trace."""

    caused: Floats  # ns of all lateness that it is the first cause of; the sum is that of all
    inherited: Floats  # ns of its own lateness that others are the cause of
    # Trace that is the first cause of most of that; -1: it inherits nothing, or is rarely late.
    first: Ints


class _Waiting(NamedTuple):
    """Which traces wait for which others, and the part that each of these has of all that."""

    source: Ints
    target: Ints
    part: Floats


class _Before(NamedTuple):
    """The call of a group before the present one."""

    last: int
    second: int
    gap: int  # between the two; ns
    inherited: float  # of the gap
    waited: int  # exposed, by the second last in this call


def inherited_lateness(
    calls: Calls, times: CallTimes, exposed: Ints, late: npt.NDArray[np.bool_], traces: int
) -> Inheritance:
    """Inherited lateness of all ranks.

    exposed  (rows,) ns of each collective that compute does not hide
    late     (calls,) those whose lateness counts
    """
    own = np.zeros(traces)
    np.add.at(own, times.last[late], times.lateness[late])
    first = np.full(traces, -1)
    if len(np.unique(calls.group[late])) < 2:
        return Inheritance(own, np.zeros(traces), first)
    held = np.minimum(np.clip(times.wait, 0, None), exposed[calls.row])  # per part
    waiting = _waited_for(calls, times, held, traces)
    inherited = _inherited(calls, times, held, late, traces)
    inherited[np.bincount(waiting.source, minlength=traces) == 0] = 0.0
    share = np.divide(inherited, own, out=np.zeros(traces), where=own > 0)
    often = np.flatnonzero((own >= MIN_LATE_SHARE * own.sum()) & (inherited > 0))
    amounts = np.concatenate([own[None], own * (often[:, None] == np.arange(traces))])
    caused, *of_each = _handed_on(amounts, share, waiting)
    for trace, causes in zip(often.tolist(), of_each, strict=True):
        causes[trace] = 0.0
        first[trace] = causes.argmax()
    return Inheritance(caused, inherited, first)


def _handed_on(amounts: Floats, share: Floats, waiting: _Waiting) -> Floats:
    """What of amounts of lateness each trace is the first cause of, shape (amounts, traces), ns.

    amounts  what each trace has of them at first
    share    (traces,) of what a trace has, what it inherits
    """
    found, rest = np.zeros_like(amounts), amounts
    for _ in range(MAX_LATENESS_HOPS):
        found += rest * (1 - share)
        following = np.zeros_like(rest)
        handed = (rest * share)[:, waiting.source] * waiting.part
        np.add.at(following.T, waiting.target, handed.T)
        rest = following
    return found + rest


def _inherited(
    calls: Calls, times: CallTimes, held: Ints, late: npt.NDArray[np.bool_], traces: int
) -> Floats:
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
        trace, other = int(calls.trace[a]), int(calls.trace[b])
        carried = 0.0
        previous = known.get(group)
        if previous is not None and (previous.last, previous.second) == (trace, other):
            left = max(0, previous.gap - previous.waited)
            carried = previous.inherited * left / max(previous.gap, 1)
        more = min(float(gap), max(0.0, carried + int(since[a] - since[b])))
        found[trace] += more
        known[group] = _Before(trace, other, gap, more, int(held[b]))
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


def _waited_for(calls: Calls, times: CallTimes, held: Ints, traces: int) -> _Waiting:
    last = times.last[calls.call_of_part]
    part = (last >= 0) & (held > 0) & (last != calls.trace)
    pair = calls.trace[part].astype(np.int64) * traces + last[part]
    pairs, index = np.unique(pair, return_inverse=True)
    sums = np.bincount(index, weights=held[part], minlength=len(pairs))
    source = pairs // traces
    of_source = np.bincount(source, weights=sums, minlength=traces)
    return _Waiting(source, pairs % traces, sums / of_source[source])
