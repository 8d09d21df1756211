"""Stage 5: from the causes of every row to the graph, causes first (pure).

Nodes are numbered by kind at first: starts of rows, arrivals and ends of collectives' parts,
moments of the hosts. `_ordered` then puts them in the order of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.traces import Calls
from collscope.model.trace import Ints, Kind
from collscope.timeline.causes.event_edges import EventEdges
from collscope.timeline.causes.host_side import HostMoments, HostSide
from collscope.timeline.causes.placed_rows import PlacedRows
from collscope.timeline.graph import (
    EVENT,
    EVENT_2,
    EVER,
    FIRST,
    HOST,
    NEVER,
    NONE,
    ORIGIN,
    STREAM,
    Edges,
    Graph,
)
from collscope.timeline.tolerances import (
    EXPLAINED_NS,
    MIN_ROWS_OF_NAME,
    SHORTEST_LAUNCHES,
    USUAL_DELAY_NS,
)
from collscope.timeline.waits import CallTimes

Bools = npt.NDArray[np.bool_]
_SLOTS = 4


class Causes(msgspec.Struct, frozen=True):
    """What each row waits for, and how every collective's parts end."""

    placed: PlacedRows
    calls: Calls
    host: HostSide
    events: EventEdges
    transfer: Ints  # (parts,) as in `Graph`
    alone: Bools  # (parts,)


class _Numbers(msgspec.Struct, frozen=True):
    """Numbers of the first nodes of each kind; starts of rows come first."""

    arrivals: int
    ends: int
    moments: int
    total: int
    end_node: Ints  # (rows,) node from which the row's end follows


class _Slots(msgspec.Struct, frozen=True):
    """Causes of nodes: the columns of `Graph` before these are in order."""

    before: Ints  # (slots, nodes) `NONE` where a slot is empty
    gap: Ints
    usual: Ints
    lasted: Ints
    work: Ints  # (nodes,)


class _Starts(msgspec.Struct, frozen=True):
    """Causes of the rows' starts, and which of them ended last."""

    slots: _Slots
    last: Ints  # (rows,) slot of it
    held: Ints  # (rows,) ns from there to the start


def assemble(causes: Causes) -> Graph:
    """The nodes with their causes, in order."""
    numbers = _numbers(causes)
    starts = _starts(causes, numbers)
    parts = _collectives(causes, numbers)
    moments = _moments(causes.host.moments, numbers)
    return _ordered(causes, numbers, starts, [starts.slots, parts, moments])


def part_transfers(placed: PlacedRows, calls: Calls, times: CallTimes) -> tuple[Ints, Bools]:
    """Transfer of each part, and the parts that wait for no rank that is known.

    Those end before the last rank comes (a root, a leaf), or their other ranks are not there.
    """
    call = calls.call_of_part
    start, end = placed.start[calls.row], placed.end[calls.row]
    if not len(call):
        return end, np.zeros(0, dtype=bool)
    arrival = np.maximum.reduceat(start, calls.offsets[:-1])[call]
    alone = (end < arrival) | ~times.known[call] | (calls.seen < calls.expected)[call]
    return np.where(alone, end - start, end - arrival), alone


def _numbers(causes: Causes) -> _Numbers:
    rows, parts = len(causes.placed.rows), len(causes.calls.row)
    ends = rows + parts
    end_node = np.arange(rows)
    end_node[causes.calls.row] = ends + np.arange(parts)
    moments = ends + parts
    return _Numbers(rows, ends, moments, moments + len(causes.host.moments), end_node)


def _no_causes(nodes: int) -> _Slots:
    none, zero = np.full((_SLOTS, nodes), NONE), np.zeros((_SLOTS, nodes), dtype=np.int64)
    return _Slots(none, zero, zero.copy(), none.copy(), np.zeros(nodes, dtype=np.int64))


def _starts(causes: Causes, numbers: _Numbers) -> _Starts:
    placed, host, events = causes.placed, causes.host, causes.events
    n = len(placed.rows)
    found, ready = _no_causes(n), np.full((_SLOTS, n), EVER)
    on = np.flatnonzero(host.known)
    found.before[HOST, on] = numbers.moments + host.moment[on]
    found.work[on] = host.work[on]
    ready[HOST, on] = host.moments.time[host.moment[on]] + host.work[on]
    sources = (STREAM, placed.previous), (EVENT, events.source[0]), (EVENT_2, events.source[1])
    for slot, source in sources:
        on = np.flatnonzero(source >= 0)
        found.before[slot, on] = numbers.end_node[source[on]]
        found.lasted[slot, on] = source[on]
        ready[slot, on] = placed.end[source[on]]
    there = found.before >= 0
    delay = placed.start - ready
    # No row starts sooner behind its launch than this, whatever it waits for.
    ready[HOST] += _least_latency(placed, np.where(there[HOST], delay[HOST], EVER))
    last = ready.argmax(axis=0)
    held = np.where(there.any(axis=0), delay[last, np.arange(n)], 0)
    for slot in range(_SLOTS):
        # The cause that ended last keeps its delay; others need what such causes mostly do.
        came_last = last == slot
        usual = _typical(held, there[slot] & came_last, placed.rows.name)
        least = np.minimum(usual, delay[slot])
        found.gap[slot] = np.where(there[slot], np.where(came_last, delay[slot], least), 0)
        found.usual[slot] = np.where(there[slot], usual, 0)
    return _Starts(found, last, held)


def _collectives(causes: Causes, numbers: _Numbers) -> _Slots:
    """Arrivals of all parts, then their ends."""
    calls, parts = causes.calls, len(causes.calls.row)
    row, call = calls.row, calls.call_of_part
    found = _no_causes(2 * parts)
    # In the order of arrival the last one so far is the part's own.
    order = np.lexsort((causes.placed.start[row], call))
    found.before[0, :parts] = row
    same = call[order[1:]] == call[order[:-1]]
    found.before[1, order[1:][same]] = numbers.arrivals + order[:-1][same]
    latest = np.full(len(calls), NONE)
    latest[call[order]] = order
    if parts:
        found.before[0, parts:] = np.where(causes.alone, row, numbers.arrivals + latest[call])
    return found


def _moments(moments: HostMoments, numbers: _Numbers) -> _Slots:
    found = _no_causes(len(moments))
    found.work[:] = moments.work
    follows = moments.earlier != NONE
    found.before[HOST, follows] = numbers.moments + moments.earlier[follows]
    found.gap[HOST, follows] = moments.least[follows]
    for slot, row in enumerate(moments.awaited.T, 1):
        there = row != NONE
        found.before[slot, there] = numbers.end_node[row[there]]
        found.lasted[slot, there] = row[there]
        found.gap[slot, there] = moments.wake[there]
    found.usual[:] = found.gap
    return found


def _in_order(causes: Causes, numbers: _Numbers, starts: _Slots, time: Ints) -> Ints:
    """Moments by which the nodes are put in order: a cause comes before what it holds up.

    The stamps of a stream's rows may overlap by some us: the next one is seen to start before
    the collective has ended that it follows.
    """
    moment, calls, start = time.copy(), causes.calls, causes.placed.start
    row = np.arange(len(start))
    for before in starts.before[STREAM:]:
        follows = (before >= numbers.ends) & (before < numbers.moments)
        np.minimum.at(moment, before[follows], time[row[follows]] - 1)
    if len(calls):
        arrival = np.maximum.reduceat(start[calls.row], calls.offsets[:-1])
        ends = slice(numbers.ends, numbers.moments)
        came = np.where(causes.alone, start[calls.row], arrival[calls.call_of_part])
        moment[ends] = np.maximum(moment[ends], came)
    return moment


def _ordered(causes: Causes, numbers: _Numbers, starts: _Starts, kinds: Sequence[_Slots]) -> Graph:
    placed, calls, host = causes.placed, causes.calls, causes.host
    rows, moments = placed.rows, host.moments
    n, parts = len(rows), len(calls.row)
    time = np.concatenate(
        [placed.start, placed.start[calls.row], placed.end[calls.row], moments.time]
    )
    by_kind = np.repeat([1, 2, 3, 0], [n, parts, parts, len(moments)])
    order = np.lexsort((by_kind, _in_order(causes, numbers, starts.slots, time)))
    place = np.full(numbers.total, NONE)
    place[order] = np.arange(numbers.total)
    before = np.concatenate([k.before for k in kinds], axis=1)[:, order]
    target = np.where(before >= 0, place[before] + FIRST, NEVER)
    late = target >= np.arange(numbers.total) + FIRST
    target[late] = NEVER
    gap = np.concatenate([k.gap for k in kinds], axis=1)[:, order]
    usual = np.concatenate([k.usual for k in kinds], axis=1)[:, order]
    lasted = np.concatenate([k.lasted for k in kinds], axis=1)[:, order]
    work = np.concatenate([k.work for k in kinds])[order]
    unseen = np.zeros(target.shape, dtype=bool)
    unseen[EVENT:, place[:n]] = causes.events.unseen
    free = (target == NEVER).all(axis=0)
    target[HOST, free], gap[HOST, free], work[free] = ORIGIN, time[order][free], 0
    usual[HOST, free] = gap[HOST, free]
    lasted[:, free] = NONE
    lasted[target == NEVER] = NONE
    duration = placed.end - placed.start
    duration[calls.row] = 0
    contradicted = host.contradicted + int(late.sum())
    row = np.concatenate([np.arange(n), calls.row, calls.row, np.full(len(moments), NONE)])
    trace = np.concatenate([rows.trace, calls.trace, calls.trace, moments.trace])
    traces = len(rows.ranks)
    return Graph(
        before=target,
        gap=gap,
        usual=usual,
        lasted=lasted,
        unseen=unseen & (target != NEVER),
        work=work,
        part=np.concatenate(
            [np.full(numbers.ends, NONE), np.arange(parts), np.full(len(moments), NONE)]
        )[order],
        time=time[order],
        row=row[order],
        trace=trace[order].astype(np.int32),
        duration=duration,
        compute=(rows.kind == Kind.KERNEL) & (rows.entry < 0),
        transfer=causes.transfer,
        alone=causes.alone,
        start_node=place[:n] + FIRST,
        end_node=place[numbers.end_node] + FIRST,
        edges=causes.events.counts + Edges(contradicted=contradicted),
        idle_ns=_idle(starts, rows.trace, traces),
        launches=np.bincount(rows.trace[host.known], minlength=traces),
        bound=np.bincount(rows.trace[host.known & (starts.last == HOST)], minlength=traces),
    )


def _idle(starts: _Starts, trace: npt.NDArray[np.int32], traces: int) -> Ints:
    """Per trace what rows start later than `EXPLAINED_NS` behind their last cause, ns."""
    caused = (starts.slots.before >= 0).any(axis=0)
    late = caused & (starts.held > EXPLAINED_NS)
    unexplained = np.where(late, starts.held - EXPLAINED_NS, 0)
    return np.rint(np.bincount(trace, weights=unexplained, minlength=traces)).astype(np.int64)


def _least_latency(placed: PlacedRows, delay: Ints) -> Ints:
    """Shortest time from a launch to its row in each row's trace, ns; 0 where none shows it.

    delay  the same of each row, `EVER` where its launch is not known
    """
    rows = placed.rows
    least = np.zeros(len(rows.ranks), dtype=np.int64)
    for trace in range(len(least)):
        known = delay[rows.of(trace)]
        known = known[(known >= 0) & (known <= EXPLAINED_NS)]  # else the GPU was behind
        least[trace] = int(np.quantile(known, SHORTEST_LAUNCHES)) if len(known) else 0
    return least[rows.trace]


def _typical(delays: Ints, seen: Bools, name: npt.NDArray[np.int32]) -> Ints:
    """What rows mostly wait behind a cause, by their names: the median of those `seen`, ns.

    Some kernels begin later than others: for rare names all rows show it.
    """
    near = np.flatnonzero(seen & (delays >= 0) & (delays <= EXPLAINED_NS))
    if not len(near):
        return np.full(len(delays), USUAL_DELAY_NS)
    name = name + 1  # -1: not known
    found = np.full(int(name.max()) + 1, int(np.median(delays[near])))
    near = near[np.lexsort((delays[near], name[near]))]
    of_name, first, count = np.unique(name[near], return_index=True, return_counts=True)
    often = count >= MIN_ROWS_OF_NAME
    found[of_name[often]] = delays[near[first + count // 2]][often]
    return found[name]
