"""Lateness that a rank inherits from another one."""

from __future__ import annotations

import numpy as np
import pytest
from trace_builder import US, Job

from collscope.timeline.analyse import analyse
from collscope.timeline.late_chain import inherited_lateness


def test_a_rank_that_waited_in_another_group_is_no_first_cause() -> None:
    """Tensor x data parallel: rank 2 computes 50 us longer, and rank 3 waits for it.

    By hand, each of 10 steps: rank 2 is 50 us late to (2, 3) and to (0, 2), rank 3 is 50 us late
    to (1, 3), because it waited for rank 2. What it waited before a group's first call is not known
    to belong to it: those 50 us stay with rank 3.
    """
    job = Job(4, jitter_ns=0)
    for _ in range(10):
        for rank in range(4):
            job.compute(rank, (150 if rank == 2 else 100) * US)
        for ranks in ((0, 1), (2, 3), (0, 2), (1, 3)):
            job.collective(ranks, 20 * US)
    timeline = analyse(job.traces())
    calls, times = timeline.calls, timeline.times
    late = (times.last >= 0) & (times.lateness > 1 * US)
    own = np.bincount(times.last[late], weights=times.lateness[late], minlength=4)
    assert (own / US).tolist() == pytest.approx([0, 0, 1000, 500], abs=5)
    found = inherited_lateness(calls, times, timeline.exposed, late, 4)
    assert (found.caused / US).tolist() == pytest.approx([0, 0, 1450, 50], abs=5)
    assert (found.inherited / US).tolist() == pytest.approx([0, 0, 0, 450], abs=5)
    assert found.first.tolist() == [-1, -1, -1, 2]
