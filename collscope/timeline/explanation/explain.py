"""Why a step of one run takes longer than one of another (pure).

Both runs' graphs are played with what differs between them swapped, in every combination of four:

- host: the pace of the hosts' work, the same factor for every rank;
- compute: what each kernel takes of a step alone, the same factor for every rank, their median;
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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from math import copysign, exp, factorial, hypot, log
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model import CollectiveClass
from collscope.timeline.assumptions import clock_change, host_prior
from collscope.timeline.explanation.counterparts import Pair, slowdowns
from collscope.timeline.explanation.swaps import AS_RECORDED, FACTORS, SLOW_GPUS, Swapped, Swaps
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.records import ChangedClass
from collscope.timeline.tolerances import (
    HOST_STARTS,
    MAX_UNSHARED_KERNELS,
    MEDIAN_RANKS,
    STARTS,
)
from collscope.timeline.unprofiled import UnprofiledSteps, unprofiled_steps

Floats = npt.NDArray[np.float64]
PROFILER = "profiler"
DOUBTS = (
    "hosts",  # their pace without the profiler, which differs from start to start, too
    "order",  # of swapping, and which of the two graphs
    "remainder",  # what is not explained may belong to any part
    "ranks",  # some of them changed otherwise: whether compute of other ranks follows from that
    "slowdown",  # of compute beside collectives
    "starts",  # two starts of one setting differ
    "clock",  # of a GPU at its power cap
    "spread",  # of the transfers
    "unswapped",  # collectives whose transfers could not be swapped
)
"""The largest uncertainty in the range of a part."""
Doubt = tuple[str, Floats]
"""One of DOUBTS, and by how much a part may be more or less for it; ns."""


class ExplainedPart(msgspec.Struct, frozen=True):
    """What one factor adds to a step; ns."""

    # host: work between launches, the same factor for every rank: it differs from start to start,
    # so that one recording of each does not show whose it is; compute: kernels alone;
    # collectives: transfers, and what they cost the compute beside them; arrivals: what differs
    # from rank to rank; profiler: what it costs the second run more than the first
    part: Annotated[str, (*FACTORS, PROFILER)]
    # what it adds to a step without the profiler: the mean over all orders of swapping; null: not
    # known, and counted in the remainder
    ns: int | None
    low_ns: int  # its range; where it holds 0, the recordings do not show the sign
    high_ns: int  # its other end
    # what adds most to that range. hosts: their pace without the profiler, which differs from start
    # to start, too; order: in which the parts are swapped, and in which run's graph; remainder:
    # what is not explained may belong to the part; ranks: some changed otherwise than others,
    # which may slow down these, too; slowdown: of compute beside collectives, which
    # one run does not show; starts: 3 % of a step, by which two starts of one setting differ;
    # clock: of a GPU at its power cap; spread: of the transfers; unswapped: collectives whose
    # transfers could not be swapped; null: the range has no width
    widest: Annotated[
        str | None,
        (*DOUBTS, None),
    ]


class Explanation(msgspec.Struct, frozen=True):
    """The difference of two steps in parts: with the remainder they sum to it. ns a step."""

    first_ns: int
    second_ns: int
    parts: tuple[ExplainedPart, ...]
    remainder_ns: int
    reached: Pair  # the first's graph with everything of the second; the other way
    unprofiled: tuple[UnprofiledSteps, UnprofiledSteps]
    pace: float | None  # time of the second's host work / the first's; None: no launches alike
    slowdowns: tuple[float | None, float | None]  # of compute beside collectives
    slowdown_assumed: bool  # one run shows it: we assume that compute alone is as fast in both
    alone_first: float  # kernels and copies that only the first run has
    alone_second: float
    classes: tuple[ChangedClass, ...]  # whose transfers were swapped, the largest change first
    unmatched: tuple[CollectiveClass, ...]  # of either run, whose transfers could not be
    unswapped: Pair  # exposed time of all collectives that could not be
    alike: bool  # they have a class of collectives, or most of each run's kernels, in common


def explain(first: RecordedJob, second: RecordedJob) -> Explanation | None:
    """Attribute the difference between two runs of the same ranks; None without steps of either."""
    unprofiled = unprofiled_steps(first), unprofiled_steps(second)
    if unprofiled[0] is None or unprofiled[1] is None or first.rows.ranks != second.rows.ranks:
        return None
    assert first.step_ns is not None  # both have steps
    assert second.step_ns is not None
    slow, others = slowdowns(first, second)
    swaps = Swaps(first, second, slow)
    paces = _host_readings(first, second)
    starts = _host_readings(first, second, starts=HOST_STARTS)
    values = _shapley(lambda swapped: swaps.change(swapped, paces[0]))
    unswapped = swaps.unswapped()
    parts: dict[str, float | None] = {**values, PROFILER: swaps.profiler(paces[0])}
    if not swaps.there.changed and any(unswapped):
        parts["collectives"] = None
    rounded = {factor: None if ns is None else round(ns) for factor, ns in parts.items()}
    difference = round(second.step_ns) - round(first.step_ns)
    remainder = difference - sum(ns or 0 for ns in rounded.values())
    alike = [Swaps(first, second, slower) for slower in others]
    least, most = ((share, share) for share in MEDIAN_RANKS)
    ranks = [Swaps(first, second, slow, near) for near in ((least, most), (most, least))]
    ranks = [other for other in ranks if swaps.common_differs(other)]
    ends = {
        factor: _range(values[factor], _doubts(factor, values, swaps, (alike, ranks), starts))
        for factor in FACTORS
    }
    profiler = swaps.profiler(paces[0])
    cost = np.array([swaps.profiler(p) - profiler for p in paces])
    ends[PROFILER] = _range(profiler, [("hosts", cost)])
    return Explanation(
        first_ns=round(first.step_ns),
        second_ns=round(second.step_ns),
        parts=tuple(ExplainedPart(f, rounded[f], *ends[f]) for f in (*FACTORS, PROFILER)),
        remainder_ns=remainder,
        reached=swaps.reached,
        unprofiled=(unprofiled[0], unprofiled[1]),
        pace=swaps.there.pace,
        slowdowns=(first.contention.mean, second.contention.mean),
        slowdown_assumed=bool(others),
        alone_first=swaps.there.kernels.unlike_ns,
        alone_second=swaps.back.kernels.unlike_ns,
        classes=swaps.there.changed,
        unmatched=tuple(dict.fromkeys((*swaps.there.unchanged, *swaps.back.unchanged))),
        unswapped=unswapped,
        alike=bool(swaps.there.changed)
        or not any(unswapped)
        or swaps.unlike < MAX_UNSHARED_KERNELS,
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


def _doubts(
    factor: str,
    values: Mapping[str, float],
    swaps: Swaps,
    others: tuple[Sequence[Swaps], Sequence[Swaps]],
    paces: Sequence[Pair],
) -> Iterator[Doubt]:
    """What a part may be more or less, thing by thing that is not known.

    others  with other slowdowns of compute that are as possible, and with what half of the ranks
            have in common
    paces   of the hosts in any start, the middle first
    """
    alike, ranks = others
    middle = paces[0]
    orders = swaps.ends(factor, middle)
    yield "order", orders - values[factor]
    yield "hosts", np.concatenate([swaps.ends(factor, p) - orders for p in paces])
    yield "remainder", np.array([swaps.missed(p) for p in (AS_RECORDED, *paces)])
    for other in alike:
        yield "slowdown", other.ends(factor, middle) - orders
    if factor in ("compute", "arrivals"):
        follows = _that_follows(values) if factor == "arrivals" else 0.0
        found = [other.ends(factor, middle) - orders for other in ranks]
        yield "ranks", np.concatenate([[follows], *found])
    if factor == "arrivals":
        # In another start other ranks have the slower hosts.
        yield "hosts", swaps.ends(factor, middle, instead=SLOW_GPUS) - orders
    if factor in ("compute", "collectives"):
        # Two starts of one setting differ, but in no part by more than all that it takes.
        steps, costs = swaps.unprofiled(middle), swaps.costs(factor, middle)
        starts = hypot(*(min(STARTS * s, cost) for s, cost in zip(steps, costs, strict=True)))
        yield "starts", np.array([-starts, starts])
        clock = _by_clock(values, steps, swaps.costs("compute", middle))
        yield "clock", np.array([clock if factor == "collectives" else -clock])
    if factor == "collectives":
        for spread in (1, 2):
            yield "spread", swaps.ends(factor, middle, spread) - orders
        first, second = swaps.unswapped()
        yield "unswapped", np.array([-first, second])


def _that_follows(values: Mapping[str, float]) -> float:
    """How much of compute and collectives may follow from what differs between ranks; ns.

    The other ranks' collectives wait for a rank that is late, and slow down the compute beside them
    for longer. We assume that it is no more than what the late rank adds by itself.
    """
    late = values["arrivals"]
    alike = max(0.0, copysign(1, late) * (values["compute"] + values["collectives"]))
    return copysign(min(alike, abs(late)), late)


def _by_clock(values: Mapping[str, float], steps: Pair, costs: Pair) -> float:
    """How much of the compute kernels' part may be due to the collectives; ns.

    A GPU at its power cap computes faster where it waits more: no trace shows the cap.
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
