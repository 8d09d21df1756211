"""The causes of a traced job and what they cost, the dearest first (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.timeline.analyse import Timeline
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.step_causes.collectives import Facts, pipeline_bubble, slow_settings
from collscope.timeline.step_causes.hosts import common_stalls, late_hosts
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.marks import marks_of
from collscope.timeline.step_causes.periodic import long_steps
from collscope.timeline.step_causes.records import (
    Candidate,
    Cause,
    CauseSpan,
    Change,
    Cost,
    Diagnosis,
)
from collscope.timeline.step_causes.tolerances import (
    MIN_CAUSE_COST,
    MIN_LATENESS_EACH_STEP,
    MOST_CAUSES,
)
from collscope.timeline.step_causes.waits import (
    blocking_calls,
    blocking_launches,
    polling_waits,
    slow_copies,
    small_calls,
)
from collscope.timeline.step_causes.without import NOTHING, Player, both
from collscope.timeline.step_causes.work import extra_work, longer_kernels
from collscope.timeline.tolerances import MIN_STEP_REST, STARTS

Floats = npt.NDArray[np.float64]


def diagnose(
    timeline: Timeline,
    facts: Facts,
    *,
    steps: int | None = None,
    step_ns: float | None = None,
) -> tuple[Diagnosis, RecordedJob]:
    """Name what makes the steps long, and the job as its steps were found.

    steps    in each trace, as given
    step_ns  the step without the profiler, where it was measured
    """
    recorded = timeline.recorded(steps, uneven=True)
    if not recorded.step_ns or recorded.steps.source == "window" or not recorded.steps.count.max():
        return Diagnosis((), None, None, 0, step_ns is None), recorded
    job = Job(recorded, timeline.host)
    player = Player(job, step_ns)
    found: list[Cause] = []
    long = long_steps(job)
    marks: list[tuple[CauseSpan, ...]] = []
    if long is not None:
        found.append(long)
        marks.append(())
    gone = NOTHING
    left = list(_candidates(job, facts))
    while left and len(found) < MOST_CAUSES:
        costs = [(c, _cost(job, player, c, gone)) for c in left]
        standing = [(c, cost) for c, cost in costs if cost is not None]
        if not standing:
            break
        candidate, (cost, certain) = max(standing, key=lambda pair: pair[1][0].value)
        found.append(
            Cause(
                candidate.cause, candidate.certain and certain and job.count > 1 and job.whole_job,
                candidate.ranks, candidate.where,
                cost, candidate.evidence,
            )
        )  # fmt: skip
        marks.append(marks_of(job, candidate.changes[0]) if candidate.changes else ())
        left = [c for c in left if c is not candidate]
        if not candidate.changes:
            break
        gone = both(gone, candidate.changes[0])
    lengths = [float(player.base(k).mean()) for k in range(len(player.readings))]
    ends = min(lengths), max(lengths)
    diagnosis = Diagnosis(
        tuple(found), recorded.step_ns, ends, job.count, step_ns is None, tuple(marks)
    )
    return diagnosis, recorded


def _candidates(job: Job, facts: Facts) -> Iterator[Candidate]:
    for find in (
        late_hosts, common_stalls, extra_work, longer_kernels, blocking_calls, blocking_launches,
        polling_waits, small_calls, slow_copies, pipeline_bubble,
    ):  # fmt: skip
        yield from find(job)
    yield from slow_settings(job, facts)


def _cost(job: Job, player: Player, candidate: Candidate, gone: Change) -> tuple[Cost, bool] | None:
    """What a cause costs beside those that are gone already; None where it does not stand out.

    And whether it does by every reading of the recording. Where one of them hides it, it may stand
    out as recorded, if it is a host's, and else where the hosts are as fast as they may be.
    """
    step = float(np.median([player.base(k)[job.used].mean() for k in range(len(player.readings))]))
    cost = _saved(job, player, candidate, gone)
    # A host that is late makes the steps differ by that, so what is left counts; and what it does
    # now and then is no cause of every step.
    recurs = not candidate.recorded or cost.least > MIN_LATENESS_EACH_STEP * min(cost.plain)
    scatter = cost.scatter if candidate.recorded or candidate.counted else player.scatter
    noise = float(np.hypot(player.scatter / np.sqrt(job.used.sum()), STARTS * step))
    least = max(MIN_CAUSE_COST * step, scatter, candidate.between_gpus * step)
    low, high = min(cost.all), max(cost.all)
    sure = recurs and low - noise > least
    shown = max(cost.plain) if candidate.direct else min(cost.plain)
    if not sure and (gone is not NOTHING or not recurs or shown - noise <= least):
        return None
    value = float(np.median(cost.all if sure else cost.plain))
    noise = float(np.hypot(noise, STARTS * step))  # a cost is the difference of two starts
    return Cost(value / 1e6, max(0.0, low - noise) / 1e6, (high + noise) / 1e6), sure


def _deviation(lengths: Floats) -> float:
    """Standard deviation of steps; 0 of a single one."""
    return float(lengths.std(ddof=1)) if len(lengths) > 1 else 0.0


class _Saved(msgspec.Struct):
    """What a step is shorter by without a cause; ns.

    all      by every reading
    plain    by those that show it best
    least    of one step, as recorded
    scatter  deviation of the steps without it, the median of the readings
    """

    all: list[float]
    plain: list[float]
    least: float
    scatter: float


def _saved(job: Job, player: Player, candidate: Candidate, gone: Change) -> _Saved:
    if candidate.fixed is not None:
        ends = list(candidate.fixed)
        return _Saved(ends, ends, min(ends), _deviation(job.lengths[job.used]))
    paces = player.paces if candidate.recorded else player.gpu_paces or player.paces
    pace = max(paces) if candidate.recorded else min(paces)
    found, plain, scatter, least = [], [], [], np.inf
    used = job.used
    for k, reading in enumerate(player.readings):
        base = player.base(k) if gone is NOTHING else player.left(gone, k)
        own = (
            candidate.changes[min(reading.kernels, len(candidate.changes) - 1)],
            *candidate.others,
        )
        for change in own:
            left = player.left(both(gone, change), k)[used]
            mean, rest = float((base[used] - left).mean()), float(left.mean())
            if candidate.recorded and gone is NOTHING:
                # Without the profiler the other hosts may be as fast as usual, and this one not.
                if reading.pace == player.usual:
                    found.append(max(0.0, (player.given or float(job.lengths[used].mean())) - rest))
                if (
                    player.given
                    and abs(float(base[used].mean()) / player.given - 1) > MIN_STEP_REST
                ):
                    mean = max(0.0, player.given - rest)
            if reading.pace in paces:
                found.append(mean)
                scatter.append(_deviation(left))
            if candidate.irregular and not player.given:
                found.append(mean * reading.pace)
            if reading.pace == pace:
                plain.append(mean)
                least = min(least, float((base[used] - left).min()))
    return _Saved(found, plain, least, float(np.median(scatter)))
