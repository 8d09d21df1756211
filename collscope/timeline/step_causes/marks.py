"""Where in a timeline a cause stands (pure)."""

from __future__ import annotations

import numpy as np

from collscope.timeline.graph import FIRST
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import CauseSpan, Change
from collscope.timeline.step_causes.tolerances import MOST_MARKS


def marks_of(job: Job, change: Change) -> tuple[CauseSpan, ...]:
    """What a change takes out of whole steps: kernels, transfers, and gaps before launches."""
    rows, graph = job.rows, job.graph
    begin = graph.time[graph.start_node - FIRST].astype(np.float64)
    finish = begin + (rows.end - rows.start)
    inside = job.step_of_row >= 0
    spans = []
    if change.duration is not None:
        shorter = inside & (change.duration < 1) & (rows.entry < 0)
        spans.append((shorter, begin, finish))
    if change.transfer is not None:
        shorter = np.zeros(len(rows), dtype=bool)
        shorter[job.calls.row[change.transfer < 1]] = True
        spans.append((shorter & inside, begin, finish))
    if change.host_ns is not None:
        held = inside & (change.host_ns > job.stretched)
        spans.append((held, begin - job.idle_before, begin))
    found = [
        CauseSpan(int(rows.trace[r]), float(start[r]), float(end[r]))
        for chosen, start, end in spans
        for r in np.flatnonzero(chosen & (end > start)).tolist()
    ]
    longest = sorted(found, key=lambda m: m.start - m.end)[:MOST_MARKS]
    return tuple(sorted(longest, key=lambda m: (m.trace, m.start)))
