"""Rows of a rank beside those that another runs at the same places (pure)."""

from __future__ import annotations

import numpy as np

from collscope.model.trace import Ints
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Bools, Floats
from collscope.timeline.step_causes.tolerances import MIN_CAUSE_COST, MIN_LONGER, MIN_REGULAR


def unpaired_rows(job: Job, trace: int, other: int, some: tuple[int, ...] = ()) -> Ints:
    """Kernels and copies of a rank's whole steps, or of some, that the other has not."""
    own, partner = job.beside(trace, other)
    rows = own[(partner < 0) & _within(job, own, some)]
    return rows[job.rows.entry[rows] < 0]


def pairs(job: Job, trace: int, other: int, some: tuple[int, ...] = ()) -> tuple[Ints, Ints]:
    """Kernels of a rank's whole steps, or of some, and what another runs at the same places."""
    own, partner = job.beside(trace, other)
    good = (partner >= 0) & job.compute[own] & _within(job, own, some)
    return own[good], partner[good]


def _within(job: Job, rows: Ints, some: tuple[int, ...]) -> Bools:
    """Whether rows are in some of the steps; empty: in any."""
    return np.isin(job.step_of_row[rows], some) if some else np.ones(len(rows), dtype=bool)


def in_steps(job: Job, rows: Ints, ns: Floats) -> Floats:
    """(steps,) what rows take in each whole step."""
    found = np.zeros(job.count)
    np.add.at(found, job.step_of_row[rows], ns[rows])
    return found


def some_steps(job: Job, spent: Floats, between_gpus: Floats | float = 0.0) -> tuple[int, ...]:
    """Whole steps that have work which the others lack; empty: all have it, or it is little.

    spent         (steps,) ns of that work
    between_gpus  (steps,) ns of it that two GPUs may differ by, since the clocks of both vary
    """
    least = np.maximum(MIN_LONGER * spent.max(), between_gpus)
    has, lacks = spent > MIN_REGULAR * spent.max(), spent < least
    matters = spent[has].sum() > MIN_CAUSE_COST * job.lengths.sum()
    known = matters and lacks.any() and bool((has | lacks).all())
    return tuple(np.flatnonzero(has).tolist()) if known else ()


def which_steps(job: Job, some: tuple[int, ...]) -> str:
    """How many steps have it; empty: all."""
    return f"{len(some)} of {job.count}" if some else ""
