"""Hosts that ask until a collective is done, without a call that waits (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collscope.model.trace import Ints
from collscope.timeline.causes.host_record import Polls
from collscope.timeline.graph import EVER, FIRST
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence, Floats
from collscope.timeline.step_causes.tolerances import (
    AWAKE_NS,
    MIN_BY_CHANCE,
    MIN_REGULAR,
    MIN_TO_CHANCE,
    MIN_WAITS,
)


def find_polls(job: Job) -> Polls | None:
    """Waits that no call shows, as with TORCH_NCCL_BLOCKING_WAIT; None: hosts show none.

    Hosts go on when a collective is done, again and again. By chance an interval between two
    launches ends so soon after a collective's end as often as such moments fill the step. Or hosts
    ask seldom, but never go on before it is done, or one of some operation.
    """
    if not job.traces:
        return None
    soon = [_soon_after(job, trace) for trace in job.traces]
    if all(len(of) for _, of in soon):
        since, until = (np.concatenate(rows) for rows in zip(*soon, strict=True))
        return Polls(since, until)
    found = [calls for calls, expected in _never_before(job) if expected >= MIN_BY_CHANCE]
    if not found:
        return None
    calls = np.unique(np.concatenate(found))
    return Polls(calls, calls)


def polling_waits(job: Job) -> Iterator[Candidate]:
    """Hosts that ask until a collective is done: without that they go on at once.

    Between a collective's end and the next launch hosts work, and pause until they ask again. They
    work for a usual interval, or as long as where they go on soonest at places of one kind.
    """
    if job.polls is None:
        return
    graph = job.graph
    until = np.full(len(job.rows) + 1, EVER)  # the last one: no row
    until[job.polls.until] = graph.time[graph.end_node[job.polls.until] - FIRST]
    # Those that a call waits in come later, too.
    waits = (graph.row < 0) & (graph.time <= until[graph.lasted[1]] + 1)
    since = np.zeros(len(job.rows), dtype=bool)
    since[job.polls.since] = True
    asks, least, paused = np.zeros((3, len(job.rows)))
    for trace in job.traces:
        order = job.launched(trace)
        before, after = order[:-1][since[order[:-1]]], order[1:][since[order[:-1]]]
        own = job.interval[after]
        asks[after] = np.maximum(own - job.usual_interval, 0.0)
        least[after] = np.minimum(asks[after], own - _least_of_kind(job, before, after))
        paused[after] = job.rows.launch[after] - job.rows.launch[before]
    long = (paused > job.stretched) & (job.step_of_row >= 0)
    steps = np.zeros((len(job.rows.ranks), job.count))
    since &= job.step_of_row >= 0
    np.add.at(steps, (job.rows.trace[since], job.step_of_row[since]), 1)
    each = job.count * len(job.traces)
    yield Candidate(
        "blocking_sync", (), "calls",
        Evidence("polls", count=float(long.sum()) / each,
                 ms=float((paused[long] - job.usual_interval).sum()) / each / 1e6),
        changes=(Change(waits=waits, host_ns=asks),), others=(Change(waits=waits, host_ns=least),),
        recorded=True, counted=True, exact=bool(steps[job.traces].min() >= MIN_WAITS),
    )  # fmt: skip


def _least_of_kind(job: Job, before: Ints, after: Ints) -> Floats:
    """The shortest interval of a host between two launches of these kinds."""
    kinds = np.stack([job.key[before], job.key[after]])
    _, number = np.unique(kinds, axis=1, return_inverse=True)
    least = np.full(len(before), np.inf)
    np.minimum.at(least, number.ravel(), job.interval[after])
    return least[number.ravel()]


def _soon_after(job: Job, trace: int) -> tuple[Ints, Ints]:
    """Rows before a long interval that ends right after a collective does, and that collective, if
    they are many."""
    none = np.empty(0, dtype=np.int64)
    launched = job.launched(trace)
    chosen = (job.step_of_row[launched] >= 0) & (job.interval[launched] > job.stretched)
    chosen[:1] = False
    order, before = launched[chosen], np.roll(launched, 1)[chosen]
    calls = np.arange(len(job.rows))[job.rows.of(trace)]
    calls = calls[job.rows.entry[calls] >= 0]
    calls = calls[np.argsort(job.rows.end[calls], kind="stable")]
    ends = job.rows.end[calls]
    if not len(order) or not len(ends):
        return none, none
    launch = job.rows.launch[order]
    place = np.searchsorted(ends, launch, side="right") - 1
    since = np.where(place >= 0, launch - ends[np.maximum(place, 0)], np.iinfo(np.int64).max)
    near = (since <= AWAKE_NS) & (since < job.interval[order])
    column = job.traces.index(trace)
    inside = ((ends > job.ends[0, column]) & (ends <= job.ends[-1, column])).sum()
    chance = float(inside * AWAKE_NS / (job.ends[-1, column] - job.ends[0, column]))
    count = int(near.sum())
    often = count >= MIN_WAITS * job.count and count > MIN_TO_CHANCE * chance * len(order)
    return (before[near], calls[place[near]]) if often else (none, none)


def may_be_asked_for(job: Job, lost: Floats) -> bool:
    """Whether hosts lose most of that time right behind calls of their own that end meanwhile,
    twice a step or more, and no host of the job goes on before such a call ends.

    They may ask until these are done: few calls, or equal ones, do not show whether they do.

    lost  (rows,) ns of the host before each row's launch
    """
    behind = np.zeros(len(job.rows), dtype=bool)
    awaited = [calls for calls, _ in _never_before(job)]
    if not awaited:
        return False
    behind[np.concatenate(awaited)] = True
    held = np.zeros(len(job.rows), dtype=bool)
    for trace in job.traces:
        order = job.launched(trace)
        held[order[1:]] = behind[order[:-1]]
    held &= (lost > 0) & (job.step_of_row >= 0)
    ranks = len(np.unique(job.rows.trace[held]))
    often = held.sum() >= MIN_WAITS * job.count * max(1, ranks)
    return bool(often and lost[held].sum() > MIN_REGULAR * lost[job.step_of_row >= 0].sum())


def _never_before(job: Job) -> Iterator[tuple[Ints, float]]:
    """Collectives of all ranks, if no host launches anything before the end of its own; then those
    of each operation. And how many would by chance.

    A job may wait for the exchanges of its model, and not for the sums of its gradients. By chance
    a host would launch where an interval is shorter than another collective takes to end. A rank
    that arrives last at most calls waits for none of them, and shows little: all ranks count
    together, as they have the same settings.
    """
    if job.waited_for.any():
        return
    call, interval = [], []
    for trace in job.traces:
        order = job.launched(trace)
        before, after = order[:-1], order[1:]
        lasted = job.rows.launch[after] - job.rows.launch[before]
        # Those between which a call waits for the GPU are found by that call.
        chosen = (job.rows.entry[before] >= 0) & (lasted > 0)
        chosen &= np.abs(job.interval[after] - lasted) < 1
        call.append(before[chosen])
        interval.append(lasted[chosen])
    calls, intervals = np.concatenate(call), np.concatenate(interval)
    until, inside = job.rows.end[calls] - job.rows.launch[calls], job.step_of_row[calls] >= 0
    key = job.key[calls]
    for chosen in (
        np.ones(len(key), dtype=bool),
        *(key == operation for operation in np.unique(key)),
    ):
        counted = chosen & inside
        if not counted.any() or (intervals < until)[counted].any():
            continue
        expected = 0.0
        for trace in np.unique(job.rows.trace[calls[counted]]):
            own = counted & (job.rows.trace[calls] == trace)
            expected += float(np.searchsorted(np.sort(intervals[own]), until[own]).mean())
        yield calls[chosen & (intervals >= until)], expected
