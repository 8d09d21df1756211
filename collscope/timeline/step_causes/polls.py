"""Hosts that ask until a collective is done, without a call that waits (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collscope.model.trace import Ints
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import (
    AWAKE_NS,
    MIN_BY_CHANCE,
    MIN_TO_CHANCE,
    MIN_WAITS,
)


def polling_waits(job: Job) -> Iterator[Candidate]:
    """Hosts that go on when a collective is done, again and again: they ask until it is.

    Without a call that waits, as with TORCH_NCCL_BLOCKING_WAIT. By chance an interval between two
    launches ends so soon after a collective's end as often as such moments fill the step. Or hosts
    ask seldom, but never go on before it is done.
    """
    if not job.traces:
        return
    waits = [_soon_after(job, trace) for trace in job.traces]
    if not all(len(w) for w in waits):
        waits = [_never_before(job, trace) for trace in job.traces]
    if not all(len(w) for w in waits):
        return
    found = np.zeros(len(job.rows))
    rows = np.concatenate(waits)
    found[rows] = np.maximum(job.interval[rows] - job.usual_interval, 0.0)
    ranks = len(job.traces)
    yield Candidate(
        "blocking_sync", (), "calls",
        Evidence("blocking_calls", "POLL", count=len(rows) / job.count / ranks,
                 ms=float(found.sum()) / job.count / ranks / 1e6),
        changes=(Change(host_ns=found),), recorded=True,
    )  # fmt: skip


def _soon_after(job: Job, trace: int) -> Ints:
    """Rows launched right after the end of a collective and a long interval, if they are many."""
    order = job.launched(trace)
    order = order[(job.step_of_row[order] >= 0) & (job.interval[order] > job.stretched)]
    own_rows = job.rows.of(trace)
    ends = np.sort(job.rows.end[own_rows][job.rows.entry[own_rows] >= 0])
    if not len(order) or not len(ends):
        return order[:0]
    launch = job.rows.launch[order]
    place = np.searchsorted(ends, launch, side="right") - 1
    since = np.where(place >= 0, launch - ends[np.maximum(place, 0)], np.iinfo(np.int64).max)
    near = (since <= AWAKE_NS) & (since < job.interval[order])
    column = job.traces.index(trace)
    inside = ((ends > job.ends[0, column]) & (ends <= job.ends[-1, column])).sum()
    chance = float(inside * AWAKE_NS / (job.ends[-1, column] - job.ends[0, column]))
    count = int(near.sum())
    often = count >= MIN_WAITS * job.count and count > MIN_TO_CHANCE * chance * len(order)
    return order[near] if often else order[:0]


def _never_before(job: Job, trace: int) -> Ints:
    """Rows launched next after each collective, if none is launched before its end.

    By chance some would be: those whose interval is shorter than another collective takes to end.
    """
    order = job.launched(trace)
    call, after = order[:-1], order[1:]
    interval = job.rows.launch[after] - job.rows.launch[call]
    # Those between which a call waits for the GPU are found by that call.
    chosen = (job.rows.entry[call] >= 0) & (job.step_of_row[call] >= 0)
    chosen &= (interval > 0) & (np.abs(job.interval[after] - interval) < 1)
    interval = interval[chosen]
    until = (job.rows.end - job.rows.launch)[call[chosen]]
    if not len(interval) or (interval < until).any() or job.waited_for.any():
        return order[:0]
    shorter = np.searchsorted(np.sort(interval), until).mean()
    found: Ints = after[chosen & (job.interval[after] > job.stretched)]
    return found if shorter >= MIN_BY_CHANCE else found[:0]
