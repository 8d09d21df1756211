"""The steps of a traced run as samples: its parts, and the classes of its collectives (pure)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.model import CollectiveClass, bus_bandwidth
from collscope.model.trace import Ints, Kind
from collscope.reports.compare.labels import CIRCUMSTANCES, Label, MeasuredClass
from collscope.stats import Samples
from collscope.timeline.overlap import covered, union
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.step_bounds import recorded_bounds
from collscope.timeline.unprofiled import UnprofiledSteps, unprofiled_steps

Floats = npt.NDArray[np.float64]

STEP, UNPROFILED, COMPUTE, COLLECTIVES, EXPOSED, WAITING, IDLE = PARTS = (
    "step", "unprofiled", "compute", "collectives", "exposed", "waiting", "idle",
)  # fmt: skip
"""Parts of a step, in µs, means over the ranks but for `step`.

step         of the rank whose steps take longest together
unprofiled   that step without the profiler; the other parts are of the recorded one
compute      a kernel runs that is no collective
collectives  one runs, waiting or not
exposed      of that, not hidden by compute
waiting      of the collectives, summed over them, before their last rank arrived
idle         nothing runs, no copy either
"""
OF_RANKS = (COMPUTE, WAITING, IDLE)  # parts known for each rank, too


class SampledRun(msgspec.Struct, frozen=True):
    """One run's traces, in samples of its steps."""

    label: Label  # its classes: transfer of a call, the mean over the calls of a step
    store: Path  # that it is in
    profiler: str  # what was recorded, and how: a key of `assumptions.HOST_PRIOR`
    steps: int  # 0: none were found
    step_from: str  # as in the view `steps`; window: no step was found
    ranks: tuple[int, ...]  # traced
    world_size: int | None  # of the job, where known
    host: float  # part of what bounds a step that is the host's work, up to 1
    unprofiled: UnprofiledSteps | None  # None: without steps
    parts: Mapping[str, Samples]  # of a step; a part is not there where it is not known
    of_rank: Mapping[tuple[int, str], Samples]
    kernels: Mapping[CollectiveClass, Samples]  # kernel time of a step, mean over the ranks
    unsplit: int  # classes whose transfer is not known apart from the waiting
    waits_unknown: tuple[int, int]  # of so many kernels of collectives in the steps
    groups_inferred: int  # process groups of some of the ranks that no trace names
    digest: str  # of the times of all rows: only one recording has it

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.label.name


def sample_run(
    name: str,
    store: Path,
    recorded: RecordedJob,
    keys: Sequence[CollectiveClass | None],
    circumstances: Mapping[str, tuple[str, ...]],
) -> SampledRun:
    """Samples of one run.

    keys           class of each call of the record; None: the store knows none
    circumstances  of `labels.CIRCUMSTANCES`, those that are known
    """
    rows, steps = recorded.rows, recorded.steps
    ends = _step_ends(recorded)
    found = bool(ends.size)
    parts: dict[str, Samples] = {}
    of_rank: dict[tuple[int, str], Samples] = {}
    waits = 0, 0
    if found:
        parts, of_rank, waits = _parts(name, recorded, ends)
    classes, unsplit = classes_with_transfers(name, recorded, keys)
    here = {c: circumstances.get(c, ()) for c in CIRCUMSTANCES}
    on_host = sum(b.ns for b in recorded_bounds(recorded) if b.kind == "host") if found else 0.0
    host = min(1.0, on_host / (recorded.step_ns or 1.0))
    return SampledRun(
        Label(name, classes, 0, here),
        store,
        recorded.profiler,
        max(0, len(ends) - 1),
        steps.source,
        rows.ranks,
        rows.world_size,
        host,
        unprofiled_steps(recorded) if found else None,
        parts,
        of_rank,
        _kernels(name, recorded, keys, ends) if found else {},
        unsplit,
        waits,
        recorded.groups_inferred,
        _digest(recorded),
    )


def _step_ends(recorded: RecordedJob) -> Floats:
    """Ends of the steps in each trace, ns; empty where no step was found."""
    steps = recorded.steps
    if steps.source == "window" or not len(steps.count):
        return np.empty((0, 0))
    return steps.ends(recorded.rows.end)


def _digest(recorded: RecordedJob) -> str:
    rows = recorded.rows
    found = hashlib.blake2b(rows.base_ns.to_bytes(16, "little", signed=True), digest_size=16)
    for times in (rows.start, rows.end):
        found.update(np.ascontiguousarray(times).tobytes())
    return found.hexdigest()


def _parts(
    name: str, recorded: RecordedJob, ends: Floats
) -> tuple[dict[str, Samples], dict[tuple[int, str], Samples], tuple[int, int]]:
    """Parts of each step, µs, and those of each rank; kernels whose waiting is not known, of all.

    A part is not there where it is not known.
    """
    rows, calls, times = recorded.rows, recorded.calls, recorded.times
    longest = int((ends[-1] - ends[0]).argmax())
    by_part: dict[str, list[Floats]] = {part: [] for part in PARTS[2:]}
    of_rank: dict[tuple[int, str], Samples] = {}
    wait = np.full(len(rows), -1, dtype=np.int64)
    wait[calls.row] = times.wait
    unsplit = seen = 0
    for column, trace in enumerate(recorded.steps.traces.tolist()):
        cuts = ends[:, column]
        trace_rows = rows.of(trace)
        start, end = (v[trace_rows].astype(np.float64) for v in (rows.start, rows.end))
        collective = rows.entry[trace_rows] >= 0
        compute = (rows.kind[trace_rows] == Kind.KERNEL) & ~collective
        busy, either, every = (
            _within(start[chosen], end[chosen], cuts)
            for chosen in (compute, compute | collective, np.ones(len(start), dtype=bool))
        )
        by_part[COMPUTE].append(busy)
        by_part[COLLECTIVES].append(_within(start[collective], end[collective], cuts))
        by_part[EXPOSED].append(either - busy)
        by_part[IDLE].append(np.diff(cuts) - every)
        # Windows begin at different calls: what some ranks lack lies before the steps.
        step = np.searchsorted(cuts, rows.end[trace_rows][collective]) - 1
        inside = (step >= 0) & (step < len(cuts) - 1)
        waits, step = wait[trace_rows][collective][inside], step[inside]
        unsplit += int((waits < 0).sum())
        seen += len(waits)
        if (waits >= 0).all():
            waited = np.bincount(step, waits, minlength=len(cuts) - 1)
            by_part[WAITING].append(waited.astype(np.float64))
        of_rank |= {
            (rows.ranks[trace], part): _samples(name, by_part[part][-1])
            for part in OF_RANKS
            if len(by_part[part]) == column + 1
        }
    parts = {STEP: _samples(name, np.diff(ends[:, longest]))}
    traces = len(recorded.steps.traces)
    parts |= {p: _samples(name, np.mean(v, axis=0)) for p, v in by_part.items() if len(v) == traces}
    return parts, of_rank, (unsplit, seen)


def _within(start: Floats, end: Floats, cuts: Floats) -> Floats:
    """Time between each two cuts that the intervals cover; `start` must rise."""
    covering: Floats = np.diff(covered(*union(start, end), cuts))
    return covering


def _samples(name: str, values_ns: Floats) -> Samples:
    """A value of each step; one recording is one launch."""
    return Samples({name: tuple((values_ns / 1000).tolist())})


def classes_with_transfers(
    name: str, recorded: RecordedJob, keys: Sequence[CollectiveClass | None]
) -> tuple[dict[CollectiveClass, MeasuredClass], int]:
    """Classes with the mean transfer of their calls in each step; classes without a transfer.

    Without steps the whole window is one sample.
    """
    times, ends = recorded.times, _step_ends(recorded)
    names, class_ = _numbered(keys)
    step = _step_of_calls(recorded, ends)
    inside = (step >= 0) & ~times.warm_up
    number = max(1, len(ends) - 1)
    found: dict[CollectiveClass, MeasuredClass] = {}
    unsplit = 0
    for k, key in enumerate(names):
        class_calls = np.flatnonzero(inside & (class_ == k))
        with_transfer = class_calls[times.known[class_calls] & (times.transfer[class_calls] > 0)]
        unsplit += bool(len(class_calls)) and not len(with_transfer)
        if not len(with_transfer):
            continue
        count = np.bincount(step[with_transfer], minlength=number)
        total = np.bincount(step[with_transfer], times.transfer[with_transfer], minlength=number)
        samples = _samples(name, total[count > 0] / count[count > 0])
        busbw = bus_bandwidth(
            key.op, size=key.size_bytes, time_s=samples.time_us / 1e6, nranks=key.nranks
        )
        found[key] = MeasuredClass(samples, busbw, len(class_calls))
    return found, unsplit


def _numbered(keys: Sequence[CollectiveClass | None]) -> tuple[list[CollectiveClass], Ints]:
    """The classes of some calls, and the place of each call's in them; -1: it has none.

    They are compared as measured ones are: by size, without the count.
    """
    plain = {key: replace(key, count=None) for key in dict.fromkeys(filter(None, keys))}
    places = {key: k for k, key in enumerate(dict.fromkeys(plain.values()))}
    number = [-1 if key is None else places[plain[key]] for key in keys]
    return list(places), np.array(number, dtype=np.int64)


def _kernels(
    name: str, recorded: RecordedJob, keys: Sequence[CollectiveClass | None], ends: Floats
) -> dict[CollectiveClass, Samples]:
    """Kernel time of each class in each step, waiting in it: the mean over the ranks."""
    calls, times = recorded.calls, recorded.times
    step = _step_of_calls(recorded, ends)[calls.call_of_part]
    found = {}
    number, duration = len(ends) - 1, times.end - times.start
    names, class_ = _numbered(keys)
    for k, key in enumerate(names):
        chosen = (class_[calls.call_of_part] == k) & (step >= 0)
        total = np.bincount(step[chosen], duration[chosen], minlength=number)
        found[key] = _samples(name, total / max(1, ends.shape[1]))
    return found


def _step_of_calls(recorded: RecordedJob, ends: Floats) -> Ints:
    """Step in which each call ends on its first rank; -1 outside of all, 0 where there are none."""
    calls, rows = recorded.calls, recorded.rows
    if not ends.size:
        return np.zeros(len(calls), dtype=np.int64)
    column = np.full(len(rows.ranks), -1)
    column[recorded.steps.traces] = np.arange(len(recorded.steps.traces))
    first = calls.offsets[:-1]
    end = rows.end[calls.row[first]]
    own = column[calls.trace[first]]
    step = np.full(len(calls), -1)
    for k in range(ends.shape[1]):
        in_trace = own == k
        place = np.searchsorted(ends[:, k], end[in_trace]) - 1
        step[in_trace] = np.where(place < len(ends) - 1, place, -1)
    return step
