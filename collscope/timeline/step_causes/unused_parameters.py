"""DistributedDataParallel's search for parameters without a gradient (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collscope.model import Datatype, Op
from collscope.model.trace import Ints, Kind
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import GRADIENT_NS, GRADIENTS_PER_LAUNCH


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
