"""From the causes of every row to the graph, in an order in which causes come first (pure)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collscope.model.trace import Ints, Kind
from collscope.timeline.graph import (
    EVENT,
    EVENT_2,
    EVER,
    EXPLAINED_NS,
    FIRST,
    HOST,
    NEVER,
    NONE,
    ORIGIN,
    STREAM,
    Edges,
    Graph,
)
from collscope.timeline.row_causes import RowCauses

Bools = npt.NDArray[np.bool_]
_SHORTEST = 0.01  # of the launches: their rows start the soonest
_OFTEN = 3  # rows of a name that tell what these wait behind a cause


class Nodes:
    """Nodes: starts of rows, arrivals and ends of collectives' parts, synchronising calls."""

    def __init__(self, build: RowCauses) -> None:
        """Number the nodes: starts of rows, arrivals and ends of parts, moments of the hosts."""
        self.b = build
        n, parts = len(build.rows), len(build.calls.row)
        self.arrivals, self.ends, self.hosts = n, n + parts, n + 2 * parts
        total = self.hosts + len(build.syncs)
        self.before = np.full((4, total), NONE)
        self.gap = np.zeros((4, total), dtype=np.int64)
        self.usual = np.zeros((4, total), dtype=np.int64)
        self.lasted = np.full((4, total), NONE)
        self.work = np.zeros(total, dtype=np.int64)
        self.part = np.full(total, NONE)
        self.part[self.ends : self.hosts] = np.arange(parts)
        self.duration = build.end - build.start
        self.duration[build.calls.row] = 0
        self.end_node = np.arange(n)
        self.end_node[build.calls.row] = self.ends + np.arange(parts)
        self.last = np.zeros(n, dtype=np.int64)  # slot of the cause that came last
        self.held = np.zeros(n, dtype=np.int64)  # ns from that cause to the start
        self.transfer, self.alone = _transfers(build)

    def graph(self) -> Graph:
        """The nodes with their causes, in order."""
        self._starts()
        self._collectives()
        self._syncs()
        return self._ordered()

    def _starts(self) -> None:
        b, n = self.b, len(self.b.rows)
        ready = np.full((4, n), EVER)
        on = np.flatnonzero(b.known)
        sync_time = np.array([s.time for s in b.syncs] or [0], dtype=np.int64)
        self.before[HOST, on] = self.hosts + b.host_of[on]
        self.work[on] = b.host_ns[on]
        ready[HOST, on] = sync_time[b.host_of[on]] + b.host_ns[on]
        for slot, source in ((STREAM, b.before), (EVENT, b.event[0]), (EVENT_2, b.event[1])):
            on = np.flatnonzero(source >= 0)
            self.before[slot, on] = self.end_node[source[on]]
            self.lasted[slot, on] = source[on]
            ready[slot, on] = b.end[source[on]]
        there = self.before[:, :n] >= 0
        delay = b.start - ready
        # No row starts sooner behind its launch than this, whatever it waits for.
        ready[HOST] += _least_latency(b, np.where(there[HOST], delay[HOST], EVER))
        self.last = ready.argmax(axis=0)
        self.held = np.where(there.any(axis=0), delay[self.last, np.arange(n)], 0)
        for slot in range(4):
            # The cause that came last keeps its delay; others need what such causes mostly do.
            mine = self.last == slot
            usual = _typical(self.held, there[slot] & mine, b.rows.name)
            least = np.minimum(usual, delay[slot])
            self.gap[slot, :n] = np.where(there[slot], np.where(mine, delay[slot], least), 0)
            self.usual[slot, :n] = np.where(there[slot], usual, 0)

    def _collectives(self) -> None:
        b, parts = self.b, len(self.b.calls.row)
        row, call = b.calls.row, b.calls.call_of_part
        # In the order of arrival the last one so far is the part's own.
        order = np.lexsort((b.start[row], call))
        self.before[0, self.arrivals + np.arange(parts)] = row
        same = call[order[1:]] == call[order[:-1]]
        self.before[1, self.arrivals + order[1:][same]] = self.arrivals + order[:-1][same]
        latest = np.full(len(b.calls), NONE)
        latest[call[order]] = order
        if parts:
            self.before[0, self.ends : self.hosts] = np.where(
                self.alone, row, self.arrivals + latest[call]
            )

    def _syncs(self) -> None:
        for k, sync in enumerate(self.b.syncs):
            node = self.hosts + k
            self.work[node] = sync.work
            if sync.earlier != NONE:
                self.before[HOST, node] = self.hosts + sync.earlier
                self.gap[HOST, node] = sync.least
            for slot, r in enumerate(sync.awaited[:3], 1):
                self.before[slot, node], self.lasted[slot, node] = self.end_node[r], r
                self.gap[slot, node] = sync.wake
        self.usual[:, self.hosts :] = self.gap[:, self.hosts :]

    def _in_order(self, time: Ints) -> Ints:
        """Moments by which the nodes are put in order: a cause comes before what it holds up.

        The stamps of a stream's rows may overlap by some us: the next one is seen to start before
        the collective has ended that it follows.
        """
        moment, calls = time.copy(), self.b.calls
        row = np.arange(len(self.b.rows))
        for before in self.before[STREAM:, : len(row)]:
            mine = (before >= self.ends) & (before < self.hosts)
            np.minimum.at(moment, before[mine], time[row[mine]] - 1)
        if len(calls):
            arrival = np.maximum.reduceat(self.b.start[calls.row], calls.offsets[:-1])
            ends = slice(self.ends, self.hosts)
            came = np.where(self.alone, self.b.start[calls.row], arrival[calls.call_of_part])
            moment[ends] = np.maximum(moment[ends], came)
        return moment

    def _ordered(self) -> Graph:
        b, rows, calls = self.b, self.b.rows, self.b.calls
        n, parts, syncs = len(rows), len(calls.row), len(b.syncs)
        sync_time = np.array([s.time for s in b.syncs], dtype=np.int64)
        sync_trace = np.array([s.trace for s in b.syncs], dtype=np.int64)
        time = np.concatenate([b.start, b.start[calls.row], b.end[calls.row], sync_time])
        moment = self._in_order(time)
        order = np.lexsort((np.repeat([1, 2, 3, 0], [n, parts, parts, syncs]), moment))
        place = np.full(len(time), NONE)
        place[order] = np.arange(len(time))
        before = self.before[:, order]
        target = np.where(before >= 0, place[before] + FIRST, NEVER)
        late = target >= np.arange(len(time)) + FIRST
        target[late] = NEVER
        b.counts["contradicted"] += int(late.sum())
        gap, lasted, work = self.gap[:, order], self.lasted[:, order], self.work[order]
        usual = self.usual[:, order]
        unseen = np.zeros(before.shape, dtype=bool)
        unseen[EVENT:, place[:n]] = b.unseen
        free = (target == NEVER).all(axis=0)
        target[HOST, free], gap[HOST, free], work[free] = ORIGIN, time[order][free], 0
        usual[HOST, free] = gap[HOST, free]
        lasted[:, free] = NONE
        lasted[target == NEVER] = NONE
        traces = len(rows.ranks)
        caused = (self.before[:, :n] >= 0).any(axis=0)
        unexplained = np.where(caused & (self.held > EXPLAINED_NS), self.held - EXPLAINED_NS, 0)
        idle = np.bincount(rows.trace, weights=unexplained, minlength=traces)
        counts = b.counts
        return Graph(
            before=target,
            gap=gap,
            usual=usual,
            lasted=lasted,
            unseen=unseen & (target != NEVER),
            work=work,
            part=self.part[order],
            time=time[order],
            row=np.concatenate([np.arange(n), calls.row, calls.row, np.full(syncs, NONE)])[order],
            trace=np.concatenate([rows.trace, calls.trace, calls.trace, sync_trace])[order].astype(
                np.int32
            ),
            duration=self.duration,
            compute=(rows.kind == Kind.KERNEL) & (rows.entry < 0),
            transfer=self.transfer,
            alone=self.alone,
            start_node=place[:n] + FIRST,
            end_node=place[self.end_node] + FIRST,
            edges=Edges(
                counts["told"], counts["inferred"], counts["contradicted"], counts["unknown"]
            ),
            idle_ns=np.rint(idle).astype(np.int64),
            launches=np.bincount(rows.trace[b.known], minlength=traces),
            bound=np.bincount(rows.trace[b.known & (self.last == HOST)], minlength=traces),
        )


def _least_latency(b: RowCauses, delay: Ints) -> Ints:
    """Shortest time from a launch to its row in each row's trace, ns; 0 where none shows it.

    delay  the same of each row, `EVER` where its launch is not known
    """
    least = np.zeros(len(b.rows.ranks), dtype=np.int64)
    for trace in range(len(least)):
        known = delay[b.rows.of(trace)]
        known = known[(known >= 0) & (known <= EXPLAINED_NS)]  # else the GPU was behind
        least[trace] = int(np.quantile(known, _SHORTEST)) if len(known) else 0
    return least[b.rows.trace]


def _typical(delays: Ints, seen: Bools, name: npt.NDArray[np.int32]) -> Ints:
    """What rows mostly wait behind a cause, by their names: the median of those `seen`, ns.

    Some kernels begin later than others: of the names that are seen seldom all rows tell it.
    """
    near = np.flatnonzero(seen & (delays >= 0) & (delays <= EXPLAINED_NS))
    if not len(near):
        return np.full(len(delays), 2_000)
    name = name + 1  # -1: not told
    found = np.full(int(name.max()) + 1, int(np.median(delays[near])))
    near = near[np.lexsort((delays[near], name[near]))]
    of_name, first, count = np.unique(name[near], return_index=True, return_counts=True)
    often = count >= _OFTEN
    found[of_name[often]] = delays[near[first + count // 2]][often]
    return found[name]


def _transfers(b: RowCauses) -> tuple[Ints, Bools]:
    """Transfer of each part, and the parts that wait for no rank that is known.

    Those end before the last rank comes (a root, a leaf), or their other ranks are not there.
    """
    calls, times, call = b.calls, b.times, b.calls.call_of_part
    start, end = b.start[calls.row], b.end[calls.row]
    if not len(call):
        return end, np.zeros(0, dtype=bool)
    arrival = np.maximum.reduceat(start, calls.offsets[:-1])[call]
    alone = (end < arrival) | ~times.known[call] | (calls.seen < calls.expected)[call]
    return np.where(alone, end - start, end - arrival), alone
