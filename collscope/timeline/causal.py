"""What had to happen before what: the causal graph of a job's recorded steps (pure).

Nodes are starts of rows, ends of collectives, and the moments when a synchronising call let the
host go on. A node's time is the largest of its predecessors' times, each plus a weight:

- host: a launch follows the last synchronising call that its thread waited in, by host work;
- stream: a row follows the row before it on its stream;
- event: a row follows the row of another stream whose event its stream waits for;
- a collective's transfer follows the arrival of its last rank;
- a synchronising call returns when the rows that it names are done.

Which event a wait names is told by few traces. Where it is not, the order of calls tells: an event
is recorded behind the row that its stream was given last. Every such guess is a rule of a site (two
streams and what is launched there) and is held against the recorded times of all its occurrences: a
row that started before what it is said to have waited for contradicts it. Rules that are
contradicted are dropped, single edges that are, too; and a rule that is no more than possible
counts only when the order of calls alone names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.match.traces import Calls
from collscope.model.trace import Call, HostCalls, Ints, Kind
from collscope.timeline.clocks import Clocks
from collscope.timeline.steps import recurring_kernels
from collscope.timeline.waits import CallTimes

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
NONE = -1
EXPLAINED_NS = 20_000
"""A row that starts this soon after its last known cause was held up by that."""
_AFTER_EVENT_NS = 12_000  # no runtime takes longer from the end of a row to one that waited for it
_TOLERANCE_NS = 2_000  # a clock's grain, and rows whose start overlaps the end of the one before
_WAKE_NS = 60_000  # a host that waited goes on this soon after the GPU is done
_SYNC_NS = 5_000  # a synchronising call that finds nothing to wait for, and waking up
_BEFORE, _BEHIND = 6, 3  # calls around a wait that tell what it is for
_RECORDS = 16  # so many event records back a wait's own is looked for
_BACK = 3  # and so many rows with a record on one stream
_EVER = np.iinfo(np.int64).min // 2
_RECURS = 0.9  # of a stream's rows: the name is that of the row one step before
_CONTRADICTED = 0.02  # of a rule's occurrences
# A launch queue of CUDA holds 1022 to 1024 launches, as traces of full ones show; a place in it is
# free again when the oldest of them is done.
_QUEUE, _SLOW_LAUNCH_NS = 1000, 20_000
_IDLE_SYNC_NS = (
    100_000  # a host that launches nothing for so long while the GPU drains waits for it
)


@dataclass(frozen=True, slots=True)
class Edges:
    """How many event edges there are, by how they are known."""

    told: int  # the trace names the stream that waits; for which row, where no record is told, is
    # inferred from its order
    inferred: int  # both are
    contradicted: int  # dropped
    unknown: int  # waits for which no rule was found


@dataclass(frozen=True, slots=True)
class Following:
    """The other way round: what follows each node, and what it does.

    Behind all nodes, counted as in `Graph.before`, count the ends of rows, of which only those of
    compute kernels are used: whatever waits for such a row follows its end. Lists, for a loop.
    """

    edges: tuple[Ints, Ints]  # slot and place (a node less `FIRST`) of what waits, by its cause
    target: list[int]  # (edges,) node that waits
    first: list[int]  # (nodes + rows + 1,) where the edges of each begin
    causes: list[int]  # (nodes,) how many each waits for
    trace: list[int]  # (nodes + rows,)
    kernel: list[int]  # (nodes,) row of a compute kernel that starts here; -1: none does
    change: list[int]  # (nodes,) 1 where a collective comes to its GPU, -1 where it leaves, else 0


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which every predecessor comes first, up to four predecessors each.

    A node's time is the largest over its slots of: the predecessor's time, plus `gap`, plus the
    duration of the row `lasted` where there is one; in slot 0 also plus `work`, which is the
    host's, and, at the end of a collective's part, plus the transfer of that part.
    Predecessors count with two nodes before all others, `NEVER` and `ORIGIN`: their times are minus
    infinity and 0, the one of the clock. A node without a cause stays where it was recorded.
    """

    before: Ints  # (slots, nodes) `NEVER` where a slot is empty
    gap: Ints  # (slots, nodes) ns
    usual: Ints  # (slots, nodes) the same without the recorded starts: what such causes mostly need
    lasted: Ints  # (slots, nodes) row; -1: none
    work: Ints  # (nodes,) ns of the host
    part: Ints  # (nodes,) -1: the node is no end of a collective's part
    time: Ints  # (nodes,) recorded, common clock
    row: Ints  # (nodes,) row that starts or ends here, or came last; -1: a synchronising call
    trace: npt.NDArray[np.int32]  # (nodes,)
    duration: Ints  # (rows,) ns, as recorded; 0 for collectives, whose ends are nodes
    compute: Bools  # (rows,) a kernel that is no collective
    transfer: Ints  # (parts,) ns from the last arrival to the end, or alone from start to end
    alone: Bools  # (parts,) waits for no rank that is known: a root, a leaf, a call of one trace
    start_node: Ints  # (rows,) node, counted as in `before`, of the row's start
    end_node: Ints  # (rows,) node from which the row's end follows, after its `duration`
    edges: Edges
    idle_ns: Ints  # (traces,) idle of streams that no edge ends within `EXPLAINED_NS`
    launches: Ints  # (traces,) rows whose launch is known
    bound: Ints  # (traces,) of these, those that the host held up: the GPU had nothing queued

    @cached_property
    def following(self) -> Following:
        """Edges by what they come from."""
        nodes, rows = len(self.time) + FIRST, len(self.duration)
        slot, place = np.nonzero(self.before != NEVER)
        source, lasted = self.before[slot, place], self.lasted[slot, place]
        ended = np.append(self.compute, False)[lasted]
        source = np.where(ended, nodes + lasted, source)
        order = np.argsort(source, kind="stable")
        kernel, change = np.full(nodes, NONE), np.zeros(nodes, dtype=np.int64)
        kernel[self.start_node] = np.where(self.compute, np.arange(rows), NONE)
        ends = FIRST + np.flatnonzero(self.part != NONE)
        np.add.at(change, self.start_node[self.row[ends - FIRST]], 1)
        change[ends] = -1
        trace = np.append(np.zeros(FIRST, dtype=np.int64), self.trace)
        return Following(
            edges=(slot[order], place[order]),
            target=(place[order] + FIRST).tolist(),
            first=np.searchsorted(source[order], np.arange(nodes + rows + 1)).tolist(),
            causes=np.bincount(place + FIRST, minlength=nodes).tolist(),
            trace=np.append(trace, trace[self.start_node]).tolist(),
            kernel=kernel.tolist(),
            change=change.tolist(),
        )


NEVER, ORIGIN, FIRST = 0, 1, 2
HOST, STREAM, EVENT, EVENT_2 = range(4)
"""Slots of a row's start."""


def build_graph(
    rows: Rows, host: tuple[HostCalls | None, ...], calls: Calls, times: CallTimes, clocks: Clocks
) -> Graph:
    """Graph of all ranks on the common clock.

    host  per trace of `rows` its calls, None where the source tells none
    """
    build = _Build(rows, calls, times, clocks)
    for trace, told in enumerate(host):
        build.add(trace, told)
    return _Nodes(build).graph()


@dataclass(frozen=True)
class _Launches:
    """Rows of one trace in the order of their launches; places count in the order of calls."""

    trace: int
    row: Ints
    call: Ints  # rising
    stream: Ints

    def last(self, stream: int, call: int) -> int:
        """Row that a stream was given last before a call; -1: none."""
        mine = self._of_streams.get(stream, np.empty(0, dtype=np.int64))
        place = int(np.searchsorted(self.call[mine], call)) - 1
        return NONE if place < 0 else int(self.row[mine[place]])

    def next(self, stream: int, call: int) -> int:
        """Row that a stream is given next after a call; -1: none."""
        mine = self._of_streams.get(stream, np.empty(0, dtype=np.int64))
        place = int(np.searchsorted(self.call[mine], call, side="right"))
        return NONE if place == len(mine) else int(self.row[mine[place]])

    def all_last(self, call: int) -> list[int]:
        """Last rows of all streams before a call."""
        return [r for r in (self.last(s, call) for s in self._of_streams) if r != NONE]

    @cached_property
    def _of_streams(self) -> dict[int, Ints]:
        return {s: np.flatnonzero(self.stream == s) for s in np.unique(self.stream).tolist()}


@dataclass(frozen=True, slots=True)
class _Sync:
    """A moment when the host of a trace went on; the first one is the beginning of its calls."""

    trace: int
    time: int
    earlier: int = NONE  # the one before it
    work: int = 0  # ns of the host from there to the call
    least: int = 0  # ns that the call takes where nothing is to be waited for
    wake: int = 0  # ns from the end of what it waits for
    awaited: tuple[int, ...] = ()  # rows, the last to end first


@dataclass(frozen=True, slots=True)
class _Wait:
    """A wait of one of the job's own streams."""

    call: int
    target: int  # stream that waits; -1: not told
    around: tuple[tuple[int, int], ...]  # (kind, stream launched on) of the calls around it
    ahead: tuple[int, ...]  # streams that its thread launches on next, the next one first
    first: bool  # the next launch is a collective's, for whose stream PyTorch makes it wait


class _Build:
    def __init__(self, rows: Rows, calls: Calls, times: CallTimes, clocks: Clocks) -> None:
        self.rows, self.calls, self.times, self.clocks = rows, calls, times, clocks
        self.start = clocks.align(rows.start, rows.trace)
        self.end = clocks.align(rows.end, rows.trace)
        n = len(rows)
        self.host_of = np.full(n, NONE)  # sync (its place in `syncs`) that each row follows
        self.host_ns = np.zeros(n, dtype=np.int64)  # host time from there to the launch
        self.known = np.zeros(n, dtype=bool)  # the launch is known
        self.event = np.full((2, n), NONE)  # rows that each row waits for
        self.syncs: list[_Sync] = []
        self.counts: Counter[str] = Counter()
        self.before = _on_stream(rows)
        self.by_end = [self._by_end(t) for t in range(len(rows.ranks))]

    def _by_end(self, trace: int) -> tuple[Ints, Ints]:
        """Rows of a trace in the order of their ends, and these."""
        mine = np.arange(self.rows.bounds[trace], self.rows.bounds[trace + 1])
        order = mine[np.argsort(self.end[mine], kind="stable")]
        return order, self.end[order]

    def add(self, trace: int, host: HostCalls | None) -> None:
        """Rows of one trace: launches, synchronising calls, event edges."""
        mine = self.rows.of(trace)
        offset = self.rows.base_ns
        bare = host is None
        if host is None:
            host, first = _from_launches(self.rows, trace), 0
        else:
            first = next(k for k, (t, _) in enumerate(self.rows.streams) if t == trace)
        call = host.of_row.astype(np.int64)
        zero = np.full(1, trace, dtype=np.int32)
        shift = int(self.clocks.align(np.zeros(1, dtype=np.int64), zero)[0])
        start = host.start_ns - offset + shift
        end = np.maximum(host.end_ns - offset + shift, start)
        launched = np.flatnonzero(call >= 0)
        order = launched[np.argsort(call[launched], kind="stable")]
        rows = order + mine.start
        stream = self.rows.stream[rows].astype(np.int64)
        launches = _Launches(trace, rows, call[order], stream)
        self.known[rows] = True
        told = np.where(host.stream >= 0, host.stream + first, NONE)
        self._hosts(host, (start, end, told), launches)
        if bare:
            self._events_by_time(trace, launches)
        else:
            self._events(host, told, launches)
            self._events_of_before(trace)
            # What waits for what inside of a graph no call tells.
            several = np.bincount(launches.call, minlength=1)[launches.call] > 1
            self._events_by_end(trace, launches.row[several])

    # Host: synchronising calls, and which of them each launch follows.

    def _hosts(self, host: HostCalls, at: tuple[Ints, Ints, Ints], launches: _Launches) -> None:
        start, end, told = at
        trace = launches.trace
        rows, call_of = launches.row, launches.call
        by_call = np.full(len(host), NONE)
        by_call[call_of[::-1]] = rows[::-1]  # first row of each call
        full = self._full(trace, host, start, end)
        several = np.bincount(call_of, minlength=len(host)) > 1
        graphs = several & (self.end[by_call] <= end) & (end - start > _SLOW_LAUNCH_NS)
        blocking = np.unique(
            np.concatenate([self._blocking(host, end, by_call), full, np.flatnonzero(graphs)])
        )
        segment = begin_of = len(self.syncs)
        resume = int(start[0]) if len(start) else 0
        self.syncs.append(_Sync(trace, resume))
        for k in blocking.tolist():
            done = self._awaited(Call(int(host.kind[k])), k, int(end[k]), int(told[k]), launches)
            if not done:
                continue
            begin, until = int(start[k]), int(end[k])
            latest = int(self.end[done[0]])
            waited = latest > begin
            least = min(until - begin, _SYNC_NS) if waited else until - begin
            wake = max(0, until - latest) if waited else _SYNC_NS
            work = max(0, begin - resume)
            self.syncs.append(_Sync(trace, until, segment, work, least, wake, tuple(done)))
            segment, resume = len(self.syncs) - 1, until
        # Of the moments when the host went on a call follows the last one before it.
        until_of = np.array([s.time for s in self.syncs[begin_of:]])
        earliest = np.minimum.accumulate(until_of[::-1])[::-1]
        follows = np.maximum(np.searchsorted(earliest, start[call_of], side="right") - 1, 0)
        self.host_of[rows] = begin_of + follows
        self.host_ns[rows] = start[call_of] - until_of[follows]

    def _full(self, trace: int, host: HostCalls, start: Ints, end: Ints) -> Ints:
        """Launches that waited for a place in the queue: it was long, and they took long.

        What was launched before the trace began stands in the queue, too.
        """
        launch, done = self.rows.launch[self.rows.of(trace)], self.end[self.rows.of(trace)]
        call = np.flatnonzero(host.kind == Call.LAUNCH)
        before = np.searchsorted(call, np.arange(len(host)))
        queued = (launch == UNKNOWN_LAUNCH).sum() + before
        queued -= np.searchsorted(np.sort(done), start, side="right")
        slow = end - start > _SLOW_LAUNCH_NS
        return np.flatnonzero((host.kind == Call.LAUNCH) & slow & (queued >= _QUEUE))

    def _blocking(self, host: HostCalls, end: Ints, by_call: Ints) -> Ints:
        """Calls in which the host may have waited for the GPU."""
        sync = host.kind >= Call.STREAM_SYNC
        launched = np.where(by_call >= 0, by_call, 0)
        copy = (host.kind == Call.LAUNCH) & (by_call >= 0)
        copy &= self.rows.kind[launched] == Kind.COPY
        copy &= (end >= self.end[launched]) & (end - self.end[launched] < _WAKE_NS)
        return np.flatnonzero(sync | copy)

    def _awaited(
        self, kind: Call, call: int, limit: int, told: int, launches: _Launches
    ) -> list[int]:
        """Rows that a blocking call waited for, which returned at `limit`; none: not told."""
        place = int(np.searchsorted(launches.call, call))
        if kind is Call.LAUNCH:
            own = launches.row[place : int(np.searchsorted(launches.call, call, side="right"))]
            done = own[self.end[own] <= limit]
            if len(done) and (len(own) > 1 or self.rows.kind[own[0]] == Kind.COPY):
                # A copy that the host waits for, or a graph, whose launch under the profiler goes
                # on while its first rows run.
                return [int(done[self.end[done].argmax()])]
            # A full queue: the launch returns when one of the rows before it leaves.
            return self._ended(launches.trace, limit)
        if kind is Call.STREAM_SYNC and told >= 0:
            found = [launches.last(told, call)]
        elif kind is Call.DEVICE_SYNC:
            found = launches.all_last(call)
        elif kind is Call.STREAM_SYNC and place:
            # The stream is not told: that of the last launch, else the one whose end fits.
            found = [int(launches.row[place - 1])]
            if self.end[found[0]] > limit + _TOLERANCE_NS:
                last = launches.all_last(call)
                found = [r for r in last if self.end[r] <= limit + _TOLERANCE_NS]
        else:
            found = self._ended(launches.trace, limit)
        found = [r for r in found if r != NONE]
        good = [r for r in found if self.end[r] <= limit + _TOLERANCE_NS]
        self.counts["contradicted"] += len(found) - len(good)
        return sorted(good, key=lambda r: -int(self.end[r]))

    def _ended(self, trace: int, moment: int) -> list[int]:
        """The row that ended last before a moment when the host went on; none long before it."""
        place = int(np.searchsorted(self.by_end[trace][1], moment, side="right")) - 1
        if place < 0 or self.by_end[trace][1][place] <= moment - _WAKE_NS:
            return []
        return [int(self.by_end[trace][0][place])]

    # Events: which rows hold which.

    def _events_by_time(self, trace: int, launches: _Launches) -> None:
        """Edges of a trace that tells no event: a row follows what ended right before it started.

        And a collective follows what its rank launched before it, unless its stream is seen not to.
        """
        rows = self.rows
        self._events_by_end(trace, np.arange(rows.bounds[trace], rows.bounds[trace + 1]))
        compute = rows.entry[launches.row] < 0
        chosen = np.flatnonzero(~compute)
        if not compute.any() or not len(chosen):
            return
        earlier = np.searchsorted(np.flatnonzero(compute), chosen) - 1
        source = np.where(earlier >= 0, launches.row[compute][earlier], NONE)
        row = launches.row[chosen]
        apart = (source >= 0) & (rows.stream[source] != rows.stream[row])
        wrong = apart & (self.end[source] > self.start[row] + _TOLERANCE_NS)
        for stream in np.unique(rows.stream[row]).tolist():
            on = rows.stream[row] == stream
            if wrong[on].sum() <= _CONTRADICTED * on.sum():
                self._hold_all(row[on & apart & ~wrong], source[on & apart & ~wrong])

    def _events_by_end(self, trace: int, mine: Ints) -> None:
        """Edges of some rows to what ended on another stream right before they started."""
        rows = self.rows
        by_end, ends = self.by_end[trace]
        if not len(mine) or not len(by_end):
            return
        place = np.searchsorted(ends, self.start[mine], side="right") - 1
        last = np.where(place >= 0, by_end[place], NONE)
        near = (last >= 0) & (self.start[mine] - self.end[last] <= _AFTER_EVENT_NS)
        near &= rows.stream[mine] != rows.stream[last]
        before, launch = self.before[mine], rows.launch[mine]
        told = self.clocks.align(launch, rows.trace[mine])
        launch = np.where(launch == UNKNOWN_LAUNCH, _EVER, told)
        shown = np.maximum(np.where(before >= 0, self.end[before], _EVER), launch)
        good = near & (self.end[last] > shown)
        self._hold_all(mine[good], last[good])

    def _hold_all(self, destinations: Ints, sources: Ints) -> None:
        self.counts["inferred"] += len(destinations)
        for pair in zip(destinations.tolist(), sources.tolist(), strict=True):
            self._hold(*pair)

    def _events(self, host: HostCalls, told: Ints, launches: _Launches) -> None:
        records = np.flatnonzero(host.kind == Call.RECORD)
        known = self._told_events(host, told, launches)
        waits = [w for w in self._waits(host, told, launches) if w.call not in known]
        if not len(launches.row) or not waits:
            self.counts["unknown"] += len(waits)
            return
        behind = _recorded(host, records, launches)
        if not len(records):
            # Some tracers leave them out: an event may be recorded behind any launch.
            records, behind = launches.call, launches.row[:, None]
        rules = _Rules(self, launches, records, behind)
        for destination, source in rules.library_order(launches):
            self._hold(destination, source)
        found: dict[tuple[tuple[int, int], ...], list[_Wait]] = {}
        for wait in waits:
            key = (*wait.around, (wait.target, int(wait.first)))
            found.setdefault(key, []).append(wait)
        for destination, source in rules.edges(list(found.values())):
            self._hold(destination, source)

    def _told_events(self, host: HostCalls, told: Ints, launches: _Launches) -> set[int]:
        """Hold the edges of waits whose event and its record the source tells; these waits.

        A wait is for the last record of its event before it (cudaStreamWaitEvent).
        """
        tells = (host.event >= 0) & (told >= 0)
        record = host.kind == Call.RECORD
        latest: dict[int, int] = {}
        known = set()
        for call in np.flatnonzero(tells & (record | (host.kind == Call.WAIT))).tolist():
            event = int(host.event[call])
            if record[call]:
                latest[event] = call
                continue
            if event not in latest:
                continue
            known.add(call)
            source = launches.last(int(told[latest[event]]), latest[event])
            destination = launches.next(int(told[call]), call)
            if NONE in (source, destination) or told[call] == told[latest[event]]:
                continue  # nothing to wait for, or nothing that waits
            wrong = self.end[source] > self.start[destination] + _TOLERANCE_NS
            self.counts["contradicted" if wrong else "told"] += 1
            if not wrong:
                self._hold(destination, source)
        return known

    def _events_of_before(self, trace: int) -> None:
        """Edges of rows that were launched before the trace began: those of a later step's rows.

        What a step launches on each stream recurs, and waits for the same.
        """
        rows = self.rows
        of_stream = self._recurring(trace)
        index = np.full(len(rows), NONE)
        for mine, _ in of_stream.values():
            index[mine] = np.arange(len(mine))
        for mine, period in of_stream.values():
            known = self.known[mine]
            for place in np.flatnonzero(~known).tolist():
                later = np.flatnonzero(known[place::period])
                if not len(later):
                    continue
                steps = int(later[0])
                like = int(mine[place + steps * period])
                for source in self.event[:, like].tolist():
                    if source == NONE or int(rows.stream[source]) not in of_stream:
                        continue
                    others, recurs = of_stream[int(rows.stream[source])]
                    at = int(index[source]) - steps * recurs
                    row = int(mine[place])
                    if at < 0 or rows.name[row] != rows.name[like]:
                        continue
                    if self.end[others[at]] <= self.start[row] + _TOLERANCE_NS:
                        self.counts["inferred"] += 1
                        self._hold(row, int(others[at]))

    def _recurring(self, trace: int) -> dict[int, tuple[Ints, int]]:
        """Rows of each stream of a trace on which as many recur every step; and how many."""
        rows = self.rows
        kernels, period = recurring_kernels(rows, trace)
        if not period or len(kernels) <= period:
            return {}
        cuts = self.start[kernels[::-1][::period]][::-1]  # one moment of each step
        found = {}
        mine = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
        for stream in np.unique(rows.stream[mine]).tolist():
            own = mine[rows.stream[mine] == stream]
            several = np.searchsorted(self.start[own], cuts[[0, -1]])
            count = round(float(several[1] - several[0]) / (len(cuts) - 1))
            name = rows.name[own]
            if count and (name[count:] == name[:-count]).mean() >= _RECURS:
                found[stream] = own, count
        return found

    def _hold(self, destination: int, source: int) -> None:
        """Add an event edge; of those of one stream the last launched counts."""
        stream = self.rows.stream
        for slot in range(2):
            known = int(self.event[slot, destination])
            if known == NONE or stream[known] == stream[source]:
                if known == NONE or self.end[source] > self.end[known]:
                    self.event[slot, destination] = source
                return
        least = int(self.end[self.event[:, destination]].argmin())
        if self.end[source] > self.end[self.event[least, destination]]:
            self.event[least, destination] = source

    def _waits(self, host: HostCalls, told: Ints, launches: _Launches) -> list[_Wait]:
        """Waits of the job's own streams; those that the library makes for itself are left out."""
        rows = self.rows
        n = len(host)
        stream_of = np.full(n, NONE)
        stream_of[launches.call[::-1]] = launches.stream[::-1]
        collective = np.zeros(n, dtype=bool)
        collective[launches.call] = rows.entry[launches.row] >= 0
        tells = bool((told[host.kind == Call.WAIT] >= 0).any())
        found = []
        for thread in np.unique(host.thread).tolist():
            own = np.flatnonzero(host.thread == thread)
            kind = host.kind[own].tolist()
            target, is_collective = stream_of[own].tolist(), collective[own].tolist()
            named = told[own].tolist()
            following: list[tuple[int, ...]] = [()] * len(own)
            ahead: tuple[int, ...] = ()
            for k in range(len(own) - 1, -1, -1):
                following[k] = ahead
                if kind[k] == Call.LAUNCH and target[k] >= 0:
                    ahead = (target[k], *(s for s in ahead if s != target[k]))[:3]
            since = 99  # calls since a collective's launch
            for k in range(len(own)):
                since += 1
                if kind[k] == Call.LAUNCH:
                    since = 0 if is_collective[k] else 99
                elif kind[k] == Call.WAIT:
                    inner = since <= 2 and named[k] < 0  # the library's, behind its launch
                    launch = k + 1 < len(own) and is_collective[k + 1]
                    if launch and k and kind[k - 1] == Call.RECORD:
                        inner = True  # and right before it
                    if not inner and (named[k] >= 0 or not tells):
                        near = range(max(0, k - _BEFORE), min(len(own), k + _BEHIND + 1))
                        around = tuple((kind[i], target[i]) for i in near)
                        first = any(is_collective[k + 1 : k + 4])
                        found.append(_Wait(int(own[k]), named[k], around, following[k], first))
        return found


@dataclass(frozen=True, slots=True)
class _Rule:
    group: int  # of waits
    plain: bool  # stands without evidence
    kinds: int  # of rows that are waited for: of one name, on one stream
    tight: Ints  # rows whose start it explains
    destination: Ints  # rows that wait
    row: Ints  # each for this one
    contradicted: int


class _Rules:
    """What the waits of one trace wait for: one rule for all that stand among the same calls.

    A rule says how many event records back the event was recorded, and behind which row.
    """

    def __init__(self, build: _Build, launches: _Launches, records: Ints, behind: Ints) -> None:
        """Take the rows behind which events were recorded, shape (records, variants)."""
        self.start, self.end = build.start, build.end
        self.stream = build.rows.stream
        self.rows = build.rows
        self.counts, self.before = build.counts, build.before
        self.explained = np.zeros(len(self.start), dtype=bool)
        self.group = np.full(len(self.start), NONE)  # of each collective that is in a call
        self.group[build.calls.row] = build.calls.group[build.calls.call_of_part]
        self.records, self.behind = records, behind
        self.recorded_on = [*self._recorded_on()]
        self.by_stream = {
            int(s): (launches.row[launches.stream == s], launches.call[launches.stream == s])
            for s in np.unique(launches.stream)
        }
        self.launch = np.where(
            build.rows.launch != UNKNOWN_LAUNCH,
            build.clocks.align(build.rows.launch, build.rows.trace),
            _EVER,
        )

    def _recorded_on(self) -> Iterator[tuple[Ints, Ints]]:
        """Per stream the rows behind which an event was recorded, each with the first such."""
        row = self.behind[:, 0]
        known = np.flatnonzero(row >= 0)
        for stream in np.unique(self.stream[row[known]]).tolist():
            mine = known[self.stream[row[known]] == stream]
            rows, first = np.unique(row[mine], return_index=True)
            order = np.argsort(first, kind="stable")
            yield mine[first[order]], rows[order]

    def library_order(self, launches: _Launches) -> list[tuple[int, int]]:
        """(row, row before) of collectives that the library runs one after the other.

        Those of one communicator do, on whatever streams, whatever those of others are launched in
        between: a pair of streams whose collectives never overlap, and of which one is seen to wait
        for the other, has one.
        """
        collective = np.flatnonzero(self.rows.entry[launches.row] >= 0)
        collective = collective[np.argsort(self.group[launches.row[collective]], kind="stable")]
        row, stream = launches.row[collective], launches.stream[collective]
        group = self.group[row]
        change = np.flatnonzero((stream[1:] != stream[:-1]) & (group[1:] == group[:-1]))
        source, destination = row[change], row[change + 1]
        gap = self.start[destination] - self.end[source]
        near = (gap >= -_TOLERANCE_NS) & (gap <= _AFTER_EVENT_NS)
        near &= self._open(destination, source)
        low, high = np.sort([stream[change], stream[change + 1]], axis=0)
        pair = low * (int(stream.max(initial=0)) + 1) + high
        edges: list[tuple[int, int]] = []
        for key in np.unique(pair).tolist():
            mine = pair == key
            wrong = mine & (gap < -_TOLERANCE_NS)
            if wrong.sum() <= _CONTRADICTED * mine.sum() and near[mine].any():
                good = np.flatnonzero(mine & ~wrong)
                self.explained[destination[near & mine]] = True
                self.counts["inferred"] += len(good)
                edges += zip(destination[good].tolist(), source[good].tolist(), strict=True)
        return edges

    def edges(self, groups: list[list[_Wait]]) -> list[tuple[int, int]]:
        """(row, row that it waits for) of all waits; those of a group stand among the same calls.

        Every group gets the rule that explains most starts that no other rule explains already. Of
        rules that explain as many it is the one with the fewest kinds of rows: what stands among
        the same calls waits for the same.
        """
        rules = [rule for number, waits in enumerate(groups) for rule in self._rules(number, waits)]
        explained = self.explained
        chosen: dict[int, _Rule] = {}
        heap = [(-len(rule.tight), rule.kinds, k) for k, rule in enumerate(rules)]
        heapify(heap)
        while heap:
            value, kinds, k = heappop(heap)
            rule = rules[k]
            if rule.group in chosen:
                continue
            now = -int((~explained[rule.tight]).sum())
            if now == 0 and not rule.plain:
                continue
            if now > value and heap and (now, kinds, k) > heap[0]:
                heappush(heap, (now, kinds, k))
                continue
            chosen[rule.group] = rule
            explained[rule.tight] = True
        edges: list[tuple[int, int]] = []
        for number, waits in enumerate(groups):
            found = chosen.get(number)
            good = 0 if found is None else len(found.destination)
            wrong = 0 if found is None else found.contradicted
            self.counts["told" if waits[0].target >= 0 else "inferred"] += good
            self.counts["contradicted"] += wrong
            self.counts["unknown"] += len(waits) - good - wrong
            if found is not None:
                edges += zip(found.destination.tolist(), found.row.tolist(), strict=True)
        return edges

    def _rules(self, group: int, waits: list[_Wait]) -> Iterator[_Rule]:
        """Rules that the recorded times do not contradict."""
        call = np.array([w.call for w in waits])
        targets = (waits[0].target,) if waits[0].target >= 0 else waits[0].ahead
        latest = np.searchsorted(self.records, call) - 1
        plain = True  # where nothing shows which: the last event recorded, for the next launch
        for target in targets:
            destination = self._next(target, call)
            for candidate in self._candidates(latest):
                row = np.where(destination >= 0, candidate, NONE)
                good = (row >= 0) & (self.stream[row] != target)
                if good.sum() < 0.5 * ((candidate != NONE) & (destination >= 0)).sum():
                    continue
                if not good.any():
                    continue
                gap = self.start[destination] - self.end[row]
                wrong = good & (gap < -_TOLERANCE_NS)
                if wrong.sum() > _CONTRADICTED * good.sum():
                    continue
                good &= ~wrong
                near = good & (gap <= _AFTER_EVENT_NS) & self._open(destination, row)
                if near.any() or plain:
                    kinds = np.unique(self.rows.name[row[good]] + 1j * self.stream[row[good]])
                    yield _Rule(
                        group, plain, len(kinds), destination[near], destination[good], row[good],
                        int(wrong.sum()),
                    )  # fmt: skip
                if plain and waits[0].first:
                    return  # PyTorch records on the current stream, then waits
                plain = False
            plain = False

    def _candidates(self, latest: Ints) -> Iterator[Ints]:
        """Rows that waits may be for; -1: none. `latest` is the record before each wait.

        The one behind which an event was recorded so many records ago, or the last of a stream, or
        the one before it there: steps of unlike layers record unlike numbers of events.
        """
        for back in range(_RECORDS):
            record = latest - back
            for variant in range(self.behind.shape[1]):
                yield np.where(record >= 0, self.behind[np.maximum(record, 0), variant], NONE)
        for record, row in self.recorded_on:
            place = np.searchsorted(record, latest, side="right") - 1
            for back in range(_BACK):
                yield np.where(place >= back, row[np.maximum(place - back, 0)], NONE)

    def _open(self, destination: Ints, row: Ints) -> Bools:
        """Neither the launch nor the row before on the stream explains the start better."""
        before = self.before[destination]
        latest = np.where(before >= 0, self.end[before], _EVER)
        result: Bools = self.end[row] > np.maximum(latest, self.launch[destination])
        return result

    def _next(self, stream: int, call: Ints) -> Ints:
        """First row launched on a stream after each of some calls; -1: none."""
        if stream not in self.by_stream:
            return np.full(len(call), NONE)
        rows, calls = self.by_stream[stream]
        return np.append(rows, NONE)[np.searchsorted(calls, call, side="right")]


def _recorded(host: HostCalls, records: Ints, launches: _Launches) -> Ints:
    """Rows behind which events may have been recorded, shape (records, 2).

    The last row of the stream that the thread launched on last, and of the one before that:
    streams are a thread's own choice, but other threads launch on them, too.
    """
    found = np.full((len(records), 2), NONE)
    for thread in np.unique(host.thread[records]).tolist():
        mine = np.flatnonzero(host.thread[launches.call] == thread)
        own = np.flatnonzero(host.thread[records] == thread)
        if not len(mine):
            continue
        last = np.searchsorted(launches.call[mine], records[own]) - 1
        stream = launches.stream[mine]
        change = np.flatnonzero(stream[1:] != stream[:-1])
        place = np.searchsorted(change, last) - 1  # the last change of stream before
        current = np.where(last >= 0, stream[last], NONE)
        other = np.where(place >= 0, np.append(stream[change], NONE)[place], NONE)
        for variant, chosen in enumerate((current, other)):
            for number in np.unique(chosen[chosen >= 0]).tolist():
                rows = launches.stream == number
                at = np.searchsorted(launches.call[rows], records[own]) - 1
                on = (chosen == number) & (at >= 0)
                found[own[on], variant] = launches.row[rows][at[on]]
    return found


def _on_stream(rows: Rows) -> Ints:
    """Row before each on its stream, -1 for the first."""
    order = np.argsort(rows.stream, kind="stable")
    before = np.full(len(rows), NONE, dtype=np.int64)
    same = rows.stream[order][1:] == rows.stream[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _from_launches(rows: Rows, trace: int) -> HostCalls:
    """Calls of a trace that tells launch times only.

    A host that launched nothing while the GPU drained, and went on right after, waited for it.
    """
    mine = rows.of(trace)
    launch = rows.launch[mine]
    known = np.flatnonzero(launch != UNKNOWN_LAUNCH)
    order = known[np.argsort(launch[known], kind="stable")]
    time = launch[order]
    done = np.sort(rows.end[mine])
    gap = np.diff(time, prepend=time[:1])
    place = np.searchsorted(done, time, side="right") - 1
    drained = np.where(place >= 0, time - done[np.maximum(place, 0)], np.iinfo(np.int64).max)
    waited = (gap > _IDLE_SYNC_NS) & (drained <= _WAKE_NS) & (drained < gap)
    previous = np.append(time[:1], time[:-1])[waited]
    begin = previous + np.minimum(_SYNC_NS, gap[waited] // 2)
    at = np.concatenate([time, begin])
    until = np.concatenate([time, time[waited] - 1])
    kind = np.concatenate(
        [np.full(len(time), Call.LAUNCH), np.full(int(waited.sum()), Call.EVENT_SYNC)]
    )
    sorted_ = np.argsort(at, kind="stable")
    at, until, kind = at[sorted_] + rows.base_ns, until[sorted_] + rows.base_ns, kind[sorted_]
    of_row = np.full(mine.stop - mine.start, NONE, dtype=np.int32)
    of_row[order] = np.argsort(sorted_, kind="stable")[: len(time)]
    untold = np.full(len(at), NONE, dtype=np.int32)
    return HostCalls(kind.astype(np.int8), untold * 0, at, until, untold, untold, of_row)


class _Nodes:
    """Nodes: starts of rows, arrivals and ends of collectives' parts, synchronising calls."""

    def __init__(self, build: _Build) -> None:
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
        self._starts()
        self._collectives()
        self._syncs()
        return self._ordered()

    def _starts(self) -> None:
        b, n = self.b, len(self.b.rows)
        ready = np.full((4, n), _EVER)
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
        self.last = ready.argmax(axis=0)
        self.held = np.where(there.any(axis=0), delay[self.last, np.arange(n)], 0)
        for slot in range(4):
            # The cause that came last keeps its delay; others need what such causes mostly do.
            mine = self.last == slot
            usual = _typical(self.held[there[slot] & mine])
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


def _typical(delays: Ints) -> int:
    near = delays[(delays >= 0) & (delays <= EXPLAINED_NS)]
    return int(np.median(near)) if len(near) else 2_000


def _transfers(b: _Build) -> tuple[Ints, Bools]:
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
