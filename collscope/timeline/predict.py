"""Step time with other times of the collectives, by simulation of the recorded steps (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model import CollectiveClass
from collscope.model.trace import Ints
from collscope.timeline.clocks import Clocks
from collscope.timeline.records import ChangedClass, Prediction
from collscope.timeline.simulate import Graph, build_graph, play
from collscope.timeline.steps import Steps, find_steps
from collscope.timeline.waits import CallTimes

Floats = npt.NDArray[np.float64]

ASSUMPTIONS = (
    "Compute kernels and copies last as long as recorded, beside faster or slower collectives too.",
    "A kernel that started within 10 µs of the end of another, or of its launch, had waited for"
    " it; waits that never showed, because what they wait for was early, are not known.",
    "A collective waits for the compute kernels launched before it, unless its stream is seen not"
    " to.",
    "The host launches at the recorded pace; where it stopped launching until the GPU was done,"
    " it waits for the GPU again.",
    "A collective's transfer starts when its last rank arrives, and all calls of a class change by"
    " the same factor.",
)


@dataclass(frozen=True, slots=True)
class NewTime:
    """Time of one call of a class after the change, ns."""

    time_ns: float
    low_ns: float | None = None  # of the measurement's spread
    high_ns: float | None = None
    # The class before the change, measured as `time_ns` was. With it the calls change by the
    # ratio of the two, so that what slows them down in the job stays; without it they are taken
    # to last `time_ns` in the job.
    old_ns: float | None = None
    bound: bool = False  # a class that is faster than `time_ns` already stays as it is


@dataclass(frozen=True, slots=True)
class _Factors:
    """Factors of the transfer per part: middle, low, high."""

    middle: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Recorded:
    """What predictions start from."""

    rows: Rows
    calls: Calls
    times: CallTimes
    exposed: Ints  # (rows,)
    steps: Steps
    graph: Graph
    transfer: Ints  # (parts,) known, or the shortest duration of the class in its stead
    simulated_ns: float | None  # step time by simulation with nothing changed; None: no rows


def prepare(rows: Rows, calls: Calls, times: CallTimes, clocks: Clocks, exposed: Ints) -> Recorded:
    """Steps and dependencies of a record; several predictions may share them."""
    steps = find_steps(rows, calls, times)
    graph = build_graph(rows, calls, times, clocks, steps.rows)
    unchanged = play(graph, np.zeros(len(calls.row)))
    transfer = _transfers(calls, times)
    simulated = steps.mean_ns(rows.end, unchanged)
    return Recorded(rows, calls, times, exposed, steps, graph, transfer, simulated)


def _transfers(calls: Calls, times: CallTimes) -> Ints:
    """Transfer of each part; where it is not known, the shortest of its class waited least."""
    duration = times.end - times.start
    class_ = calls.class_[calls.call_of_part]
    least = np.full(len(calls.classes), np.iinfo(np.int64).max)
    np.minimum.at(least, class_, duration)
    return np.where(times.part_transfer >= 0, times.part_transfer, least[class_])


def predict(
    recorded: Recorded,
    new: Mapping[CollectiveClass, NewTime],
    *,
    measured_step_ns: float | None = None,
) -> Prediction | None:
    """Step time with the classes of `new` changed; None for a record without rows.

    measured_step_ns  the step time without the profiler: the simulated difference is put on it
    """
    step, simulated = recorded.steps.mean_ns(recorded.rows.end), recorded.simulated_ns
    if step is None or simulated is None:
        return None
    factors, changed, unchanged = _factors(recorded, new)
    base = step if measured_step_ns is None else measured_step_ns
    after, low, high = (
        max(0.0, base + _simulate(recorded, f) - simulated)
        for f in (factors.middle, factors.low, factors.high)
    )
    assumptions = list(ASSUMPTIONS)
    if not recorded.times.known.all():
        assumptions.append(
            "Where too few ranks are known to split waiting from transfer, the shortest duration"
            " of the class is its transfer."
        )
    if measured_step_ns is not None:
        assumptions.append("The change is the same with and without the profiler.")
    if recorded.graph.ignored:
        assumptions.append(
            f"{recorded.graph.ignored} dependencies that contradict the clocks are left out."
        )
    return Prediction(
        step_ns=base,
        simulated_ns=base + simulated - step,
        new_ns=after,
        low_ns=min(low, after),
        high_ns=max(high, after),
        simple_ns=base - _simple_saving(recorded, factors.middle),
        steps=int(recorded.steps.count.max(initial=0)),
        step_from=recorded.steps.source,
        changed=changed,
        unchanged=unchanged,
        assumptions=tuple(assumptions),
    )


def _factors(
    recorded: Recorded, new: Mapping[CollectiveClass, NewTime]
) -> tuple[_Factors, tuple[ChangedClass, ...], tuple[CollectiveClass, ...]]:
    """Factor of each part's transfer; classes with a new time, and those without."""
    calls, times = recorded.calls, recorded.times
    factors = np.ones((3, len(calls.classes)))
    changed, unchanged = [], []
    counts = ~times.warm_up
    of_call = np.where(times.known, times.transfer, 0)
    np.maximum.at(
        of_call, calls.call_of_part, np.where(times.known[calls.call_of_part], 0, recorded.transfer)
    )
    for k, key in enumerate(calls.classes):
        mine = counts & (calls.class_ == k)
        median = float(np.median(of_call[mine])) if mine.any() else 0.0
        if key not in new or median <= 0:
            unchanged.append(key)
            continue
        given = new[key]
        base = given.old_ns or median
        time = min(given.time_ns, base) if given.bound else given.time_ns
        low, high = given.low_ns or time, given.high_ns or time
        factors[:, k] = [time / base, low / base, high / base]
        changed.append(ChangedClass(key, int(mine.sum()), median, median * float(factors[0, k])))
    per_call = np.where(counts, factors[:, calls.class_], 1.0)
    return _Factors(*per_call[:, calls.call_of_part]), tuple(changed), tuple(unchanged)


def _simulate(recorded: Recorded, factor: Floats) -> float:
    """Step time, ns, with the transfers changed by `factor` (parts,)."""
    times, call = recorded.times, recorded.calls.call_of_part
    # The skew of the ends shrinks and grows with the transfer.
    lasts = np.where(recorded.graph.alone, recorded.transfer, times.end - times.arrival[call])
    shift = play(recorded.graph, lasts * (factor - 1))
    step = recorded.steps.mean_ns(recorded.rows.end, shift)
    assert step is not None  # the caller has seen that there are steps
    return step


def _simple_saving(recorded: Recorded, factor: Floats) -> float:
    """ns a step by the uplift formula: the exposed part of each transfer changes by its factor.

    source  s = sum of f * e * phi * (1 - eta) over classes; the mean over ranks
    """
    calls, times, steps, rows = recorded.calls, recorded.times, recorded.steps, recorded.rows
    first, last = np.maximum.reduceat(rows.end[steps.rows], steps.bounds).reshape(2, -1)
    trace = rows.trace[steps.rows[steps.bounds[: len(steps.count)]]]
    begin = np.full(len(rows.ranks), np.iinfo(np.int64).max)
    finish = np.full(len(rows.ranks), np.iinfo(np.int64).min)
    begin[trace], finish[trace] = first, last
    end = rows.end[calls.row]
    inside = (end > begin[calls.trace]) & (end <= finish[calls.trace])
    duration = np.maximum(times.end - times.start, 1)
    part = recorded.exposed[calls.row] * (recorded.transfer / duration) * (1 - factor)
    saved = np.bincount(calls.trace[inside], weights=part[inside], minlength=len(rows.ranks))
    return float((saved[trace] / steps.count).mean())
