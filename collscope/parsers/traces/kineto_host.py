"""Host side of a PyTorch profiler trace: which call launched what, inside which annotation."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from collscope.model.trace import Call
from collscope.parsers._calls import (
    UNKNOWN,
    Launches,
    call_kind,
    ends_capture,
    is_launch,
    may_capture,
    without_kernel,
)
from collscope.parsers._columns import Floats, Index, as_numpy, launches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collscope.model.trace import Ints
    from collscope.parsers.traces.kineto_slices import Slice

_OUTER = 8  # annotations looked at from the innermost outwards


class Spans:
    """Host intervals that describe a collective: place of the description, External id, Seq."""

    def __init__(self) -> None:
        """Start without an interval."""
        self.thread = array("q")
        self.start = array("d")
        self.end = array("d")
        self.place = array("i")
        self.seq = array("q")
        self.externals: dict[int, int] = {}  # number by External id
        self._order: dict[int, tuple[Ints, Floats]] | None = None

    def add(self, thread: int, start: float, end: float, place: int) -> int:
        """Keep one; its number comes back."""
        self.thread.append(thread)
        self.start.append(start)
        self.end.append(end)
        self.place.append(place)
        self.seq.append(-1)
        return len(self.place) - 1

    def refer(self, number: int, external: int, seq: int) -> None:
        """Set an interval's External id and Seq."""
        self.externals[external] = number
        self.seq[number] = seq

    def with_external(self, external: int) -> int:
        """Number of the interval with an External id, or -1."""
        return self.externals.get(external, -1)

    def without(self, launched: set[int], places: set[int]) -> tuple[list[int], int]:
        """Intervals without a kernel that were launched among others with one, and how many are.

        launched    External ids of kernels
        places      of descriptions whose calls launch a kernel each
        """
        calls = sorted((self.start[n], n, e) for e, n in self.externals.items() if e >= 0)
        calls = [call for call in calls if self.place[call[1]] in places]
        has = [k for k, (_, _, external) in enumerate(calls) if external in launched]
        between = calls[has[0] : has[-1]] if has else []
        return [n for _, n, external in between if external not in launched], len(between)

    def around(self, thread: int, time: float) -> int:
        """Number of the innermost interval of a thread that holds a time, or -1."""
        if self._order is None:
            self._order = self._sorted()
        numbers, starts = self._order.get(thread, (None, None))
        if numbers is None or starts is None:
            return -1
        last = int(np.searchsorted(starts, time, side="right"))
        for place in range(last - 1, max(-1, last - 1 - _OUTER), -1):
            number = int(numbers[place])
            if self.end[number] >= time:
                return number
        return -1

    def within(self, thread: int, begin: float, end: float) -> Iterator[tuple[int, float, float]]:
        """Number, start and end of a thread's intervals in a time."""
        starts = as_numpy(self.start, np.float64)
        chosen = (as_numpy(self.thread, np.int64) == thread) & (starts > begin) & (starts < end)
        for number in np.flatnonzero(chosen).tolist():
            yield number, self.start[number], self.end[number]

    def _sorted(self) -> dict[int, tuple[Ints, Floats]]:
        threads, starts = as_numpy(self.thread, np.int64), as_numpy(self.start, np.float64)
        order = np.lexsort((starts, threads))
        return {
            int(thread): (of_thread := order[threads[order] == thread], starts[of_thread])
            for thread in np.unique(threads)
        }


class Host:
    """Runtime calls, record_param_comms and annotations of one trace; times as in the source."""

    def __init__(self) -> None:
        """Start without an event."""
        self.threads: Index[int | str | None] = Index()
        self.records = Spans()
        self.annotations = Spans()
        self.operators = Spans()  # of c10d
        self.symmetric = Spans()  # operators of symmetric memory
        self.kind = array("b")  # of calls; `UNKNOWN` where the name names none of `Call`
        self.thread = array("i")
        self.start = array("d")
        self.duration = array("d")  # -1 where unknown
        self.correlation = array("q")
        self.waits: dict[int, tuple[int, int]] = {}  # by correlation: stream and event, -1: unknown
        self.graphs: set[int] = set()  # correlations of launches of graphs
        self.launches = array("q")  # correlations of launches of one kernel each
        self.launch_start = array("d")
        self.launch_thread = array("i")
        self.capture_marks: list[tuple[int, float, bool]] = []  # thread, time, whether it begins
        self.captures = False  # a launch may be into a graph: then no kernel follows it

    def add(self, part: Slice) -> None:
        """Keep calls of the runtime and driver, and flows."""
        calls = part.calls
        names = [name or "" for name in part.call_names]
        # A flow has no name: -1, the last.
        kinds = np.array([*map(call_kind, names), UNKNOWN], dtype=np.int8)
        threads = np.array([self.threads[thread] for thread in part.threads], dtype=np.int32)
        # cudaGraphLaunch, hipGraphLaunch_spt
        graphs = np.array([*("GraphLaunch" in name for name in names), False], dtype=bool)
        self.graphs.update(calls["correlation"][graphs[calls["name"]]].tolist())
        launching = np.array([*(is_launch(name) for name in names), False])
        launched = launching[calls["name"]]
        self.launches.frombytes(calls["correlation"][launched].tobytes())
        self.launch_start.frombytes(calls["start_us"][launched].tobytes())
        self.launch_thread.frombytes(threads[calls["thread"]][launched].tobytes())
        for marks, begins in ((may_capture, True), (ends_capture, False)):
            marking = np.array([*map(marks, names), False])
            if not marking.any():
                continue
            chosen = marking[calls["name"]]
            where = threads[calls["thread"]][chosen].tolist()
            times = calls["start_us"][chosen].tolist()
            self.capture_marks += [(*mark, begins) for mark in zip(where, times, strict=True)]
        self.captures |= any(map(may_capture, names))
        self.kind.frombytes(kinds[calls["name"]].tobytes())
        self.thread.frombytes(threads[calls["thread"]].tobytes())
        self.start.frombytes(calls["start_us"].tobytes())
        self.duration.frombytes(calls["duration_us"].tobytes())
        self.correlation.frombytes(calls["correlation"].tobytes())

    @property
    def captured(self) -> list[tuple[int, float, float]]:
        """Thread, begin and end of each capture of a graph."""
        marks = sorted(self.capture_marks)
        return [
            (thread, begin, end)
            for (thread, begin, begins), (other, end, second) in pairwise(marks)
            if begins and not second and thread == other
        ]

    def without_kernel(self, correlation: Ints, gpu: tuple[float, float]) -> tuple[int, int]:
        """Launches without their kernel, and all of them: `without_kernel`.

        correlation  ids of the rows; those of calls rise in the order of the calls
        gpu          end of the last row, and what the longest of the last rows takes
        """
        if self.captures or not len(self.launches):
            return 0, 0
        number = as_numpy(self.launches, np.int64)
        launched = as_numpy(self.launch_start, np.float64)
        start, lasts = as_numpy(self.start, np.float64), as_numpy(self.duration, np.float64)
        waits = start[as_numpy(self.kind, np.int8) == Call.DEVICE_SYNC]
        return without_kernel(
            Launches(number, launched, np.isin(number, correlation)),
            float((start + np.maximum(lasts, 0)).max()),
            float(waits.max(initial=-np.inf)),
            gpu,
        )

    def launched_by(self, correlation: Ints) -> Ints:
        """Place of the call behind each correlation id; -1 where not known."""
        return launches(
            correlation, as_numpy(self.correlation, np.int64), as_numpy(self.start, np.float64)
        )
