"""Hosts that hold their GPUs up: one that is later than the others, what holds up all (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.pauses import Pauses, at_one_place, paused_in_some
from collscope.timeline.step_causes.polls import may_be_asked_for
from collscope.timeline.step_causes.records import Candidate, Change, Evidence, Floats
from collscope.timeline.step_causes.tolerances import MIN_RECURRENCES, MIN_REGULAR


def late_hosts(job: Job) -> Iterator[Candidate]:
    """Ranks whose host takes far longer than another's between the same two launches."""
    found, paused = [], []
    for trace in job.traces:
        other = job.like(trace)
        later = None if other is None else against(job, trace, other)
        if other is None or later is None:
            continue
        # What it loses call by call the profiler may have made.
        stalls = np.where(np.abs(later) > job.stretched, later, 0.0)
        pauses = paused_in_some(job, trace, other, stalls)
        if pauses is not None:
            paused.append((pauses, other))
            stalls = stalls - pauses.ns
        found.append((trace, other, stalls))
    turns = _in_turns(job, [pauses for pauses, _ in paused])
    if turns is not None:
        yield turns
    for pauses, other in paused if turns is None else ():
        yield Candidate(
            "periodic", (job.rows.ranks[pauses.trace],), "launch",
            replace(gaps(job, pauses.ns), kind="pauses", detail=str(job.rows.ranks[other]),
                    count=float(len(pauses.steps)), usual=float(job.used.sum()),
                    ms=float(pauses.ns.sum()) / len(pauses.steps) / 1e6),
            changes=(Change(host_ns=pauses.ns),), recorded=True, exact=True, some=pauses.steps,
        )  # fmt: skip
    for trace, other, stalls in found:
        if stalls.sum() > 0:
            yield Candidate(
                "late_host", (job.rows.ranks[trace],), "launch",
                replace(gaps(job, stalls), detail=str(job.rows.ranks[other])),
                changes=(Change(host_ns=stalls),), recorded=True, at_power_cap=True,
                certain=not may_be_asked_for(job, stalls),
                irregular=_irregular(job, trace, stalls), exact=_every_step(job, stalls),
            )  # fmt: skip


def _in_turns(job: Job, paused: list[Pauses]) -> Candidate | None:
    """Hosts that pause in turns, at one place of every step; None: a step has no pause, or two."""
    steps = sorted(step for pauses in paused for step in pauses.steps)
    at_one = all(at_one_place(job, paused[0], pauses) for pauses in paused)
    if len(paused) < MIN_RECURRENCES or steps != np.flatnonzero(job.used).tolist() or not at_one:
        return None
    found = np.sum([pauses.ns for pauses in paused], axis=0)
    ranks = sorted(job.rows.ranks[pauses.trace] for pauses in paused)
    return Candidate(
        "late_host", (), "launch",
        replace(gaps(job, found), kind="pauses_in_turns", count=float(len(steps)),
                ms=float(found.sum()) / len(steps) / 1e6, detail=", ".join(map(str, ranks))),
        changes=(Change(host_ns=found),), recorded=True, at_power_cap=True, exact=True, turns=True,
        certain=not may_be_asked_for(job, found),
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


def _every_step(job: Job, stalls: Floats) -> bool:
    """Whether hosts lose most of that time in pauses at the same places of every step, and about
    as much in each step.

    Where the calls of a host are not known, it may wait for its GPU there.
    """
    if job.counted < MIN_RECURRENCES or any(job.host[t] is None for t in job.traces):
        return False
    since = job.count - job.counted
    spent = np.zeros(job.counted)
    for trace in job.traces:
        own, place = job.beside_last(trace)
        known = (place >= 0) & (job.step_of_row[own] >= since) & (stalls[own] > job.stall)
        own, place = own[known], place[known]
        held = np.bincount(place, minlength=len(job.rows))
        rows = own[held[place] >= job.counted]
        spent += np.bincount(job.step_of_row[rows] - since, stalls[rows], job.counted)
    lost = float(stalls[job.step_of_row >= since].sum())
    mean = float(spent.mean())
    return spent.sum() > MIN_REGULAR * lost and bool(spent.min() > MIN_REGULAR * mean)


def against(job: Job, trace: int, other: int) -> Floats | None:
    """(rows,) ns that a host takes longer than another one before each launch; None: not known.

    Of rows without a partner nothing. An interval ends with a launch and begins with the one before
    it: both must be partners. What a launch in it waits longer than the other one for a place in
    the queue of its GPU is not its host's.
    """
    found = np.zeros(len(job.rows))
    own, partner, at = job.partners(trace, other)
    follows = np.append(False, (np.diff(at) == 1) & (partner[1:] >= 0) & (partner[:-1] >= 0))
    # The first row of the first step follows what was launched before that step.
    follows[:1] = partner[:1] >= 0
    if not follows.any():
        return None
    longer, theirs = own[follows], partner[follows]
    call, queued = job.before_next(job.call_ns), job.queued
    found[longer] = (
        job.interval[longer] - np.maximum(queued[longer] - call[theirs], 0.0)
        - job.interval[theirs] + np.maximum(queued[theirs] - call[longer], 0.0)
    )  # fmt: skip
    return found


def common_stalls(job: Job) -> Iterator[Candidate]:
    """What every rank's host spends at one place of every step without a launch."""
    if job.count < MIN_RECURRENCES or not job.whole_job:
        return
    found, alone = np.zeros(len(job.rows)), job.interval - job.queued
    for trace in job.traces:
        own, place = job.beside_last(trace)
        own, place = own[place >= 0], place[place >= 0]
        held = np.bincount(place[alone[own] > job.stall], minlength=len(job.rows))
        rows = own[held[place] >= max(1, job.counted)]
        found[rows] = np.maximum(alone[rows] - job.usual_interval, 0)
    lost = {t: float(found[job.rows.of(t)].sum()) for t in job.traces}
    least = min(lost.values())
    if not least:
        return
    for trace in job.traces:  # what one host loses more than another is not common
        found[job.rows.of(trace)] *= least / lost[trace]
    yield Candidate(
        "late_host", (), "launch", gaps(job, found, len(job.traces)),
        changes=(Change(host_ns=found),), recorded=True, at_power_cap=True,
        certain=not may_be_asked_for(job, found), exact=_every_step(job, found),
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
