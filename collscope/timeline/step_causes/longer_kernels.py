"""The same kernels that take a rank longer than another (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from math import hypot

import numpy as np

from collscope.timeline.step_causes.as_another import as_there, shared_out, with_transfers
from collscope.timeline.step_causes.beside import (
    in_steps,
    pairs,
    some_steps,
    unpaired_rows,
    which_steps,
)
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.shared_gpu import shared_gpu, taken_by_others
from collscope.timeline.step_causes.stages import stages
from collscope.timeline.step_causes.tolerances import MIN_CAUSE_COST, MIN_LONGER
from collscope.timeline.step_causes.turns import work_in_turns
from collscope.timeline.step_causes.uneven_work import (
    longer_alike,
    longer_at_some_places,
    longer_by_clock,
    moves_as_much,
    only_longer,
    recurs_at_places,
    runs_other_kernels,
)
from collscope.timeline.tolerances import STARTS


def longer_kernels(job: Job) -> Iterator[Candidate]:
    """Ranks on which the same kernels take longer than on another, and what replaces some of them.

    More work makes a kernel longer by as much in every step, and those that only move data, too.
    What shares its GPU, or slows that down, makes it longer now and then, or those alone that need
    the arithmetic units.
    """
    if stages(job) or any(job.like(t) is None for t in job.traces):
        return
    turns = work_in_turns(job)
    if turns is not None:
        yield turns
        return
    for trace in job.traces:
        other = job.like(trace)
        assert other is not None
        own, partner = pairs(job, trace, other)
        longer, theirs = job.duration[own], job.duration[partner]
        taken = taken_by_others(job, trace, other)
        if taken.sum() > MIN_CAUSE_COST * job.lengths.sum():
            yield shared_gpu(job, trace, other, taken)
            continue
        in_some = _longer_in_some(job, trace, other)
        if in_some is not None:
            yield in_some
            continue
        if not len(own) or longer.sum() <= theirs.sum():
            continue
        kinds, number = np.unique(job.rows.name[own], return_inverse=True)
        a, b = (np.bincount(number, v, minlength=len(kinds)) for v in (longer, theirs))
        most = int((a - b).argmax())
        recurs = all(recurs_at_places(job, own, partner, alone) for alone, _ in job.contention)
        replaced = all(runs_other_kernels(job, trace, other, alone) for alone, _ in job.contention)
        uneven = replaced or (
            recurs and all(longer_alike(job, own, partner, alone) for alone, _ in job.contention)
        )
        if not uneven and not only_longer(longer - theirs):
            continue
        uneven |= recurs and all(
            longer_at_some_places(job, own, partner, alone) for alone, _ in job.contention
        )
        if uneven:
            slower_clock = not replaced and any(
                moves_as_much(job, own, partner, alone) for alone, _ in job.contention
            )
            certain = recurs and not slower_clock
        else:
            certain = not recurs or longer_by_clock(job, own, longer - theirs)
        others = () if uneven else with_transfers(job, trace, other)
        # Ranks exchange what they work on: of what one has more, another may have less.
        if uneven and job.exchange[job.step_of_row >= 0].any():
            others = tuple(shared_out(job, trace, other, alone) for alone, _ in job.contention)
        yield Candidate(
            "uneven_work" if uneven else "slow_gpu", (job.rows.ranks[trace],), "kernels",
            Evidence("longer_kernels", job.rows.names[int(kinds[most])],
                     count=float((number == most).sum()) / job.count,
                     ms=float((longer - theirs).sum()) / job.count / 1e6,
                     usual=float(a[most] / max(b[most], 1))),
            changes=tuple(
                Change(duration=as_there(job, trace, other, alone, unpaired=uneven))
                for alone, _ in job.contention
            ),
            others=others, between_gpus=STARTS,
            certain=certain, counted=not uneven,
        )  # fmt: skip


def _longer_in_some(job: Job, trace: int, other: int) -> Candidate | None:
    """A rank with more of the same work in some steps; None: it has none, or in all."""
    known = set()
    for alone, _ in job.contention:
        own, partner = pairs(job, trace, other)
        more, less = unpaired_rows(job, trace, other), unpaired_rows(job, other, trace)
        theirs = in_steps(job, partner, alone) + in_steps(job, less, alone)
        spent = in_steps(job, own, alone) + in_steps(job, more, alone) - theirs
        some = some_steps(job, spent, hypot(STARTS, STARTS) * theirs)
        part = list(some)
        known.add(some if spent[part].sum() > MIN_LONGER * theirs[part].sum() else ())
    some = known.pop()
    if known or not some:
        return None
    own, partner = pairs(job, trace, other, some)
    if not len(own):
        return None
    uneven = all(
        runs_other_kernels(job, trace, other, alone, some) for alone, _ in job.contention
    ) or all(longer_alike(job, own, partner, alone) for alone, _ in job.contention)
    if not uneven:
        return None
    others: tuple[Change, ...] = ()
    if job.exchange[job.step_of_row >= 0].any():
        others = tuple(shared_out(job, trace, other, alone, some) for alone, _ in job.contention)
    longer, theirs = job.duration[own], job.duration[partner]
    kinds, number = np.unique(job.rows.name[own], return_inverse=True)
    a, b = (np.bincount(number, v, minlength=len(kinds)) for v in (longer, theirs))
    most = int((a - b).argmax())
    return Candidate(
        "uneven_work", (job.rows.ranks[trace],), "kernels",
        Evidence("longer_kernels", job.rows.names[int(kinds[most])],
                 count=float((number == most).sum()) / len(some),
                 ms=float((longer - theirs).sum()) / len(some) / 1e6,
                 usual=float(a[most] / max(b[most], 1)), detail=which_steps(job, some)),
        changes=tuple(
            Change(duration=as_there(job, trace, other, alone, unpaired=True, some=some))
            for alone, _ in job.contention
        ),
        others=others, counted=True, some=some,
    )  # fmt: skip
