"""Where in a timeline a cause stands (pure)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collscope.model.trace import Ints
from collscope.timeline.graph import FIRST
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import CauseSpan, Change
from collscope.timeline.step_causes.tolerances import MOST_MARKS

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


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
    if not spans:
        return ()
    row, start, end = (
        np.concatenate(columns) for columns in zip(*(_chosen(*span) for span in spans), strict=True)
    )
    longest = np.argsort(start - end, kind="stable")[:MOST_MARKS]
    found = [
        CauseSpan(int(rows.trace[row[k]]), float(start[k]), float(end[k])) for k in longest.tolist()
    ]
    return tuple(sorted(found, key=lambda m: (m.trace, m.start)))


def _chosen(chosen: Bools, start: Floats, end: Floats) -> tuple[Ints, Floats, Floats]:
    """Rows that last, from when to when."""
    row = np.flatnonzero(chosen & (end > start))
    return row, start[row], end[row]
