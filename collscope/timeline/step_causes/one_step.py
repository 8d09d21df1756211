"""One recorded step of two ranks on the common clock, to be drawn (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.timeline.graph import FIRST
from collscope.timeline.overlap import union
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import CauseSpan

Floats = npt.NDArray[np.float64]
Spans = tuple[Floats, Floats]
PARTS = ("compute", "transfer", "waiting", "idle", "cause")


class Lane(msgspec.Struct, frozen=True):
    """What one rank's GPU does in the step: begin and end of disjoint spans, ns, by `PARTS`.

    compute   kernels of no collective, and copies
    transfer  of collectives
    waiting   of collectives, for the rank that arrives last
    idle      nothing runs
    cause     what the first cause holds
    """

    rank: int  # world rank
    spans: dict[str, Spans]

    def total_ns(self, part: str) -> float:
        """Length of all spans of a part."""
        start, end = self.spans[part]
        return float((end - start).sum())


class OneStep(msgspec.Struct, frozen=True):
    """A step of one or two ranks; times begin with it."""

    number: int  # of the whole steps, from 0
    length_ns: float
    lanes: tuple[Lane, ...]


def one_step(recorded: RecordedJob, marks: Sequence[CauseSpan]) -> OneStep | None:
    """The usual step whose length is the median; None without whole steps.

    marks  of the first cause: the rank that has most of them is drawn, above the rank that it was
           compared with
    """
    if not recorded.steps.count.max(initial=0):
        return None
    job = Job(recorded, tuple(None for _ in recorded.rows.ranks))
    used = np.flatnonzero(job.used)
    step = int(used[np.argsort(job.lengths[used], kind="stable")[(len(used) - 1) // 2]])
    spent = {t: sum(m.end - m.start for m in marks if m.trace == t) for t in job.traces}
    most = max(job.traces, key=lambda t: (spent[t], -t))
    other = job.like(most)
    traces = (most,) if other is None else tuple(sorted((most, other)))
    columns = [job.traces.index(t) for t in traces]
    shift = job.graph.time[job.graph.start_node - FIRST] - job.rows.start  # to the common clock
    of = np.array([float(shift[job.rows.bounds[t]]) for t in traces])
    begin, end = job.ends[step, columns] + of, job.ends[step + 1, columns] + of
    first = float(begin.min())
    lanes = tuple(
        _lane(job, trace, marks, (float(begin[k]), float(end[k])), first)
        for k, trace in enumerate(traces)
    )
    return OneStep(step, float(end.max()) - first, lanes)


def _lane(
    job: Job, trace: int, marks: Sequence[CauseSpan], step: tuple[float, float], first: float
) -> Lane:
    rows, graph = job.rows, job.graph
    own = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    start = graph.time[graph.start_node[own] - FIRST].astype(np.float64)
    end = start + (rows.end - rows.start)[own]
    transfer = (rows.end - rows.start).astype(np.float64)  # where no call shows its waiting
    transfer[job.calls.row] = graph.transfer
    arrived = np.maximum(end - transfer[own], start)
    collective = rows.entry[own] >= 0
    marked = [m for m in marks if m.trace == trace]
    found = {
        "compute": (start[~collective], end[~collective]),
        "transfer": (arrived[collective], end[collective]),
        "waiting": (start[collective], arrived[collective]),
        "cause": (np.array([m.start for m in marked]), np.array([m.end for m in marked])),
    }
    spans = {part: _inside(*both, step) for part, both in found.items()}
    busy = _inside(start, end, step)
    edges = np.append(step[0], busy[1]), np.append(busy[0], step[1])
    spans["idle"] = edges[0][edges[1] > edges[0]], edges[1][edges[1] > edges[0]]
    return Lane(
        job.rows.ranks[trace],
        {part: (spans[part][0] - first, spans[part][1] - first) for part in PARTS},
    )


def _inside(start: Floats, end: Floats, step: tuple[float, float]) -> Spans:
    """Disjoint spans of what takes place in a step, rising."""
    start, end = np.clip(start, *step), np.clip(end, *step)
    kept = np.flatnonzero(end > start)
    order = kept[np.argsort(start[kept], kind="stable")]
    return union(start[order], end[order])


def drawn(spans: Spans, least_ns: float, *, join: bool) -> Iterator[tuple[float, float]]:
    """Spans to draw: those that are too short to be seen go, and such gaps where spans join."""
    start, end = spans
    if not len(start):
        return
    opens = np.append(True, start[1:] - end[:-1] > (least_ns if join else 0.0))
    closes = np.append(opens[1:], True)
    for begin, finish in zip(start[opens].tolist(), end[closes].tolist(), strict=True):
        if finish - begin > least_ns:
            yield begin, finish
