"""Copies between host and GPU from memory that is not pinned (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from collscope.model.trace import Kind
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Bools, Candidate, Change, Evidence, Floats
from collscope.timeline.step_causes.tolerances import LATENCY_NS, REUSED_FACTOR
from collscope.timeline.step_causes.waits import waits_for

# Memcpy DtoD (Device -> Device), Memcpy HtoD (...), CopyHostToDevice: nothing for a host to read.
NOT_TO_HOST = re.compile(r"DtoD|HtoD|(Device|Host)ToDevice")


def slow_copies(job: Job) -> Iterator[Candidate]:
    """Copies between host and GPU from memory that is not pinned, which its host waits for.

    Not those so short that a host reads a value with them, or sends one: it waits for the value.
    """
    names = job.rows.names
    rows = pageable_copies(job)
    inside = rows & (job.step_of_row >= 0)
    if not inside.any():
        return
    longest = int(np.where(inside, job.rows.end - job.rows.start, 0).argmax())
    kept = np.where(rows, 0.0, 1.0)
    # A copy is longer where its host writes to memory for the first time. Whether it gets such
    # memory depends on what else it has allocated, as a profiler does.
    to_host = np.array([NOT_TO_HOST.search(n) is None for n in names] + [False])[job.rows.name]
    reused = np.where(to_host, np.maximum(kept, 1 - REUSED_FACTOR), kept)
    others = (_without_copies(job, reused),) if to_host[inside].any() else ()
    ranks = {int(t) for t in job.rows.trace[inside]}
    chosen = (
        () if len(ranks) == len(job.traces) else tuple(sorted(job.rows.ranks[t] for t in ranks))
    )
    duration = (job.rows.end - job.rows.start)[inside]
    yield Candidate(
        "slow_transfer", chosen, "copies",
        Evidence("copies", names[int(job.rows.name[longest])],
                 count=float(inside.sum()) / job.count / len(ranks),
                 ms=float(duration.sum()) / job.count / len(ranks) / 1e6),
        changes=(_without_copies(job, kept),),
        others=others, counted=True, direct=bool(others),
    )  # fmt: skip


def pageable_copies(job: Job) -> Bools:
    """(rows,) copies between host and GPU from memory that is not pinned, of more than a value."""
    slow = np.array(["pageable" in n.lower() for n in job.rows.names] + [False])
    found: Bools = (job.rows.kind == Kind.COPY) & slow[job.rows.name]
    return found & (job.rows.end - job.rows.start > LATENCY_NS)


def _without_copies(job: Job, kept: Floats) -> Change:
    """Copies that last a part of their time; no host waits for those that last none.

    kept  (rows,) that part
    """
    return Change(duration=kept, waits=waits_for(job, kept == 0), host_ns=job.call_ns * (1 - kept))
