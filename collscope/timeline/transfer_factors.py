"""Factors of a recorded job's transfers: by class, or by the calls of another run (pure)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model import CollectiveClass
from collscope.model.trace import Ints
from collscope.timeline.recorded_job import RecordedJob, recorded_transfers
from collscope.timeline.records import ChangedClass
from collscope.timeline.tolerances import MIN_CALLS_TO_TURN, MIN_LIKENESS_GAIN, MIN_SIZE_RANGE
from collscope.timeline.traced_transfers import (
    Transfers,
    blocks_change,
    call_sequences,
    known_transfers,
    most_transfers,
)
from collscope.timeline.waits import clocks_apart

Floats = npt.NDArray[np.float64]


class NewTime(msgspec.Struct, frozen=True):
    """Time of one call of a class after the change, ns."""

    time_ns: float
    low_ns: float | None = None  # of the measurement's spread
    high_ns: float | None = None
    # The class before the change, measured as `time_ns` was. With it the calls change by the
    # ratio of the two, so that what slows them down in the job stays; without it they are taken
    # to last `time_ns` in the job.
    old_ns: float | None = None
    bound: bool = False  # a class that is faster than `time_ns` already does not change


class Factors(msgspec.Struct, frozen=True):
    """Factors of the transfer per part: middle, low, high."""

    middle: Floats
    low: Floats
    high: Floats

    @property
    def exact(self) -> bool:
        """No spread is known."""
        return bool((self.low == self.middle).all() and (self.high == self.middle).all())


def transfer_factors(
    recorded: RecordedJob, new: Mapping[CollectiveClass, NewTime], traced: Transfers | None
) -> tuple[Factors, tuple[ChangedClass, ...], tuple[CollectiveClass, ...]]:
    """Factor of each part's transfer; classes with a new time, and those without.

    traced  transfers of another run: they replace `new`
    """
    calls, times = recorded.linked, recorded.linked_times
    factors = np.ones((3, len(calls)))
    if traced is not None:
        known = _by_place(recorded, traced, factors)
        _widen_unknown(recorded, traced, known, factors)
    else:
        known = _by_class(recorded, new, factors)
    counts = ~times.warm_up
    of_call = _call_transfers(recorded)
    has_transfer, unaligned = np.isfinite(known_transfers(calls, times)), clocks_apart(calls, times)
    changed: list[tuple[float, ChangedClass]] = []
    unchanged = []
    for k, key in enumerate(calls.classes):
        in_class = counts & (calls.class_ == k)
        if not in_class.any() or k not in known:
            unchanged.append(key)
            continue
        old = of_call[in_class]
        if not has_transfer[in_class].any():
            before, known_before, after, bounded = float(old.min()), None, new[key].time_ns, False
        else:
            typical = np.mean if key.size_bytes is None else np.median
            before = known_before = float(typical(old))
            after = float(typical(old * factors[0, in_class]))
            bounded = bool(unaligned[in_class].any())
        count = int(in_class.sum())
        change = ChangedClass(key, count, known_before, after, bounded)
        changed.append((count * abs(after - before), change))
    changed.sort(key=lambda found: -found[0])
    per_part = np.where(counts, factors, 1.0)[:, calls.call_of_part]
    return Factors(*per_part), tuple(c for _, c in changed), tuple(unchanged)


def _call_transfers(recorded: RecordedJob) -> Floats:
    """Transfer of each call: the longest of its parts, ns."""
    of_call = np.zeros(len(recorded.linked))
    np.maximum.at(of_call, recorded.linked.call_of_part, recorded_transfers(recorded))
    return of_call


def _by_class(
    recorded: RecordedJob, new: Mapping[CollectiveClass, NewTime], factors: Floats
) -> set[int]:
    """Set the factors of classes with one new time each; which they are."""
    calls, counts = recorded.linked, ~recorded.linked_times.warm_up
    of_call = _call_transfers(recorded)
    transfer = known_transfers(calls, recorded.linked_times)
    has_transfer, most = (
        np.isfinite(transfer),
        most_transfers(calls, recorded.linked_times, transfer),
    )
    known = set()
    for k, key in enumerate(calls.classes):
        in_class = counts & (calls.class_ == k)
        median = float(np.median(of_call[in_class])) if in_class.any() else 0.0
        if key not in new or median <= 0:
            continue
        given = new[key]
        known.add(k)
        if not has_transfer[in_class].any():
            factors[:, calls.class_ == k] = _transfer_bounds(given, median)[:, None]
            continue
        base = given.old_ns or median
        time = min(given.time_ns, base) if given.bound else given.time_ns
        low, high = given.low_ns or time, given.high_ns or time
        found = np.array([[time], [low], [high]]) / base
        longer = _room(key, transfer[in_class], most[in_class])
        factors[:, calls.class_ == k] = (
            _with_room(found, longer, 1.0) if given.old_ns is None else 1 + _ends(found - 1, longer)
        )
    return known


def _transfer_bounds(given: NewTime, shortest: float) -> Floats:
    """Factors (middle, low, high) of a class without a call recorded on all its ranks.

    Its kernels may wait for the ranks that were not seen: the transfer is as long as the shortest
    of them, or shorter, down to what is known of it without the traces.

    shortest  ns of the shortest kernel, which the factors are of
    """
    if given.old_ns is not None:
        least = min(given.old_ns, shortest)
    else:
        least = min(given.time_ns, shortest) if given.bound else 0.0

    def factor(time: float, transfer: float) -> float:
        if given.old_ns is not None:
            longer = transfer * (time / given.old_ns - 1)
        else:
            longer = time - transfer
        return 1 + (min(longer, 0.0) if given.bound else longer) / shortest

    low, high = given.low_ns or given.time_ns, given.high_ns or given.time_ns
    ends = [factor(low, shortest), factor(high, least), factor(low, least), factor(high, shortest)]
    middle = factor(given.time_ns, (least + shortest) / 2)
    return np.maximum([middle, min(ends), max(ends)], 0.0)


def _by_place(recorded: RecordedJob, traced: Transfers, factors: Floats) -> set[int]:
    """Set the factors by the calls of another run, place by place of the step; classes with any.

    Where the places are not known, all calls of a class change by the ratio of the means.
    """
    calls, times = recorded.linked, recorded.linked_times
    transfer = known_transfers(calls, times)
    most = most_transfers(calls, times, transfer)
    steps = max(1, int(recorded.steps.count.max(initial=1)))
    known = set()
    for sequence, own_calls in call_sequences(recorded.rows, calls):
        own, own_most, theirs = transfer[own_calls], most[own_calls], traced.get(sequence)
        per_step = _per_step(recorded, own_calls, steps)
        if theirs is None or not (np.isfinite(theirs.transfer).any() and np.isfinite(own).any()):
            # Other ranks of the class show it.
            alike = [v for s, v in traced.items() if s.key == sequence.key]
            other = np.concatenate([np.empty(0), *(v.transfer for v in alike)])
            other_most = np.concatenate([np.empty(0), *(v.most for v in alike)])
            all_own = calls.class_ == calls.class_[own_calls[0]]
            own, own_most, per_step = transfer[all_own], most[all_own], 0
        else:
            other, other_most = theirs.transfer, theirs.most
        if np.isfinite(other).sum() == 0 or np.isfinite(own).sum() == 0:
            continue
        known.add(int(calls.class_[own_calls[0]]))
        key = sequence.key
        found = _with_room(
            _ratio(own, other, per_step),
            _room(key, own, own_most), _room(key, other, other_most),
        )  # fmt: skip
        factors[:, own_calls] = found if per_step else found[:, :1]
    return known


def _room(key: CollectiveClass, transfer: Floats, most: Floats) -> float:
    """By what factor the transfers of a class may be longer than we assume."""
    known = np.isfinite(transfer)
    typical = np.mean if key.size_bytes is None else np.median
    return max(1.0, float(typical(most[known]) / max(1.0, float(typical(transfer[known])))))


def _with_room(found: Floats, own: float, other: float) -> Floats:
    """Factors (middle, low, high) where our transfers may be longer by `own`, others by `other`.

    A transfer is then longer by that both before and after, and the rest of the kernel waits.
    """
    return np.stack([found[0], np.maximum(found[1] + 1 - own, 0.0), found[2] * other])


def _ends(longer: Floats, room: float) -> Floats:
    """Changes (middle, low, high) of transfers that may each be longer by `room`."""
    middle, low, high = longer
    return np.stack([middle, np.minimum(low, low * room), np.maximum(high, high * room)])


def _widen_unknown(
    recorded: RecordedJob, traced: Transfers, known: set[int], factors: Floats
) -> None:
    """Let classes whose transfers are not known change as far as their kernels allow.

    They transfer as long as the shortest kernel of the class, or not at all, before and after. One
    that the other run does not have changes at most as any other does, or with the thread blocks.
    """
    calls, times = recorded.linked, recorded.linked_times
    of_call = _call_transfers(recorded)
    changes = [1.0]
    if blocks := blocks_change(recorded, traced):
        changes.append(1 / blocks)
    for k in sorted(known):
        in_class = calls.class_ == k
        total = float(of_call[in_class].sum())
        changes += [float((of_call * factors[0])[in_class].sum()) / total] if total > 0 else []
    most = most_transfers(calls, times, known_transfers(calls, times))
    for k, key in enumerate(calls.classes):
        in_class = calls.class_ == k
        if k in known or not in_class.any():
            continue
        theirs = [v.most for s, v in traced.items() if s.key == key]
        typical = np.mean if key.size_bytes is None else np.min
        ends = [*changes]
        if theirs and (base := float(of_call[in_class].min())) > 0:
            ends.append(max(0.0, 1 - float(typical(most[in_class])) / base))
            ends.append(1 + float(typical(np.concatenate(theirs))) / base)
        factors[1:, in_class] = [[min(ends)], [max(ends)]]


def _per_step(recorded: RecordedJob, own_calls: Ints, steps: int) -> int:
    """Calls of a sequence a step; 0 where the steps differ in it.

    By the trace with the most of them: windows begin and end at different calls.
    """
    rows, calls = recorded.rows, recorded.linked
    part = np.flatnonzero(np.isin(calls.call_of_part, own_calls))
    trace = int(np.bincount(calls.trace[part]).argmax())
    end = rows.end[calls.row[part[calls.trace[part] == trace]]]
    begin, finish = (moment[trace] for moment in recorded.steps.span(rows.end, len(rows.ranks)))
    inside = int(((end > begin) & (end <= finish)).sum())
    return inside // steps if inside % steps == 0 else 0


def _ratio(own: Floats, theirs: Floats, per_step: int) -> Floats:
    """Factors (middle, low, high) of each of our calls, shape (3, calls)."""
    spread = np.array([1.0, 1.0, 1.0])
    if per_step and len(own) >= per_step and len(theirs) >= per_step:
        ours, other = (_places(v, per_step) for v in (own, theirs))
        if np.isfinite(ours).all() and np.isfinite(other).all():
            sums = _step_sums(theirs, per_step)
            if len(sums) > 1:
                middle = float(np.median(sums))
                spread = np.array([1.0, float(sums.min()) / middle, float(sums.max()) / middle])
            other = np.roll(other, _turn(ours, other))
            place = (per_step - 1 - np.arange(len(own))[::-1] % per_step) % per_step
            return np.outer(spread, (other / np.maximum(ours, 1.0))[place])
    mean = float(np.nanmean(theirs)) / max(1.0, float(np.nanmean(own)))
    return np.outer(spread, np.full(len(own), mean))


def _places(values: Floats, per_step: int) -> Floats:
    """Median at each place of the step, counted from the last call."""
    by_step = values[len(values) % per_step :].reshape(-1, per_step)
    with np.errstate(all="ignore"):
        found: Floats = np.array([np.median(c[np.isfinite(c)]) if np.isfinite(c).any() else np.nan
                                  for c in by_step.T])  # fmt: skip
    return found


def _step_sums(values: Floats, per_step: int) -> Floats:
    by_step = values[len(values) % per_step :].reshape(-1, per_step)
    sums: Floats = by_step.sum(axis=1)
    return sums[np.isfinite(sums)]


def _turn(ours: Floats, other: Floats) -> int:
    """By how many places the other run's step begins later: windows may begin anywhere in it."""
    if len(ours) < MIN_CALLS_TO_TURN or np.ptp(np.log(np.maximum(ours, 1))) < MIN_SIZE_RANGE:
        return 0
    a, b = (np.log(np.maximum(v, 1.0)) for v in (ours, other))
    likeness = np.array([np.corrcoef(a, np.roll(b, k))[0, 1] for k in range(len(a))])
    best = int(np.nanargmax(likeness)) if np.isfinite(likeness).any() else 0
    return best if likeness[best] > likeness[0] + MIN_LIKENESS_GAIN else 0
