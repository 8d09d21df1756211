"""Hosts that hold their GPUs up: one that is later than the others, stalls of all (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import MIN_RECURRENCES, MIN_REGULAR

Floats = npt.NDArray[np.float64]


def late_hosts(job: Job) -> Iterator[Candidate]:
    """Ranks whose host takes far longer than another's between the same two launches."""
    for trace in job.traces:
        other = job.like(trace)
        if other is None:
            continue
        later = against(job, trace, other)
        if later is None:
            continue
        # What it loses call by call the profiler may have made.
        stalls = np.where(np.abs(later) > job.stretched, later, 0.0)
        if stalls.sum() > 0:
            yield Candidate(
                "late_host", (job.rows.ranks[trace],), "launch",
                replace(gaps(job, stalls), detail=str(job.rows.ranks[other])),
                changes=(Change(host_ns=stalls),), recorded=True, at_power_cap=True,
                irregular=_irregular(job, trace, stalls),
            )  # fmt: skip


def _irregular(job: Job, trace: int, stalls: Floats) -> bool:
    """Whether a host is held up at other places in every step."""
    if job.counted < 2:
        return False
    own, partner = job.beside_last(trace)
    known = job.step_of_row[own] >= job.count - job.counted
    own, partner = own[known], partner[known]
    stalled = float(stalls[own].sum())
    own, partner = own[partner >= 0], partner[partner >= 0]
    at_place = np.bincount(partner[stalls[own] > 0], minlength=len(job.rows))
    recurring = float(stalls[own[at_place[partner] >= job.counted]].sum())
    return recurring < MIN_REGULAR * stalled


def against(job: Job, trace: int, other: int) -> Floats | None:
    """(rows,) ns that a host takes longer than another one before each launch; None: not known.

    Of rows without a partner nothing. An interval ends with a launch and begins with the one before
    it: both must be partners.
    """
    found = np.zeros(len(job.rows))
    own, partner, at = job.partners(trace, other)
    follows = np.append(False, (np.diff(at) == 1) & (partner[1:] >= 0) & (partner[:-1] >= 0))
    # The first row of the first step follows what was launched before that step.
    follows[:1] = partner[:1] >= 0
    if not follows.any():
        return None
    longer, theirs = own[follows], partner[follows]
    found[longer] = job.interval[longer] - job.interval[theirs]
    return found


def common_stalls(job: Job) -> Iterator[Candidate]:
    """What every rank's host spends at one place of every step without a launch."""
    if job.count < MIN_RECURRENCES or not job.whole_job:
        return
    found = np.zeros(len(job.rows))
    for trace in job.traces:
        own, place = job.beside_last(trace)
        own, place = own[place >= 0], place[place >= 0]
        held = np.bincount(place[job.interval[own] > job.stall], minlength=len(job.rows))
        rows = own[held[place] >= max(1, job.counted)]
        found[rows] = np.maximum(job.interval[rows] - job.usual_interval, 0)
    lost = {t: float(found[job.rows.of(t)].sum()) for t in job.traces}
    least = min(lost.values())
    if not least:
        return
    for trace in job.traces:  # what one host loses more than another is not common
        found[job.rows.of(trace)] *= least / lost[trace]
    yield Candidate(
        "late_host", (), "launch", gaps(job, found, len(job.traces)),
        changes=(Change(host_ns=found),), recorded=True, at_power_cap=True,
    )  # fmt: skip


def gaps(job: Job, later: Floats, ranks: int = 1) -> Evidence:
    """Where hosts lose the most time, and how much in a step of one rank."""
    most = int(later.argmax())
    order = job.launched(int(job.rows.trace[most]))
    at = int(np.flatnonzero(order == most)[0])
    counted = max(1, job.counted) * ranks
    inside = job.step_of_row >= job.count - job.counted
    return Evidence(
        "host_gaps", count=float((later[inside] > job.stretched).sum()) / counted,
        ms=float(later[inside].sum()) / counted / 1e6,
        after=job.name(int(order[at - 1])) if at else "", before=job.name(most),
        usual=float(later[most]) / 1e6,
    )  # fmt: skip
