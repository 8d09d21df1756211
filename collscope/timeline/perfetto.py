"""Collectives of all ranks as trace events for Perfetto and chrome://tracing (pure).

One process per rank, one thread per stream and one for the steps; waiting and transfer are slices
of their own. Arrows lead from the rank that arrived last to the waiting ranks. A timeline
that was simulated stands below the recorded one, rank by rank.
source  Trace Event Format (Google): phases M, X, s and f; times in µs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import title
from collscope.model.trace import Ints
from collscope.timeline.analyse import Timeline
from collscope.timeline.graph import HOST
from collscope.timeline.play import Played, Substitutions, last_causes, play
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.step_causes.records import CauseSpan
from collscope.timeline.tolerances import EXPLAINED_NS

Event = dict[str, object]
Floats = npt.NDArray[np.float64]
MOST_PARTS = 200_000  # about 100 MB of JSON, which the viewer still opens
_CLOSEST_NS = 1  # a slice shorter than this is left out
_SHORT_NAME = 16  # a longer name of a group is a hash
_NAMED_RANKS = 4


class Simulated(msgspec.Struct, frozen=True):
    """Another timeline of the same rows: a prediction."""

    name: str  # what it is of
    played: Played


class _Scene(msgspec.Struct, frozen=True):
    """What is drawn of one timeline; moments in ns on the common clock."""

    start: Ints | Floats  # (parts,)
    end: Ints | Floats
    wait: Ints | Floats  # 0 where it is not known
    steps: Floats  # (steps + 1, traces with steps)
    pid: int  # of rank 0
    name: str  # behind a rank's; empty: the recorded one
    order: int  # of equal ranks


def trace_events(
    timeline: Timeline,
    most_parts: int = MOST_PARTS,
    recorded: RecordedJob | None = None,
    simulated: Simulated | None = None,
    marked: Sequence[tuple[str, Sequence[CauseSpan]]] = (),
) -> Iterator[Event]:
    """Events of all collectives on the common clock, metadata first.

    most_parts  kernels at most; where there are more, whole calls are left out, the shortest first
    recorded    has steps and what held up the rank that arrived last; None: neither is shown
    simulated   a timeline of `recorded` to be shown beside it
    marked      causes of long steps by their names, and where they are
    """
    chosen = longest_calls(timeline, most_parts)
    times = timeline.times
    steps = np.empty((0, 0))
    if recorded is not None and recorded.steps.source != "window":
        ends = timeline.clocks.align(timeline.rows.end, timeline.rows.trace)
        steps = recorded.steps.ends(ends)
    scenes = [_Scene(times.start, times.end, np.maximum(times.wait, 0), steps, 0, "", 0)]
    if recorded is not None and simulated is not None:
        scenes.append(_simulated(timeline, recorded, simulated))
    traces = recorded.steps.traces if recorded is not None else np.empty(0, dtype=np.int64)
    for scene in scenes:
        yield from _metadata(timeline, scene, len(timeline.calls) - len(chosen))
        yield from _steps(timeline, scene, traces)
    yield from _marks(timeline, marked)
    held = {} if recorded is None else _held_up(timeline, recorded, chosen)
    for call in chosen.tolist():
        for scene in scenes:
            yield from _call(timeline, scene, call, None if scene.name else held.get(call))


def longest_calls(timeline: Timeline, most_parts: int) -> Ints:
    """Calls that together have at most `most_parts` kernels, in order; the longest stay."""
    calls, times = timeline.calls, timeline.times
    if len(calls.row) <= most_parts:
        return np.arange(len(calls))
    longest = np.maximum.reduceat(times.end - times.start, calls.offsets[:-1])
    order = np.argsort(-longest, kind="stable")
    kept = int(np.searchsorted(np.cumsum(calls.seen[order]), most_parts, side="right"))
    return np.sort(order[:kept])


def _simulated(timeline: Timeline, recorded: RecordedJob, simulated: Simulated) -> _Scene:
    graph, calls, played = recorded.graph, timeline.calls, simulated.played
    start = played.time[graph.start_node[calls.row]]
    end = played.end[calls.row]
    arrival = start
    if len(start):
        arrival = np.maximum.reduceat(start, calls.offsets[:-1])[calls.call_of_part]
    wait = np.where(graph.alone, 0, np.clip(arrival - start, 0, end - start))
    steps = np.empty((0, 0))
    if recorded.steps.source != "window":
        steps = recorded.steps.ends(played.end)
    above = max(timeline.rows.ranks, default=0) + 1
    return _Scene(start, end, wait, steps, above, simulated.name, 1)


def _held_up(timeline: Timeline, recorded: RecordedJob, chosen: Ints) -> dict[int, str]:
    """What held up the rank that arrived last in each call, where one did."""
    rows, calls, graph = timeline.rows, timeline.calls, recorded.graph
    late = chosen[timeline.times.last[chosen] >= 0]
    last = np.flatnonzero(
        np.isin(calls.call_of_part, late) & (calls.trace == timeline.times.last[calls.call_of_part])
    )
    path = last_causes(graph, play(graph, Substitutions()), graph.start_node[calls.row[last]])
    call_of = np.full(len(rows) + 1, -1)
    call_of[calls.row] = calls.call_of_part
    found = {}
    for k, call in enumerate(calls.call_of_part[last].tolist()):
        cause, before = int(path.row[k]), int(call_of[path.row[k]])
        if path.gap[k] > EXPLAINED_NS:
            found[call] = "not known"
        elif path.slot[k] == HOST or cause < 0:
            found[call] = "its host: launched late"
        elif before >= 0:
            found[call] = title(calls.classes[calls.class_[before]])
        else:
            found[call] = rows.names[rows.name[cause]]
    return found


def _metadata(timeline: Timeline, scene: _Scene, left_out: int) -> Iterator[Event]:
    rows, clocks = timeline.rows, timeline.clocks
    for t, rank in enumerate(rows.ranks):
        host = rows.hosts[t]
        name = f"rank {rank}" if host is None else f"rank {rank} on {host}"
        pid = rank + scene.pid
        name += f", {scene.name}" * bool(scene.name)
        yield _meta("process_name", pid, {"name": name})
        yield _meta("process_sort_index", pid, {"sort_index": 2 * rank + scene.order})
        if not scene.name:
            offset = {"offset_us": _us(clocks.offset[t]), "error_us": _us(clocks.error[t])}
            yield _meta("clock_removed", pid, {**offset, "component": int(clocks.component[t])})
    collective = rows.entry >= 0
    groups = _groups_of_streams(timeline)
    for stream in np.unique(rows.stream[collective]).tolist():
        t, label = rows.streams[stream]
        name = f"stream {label}"
        if stream in groups:  # every part of a call may be left out
            name += f": {', '.join(groups[stream])}"
        yield {**_meta("thread_name", rows.ranks[t] + scene.pid, {"name": name}), "tid": stream}
    if not scene.name:
        yield _meta("calls_left_out", rows.ranks[0] if rows.ranks else 0, {"calls": left_out})


def _meta(name: str, pid: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "args": args}


def _groups_of_streams(timeline: Timeline) -> dict[int, list[str]]:
    """Names of the groups whose collectives each stream runs."""
    calls, rows = timeline.calls, timeline.rows
    found: dict[int, list[str]] = {}
    pairs = np.unique(np.stack([rows.stream[calls.row], calls.group[calls.call_of_part]]), axis=1)
    for stream, group in pairs.T.tolist():
        names = found.setdefault(stream, [])
        name = _group_name(timeline, group)
        if name not in names:
            names.append(name)
    return found


def _group_name(timeline: Timeline, group: int) -> str:
    """As the program calls the group, and its ranks."""
    found = timeline.calls.groups[group]
    name = found.description or (
        found.name if found.name and len(found.name) <= _SHORT_NAME else "ranks"
    )
    ranks = found.ranks or tuple(timeline.rows.ranks[t] for t in found.members)
    named = ",".join(map(str, ranks[:_NAMED_RANKS])) + ",…" * (len(ranks) > _NAMED_RANKS)
    return f"{name} ({named})"


def _steps(timeline: Timeline, scene: _Scene, traces: Ints) -> Iterator[Event]:
    """A thread of each rank with its steps."""
    tid = len(timeline.rows.streams)
    for column in range(scene.steps.shape[1]):
        pid = timeline.rows.ranks[int(traces[column])] + scene.pid
        yield {**_meta("thread_name", pid, {"name": "steps"}), "tid": tid}
        yield {**_meta("thread_sort_index", pid, {"sort_index": -1}), "tid": tid}
        ends = scene.steps[:, column]
        for number, begin in enumerate(ends[:-1].tolist()):
            where: Event = {"pid": pid, "tid": tid}
            yield _slice(f"step {number}", "step", begin, float(ends[number + 1]) - begin, where)


def _marks(
    timeline: Timeline, marked: Sequence[tuple[str, Sequence[CauseSpan]]]
) -> Iterator[Event]:
    """A thread of each rank and cause with what the cause holds."""
    for number, (name, marks) in enumerate(marked):
        tid = len(timeline.rows.streams) + 1 + number
        for trace in sorted({mark.trace for mark in marks}):
            pid = timeline.rows.ranks[trace]
            yield {**_meta("thread_name", pid, {"name": f"cause: {name}"}), "tid": tid}
            yield {**_meta("thread_sort_index", pid, {"sort_index": -1}), "tid": tid}
        for mark in marks:
            where: Event = {"pid": timeline.rows.ranks[mark.trace], "tid": tid}
            yield _slice(name, "cause", mark.start, mark.end - mark.start, where)


def _call(timeline: Timeline, scene: _Scene, call: int, held: str | None) -> Iterator[Event]:
    """Slices of one call on all its ranks, and the arrows between them."""
    rows, calls, times = timeline.rows, timeline.calls, timeline.times
    key = calls.classes[calls.class_[call]]
    args: Event = {
        "group": _group_name(timeline, int(calls.group[call])),
        "seq": int(calls.seq[call]),
        "size_bytes": key.size_bytes,
        "nranks": key.nranks,
    }
    if times.warm_up[call]:
        args["warm_up"] = True
    last = int(times.last[call])
    waiting = "wait"
    if last >= 0 and not scene.name:
        args |= {"last_rank": rows.ranks[last], "late_us": _us(times.lateness[call])}
        waiting = f"wait for rank {rows.ranks[last]}"
        if held is not None:
            args["held_up_by"] = held
    parts = range(int(calls.offsets[call]), int(calls.offsets[call + 1]))
    source = None
    if not scene.name:
        source = next((p for p in parts if calls.trace[p] == last), None)
    for part in parts:
        where = _where(timeline, scene, part)
        start, end, wait = (float(v[part]) for v in (scene.start, scene.end, scene.wait))
        if wait >= _CLOSEST_NS:
            yield _slice(waiting, "wait", start, wait, where | {"args": args})
        if end - start - wait >= _CLOSEST_NS:
            category = "transfer" if times.known[call] else "collective"
            yield _slice(
                title(key), category, start + wait, end - start - wait, where | {"args": args}
            )
            if source is not None and part != source and wait >= _CLOSEST_NS:
                yield from _arrow(timeline, scene, (source, part), start + wait)


def _where(timeline: Timeline, scene: _Scene, part: int) -> Event:
    row = timeline.calls.row[part]
    rank = timeline.rows.ranks[timeline.calls.trace[part]]
    return {"pid": rank + scene.pid, "tid": int(timeline.rows.stream[row])}


def _slice(name: str, category: str, start: float, length: float, rest: Event) -> Event:
    return {
        "ph": "X", "name": name, "cat": category, "ts": _us(start), "dur": _us(length), **rest,
    }  # fmt: skip


def _arrow(timeline: Timeline, scene: _Scene, ends: tuple[int, int], at: float) -> Iterator[Event]:
    """From the last rank's start to the transfer of a rank that waited."""
    source, target = ends
    common = {"name": "last rank", "cat": "wait", "id": target}
    begin = _us(scene.start[source])
    yield {"ph": "s", **common, "ts": begin, **_where(timeline, scene, source)}
    yield {"ph": "f", "bp": "e", **common, "ts": _us(at), **_where(timeline, scene, target)}


def _us(ns: float) -> float:
    return round(float(ns) / 1000, 3)
