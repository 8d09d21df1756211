"""Stage 2: the calls of one rank's host on the common clock, and its launches in order (pure)."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.model.trace import Call, HostCalls, Ints
from collscope.timeline.causes.placed_rows import PlacedRows
from collscope.timeline.graph import NONE
from collscope.timeline.tolerances import HOST_IDLE_SYNC_NS, HOST_SYNC_NS, HOST_WAKE_NS


class Launches(msgspec.Struct, frozen=True, dict=True):
    """Rows of one trace in the order of their launches; places count in the order of calls."""

    row: Ints
    call: Ints  # rising
    stream: Ints

    def last(self, stream: int, call: int) -> int:
        """Row that a stream was given last before a call; `NONE`: none."""
        rows, calls = self.on(stream)
        place = int(np.searchsorted(calls, call)) - 1
        return NONE if place < 0 else int(rows[place])

    def next(self, stream: int, call: int) -> int:
        """Row that a stream is given next after a call; `NONE`: none."""
        rows, calls = self.on(stream)
        place = int(np.searchsorted(calls, call, side="right"))
        return NONE if place == len(rows) else int(rows[place])

    def all_last(self, call: int) -> list[int]:
        """Last rows of all streams before a call."""
        return [r for r in (self.last(s, call) for s in self.by_stream) if r != NONE]

    def on(self, stream: int) -> tuple[Ints, Ints]:
        """Rows launched on a stream, and their calls."""
        none = np.empty(0, dtype=np.int64)
        return self.by_stream.get(stream, (none, none))

    @cached_property
    def by_stream(self) -> dict[int, tuple[Ints, Ints]]:
        """Rows of each stream, and their calls."""
        chosen = {s: self.stream == s for s in np.unique(self.stream).tolist()}
        return {s: (self.row[on], self.call[on]) for s, on in chosen.items()}


class Polls(msgspec.Struct, frozen=True):
    """Hosts that asked until a collective was done, without a call that waits: rows of all traces.

    No trace shows it: who hands them on has found that the hosts do so.
    """

    since: Ints  # launched last before
    until: Ints  # the collective


class HostRecord(msgspec.Struct, frozen=True):
    """What one host called, as far as its trace shows it. Times are ns, common clock."""

    trace: int
    calls: HostCalls
    recorded: bool  # False: the trace has launch times alone, and the calls are made from these
    start: Ints  # (calls,)
    end: Ints  # (calls,)
    stream: Ints  # (calls,) that the call names, numbered over all traces; `NONE` where it does not
    launches: Launches


def read_host(placed: PlacedRows, trace: int, calls: HostCalls | None) -> HostRecord:
    """Calls of one trace's host; None: its source has none."""
    rows = placed.rows
    recorded = calls is not None
    if calls is None:
        calls = _calls_of_launches(rows, trace)
    first_stream = next((k for k, (t, _) in enumerate(rows.streams) if t == trace), 0)
    launching = calls.of_row.astype(np.int64)
    launched = np.flatnonzero(launching >= 0)
    order = launched[np.argsort(launching[launched], kind="stable")]
    row = order + int(rows.bounds[trace])
    shift = int(placed.clock_shift[trace]) - rows.base_ns
    start = calls.start_ns + shift
    return HostRecord(
        trace=trace,
        calls=calls,
        recorded=recorded,
        start=start,
        end=np.maximum(calls.end_ns + shift, start),
        stream=np.where(calls.stream >= 0, calls.stream + first_stream, NONE),
        launches=Launches(row, launching[order], rows.stream[row].astype(np.int64)),
    )


def _calls_of_launches(rows: Rows, trace: int) -> HostCalls:
    """Calls of a trace with launch times only.

    A host that launched nothing while the GPU drained, and went on right after, waited for it.
    """
    of_trace = rows.of(trace)
    launch = rows.launch[of_trace]
    known = np.flatnonzero(launch != UNKNOWN_LAUNCH)
    order = known[np.argsort(launch[known], kind="stable")]
    time = launch[order]
    done = np.sort(rows.end[of_trace])
    gap = np.diff(time, prepend=time[:1])
    place = np.searchsorted(done, time, side="right") - 1
    drained = np.where(place >= 0, time - done[np.maximum(place, 0)], np.iinfo(np.int64).max)
    waited = (gap > HOST_IDLE_SYNC_NS) & (drained <= HOST_WAKE_NS) & (drained < gap)
    previous = np.append(time[:1], time[:-1])[waited]
    begin = previous + np.minimum(HOST_SYNC_NS, gap[waited] // 2)
    at = np.concatenate([time, begin])
    until = np.concatenate([time, time[waited] - 1])
    kind = np.concatenate(
        [np.full(len(time), Call.LAUNCH), np.full(int(waited.sum()), Call.EVENT_SYNC)]
    )
    sorted_ = np.argsort(at, kind="stable")
    at, until, kind = at[sorted_] + rows.base_ns, until[sorted_] + rows.base_ns, kind[sorted_]
    of_row = np.full(of_trace.stop - of_trace.start, NONE, dtype=np.int32)
    of_row[order] = np.argsort(sorted_, kind="stable")[: len(time)]
    unknown = np.full(len(at), NONE, dtype=np.int32)
    return HostCalls(kind.astype(np.int8), unknown * 0, at, until, unknown, unknown, of_row)
