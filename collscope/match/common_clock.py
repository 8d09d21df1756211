"""One clock for traces of several hosts whose process groups nothing names (pure).

Clocks of hosts differ by any constant and drift. Streams of two traces that carry one group's calls
show both: the calls end together on one clock only. Traces that nothing links keep their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.match.pairing import Comparison, Sequence3, compare_calls
from collscope.match.rows import UNKNOWN_LAUNCH, Rows, signatures
from collscope.match.shared_clock import match_by_clock
from collscope.match.tolerances import MAX_COMPARED_MATES
from collscope.model.trace import Ints

Compare = Callable[[int, int], Comparison]


class Linked(msgspec.Struct, frozen=True):
    """Rows of all traces, on one clock as far as their calls allow."""

    rows: Rows
    component: Ints  # (traces,) traces of different ones share no clock
    # Traces whose calls may be those of a trace with another clock, by all that is known.
    doubtful: frozenset[int]


def unlinked(rows: Rows) -> Linked:
    """Rows on the clocks of their traces."""
    return Linked(rows, np.arange(len(rows.ranks)), frozenset())


def nameless_streams(rows: Rows) -> list[tuple[int, Ints]]:
    """(trace, rows in the order of start) of each stream whose collectives name no group."""
    names_none = np.array(
        [e.group is None and not e.group_ranks for e in rows.entries] + [False], dtype=bool
    )
    collective = np.flatnonzero(rows.entry >= 0)
    named = np.unique(rows.stream[collective[~names_none[rows.entry[collective]]]])
    chosen = collective[~np.isin(rows.stream[collective], named)]
    order = chosen[np.argsort(rows.stream[chosen], kind="stable")]
    cuts = np.flatnonzero(np.diff(rows.stream[order])) + 1
    return [(int(rows.trace[m[0]]), m) for m in np.split(order, cuts) if len(m)]


def link_clocks(rows: Rows) -> Linked:
    """Rows with the clocks of all traces linked by calls that they have in common.

    Traces of one host, and those that meet others on their own clocks, have one already: where all
    do, nothing changes.
    """
    units = nameless_streams(rows)
    met = match_by_clock([(t, (rows.start[m], rows.end[m])) for t, m in units])
    component = _sharing(rows, [[units[k][0] for k in places] for places in met])
    if len(set(component[[t for t, _ in units]].tolist())) < 2:
        return Linked(rows, component, frozenset())
    sig = signatures(rows)
    # A kernel of Send and Recv does not end when its neighbour's does.
    synchronises = np.array([e.op.synchronises for e in rows.entries] + [False])
    streams: dict[int, list[Sequence3]] = defaultdict(list)
    for t, m in units:
        own = m[synchronises[rows.entry[m]]]
        if len(own):
            streams[t].append((sig[rows.entry[own]], rows.start[own], rows.end[own]))
    return _link(rows, component, streams)


def _sharing(rows: Rows, groups: list[list[int]]) -> Ints:
    """Per trace the first one that shares its clock: of one host, or by groups that meet on it."""
    found = np.arange(len(rows.ranks))
    hosts = defaultdict(list)
    for t, host in enumerate(rows.hosts):
        if host:
            hosts[host].append(t)
    for traces in [*hosts.values(), *groups]:
        found[np.isin(found, found[traces])] = found[traces].min()
    return found


def _link(rows: Rows, component: Ints, streams: dict[int, list[Sequence3]]) -> Linked:
    """Clocks joined one by one, those first whose calls agree best."""
    component = component.copy()
    # The common time of a trace's time t is t * rate + shift.
    rate, shift = np.ones(len(component)), np.zeros(len(component))
    known: dict[tuple[int, int], Comparison] = {}

    def compare(a: int, b: int) -> Comparison:
        if (a, b) not in known:
            found = [compare_calls(*pair) for pair in product(streams[a], streams[b])]
            known[a, b] = min(found, key=_rank)
        return known[a, b]

    mates = _mates(rows.group_ranks)
    left = list(dict.fromkeys(component[sorted(streams)].tolist()))
    while left:
        head, left = left[0], left[1:]
        while best := _nearest(head, left, component, sorted(streams), mates, compare):
            a, b = best
            found = known[best]
            # The time of b is that of a, times 1 + drift, plus the offset.
            ratio = rate[a] / (rate[b] * (1.0 + found.drift))
            moved = shift[a] - ratio * shift[b] - rate[a] * found.offset / (1.0 + found.drift)
            left.remove(int(component[b]))
            where = component == component[b]
            rate[where], shift[where] = rate[where] * ratio, shift[where] * ratio + moved
            component[where] = head
    unsure = [p for p, c in known.items() if c.same is None and component[p[0]] != component[p[1]]]
    trace = rows.trace

    def aligned(times: Ints) -> Ints:
        by = np.rint((rate[trace] - 1.0) * times + shift[trace]).astype(np.int64)
        return np.where(times == UNKNOWN_LAUNCH, times, times + by)

    moved_rows = replace(
        rows, start=aligned(rows.start), end=aligned(rows.end), launch=aligned(rows.launch)
    )
    return Linked(moved_rows, component, frozenset(t for pair in unsure for t in pair))


def _rank(found: Comparison) -> tuple[bool, bool, float]:
    """The best comparison first: the same calls, then those that may be."""
    return found.same is not True, found.same is False, found.scatter


def _nearest(
    head: int,
    left: Sequence[int],
    component: Ints,
    traces: Sequence[int],
    mates: dict[tuple[int, int], int],
    compare: Compare,
) -> tuple[int, int] | None:
    """Traces of component `head` and of another whose calls are the same and agree best."""
    ours = [t for t in traces if component[t] == head]
    pairs = []
    for other in left:
        theirs = [t for t in traces if component[t] == other]
        both = sorted(product(ours, theirs), key=lambda p: mates.get(p, len(component)))
        pairs += both[:MAX_COMPARED_MATES]
    same = [pair for pair in pairs if compare(*pair).same]
    return min(same, key=lambda pair: compare(*pair).scatter, default=None)


def _mates(group_ranks: Sequence[Sequence[tuple[int, ...]]]) -> dict[tuple[int, int], int]:
    """Size of the smallest group that both traces name."""
    members: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for t, groups in enumerate(group_ranks):
        for ranks in set(groups):
            members[ranks].append(t)
    found: dict[tuple[int, int], int] = {}
    for ranks, traces in members.items():
        for pair in product(traces, traces):
            found[pair] = min(found.get(pair, len(ranks)), len(ranks))
    return found
