"""Why a step of one run takes longer than one of another (pure).

Both runs' graphs are played with what differs between them swapped, in every combination of four:

- host: the pace of the hosts' work, the same factor for every rank;
- compute: what each kernel takes of a step alone, the same factor for every rank;
- collectives: the transfers, and how much they slow down the compute beside them;
- arrivals: what of host and compute differs from rank to rank, so that ranks come late.

They are played without what the profiler costs the hosts, as far as that is known: a host that is
slowed down hides what the GPU needs. What the profiler costs one run more than the other is the
fifth part.

A part is the mean of what its swap adds over all orders of swapping (Shapley value), so that no
order is preferred and the parts sum to what all swaps together do. What they do not reach of the
measured difference is the remainder.
source  L. Shapley, A value for n-person games, 1953; factors in either state, as in A. Shorrocks,
        Decomposition procedures for distributional analysis, 2013, doi 10.1007/s10888-011-9214-z
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import combinations, product
from math import copysign, exp, factorial, hypot, log

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.match.rows import UNKNOWN_LAUNCH
from collscope.model import CollectiveClass
from collscope.timeline.assumptions import HOST_STARTS, STARTS, clock_change, host_prior
from collscope.timeline.graph import FIRST, HOST
from collscope.timeline.play import Substitutions, play
from collscope.timeline.recorded_job import RecordedJob, lone_exchanges, recorded_transfers
from collscope.timeline.records import ChangedClass
from collscope.timeline.traced_transfers import transfers_of
from collscope.timeline.transfer_factors import transfer_factors

Floats = npt.NDArray[np.float64]
Swapped = frozenset[str]
Pair = tuple[float, float]
"""Of a run and of the other."""
FACTORS = ("host", "compute", "collectives", "arrivals")
PROFILER = "profiler"
_SLOW_GPUS = "slow_gpus"  # of the arrivals what is not the hosts'
DOUBTS = (
    "hosts",  # their pace without the profiler, which differs from start to start, too
    "order",  # of swapping, and which of the two graphs
    "remainder",  # what is not explained may belong to any part
    "slowdown",  # of compute beside collectives
    "starts",  # two starts of one setting differ
    "clock",  # of a GPU at its power cap
    "spread",  # of the transfers
    "unswapped",  # collectives whose transfers could not be swapped
)
"""What makes the range of a part as wide as it is."""
Doubt = tuple[str, Floats]
"""One of DOUBTS, and by how much a part may be more or less for it; ns."""
_NONE, _ALL = frozenset[str](), frozenset(FACTORS)
_AS_RECORDED = (1.0, 1.0)
_FLOOR = 0.01  # of a step: graphs that miss the other's step by less are equally good
_MOST_SLOWDOWN, _HALVINGS = 4.0, 20
_MOST = 0.5  # of a run's kernels: with more that the other has not, they may be different jobs


class Part(msgspec.Struct, frozen=True):
    """What one factor adds to a step. ns."""

    factor: str  # one of FACTORS, or PROFILER
    ns: int | None  # None: nothing of it could be swapped
    low_ns: int  # its range; what is not known is independent of each other, and adds in squares
    high_ns: int
    widest: str | None  # of DOUBTS what adds most to the range; None: it has no width


class Explanation(msgspec.Struct, frozen=True):
    """The difference of two steps in parts: with the remainder they sum to it. ns a step."""

    first_ns: int
    second_ns: int
    parts: tuple[Part, ...]
    remainder_ns: int
    reached: Pair  # the first's graph with everything of the second; the other way
    unprofiled: Pair  # both steps with the middle of what the profiler may cost
    unprofiled_low: Pair  # least of both without the profiler, in any start
    unprofiled_high: Pair
    pace: float | None  # time of the second's host work / the first's; None: no launches alike
    slowdowns: tuple[float | None, float | None]  # of compute beside collectives
    slowdown_assumed: bool  # one run tells it: compute alone is taken to be as fast in both
    alone_first: float  # kernels and copies that only the first run has
    alone_second: float
    classes: tuple[ChangedClass, ...]  # whose transfers were swapped, most time first
    unmatched: tuple[CollectiveClass, ...]  # of either run, whose transfers could not be
    unswapped: Pair  # exposed time of all collectives that could not be
    alike: bool  # they have a class of collectives, or most of each run's kernels, in common


def explain(first: RecordedJob, second: RecordedJob) -> Explanation | None:
    """Attribute the difference between two runs of the same ranks; None without steps of either."""
    if not first.step_ns or not second.step_ns or first.rows.ranks != second.rows.ranks:
        return None
    slow, others = _slowdowns(first, second)
    both = _Both(first, second, slow)
    paces = _host_readings(first, second)
    starts = _host_readings(first, second, starts=HOST_STARTS)
    values = _shapley(lambda swapped: both.change(swapped, paces[0]))
    unswapped = both.unswapped()
    parts: dict[str, float | None] = {**values, PROFILER: both.profiler(paces[0])}
    if not both.there.changed and any(unswapped):
        parts["collectives"] = None
    rounded = {factor: None if ns is None else round(ns) for factor, ns in parts.items()}
    difference = round(second.step_ns) - round(first.step_ns)
    remainder = difference - sum(ns or 0 for ns in rounded.values())
    alike = [_Both(first, second, slower) for slower in others]
    ends = {
        factor: _range(values[factor], _doubts(factor, values, both, alike, starts))
        for factor in FACTORS
    }
    profiler = both.profiler(paces[0])
    unprofiled = _other_starts(first, second, both)
    cost = np.array([both.profiler(p) - profiler for p in paces])
    ends[PROFILER] = _range(profiler, [("hosts", cost)])
    return Explanation(
        first_ns=round(first.step_ns),
        second_ns=round(second.step_ns),
        parts=tuple(Part(f, rounded[f], *ends[f]) for f in (*FACTORS, PROFILER)),
        remainder_ns=remainder,
        reached=both.reached,
        unprofiled=both.unprofiled(paces[0]),
        unprofiled_low=unprofiled[0],
        unprofiled_high=unprofiled[1],
        pace=both.there.pace,
        slowdowns=(first.contention.mean, second.contention.mean),
        slowdown_assumed=bool(others),
        alone_first=both.there.unlike_ns,
        alone_second=both.back.unlike_ns,
        classes=both.there.changed,
        unmatched=tuple(dict.fromkeys((*both.there.unchanged, *both.back.unchanged))),
        unswapped=unswapped,
        alike=bool(both.there.changed) or not any(unswapped) or both.unlike < _MOST,
    )


def _doubts(
    factor: str,
    values: Mapping[str, float],
    both: _Both,
    alike: Sequence[_Both],
    paces: Sequence[Pair],
) -> Iterator[Doubt]:
    """What a part may be more or less, thing by thing that is not known.

    alike  with other slowdowns of compute that are as possible
    paces  of the hosts in any start, the middle first
    """
    middle = paces[0]
    orders = both.ends(factor, middle)
    yield "order", orders - values[factor]
    yield "hosts", np.concatenate([both.ends(factor, p) - orders for p in paces])
    yield "remainder", np.array([both.missed(p) for p in (_AS_RECORDED, *paces)])
    for other in alike:
        yield "slowdown", other.ends(factor, middle) - orders
    if factor == "arrivals":
        # In another start other ranks have the slower hosts.
        yield "hosts", both.ends(factor, middle, instead=_SLOW_GPUS) - orders
    if factor in ("compute", "collectives"):
        # Two starts of one setting differ, but in no part by more than all that it takes.
        steps, costs = both.unprofiled(middle), both.costs(factor, middle)
        starts = hypot(*(min(STARTS * s, cost) for s, cost in zip(steps, costs, strict=True)))
        yield "starts", np.array([-starts, starts])
        clock = _by_clock(values, steps, both.costs("compute", middle))
        yield "clock", np.array([clock if factor == "collectives" else -clock])
    if factor == "collectives":
        for spread in (1, 2):
            yield "spread", both.ends(factor, middle, spread) - orders
        first, second = both.unswapped()
        yield "unswapped", np.array([-first, second])


def _by_clock(values: Mapping[str, float], steps: Pair, costs: Pair) -> float:
    """How much of the compute kernels' part may be due to the collectives; ns.

    A GPU at its power cap computes faster where it waits more: no trace tells whether it is at it.
    """
    compute = values["compute"]
    if compute * values["collectives"] >= 0:
        return 0.0
    most = abs(clock_change(steps[1] / steps[0]) - 1) * max(costs)
    return copysign(min(abs(compute), most), compute)


def _range(value: float, doubts: Iterable[Doubt]) -> tuple[int, int, str | None]:
    """Ends of a part, and what adds most to its range.

    What is not known is independent of each other, and adds in squares.
    """
    found = [(name, min(0.0, float(d.min())), max(0.0, float(d.max()))) for name, d in doubts]
    down, up = hypot(*(low for _, low, _ in found)), hypot(*(high for _, _, high in found))
    name, low, high = max(found, key=lambda d: hypot(*d[1:]))
    return round(value - down), round(value + up), name if round(low) or round(high) else None


def _host_readings(
    first: RecordedJob, second: RecordedJob, starts: float = 0.0
) -> tuple[Pair, ...]:
    """Time of both hosts' work without the profiler in parts of the recorded, the middle first.

    The same profiler costs two runs of a job alike; that of other activities does not.

    starts  part by which a host's pace differs from one start to another
    """
    (low, middle, high), (other_low, other_middle, other_high) = (
        _in_any_start(host_prior(recorded), starts) for recorded in (first, second)
    )
    ends = (low, high), (other_low, other_high)
    alike = zip(*ends, strict=True) if first.profiler == second.profiler else product(*ends)
    return (middle, other_middle), *alike


def _in_any_start(pace: tuple[float, float, float], starts: float) -> tuple[float, float, float]:
    """Least, middle and most of a pace that differs from start to start, too.

    The two are independent factors: their logarithms add in squares.
    """
    low, middle, high = pace
    down = hypot(log(middle / low), log(1 - starts))
    up = hypot(log(high / middle), log(1 + starts))
    return middle * exp(-down), middle, middle * exp(up)


def _other_starts(first: RecordedJob, second: RecordedJob, both: _Both) -> tuple[Pair, Pair]:
    """Least and most that both steps may take without the profiler, in any start; ns."""
    (low, _, high), (other_low, _, other_high) = map(host_prior, (first, second))
    fast, slow = 1 - HOST_STARTS, 1 + HOST_STARTS
    least = both.unprofiled((low * fast, other_low * fast))
    most = both.unprofiled((high * slow, other_high * slow))
    return (
        (least[0] * (1 - STARTS), least[1] * (1 - STARTS)),
        (most[0] * (1 + STARTS), most[1] * (1 + STARTS)),
    )


def _shapley(value: Callable[[Swapped], float]) -> dict[str, float]:
    """Mean over all orders of what each factor adds."""
    n = len(FACTORS)
    found = {}
    for factor in FACTORS:
        rest = [f for f in FACTORS if f != factor]
        found[factor] = sum(
            factorial(k) * factorial(n - 1 - k) / factorial(n)
            * (value(frozenset((*others, factor))) - value(frozenset(others)))
            for k in range(n) for others in combinations(rest, k)
        )  # fmt: skip
    return found


class _Both:
    """Each run's graph with the other's values, seen from the first run to the second."""

    def __init__(self, first: RecordedJob, second: RecordedJob, slow: Pair) -> None:
        """Take the slowdowns of compute beside the collectives of both runs."""
        self.there, self.back = _Swap(first, second, slow), _Swap(second, first, slow[::-1])
        self.steps = first.step_ns or 0.0, second.step_ns or 0.0

    @property
    def unlike(self) -> float:
        """Share of a run's kernels that the other run has not, of the run with more of them."""
        return max(self.there.unlike, self.back.unlike)

    @cached_property
    def reached(self) -> Pair:
        """Steps of both graphs with everything of the other run, ns."""
        return self._steps(_ALL, _AS_RECORDED)

    @cached_property
    def weights(self) -> Floats:
        """The graph that comes closer to the other run's step counts more."""
        misses = np.abs(np.divide(self.reached, self.steps[::-1]) - 1)
        weights = 1 / np.maximum(misses, _FLOOR) ** 2
        found: Floats = weights / weights.sum()
        return found

    def unprofiled(self, paces: Pair) -> Pair:
        """Steps of both runs with other paces of their hosts, ns."""
        return self._steps(_NONE, paces)

    def change(self, swapped: Swapped, paces: Pair) -> float:
        """What swapping adds to a step, but for a constant; ns."""
        there, back = self._steps(swapped, paces)
        return float(self.weights @ (there, -back))

    def missed(self, paces: Pair) -> float:
        """What all swaps together do not reach, ns."""
        (first, second), (there, back) = self.unprofiled(paces), self._steps(_ALL, paces)
        return float(self.weights @ (second - there, back - first))

    def profiler(self, paces: Pair) -> float:
        """What the profiler costs the second run's step more than the first's, ns."""
        first, second = self.unprofiled(paces)
        return (self.steps[1] - second) - (self.steps[0] - first)

    def ends(self, factor: str, paces: Pair, spread: int = 0, instead: str | None = None) -> Floats:
        """What a factor adds to a step when it is swapped first, and last, in either graph; ns.

        instead  what of it is swapped; the rest of it stays
        """
        one, rest = frozenset((instead or factor,)), _ALL - {factor}
        sides = (self.there, paces, 1), (self.back, paces[::-1], -1)
        return np.array([
            sign * (swap.step(with_it, pair, spread) - swap.step(without, pair))
            for swap, pair, sign in sides for with_it, without in ((one, _NONE), (one | rest, rest))
        ])  # fmt: skip

    def costs(self, factor: str, paces: Pair) -> Pair:
        """What compute, or the collectives, take of both runs' steps at all; ns."""
        return self.there.cost(factor, paces), self.back.cost(factor, paces[::-1])

    def unswapped(self) -> Pair:
        """Exposed time of collectives whose transfers could not be swapped, ns a step."""
        known = {c.key for c in self.there.changed}
        return _unswapped(self.there.own, known), _unswapped(self.back.own, known)

    def _steps(self, swapped: Swapped, paces: Pair) -> Pair:
        return self.there.step(swapped, paces), self.back.step(swapped, paces[::-1])


class _Swap:
    """One run's graph, and the other's values at its places. Pair are its own and the other's."""

    def __init__(self, own: RecordedJob, other: RecordedJob, slow: Pair) -> None:
        self.own, self.other = own, other
        traced = transfers_of(other.rows, other.linked, other.linked_times)
        factors, self.changed, self.unchanged = transfer_factors(own, {}, traced)
        self.factors = factors.middle, factors.low, factors.high
        self._transfer = recorded_transfers(own)
        paces = _paces(own, other)
        known = paces[np.isfinite(paces)]
        self.pace = float(known.mean()) if len(known) else None
        self._pace_common = self.pace or 1.0
        self._pace_apart = np.where(np.isfinite(paces), paces / self._pace_common, 1.0)
        self._slow = tuple(_slowdown(own, mean) for mean in slow)
        self._alone = own.contention.alone(own.graph.duration, self._slow[0])
        self._common, self._apart, self.unlike_ns, self.unlike = _kernels(own, other, slow)
        self._known: dict[tuple[Swapped, float, int], float] = {}
        self._costs: dict[tuple[str, float], float] = {}

    def step(self, swapped: Swapped, paces: Pair, spread: int = 0) -> float:
        """Step in ns.

        paces   time of this run's host work and of the other's, in parts of the recorded
        spread  1 and 2: the transfers at either end of their spread
        """
        key = swapped, paces["host" in swapped], spread
        if key not in self._known:
            self._known[key] = self._play(*key)
        return self._known[key]

    def cost(self, factor: str, paces: Pair) -> float:
        """What this run's step would be shorter by without its compute, or its collectives; ns."""
        if (factor, paces[0]) not in self._costs:
            self._costs[factor, paces[0]] = self._cost(factor, paces)
        return self._costs[factor, paces[0]]

    def _cost(self, factor: str, paces: Pair) -> float:
        graph = self.own.graph
        new = Substitutions(None, paces[0], self._alone, self._slow[0])
        if factor == "compute":
            new = replace(new, alone=np.where(graph.compute, 0.0, self._alone))
        else:
            new = replace(new, transfer=np.zeros(len(graph.transfer)), slowdown=None)
        return self.step(_NONE, paces) - self.own.step(play(graph, new))

    def _play(self, swapped: Swapped, pace: float, spread: int) -> float:
        own, graph = self.own, self.own.graph
        host = np.full(len(own.rows.ranks), pace)
        alone = self._alone
        transfer = graph.transfer.astype(np.float64)
        slow = self._slow[0]
        if "host" in swapped:
            host = host * self._pace_common
        if "compute" in swapped:
            alone = alone * self._common
        if "arrivals" in swapped:
            host = host * self._pace_apart
        if not swapped.isdisjoint(("arrivals", _SLOW_GPUS)):
            alone = alone * self._apart
        if "collectives" in swapped:
            transfer = transfer + self._transfer * (self.factors[spread] - 1)
            slow = self._slow[1]
        return own.step(play(graph, Substitutions(transfer, host[graph.trace], alone, slow)))


def _unswapped(recorded: RecordedJob, swapped: Set[CollectiveClass]) -> float:
    """Exposed time of a step's collectives that are of no swapped class, ns, of the most hit rank.

    Calls that could not be matched are of none. With what Sends and Recvs that have no partner may
    have waited for it.
    """
    rows, calls, ranks = recorded.rows, recorded.linked, len(recorded.rows.ranks)
    lonely = rows.entry >= 0
    known = np.array([key in swapped for key in calls.classes], dtype=bool)
    lonely[calls.row[known[calls.class_[calls.call_of_part]]]] = False
    begin, finish = recorded.steps.span(rows.end, ranks)
    lonely &= (rows.end > begin[rows.trace]) & (rows.end <= finish[rows.trace])
    exposed = np.bincount(rows.trace[lonely], recorded.exposed[lonely], minlength=ranks)
    _, waits = lone_exchanges(recorded)
    return float(exposed.max(initial=0.0)) / max(1, int(recorded.steps.count.max())) + waits


def _paces(own: RecordedJob, other: RecordedJob) -> Floats:
    """Per rank the other host's time between two launches against this one's; NaN: none alike.

    Of each pair of kernels that are launched in a row the median counts, so that waiting does not;
    pairs between which the host is known to have waited are left out.
    """
    found = np.full(len(own.rows.ranks), np.nan)
    for trace in range(len(found)):
        mine, theirs = _launch_times(own, trace), _launch_times(other, trace)
        both = mine.keys() & theirs.keys()
        before = sum(len(mine[p]) * float(np.median(mine[p])) for p in both)
        after = sum(len(mine[p]) * float(np.median(theirs[p])) for p in both)
        if before > 0 and after > 0:
            found[trace] = after / before
    return found


def _launch_times(recorded: RecordedJob, trace: int) -> dict[tuple[str, str], Floats]:
    """Host times between launches of one trace, by the names of the two kernels; ns."""
    rows, graph = recorded.rows, recorded.graph
    mine = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    mine = mine[rows.launch[mine] != UNKNOWN_LAUNCH]
    mine = mine[np.argsort(rows.launch[mine], kind="stable")]
    node = graph.start_node[mine] - FIRST
    since = graph.before[HOST, node]
    alike = np.flatnonzero((since[1:] == since[:-1]) & (since[1:] >= FIRST))
    between = np.diff(graph.work[node])[alike].astype(np.float64)
    name = rows.name[mine].astype(np.int64)
    key = name[alike] * len(rows.names) + name[alike + 1]
    kinds, place = np.unique(key, return_inverse=True)
    order = np.argsort(place, kind="stable")
    parts = np.split(between[order], np.cumsum(np.bincount(place, minlength=len(kinds)))[:-1])
    return {
        (rows.names[k // len(rows.names)], rows.names[k % len(rows.names)]): part
        for k, part in zip(kinds.tolist(), parts, strict=False)
    }


def _table(recorded: RecordedJob, names: Mapping[str, int], duration: Floats) -> Floats:
    """Time of kernels and copies in a step, ns; shape (ranks, names).

    names     the columns
    duration  of each row in ns, 0: not counted
    """
    rows, ranks = recorded.rows, len(recorded.rows.ranks)
    begin, finish = recorded.steps.span(rows.end, ranks)
    inside = (rows.entry < 0) & (rows.end > begin[rows.trace]) & (rows.end <= finish[rows.trace])
    inside &= duration > 0
    number = np.array([names[n] for n in rows.names] or [0])
    key = rows.trace[inside].astype(np.int64) * len(names) + number[rows.name[inside]]
    steps, size = max(1, int(recorded.steps.count.max(initial=1))), ranks * len(names)
    return np.bincount(key, duration[inside], minlength=size).reshape(ranks, -1) / steps


def _names(own: RecordedJob, other: RecordedJob) -> dict[str, int]:
    return {n: k for k, n in enumerate(dict.fromkeys((*own.rows.names, *other.rows.names)))}


def _kernels(
    own: RecordedJob, other: RecordedJob, slow: Pair
) -> tuple[Floats, Floats, float, float]:
    """Factors of each row's time alone, common and of its rank; ns a step without a counterpart.

    By kernel name: the other run's time a step over this one's, so that more calls of a kernel are
    more time of it. The last is what has no counterpart as a share of all kernels and copies.
    """
    names = _names(own, other)
    mine, theirs = (
        _table(r, names, r.contention.alone(r.graph.duration, _slowdown(r, s)))
        for r, s in zip((own, other), slow, strict=True)
    )
    both = (mine > 0) & (theirs > 0)
    before = np.where(both, mine, 0.0).sum(axis=0)
    after = np.where(both, theirs, 0.0).sum(axis=0)
    common = np.where(before > 0, after / np.where(before > 0, before, 1.0), 1.0)
    ratio = np.where(both, theirs / np.where(both, mine, 1.0), common)
    number = np.array([names[n] for n in own.rows.names] or [0])[own.rows.name]
    apart = ratio[own.rows.trace, number] / common[number]
    collective = own.rows.entry >= 0
    lonely, total = float(mine[~both].sum()), float(mine.sum())
    return (
        np.where(collective, 1.0, common[number]),
        np.where(collective, 1.0, apart),
        lonely / max(1, len(own.rows.ranks)),
        lonely / total if total else 0.0,
    )


def _slowdowns(first: RecordedJob, second: RecordedJob) -> tuple[Pair, list[Pair]]:
    """Slowdowns of compute beside the collectives of both runs, and others that are as possible.

    Where only one run tells it, the other's is the one with which compute alone is as fast in both,
    or else the same. Where none does, compute lasts as recorded.
    """
    one, other = first.contention.mean, second.contention.mean
    if one is not None and other is not None:
        return (one, other), []
    if one is not None:
        return (one, _fitted(first, second, one)), [(one, one)]
    if other is not None:
        return (_fitted(second, first, other), other), [(other, other)]
    return (0.0, 0.0), []


def _slowdown(recorded: RecordedJob, mean: float) -> Floats:
    """Slowdown of each row with such a mean: as the kernels' own are to each other, where known."""
    own = recorded.contention
    if not own.mean:
        return np.where(recorded.graph.compute, mean, 0.0)
    return own.slowdown * (mean / own.mean)


def _fitted(known: RecordedJob, unknown: RecordedJob, slowdown: float) -> float:
    """Slowdown with which the kernels of `unknown` alone last as those of `known`, by bisection."""
    names = _names(known, unknown)
    alone = known.contention.alone(known.graph.duration, _slowdown(known, slowdown))
    target = _table(known, names, alone)
    low, high = 0.0, _MOST_SLOWDOWN
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slow = _slowdown(unknown, middle)
        found = _table(unknown, names, unknown.contention.alone(unknown.graph.duration, slow))
        both = (found > 0) & (target > 0)
        longer = found[both].sum() > target[both].sum()
        low, high = (middle, high) if longer else (low, middle)
    return low
