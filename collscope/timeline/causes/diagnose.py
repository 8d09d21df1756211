"""The causes of a traced job and what they cost, the dearest first (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collscope.timeline.analyse import Timeline
from collscope.timeline.assumptions import STARTS
from collscope.timeline.causes.collectives import Facts, pipeline_bubble, slow_settings
from collscope.timeline.causes.hosts import common_stalls, late_hosts
from collscope.timeline.causes.job import Job
from collscope.timeline.causes.records import Candidate, Cause, Change, Cost, Diagnosis
from collscope.timeline.causes.waits import (
    blocking_calls,
    blocking_launches,
    slow_copies,
    small_calls,
)
from collscope.timeline.causes.without import NOTHING, Player, both
from collscope.timeline.causes.work import extra_work, longer_kernels
from collscope.timeline.recorded_job import RecordedJob

_MATTERS = 0.01  # of the step: what costs less stands out in no step
_MOST = 3  # causes that are named


def diagnose(
    timeline: Timeline,
    recorded: RecordedJob,
    facts: Facts,
    *,
    step_ns: float | None = None,
) -> Diagnosis:
    """Name what makes the steps long.

    recorded  steps and dependencies of the timeline
    step_ns  the step without the profiler, where it was measured
    """
    if not recorded.step_ns or recorded.steps.source == "window" or not recorded.steps.count.max():
        return Diagnosis((), None, None, 0, step_ns is None)
    job = Job(recorded, timeline.host)
    player = Player(job, step_ns)
    found: list[Cause] = []
    gone = NOTHING
    left = list(_candidates(job, facts))
    while left and len(found) < _MOST:
        costs = [(c, _cost(job, player, c, gone, step_ns)) for c in left]
        standing = [(c, cost) for c, cost in costs if cost is not None]
        if not standing:
            break
        candidate, (cost, certain) = max(standing, key=lambda pair: pair[1][0].value)
        found.append(
            Cause(
                candidate.cause, candidate.certain and certain, candidate.ranks, candidate.where,
                cost, candidate.evidence,
            )
        )  # fmt: skip
        left = [c for c in left if c is not candidate]
        if not candidate.changes:
            break
        gone = both(gone, candidate.changes[0])
    lengths = [float(player.base(k).mean()) for k in range(len(player.readings))]
    return Diagnosis(
        tuple(found), recorded.step_ns, (min(lengths), max(lengths)), job.count, step_ns is None
    )


def _candidates(job: Job, facts: Facts) -> Iterator[Candidate]:
    for find in (
        late_hosts, common_stalls, extra_work, longer_kernels, blocking_calls, blocking_launches,
        small_calls, slow_copies, pipeline_bubble,
    ):  # fmt: skip
        yield from find(job)
    yield from slow_settings(job, facts)


def _cost(
    job: Job, player: Player, candidate: Candidate, gone: Change, step_ns: float | None
) -> tuple[Cost, bool] | None:
    """What a cause costs beside those that are gone already; None where it does not stand out.

    And whether it does by every reading of the recording.
    """
    step = job.recorded.step_ns or 0.0
    ends = np.diff(job.ends, axis=0)[-job.counted :].max(axis=1)
    scatter = float(ends.std(ddof=1)) if len(ends) > 1 else STARTS * step
    # Of several steps the mean is known better than one of them.
    noise = float(np.hypot(scatter / np.sqrt(max(1, len(ends))), STARTS * step))
    if candidate.fixed is not None:
        low, high = candidate.fixed
        saved, recorded = np.array([low, high]), np.array([low, high])
    else:
        means, as_recorded = [], []
        slowest = max(player.paces)
        for k, reading in enumerate(player.readings):
            changes = candidate.changes
            own = (changes[min(reading.kernels, len(changes) - 1)], *candidate.others)
            for change in own:
                steps = player.saved(change, k, gone)[-job.counted :]
                mean = float(steps.mean())
                if step_ns is not None:
                    mean += step_ns - float(player.base(k).mean())
                    mean = max(mean, 0.0)
                means.append(mean)
                if reading.pace == slowest:
                    as_recorded.append(mean)
        saved, recorded = np.array(means), np.array(as_recorded)
    least = max(_MATTERS * step, scatter)
    low, high = float(saved.min()), float(saved.max())
    sure = low - noise > _MATTERS * step and low > scatter
    seen = float(recorded.min()) - noise > _MATTERS * step and float(recorded.min()) > scatter
    if not (sure or (candidate.recorded and seen)):
        return None
    value = float(np.median(saved)) if sure else float(np.median(recorded))
    cost = Cost(value / 1e6, max(0.0, low - noise) / 1e6, (high + noise) / 1e6)
    del least
    return cost, sure
