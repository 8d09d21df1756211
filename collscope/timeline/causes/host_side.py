"""Stage 3: what the host of each rank did before every launch, and where it waited (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH
from collscope.model.trace import Call, Ints, Kind
from collscope.timeline.causes.host_record import HostRecord, Polls
from collscope.timeline.causes.placed_rows import PlacedRows
from collscope.timeline.graph import EVER, NONE
from collscope.timeline.tolerances import (
    HOST_SYNC_NS,
    HOST_WAKE_NS,
    LAUNCH_QUEUE,
    SLOW_LAUNCH_NS,
    STAMP_OVERLAP_NS,
)

# Memcpy DtoD (Device -> Device), [CUDA memcpy Device-to-Device], CopyDeviceToDevice: no host waits
# for these, "API synchronization behavior" of the CUDA runtime. Their launch may take longer.
_INSIDE_GPUS = re.compile(r"DtoD|Device-?[tT]o-?Device")
Bools = npt.NDArray[np.bool_]
AWAITED = 3
"""Rows that one moment of a host waits for: as many slots as a node has beside the host's own."""


class HostMoments(msgspec.Struct, frozen=True):
    """Moments when a host went on: the beginning of its calls, then each end of its waiting.

    Times are ns, on the common clock. Columns of equal length.
    """

    trace: Ints
    time: Ints
    earlier: Ints  # the moment before it; `NONE` for the first of a trace
    work: Ints  # of the host from there to the call
    least: Ints  # that the call takes where nothing is to be waited for
    wake: Ints  # from the end of what it waits for
    awaited: Ints  # (moments, `AWAITED`) rows, the last to end first; `NONE` where fewer

    def __len__(self) -> int:
        """Moments."""
        return len(self.time)


class HostSide(msgspec.Struct, frozen=True):
    """Which moment of its host each row's launch follows, and by how much. Columns per row."""

    known: Bools  # the launch is known; else the other columns say nothing
    moment: Ints  # place in `moments`
    work: Ints  # ns of the host from there to the launch
    moments: HostMoments
    contradicted: int  # rows that a call should wait for, but that ended after it


def host_side(placed: PlacedRows, host: HostRecord, polls: Polls | None = None) -> HostSide:
    """Columns of the rows of one trace; places count from its first row and its first moment."""
    moments, contradicted = _moments(placed, host, polls)
    launches, rows = host.launches, placed.rows.of(host.trace)
    known = np.zeros(rows.stop - rows.start, dtype=bool)
    moment, work = np.full(len(known), NONE), np.zeros(len(known), dtype=np.int64)
    # Of the moments when the host went on a call follows the last one before it.
    earliest = np.minimum.accumulate(moments.time[::-1])[::-1]
    begin, place = host.start[launches.call], launches.row - rows.start
    follows = np.maximum(np.searchsorted(earliest, begin, side="right") - 1, 0)
    known[place], moment[place] = True, follows
    work[place] = begin - moments.time[follows]
    return HostSide(known, moment, work, moments, contradicted)


def join_hosts(sides: Sequence[HostSide]) -> HostSide:
    """Those of all traces as one."""
    before = np.cumsum([0, *(len(s.moments) for s in sides)])[:-1].tolist()
    moments, offsets = [s.moments for s in sides], list(zip(sides, before, strict=True))
    return HostSide(
        known=np.concatenate([np.empty(0, dtype=bool), *(s.known for s in sides)]),
        moment=_joined(_shifted(s.moment, first) for s, first in offsets),
        work=_joined(s.work for s in sides),
        moments=HostMoments(
            trace=_joined(m.trace for m in moments),
            time=_joined(m.time for m in moments),
            earlier=_joined(_shifted(s.moments.earlier, first) for s, first in offsets),
            work=_joined(m.work for m in moments),
            least=_joined(m.least for m in moments),
            wake=_joined(m.wake for m in moments),
            awaited=_joined((m.awaited for m in moments), (0, AWAITED)),
        ),
        contradicted=sum(s.contradicted for s in sides),
    )


def _joined(columns: Iterable[Ints], empty: tuple[int, ...] = (0,)) -> Ints:
    return np.concatenate([np.empty(empty, dtype=np.int64), *columns])


def _shifted(places: Ints, offset: int) -> Ints:
    return np.where(places == NONE, NONE, places + offset)


def _moments(placed: PlacedRows, host: HostRecord, polls: Polls | None) -> tuple[HostMoments, int]:
    """Moments when a host went on; how many rows it cannot have waited for."""
    start, end = host.start, host.end
    waits = [
        (int(start[call]), int(end[call]), _awaited(placed, host, call))
        for call in _blocking_calls(placed, host).tolist()
    ]
    if polls is not None:
        waits = sorted([*waits, *_polled(placed, host, polls)], key=lambda wait: wait[0])
    resume = int(start[0]) if len(start) else 0
    columns = [(host.trace, resume, NONE, 0, 0, 0)]
    awaited = [[NONE] * AWAITED]
    contradicted = 0
    for begin, until, rows in waits:
        done = [r for r in rows if placed.end[r] <= until + STAMP_OVERLAP_NS]
        contradicted += len(rows) - len(done)
        if not done:
            continue
        done.sort(key=lambda r: -int(placed.end[r]))
        latest = int(placed.end[done[0]])
        if latest > begin:
            costs = min(until - begin, HOST_SYNC_NS), max(0, until - latest)
        else:
            costs = until - begin, HOST_SYNC_NS
        columns.append((host.trace, until, len(columns) - 1, max(0, begin - resume), *costs))
        awaited.append((done + [NONE] * AWAITED)[:AWAITED])
        resume = until
    trace, time, earlier, work, least, wake = np.array(columns, dtype=np.int64).T
    rows_awaited = np.array(awaited, dtype=np.int64)
    return HostMoments(trace, time, earlier, work, least, wake, rows_awaited), contradicted


def _polled(
    placed: PlacedRows, host: HostRecord, polls: Polls
) -> Iterator[tuple[int, int, list[int]]]:
    """From when to when a host asked, and for which row; not where it was done before."""
    launched_by = dict(zip(host.launches.row.tolist(), host.launches.call.tolist(), strict=True))
    for since, row in zip(polls.since.tolist(), polls.until.tolist(), strict=True):
        call = launched_by.get(since)
        if call is not None and placed.end[row] > host.end[call]:
            # Of what is at one moment, hosts go on first: this one does behind the end.
            yield int(host.end[call]), int(placed.end[row]) + 1, [row]


def _blocking_calls(placed: PlacedRows, host: HostRecord) -> Ints:
    """Calls in which the host may have waited for the GPU, in their order."""
    kind, start, end = host.calls.kind, host.start, host.end
    rows, launches = placed.rows, host.launches
    first_row = np.full(len(host.calls), NONE)
    first_row[launches.call[::-1]] = launches.row[::-1]
    copies = (kind == Call.LAUNCH) & (first_row >= 0)
    launched = np.where(first_row >= 0, first_row, 0)
    copies &= rows.kind[launched] == Kind.COPY
    inside = np.array([bool(_INSIDE_GPUS.search(name)) for name in rows.names] + [False])
    copies &= ~inside[rows.name[launched]]
    copies &= (end >= placed.end[launched]) & (end - placed.end[launched] < HOST_WAKE_NS)
    graphs = np.bincount(launches.call, minlength=len(host.calls)) > 1
    graphs &= (placed.end[first_row] <= end) & (end - start > SLOW_LAUNCH_NS)
    return np.flatnonzero(
        (kind >= Call.STREAM_SYNC) | copies | graphs | _behind_full_queue(placed, host)
    )


def _behind_full_queue(placed: PlacedRows, host: HostRecord) -> Bools:
    """Launches that waited for a place in the queue: it was long, and they took long.

    What was launched before the trace began stands in the queue, too.
    """
    of_trace = placed.rows.of(host.trace)
    launches = host.calls.kind == Call.LAUNCH
    before = np.searchsorted(np.flatnonzero(launches), np.arange(len(launches)))
    queued = (placed.rows.launch[of_trace] == UNKNOWN_LAUNCH).sum() + before
    queued -= np.searchsorted(np.sort(placed.end[of_trace]), host.start, side="right")
    result: Bools = launches & (host.end - host.start > SLOW_LAUNCH_NS) & (queued >= LAUNCH_QUEUE)
    return result


def _awaited(placed: PlacedRows, host: HostRecord, call: int) -> list[int]:
    """Rows that a blocking call waited for, as far as times show; empty: not known."""
    kind, returned, launches = Call(int(host.calls.kind[call])), int(host.end[call]), host.launches
    place = int(np.searchsorted(launches.call, call))
    if kind is Call.LAUNCH:
        return _awaited_by_launch(placed, host, call, place)
    if kind is Call.DEVICE_SYNC:
        return launches.all_last(call)
    if kind is Call.STREAM_SYNC and host.stream[call] >= 0:
        last = launches.last(int(host.stream[call]), call)
        return [] if last == NONE else [last]
    if kind is Call.STREAM_SYNC and place:
        # The stream is not known: that of the last launch, else the one whose end fits.
        last, latest = int(launches.row[place - 1]), returned + STAMP_OVERLAP_NS
        fits = placed.end[last] <= latest
        return [last] if fits else [r for r in launches.all_last(call) if placed.end[r] <= latest]
    return placed.last_ended(host.trace, returned, returned - HOST_WAKE_NS)


def _awaited_by_launch(placed: PlacedRows, host: HostRecord, call: int, place: int) -> list[int]:
    """The same of a launch whose first row is that at `place` of the launches."""
    returned, launches = int(host.end[call]), host.launches
    own = launches.row[place : int(np.searchsorted(launches.call, call, side="right"))]
    done = own[placed.end[own] <= returned]
    if len(done) and (len(own) > 1 or placed.rows.kind[own[0]] == Kind.COPY):
        # A copy that the host waits for, or a graph, whose launch under the profiler goes on while
        # its first rows run.
        return [int(done[placed.end[done].argmax()])]
    # A full queue: the launch returns some time after one of the rows before it is done.
    return placed.last_ended(host.trace, returned, EVER)
