"""Ranks that have more to do in turns (pure)."""

from __future__ import annotations

import numpy as np

from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import MIN_LONGER, MIN_REGULAR


def work_in_turns(job: Job) -> Candidate | None:
    """Ranks that have more to do in turns; None: one rank has, or mostly has."""
    if job.count < 2:
        return None
    work = np.array([
        [float(job.duration[job.in_step(t, s)].sum()) for t in job.traces] for s in range(job.count)
    ])  # fmt: skip
    longest = work.argmax(axis=1)
    excess = work.max(axis=1) / np.maximum(work.min(axis=1), 1) - 1
    most = np.zeros(len(job.traces))
    np.maximum.at(most, longest, excess)
    first, second = np.sort(most)[[-1, -2]] if len(most) > 1 else (0.0, 0.0)
    in_each = len(set(longest.tolist())) > 1 and bool((excess >= MIN_LONGER).all())
    if not in_each and second < max(MIN_LONGER, MIN_REGULAR * first):
        return None
    mean = work.mean(axis=1, keepdims=True)
    scale = np.ones(len(job.rows))
    for column, trace in enumerate(job.traces):
        for step in range(job.count):
            rows = job.in_step(trace, step)
            scale[rows] = mean[step] / work[step, column]
    return Candidate(
        "uneven_work", (), "kernels",
        Evidence("turns", ms=float((work.max(axis=1) - mean[:, 0]).mean()) / 1e6,
                 count=float(excess.mean())),
        changes=(Change(duration=scale),), counted=True,
    )  # fmt: skip
