"""Step time with something else than recorded, by playing the recorded steps again (pure)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model import CollectiveClass
from collscope.model.profile import other_profilers
from collscope.model.trace import Call, HostCalls, Ints
from collscope.model.trace_collective import shows_cpu_activities
from collscope.timeline.causal import build_graph
from collscope.timeline.clocks import Clocks
from collscope.timeline.contention import Contention, measure_contention
from collscope.timeline.exchanges import with_exchanges
from collscope.timeline.graph import FIRST, HOST, Graph
from collscope.timeline.play import Played, Substitutions, longest_path, play
from collscope.timeline.records import Bound, ChangedClass, Knowledge, Prediction
from collscope.timeline.starts import Starts, find_starts
from collscope.timeline.steps import Steps, find_steps
from collscope.timeline.waits import CallTimes, call_times

Floats = npt.NDArray[np.float64]

HOST_PRIOR = {"light": (0.6, 1.0), "full": (0.4, 0.95), "other": (0.4, 1.0)}
"""Time of the host's work without the profiler, in parts of that with it.

source  a loop of small launches on 4 x H200, torch 2.11 (`benchmarks/gpu/jobs.py`, `calibrate`), in
        twelve starts: 0.89 to 1.31 x as long with CUDA activities, 1.07 to 1.52 x with CPU
        activities too; a step of 3.16 s took 6.17 with the latter (kineto's issues). The least cost
        measured is the upper end, but no profiler makes a host faster; the lower one lies below
        the most: ranks that share a host's cores bear more.
        What other profilers cost was not measured: both ranges together. They record calls and
        kernels, as PyTorch's does without CPU activities, so that the middle is the one of that.
"""
STARTS = 0.03  # two starts of one setting differ by so much; stated, not measured per job
SLOWDOWN_PRIOR = 0.4
"""Most that collectives slow down a job's compute beside them, where the record does not tell it.

source  arXiv 2507.03114, training on A100, H100, MI250, MI210: 19 % on average, 40 % at most
"""
# The ratio of a host's paces in two starts of one job. source: docs/validation.md, "Cost of
# the profiler": steps of host-bound jobs in pairs of starts of one setting.
HOST_STARTS = 0.3
# At its power cap a GPU's clock follows what power the change spares. source: docs/validation.md,
# 2 x H200: steps 1.26 x as long with two channels, clock from 1667 to 1950 MHz of 1980 at most.
_CLOCK_EXPONENT, _MOST_CLOCK = 0.67, 1.19
_GIVEN = 0.02  # what is given as the step time is true to so much
_IDLE = 0.1  # of the step; more of it without a known cause widens the range
_PACES = (0.02, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0)


class NewTime(msgspec.Struct, frozen=True):
    """Time of one call of a class after the change, ns."""

    time_ns: float
    low_ns: float | None = None  # of the measurement's spread
    high_ns: float | None = None
    # The class before the change, measured as `time_ns` was. With it the calls change by the
    # ratio of the two, so that what slows them down in the job stays; without it they are taken
    # to last `time_ns` in the job.
    old_ns: float | None = None
    bound: bool = False  # a class that is faster than `time_ns` already stays as it is


class Sequence(msgspec.Struct, frozen=True):
    """What collectives of one class and one group have in common; groups are told by ranks."""

    key: CollectiveClass
    ranks: tuple[int, ...]
    group: str | None


class Traced(msgspec.Struct, frozen=True):
    """Calls of a sequence in their order, NaN where not known."""

    transfer: Floats  # ns
    blocks: Floats  # thread blocks of the kernels: multiprocessors that they hold


Transfers = Mapping[Sequence, Traced]
"""What is taken from another run."""


class Recorded(msgspec.Struct, frozen=True, dict=True):
    """What predictions start from."""

    rows: Rows
    calls: Calls
    times: CallTimes
    exposed: Ints  # (rows,)
    steps: Steps
    graph: Graph
    contention: Contention
    # The calls of the graph: with Sends and Recvs whose peer no trace names, by the clock.
    linked: Calls
    linked_times: CallTimes
    full: bool  # the profiler recorded CPU activities, too
    host_calls: bool  # all traces tell the calls of their hosts
    event_records: bool  # and those that wait for events tell the records of these, too

    @property
    def blocks(self) -> float | None:
        """Thread blocks of the collectives' kernels, the median by time; None where not told."""
        blocks = _blocks(self.rows, self.linked)[self.linked.call_of_part]
        order = np.argsort(blocks)[: np.isfinite(blocks).sum()]  # NaN comes last
        spent = np.cumsum((self.linked_times.end - self.linked_times.start)[order])
        return float(blocks[order][np.searchsorted(spent, spent[-1] / 2)]) if len(order) else None

    @property
    def profiler(self) -> str:
        """What was recorded, and how: a key of `HOST_PRIOR`."""
        if other_profilers(self.rows.dialects):
            return "other"
        return "full" if self.full else "light"

    @property
    def groups_inferred(self) -> int:
        """Process groups of some of the ranks that no trace names: whose calls end together."""
        groups, ranks = self.calls.groups, len(self.rows.ranks)
        return sum(g.identity == "inferred" and 1 < len(g.members) < ranks for g in groups)

    @cached_property
    def step_ns(self) -> float | None:
        """Step time as recorded; None without steps."""
        return self.steps.mean_ns(self.rows.end)

    @cached_property
    def simulated(self) -> Played:
        """The record played from its causes alone, without the recorded starts."""
        return play(self.graph, Substitutions(usual=True))

    @cached_property
    def starts(self) -> Starts | None:
        """Where the collectives of a step started."""
        return find_starts(self.rows, self.linked, self.steps, self.rows.start, self.rows.end)

    def starts_off_ns(self, played: Played, starts: Starts | None) -> float | None:
        """How far played collectives start from `starts`, at the median."""
        begin = played.time[self.graph.start_node]
        found = find_starts(self.rows, self.linked, self.steps, begin, played.end)
        return None if found is None or starts is None else found.apart_ns(starts)

    def step(self, played: Played) -> float:
        """Step time as played, ns; 0 without steps."""
        return self.steps.mean_ns(played.end) or 0.0


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
    linked, linked_times = link(rows, calls, times, clocks)
    graph = build_graph(rows, host, linked, linked_times, clocks)
    contention = measure_contention(rows, linked)
    told = [h for h in host if h is not None]
    return Recorded(
        rows, calls, times, exposed, steps, graph, contention, linked, linked_times,
        full=shows_cpu_activities(rows.entries),
        host_calls=len(told) == len(host),
        event_records=all(
            (h.kind == Call.RECORD).any() or not (h.kind == Call.WAIT).any() for h in told
        ),
    )  # fmt: skip


def link(rows: Rows, calls: Calls, times: CallTimes, clocks: Clocks) -> tuple[Calls, CallTimes]:
    """The calls that a graph is made of: with Sends and Recvs paired by the clock."""
    linked, same = with_exchanges(rows, calls, clocks)
    alike = linked is calls and np.array_equal(same.component, clocks.component)
    return linked, times if alike else call_times(rows, linked, same)


def transfers_of(rows: Rows, calls: Calls, times: CallTimes) -> Transfers:
    """All that a prediction takes from another run: its calls' transfers, and thread blocks."""
    blocks, transfer = _blocks(rows, calls), _known_transfers(calls, times)
    return {
        sequence: Traced(transfer[mine], blocks[mine]) for sequence, mine in _sequences(rows, calls)
    }


def _known_transfers(calls: Calls, times: CallTimes) -> Floats:
    """Transfer of each call, ns; NaN where not known.

    Of Sends and Recvs none of which has a partner the shortest kernel is the one that waited least.
    """
    found = np.where(times.known, times.transfer, np.nan)
    duration = times.end - times.start
    for k in np.unique(calls.class_[calls.p2p]).tolist():
        mine = calls.class_ == k
        if not np.isfinite(found[mine]).any():
            found[mine & calls.p2p] = duration[mine[calls.call_of_part]].min()
    return found


def _blocks(rows: Rows, calls: Calls) -> Floats:
    """Thread blocks of each call's kernels; NaN where not told."""
    told = np.array([e.blocks or np.nan for e in rows.entries] + [np.nan])
    return told[rows.entry[calls.row[calls.offsets[:-1]]]]


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
    starts: Starts | None = None,
    measured_step_ns: float | None = None,
) -> Prediction | None:
    """Step time with the classes of `new` changed; None for a record without rows.

    traced            transfers of a run with the new setting: they replace `new`
    starts            of that run: what is predicted is held against them, and uses nothing of them
    measured_step_ns  the step time without the profiler, of the recorded setting
    """
    step, simulated = recorded.step_ns, recorded.step(recorded.simulated)
    if not step or not simulated:
        return None
    factors, changed, unchanged = _factors(recorded, new, traced)
    readings = _readings(recorded, factors.middle, traced)
    player = _Player(recorded)
    host = _host_pace(player, measured_step_ns, readings[0])
    base = step if measured_step_ns is None else measured_step_ns
    middle = _Scenario(host.middle, factors.middle, readings[0])
    before, after = player.before(host.middle, readings[0]), player.after(middle)
    old, new_step = recorded.step(before), recorded.step(after)
    if old <= 0 or new_step <= 0:
        return None
    ratio = new_step / old
    others = [*_alternatives(player, middle, factors, host, readings)]
    hosts = _other_hosts(player, middle, host)
    others += [hosts, (_other_clock(player, middle, old, ratio),)]
    if old > base * (1 + _GIVEN):
        # The profiler slowed the GPU, too. What the change adds or saves may not have been.
        others.append((1 + (new_step - old) / base,))
    idle = float((recorded.graph.idle_ns / recorded.steps.count.max()).mean()) / step
    margin = STARTS + max(0.0, idle - _IDLE) + max(0.0, abs(simulated / step - 1) - STARTS)
    alone, waits = lone_exchanges(recorded)
    margin += waits / step
    if factors.exact and (factors.middle == 1).all():
        others, margin = [], 0.0
    low, high = _range(ratio, others, margin)
    if (factors.high <= 1).all():
        # No faster collective makes a step longer; a slower host of the other start does.
        most = max(1.0, *hosts) + margin
        ratio, low, high = min(ratio, 1.0), min(low, 1.0), min(high, most)
    return Prediction(
        step_ns=base,
        simulated_ns=simulated,
        starts_off_ns=recorded.starts_off_ns(recorded.simulated, recorded.starts),
        other_starts_off_ns=_other_starts_off(player, middle, starts),
        recorded_ns=step,
        new_ns=base * ratio,
        low_ns=base * low,
        high_ns=base * high,
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
            slowdown=recorded.contention.mean,
            blocks=_blocks_change(recorded, traced),
            edges_told=recorded.graph.edges.told,
            edges_inferred=recorded.graph.edges.inferred,
            edges_contradicted=recorded.graph.edges.contradicted,
            edges_unknown=recorded.graph.edges.unknown,
            idle_unexplained=idle,
            exchanges_alone=alone,
            groups_inferred=recorded.groups_inferred,
            full=recorded.full,
            dialects=recorded.rows.dialects,
            host_calls=recorded.host_calls,
            event_records=recorded.event_records,
        ),
        bound_before=_bounds(recorded, before, base),
        bound_after=_bounds(recorded, after, base * ratio),
    )


def simulate(
    recorded: Recorded,
    new: Mapping[CollectiveClass, NewTime],
    *,
    traced: Transfers | None = None,
    measured_step_ns: float | None = None,
) -> Played | None:
    """The record played with the middle of all that `predict` takes the same for.

    None where no class has a new time.
    """
    factors, changed, _ = _factors(recorded, new, traced)
    if not changed:
        return None
    readings = _readings(recorded, factors.middle, traced)
    player = _Player(recorded)
    host = _host_pace(player, measured_step_ns, readings[0])
    return player.after(_Scenario(host.middle, factors.middle, readings[0]))


class _Factors(msgspec.Struct, frozen=True):
    """Factors of the transfer per part: middle, low, high."""

    middle: Floats
    low: Floats
    high: Floats

    @property
    def exact(self) -> bool:
        """No spread is known."""
        return bool((self.low == self.middle).all() and (self.high == self.middle).all())


class _Range(msgspec.Struct, frozen=True):
    low: float
    middle: float
    high: float
    determined: bool = True


class _Beside(msgspec.Struct, frozen=True):
    """One reading of what compute kernels need, beside the old collectives and the new ones."""

    alone: Floats  # (rows,) ns with nothing beside
    old: Floats  # (rows,) slowdown beside the recorded collectives
    new: Floats  # (rows,) and beside those after the change


class _Scenario(msgspec.Struct, frozen=True):
    """One reading of what is not known."""

    host: float
    factor: Floats  # (parts,)
    beside: _Beside


class _Player:
    """Plays scenarios; one that was played before is known."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self._old: dict[tuple[float, int, int], Played] = {}

    def before(self, host: float, beside: _Beside) -> Played:
        """The recorded collectives."""
        key = host, id(beside.alone), id(beside.old)  # which the scenarios keep alive
        if key not in self._old:
            new = Substitutions(host=host, alone=beside.alone, slowdown=beside.old)
            self._old[key] = play(self.recorded.graph, new)
        return self._old[key]

    def after(self, scenario: _Scenario) -> Played:
        """The new collectives."""
        # Transfers that are not known apart from the waiting change by what they mostly are.
        graph, beside = self.recorded.graph, scenario.beside
        transfer = graph.transfer + recorded_transfers(self.recorded) * (scenario.factor - 1)
        return play(graph, Substitutions(transfer, scenario.host, beside.alone, beside.new))

    def old_step(self, host: float, beside: _Beside) -> float:
        """Step with the recorded collectives, ns."""
        return self.recorded.step(self.before(host, beside))

    def new_step(self, scenario: _Scenario) -> float:
        """Step with the new ones, ns."""
        return self.recorded.step(self.after(scenario))


def recorded_transfers(recorded: Recorded) -> Floats:
    """Transfer of each part; where waiting cannot be told from it, the shortest of its class."""
    graph, calls = recorded.graph, recorded.linked
    class_ = calls.class_[calls.call_of_part]
    least = np.full(len(calls.classes), np.inf)
    np.minimum.at(least, class_, graph.transfer)
    return np.where(graph.alone, np.minimum(least[class_], graph.transfer), graph.transfer)


def host_prior(recorded: Recorded) -> tuple[float, float, float]:
    """Least, usual and most of the host's work without the profiler, in parts of the recorded."""
    profiler = recorded.profiler
    low, high = HOST_PRIOR[profiler]
    usual = float(np.sqrt(np.prod(HOST_PRIOR["light" if profiler == "other" else profiler])))
    return low, usual, high


def _host_pace(player: _Player, measured_ns: float | None, beside: _Beside) -> _Range:
    """Time of the host's work without the profiler, in parts of the recorded.

    The step time without the profiler tells it where the host is what bounds that step.
    """
    low, usual, high = host_prior(player.recorded)
    if measured_ns is None:
        return _Range(low, usual, high, determined=False)

    def step(place: int) -> float:
        return player.old_step(_PACES[place], beside)

    goal = min(max(measured_ns, step(0)), step(len(_PACES) - 1))
    least, most = (_pace(step, goal * (1 + change)) for change in (-_GIVEN, _GIVEN))
    if most - least < 0.2 * most:
        return _Range(least, (least + most) / 2, most)
    # The GPU bounds the step: what the host would need is not in the record.
    lower, upper = max(least, min(low, most)), min(most, max(high, least))
    middle = min(max(usual, lower), upper)
    return _Range(lower, middle, upper, determined=False)


def _pace(step: Callable[[int], float], goal: float) -> float:
    """Largest of the paces with which a step is no longer than `goal`, interpolated.

    step  by the place of its pace; a slower host shortens none
    """
    over = bisect_right(range(len(_PACES)), goal, key=step)
    if over in (0, len(_PACES)):
        return _PACES[min(over, len(_PACES) - 1)]
    part = (goal - step(over - 1)) / (step(over) - step(over - 1))
    return _PACES[over - 1] + part * (_PACES[over] - _PACES[over - 1])


def _readings(
    recorded: Recorded, factor: Floats, traced: Transfers | None
) -> tuple[_Beside, _Beside, _Beside]:
    """What is possible beside the new collectives, the middle first.

    A collective slows compute down by the multiprocessors that its kernel holds, and by the bytes
    that it moves. As many of both: the slowdown stays. Between a slowdown that stays and one in
    proportion lies what a change of either does; the middle is their geometric mean.
    """
    graph, contention = recorded.graph, recorded.contention
    duration = graph.duration.astype(np.float64)
    more = _blocks_change(recorded, traced)
    if more is None:
        transfer = recorded_transfers(recorded)
        total, new = float(transfer.sum()), float((transfer * factor).sum())
        more = total / max(1.0, new) if total > 0 else 1.0

    if contention.mean is None:
        none, prior = np.zeros(len(duration)), np.where(graph.compute, SLOWDOWN_PRIOR, 0.0)
        alone = contention.alone(duration, prior)
        return (
            _Beside(duration, none, none),
            _Beside(alone, prior, prior * min(1.0, more)),
            _Beside(duration, none, prior) if more > 1 else _Beside(alone, prior, prior),
        )
    old = contention.slowdown
    alone = contention.alone(duration, old)
    most = max(1.0, SLOWDOWN_PRIOR / max(contention.mean, 1e-9))
    low, high = min(1.0, more), min(max(1.0, more), most)
    if low == high:
        same = _Beside(alone, old, old)
        return same, same, same
    middle, least, greatest = (
        _Beside(alone, old, old * scale) for scale in (float(np.sqrt(low * high)), low, high)
    )
    if more > 1:
        # What a few blocks do not slow down many may.
        prior = np.where(graph.compute, SLOWDOWN_PRIOR, 0.0)
        greatest = replace(greatest, new=np.maximum(greatest.new, prior))
    return middle, least, greatest


def _blocks_change(recorded: Recorded, traced: Transfers | None) -> float | None:
    """Thread blocks of the other run's kernels against ours, by time; None where not told."""
    calls = recorded.linked
    blocks = _blocks(recorded.rows, calls)
    spent = np.zeros(len(calls))
    np.add.at(spent, calls.call_of_part, recorded.linked_times.end - recorded.linked_times.start)
    old = new = 0.0
    for sequence, mine in _sequences(recorded.rows, calls):
        theirs = None if traced is None else traced.get(sequence)
        if theirs is not None and np.isfinite(theirs.blocks).any():
            known = mine[np.isfinite(blocks[mine])]
            old += float((spent[known] * blocks[known]).sum())
            new += float(spent[known].sum() * np.nanmean(theirs.blocks))
    return new / old if old > 0 else None


def _other_starts_off(player: _Player, middle: _Scenario, starts: Starts | None) -> float | None:
    """How far the new collectives start from those of the other run, whose host is profiled too."""
    if starts is None:
        return None
    return player.recorded.starts_off_ns(player.after(replace(middle, host=1.0)), starts)


def _alternatives(
    player: _Player, middle: _Scenario, factors: _Factors, host: _Range,
    readings: tuple[_Beside, _Beside, _Beside],
) -> Iterator[tuple[float, ...]]:  # fmt: skip
    """New step against the old one with one thing otherwise that is not known, thing by thing."""
    old = player.old_step(middle.host, middle.beside)

    def ratio(other: _Scenario) -> float:
        """The same reading before and after."""
        return player.new_step(other) / (player.old_step(other.host, other.beside) or old)

    yield tuple(ratio(replace(middle, host=pace)) for pace in {host.low, host.high} - {host.middle})
    if not factors.exact:
        yield tuple(player.new_step(replace(middle, factor=factor)) / old
                    for factor in (factors.low, factors.high))  # fmt: skip
    yield tuple(ratio(replace(middle, beside=r)) for r in readings[1:] if r is not middle.beside)


def _other_hosts(player: _Player, middle: _Scenario, host: _Range) -> tuple[float, ...]:
    """New step against the old one where the other start's host has a pace of its own.

    Where the host does not show in the recorded step at all, any of its paces is as likely.
    """
    least, most = (player.old_step(pace, middle.beside) for pace in (host.low, host.high))
    hidden = not host.determined and most <= least * (1 + _GIVEN)
    paces = (host.low, host.high) if hidden else (host.middle, host.middle)
    return tuple(
        player.new_step(replace(middle, host=pace * change)) / player.old_step(pace, middle.beside)
        for pace, change in zip(paces, (1 - HOST_STARTS, 1 + HOST_STARTS), strict=True)
    )


def _other_clock(player: _Player, middle: _Scenario, old: float, ratio: float) -> float:
    """New step against the old one where the GPU is at its power cap: its clock changes.

    Collectives take less power than compute: where the step gets longer by them, compute gets
    faster, and the other way round. No trace tells whether the GPU is at the cap. What the clock
    follows is the step that it makes: the ratio that it was taken from is the one that is found.
    """

    def with_clock(of: float) -> float:
        beside = replace(middle.beside, alone=middle.beside.alone / clock_change(of))
        return player.new_step(replace(middle, beside=beside)) / old

    first = with_clock(ratio)
    if first == ratio:
        return ratio
    second = with_clock(first)
    slope = (second - first) / (first - ratio)  # not positive
    return (first - slope * ratio) / (1 - slope)


def clock_change(ratio: float) -> float:
    """Clock of a GPU at its power cap where its collectives make the step `ratio` as long."""
    return float(np.clip(ratio**_CLOCK_EXPONENT, 1 / _MOST_CLOCK, _MOST_CLOCK))


def _range(ratio: float, others: list[tuple[float, ...]], margin: float) -> tuple[float, float]:
    """Ends of the range: what is not known is independent of each other, and adds in squares.

    others  ratios with one thing otherwise, thing by thing
    margin  part of the ratio, both ways
    """
    down = [max(0.0, *(1 - other / ratio for other in thing)) for thing in others if thing]
    up = [max(0.0, *(other / ratio - 1 for other in thing)) for thing in others if thing]
    low, high = (float(np.hypot.reduce([margin, *parts])) for parts in (down, up))
    return ratio * max(0.0, 1 - low), ratio * (1 + high)


def _factors(
    recorded: Recorded, new: Mapping[CollectiveClass, NewTime], traced: Transfers | None
) -> tuple[_Factors, tuple[ChangedClass, ...], tuple[CollectiveClass, ...]]:
    """Factor of each part's transfer; classes with a new time, and those without."""
    calls, times = recorded.linked, recorded.linked_times
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
        typical = np.mean if key.size_bytes is None else np.median
        before, after = typical(old), typical(old * factors[0, mine])
        changed.append(ChangedClass(key, int(mine.sum()), float(before), float(after)))
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
    calls, counts = recorded.linked, ~recorded.linked_times.warm_up
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
    calls = recorded.linked
    transfer = _known_transfers(calls, recorded.linked_times)
    steps = max(1, int(recorded.steps.count.max(initial=1)))
    known = set()
    for sequence, mine in _sequences(recorded.rows, calls):
        own, theirs = transfer[mine], traced.get(sequence)
        per_step = _per_step(recorded, mine, steps)
        if theirs is None or not (np.isfinite(theirs.transfer).any() and np.isfinite(own).any()):
            # Other ranks of the class tell it.
            alike = [v.transfer for s, v in traced.items() if s.key == sequence.key]
            other = np.concatenate(alike) if alike else np.empty(0)
            own, per_step = transfer[calls.class_ == calls.class_[mine[0]]], 0
        else:
            other = theirs.transfer
        if np.isfinite(other).sum() == 0 or np.isfinite(own).sum() == 0:
            continue
        known.add(int(calls.class_[mine[0]]))
        found = _ratio(own, other, per_step)
        factors[:, mine] = found if per_step else found[:, :1]
    return known


def _widen_unknown(recorded: Recorded, known: set[int], factors: Floats) -> None:
    """Let classes that the other run tells nothing of change at most as any other does."""
    calls = recorded.linked
    of_call = np.zeros(len(calls))
    np.maximum.at(of_call, calls.call_of_part, recorded_transfers(recorded))
    changes = [1.0]
    for k in sorted(known):
        mine = calls.class_ == k
        total = float(of_call[mine].sum())
        changes += [float((of_call * factors[0])[mine].sum()) / total] if total > 0 else []
    there = np.isin(calls.class_, sorted(known))
    factors[1:, ~there] = [[min(changes)], [max(changes)]]


def _per_step(recorded: Recorded, mine: Ints, steps: int) -> int:
    """Calls of a sequence a step; 0 where the steps differ in it.

    As the trace with the most of them tells: windows begin and end at different calls.
    """
    rows, calls = recorded.rows, recorded.linked
    part = np.flatnonzero(np.isin(calls.call_of_part, mine))
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
    return _bounds(recorded, play(recorded.graph, Substitutions()), recorded.step_ns)


def lone_exchanges(recorded: Recorded) -> tuple[float | None, float]:
    """Share of a step's Sends and Recvs that have no partner; what they may wait for it, ns a step.

    No share where the traces name all peers, or there is no Send and no Recv.
    """
    calls, rows, steps = recorded.linked, recorded.rows, recorded.steps
    begin, finish = steps.span(rows.end, len(rows.ranks))
    end = rows.end[calls.row]
    inside = (end > begin[calls.trace]) & (end <= finish[calls.trace])
    point = inside & calls.p2p[calls.call_of_part]
    alone = point & (calls.seen < calls.expected)[calls.call_of_part]
    if calls is recorded.calls or not point.any():
        return None, 0.0
    longer = recorded.graph.transfer - recorded_transfers(recorded)
    of_rank = np.bincount(calls.trace[alone], weights=longer[alone], minlength=1)
    return float(alone.sum() / point.sum()), float(of_rank.max() / steps.count.max())


def _bounds(recorded: Recorded, played: Played, step_ns: float) -> tuple[Bound, ...]:
    """What bounds a step: the longest path through the steps by kind, the most first.

    step_ns  what the parts sum to; the played steps are as long but for a factor
    """
    graph, rows, steps = recorded.graph, recorded.rows, recorded.steps
    begin, finish = steps.span(played.end, len(rows.ranks))
    # The rank whose steps are the longest, as in `Steps.mean_ns`.
    of_step = (finish - begin)[steps.traces] / steps.count
    trace = int(steps.traces[of_step.argmax()])
    of_rank = steps.last_rows(trace)
    row = int(of_rank[played.end[of_rank].argmax()])
    path = longest_path(graph, played, int(graph.end_node[row]), float(begin[trace]))
    part = graph.part[path.node - FIRST]
    class_of = np.full(len(path.node), -1)
    on = (path.slot == HOST) & (part >= 0)
    class_of[on] = recorded.linked.class_[recorded.linked.call_of_part[part[on]]]
    scale = step_ns / float(finish[trace] - begin[trace])
    found = [
        Bound("host", None, float(path.work.sum()) * scale),
        # A last row that is no collective ends its duration after its node.
        Bound("compute", None, float(path.lasted.sum() + played.duration[row]) * scale),
        Bound("waiting", None, float(path.gap.sum()) * scale),
    ]
    for k in np.unique(class_of[class_of >= 0]).tolist():
        total = float(path.transfer[class_of == k].sum())
        found.append(Bound("collective", recorded.linked.classes[k], total * scale))
    return tuple(sorted(found, key=lambda b: -b.ns))


def _simple_saving(recorded: Recorded, factor: Floats) -> float:
    """ns a step by the uplift formula: the exposed part of each transfer changes by its factor.

    source  s = sum of f * e * phi * (1 - eta) over classes; the mean over ranks
    """
    calls, times = recorded.linked, recorded.linked_times
    steps, rows = recorded.steps, recorded.rows
    begin, finish = steps.span(rows.end, len(rows.ranks))
    end = rows.end[calls.row]
    inside = (end > begin[calls.trace]) & (end <= finish[calls.trace])
    duration = np.maximum(times.end - times.start, 1)
    transfer = recorded_transfers(recorded)
    part = recorded.exposed[calls.row] * (np.minimum(transfer, duration) / duration) * (1 - factor)
    saved = np.bincount(calls.trace[inside], weights=part[inside], minlength=len(rows.ranks))
    return float(saved.mean() / max(1, int(steps.count.max(initial=1))))
