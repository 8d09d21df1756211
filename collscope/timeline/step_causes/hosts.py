"""Hosts that hold their GPUs up: one that is later than the others, what holds up all (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.model import Datatype, Op
from collscope.model.trace import Ints, Kind
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.polls import may_be_asked_for
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import (
    GRADIENT_NS,
    GRADIENTS_PER_LAUNCH,
    MIN_RECURRENCES,
    MIN_REGULAR,
)

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class _Pauses(msgspec.Struct, frozen=True):
    """What the host of one rank pauses for in some steps only."""

    trace: int
    ns: Floats  # (rows,)
    steps: tuple[int, ...]
    place: int  # row of the last step; as many as there are rows: where a step begins


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
        pauses = _paused_in_some(job, trace, other, stalls)
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


def _in_turns(job: Job, paused: list[_Pauses]) -> Candidate | None:
    """Hosts that pause in turns, at one place of every step; None: a step has no pause, or two."""
    steps = sorted(step for pauses in paused for step in pauses.steps)
    at_one = all(_at_one_place(job, paused[0], pauses) for pauses in paused)
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


def _at_one_place(job: Job, one: _Pauses, other: _Pauses) -> bool:
    """Whether two ranks pause before the same launch."""
    if one.place == other.place:  # where a step begins
        return True
    own, partner = job.beside(one.trace, other.trace)
    return bool((partner[own == one.place] == other.place).any())


def _paused_in_some(job: Job, trace: int, other: int, stalls: Floats) -> _Pauses | None:
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
            return _Pauses(trace, pauses, tuple(np.flatnonzero(has).tolist()), at)
    return None


def _begins(job: Job, trace: int) -> Bools:
    """(rows,) those of a rank up to the first kernel of each step that computes."""
    found = np.zeros(len(job.rows), dtype=bool)
    for step in range(job.count):
        rows = job.in_step(trace, step)
        first = np.flatnonzero(job.compute[rows])[:1]
        found[rows[: int(first.sum()) + 1]] = True
    return found


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


def unused_parameters(job: Job) -> Iterator[Candidate]:
    """What DistributedDataParallel's search for unused parameters takes every host.

    After the forward pass it follows the graph of the backward pass and copies the output; in the
    backward pass it marks each gradient; at the end it copies the marks, which are Int32, to the
    GPU and reduces them: find_unused_parameters=True, PyTorch 2.11.
    """
    found, backward = np.zeros(len(job.rows)), np.zeros(len(job.rows))
    count = job.count * max(1, len(job.traces))
    marked = 0
    for trace in job.traces:
        for step in range(job.count):
            rows = job.in_step(trace, step)
            place = _copied_marks(job, rows)
            clone = place is not None and _copy_before(job, rows[:place])
            if place is None or not clone:
                return
            alone = rows[[clone, place, place + 1]]
            found[alone] = job.interval[alone]
            entry = job.rows.entries[job.rows.entry[rows[place + 1]]]
            marked += entry.in_count or 0
            between = rows[clone + 1 : place]
            gradients = entry.in_count or GRADIENTS_PER_LAUNCH * len(between)
            each = gradients * GRADIENT_NS / max(1, len(between))
            backward[between] = np.minimum(each, job.interval[between])
    changes = [Change(host_ns=found + part * backward) for part in (1.0, 0.0, 2.0)]
    spent = float((found + backward)[job.step_of_row >= 0].sum())
    yield Candidate(
        "host_bound", (), "backward",
        Evidence("unused_parameters", count=marked / count, ms=spent / count / 1e6),
        changes=(changes[0],), others=tuple(changes[1:]), certain=False, exact=True, direct=True,
    )  # fmt: skip


def _copied_marks(job: Job, rows: Ints) -> int | None:
    """Place of a copy to the GPU right before an AllReduce of 32-bit integers; None: there is none.

    rows  of a step in the order of launches
    """
    kinds = (Datatype.INT32, Datatype.UINT32)  # names of kernels show the width alone
    marks = np.array(
        [e.op is Op.ALL_REDUCE and e.datatype in kinds for e in job.rows.entries] + [False]
    )
    for place in np.flatnonzero(marks[job.rows.entry[rows]]).tolist():
        if place and _is_copy(job, int(rows[place - 1]), "htod (pinned"):
            return int(place) - 1
    return None


def _copy_before(job: Job, rows: Ints) -> int:
    """Place of the first copy on the GPU; 0: there is none behind the first row."""
    places = [k for k in range(1, len(rows)) if _is_copy(job, int(rows[k]), "dtod")]
    return places[0] if places else 0


def _is_copy(job: Job, row: int, name: str) -> bool:
    return bool(job.rows.kind[row] == Kind.COPY) and name in job.name(row).lower()


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
