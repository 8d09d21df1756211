"""Every collective's duration split into waiting for the last rank and transfer (pure).

On aligned clocks the transfer begins when the last rank arrives, and ends with the last rank:
x = max end - max start, for rooted operations too. Without aligned clocks x = min duration, for
operations whose ranks leave together; where both are known they check each other. No rank leaves
such an operation before the last has come: where one did, on aligned clocks, the rows are not of
one call, or a stamp is wrong, and its parts are not known. Nor is it where a rank
has no trace, or its trace does not reach the call: it may be the one that the others wait for.
source  definitions as in TraceLens' and DeepSpeed's straggler reports, with the clocks removed
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.timeline.clocks import Clocks
from collscope.timeline.records import RankTimes, WarmUp
from collscope.timeline.tolerances import MAX_FORM_DIFFERENCE, WARM_UP_CALLS, WARM_UP_FACTOR

Bools = npt.NDArray[np.bool_]


class CallTimes(msgspec.Struct, frozen=True):
    """Columns per call and per part (a rank's row of a call); -1 where not known. Times in ns."""

    known: Bools  # (calls,) the transfer is known: all ranks of the call are there
    transfer: Ints  # (calls,)
    shortest: Ints  # (calls,) the min-duration form of the transfer, for what it is valid
    start_skew: Ints  # (calls,) -1 where clocks cannot be compared
    end_skew: Ints
    arrival: Ints  # (calls,) common clock: the last rank's start
    last: npt.NDArray[np.int32]  # (calls,) trace that arrived last
    lateness: Ints  # (calls,) of the last against the second last
    suspect: Bools  # (calls,) the two forms of the transfer disagree by more than 10 %
    impossible: Bools  # (calls,) a rank left before another came: nothing of it is known
    warm_up: Bools  # (calls,) left out of sums
    start: Ints  # (parts,) common clock
    end: Ints  # (parts,)
    wait: Ints  # (parts,) -1 where not known
    part_transfer: Ints  # (parts,) duration - wait
    excluded: tuple[WarmUp, ...]


def call_times(rows: Rows, calls: Calls, clocks: Clocks) -> CallTimes:
    """Times of all calls on the common clock."""
    start = clocks.align(rows.start[calls.row], calls.trace)
    end = clocks.align(rows.end[calls.row], calls.trace)
    first, call = calls.offsets[:-1], calls.call_of_part
    duration = end - start
    if not len(first):
        return _empty()
    component = clocks.component[calls.trace]
    same = np.maximum.reduceat(component, first) == np.minimum.reduceat(component, first)
    several = calls.seen > 1
    error = 2 * np.maximum.reduceat(clocks.error[calls.trace], first)
    synchronising = np.array([c.op.synchronises for c in calls.classes])[calls.class_]
    arrival = np.maximum.reduceat(start, first)
    left = arrival > np.minimum.reduceat(end, first) + error
    impossible = same & several & ~calls.mismatched & synchronising & left
    # The last rank to come, or the shortest kernel, may be of a rank that is not there.
    several &= ~impossible & (calls.seen == calls.nranks)
    aligned = same & several & ~calls.mismatched
    shortest = np.minimum.reduceat(duration, first)
    x = np.maximum.reduceat(end, first) - arrival
    by_shortest = synchronising & several & ~calls.mismatched
    known = aligned | by_shortest
    transfer = np.where(aligned, x, np.where(by_shortest, shortest, -1))
    wait = np.where(
        aligned[call], np.clip(arrival[call] - start, 0, duration), duration - shortest[call]
    )
    wait = np.where(known[call], wait, -1)
    last, lateness = _last(calls, start)
    typical, warm_up = _warm_up(rows, calls, np.maximum.reduceat(duration, first))
    return CallTimes(
        known=known,
        transfer=transfer,
        shortest=np.where(by_shortest, shortest, -1),
        start_skew=np.where(aligned, arrival - np.minimum.reduceat(start, first), -1),
        end_skew=np.where(aligned, arrival + x - np.minimum.reduceat(end, first), -1),
        arrival=arrival,
        last=np.where(aligned & (lateness > error), last, -1).astype(np.int32),
        lateness=np.where(aligned, lateness, -1),
        suspect=aligned & by_shortest & _disagree(x, shortest, error),
        impossible=impossible,
        warm_up=warm_up,
        start=start,
        end=end,
        wait=wait,
        part_transfer=np.where(known[call], duration - wait, -1),
        excluded=_excluded(calls, warm_up, np.maximum.reduceat(duration, first), typical),
    )


def clocks_apart(calls: Calls, times: CallTimes) -> Bools:
    """Calls seen on all their ranks whose transfer only the clocks would show: rooted ones.

    It lies between the shortest and the longest of their kernels. The last rank to come stays no
    longer than the transfer, and the last to leave, which came no later, no shorter.
    """
    seen = (calls.seen == calls.nranks) & (calls.seen > 1) & ~calls.mismatched & ~calls.p2p
    found: Bools = seen & ~times.known & ~times.impossible
    return found


def _empty() -> CallTimes:
    none = np.empty(0, dtype=np.int64)
    no = np.empty(0, dtype=bool)
    return CallTimes(
        no, none, none, none, none, none, none.astype(np.int32), none, no, no, no, none, none, none,
        none, (),
    )  # fmt: skip


def _disagree(x: Ints, shortest: Ints, error: npt.NDArray[np.float64]) -> Bools:
    """The two forms differ by more than a tenth, and by more than the clocks' error."""
    difference = np.abs(x - shortest)
    result: Bools = (difference > MAX_FORM_DIFFERENCE * np.maximum(x, shortest)) & (
        difference > error
    )
    return result


def _last(calls: Calls, start: Ints) -> tuple[npt.NDArray[np.int32], Ints]:
    """Trace that started last in each call, and by how much; 0 for a call of one rank."""
    order = np.lexsort((start, calls.call_of_part))
    final = calls.offsets[1:] - 1
    before = np.maximum(final - 1, calls.offsets[:-1])
    return calls.trace[order[final]], start[order[final]] - start[order[before]]


def warmed_up(rows: Rows) -> Bools:
    """Per trace whether the job had made steps before those that the trace marks.

    Then the connections of its collectives are there, and a long first call is one of the job.
    """
    before = [steps is not None and steps > 0 for steps in rows.steps_before]
    return np.array(before or [False] * len(rows.ranks), dtype=bool)


def _warm_up(rows: Rows, calls: Calls, longest: Ints) -> tuple[npt.NDArray[np.float64], Bools]:
    """What such calls typically last at longest; and the first of groups that last 10 x it."""
    done = np.logical_or.reduceat(warmed_up(rows)[calls.trace], calls.offsets[:-1])
    warm_up = np.zeros(len(calls), dtype=bool)
    typical = np.zeros(len(calls))
    plain = np.flatnonzero(~calls.p2p)
    first = plain[calls.seq[plain] == 0]
    for begin in first.tolist():
        if done[begin]:
            continue
        group_calls = plain[calls.group[plain] == calls.group[begin]]
        usual = warm_up_lengths(longest[group_calls], calls.class_[group_calls])
        warm_up[group_calls[: len(usual)]] = True
        typical[group_calls[: len(usual)]] = usual
    return typical, warm_up


def warm_up_lengths(lasts: Ints, kind: npt.NDArray[np.int32]) -> list[float]:
    """Of the first calls that last 10 x what calls of their kind typically do: that, ns.

    At most 3, and only an unbroken run from the first one.
    """
    found: list[float] = []
    for k in range(min(WARM_UP_CALLS, len(lasts))):
        alike = lasts[kind == kind[k]]
        typical = float(np.median(alike if len(alike) > 2 else lasts))
        if lasts[k] <= WARM_UP_FACTOR * typical:
            break
        found.append(typical)
    return found


def _excluded(
    calls: Calls, warm_up: Bools, longest: Ints, typical: npt.NDArray[np.float64]
) -> tuple[WarmUp, ...]:
    return tuple(
        WarmUp(k, int(calls.group[k]), int(calls.seq[k]), int(longest[k]), float(typical[k]))
        for k in np.flatnonzero(warm_up).tolist()
    )


def rank_times(rows: Rows, calls: Calls, times: CallTimes) -> list[RankTimes]:
    """Per rank what its collectives took."""
    n = len(rows.ranks)
    counts = ~times.warm_up[calls.call_of_part]
    split = counts & (times.wait >= 0)
    number = np.bincount(calls.trace[counts], minlength=n)
    duration = _sums(calls.trace, times.end - times.start, counts, n)
    transfer = _sums(calls.trace, times.part_transfer, split, n)
    wait = _sums(calls.trace, times.wait, split, n)
    return [
        RankTimes(
            rank,
            int(number[k]),
            int(duration[k]),
            int(transfer[k]),
            int(wait[k]),
            int(duration[k] - transfer[k] - wait[k]),
        )
        for k, rank in enumerate(rows.ranks)
    ]


def _sums(group: npt.NDArray[np.int32], values: Ints, chosen: Bools, n: int) -> Ints:
    """Sums by group; exact below 2^53 ns, which is 104 days."""
    sums = np.bincount(group[chosen], weights=values[chosen], minlength=n)
    return np.rint(sums).astype(np.int64)
