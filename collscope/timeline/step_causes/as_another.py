"""What a rank's work would take if it were as another's (pure)."""

from __future__ import annotations

import numpy as np

from collscope.timeline.step_causes.beside import pairs, unpaired_rows
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Change, Floats


def as_there(
    job: Job,
    trace: int,
    other: int,
    alone: Floats,
    *,
    unpaired: bool,
    some: tuple[int, ...] = (),
) -> Floats:
    """(rows,) what a rank's kernels would take of their time if they lasted as another's.

    unpaired  other kernels at the same place do the same work, on more of it
    some      in these steps; empty: in all
    """
    own, partner = pairs(job, trace, other, some)
    scale = np.ones(len(job.rows))
    scale[own] = np.where(alone[own] > 0, alone[partner] / np.maximum(alone[own], 1), 1)
    if unpaired:
        more, less = unpaired_rows(job, trace, other, some), unpaired_rows(job, other, trace, some)
        ours, theirs = float(alone[more].sum()), float(alone[less].sum())
        if ours > theirs:
            scale[more] = theirs / ours
    return scale


def with_transfers(job: Job, trace: int, other: int) -> tuple[Change, ...]:
    """The same with transfers, which a slow GPU makes longer, as the shortest of their class."""
    calls, transfer = job.calls, job.graph.transfer.astype(np.float64)
    if not len(calls):
        return ()
    class_ = calls.class_[calls.call_of_part]
    least = np.full(len(calls.classes), np.inf)
    np.minimum.at(least, class_, transfer)
    kept = np.where(transfer > 0, least[class_] / np.maximum(transfer, 1), 1.0)
    alone = job.contention[0][0]
    scale = as_there(job, trace, other, alone, unpaired=False)
    return (Change(duration=scale, transfer=np.clip(kept, 0, 1)),)


def shared_out(
    job: Job, trace: int, other: int, alone: Floats, some: tuple[int, ...] = ()
) -> Change:
    """What a rank has more to do than another, shared out to all of them."""
    scale = as_there(job, trace, other, alone, unpaired=True, some=some)
    part = 1 / len(job.traces)
    more = np.where(job.rows.trace == trace, alone * (1 - scale), 0.0) * part  # for each rank
    scale = 1 - (1 - scale) * (1 - part)
    for to in job.traces:
        if to == trace:
            continue
        own, partner = pairs(job, trace, to, some)
        scale[partner] += more[own] / np.maximum(alone[partner], 1)
        left, takes = unpaired_rows(job, trace, to, some), unpaired_rows(job, to, trace, some)
        scale[takes] += float(more[left].sum()) / max(1.0, float(alone[takes].sum()))
    return Change(duration=scale)
