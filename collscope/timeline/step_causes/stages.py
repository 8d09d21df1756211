"""Ranks that are stages of a pipeline (pure)."""

from __future__ import annotations

import numpy as np

from collscope.timeline.step_causes.job import Job


def stages(job: Job) -> bool:
    """Whether the ranks are stages of a pipeline, each with work of its own.

    They only exchange. Or most of their calls are exchanges, and one rank comes to its first
    exchange of a step without most of the kernels that another runs before its own: it waits for
    the stage before it.
    """
    calls = np.flatnonzero((job.rows.entry >= 0) & (job.step_of_row >= 0))
    exchanges = job.point_to_point[calls]
    if not len(calls) or exchanges.all():
        return bool(len(calls))
    return bool(2 * exchanges.sum() > len(calls)) and _begins_elsewhere(job)


def _begins_elsewhere(job: Job) -> bool:
    """Whether in most steps a rank runs few kinds of the kernels that another runs before its first
    exchange, until it comes to its own. The first step may lack its first rows."""
    found = 0
    for step in range(job.count):
        kinds = []
        for trace in job.traces:
            order = job.in_step(trace, step)
            first = np.flatnonzero(job.point_to_point[order])[:1]
            before = order[: int(first[0])] if len(first) else order
            kinds.append(set(job.rows.name[before[job.compute[before]]].tolist()))
        most = max(kinds, key=len)
        found += any(2 * len(most & kind) < len(most) for kind in kinds)
    return 2 * found > job.count
