"""Kernels that a rank has more of than another (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from collscope.model.trace import Ints, Kind
from collscope.timeline.graph import FIRST
from collscope.timeline.overlap import covered, union
from collscope.timeline.step_causes.beside import (
    in_steps,
    pairs,
    some_steps,
    unpaired_rows,
    which_steps,
)
from collscope.timeline.step_causes.copies import pageable_copies
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Bools, Candidate, Change, Evidence, Floats
from collscope.timeline.step_causes.stages import stages
from collscope.timeline.step_causes.tolerances import (
    MAX_REPLACED,
    MIN_ALIKE_COPIES,
    MIN_CAUSE_COST,
    MIN_RECURRENCES,
    MIN_REGULAR,
)
from collscope.timeline.step_causes.turns import work_in_turns
from collscope.timeline.step_causes.waits import inside_steps, usual_call, waits_for


def extra_work(job: Job) -> Iterator[Candidate]:
    """Ranks that run kernels which another rank has not at that place of the step."""
    if stages(job):
        return
    turns, slow = work_in_turns(job) is not None, pageable_copies(job)
    for trace in job.traces:
        other = job.like(trace)
        if other is None:
            continue
        more, less = unpaired_rows(job, trace, other), unpaired_rows(job, other, trace)
        spent = [in_steps(job, rows, job.duration) for rows in (more, less)]
        some = () if turns else some_steps(job, spent[0] - spent[1])
        if some:
            more, less = (rows[np.isin(job.step_of_row[rows], some)] for rows in (more, less))
        else:
            more = more[~slow[more]]  # a cause by themselves
        ours, theirs = float(job.duration[more].sum()), float(job.duration[less].sum())
        if ours <= theirs or not ours:
            continue
        # Other kernels at the same place do the same work: what they take stays.
        scale, host = np.ones(len(job.rows)), np.zeros(len(job.rows))
        scale[more] = theirs / ours
        host[more] = job.interval[more] * (1 - theirs / ours)
        behind, longer = _pauses_behind(job, trace, other, more)
        host[behind] = longer
        name = _longest_kernel(job, more)
        waits = waits_for(job, np.isin(np.arange(len(job.rows)), more))
        steps = some or tuple(range(job.count))
        inside = (job.rows.name == name) & np.isin(job.step_of_row, steps)
        count = [float((inside & (job.rows.trace == t)).sum()) / len(steps) for t in (trace, other)]
        every = bool(some) or _every_step(job, more)
        added = len(less) < MAX_REPLACED * len(more)
        beside = more if added else more[:0]
        late = _held_up(job, trace, beside)
        evidence = Evidence("extra_kernels", job.rows.names[name] if name >= 0 else "",
                            count=count[0], usual=count[1], ms=(ours - theirs) / len(steps) / 1e6,
                            detail=which_steps(job, some))  # fmt: skip
        nodes = inside_steps(job, np.flatnonzero(waits))
        reads = not some and _only_reads(job, trace, more, nodes)
        if reads:
            evidence = Evidence("blocking_calls", usual_call(job, nodes),
                                count=len(nodes) / job.count)  # fmt: skip
        yield Candidate(
            "periodic" if some else "blocking_sync" if reads else "extra_work",
            (job.rows.ranks[trace],), "calls" if reads else "kernels", evidence,
            changes=tuple(
                Change(
                    duration=scale * _beside_extra(job, trace, other, beside, alone),
                    host_ns=host, waits=waits, prompt=late,
                )
                for alone, _ in job.contention
            ),
            counted=True, some=some, exact=added and every, at_power_cap=reads,
        )  # fmt: skip


def _only_reads(job: Job, trace: int, more: Ints, nodes: Ints) -> bool:
    """Whether extra rows only make values that the host waits for: each stands before such a copy,
    and what they last is no cause by itself.

    nodes  waits for extra rows
    """
    if job.duration[more].sum() > MIN_CAUSE_COST * job.lengths.sum():
        return False
    extra = set(more.tolist())
    read = {
        r for r in job.graph.lasted[1:, nodes].ravel().tolist() if job.rows.kind[r] == Kind.COPY
    }
    found, before = 0, False
    for row in reversed(job.launched(trace).tolist()):
        before = row in extra and (before or row in read)
        found += before
    return found >= MIN_ALIKE_COPIES * len(extra)


def _held_up(job: Job, trace: int, more: Ints) -> Bools:
    """(rows,) kernels that wait for no known cause while extra kernels of other streams run.

    A kernel whose blocks take all multiprocessors holds up those of other streams until it is done.
    """
    found = np.zeros(len(job.rows), dtype=bool)
    for rows, extra in _with_other_streams(job, trace, more):
        start = job.rows.start[rows]
        waited = job.graph.unexplained_ns[:, job.graph.start_node[rows] - FIRST].max(axis=0)
        held = covered(*extra, start) - covered(*extra, start - waited)
        found[rows] = held > MIN_REGULAR * waited
    return found


def _beside_extra(job: Job, trace: int, other: int, more: Ints, alone: Floats) -> Floats:
    """(rows,) what a rank's kernels would take of their time without extra kernels beside them.

    As long as on the other rank. But a kernel gets on for all the time in which nothing extra is
    beside it, and needs that time at least.

    alone  (rows,) ns of each with nothing beside it, by one reading
    """
    own, partner = pairs(job, trace, other)
    there = np.zeros(len(job.rows))
    there[own] = alone[partner]
    scale = np.ones(len(job.rows))
    for rows, extra in _with_other_streams(job, trace, more):
        paired = rows[there[rows] > 0]
        start, end = job.rows.start[paired], job.rows.end[paired]
        least = 1 - (covered(*extra, end) - covered(*extra, start)) / np.maximum(end - start, 1)
        as_there = there[paired] / np.maximum(alone[paired], 1)
        scale[paired] = np.clip(as_there, least, 1)
    return scale


def _with_other_streams(
    job: Job, trace: int, more: Ints
) -> Iterator[tuple[Ints, tuple[Ints, Ints]]]:
    """Kernels of each stream of a rank that are not extra ones, and when extra kernels of its other
    streams run: their starts and ends."""
    extra = np.zeros(len(job.rows), dtype=bool)
    extra[more] = job.compute[more]
    own = np.arange(len(job.rows))[job.rows.of(trace)]
    for stream in np.unique(job.rows.stream[own]).tolist():
        on_stream = job.rows.stream[own] == stream
        usual = own[on_stream & ~extra[own] & (job.rows.kind[own] == Kind.KERNEL)]
        others = own[~on_stream & extra[own]]
        others = others[np.argsort(job.rows.start[others], kind="stable")]
        if len(usual) and len(others):
            yield usual, union(job.rows.start[others], job.rows.end[others])


def _every_step(job: Job, rows: Ints) -> bool:
    """Whether rows take about as much time in every step."""
    spent = in_steps(job, rows, job.duration)
    return job.count >= MIN_RECURRENCES and bool(spent.min() > MIN_REGULAR * spent.mean())


def _pauses_behind(job: Job, trace: int, other: int, more: Ints) -> tuple[Ints, Floats]:
    """Rows right behind extra ones for whose launch the host takes far longer than another's, and
    how much longer: it writes a file, say, of what it has copied."""
    own, partner = job.beside(trace, other)
    follows = np.append(False, np.isin(own[:-1], more)) & (partner >= 0)
    behind, there = own[follows], partner[follows]
    longer = job.interval[behind] - job.interval[there]
    far = longer > job.stretched
    return behind[far], longer[far]


def _longest_kernel(job: Job, rows: Ints) -> int:
    """Name (its number) of the kernel that takes the most time of some rows."""
    spent: Counter[int] = Counter()
    for row in rows.tolist():
        spent[int(job.rows.name[row])] += int(job.duration[row])
    return spent.most_common(1)[0][0]
