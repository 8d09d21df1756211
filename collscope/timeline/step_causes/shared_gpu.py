"""A GPU that another process uses, too (pure)."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from collscope.timeline.queued_idle import queued_idle
from collscope.timeline.step_causes.as_another import as_there, with_transfers
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence, Floats
from collscope.timeline.step_causes.tolerances import MIN_MOVING, MIN_TURNS
from collscope.timeline.tolerances import MAX_QUEUED_IDLE_NS


def taken_by_others(job: Job, trace: int, other: int) -> Floats:
    """(rows,) ns before rows of a rank in which its GPU runs nothing that was launched, but what
    another process launched.

    Such a process takes its turns at any place. Where rows of the trace are missing or too short,
    the GPU seems idle at the same place of most steps, or of every rank, or beside rows that
    another rank has.
    """
    idle = np.zeros(len(job.rows))
    for of in (trace, other):
        rows = job.rows.of(of)
        idle[rows] = queued_idle(job.rows.start[rows], job.rows.end[rows], job.rows.launch[rows])
    idle[(idle <= MAX_QUEUED_IDLE_NS) | (job.step_of_row < 0)] = 0.0
    own, place = job.beside_last(trace)
    known = place >= 0
    at_place = np.bincount(place[known & (idle[own] > 0)], minlength=len(job.rows))
    moves = np.zeros(len(job.rows), dtype=bool)
    moves[own[known]] = 2 * at_place[place[known]] <= job.count
    own, partner = job.beside(trace, other)
    complete = np.append(False, (partner[1:] >= 0) & (partner[:-1] >= 0))
    alone = np.zeros(len(job.rows), dtype=bool)
    alone[own[complete]] = idle[partner[complete]] == 0
    found = np.where(moves & alone, idle, 0.0)
    all_idle = float(idle[job.rows.of(trace)].sum())
    count = np.bincount(job.step_of_row[found > 0], minlength=job.count)
    often = count.min() >= 1 and count.mean() >= MIN_TURNS
    return found if often and found.sum() > MIN_MOVING * all_idle else np.zeros(len(job.rows))


def shared_gpu(job: Job, trace: int, other: int, taken: Floats) -> Candidate:
    """A rank whose GPU another process uses, too: it waits for its turn, and lasts longer."""
    inside = (taken > 0) & (job.step_of_row >= 0)
    own = [as_there(job, trace, other, alone, unpaired=False) for alone, _ in job.contention]
    calls = [replace(change, prompt=taken > 0) for change in with_transfers(job, trace, other)]
    return Candidate(
        "slow_gpu", (job.rows.ranks[trace],), "kernels",
        Evidence("taken", count=float(inside.sum()) / job.count, usual=float(taken.max()) / 1e6,
                 ms=float(taken.sum()) / job.count / 1e6),
        changes=tuple(Change(duration=scale, prompt=taken > 0) for scale in own),
        others=tuple(calls), counted=True, exact=True, direct=True,
    )  # fmt: skip
