"""Minimum cut ratios of a directed wiring: the mathematics behind every bound.

A wiring has GPUs and, after them, switches; `capacity[i][j]` is the rate from i to j in GB/s.
For a set U of nodes B⁺(U) is the capacity that leaves U, and |U| counts its GPUs only. All
bounds are min over U of B⁺(U) / weight(|U|). Up to `ENUMERATED_NODES` nodes every U is looked
at; beyond, max-flow with Dinkelbach's iteration finds the same minimum (for weights 1, |U| and
n − |U|). Sources: arXiv 2305.18461 §1.1 and 2402.06787 (ForestColl) for |U|, Edmonds for 1.
"""

from __future__ import annotations

from collscope.roofline.flow import max_flow
from collscope.roofline.wiring import Cut, Weight, Wiring, divisor

ENUMERATED_NODES = 18  # 2^18 sets take a few milliseconds


def minimum_cut(
    wiring: Wiring, weight: Weight, *, inside: int | None = None, outside: int | None = None
) -> Cut:
    """Set U that minimises B⁺(U) / weight; U holds some GPU and misses some GPU.

    inside   GPU that U must hold (a root that sends)
    outside  GPU that U must not hold (a root that receives)
    Beyond `ENUMERATED_NODES` nodes, `Weight.PAIRS` looks at the sets found for the other weights:
    a valid bound, not always the smallest.
    """
    if len(wiring.capacity) <= ENUMERATED_NODES:
        from collscope.roofline.every_set import smallest_of_all_cuts  # noqa: PLC0415 - numpy

        return smallest_of_all_cuts(wiring, weight, inside, outside)
    if weight is Weight.ONE:
        return _smallest_flow(wiring, inside, outside)
    if weight is Weight.INSIDE:
        return _dinkelbach(wiring, outside)
    if weight is Weight.OUTSIDE:
        cut = _dinkelbach(wiring.reversed(), inside)
        return Cut(cut.ratio_gbps, _others(wiring, cut.inside))
    return _pairs_of_known_cuts(wiring)


def direct_gbps(wiring: Wiring, source: int, target: int) -> float:
    """Rate from one GPU to another over their own links and the switches, in GB/s."""
    pair = wiring.without_forwarding(source, target)
    return max_flow(pair.capacity, 0, 1)[0]


def egress_gbps(wiring: Wiring) -> tuple[float, ...]:
    """Capacity that leaves each GPU, in GB/s."""
    return tuple(sum(row) for row in wiring.capacity[: wiring.gpus])


def _others(wiring: Wiring, members: tuple[int, ...]) -> tuple[int, ...]:
    """The GPUs that are not members."""
    return tuple(gpu for gpu in range(wiring.gpus) if gpu not in members)


def _smallest_flow(wiring: Wiring, inside: int | None, outside: int | None) -> Cut:
    """Smallest max-flow from `inside` to any GPU, or from any GPU to `outside`.

    With neither, the smallest over a fixed GPU as root of either side: some GPU is inside U or not.
    """
    gpus = range(wiring.gpus)
    root = 0 if inside is None and outside is None else None
    sources = [g for g in gpus if inside in (None, g)]
    targets = [g for g in gpus if outside in (None, g)]
    flows = (
        (*max_flow(wiring.capacity, source, target), source)
        for source in sources
        for target in targets
        if source != target and (root is None or root in (source, target))
    )
    value, reached, _ = min(flows, key=lambda flow: flow[0])
    return Cut(value, tuple(gpu for gpu in gpus if gpu in reached))


def _dinkelbach(wiring: Wiring, outside: int | None) -> Cut:
    """Minimum of B⁺(U)/|U| over sets that miss a GPU (`outside`, or any).

    A ratio x is too high exactly when a source that feeds x into every GPU cannot push it all to
    some GPU t; the cut it finds has a smaller ratio. Ends when no t finds a smaller one.
    """
    gpus, size = wiring.gpus, len(wiring.capacity)
    excluded = range(gpus) if outside is None else (outside,)
    first = next(gpu for gpu in range(gpus) if gpu != outside)
    best = Cut(sum(wiring.capacity[first]), (first,))
    improved = True
    while improved and best.ratio_gbps > 0:
        improved = False
        for target in excluded:
            feed = (*((best.ratio_gbps,) * gpus), *((0.0,) * (size - gpus)), 0.0)
            capacity = (*((*row, 0.0) for row in wiring.capacity), feed)
            value, reached = max_flow(capacity, size, target)
            if value >= best.ratio_gbps * gpus * (1 - 1e-9):
                continue
            members = tuple(gpu for gpu in range(gpus) if gpu in reached)
            if members:
                ratio = _leaving(wiring, reached) / len(members)
                improved = improved or ratio < best.ratio_gbps * (1 - 1e-12)
                best = min(best, Cut(ratio, members), key=lambda cut: cut.ratio_gbps)
    return best


def _leaving(wiring: Wiring, members: frozenset[int]) -> float:
    """B⁺ of a set of nodes, in GB/s."""
    size = len(wiring.capacity)
    return sum(
        wiring.capacity[i][j]
        for i in range(size)
        for j in range(size)
        if i in members and j not in members
    )


def _pairs_of_known_cuts(wiring: Wiring) -> Cut:
    """Smallest B⁺(U)/(|U|(n − |U|)) over the minimum cuts for |U|, n − |U| and 1."""
    found = []
    for weight in (Weight.INSIDE, Weight.OUTSIDE, Weight.ONE):
        cut = minimum_cut(wiring, weight)
        members = float(len(cut.inside))
        leaving = cut.ratio_gbps * divisor(weight, members, wiring.gpus)
        found.append(Cut(leaving / divisor(Weight.PAIRS, members, wiring.gpus), cut.inside))
    return min(found, key=lambda cut: cut.ratio_gbps)
