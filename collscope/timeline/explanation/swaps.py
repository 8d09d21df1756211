"""Two runs' graphs, played with what differs between them swapped (pure)."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.model import CollectiveClass
from collscope.timeline.explanation.counterparts import (
    Pair,
    host_paces,
    kernel_factors,
    slowdown_of_rows,
)
from collscope.timeline.play import Substitutions, play
from collscope.timeline.recorded_job import RecordedJob, lone_exchanges, recorded_transfers
from collscope.timeline.tolerances import MEDIAN_RANKS, SAME_KERNEL_TIME, SAME_STEP_MISS
from collscope.timeline.traced_transfers import transfers_of
from collscope.timeline.transfer_factors import transfer_factors

Floats = npt.NDArray[np.float64]
Swapped = frozenset[str]
FACTORS = ("host", "compute", "collectives", "arrivals")
"""What is swapped."""
SLOW_GPUS = "slow_gpus"  # of the arrivals what is not the hosts'
_NONE, _ALL = frozenset[str](), frozenset(FACTORS)
AS_RECORDED = (1.0, 1.0)
MEDIAN = (MEDIAN_RANKS, MEDIAN_RANKS)


class Swaps:
    """Each run's graph with the other's values, seen from the first run to the second."""

    def __init__(
        self, first: RecordedJob, second: RecordedJob, slow: Pair, near: tuple[Pair, Pair] = MEDIAN
    ) -> None:
        """Take the slowdowns of compute beside the collectives of both runs.

        near  of both graphs between which shares of the ranks that lies which all have in common
        """
        self.there = _Swap(first, second, slow, near[0])
        self.back = _Swap(second, first, slow[::-1], near[1])
        self.steps = first.step_ns or 0.0, second.step_ns or 0.0

    @property
    def unlike(self) -> float:
        """Share of a run's kernels that the other run has not, of the run with more of them."""
        return max(self.there.kernels.unlike, self.back.kernels.unlike)

    def common_differs(self, other: Swaps) -> bool:
        """Another reading of what all ranks have in common is of other kernel times."""
        return any(
            not np.allclose(first.kernels.common, second.kernels.common, rtol=SAME_KERNEL_TIME)
            for first, second in ((self.there, other.there), (self.back, other.back))
        )

    @cached_property
    def reached(self) -> Pair:
        """Steps of both graphs with everything of the other run, ns."""
        return self._steps(_ALL, AS_RECORDED)

    @cached_property
    def weights(self) -> Floats:
        """The graph that comes closer to the other run's step counts more."""
        misses = np.abs(np.divide(self.reached, self.steps[::-1]) - 1)
        weights = 1 / np.maximum(misses, SAME_STEP_MISS) ** 2
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
        known = {c.collective_class for c in self.there.changed}
        return _unswapped(self.there.own, known), _unswapped(self.back.own, known)

    def _steps(self, swapped: Swapped, paces: Pair) -> Pair:
        return self.there.step(swapped, paces), self.back.step(swapped, paces[::-1])


class _Swap:
    """One run's graph, and the other's values at its places. Pair are its own and the other's."""

    def __init__(self, own: RecordedJob, other: RecordedJob, slow: Pair, near: Pair) -> None:
        self.own, self.other = own, other
        traced = transfers_of(other.rows, other.linked, other.linked_times)
        factors, self.changed, self.unchanged = transfer_factors(own, {}, traced)
        self.factors = factors.middle, factors.low, factors.high
        self._transfer = recorded_transfers(own)
        paces = host_paces(own, other)
        known = paces[np.isfinite(paces)]
        self.pace = float(known.mean()) if len(known) else None
        self._pace_common = self.pace or 1.0
        self._pace_apart = np.where(np.isfinite(paces), paces / self._pace_common, 1.0)
        self._slow = tuple(slowdown_of_rows(own, mean) for mean in slow)
        self._alone = own.contention.alone(own.graph.duration, self._slow[0])
        self.kernels = kernel_factors(own, other, slow, near)
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
            alone = alone * self.kernels.common
        if "arrivals" in swapped:
            host = host * self._pace_apart
        if not swapped.isdisjoint(("arrivals", SLOW_GPUS)):
            alone = alone * self.kernels.of_rank
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
