"""Kernels of Send and Recv that name no peer, and the kernels they exchange with (pure).

A profiler calls them SendRecv, and names no peer. Both kernels of an exchange run at once and end
together, but for a sender whose bytes fit the library's buffer: it leaves before its receiver
comes. Ranks that exchange do so repeatedly, so that pairs of ranks separate exchange from chance.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.match.groups import Group
from collscope.match.rows import Rows, class_key
from collscope.match.tolerances import END_SCATTER_NS, END_SCATTER_SHARE, MAX_END_SCATTER_NS
from collscope.match.traces import Calls
from collscope.model import CollectiveClass, Op
from collscope.model.trace import Ints
from collscope.timeline.clocks import Clocks
from collscope.timeline.tolerances import (
    DRAIN_SHARE,
    EXCHANGE_ROUNDS,
    MIN_EXCHANGE_PAIRS,
    MIN_EXCHANGE_PAIRS_SHARE,
    NEIGHBOURS_TRIED,
    UNDELAYED_QUANTILE,
)

Bools = npt.NDArray[np.bool_]


def with_exchanges(rows: Rows, calls: Calls, clocks: Clocks) -> tuple[Calls, Clocks]:
    """`calls` and behind them one for each Send, Recv or SendRecv that had no partner.

    Those whose partner the clock shows have two parts; the rest one, of two ranks expected.
    SendRecv kernels of two ranks that were matched by their order alone are among them. Traces of
    ranks that exchange share a clock: theirs can be compared.
    """
    comparable = _comparable(rows, clocks)
    by_order = _by_order(calls, comparable)
    row = np.union1d(calls.unpaired, calls.row[by_order[calls.call_of_part]])
    together = [*_exchanging(calls)]
    if not len(row):
        return calls, _joined(clocks, together)
    pairs = _pairs(rows, clocks, row, comparable)
    single = np.setdiff1d(row, pairs)
    alone = np.stack([single, np.full(len(single), -1)], axis=1)
    together += np.unique(rows.trace[pairs], axis=0).tolist()
    found = _extended(rows, _without(calls, by_order), np.concatenate([pairs, alone]))
    return found, _joined(clocks, together)


def _by_order(calls: Calls, comparable: Bools) -> Bools:
    """Calls of SendRecv kernels of two ranks; any of them may have sent without waiting."""
    unclear = np.array([c.op is Op.SEND_RECV for c in calls.classes] + [False])[calls.class_]
    members = [g.members for g in calls.groups]
    two = np.array([len(m) == 2 and comparable[m[0], m[1]] for m in members] + [False], dtype=bool)
    found: Bools = unclear & ~calls.p2p & two[calls.group]
    return found


def _exchanging(calls: Calls) -> Iterator[list[int]]:
    """Traces whose SendRecv kernels are calls of all of them: they end together on one clock."""
    for group in np.unique(calls.group[~calls.p2p]).tolist():
        class_ids = calls.class_[(calls.group == group) & ~calls.p2p]
        if len(calls.groups[group].members) > 2 and any(
            calls.classes[k].op is Op.SEND_RECV for k in np.unique(class_ids).tolist()
        ):
            yield [*calls.groups[group].members]


def _joined(clocks: Clocks, together: list[list[int]]) -> Clocks:
    """Clocks where the traces of each list form one component."""
    component = clocks.component.copy()
    for traces in together:
        component[np.isin(component, component[traces])] = component[traces].min()
    return replace(clocks, component=component)


def _without(calls: Calls, left_out: Bools) -> Calls:
    part = ~left_out[calls.call_of_part]
    return replace(
        calls,
        **{
            name: getattr(calls, name)[~left_out]
            for name in ("group", "seq", "class_", "expected", "nranks", "mismatched", "p2p")
        },
        offsets=np.concatenate([[0], np.cumsum(calls.seen[~left_out])]),
        row=calls.row[part],
        trace=calls.trace[part],
        outside=frozenset(),
    )


def _pairs(rows: Rows, clocks: Clocks, row: Ints, comparable: Bools) -> Ints:
    """Rows that exchange, shape (pairs, 2); the one of the lower trace first."""
    end = clocks.align(rows.end[row], rows.trace[row])
    row = row[np.argsort(end, kind="stable")]
    trace = rows.trace[row]
    start, end = (clocks.align(v[row], trace) for v in (rows.start, rows.end))
    duration = end - start
    left = np.arange(len(row))
    scatter = np.clip(END_SCATTER_SHARE * duration, END_SCATTER_NS, MAX_END_SCATTER_NS)
    strict = scatter.astype(np.int64)
    met = _mutual(left, (trace, start, end), strict, comparable)
    known = _often(trace, met, len(rows.ranks))
    drain = np.full(len(row), DRAIN_SHARE * np.quantile(duration, UNDELAYED_QUANTILE))
    loose = np.maximum(strict, drain.astype(np.int64))
    found = []
    for _ in range(EXCHANGE_ROUNDS):
        met = _mutual(left, (trace, start, end), loose, known)
        found.append(met)
        left = np.setdiff1d(left, met)
    pairs = row[np.concatenate(found)]
    return np.sort(pairs, axis=1)  # rows of a lower trace are lower


def _comparable(rows: Rows, clocks: Clocks) -> Bools:
    """Pairs of traces whose times may be compared: unknown hosts may be the same."""
    has_host = np.array([host is not None for host in rows.hosts], dtype=bool)
    same = clocks.component[:, None] == clocks.component[None, :]
    unlike = np.arange(len(has_host))[:, None] != np.arange(len(has_host))[None, :]
    found: Bools = (same | ~(has_host[:, None] & has_host[None, :])) & unlike
    return found


def _mutual(
    left: Ints, at: tuple[npt.NDArray[np.int32], Ints, Ints], limit: Ints, allowed: Bools
) -> Ints:
    """Places that are each other's nearest by their ends, shape (pairs, 2).

    left   places to choose from, rising, and with them their ends
    at     trace, start and end of each place
    limit  ends of two places differ by no more than the lesser of theirs
    """
    trace, start, end = (v[left] for v in at)
    most = limit[left]
    n = len(left)
    best, least_distance = np.full(n, -1), np.full(n, np.inf)
    for k in range(1, min(NEIGHBOURS_TRIED, n - 1) + 1):
        i, j = np.arange(n - k), np.arange(k, n)
        distance = end[j] - end[i]
        good = (distance <= np.minimum(most[i], most[j])) & (start[j] < end[i])
        good &= allowed[trace[i], trace[j]]
        for one, other in ((i, j), (j, i)):
            nearer = good & (distance < least_distance[one])
            least_distance[one[nearer]] = distance[nearer]
            best[one[nearer]] = other[nearer]
    first = np.flatnonzero(best > np.arange(n))
    first = first[best[best[first]] == first]
    return np.stack([left[first], left[best[first]]], axis=1)


def _often(trace: npt.NDArray[np.int32], met: Ints, n: int) -> Bools:
    """Pairs of traces that meet so often that it is no chance."""
    count = np.zeros((n, n), dtype=np.int64)
    np.add.at(count, (trace[met[:, 0]], trace[met[:, 1]]), 1)
    count = count + count.T
    own = np.bincount(trace, minlength=n)
    enough = np.maximum(
        MIN_EXCHANGE_PAIRS, MIN_EXCHANGE_PAIRS_SHARE * np.minimum(own[:, None], own[None, :])
    )
    found: Bools = count >= enough
    return found


def _extended(rows: Rows, calls: Calls, matrix: Ints) -> Calls:
    """Calls, and those of the matrix behind them; there -1 stands for a row that is not known."""
    groups, classes = [*calls.groups], [*calls.classes]
    number_of: dict[CollectiveClass, int] = {key: k for k, key in enumerate(classes)}
    order, group, seq = [], [], []
    for members, matched in _by_members(rows, matrix):
        own = tuple(matrix[matched, column] for column in range(len(members)))
        groups.append(Group("inferred", None, None, 2, members, own))
        order.append(matched)
        group.append(np.full(len(matched), len(groups) - 1))
        seq.append(np.arange(len(matched)))
    matrix = matrix[np.concatenate(order)]
    there = matrix >= 0
    entry = rows.entry[matrix[:, 0]]
    of_entry = np.zeros(len(rows.entries), dtype=np.int64)
    for e in np.unique(entry).tolist():
        key = class_key(rows.entries[e], 2)
        of_entry[e] = number_of.setdefault(key, len(number_of))
    n = len(matrix)
    two = np.full(n, 2, dtype=np.int32)
    return replace(
        calls,
        groups=tuple(groups),
        classes=tuple(number_of),
        group=np.concatenate([calls.group, *group]).astype(np.int32),
        seq=np.concatenate([calls.seq, *seq]),
        class_=np.concatenate([calls.class_, of_entry[entry]]).astype(np.int32),
        expected=np.concatenate([calls.expected, two]),
        nranks=np.concatenate([calls.nranks, two]),
        mismatched=np.concatenate([calls.mismatched, np.zeros(n, dtype=bool)]),
        p2p=np.concatenate([calls.p2p, np.ones(n, dtype=bool)]),
        offsets=np.concatenate([calls.offsets, calls.offsets[-1] + np.cumsum(there.sum(axis=1))]),
        row=np.concatenate([calls.row, matrix[there]]),
        trace=np.concatenate([calls.trace, rows.trace[matrix[there]]]),
        realigned=(*calls.realigned, *(False for _ in group)),
        unpaired=calls.unpaired[:0],
    )


def _by_members(rows: Rows, matrix: Ints) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """Traces of rows that exchange, and their places in the matrix in the order of time."""
    trace = np.where(matrix >= 0, rows.trace[matrix], -1)
    for members in np.unique(trace, axis=0).tolist():
        matched = np.flatnonzero((trace == members).all(axis=1))
        matched = matched[np.argsort(rows.start[matrix[matched, 0]], kind="stable")]
        yield tuple(t for t in members if t >= 0), matched
