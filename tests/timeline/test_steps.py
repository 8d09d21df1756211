"""Boundaries of steps: per stream the last row that ends by then."""

from __future__ import annotations

import random

import numpy as np
import pytest
from trace_builder import Job

from collscope.match.rows import gather_rows
from collscope.match.traces import match_calls
from collscope.timeline.clocks import estimate_clocks
from collscope.timeline.steps import Steps, find_steps
from collscope.timeline.waits import call_times


def steps_of(job: Job, given: int) -> tuple[Steps, np.ndarray, np.ndarray, np.ndarray]:
    rows = gather_rows(job.traces())
    calls = match_calls(rows)
    times = call_times(rows, calls, estimate_clocks(rows, calls))
    owner = np.repeat(np.arange(len(rows.ranks)), np.diff(rows.bounds))
    return find_steps(rows, calls, times, given), rows.end, rows.stream, owner


@pytest.mark.parametrize("seed", range(5))
def test_a_boundary_holds_the_last_row_of_each_stream(seed: int) -> None:
    pick = random.Random(seed)
    job = Job(2, seed)
    for _ in range(40):
        for rank in range(2):
            job.compute(rank, pick.randrange(5, 40) * 1000)
        job.collective((0, 1), pick.randrange(5, 60) * 1000, blocking=pick.random() < 0.3)
    steps, end, stream, owner = steps_of(job, pick.randrange(3, 9))
    assert len(steps.bounds) > 6
    for place, boundary in enumerate(np.split(steps.rows, steps.bounds[1:])):
        rank = place % 2
        until = end[boundary].max()
        for which in np.unique(stream[owner == rank]).tolist():
            done = np.flatnonzero((owner == rank) & (stream == which) & (end <= until))
            here = [row for row in boundary.tolist() if stream[row] == which]
            assert here == (
                [max(done.tolist(), key=lambda row: (end[row], row))] if len(done) else []
            )
