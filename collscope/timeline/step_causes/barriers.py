"""Barriers: collectives that carry nothing, and that hosts wait for (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collscope.model import Op
from collscope.model.trace import Kind
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Bools, Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import LATENCY_NS, MIN_WAITS, VALUE_BYTES
from collscope.timeline.step_causes.waits import inside_steps, sync_nodes


def barriers(job: Job) -> Iterator[Candidate]:
    """Two or more barriers a step, wherever they stand in it.

    Nobody reads what such a collective gives: its host waits for the collective alone, and for no
    copy behind it.
    """
    empty, filled = _empty_calls(job)
    gone, first = np.zeros(len(job.rows), dtype=bool), np.zeros(len(job.rows), dtype=bool)
    waits = np.zeros(len(job.graph.time), dtype=bool)
    counts = []
    for trace in job.traces:
        order = job.launched(trace)
        before = dict(zip(order[1:].tolist(), order[:-1].tolist(), strict=True))
        found = []
        for node in sync_nodes(job, trace).tolist():
            rows = [r for r in job.graph.lasted[1:, node].tolist() if r >= 0]
            row = max(rows, key=job.rows.end.__getitem__, default=-1)
            if row < 0 or not empty[row]:
                continue
            found.append(node)
            gone[row] = True
            first[before[row] if filled[row] else row] = True
        waits[found] = True
        counts.append(len(inside_steps(job, np.array(found, dtype=np.int64))))
    if min(counts, default=0) < MIN_WAITS * job.count:
        return
    gone |= first
    # Before a barrier the host may do something else as well.
    host = np.where(first, np.minimum(job.interval, job.usual_interval), job.interval)
    spent = float((job.rows.end - job.rows.start)[gone & (job.step_of_row >= 0)].sum())
    each = job.count * len(job.traces)
    yield Candidate(
        "blocking_sync", (), "calls",
        Evidence("barriers", count=sum(counts) / each, ms=spent / each / 1e6),
        changes=(
            Change(
                host_ns=np.where(gone, host, 0.0), duration=np.where(gone, 0.0, 1.0),
                transfer=np.where(gone[job.calls.row], 0.0, 1.0), waits=waits,
            ),
        ),
        counted=True, exact=True, at_power_cap=True,
    )  # fmt: skip


def _empty_calls(job: Job) -> tuple[Bools, Bools]:
    """(rows,) collectives of one value at most, and those whose value a kernel writes before.

    Light traces do not show sizes: there it is a kernel that fills one element, as PyTorch's
    `barrier` does, then a collective that takes no time by itself.
    """
    calls, rows = job.calls, job.rows
    empty, filled = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
    if not len(calls):
        return empty, filled
    size = np.array([-1 if c.size_bytes is None else c.size_bytes for c in calls.classes])
    named = np.array([c.op is Op.BARRIER for c in calls.classes])
    shortest = np.minimum.reduceat(job.graph.transfer, calls.offsets[:-1])
    short = (shortest <= LATENCY_NS) & ~calls.p2p
    size, named = size[calls.class_], named[calls.class_]
    known = named | ((size >= 0) & (size <= VALUE_BYTES))
    fill = np.array(["FillFunctor" in name for name in rows.names] + [False])[rows.name]
    fill &= (rows.kind == Kind.KERNEL) & (rows.end - rows.start <= LATENCY_NS)
    for trace in job.traces:
        order = job.launched(trace)
        filled[order[1:]] = fill[order[:-1]] & (rows.entry[order[1:]] >= 0)
    of_row = calls.row
    empty[of_row] = (short & known)[calls.call_of_part]
    empty[of_row] |= (short & (size < 0))[calls.call_of_part] & filled[of_row]
    return empty, filled & empty
