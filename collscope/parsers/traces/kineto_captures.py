"""Collectives of kernels that graphs launch, from the capture of the graph in the same trace.

A graph's kernels have no arguments: the host launched them once, while the graph was captured. A
capture lies between cudaStreamBeginCapture and cudaStreamEndCapture on a thread. It has a sequence
of launches, and calls of torch.distributed and of symmetric memory, each around one launch. A
launch of the graph has a sequence of kernels. The two are one and the same where they are equally
long and have collectives of the same operation at the same places, and where no other capture and
no other graph of the trace has this sequence.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collscope.model import Op
from collscope.model.trace import Kind
from collscope.parsers._columns import as_numpy
from collscope.parsers.traces import kineto_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collscope.model.trace import Ints, TraceCollective
    from collscope.parsers.traces.kineto_collect import Collector

NO_CAPTURE = ""
OTHER_SEQUENCE = (
    "The trace holds captures, but none with the kernels of these graphs in this order."
)
SEVERAL = "Several captures or graphs of the trace have the kernels of these graphs in this order."
STREAMS = "These graphs run kernels on several streams, whose order is not that of the capture."


class _Capture(NamedTuple):
    """Launches of one capture; collectives by their place among them."""

    end_us: float
    launches: int
    calls: tuple[tuple[int, int], ...]  # place among the launches, place in `Collector.describe`


class _Launch(NamedTuple):
    """Kernels that one launch of a graph started, in their order."""

    rows: Ints
    places: tuple[int, ...]  # of the collectives among them
    shape: tuple[tuple[int, int], ...]  # name and thread blocks of the collectives


def collectives_of_captures(seen: Collector, launch_us: np.ndarray) -> tuple[dict[int, int], str]:
    """By row the place in `Collector.describe` that its capture gives it; why rows have none.

    launch_us  per row, start of the host call that launched it
    """
    captures = list(_captures(seen))
    if not captures:
        return {}, NO_CAPTURE
    found: dict[int, int] = {}
    why: Counter[str] = Counter()
    alike: dict[tuple[int, tuple[int, ...]], list[_Launch]] = defaultdict(list)
    for launch in _launches(seen):
        if len(np.unique(as_numpy(seen.rows.stream, np.int32)[launch.rows])) > 1:
            why[STREAMS] += len(launch.places)
        else:
            alike[len(launch.rows), launch.places].append(launch)
    for (number, places), launches in alike.items():
        fitting = [
            capture
            for capture in captures
            if capture.launches == number
            and tuple(place for place, _ in capture.calls) == places
            and _agree(seen, capture, launches[0])
        ]
        before = min(float(launch_us[launch.rows[0]]) for launch in launches)
        one_graph = len({launch.shape for launch in launches}) == 1
        one_capture = len({capture.calls for capture in fitting}) == 1
        if not (one_graph and one_capture) or before < max(c.end_us for c in fitting):
            why[SEVERAL if fitting else OTHER_SEQUENCE] += len(places) * len(launches)
            continue
        described = [place for _, place in fitting[0].calls]
        for launch in launches:
            rows = launch.rows[list(places)].tolist()
            found.update(zip(rows, described, strict=True))
    return found, why.most_common(1)[0][0] if why else NO_CAPTURE


def _captures(seen: Collector) -> Iterator[_Capture]:
    """Captures whose collectives each launched one kernel."""
    host = seen.host
    thread = as_numpy(host.launch_thread, np.int32)
    start = as_numpy(host.launch_start, np.float64)
    for which, begin, end in host.captured:
        launches = np.sort(start[(thread == which) & (start > begin) & (start < end)])
        calls = []
        for first, last, place in _calls(seen, which, begin, end):
            a, b = np.searchsorted(launches, (first, last))
            calls.append((int(a), int(b - a), place))
        alone = all(number == 1 for _, number, _ in calls)
        if calls and alone and all(x[0] < y[0] for x, y in pairwise(calls)):
            yield _Capture(end, len(launches), tuple((place, what) for place, _, what in calls))


def _calls(
    seen: Collector, thread: int, begin: float, end: float
) -> list[tuple[float, float, int]]:
    """Start, end and description of a thread's collective calls in a time, in their order."""
    host = seen.host
    found = [
        (first, last, host.records.place[n])
        for n, first, last in host.records.within(thread, begin, end)
        if _operation(seen, host.records.place[n]) is not Op.UNKNOWN
    ]
    if not found:
        found = [
            (first, last, seen.annotation(n))
            for n, first, last in host.annotations.within(thread, begin, end)
        ]
    found += [
        (first, last, host.symmetric.place[n])
        for n, first, last in host.symmetric.within(thread, begin, end)
    ]
    return sorted(found)


def _launches(seen: Collector) -> Iterator[_Launch]:
    """Launches of graphs with collectives that have only their name."""
    rows = seen.rows
    correlation = as_numpy(rows.correlation, np.int64)
    graphs = np.fromiter(seen.host.graphs, dtype=np.int64, count=len(seen.host.graphs))
    of_graph = np.isin(correlation, graphs) & (as_numpy(rows.kind, np.int8) == Kind.KERNEL)
    number = np.flatnonzero(of_graph)
    start = as_numpy(rows.start, np.float64)
    number = number[np.lexsort((start[number], correlation[number]))]
    unnamed = np.zeros(len(rows), dtype=bool)
    unnamed[[row for row, _ in seen.unnamed]] = True
    names, blocks = as_numpy(rows.name, np.int32), as_numpy(rows.blocks, np.int32)
    cuts = np.flatnonzero(np.diff(correlation[number])) + 1
    for own in np.split(number, cuts):
        places = np.flatnonzero(unnamed[own])
        if len(places):
            chosen = own[places]
            shape = zip(names[chosen].tolist(), blocks[chosen].tolist(), strict=True)
            yield _Launch(own, tuple(places.tolist()), tuple(shape))


def _agree(seen: Collector, capture: _Capture, launch: _Launch) -> bool:
    """Whether the kernels' names show the operations and types of the calls."""
    for (_, place), (name, _) in zip(capture.calls, launch.shape, strict=True):
        hint, call = seen.hint(name), _collective(seen, place)
        if hint is None or hint.op_hint not in (None, call.op.value):
            return False
        known = hint.datatype_hint if hint.redop_hint else None  # others move any type as bytes
        if call.datatype is not None and known not in (None, call.datatype.value):
            return False
    return True


def _operation(seen: Collector, place: int) -> Op:
    return _collective(seen, place).op


def _collective(seen: Collector, place: int) -> TraceCollective:
    return seen.describe[place](kineto_calls.Known({})).collective
