"""Kernels that count as compute and behave like collectives, whatever they are called (pure).

A collective is carried out as often on every rank, its ranks leave it together, and it lasts the
longer the earlier a rank comes. A kernel of compute lasts as long as its work. So its calls are
paired as if it were one, and what its length does over the arrivals is looked at: the slope of
(length) over (arrival) is -1 for a collective and 0 for compute.

Ranks that always arrive together show neither: such a kernel is not found.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.match.rows import Rows
from collscope.match.traces import Calls, match_calls
from collscope.model import Op
from collscope.model.trace import Ints, Kind, TraceCollective
from collscope.timeline.clocks import Floats, estimate_clocks
from collscope.timeline.tolerances import (
    LIKE_MIN_CALLS,
    LIKE_MIN_ENDS_TO_STARTS,
    LIKE_MIN_SLOPE,
    LIKE_MIN_WHOLE,
    LIKE_NAMES,
    LIKE_ROWS,
    LIKE_VARIES,
    STAMP_OVERLAP_NS,
)


class LikeCollective(msgspec.Struct, frozen=True):
    """A name whose kernels behave like a collective's."""

    name: int  # into `Rows.names`
    calls: int  # that were paired; of long traces those at the beginning
    busy_ns: int  # kernel time of all its rows
    start_spread_ns: float  # ninth decile of what the ranks begin apart
    end_spread_ns: float  # likewise of what they end apart


def like_collectives(rows: Rows) -> list[LikeCollective]:
    """Such kernels, most time first; none of a single trace."""
    if len(rows.ranks) < 2:
        return []
    found = [one for name in _candidates(rows) if (one := _judge(rows, name)) is not None]
    names = [one.name for one in found]
    kept = [one for one in found if not _follows_another(rows, one.name, names)]
    return sorted(kept, key=lambda one: -one.busy_ns)


def _candidates(rows: Rows) -> Iterator[int]:
    """Names of compute kernels that last different times, most time first, at most so many."""
    compute = np.flatnonzero((rows.entry < 0) & (rows.kind == Kind.KERNEL))
    order = compute[np.argsort(rows.name[compute], kind="stable")]
    lengths = rows.end - rows.start
    names, first, counts = np.unique(rows.name[order], return_index=True, return_counts=True)
    often = counts >= 2 * LIKE_MIN_CALLS
    varying = []
    for name, begin, count in zip(names[often], first[often], counts[often], strict=True):
        own = lengths[order[begin : begin + count]]
        low, middle, high = np.percentile(own[: LIKE_ROWS * len(rows.ranks)], (10, 50, 90))
        if high - low >= max(STAMP_OVERLAP_NS / 2, LIKE_VARIES * middle):
            varying.append((-int(own.sum()), int(name)))
    yield from (name for _, name in sorted(varying)[:LIKE_NAMES])


def _judge(rows: Rows, name: int) -> LikeCollective | None:
    """The kernel's calls, paired as those of a collective of all ranks that run it."""
    own = np.flatnonzero((rows.name == name) & (rows.entry < 0) & (rows.kind == Kind.KERNEL))
    first = np.concatenate([own[rows.trace[own] == t][:LIKE_ROWS] for t in range(len(rows.ranks))])
    entry = np.full(len(rows), -1, dtype=np.int32)
    entry[first] = 0
    supposed = replace(rows, entry=entry, entries=(TraceCollective(Op.ALL_REDUCE),))
    calls = match_calls(supposed)
    good = (calls.seen > 1) & (calls.seen == calls.expected) & ~calls.mismatched & ~calls.p2p
    part = np.flatnonzero(good[calls.call_of_part])
    if good.sum() < LIKE_MIN_CALLS or len(part) < LIKE_MIN_WHOLE * _between(calls, part, first):
        return None
    start, end = _aligned(supposed, calls, part)
    call = np.unique(calls.call_of_part[part], return_inverse=True)[1]
    starts, ends = (float(np.percentile(_spread(t, call), 90)) for t in (start, end))
    varied = starts >= STAMP_OVERLAP_NS / 2 and starts >= LIKE_MIN_ENDS_TO_STARTS * ends
    if not varied or _slope(start, end - start, call) > -LIKE_MIN_SLOPE:
        return None
    busy = int((rows.end[own] - rows.start[own]).sum())
    return LikeCollective(name, int(good.sum()), busy, starts, ends)


def _between(calls: Calls, part: Ints, rows: Ints) -> int:
    """How many of these rows stand between the first and the last that is paired of their trace.

    Traces of one job begin and end at different calls.
    """
    row, trace = calls.row[part], calls.trace[part]
    between = 0
    for one in np.unique(trace):
        paired = row[trace == one]
        between += int(((rows >= paired.min()) & (rows <= paired.max())).sum())
    return between


def _aligned(rows: Rows, calls: Calls, part: Ints) -> tuple[Floats, Floats]:
    """Starts and ends of these parts, without what a trace is always ahead by.

    The clocks are those that the ends give. What is the same in every call of a rank shows nothing:
    a slower GPU ends its compute later each time.
    """
    clocks = estimate_clocks(rows, calls)
    call, trace = calls.call_of_part[part], calls.trace[part]
    place = np.unique(call, return_inverse=True)[1]
    counts = np.bincount(place)
    found = []
    for column in (rows.start, rows.end):
        times = clocks.align(column[calls.row[part]], trace).astype(np.float64)
        times -= (np.bincount(place, times) / counts)[place]
        for one in np.unique(trace):
            times[trace == one] -= np.median(times[trace == one])
        found.append(times)
    return found[0], found[1]


def _spread(times: Floats, call: npt.NDArray[np.intp]) -> Floats:
    """Last less first of each call."""
    last = np.full(int(call.max()) + 1, -np.inf)
    first = -last
    np.maximum.at(last, call, times)
    np.minimum.at(first, call, times)
    spread: Floats = last - first
    return spread


def _slope(start: Floats, length: Floats, call: npt.NDArray[np.intp]) -> float:
    """Of the lengths over the arrivals, both against the mean of their call.

    The widest tenth is left out: a call that was held up shows nothing about the rest.
    """
    counts = np.bincount(call)
    late = start - (np.bincount(call, start) / counts)[call]
    longer = length - (np.bincount(call, length) / counts)[call]
    usual = np.abs(late) <= np.percentile(np.abs(late), 90)
    square = float((late[usual] ** 2).sum())
    return float((late[usual] * longer[usual]).sum()) / square if square else 0.0


def _follows_another(rows: Rows, name: int, names: list[int]) -> bool:
    """Whether it begins before a collective, or another such kernel, of its stream has ended.

    A kernel that was launched early (programmatic dependent launch) waits within itself for the
    one before: its end moves with that one's.
    """
    order = np.lexsort((rows.start, rows.stream))
    before, own = order[:-1], order[1:]
    named = (rows.name[own] == name) & (rows.entry[own] < 0)
    within = (rows.stream[before] == rows.stream[own]) & (rows.start[own] < rows.end[before])
    others = [other for other in names if other != name]
    waited = (rows.entry[before] >= 0) | np.isin(rows.name[before], others)
    return bool(2 * (named & within & waited).sum() > named.sum())
