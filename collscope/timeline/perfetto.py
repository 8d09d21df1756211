"""Collectives of all ranks as trace events for Perfetto and chrome://tracing (pure).

One process per rank, one thread per stream; waiting and transfer are slices of their own, and
arrows lead from the rank that came last to those that waited for it.
source  Trace Event Format (Google): phases M, X, s and f; times in µs
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collscope.match.rows import title
from collscope.model.trace import Ints
from collscope.timeline.analyse import Timeline

Event = dict[str, object]
MOST_PARTS = 200_000  # about 100 MB of JSON, which the viewer still opens
_CLOSEST_NS = 1  # a slice shorter than this is left out


def trace_events(timeline: Timeline, most_parts: int = MOST_PARTS) -> Iterator[Event]:
    """Events of all collectives on the common clock, metadata first.

    most_parts  kernels at most; where there are more, whole calls are left out, the shortest first
    """
    chosen = longest_calls(timeline, most_parts)
    yield from _metadata(timeline, len(timeline.calls) - len(chosen))
    for call in chosen.tolist():
        yield from _call(timeline, call)


def longest_calls(timeline: Timeline, most_parts: int) -> Ints:
    """Calls that together have at most `most_parts` kernels, in order; the longest stay."""
    calls, times = timeline.calls, timeline.times
    if len(calls.row) <= most_parts:
        return np.arange(len(calls))
    longest = np.maximum.reduceat(times.end - times.start, calls.offsets[:-1])
    order = np.argsort(-longest, kind="stable")
    kept = int(np.searchsorted(np.cumsum(calls.seen[order]), most_parts, side="right"))
    return np.sort(order[:kept])


def _metadata(timeline: Timeline, left_out: int) -> Iterator[Event]:
    rows, clocks = timeline.rows, timeline.clocks
    for t, rank in enumerate(rows.ranks):
        host = rows.hosts[t]
        name = f"rank {rank}" if host is None else f"rank {rank} on {host}"
        yield _meta("process_name", rank, {"name": name})
        yield _meta("process_sort_index", rank, {"sort_index": rank})
        offset = {"offset_us": _us(clocks.offset[t]), "error_us": _us(clocks.error[t])}
        yield _meta("clock_removed", rank, {**offset, "component": int(clocks.component[t])})
    collective = rows.entry >= 0
    for stream in np.unique(rows.stream[collective]).tolist():
        t, label = rows.streams[stream]
        yield {**_meta("thread_name", rows.ranks[t], {"name": f"stream {label}"}), "tid": stream}
    yield _meta("calls_left_out", rows.ranks[0] if rows.ranks else 0, {"calls": left_out})


def _meta(name: str, pid: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "args": args}


def _call(timeline: Timeline, call: int) -> Iterator[Event]:
    """Slices of one call on all its ranks, and the arrows between them."""
    rows, calls, times = timeline.rows, timeline.calls, timeline.times
    key = calls.classes[calls.class_[call]]
    group = calls.groups[calls.group[call]]
    args: Event = {
        "group": group.name,
        "seq": int(calls.seq[call]),
        "size_bytes": key.size_bytes,
        "nranks": key.nranks,
    }
    if times.warm_up[call]:
        args["warm_up"] = True
    last = int(times.last[call])
    if last >= 0:
        args |= {"last_rank": rows.ranks[last], "late_us": _us(times.lateness[call])}
    parts = range(int(calls.offsets[call]), int(calls.offsets[call + 1]))
    source = next((p for p in parts if calls.trace[p] == last), None)
    for part in parts:
        where = _where(timeline, part)
        start, end = int(times.start[part]), int(times.end[part])
        wait = max(int(times.wait[part]), 0)
        if wait >= _CLOSEST_NS:
            yield _slice("wait", "wait", start, wait, where | {"args": args})
        if end - start - wait >= _CLOSEST_NS:
            category = "transfer" if times.known[call] else "collective"
            yield _slice(
                title(key), category, start + wait, end - start - wait, where | {"args": args}
            )
            if source is not None and part != source and wait >= _CLOSEST_NS:
                yield from _arrow(timeline, source, part, start + wait)


def _where(timeline: Timeline, part: int) -> Event:
    row = timeline.calls.row[part]
    rank = timeline.rows.ranks[timeline.calls.trace[part]]
    return {"pid": rank, "tid": int(timeline.rows.stream[row])}


def _slice(name: str, category: str, start: int, length: int, rest: Event) -> Event:
    return {
        "ph": "X", "name": name, "cat": category, "ts": _us(start), "dur": _us(length), **rest,
    }  # fmt: skip


def _arrow(timeline: Timeline, source: int, target: int, at: int) -> Iterator[Event]:
    """From the last rank's start to the transfer of a rank that waited."""
    common = {"name": "last rank", "cat": "wait", "id": target}
    begin = _us(timeline.times.start[source])
    yield {"ph": "s", **common, "ts": begin, **_where(timeline, source)}
    yield {"ph": "f", "bp": "e", **common, "ts": _us(at), **_where(timeline, target)}


def _us(ns: float) -> float:
    return round(float(ns) / 1000, 3)
