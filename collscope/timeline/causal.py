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

import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.match.traces import Calls
from collscope.model.trace import Call, HostCalls, Ints, Kind
from collscope.timeline.clocks import Clocks
from collscope.timeline.events import (
    AFTER_EVENT_NS,
    CONTRADICTED,
    TOLERANCE_NS,
    Launches,
    Rules,
    Wait,
    recorded_behind,
)
from collscope.timeline.graph import EVER, NONE, Graph
from collscope.timeline.nodes import Nodes
from collscope.timeline.row_causes import RowCauses, Sync
from collscope.timeline.steps import recurring_kernels
from collscope.timeline.waits import CallTimes

Bools = npt.NDArray[np.bool_]
_WAKE_NS = 60_000  # a host that waited goes on this soon after the GPU is done
_SYNC_NS = 5_000  # a synchronising call that finds nothing to wait for, and waking up
_BEFORE, _BEHIND = 6, 3  # calls around a wait that tell what it is for
_RECURS = 0.9  # of a stream's rows: the name is that of the row one step before
# A launch queue of CUDA holds 1022 to 1024 launches, as traces of full ones show; a place in it is
# free again when the oldest of them is done.
_QUEUE, _SLOW_LAUNCH_NS = 1000, 20_000
_IDLE_SYNC_NS = (
    100_000  # a host that launches nothing for so long while the GPU drains waits for it
)


def build_graph(
    rows: Rows, host: tuple[HostCalls | None, ...], calls: Calls, times: CallTimes, clocks: Clocks
) -> Graph:
    """Graph of all ranks on the common clock.

    host  per trace of `rows` its calls, None where the source tells none
    """
    build = Causes(rows, calls, times, clocks)
    for trace, told in enumerate(host):
        build.add(trace, told)
    return Nodes(build).graph()


class Causes(RowCauses):
    """What every row waits for, found trace by trace."""

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
        launches = Launches(trace, rows, call[order], stream)
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

    def _hosts(self, host: HostCalls, at: tuple[Ints, Ints, Ints], launches: Launches) -> None:
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
        self.syncs.append(Sync(trace, resume))
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
            self.syncs.append(Sync(trace, until, segment, work, least, wake, tuple(done)))
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
        self, kind: Call, call: int, limit: int, told: int, launches: Launches
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
            # A full queue: the launch returns some time after one of the rows before it is done.
            return self._ended(launches.trace, limit, EVER)
        if kind is Call.STREAM_SYNC and told >= 0:
            found = [launches.last(told, call)]
        elif kind is Call.DEVICE_SYNC:
            found = launches.all_last(call)
        elif kind is Call.STREAM_SYNC and place:
            # The stream is not told: that of the last launch, else the one whose end fits.
            found = [int(launches.row[place - 1])]
            if self.end[found[0]] > limit + TOLERANCE_NS:
                last = launches.all_last(call)
                found = [r for r in last if self.end[r] <= limit + TOLERANCE_NS]
        else:
            found = self._ended(launches.trace, limit, limit - _WAKE_NS)
        found = [r for r in found if r != NONE]
        good = [r for r in found if self.end[r] <= limit + TOLERANCE_NS]
        self.counts["contradicted"] += len(found) - len(good)
        return sorted(good, key=lambda r: -int(self.end[r]))

    def _ended(self, trace: int, moment: int, since: int) -> list[int]:
        """The row that ended last between a moment and the one when the host went on."""
        place = int(np.searchsorted(self.by_end[trace][1], moment, side="right")) - 1
        if place < 0 or self.by_end[trace][1][place] <= since:
            return []
        return [int(self.by_end[trace][0][place])]

    # Events: which rows hold which.

    def _events_by_time(self, trace: int, launches: Launches) -> None:
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
        wrong = apart & (self.end[source] > self.start[row] + TOLERANCE_NS)
        for stream in np.unique(rows.stream[row]).tolist():
            on = rows.stream[row] == stream
            if wrong[on].sum() <= CONTRADICTED * on.sum():
                self._hold_all(row[on & apart & ~wrong], source[on & apart & ~wrong])

    def _events_by_end(self, trace: int, mine: Ints) -> None:
        """Edges of some rows to what ended on another stream right before they started."""
        rows = self.rows
        by_end, ends = self.by_end[trace]
        if not len(mine) or not len(by_end):
            return
        place = np.searchsorted(ends, self.start[mine], side="right") - 1
        last = np.where(place >= 0, by_end[place], NONE)
        near = (last >= 0) & (self.start[mine] - self.end[last] <= AFTER_EVENT_NS)
        near &= rows.stream[mine] != rows.stream[last]
        before, launch = self.before[mine], rows.launch[mine]
        told = self.clocks.align(launch, rows.trace[mine])
        launch = np.where(launch == UNKNOWN_LAUNCH, EVER, told)
        shown = np.maximum(np.where(before >= 0, self.end[before], EVER), launch)
        good = near & (self.end[last] > shown)
        self._hold_all(mine[good], last[good])

    def _hold_all(self, destinations: Ints, sources: Ints) -> None:
        self.counts["inferred"] += len(destinations)
        for pair in zip(destinations.tolist(), sources.tolist(), strict=True):
            self._hold(*pair)

    def _events(self, host: HostCalls, told: Ints, launches: Launches) -> None:
        records = np.flatnonzero(host.kind == Call.RECORD)
        known = self._told_events(host, told, launches)
        waits = [w for w in self._waits(host, told, launches) if w.call not in known]
        if not len(launches.row) or not waits:
            self.counts["unknown"] += len(waits)
            return
        behind = recorded_behind(host, records, launches)
        if not len(records):
            # Some tracers leave them out: an event may be recorded behind any launch.
            records, behind = launches.call, launches.row[:, None]
        rules = Rules(self, launches, records, behind)
        for destination, source in rules.library_order(launches):
            self._hold(destination, source)
        found: dict[tuple[tuple[int, int], ...], list[Wait]] = {}
        for wait in waits:
            key = (*wait.around, (wait.target, int(wait.first)))
            found.setdefault(key, []).append(wait)
        for destination, source, seen in rules.edges(list(found.values())):
            self._hold(destination, source, seen=seen)

    def _told_events(self, host: HostCalls, told: Ints, launches: Launches) -> set[int]:
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
            wrong = self.end[source] > self.start[destination] + TOLERANCE_NS
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
                for source, unseen in zip(
                    self.event[:, like].tolist(), self.unseen[:, like].tolist(), strict=True
                ):
                    if source == NONE or int(rows.stream[source]) not in of_stream:
                        continue
                    others, recurs = of_stream[int(rows.stream[source])]
                    at = int(index[source]) - steps * recurs
                    row = int(mine[place])
                    if at < 0 or rows.name[row] != rows.name[like]:
                        continue
                    if self.end[others[at]] <= self.start[row] + TOLERANCE_NS:
                        self.counts["inferred"] += 1
                        self._hold(row, int(others[at]), seen=not unseen)

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

    def _hold(self, destination: int, source: int, *, seen: bool = True) -> None:
        """Add an event edge; of those of one stream the last launched counts."""
        stream, held = self.rows.stream, self.event[:, destination].tolist()
        alike = [s for s in range(2) if held[s] == NONE or stream[held[s]] == stream[source]]
        slot = alike[0] if alike else int(self.end[held].argmin())
        known = held[slot]
        if known == NONE or self.end[source] > self.end[known]:
            self.event[slot, destination] = source
            self.unseen[slot, destination] = not seen

    def _waits(self, host: HostCalls, told: Ints, launches: Launches) -> list[Wait]:
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
                        found.append(Wait(int(own[k]), named[k], around, following[k], first))
        return found


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
