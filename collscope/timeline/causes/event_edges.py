"""Stage 4: which rows of other streams each row waits for (pure).

Few traces show which event a wait names. In others, `wait_rules` finds it by the order
of calls; and where no host call is known, or a graph launched the row, the recorded times show it:
a row follows what ended right before it started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model.trace import Call, Ints
from collscope.timeline.causes.host_record import HostRecord
from collscope.timeline.causes.placed_rows import PlacedRows
from collscope.timeline.causes.wait_rules import (
    EdgeList,
    EventSites,
    edge_list,
    job_waits,
    library_order,
    recorded_behind,
    rule_edges,
)
from collscope.timeline.graph import EVER, NONE, Edges
from collscope.timeline.steps import recurring_kernels
from collscope.timeline.tolerances import (
    EVENT_WAKE_NS,
    MAX_CONTRADICTED,
    MIN_RECURRING_NAMES,
    STAMP_OVERLAP_NS,
)

Bools = npt.NDArray[np.bool_]


class EventEdges(msgspec.Struct, frozen=True):
    """Rows of other streams that each row waits for, at most two. Shape (2, rows)."""

    source: Ints  # `NONE` where there is none
    unseen: Bools  # the order of calls alone names it
    counts: Edges


def event_edges(placed: PlacedRows, host: HostRecord, known: Bools) -> EventEdges:
    """Edges of the rows of one trace.

    known  (rows of the trace,) the launch is known
    """
    if not host.recorded:
        rows = placed.rows.of(host.trace)
        ended = _edges_by_end(placed, host.trace, np.arange(rows.start, rows.stop))
        return _held(placed, host.trace, [ended, _edges_by_launch(placed, host)])
    edges = _held(placed, host.trace, _edges_of_calls(placed, host))
    # No call shows what waits for what inside a graph.
    launches = host.launches
    several = np.bincount(launches.call, minlength=1)[launches.call] > 1
    further = [
        _edges_of_before(placed, host.trace, known, edges),
        _edges_by_end(placed, host.trace, launches.row[several]),
    ]
    return _held(placed, host.trace, further, edges)


def join_events(edges: Sequence[EventEdges]) -> EventEdges:
    """Those of all traces as one."""
    return EventEdges(
        source=np.hstack([np.empty((2, 0), dtype=np.int64), *(e.source for e in edges)]),
        unseen=np.hstack([np.empty((2, 0), dtype=bool), *(e.unseen for e in edges)]),
        counts=sum((e.counts for e in edges), Edges()),
    )


def _held(
    placed: PlacedRows, trace: int, lists: Iterable[EdgeList], onto: EventEdges | None = None
) -> EventEdges:
    """Of edges from one stream the last launched counts, and of three streams the latest two.

    onto  edges that are known already
    """
    first, behind = placed.rows.bounds[trace : trace + 2].tolist()
    stream, end = placed.rows.stream, placed.end
    if onto is None:
        none = np.full((2, behind - first), NONE)
        onto = EventEdges(none, np.zeros(none.shape, dtype=bool), Edges())
    held, unseen, counts = onto.source.copy(), onto.unseen.copy(), onto.counts
    for edges in lists:
        counts += edges.counts
        columns = (edges.destination - first, edges.source, edges.seen)
        for row, source, seen in zip(*(c.tolist() for c in columns), strict=True):
            both = held[:, row].tolist()
            alike = [s for s in range(2) if both[s] == NONE or stream[both[s]] == stream[source]]
            slot = alike[0] if alike else int(end[both].argmin())
            known = both[slot]
            if known == NONE or end[source] > end[known]:
                held[slot, row] = source
                unseen[slot, row] = not seen
    return EventEdges(held, unseen, counts)


def _edges_by_launch(placed: PlacedRows, host: HostRecord) -> EdgeList:
    """A collective follows what its rank launched before it, unless its stream is seen not to."""
    rows, launches = placed.rows, host.launches
    compute = rows.entry[launches.row] < 0
    chosen = np.flatnonzero(~compute)
    if not compute.any() or not len(chosen):
        return edge_list([], [])
    earlier = np.searchsorted(np.flatnonzero(compute), chosen) - 1
    source = np.where(earlier >= 0, launches.row[compute][earlier], NONE)
    row = launches.row[chosen]
    crosses = (source >= 0) & (rows.stream[source] != rows.stream[row])
    wrong = crosses & (placed.end[source] > placed.start[row] + STAMP_OVERLAP_NS)
    good = []
    for stream in np.unique(rows.stream[row]).tolist():
        on = rows.stream[row] == stream
        if wrong[on].sum() <= MAX_CONTRADICTED * on.sum():
            good += np.flatnonzero(on & crosses & ~wrong).tolist()
    return edge_list(row[good], source[good], Edges(inferred=len(good)))


def _edges_by_end(placed: PlacedRows, trace: int, row: Ints) -> EdgeList:
    """Edges of some rows to what ended on another stream right before they started."""
    order, ends = placed.by_end[trace]
    if not len(row) or not len(order):
        return edge_list([], [])
    stream, start, end = placed.rows.stream, placed.start[row], placed.end
    place = np.searchsorted(ends, start, side="right") - 1
    last = np.where(place >= 0, order[place], NONE)
    near = (last >= 0) & (start - end[last] <= EVENT_WAKE_NS)
    near &= stream[row] != stream[last]
    previous = placed.previous[row]
    shown = np.maximum(np.where(previous >= 0, end[previous], EVER), placed.launch[row])
    good = near & (end[last] > shown)
    return edge_list(row[good], last[good], Edges(inferred=int(good.sum())))


def _edges_of_calls(placed: PlacedRows, host: HostRecord) -> list[EdgeList]:
    """Edges that the waits of the job's own streams make, and the order of the library's."""
    launches = host.launches
    named, known = _named_edges(placed, host)
    waits = [w for w in job_waits(placed, host) if w.call not in known]
    if not len(launches.row) or not waits:
        return [named, edge_list([], [], Edges(unknown=len(waits)))]
    records = np.flatnonzero(host.calls.kind == Call.RECORD)
    behind = recorded_behind(host, records)
    if not len(records):
        # Some tracers leave them out: an event may be recorded behind any launch.
        records, behind = launches.call, launches.row[:, None]
    order, explained = library_order(placed, launches)
    sites = EventSites(placed, launches, records, behind)
    return [named, order, rule_edges(sites, waits, explained)]


def _named_edges(placed: PlacedRows, host: HostRecord) -> tuple[EdgeList, set[int]]:
    """Edges of waits whose event and record the source has; these waits.

    A wait is for the last record of its event before it (cudaStreamWaitEvent).
    """
    calls, stream, launches = host.calls, host.stream, host.launches
    named = (calls.event >= 0) & (stream >= 0)
    record = calls.kind == Call.RECORD
    latest: dict[int, int] = {}
    known, pairs, contradicted = set(), [], 0
    for call in np.flatnonzero(named & (record | (calls.kind == Call.WAIT))).tolist():
        event = int(calls.event[call])
        if record[call]:
            latest[event] = call
            continue
        if event not in latest:
            continue
        known.add(call)
        source = launches.last(int(stream[latest[event]]), latest[event])
        destination = launches.next(int(stream[call]), call)
        if NONE in (source, destination) or stream[call] == stream[latest[event]]:
            continue  # nothing to wait for, or nothing that waits
        if placed.end[source] > placed.start[destination] + STAMP_OVERLAP_NS:
            contradicted += 1
        else:
            pairs.append((destination, source))
    destinations, sources = [d for d, _ in pairs], [s for _, s in pairs]
    counts = Edges(named=len(pairs), contradicted=contradicted)
    return edge_list(destinations, sources, counts), known


def _edges_of_before(placed: PlacedRows, trace: int, known: Bools, edges: EventEdges) -> EdgeList:
    """Edges of rows that were launched before the trace began: those of a later step's rows.

    What a step launches on each stream recurs, and waits for the same.

    edges  of the rows whose launch is known
    """
    rows, first = placed.rows, int(placed.rows.bounds[trace])
    of_stream = _recurring(placed, trace)
    index = np.full(len(known), NONE)
    for on_stream, _ in of_stream.values():
        index[on_stream - first] = np.arange(len(on_stream))
    found: list[tuple[int, int, bool]] = []
    for on_stream, period in of_stream.values():
        launched = known[on_stream - first]
        for place in np.flatnonzero(~launched).tolist():
            later = np.flatnonzero(launched[place::period])
            if not len(later):
                continue
            steps = int(later[0])
            row, like = int(on_stream[place]), int(on_stream[place + steps * period])
            sources, unseen = edges.source[:, like - first], edges.unseen[:, like - first]
            for source, hidden in zip(sources.tolist(), unseen.tolist(), strict=True):
                if source == NONE or int(rows.stream[source]) not in of_stream:
                    continue
                others, recurs = of_stream[int(rows.stream[source])]
                at = int(index[source - first]) - steps * recurs
                if at < 0 or rows.name[row] != rows.name[like]:
                    continue
                if placed.end[others[at]] <= placed.start[row] + STAMP_OVERLAP_NS:
                    found.append((row, int(others[at]), not hidden))
    columns = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return EdgeList(columns[0], columns[1], columns[2] > 0, Edges(inferred=len(found)))


def _recurring(placed: PlacedRows, trace: int) -> dict[int, tuple[Ints, int]]:
    """Rows of each stream of a trace on which as many recur every step; and how many."""
    rows = placed.rows
    kernels, period = recurring_kernels(rows, trace)
    if not period or len(kernels) <= period:
        return {}
    cuts = placed.start[kernels[::-1][::period]][::-1]  # one moment of each step
    found = {}
    of_trace = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    for stream in np.unique(rows.stream[of_trace]).tolist():
        on_stream = of_trace[rows.stream[of_trace] == stream]
        several = np.searchsorted(placed.start[on_stream], cuts[[0, -1]])
        count = round(float(several[1] - several[0]) / (len(cuts) - 1))
        name = rows.name[on_stream]
        if count and (name[count:] == name[:-count]).mean() >= MIN_RECURRING_NAMES:
            found[stream] = on_stream, count
    return found
