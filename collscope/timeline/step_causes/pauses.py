"""Hosts that pause in some steps only (pure)."""

from __future__ import annotations

import msgspec
import numpy as np

from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Bools, Floats
from collscope.timeline.step_causes.tolerances import MIN_RECURRENCES, MIN_REGULAR


class Pauses(msgspec.Struct, frozen=True):
    """What the host of one rank pauses for in some steps only."""

    trace: int
    ns: Floats  # (rows,)
    steps: tuple[int, ...]
    place: int  # row of the last step; as many as there are rows: where a step begins


def paused_in_some(job: Job, trace: int, other: int, stalls: Floats) -> Pauses | None:
    """Pauses of a host in some steps only.

    None: there is no such pause, or the host loses as much elsewhere. Where the calls of a host are
    not known, it may wait for its GPU. What interrupts a host by chance does so at any place. So a
    pause in two steps must be at one place. A pause in a single step must be where the step
    begins: what a loop does now and then, such as loading data, is mostly between two steps.

    stalls  (rows,) ns that the host takes far longer than the other one
    """
    if job.host[trace] is None or job.host[other] is None:
        return None
    own, place = job.beside_last(trace)
    begin = len(job.rows)  # one place
    place = np.where(_begins(job, trace)[own], begin, place)
    known = job.used[job.step_of_row[own]]
    own, place = own[known], place[known]
    lost = float(np.maximum(stalls[own], 0.0).sum())
    for at in np.unique(place[(stalls[own] > job.stall) & (place >= 0)]).tolist():
        rows = own[(place == at) & (stalls[own] > 0)]
        step = job.step_of_row[rows]
        spent = np.bincount(step, stalls[rows], job.count)
        part = MIN_REGULAR * spent.max()
        has, lacks = spent > max(job.stall, part), job.used & (spent < min(job.stall, part))
        recurs = has.sum() >= MIN_RECURRENCES or at == begin
        if not recurs or not lacks.any() or not (has | lacks)[job.used].all():
            continue
        more = has * (1 - spent[lacks].mean() / np.maximum(spent, 1.0))
        pauses = np.zeros(len(job.rows))
        pauses[rows] = stalls[rows] * more[step]
        if pauses.sum() > MIN_REGULAR * lost:
            return Pauses(trace, pauses, tuple(np.flatnonzero(has).tolist()), at)
    return None


def at_one_place(job: Job, one: Pauses, other: Pauses) -> bool:
    """Whether two ranks pause before the same launch."""
    if one.place == other.place:  # where a step begins
        return True
    own, partner = job.beside(one.trace, other.trace)
    return bool((partner[own == one.place] == other.place).any())


def _begins(job: Job, trace: int) -> Bools:
    """(rows,) those of a rank up to the first kernel of each step that computes."""
    found = np.zeros(len(job.rows), dtype=bool)
    for step in range(job.count):
        rows = job.in_step(trace, step)
        first = np.flatnonzero(job.compute[rows])[:1]
        found[rows[: int(first.sum()) + 1]] = True
    return found
