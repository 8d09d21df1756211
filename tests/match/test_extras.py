"""Traces joined to a run without logs."""

from __future__ import annotations

from trace_builder import COMM, US, Job

from collscope.match.extras import join_extras
from collscope.match.run import match_run
from collscope.match.run_rows import RunRows
from collscope.timeline.analyse import analyse


def test_two_communicators_of_the_same_ranks_and_calls_are_two() -> None:
    """Neither is named; their AllReduces overlap, so that no one communicator holds both."""
    job = Job(2, jitter_ns=0)
    for _ in range(8):
        for rank in range(2):
            job.compute(rank, 100 * US)
        job.collective((0, 1), 160 * US, blocking=False, comm=COMM)
        for rank in range(2):
            job.compute(rank, 20 * US)
            job.comm_free[rank] = 0
        job.collective((0, 1), 160 * US, blocking=False, comm=COMM + 1)
        for rank in range(2):
            job.compute_free[rank] = job.comm_free[rank]
    job.forget_groups()
    timeline = analyse(job.traces())
    matched = match_run(RunRows([]), [], [])
    index = join_extras(matched, [], timeline.rows, timeline.calls, timeline.times.arrival).traced
    assert len(matched.comms) == 2
    assert sorted(index.tolist()) == list(range(16))
