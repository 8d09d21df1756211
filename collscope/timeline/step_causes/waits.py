"""Calls in which a host waits for its GPU (pure)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collscope.model.trace import Call, Ints, Kind
from collscope.timeline.graph import FIRST
from collscope.timeline.step_causes.job import Job


def sync_nodes(job: Job, trace: int | None = None) -> Ints:
    """Nodes (less `FIRST`) of calls that make a host wait for its GPU, in whole steps."""
    found = []
    for node, (of, call) in job.sync_call.items():
        if trace is not None and of != trace:
            continue
        kind = job.call_kind(of, call)
        copy = kind is Call.LAUNCH and job.rows.kind[_first_row(job, of, call)] == Kind.COPY
        if kind >= Call.STREAM_SYNC or copy:
            found.append(node)
    return np.array(sorted(found), dtype=np.int64)


def _first_row(job: Job, trace: int, call: int) -> int:
    calls = job.host[trace]
    assert calls is not None
    own = np.flatnonzero(calls.of_row == call)
    return int(job.rows.bounds[trace] + own[0]) if len(own) else 0


def inside_steps(job: Job, nodes: Ints) -> Ints:
    """Those that take place in whole steps."""
    if not len(nodes):
        return nodes
    begin, finish = job.steps.span(job.rows.end, len(job.rows.ranks))
    shift = job.graph.time[job.graph.start_node - FIRST] - job.rows.start
    trace = job.graph.trace[nodes]
    of = np.array([int(shift[job.rows.bounds[t]]) for t in trace.tolist()], dtype=np.int64)
    time = job.graph.time[nodes] - of
    return nodes[(time > begin[trace]) & (time <= finish[trace])]


def waits_for(job: Job, gone: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(nodes,) calls in which a host waits for rows that are gone, and for no other.

    gone  (rows,)
    """
    found = np.zeros(len(job.graph.time), dtype=bool)
    for node in sync_nodes(job).tolist():
        held = job.graph.lasted[1:, node]
        held = held[held >= 0]
        found[node] = bool(len(held)) and bool(gone[held].all())
    return found


def usual_call(job: Job, nodes: Ints) -> str:
    """Kind of most of the calls that make a host wait; of launches: copies do."""
    names = [job.call_kind(*job.sync_call[n]).name for n in nodes.tolist()]
    most = max(sorted(set(names)), key=names.count)
    return "COPY" if most == Call.LAUNCH.name else most


def graph_shift(job: Job, rows: Ints) -> int:
    """ns from times of rows of one trace to those of the graph."""
    return int(job.graph.time[job.graph.start_node[rows[0]] - FIRST] - job.rows.start[rows[0]])
