"""Why a step of one run takes longer than one of another (pure).

Both runs' graphs are played with what differs between them swapped, in every combination of four:

- host: the pace of the hosts' work, the same factor for every rank;
- compute: what each kernel takes of a step alone, the same factor for every rank;
- collectives: the transfers, and how much they slow down the compute beside them;
- arrivals: what of host and compute differs from rank to rank, so that ranks come late.

A part is the mean of what its swap adds over all orders of swapping (Shapley value), so that no
order is preferred and the parts sum to what all swaps together do. What they do not reach of the
measured difference is the remainder.
source  L. Shapley, A value for n-person games, 1953; factors in either state, as in A. Shorrocks,
        Decomposition procedures for distributional analysis, 2013, doi 10.1007/s10888-011-9214-z
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH
from collscope.model import CollectiveClass
from collscope.timeline.causal import FIRST, HOST
from collscope.timeline.play import Substitutions, play
from collscope.timeline.predict import (
    HOST_PRIOR,
    Recorded,
    recorded_transfers,
    transfer_factors,
    transfers_of,
)
from collscope.timeline.records import ChangedClass

Floats = npt.NDArray[np.float64]
Swapped = frozenset[str]
FACTORS = ("host", "compute", "collectives", "arrivals")
_NONE, _ALL = frozenset[str](), frozenset(FACTORS)
_AS_RECORDED = (1.0, 1.0)
_FLOOR = 0.01  # of a step: graphs that miss the other's step by less are equally good
_MOST_SLOWDOWN, _HALVINGS = 4.0, 20


@dataclass(frozen=True, slots=True)
class Part:
    """What one factor adds to a step. ns."""

    factor: str
    ns: int
    low_ns: int  # least and most over first and last, both graphs, the spread of the transfers,
    high_ns: int  # and hosts with and without the profiler's cost; with the remainder


@dataclass(frozen=True, slots=True)
class Explanation:
    """The difference of two steps in parts: with the remainder they sum to it. ns a step."""

    first_ns: int
    second_ns: int
    parts: tuple[Part, ...]
    remainder_ns: int
    reached: tuple[float, float]  # the first's graph with everything of the second; the other way
    pace: float | None  # time of the second's host work / the first's; None: no launches alike
    slowdowns: tuple[float | None, float | None]  # of compute beside collectives
    slowdown_assumed: bool  # one run tells it: compute alone is taken to be as fast in both
    alone_first: float  # kernels and copies that only the first run has
    alone_second: float
    classes: tuple[ChangedClass, ...]  # whose transfers were swapped, most time first
    unmatched: tuple[CollectiveClass, ...]  # of either run, whose transfers could not be


def explain(first: Recorded, second: Recorded) -> Explanation | None:
    """Attribute the difference between two runs of the same ranks; None without steps of either."""
    if not first.step_ns or not second.step_ns or first.rows.ranks != second.rows.ranks:
        return None
    slow, others = _slowdowns(first, second)
    there, back = _Swap(first, second, slow), _Swap(second, first, slow[::-1])
    values = [swap.play_all() for swap in (there, back)]
    misses = np.array([
        abs(values[0][_ALL] / second.step_ns - 1), abs(values[1][_ALL] / first.step_ns - 1)
    ])  # fmt: skip
    weights = 1 / np.maximum(misses, _FLOOR) ** 2
    weights = weights / weights.sum()
    one, other = (_shapley(v) for v in values)
    middle = {f: round(float(weights[0] * one[f] - weights[1] * other[f])) for f in FACTORS}
    remainder = round(second.step_ns) - round(first.step_ns) - sum(middle.values())
    otherwise = [
        pair for slower in others
        for pair in ((_Swap(first, second, slower), 1), (_Swap(second, first, slower[::-1]), -1))
    ]  # fmt: skip
    ends = {
        f: [middle[f], round(one[f]), -round(other[f]),
            *(round(sign * v) for swap, sign in ((there, 1), (back, -1)) for v in swap.changes(f)),
            *(round(sign * v) for swap, sign in otherwise for v in swap.ends(f))]
        for f in FACTORS
    }  # fmt: skip
    # What is not explained may belong to any part.
    parts = (
        Part(f, middle[f], min(ends[f]) + min(0, remainder), max(ends[f]) + max(0, remainder))
        for f in FACTORS
    )
    return Explanation(
        first_ns=round(first.step_ns),
        second_ns=round(second.step_ns),
        parts=tuple(parts),
        remainder_ns=remainder,
        reached=(values[0][_ALL], values[1][_ALL]),
        pace=there.pace,
        slowdowns=(first.contention.mean, second.contention.mean),
        slowdown_assumed=bool(others),
        alone_first=there.unlike_ns,
        alone_second=back.unlike_ns,
        classes=there.changed,
        unmatched=tuple(dict.fromkeys((*there.unchanged, *back.unchanged))),
    )


def _shapley(values: Mapping[Swapped, float]) -> dict[str, float]:
    """Mean over all orders of what each factor adds."""
    n = len(FACTORS)
    found = {}
    for factor in FACTORS:
        rest = [f for f in FACTORS if f != factor]
        found[factor] = sum(
            factorial(k) * factorial(n - 1 - k) / factorial(n)
            * (values[frozenset((*others, factor))] - values[frozenset(others)])
            for k in range(n) for others in combinations(rest, k)
        )  # fmt: skip
    return found


class _Swap:
    """One run's graph, and the other's values at its places."""

    def __init__(self, own: Recorded, other: Recorded, slow: tuple[float, float]) -> None:
        self.own, self.other, self.slow = own, other, slow
        self.priors = (_prior(own), _prior(other))
        self.factors, self.changed, self.unchanged = transfer_factors(
            own, transfers_of(other.rows, other.linked, other.linked_times)
        )
        self._transfer = recorded_transfers(own)
        paces = _paces(own, other)
        known = paces[np.isfinite(paces)]
        self.pace = float(known.mean()) if len(known) else None
        self._pace_common = self.pace or 1.0
        self._pace_apart = np.where(np.isfinite(paces), paces / self._pace_common, 1.0)
        self._slow = tuple(_slowdown(own, mean) for mean in slow)
        self._alone = own.contention.alone(own.graph.duration, self._slow[0])
        self._common, self._apart, self.unlike_ns = _kernels(own, other, slow)
        self._known: dict[tuple[Swapped, tuple[float, float], int], float] = {}

    def play_all(self) -> dict[Swapped, float]:
        """Step with every combination of factors swapped, ns."""
        return {
            swapped: self.step(swapped)
            for k in range(len(FACTORS) + 1)
            for swapped in map(frozenset, combinations(FACTORS, k))
        }

    def changes(self, factor: str) -> Iterator[float]:
        """What a factor adds to a step, first and last, with and without the profiler's cost, ns.

        Collectives also with either end of the spread of their transfers.
        """
        yield from self.ends(factor)
        yield from self.ends(factor, self.priors)
        if factor == "collectives":
            for spread in (1, 2):
                yield from self.ends(factor, _AS_RECORDED, spread)
                yield from self.ends(factor, self.priors, spread)

    def ends(
        self, factor: str, paces: tuple[float, float] = _AS_RECORDED, spread: int = 0
    ) -> Iterator[float]:
        """What a factor adds to a step when it is swapped first, and last; ns."""
        yield self.step(frozenset((factor,)), paces, spread) - self.step(_NONE, paces)
        yield self.step(_ALL, paces, spread) - self.step(_ALL - {factor}, paces)

    def step(
        self, swapped: Swapped, paces: tuple[float, float] = _AS_RECORDED, spread: int = 0
    ) -> float:
        """Step in ns.

        paces   of this run's host and of the other's, in parts of the recorded
        spread  1 and 2: the transfers at either end of their spread
        """
        key = swapped, paces, spread
        if key not in self._known:
            self._known[key] = self._play(*key)
        return self._known[key]

    def _play(self, swapped: Swapped, paces: tuple[float, float], spread: int) -> float:
        own, graph = self.own, self.own.graph
        host = np.full(len(own.rows.ranks), paces[0])
        alone = self._alone
        transfer = graph.transfer.astype(np.float64)
        slow = self._slow[0]
        if "host" in swapped:
            host = host / paces[0] * self._pace_common * paces[1]
        if "compute" in swapped:
            alone = alone * self._common
        if "arrivals" in swapped:
            host, alone = host * self._pace_apart, alone * self._apart
        if "collectives" in swapped:
            transfer = transfer + self._transfer * (self.factors[spread] - 1)
            slow = self._slow[1]
        return own.step(play(graph, Substitutions(transfer, host[graph.trace], alone, slow)))


def _prior(recorded: Recorded) -> float:
    """Least that the host's work may take without the profiler, in parts of the recorded."""
    return HOST_PRIOR["full" if recorded.full else "light"][0]


def _paces(own: Recorded, other: Recorded) -> Floats:
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


def _launch_times(recorded: Recorded, trace: int) -> dict[tuple[str, str], Floats]:
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


def _table(recorded: Recorded, names: Mapping[str, int], duration: Floats) -> Floats:
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


def _names(own: Recorded, other: Recorded) -> dict[str, int]:
    return {n: k for k, n in enumerate(dict.fromkeys((*own.rows.names, *other.rows.names)))}


def _kernels(
    own: Recorded, other: Recorded, slow: tuple[float, float]
) -> tuple[Floats, Floats, float]:
    """Factors of each row's time alone, common and of its rank; ns a step that has no counterpart.

    By kernel name: the other run's time a step over this one's, so that more calls of a kernel are
    more time of it.
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
    lonely = float(mine[~both].sum()) / max(1, len(own.rows.ranks))
    return (
        np.where(collective, 1.0, common[number]),
        np.where(collective, 1.0, apart),
        lonely,
    )


def _slowdowns(
    first: Recorded, second: Recorded
) -> tuple[tuple[float, float], list[tuple[float, float]]]:
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


def _slowdown(recorded: Recorded, mean: float) -> Floats:
    """Slowdown of each row with such a mean: as the kernels' own are to each other, where known."""
    own = recorded.contention
    if not own.mean:
        return np.where(recorded.graph.compute, mean, 0.0)
    return own.slowdown * (mean / own.mean)


def _fitted(known: Recorded, unknown: Recorded, slowdown: float) -> float:
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
