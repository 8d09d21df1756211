"""What another run's hosts and kernels need at the places of this run's (pure)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH
from collscope.timeline.graph import FIRST, HOST
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.tolerances import MAX_SLOWDOWN, MEDIAN_RANKS, SLOWDOWN_HALVINGS

Floats = npt.NDArray[np.float64]
Pair = tuple[float, float]
"""Of a run and of the other."""


def host_paces(own: RecordedJob, other: RecordedJob) -> Floats:
    """Per rank the other host's time between two launches against this one's; NaN: none alike.

    Of each pair of kernels that are launched in a row the median counts, so that waiting does not;
    pairs between which the host is known to have waited are left out.
    """
    found = np.full(len(own.rows.ranks), np.nan)
    for trace in range(len(found)):
        own_times, other_times = _launch_times(own, trace), _launch_times(other, trace)
        both = own_times.keys() & other_times.keys()
        before = sum(len(own_times[p]) * float(np.median(own_times[p])) for p in both)
        after = sum(len(own_times[p]) * float(np.median(other_times[p])) for p in both)
        if before > 0 and after > 0:
            found[trace] = after / before
    return found


def _launch_times(recorded: RecordedJob, trace: int) -> dict[tuple[str, str], Floats]:
    """Host times between launches of one trace, by the names of the two kernels; ns."""
    rows, graph = recorded.rows, recorded.graph
    trace_rows = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    trace_rows = trace_rows[rows.launch[trace_rows] != UNKNOWN_LAUNCH]
    trace_rows = trace_rows[np.argsort(rows.launch[trace_rows], kind="stable")]
    node = graph.start_node[trace_rows] - FIRST
    since = graph.before[HOST, node]
    alike = np.flatnonzero((since[1:] == since[:-1]) & (since[1:] >= FIRST))
    between = np.diff(graph.work[node])[alike].astype(np.float64)
    name = rows.name[trace_rows].astype(np.int64)
    key = name[alike] * len(rows.names) + name[alike + 1]
    kinds, place = np.unique(key, return_inverse=True)
    order = np.argsort(place, kind="stable")
    parts = np.split(between[order], np.cumsum(np.bincount(place, minlength=len(kinds)))[:-1])
    return {
        (rows.names[k // len(rows.names)], rows.names[k % len(rows.names)]): part
        for k, part in zip(kinds.tolist(), parts, strict=False)
    }


class KernelFactors(msgspec.Struct, frozen=True):
    """Time of the other run's kernels and copies over this one's."""

    common: Floats  # (rows,) of each row's kernel, the same for every rank
    of_rank: Floats  # (rows,) of its rank, beside that
    unlike_ns: float  # of this run's that the other has not, a step, the mean over the ranks
    unlike: float  # their share of all of this run's kernels and copies


def kernel_factors(
    own: RecordedJob, other: RecordedJob, slow: Pair, near: Pair = MEDIAN_RANKS
) -> KernelFactors:
    """Factors of each row's time alone, and what has no counterpart.

    By kernel name: the other run's time a step over this one's, so that more calls of a kernel are
    more time of it. The common one is the median of the ranks: where one of several changes, it is
    that rank which does.

    slow  slowdown of compute beside the collectives of both
    near  shares of the ranks between which the median is looked for
    """
    names = _names(own, other)
    own_ns, other_ns = (
        _table(r, names, r.contention.alone(r.graph.duration, slowdown_of_rows(r, s)))
        for r, s in zip((own, other), slow, strict=True)
    )
    both = (own_ns > 0) & (other_ns > 0)
    ratio = other_ns / np.where(both, own_ns, 1.0)
    common = _of_most(ratio, both, near)
    ratio = np.where(both, ratio, common)
    number = np.array([names[n] for n in own.rows.names] or [0])[own.rows.name]
    of_rank = ratio[own.rows.trace, number] / common[number]
    collective = own.rows.entry >= 0
    lonely, total = float(own_ns[~both].sum()), float(own_ns.sum())
    return KernelFactors(
        common=np.where(collective, 1.0, common[number]),
        of_rank=np.where(collective, 1.0, of_rank),
        unlike_ns=lonely / max(1, len(own.rows.ranks)),
        unlike=lonely / total if total else 0.0,
    )


def _of_most(ratio: Floats, both: npt.NDArray[np.bool_], near: Pair) -> Floats:
    """Per kernel the ranks' ratio between two shares of the ranks; 1 where no rank has both."""
    count = both.sum(axis=0)
    rising = np.sort(np.where(both, ratio, np.inf), axis=0)
    found = [
        np.take_along_axis(rising, np.clip(share * count, 0, len(both) - 1).astype(int)[None], 0)[0]
        for share in near
    ]
    return np.where(count > 0, np.mean(found, axis=0), 1.0)


def slowdowns(first: RecordedJob, second: RecordedJob) -> tuple[Pair, list[Pair]]:
    """Slowdowns of compute beside the collectives of both runs, and others that are as possible.

    Where only one run shows it, the other's is the one with which compute alone is as fast in both,
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


def slowdown_of_rows(recorded: RecordedJob, mean: float) -> Floats:
    """Slowdown of each row with such a mean: as the kernels' own are to each other, where known."""
    own = recorded.contention
    if not own.mean:
        return np.where(recorded.graph.compute, mean, 0.0)
    return own.slowdown * (mean / own.mean)


def _fitted(known: RecordedJob, unknown: RecordedJob, slowdown: float) -> float:
    """Slowdown with which the kernels of `unknown` alone last as those of `known`, by bisection."""
    names = _names(known, unknown)
    alone = known.contention.alone(known.graph.duration, slowdown_of_rows(known, slowdown))
    target = _table(known, names, alone)
    low, high = 0.0, MAX_SLOWDOWN
    for _ in range(SLOWDOWN_HALVINGS):
        middle = (low + high) / 2
        slow = slowdown_of_rows(unknown, middle)
        found = _table(unknown, names, unknown.contention.alone(unknown.graph.duration, slow))
        both = (found > 0) & (target > 0)
        longer = found[both].sum() > target[both].sum()
        low, high = (middle, high) if longer else (low, middle)
    return low


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
