"""Many small collectives that follow each other (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import (
    MAX_ROWS_BETWEEN,
    MIN_SMALL_CALLS,
    SMALL_CALL_NS,
)
from collscope.timeline.step_causes.waits import inside_steps, waits_for


def small_calls(job: Job) -> Iterator[Candidate]:
    """Many small collectives that follow each other: one call would do."""
    calls, graph, rows = job.calls, job.graph, job.rows
    if not len(calls):
        return
    part_transfer = graph.transfer
    shortest = np.minimum.reduceat(part_transfer, calls.offsets[:-1])
    size = np.array([-1 if c.size_bytes is None else c.size_bytes for c in calls.classes])
    small_class = size[calls.class_]
    small = np.where(small_class >= 0, small_class <= 1 << 16, shortest <= SMALL_CALL_NS)
    small &= ~calls.p2p
    of_row = np.zeros(len(rows), dtype=bool)
    of_row[calls.row] = small[calls.call_of_part]
    duration = np.ones(len(rows))
    host = np.zeros(len(rows))
    inner = np.zeros(len(rows), dtype=bool)
    count = 0
    last = -1
    for trace in job.traces:
        order = job.launched(trace)
        at = np.flatnonzero(of_row[order])
        if not len(at):
            return
        # Between the calls of a burst are copies of results alone. Kernels may need one call's
        # result for the next, as the layers of a model do; a large call is no part of one call.
        large = (rows.entry[order] >= 0) & ~of_row[order]
        kernels = np.cumsum(job.compute[order] | large)[at]
        cuts = np.flatnonzero((np.diff(kernels) > 0) | (np.diff(at) > MAX_ROWS_BETWEEN)) + 1
        for burst in np.split(at, cuts):
            if len(burst) < MIN_SMALL_CALLS:
                continue
            burst_rows = order[burst[0] : burst[-1] + 2]
            inner[burst_rows] = True
            own = order[burst]
            # Before the first call and after the last the host may do something else as well.
            between, ends = job.interval[burst_rows], burst_rows[[0, -1]]
            host[burst_rows] = between
            host[ends] = np.minimum(job.interval[ends], np.median(between[1:-1]))
            count += int((job.step_of_row[own] >= 0).sum())
            last = int(own[-1])
    if not count:
        return
    copies = inner & (rows.entry < 0)
    duration[copies] = 0.0
    transfer = np.where(inner[calls.row], 0.0, 1.0)
    waits = waits_for(job, inner)
    spent = float((rows.end - rows.start)[inner & (rows.entry >= 0) & (job.step_of_row >= 0)].sum())
    ranks, held = len(job.traces), len(inside_steps(job, np.flatnonzero(waits)))
    yield Candidate(
        "small_calls", (), "calls",
        Evidence("small_calls", job.name(last), count=count / job.count / ranks,
                 ms=spent / job.count / ranks / 1e6, usual=held / job.count / ranks),
        changes=(Change(host_ns=host, duration=duration, transfer=transfer, waits=waits),),
        # If no host waits for them, they cost what it takes to launch them: in another start hosts
        # may be no limit.
        counted=True, certain=2 * held >= count,
    )  # fmt: skip
