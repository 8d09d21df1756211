"""Hosts that wait for their GPU, and launch nothing meanwhile (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collscope.model.trace import Ints
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.reads import (
    avoidable_waits,
    checks_for_nan,
    reads_of_layers,
    reads_of_passes,
    what_is_read,
)
from collscope.timeline.step_causes.records import Candidate, Change, Evidence, Floats
from collscope.timeline.step_causes.tolerances import MIN_SMALL_CALLS, MIN_WAITS, PLAIN_INTERVALS
from collscope.timeline.step_causes.waits import graph_shift, inside_steps, usual_call


def blocking_calls(job: Job) -> Iterator[Candidate]:
    """Calls in which hosts wait for their GPU, and launch nothing meanwhile."""
    per_rank = {t: inside_steps(job, avoidable_waits(job, t)) for t in job.traces}
    counts = {t: len(n) / max(1, job.count) for t, n in per_rank.items()}
    least = min(counts.values(), default=0)
    for trace in job.traces:
        if counts[trace] >= MIN_WAITS and counts[trace] > 2 * least + 1:
            yield _blocking(job, (trace,), per_rank, usual=least >= 1)
    # One call at the end of a step, which reads the loss, is usual.
    if least >= MIN_WAITS:
        yield _blocking(job, (), per_rank, usual=True)


def _longest_of_steps(job: Job, trace: int, nodes: Ints) -> Ints:
    """The longest wait of each step: a host that reads once reads where it is far ahead."""
    calls = job.host[trace]
    if calls is None or not len(nodes):
        return nodes[:0]
    call = np.array([job.sync_call[n][1] for n in nodes.tolist()])
    end = calls.end_ns[call] - job.rows.base_ns
    step = np.searchsorted(job.ends[:, job.traces.index(trace)], end)
    order = np.lexsort((end - calls.start_ns[call] + job.rows.base_ns, step))
    last = np.append(np.diff(step[order]) > 0, True)
    found: Ints = nodes[order[last]]
    return found


def _blocking(
    job: Job, traces: tuple[int, ...], per_rank: dict[int, Ints], *, usual: bool
) -> Candidate:
    """What waits cost; `usual`: one in each step stays, as it does in a job without a cause."""
    waits = np.zeros(len(job.graph.time), dtype=bool)
    duration, host = np.ones(len(job.rows)), np.zeros(len(job.rows))
    chosen = traces or tuple(job.traces)
    checked = []
    passes = {t: reads_of_passes(job, t, per_rank[t]) for t in chosen}
    of_layers, kept, paused = usual, 0, 0.0
    for trace in chosen:
        nodes = avoidable_waits(job, trace)
        read = what_is_read(job, trace, nodes)
        checked.append(checks_for_nan(job, read))
        if usual and not checked[-1]:
            # What is read once a step is nothing that is read in every layer.
            in_layers = reads_of_layers(job, trace, nodes)
            of_layers &= len(in_layers) > 0
            once = _longest_of_steps(job, trace, np.setdiff1d(nodes, in_layers))
            kept += len(inside_steps(job, once))
            nodes = np.setdiff1d(nodes, once)
            read = what_is_read(job, trace, nodes)
        if passes[trace] and not checked[-1]:
            read = read[:0]
        waits[nodes] = True
        duration[read], host[read] = 0.0, job.interval[read]
        if traces:
            behind, longer = _pauses_behind(job, trace, nodes)
            host[behind] = longer
            paused += float(longer[job.step_of_row[behind] >= 0].sum())
    count = sum(len(per_rank[t]) for t in chosen) / len(chosen) / max(1, job.count)
    name = usual_call(job, np.concatenate([per_rank[t] for t in chosen]))
    # A few reads a step are usual: of the loss, the norm of the gradients, a check of their scale.
    avoidable = count >= MIN_SMALL_CALLS and not all(passes.values())
    if all(checked):
        # Forward, such a job also writes down the Python stack of every operation: without that a
        # host needs a usual interval for a launch, or a few.
        rest = (duration > 0) & np.isin(job.rows.trace, chosen)
        hosts = [
            np.where(rest, np.maximum(job.interval - few * job.usual_interval, 0.0), host)
            for few in PLAIN_INTERVALS
        ]
        changes = [Change(waits=waits, duration=duration, host_ns=h) for h in hosts]
        return Candidate(
            "blocking_sync", tuple(job.rows.ranks[t] for t in traces), "calls",
            Evidence("nan_checks", name=name, count=count),
            changes=(changes[0],), others=tuple(changes[1:]),
        )  # fmt: skip
    return Candidate(
        "blocking_sync", tuple(job.rows.ranks[t] for t in traces), "calls",
        Evidence("blocking_calls", name=name, count=count, usual=float(kept > 0),
                 ms=paused / max(1, job.count) / 1e6),
        changes=(Change(waits=waits, duration=duration, host_ns=host),),
        counted=count >= MIN_SMALL_CALLS, certain=avoidable, at_power_cap=True,
        surely=not avoidable and not of_layers,
    )  # fmt: skip


def _pauses_behind(job: Job, trace: int, nodes: Ints) -> tuple[Ints, Floats]:
    """Rows right behind waits for whose launch the host pauses, and how much longer it takes than
    another's: it works on what it has read."""
    other = job.like(trace)
    if other is None:
        return nodes[:0], np.empty(0)
    order = job.launched(trace)
    first = np.searchsorted(job.rows.launch[order], job.graph.time[nodes] - graph_shift(job, order))
    own, partner = job.beside(trace, other)
    follows = np.isin(own, order[first[first < len(order)]]) & (partner >= 0)
    behind, there = own[follows], partner[follows]
    alone = job.interval - job.queued
    longer = alone[behind] - alone[there]
    far = longer > job.stall
    return behind[far], longer[far]


def blocking_launches(job: Job) -> Iterator[Candidate]:
    """Launches that return when their kernel is done: CUDA_LAUNCH_BLOCKING, or a debugger."""
    chosen = np.unique(job.rows.trace[job.waited_for]).tolist()
    if not chosen:
        return
    found = np.where(job.waited_for, job.call_ns, 0.0)
    inside = (found > 0) & (job.step_of_row >= 0)
    ranks = () if len(chosen) == len(job.traces) else tuple(job.rows.ranks[t] for t in chosen)
    yield Candidate(
        "blocking_sync", ranks, "calls",
        Evidence("blocking_launches", count=float(inside.sum()) / job.count / len(chosen),
                 ms=float(found[inside].sum()) / job.count / len(chosen) / 1e6),
        changes=(Change(host_ns=job.blocked),), at_power_cap=True, counted=True, exact=True,
    )  # fmt: skip
