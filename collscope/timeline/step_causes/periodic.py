"""Steps that differ from the others: checkpoints, evaluation, collection (pure)."""

from __future__ import annotations

import numpy as np

from collscope.model.trace import Ints
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Cause, Cost, Evidence
from collscope.timeline.step_causes.tolerances import MIN_OWN_WORK, MIN_RECURRENCES
from collscope.timeline.tolerances import STARTS


def long_steps(
    job: Job, step_ns: float | None = None, usual_ns: tuple[float, ...] = ()
) -> Cause | None:
    """Some steps are more than twice as long as the others; None: none is.

    What they are longer by is spread over all steps. One of them does not show how often they
    recur: at most every second step, and at least once in twice as many as were recorded. A mean
    step without the profiler does: it is longer than the usual one by their part.

    step_ns   mean step without the profiler, where it was measured
    usual_ns  usual steps without it, by each reading
    """
    long = np.flatnonzero(job.long)
    if not len(long):
        return None
    usual = float(np.median(job.lengths[~job.long]))
    if len(long) < MIN_RECURRENCES and not _is_explained(job, int(long[0]), usual):
        return None
    more = float((job.lengths[long] - usual).sum())
    least = step_ns * (1 - STARTS) - max(usual_ns) if step_ns is not None else 0.0
    if step_ns is not None and least > 0:
        value, low, high = (
            step_ns - float(np.median(usual_ns)),
            least,
            step_ns * (1 + STARTS) - min(usual_ns),
        )
    else:
        value, low, high = (more / len(long) * part for part in recurrence(long, job.count))
    return Cause(
        "periodic", len(long) > 1, _whose(job, long.tolist(), usual), "steps",
        Cost(value / 1e6, low / 1e6, high / 1e6),
        Evidence("long_steps", _largest(job, long.tolist()), count=float(len(long)),
                 usual=float(job.count), ms=more / len(long) / 1e6),
    )  # fmt: skip


def recurrence(steps: Ints, count: int) -> tuple[float, float, float]:
    """Part of all steps that are as some of the recorded ones: the likely one, least and most.

    Equal distances show it. Else: once in twice as many steps as were recorded, or as recorded.
    """
    between = np.diff(steps)
    if len(between) and between[0] > 1 and (between == between[0]).all():
        return (1 / float(between[0]),) * 3
    n = count + 1  # the trace begins and ends within a step
    return len(steps) / n, len(steps) / (2 * n), len(steps) / count


def _usual_step(job: Job) -> int:
    """The first step that is not long."""
    return int(np.flatnonzero(~job.long)[0])


def _is_explained(job: Job, step: int, usual: float) -> bool:
    """Whether something is done in a long step that makes it long, on one rank at least.

    Rows that a usual step lacks, or that last longer, or a host that stops. Without any the host
    was slow for a while, which need not come again. What a rank without a trace does is not known.
    """
    if not job.whole_job:
        return True
    like = _usual_step(job)
    lasted = (job.rows.end - job.rows.start).astype(np.float64)
    done = []
    for trace in job.traces:
        pair = job.pair_steps(trace, step, like)
        new, there = pair.partner < 0, np.maximum(pair.partner, 0)
        more = np.where(new, lasted[pair.own], lasted[pair.own] - lasted[there])
        more[~new & (job.rows.entry[pair.own] >= 0)] = 0.0  # they wait for other ranks
        host = job.interval[pair.own]
        stops = np.where(new | (host > job.stall), host, 0.0)
        done.append(float(np.maximum(more, 0.0).sum() + stops.sum()))
    return max(done) > MIN_OWN_WORK * (float(job.lengths[step]) - usual)


def _own_work(job: Job, trace: int, step: int) -> float:
    """ns that a rank's GPU and host spend in a step on what they do not in a usual one, and that
    kernels last longer."""
    like = _usual_step(job)
    pair = job.pair_steps(trace, step, like)
    lasted = np.where(job.rows.entry < 0, job.rows.end - job.rows.start, 0)
    work = float(lasted[pair.own].sum() - lasted[pair.other].sum())
    host = float(job.interval[pair.own].sum() - job.interval[pair.other].sum())
    return max(work, host)


def _whose(job: Job, long: list[int], usual: float) -> tuple[int, ...]:
    """Ranks whose own work makes the steps longer; empty: all, or it is not known which."""
    found = []
    for trace in job.traces:
        more = sum(float(job.lengths[s]) - usual for s in long)
        if sum(_own_work(job, trace, s) for s in long) > MIN_OWN_WORK * more:
            found.append(job.rows.ranks[trace])
    return tuple(sorted(found)) if len(found) < len(job.traces) else ()


def _largest(job: Job, long: list[int]) -> str:
    """What takes the most time of what the long steps alone have; empty: nothing."""
    like = _usual_step(job)
    spent: dict[str, float] = {}
    for trace in job.traces:
        for step in long:
            pair = job.pair_steps(trace, step, like)
            for row in pair.own[pair.partner < 0].tolist():
                if job.rows.entry[row] < 0:
                    lasted = float(job.rows.end[row] - job.rows.start[row])
                    spent[job.name(row)] = spent.get(job.name(row), 0.0) + lasted
    return max(spent, key=spent.__getitem__, default="")
