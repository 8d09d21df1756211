"""Step time with something else than recorded, by playing the recorded steps again (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model import CollectiveClass
from collscope.model.trace import HostCalls, Ints
from collscope.timeline.causal import FIRST, HOST, Graph, build_graph
from collscope.timeline.clocks import Clocks
from collscope.timeline.contention import Contention, beside_collectives, measure_contention
from collscope.timeline.play import Substitutions, longest_path, play
from collscope.timeline.records import Bound, ChangedClass, Knowledge, Prediction
from collscope.timeline.steps import Steps, find_steps
from collscope.timeline.waits import CallTimes

Floats = npt.NDArray[np.float64]

HOST_PRIOR = {"light": (0.6, 1.0), "full": (0.4, 1.0)}
"""Time of the host's work without the profiler, in parts of that with it.

source  a loop of small launches on 4 x H200, torch 2.11 (`benchmarks/gpu/jobs.py`, `calibrate`):
        1.06 to 1.26 x slower with CUDA activities, 1.16 to 1.52 x with CPU activities too; a step
        of 3.16 s took 6.17 with the latter (kineto's issues). Ranges are wider than either.
"""
_STARTS = 0.03  # two starts of one setting differ by so much; stated, not measured per job
# The ratio of a host's paces in two starts of one job. source: a host-bound FSDP job differed by
# 10 to 20 % from start to start on one machine.
_HOST_STARTS = 0.2
_GIVEN = 0.02  # what is given as the step time is true to so much
_SLOWDOWN_PRIOR = 0.5  # most that collectives slow down compute beside them, where not measured
_IDLE = 0.1  # of the step; more of it without a known cause widens the range
_PACES = np.array([0.02, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0])
_PASSES = 1  # of the overlap that the durations depend on


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
class Sequence:
    """What collectives of one class and one group have in common; groups are told by ranks."""

    key: CollectiveClass
    ranks: tuple[int, ...]
    group: str | None


Transfers = Mapping[Sequence, Floats]
"""Transfers of the calls of each sequence in their order, ns; NaN where not known."""


@dataclass(frozen=True)
class Recorded:
    """What predictions start from."""

    rows: Rows
    calls: Calls
    times: CallTimes
    exposed: Ints  # (rows,)
    steps: Steps
    graph: Graph
    contention: Contention
    full: bool  # the profiler recorded CPU activities, too

    @cached_property
    def step_ns(self) -> float | None:
        """Step time as recorded; None without steps."""
        return self.steps.mean_ns(self.rows.end)

    @cached_property
    def simulated_ns(self) -> float | None:
        """The same, played."""
        return self.step(play(self.graph, Substitutions()), self.graph.duration)

    def step(self, time: Floats, duration: Floats | Ints) -> float | None:
        """Step time when the nodes have other times."""
        return self.steps.mean_ns(time[self.graph.end_node] + duration)


def prepare(
    rows: Rows,
    calls: Calls,
    times: CallTimes,
    clocks: Clocks,
    exposed: Ints,
    host: tuple[HostCalls | None, ...],
) -> Recorded:
    """Steps and causes of a record; several predictions may share them."""
    steps = find_steps(rows, calls, times)
    graph = build_graph(rows, host, calls, times, clocks)
    full = any(e.group is not None or e.in_count is not None for e in rows.entries)
    return Recorded(rows, calls, times, exposed, steps, graph, measure_contention(rows), full)


def transfers_of(rows: Rows, calls: Calls, times: CallTimes) -> Transfers:
    """All that a prediction takes from another run: how long the transfers of its calls were."""
    found: dict[Sequence, Floats] = {}
    for sequence, mine in _sequences(rows, calls):
        found[sequence] = np.where(times.known[mine], times.transfer[mine], np.nan)
    return found


def _sequences(rows: Rows, calls: Calls) -> Iterator[tuple[Sequence, Ints]]:
    """Each class of each group, and its calls in their order."""
    pairs = calls.group.astype(np.int64) * len(calls.classes) + calls.class_
    for pair in np.unique(pairs).tolist():
        group = calls.groups[pair // len(calls.classes)]
        ranks = tuple(rows.ranks[t] for t in group.members)
        mine = np.flatnonzero(pairs == pair)
        yield (
            Sequence(calls.classes[pair % len(calls.classes)], ranks, group.name),
            mine[np.argsort(calls.seq[mine], kind="stable")],
        )


def predict(
    recorded: Recorded,
    new: Mapping[CollectiveClass, NewTime],
    *,
    traced: Transfers | None = None,
    measured_step_ns: float | None = None,
) -> Prediction | None:
    """Step time with the classes of `new` changed; None for a record without rows.

    traced            transfers of a run with the new setting: they replace `new`
    measured_step_ns  the step time without the profiler, of the recorded setting
    """
    step, simulated = recorded.step_ns, recorded.simulated_ns
    if not step or not simulated:
        return None
    factors, changed, unchanged = _factors(recorded, new, traced)
    host = _host_pace(recorded, measured_step_ns)
    slower = _slower(recorded, factors.middle)
    base = step if measured_step_ns is None else measured_step_ns
    middle = _Scenario(host.middle, factors.middle, slower.middle)
    before, after = _play(recorded, middle.unchanged()), _play(recorded, middle)
    if before.step <= 0:
        return None
    ratio = after.step / before.step
    ratios = [ratio, *_ratios(recorded, factors, host, slower)]
    # A step that is shorter than the GPU's part of the recorded one: the profiler slowed the GPU,
    # too, or made ranks wait. Whether the new step would be slowed as well is not known; what it
    # is longer by may hide it.
    excess = 1.0 if measured_step_ns is None else max(1.0, before.step / measured_step_ns)
    if excess > 1 + _GIVEN:
        ratios += [r * excess for r in ratios]
        slowed = before.step * (1 - 1 / excess)
        ratio *= float(excess ** (0.5 * np.clip((after.step - before.step) / slowed, 0.0, 1.0)))
    if (factors.high <= 1).all():
        # No faster collective makes a step longer.
        ratio, ratios = min(ratio, 1.0), [min(r, 1.0) for r in ratios]
    idle = float((recorded.graph.idle_ns / recorded.steps.count.max()).mean()) / step
    margin = _STARTS + max(0.0, idle - _IDLE) + max(0.0, abs(simulated / step - 1) - _STARTS)
    same = bool((factors.middle == 1).all()) and factors.exact
    if same:
        ratios, margin = [1.0], 0.0
    return Prediction(
        step_ns=base,
        simulated_ns=simulated,
        recorded_ns=step,
        new_ns=base * ratio,
        low_ns=base * min(ratios) * (1 - margin),
        high_ns=base * max(ratios) * (1 + margin),
        simple_ns=base * (1 - _simple_saving(recorded, factors.middle) / step),
        steps=int(recorded.steps.count.max(initial=0)),
        step_from=recorded.steps.source,
        changed=changed,
        unchanged=unchanged,
        knowledge=Knowledge(
            host_low=host.low,
            host=host.middle,
            host_high=host.high,
            host_given=measured_step_ns is not None,
            host_determined=host.determined,
            host_bound=float(recorded.graph.bound.sum() / max(1, recorded.graph.launches.sum())),
            slowdown=recorded.contention.slowdown,
            edges_told=recorded.graph.edges.told,
            edges_inferred=recorded.graph.edges.inferred,
            edges_contradicted=recorded.graph.edges.contradicted,
            edges_unknown=recorded.graph.edges.unknown,
            idle_unexplained=idle,
            full=recorded.full,
        ),
        bound_before=_bounds(recorded, before, base / before.step),
        bound_after=_bounds(recorded, after, base / before.step),
    )


@dataclass(frozen=True, slots=True)
class _Factors:
    """Factors of the transfer per part: middle, low, high."""

    middle: Floats
    low: Floats
    high: Floats

    @property
    def exact(self) -> bool:
        """No spread is known."""
        return bool((self.low == self.middle).all() and (self.high == self.middle).all())


@dataclass(frozen=True, slots=True)
class _Range:
    low: float
    middle: float
    high: float
    determined: bool = True


@dataclass(frozen=True, slots=True)
class _Scenario:
    host: float
    factor: Floats  # (parts,)
    slowdown: float  # of compute beside the new collectives
    unchanged_slowdown: float | None = None

    def unchanged(self) -> _Scenario:
        """The same host with the recorded collectives."""
        return _Scenario(self.host, np.ones(len(self.factor)), -1.0)


@dataclass(frozen=True, slots=True)
class _Played:
    step: float
    new: Substitutions
    time: Floats
    duration: Floats


def _play(recorded: Recorded, scenario: _Scenario) -> _Played:
    """Play with a host's pace, other transfers, and compute slowed down by what is beside it.

    A slowdown below 0 is the recorded one.
    """
    graph, contention = recorded.graph, recorded.contention
    # Transfers that are not known apart from the waiting change by what they mostly are.
    transfer = graph.transfer + recorded_transfers(recorded) * (scenario.factor - 1)
    duration = graph.duration.astype(np.float64)
    alone = contention.alone(duration)
    slowdown = scenario.slowdown
    if slowdown < 0:
        slowdown = contention.slowdown or 0.0
    for _ in range(_PASSES):
        new = Substitutions(transfer=transfer, duration=duration, host=scenario.host)
        time = play(graph, new)
        if contention.slowdown is None and slowdown == 0:
            break
        start = time[graph.start_node]
        share = beside_collectives(recorded.rows, start, time[graph.end_node] + graph.duration)
        duration = alone * (1 + slowdown * share)
    new = Substitutions(transfer=transfer, duration=duration, host=scenario.host)
    time = play(graph, new)
    return _Played(float(recorded.step(time, duration) or 0.0), new, time, duration)


def recorded_transfers(recorded: Recorded) -> Floats:
    """Transfer of each part; where waiting cannot be told from it, the shortest of its class."""
    graph, calls = recorded.graph, recorded.calls
    class_ = calls.class_[calls.call_of_part]
    least = np.full(len(calls.classes), np.inf)
    np.minimum.at(least, class_, graph.transfer)
    return np.where(graph.alone, np.minimum(least[class_], graph.transfer), graph.transfer)


def _host_pace(recorded: Recorded, measured_ns: float | None) -> _Range:
    """Time of the host's work without the profiler, in parts of the recorded.

    The step time without the profiler tells it where the host is what bounds that step.
    """
    low, high = HOST_PRIOR["full" if recorded.full else "light"]
    if measured_ns is None:
        return _Range(low, float(np.sqrt(low * high)), high, determined=False)
    parts = len(recorded.graph.transfer)

    steps = np.array(
        [_play(recorded, _Scenario(pace, np.ones(parts), -1.0)).step for pace in _PACES]
    )
    steps = np.maximum.accumulate(steps)  # a slower host shortens no step
    goal = max(measured_ns, steps[0])
    least, most = (_pace(steps, goal * (1 + change)) for change in (-_GIVEN, _GIVEN))
    if measured_ns >= steps[-1]:
        return _Range(1.0, 1.0, 1.0)  # the profiler made nothing slower
    if most - least < 0.2 * most:
        return _Range(least, (least + most) / 2, most)
    # The GPU bounds the step: what the host would need is not in the record.
    lower, upper = max(least, min(low, most)), min(most, max(high, least))
    middle = min(max(float(np.sqrt(low * high)), lower), upper)
    return _Range(lower, middle, upper, determined=False)


def _pace(steps: Floats, goal: float) -> float:
    """Largest of the paces with which a step is no longer than `goal`, interpolated."""
    over = int(np.searchsorted(steps, goal, side="right"))
    if over in (0, len(steps)):
        return float(_PACES[min(over, len(steps) - 1)])
    part = (goal - steps[over - 1]) / (steps[over] - steps[over - 1])
    return float(_PACES[over - 1] + part * (_PACES[over] - _PACES[over - 1]))


def _slower(recorded: Recorded, factor: Floats) -> _Range:
    """Slowdown of compute beside the new collectives.

    They hold as many multiprocessors (the slowdown stays), or move as many bytes (it falls as they
    take longer): which, is not in their times. The middle is the geometric mean of the two.
    """
    slowdown = recorded.contention.slowdown
    if slowdown is None:
        return _Range(0.0, 0.0, 0.0, determined=False)
    transfer = recorded_transfers(recorded)
    total = float(transfer.sum())
    rate = total / max(1.0, float((transfer * factor).sum())) if total > 0 else 1.0
    other = min(slowdown * rate, max(slowdown, _SLOWDOWN_PRIOR))
    return _Range(min(slowdown, other), float(np.sqrt(slowdown * other)), max(slowdown, other))


def _ratios(recorded: Recorded, factors: _Factors, host: _Range, slower: _Range) -> Iterator[float]:
    """New step against the old one in every corner of what is not known."""
    paces = sorted({host.low, host.middle, host.high})
    before = {pace: _play(recorded, _Scenario(pace, np.ones(len(factors.middle)), -1.0)).step
              for pace in paces}  # fmt: skip
    before = {pace: max(step, 1.0) for pace, step in before.items()}
    for pace, (factor, slowdown) in product(
        paces, ((factors.low, slower.low), (factors.high, slower.high))
    ):
        yield _play(recorded, _Scenario(pace, factor, slowdown)).step / before[pace]
    for change in (1 - _HOST_STARTS, 1 + _HOST_STARTS):
        pace = host.middle
        scenario = _Scenario(pace * change, factors.middle, slower.middle)
        yield _play(recorded, scenario).step / before[pace]


def _factors(
    recorded: Recorded, new: Mapping[CollectiveClass, NewTime], traced: Transfers | None
) -> tuple[_Factors, tuple[ChangedClass, ...], tuple[CollectiveClass, ...]]:
    """Factor of each part's transfer; classes with a new time, and those without."""
    calls, times = recorded.calls, recorded.times
    factors = np.ones((3, len(calls)))
    if traced is not None:
        known = _by_place(recorded, traced, factors)
        _widen_unknown(recorded, known, factors)
    else:
        known = _by_class(recorded, new, factors)
    counts = ~times.warm_up
    of_part = recorded_transfers(recorded)
    of_call = np.zeros(len(calls))
    np.maximum.at(of_call, calls.call_of_part, of_part)
    changed, unchanged = [], []
    for k, key in enumerate(calls.classes):
        mine = counts & (calls.class_ == k)
        if not mine.any() or k not in known:
            unchanged.append(key)
            continue
        old = of_call[mine]
        changed.append(
            ChangedClass(
                key, int(mine.sum()), float(np.median(old)),
                float(np.median(old * factors[0, mine])),
            )
        )  # fmt: skip
    per_part = np.where(counts, factors, 1.0)[:, calls.call_of_part]
    return _Factors(*per_part), tuple(changed), tuple(unchanged)


def transfer_factors(
    recorded: Recorded, traced: Transfers
) -> tuple[Floats, tuple[ChangedClass, ...], tuple[CollectiveClass, ...]]:
    """Factors (middle, low, high) of each part's transfer by the calls of another run.

    Shape (3, parts); with the classes that have any, and those that have none.
    """
    factors, changed, unchanged = _factors(recorded, {}, traced)
    return np.stack([factors.middle, factors.low, factors.high]), changed, unchanged


def _by_class(
    recorded: Recorded, new: Mapping[CollectiveClass, NewTime], factors: Floats
) -> set[int]:
    """Set the factors of classes with one new time each; which they are."""
    calls, counts = recorded.calls, ~recorded.times.warm_up
    of_call = np.zeros(len(calls))
    np.maximum.at(of_call, calls.call_of_part, recorded_transfers(recorded))
    known = set()
    for k, key in enumerate(calls.classes):
        mine = counts & (calls.class_ == k)
        median = float(np.median(of_call[mine])) if mine.any() else 0.0
        if key not in new or median <= 0:
            continue
        given = new[key]
        base = given.old_ns or median
        time = min(given.time_ns, base) if given.bound else given.time_ns
        low, high = given.low_ns or time, given.high_ns or time
        factors[:, calls.class_ == k] = np.array([[time], [low], [high]]) / base
        known.add(k)
    return known


def _by_place(recorded: Recorded, traced: Transfers, factors: Floats) -> set[int]:
    """Set the factors by the calls of another run, place by place of the step; classes with any.

    Where the places cannot be told, all calls of a class change by the ratio of the means.
    """
    calls, times = recorded.calls, recorded.times
    steps = max(1, int(recorded.steps.count.max(initial=1)))
    known = set()
    for sequence, mine in _sequences(recorded.rows, calls):
        theirs = traced.get(sequence)
        if theirs is None:
            alike = [v for s, v in traced.items() if s.key == sequence.key]
            theirs = np.concatenate(alike) if alike else np.empty(0)
        own = np.where(times.known[mine], times.transfer[mine], np.nan)
        if np.isfinite(theirs).sum() == 0 or np.isfinite(own).sum() == 0:
            continue
        known.add(int(calls.class_[mine[0]]))
        per_step = _per_step(recorded, mine, steps)
        factors[:, mine] = _ratio(own, theirs, per_step if sequence in traced else 0)
    return known


def _widen_unknown(recorded: Recorded, known: set[int], factors: Floats) -> None:
    """Let classes that the other run tells nothing of change at most as the others do."""
    calls = recorded.calls
    of_call = np.zeros(len(calls))
    np.maximum.at(of_call, calls.call_of_part, recorded_transfers(recorded))
    there = np.isin(calls.class_, sorted(known))
    total = float(of_call[there].sum())
    if total > 0:
        change = float((of_call * factors[0])[there].sum()) / total
        factors[1:, ~there] = [[min(1.0, change)], [max(1.0, change)]]


def _per_step(recorded: Recorded, mine: Ints, steps: int) -> int:
    """Calls of a sequence a step; 0 where the steps differ in it."""
    rows, calls = recorded.rows, recorded.calls
    first = calls.offsets[mine]
    trace = calls.trace[first]
    begin, finish = recorded.steps.span(rows.end, len(rows.ranks))
    end = rows.end[calls.row[first]]
    inside = int(((end > begin[trace]) & (end <= finish[trace])).sum())
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
    whole = values[len(values) % per_step :].reshape(-1, per_step)
    with np.errstate(all="ignore"):
        found: Floats = np.array([np.median(c[np.isfinite(c)]) if np.isfinite(c).any() else np.nan
                                  for c in whole.T])  # fmt: skip
    return found


def _step_sums(values: Floats, per_step: int) -> Floats:
    whole = values[len(values) % per_step :].reshape(-1, per_step)
    sums: Floats = whole.sum(axis=1)
    return sums[np.isfinite(sums)]


def _turn(ours: Floats, other: Floats) -> int:
    """By how many places the other run's step begins later: windows may begin anywhere in it."""
    if len(ours) < 3 or np.ptp(np.log(np.maximum(ours, 1))) < 0.1:
        return 0
    a, b = (np.log(np.maximum(v, 1.0)) for v in (ours, other))
    likeness = np.array([np.corrcoef(a, np.roll(b, k))[0, 1] for k in range(len(a))])
    best = int(np.nanargmax(likeness)) if np.isfinite(likeness).any() else 0
    return best if likeness[best] > likeness[0] + 0.1 else 0


def bounds(recorded: Recorded) -> tuple[Bound, ...]:
    """What bounds a recorded step, ns a step, the most first; none without steps."""
    if not recorded.step_ns:
        return ()
    parts = len(recorded.graph.transfer)
    return _bounds(recorded, _play(recorded, _Scenario(1.0, np.ones(parts), -1.0)), 1.0)


def _bounds(recorded: Recorded, played: _Played, scale: float) -> tuple[Bound, ...]:
    """What bounds a step: the longest path through the steps by kind, ns a step, the most first."""
    graph, rows, steps = recorded.graph, recorded.rows, recorded.steps
    end = played.time[graph.end_node] + played.duration
    begin, finish = steps.span(end, len(rows.ranks))
    trace = int((finish - begin).argmax())
    of_rank = steps.last_rows(trace)
    row = int(of_rank[end[of_rank].argmax()])
    path = longest_path(
        graph, played.new, played.time, int(graph.end_node[row]), float(begin[trace])
    )
    part = graph.part[path.node - FIRST]
    class_of = np.full(len(path.node), -1)
    on = (path.slot == HOST) & (part >= 0)
    class_of[on] = recorded.calls.class_[recorded.calls.call_of_part[part[on]]]
    count = max(1, int(steps.count.max()))
    found = [Bound("host", None, float(path.work.sum()) / count * scale),
             Bound("compute", None, float(path.lasted.sum()) / count * scale),
             Bound("waiting", None, float(path.gap.sum()) / count * scale)]  # fmt: skip
    for k in np.unique(class_of[class_of >= 0]).tolist():
        total = float(path.transfer[class_of == k].sum())
        found.append(Bound("collective", recorded.calls.classes[k], total / count * scale))
    return tuple(sorted(found, key=lambda b: -b.ns))


def _simple_saving(recorded: Recorded, factor: Floats) -> float:
    """ns a step by the uplift formula: the exposed part of each transfer changes by its factor.

    source  s = sum of f * e * phi * (1 - eta) over classes; the mean over ranks
    """
    calls, times, steps, rows = recorded.calls, recorded.times, recorded.steps, recorded.rows
    begin, finish = steps.span(rows.end, len(rows.ranks))
    end = rows.end[calls.row]
    inside = (end > begin[calls.trace]) & (end <= finish[calls.trace])
    duration = np.maximum(times.end - times.start, 1)
    transfer = recorded_transfers(recorded)
    part = recorded.exposed[calls.row] * (np.minimum(transfer, duration) / duration) * (1 - factor)
    saved = np.bincount(calls.trace[inside], weights=part[inside], minlength=len(rows.ranks))
    return float(saved.mean() / max(1, int(steps.count.max(initial=1))))
