"""Traced runs side by side: their steps are the samples (pure).

A run's classes become a label, as measurements do: the same statistics and the same gate judge
them. Beside them stand the step and its parts, which only traces tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.analysis.check import (
    DEFAULT_RULES,
    Check,
    Rules,
    StepVerdict,
    check,
    control_floor,
    doubt_of,
)
from collscope.analysis.compare import (
    Comparison,
    KernelComparison,
    PartCell,
    PartComparison,
    TracedParts,
    TracedSteps,
    compare,
)
from collscope.analysis.labels import CIRCUMSTANCES, Label, Measured
from collscope.analysis.notes import (
    FewLaunches,
    GroupsInferred,
    NoSteps,
    Note,
    NotSplit,
    OneRecordingEach,
    Unlike,
    WaitsUnknown,
    unlike,
)
from collscope.analysis.verdict import (
    TOTAL_P,
    TOTAL_THRESHOLD,
    Decision,
    Doubt,
    JudgedStep,
    Reason,
    Verdict,
)
from collscope.model import CollectiveClass, bus_bandwidth
from collscope.model.trace import Ints, Kind
from collscope.stats import Effect, Samples, effects, with_noise
from collscope.timeline.assumptions import HOST_PRIOR
from collscope.timeline.overlap import covered, union
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.step_bounds import recorded_bounds

Floats = npt.NDArray[np.float64]

STEP, COMPUTE, COLLECTIVES, EXPOSED, WAITING, IDLE = PARTS = (
    "step", "compute", "collectives", "exposed", "waiting", "idle",
)  # fmt: skip
"""Parts of a step, in µs, means over the ranks but for `step`.

step         of the rank whose steps take longest together
compute      a kernel runs that is no collective
collectives  one runs, be it waiting
exposed      of that, with no compute kernel beside it
waiting      of the collectives, summed over them, before their last rank came
idle         nothing runs, no copy either
"""
_OF_RANKS = (COMPUTE, WAITING, IDLE)  # parts told of each rank, too
_SURE = (STEP, COMPUTE)  # parts whose noise between recordings can be stated
HOST_NOISE = 0.1
"""Standard deviation of the host's pace between two starts of one job, a ratio.

source  benchmarks' jobs on 4 x H200, starts of one setting: medians of steps that the host bounds
        differ by 10 to 20 % (FSDP, gradient accumulation), those that the GPU bounds by up to 2 %
"""


class TracedRun(msgspec.Struct, frozen=True):
    """One run's traces, in samples of its steps."""

    label: Label  # its classes: transfer of a call, the mean over the calls of a step
    store: Path  # that it is in
    profiler: str  # what was recorded, and how: a key of `HOST_PRIOR`
    steps: int  # 0: none were found
    step_from: str  # marks: the profiler's; kernels, period: recurring kernels or collectives
    ranks: tuple[int, ...]  # traced
    world_size: int | None  # of the job, where told
    host: float  # part of what bounds a step that is the host's work, up to 1
    least: float  # least that the step may take without the profiler, in parts of the recorded
    parts: Mapping[str, Samples]  # of a step; a part is not there where it is not known
    of_rank: Mapping[tuple[int, str], Samples]
    kernels: Mapping[CollectiveClass, Samples]  # kernel time of a step, mean over the ranks
    unsplit: int  # classes whose transfer is not known apart from the waiting
    waits_unknown: tuple[int, int]  # of so many kernels of collectives in the steps
    groups_inferred: int  # process groups of some of the ranks that no trace names

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.label.name


def traced_run(
    name: str,
    store: Path,
    recorded: RecordedJob,
    keys: Sequence[CollectiveClass | None],
    circumstances: Mapping[str, tuple[str, ...]],
) -> TracedRun:
    """Samples of one run.

    keys           class of each call of the record; None: the store knows none
    circumstances  of `labels.CIRCUMSTANCES`, those that are known
    """
    rows, steps = recorded.rows, recorded.steps
    found = steps.source != "window" and bool(len(steps.count))
    ends = steps.ends(rows.end) if found else np.empty((0, 0))
    parts: dict[str, Samples] = {}
    of_rank: dict[tuple[int, str], Samples] = {}
    waits = 0, 0
    if found:
        parts, of_rank, waits = _parts(name, recorded, ends)
    classes, unsplit = _classes(name, recorded, keys, ends)
    here = {c: circumstances.get(c, ()) for c in CIRCUMSTANCES}
    on_host = sum(b.ns for b in recorded_bounds(recorded) if b.kind == "host") if found else 0.0
    host = min(1.0, on_host / (recorded.step_ns or 1.0))
    prior = HOST_PRIOR[recorded.profiler][0]
    return TracedRun(
        Label(name, classes, 0, here),
        store,
        recorded.profiler,
        max(0, len(ends) - 1),
        steps.source,
        rows.ranks,
        rows.world_size,
        host,
        # What bounds the step still takes place one after the other when its host work is faster.
        1 - host * (1 - prior),
        parts,
        of_rank,
        _kernels(name, recorded, keys, ends) if found else {},
        unsplit,
        waits,
        recorded.groups_inferred,
    )


def _parts(
    name: str, recorded: RecordedJob, ends: Floats
) -> tuple[dict[str, Samples], dict[tuple[int, str], Samples], tuple[int, int]]:
    """Parts of each step, µs, and those of each rank; kernels whose waiting is not known, of all.

    A part is not there where it is not known.
    """
    rows, calls, times = recorded.rows, recorded.calls, recorded.times
    longest = int((ends[-1] - ends[0]).argmax())
    by_part: dict[str, list[Floats]] = {part: [] for part in PARTS[1:]}
    of_rank: dict[tuple[int, str], Samples] = {}
    wait = np.full(len(rows), -1, dtype=np.int64)
    wait[calls.row] = times.wait
    unsplit = seen = 0
    for column, trace in enumerate(recorded.steps.traces.tolist()):
        cuts = ends[:, column]
        mine = rows.of(trace)
        start, end = (v[mine].astype(np.float64) for v in (rows.start, rows.end))
        collective = rows.entry[mine] >= 0
        compute = (rows.kind[mine] == Kind.KERNEL) & ~collective
        busy, either, every = (
            _within(start[chosen], end[chosen], cuts)
            for chosen in (compute, compute | collective, np.ones(len(start), dtype=bool))
        )
        by_part[COMPUTE].append(busy)
        by_part[COLLECTIVES].append(_within(start[collective], end[collective], cuts))
        by_part[EXPOSED].append(either - busy)
        by_part[IDLE].append(np.diff(cuts) - every)
        # Windows begin at different calls: what some ranks lack lies before the steps.
        step = np.searchsorted(cuts, rows.end[mine][collective]) - 1
        inside = (step >= 0) & (step < len(cuts) - 1)
        waits, step = wait[mine][collective][inside], step[inside]
        unsplit += int((waits < 0).sum())
        seen += len(waits)
        if (waits >= 0).all():
            waited = np.bincount(step, waits, minlength=len(cuts) - 1)
            by_part[WAITING].append(waited.astype(np.float64))
        of_rank |= {
            (rows.ranks[trace], part): _samples(name, by_part[part][-1])
            for part in _OF_RANKS
            if len(by_part[part]) == column + 1
        }
    parts = {STEP: _samples(name, np.diff(ends[:, longest]))}
    whole = len(recorded.steps.traces)
    parts |= {p: _samples(name, np.mean(v, axis=0)) for p, v in by_part.items() if len(v) == whole}
    return parts, of_rank, (unsplit, seen)


def _within(start: Floats, end: Floats, cuts: Floats) -> Floats:
    """Time between each two cuts that the intervals cover; `start` must rise."""
    covering: Floats = np.diff(covered(*union(start, end), cuts))
    return covering


def _samples(name: str, values_ns: Floats) -> Samples:
    """A value of each step; one recording is one launch."""
    return Samples({name: tuple((values_ns / 1000).tolist())})


def _classes(
    name: str, recorded: RecordedJob, keys: Sequence[CollectiveClass | None], ends: Floats
) -> tuple[dict[CollectiveClass, Measured], int]:
    """Classes with the mean transfer of their calls in each step; classes without a transfer.

    Without steps the whole window is one sample.
    """
    times = recorded.times
    names, class_ = _numbered(keys)
    step = _step_of_calls(recorded, ends)
    inside = (step >= 0) & ~times.warm_up
    number = max(1, len(ends) - 1)
    found: dict[CollectiveClass, Measured] = {}
    unsplit = 0
    for k, key in enumerate(names):
        mine = np.flatnonzero(inside & (class_ == k))
        told = mine[times.known[mine] & (times.transfer[mine] > 0)]
        unsplit += bool(len(mine)) and not len(told)
        if not len(told):
            continue
        count = np.bincount(step[told], minlength=number)
        total = np.bincount(step[told], times.transfer[told], minlength=number)
        samples = _samples(name, total[count > 0] / count[count > 0])
        busbw = bus_bandwidth(
            key.op, size=key.size_bytes, time_s=samples.time_us / 1e6, nranks=key.nranks
        )
        found[key] = Measured(samples, busbw, len(mine))
    return found, unsplit


def _numbered(keys: Sequence[CollectiveClass | None]) -> tuple[list[CollectiveClass], Ints]:
    """The classes of some calls, and the place of each call's in them; -1: it has none.

    They are compared as measured ones are: the size says what the count does.
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
        mine = own == k
        place = np.searchsorted(ends[:, k], end[mine]) - 1
        step[mine] = np.where(place < len(ends) - 1, place, -1)
    return step


def compare_traced(runs: Sequence[TracedRun]) -> Comparison:
    """Compare runs with the first, on their steps and on the classes that all of them have."""
    labels = [run.label for run in runs]
    first = labels[0]
    notes = tuple(_notes(runs))
    if not frozenset.intersection(*(label.measured for label in labels)):
        names = tuple(label.name for label in labels)
        found = Comparison(names, None, (), (), (), tuple(unlike(labels)))
    else:
        weights = {key: m.calls or 1 for key, m in first.classes.items()}
        found = compare(labels, first.name, weights)
    return replace(found, notes=(*notes, *found.notes), traced=_traced_parts(runs))


def check_traced(
    baseline: TracedRun,
    current: TracedRun,
    *,
    control: TracedRun | None = None,
    rules: Rules = DEFAULT_RULES,
) -> Check:
    """Judge a run by another, with the gate of measurements: its classes, and its step.

    A step that is slower is a regression, and so are classes that the gate calls one. Without
    steps enough to judge by there is no verdict else.

    control  the baseline, recorded once more: what differs raises the thresholds
    """
    found = check(
        baseline.label,
        current.label,
        control=None if control is None else (baseline.label, control.label),
        rules=rules,
    )
    floor = 0.0
    if control is not None:
        floor = control_floor(e for e in (_effect(baseline, control, STEP),) if e is not None)
    step = _judge_step(baseline, current, rules, floor)
    kept = (n for n in found.notes if not isinstance(n, FewLaunches))
    return replace(
        found,
        decision=_decide(found.decision, step),
        notes=(*_notes((baseline, current)), *kept),
        traced=_traced_parts((baseline, current)),
        step=StepVerdict(
            step.ratio, step.low, step.high, _outcome(step),
            None if step.doubt is None else step.doubt.value,
        ),
    )  # fmt: skip


def _outcome(step: JudgedStep) -> str:
    if step.slower or step.faster:
        return "slower" if step.slower else "faster"
    if step.doubt is not None or step.low is None or step.high is None:
        return "unsure"
    return "same" if step.low <= 1 <= step.high else "unsure"


def _decide(classes: Decision, step: JudgedStep) -> Decision:
    """The verdict of a step and of its classes together."""
    if step.slower:
        verdict = Verdict.REGRESSION
    elif classes.verdict is Verdict.REGRESSION:
        return replace(classes, step=step)
    elif step.doubt is not None and not step.faster:
        verdict = Verdict.NO_VERDICT
    elif classes.verdict is Verdict.IMPROVEMENT and not step.faster:
        return replace(classes, step=step)
    else:
        verdict = Verdict.IMPROVEMENT if step.faster else Verdict.PASS
    return Decision(
        verdict, Reason.STEP, step=step, judged=classes.judged, total=classes.total,
        lost=classes.lost,
    )  # fmt: skip


def _judge_step(baseline: TracedRun, current: TracedRun, rules: Rules, floor: float) -> JudgedStep:
    effect = _effect(baseline, current, STEP)
    steps = ((baseline.name, baseline.steps), (current.name, current.steps))
    store = str(baseline.store)
    if effect is None:
        return JudgedStep(steps, store, None, None, None, Doubt.UNKNOWN, slower=False, faster=False)
    matters = max(math.log1p(TOTAL_THRESHOLD), floor)
    # Ratios that the profiler's cost leaves open: all of it in one run, none in the other.
    least, most = (
        replace(effect, log_ratio=effect.log_ratio + math.log(part))
        for part in (current.least, 1 / baseline.least)
    )
    low, high = _interval(effect, baseline, current)
    widest = math.log1p(rules.resolution)
    doubt = doubt_of(effect, widest)
    hides = (most.log_ratio - least.log_ratio) / 2
    if hides > (widest if doubt is not None else widest - (effect.half_width() or 0.0)):
        doubt = Doubt.PROFILER
    return JudgedStep(
        steps,
        store,
        math.exp(effect.log_ratio),
        low,
        high,
        doubt,
        least.log_ratio > matters and least.p_slower() < TOTAL_P,
        most.log_ratio < -matters and most.p_faster() < TOTAL_P,
    )


def _interval(
    effect: Effect, first: TracedRun, other: TracedRun
) -> tuple[float | None, float | None]:
    """Ends of the step's ratio, other / first: 95 % of the noise, and the profiler's cost."""
    half = effect.half_width()
    if half is None:
        return None, None
    return (
        math.exp(effect.log_ratio - half) * other.least,
        math.exp(effect.log_ratio + half) / first.least,
    )


def _effect(
    first: TracedRun, other: TracedRun, part: str, rank: int | None = None
) -> Effect | None:
    """Effect of a part of the step; None where a run does not tell it, or has none of it."""
    pair = [r.parts.get(part) if rank is None else r.of_rank.get((rank, part))
            for r in (first, other)]  # fmt: skip
    if pair[0] is None or pair[1] is None or min(*pair[0].all, *pair[1].all) <= 0:
        return None
    (effect,) = effects([(pair[0], pair[1])])
    if part not in _SURE or effect.error is None:
        return replace(effect, error=None)
    if part != STEP:
        return effect
    return with_noise(effect, HOST_NOISE**2 * (first.host**2 + other.host**2))


def _traced_parts(runs: Sequence[TracedRun]) -> TracedParts:
    ranks = sorted(set.intersection(*(set(run.ranks) for run in runs)))
    wanted: list[tuple[str, int | None]] = [(part, None) for part in PARTS]
    wanted += [(part, rank) for part in _OF_RANKS for rank in ranks]
    parts = (
        PartComparison(part, rank, tuple(_cell(runs[0], run, part, rank) for run in runs))
        for part, rank in wanted
    )
    return TracedParts(
        tuple(
            TracedSteps(
                r.name,
                str(r.store),
                r.profiler,
                r.steps,
                r.step_from,
                len(r.ranks),
                r.world_size,
                r.host,
                r.least,
            )
            for r in runs
        ),
        tuple(p for p in parts if any(c.time_us is not None for c in p.cells)),
        tuple(_kernel_times(runs)),
    )


def _kernel_times(runs: Sequence[TracedRun]) -> Iterator[KernelComparison]:
    first = runs[0].kernels
    keys = sorted({key for run in runs for key in run.kernels})
    for key in sorted(keys, key=lambda k: -first[k].time_us if k in first else 0.0):
        times = [r.kernels[key].time_us if key in r.kernels else None for r in runs]
        yield KernelComparison(
            key,
            tuple(
                PartCell(
                    run.name, t, times[0] / t if place and t and times[0] else None, None, None
                )
                for place, (run, t) in enumerate(zip(runs, times, strict=True))
            ),
        )


def _cell(first: TracedRun, run: TracedRun, part: str, rank: int | None) -> PartCell:
    samples = run.parts.get(part) if rank is None else run.of_rank.get((rank, part))
    time = None if samples is None else samples.time_us
    effect = None if run is first else _effect(first, run, part, rank)
    if effect is None:
        return PartCell(run.name, time, None, None, None)
    if part == STEP:
        least, most = _interval(effect, first, run)
        return PartCell(run.name, time, effect.speed_up, most and 1 / most, least and 1 / least)
    half = effect.half_width()
    return PartCell(
        run.name,
        time,
        effect.speed_up,
        None if half is None else math.exp(-effect.log_ratio - half),
        None if half is None else math.exp(-effect.log_ratio + half),
    )


def _notes(runs: Sequence[TracedRun]) -> Iterator[Note]:
    for run in runs:
        if not run.steps:
            yield NoSteps(run.name)
        if run.unsplit:
            yield NotSplit(run.name, run.unsplit, run.unsplit + len(run.label.classes))
        if run.waits_unknown[0]:
            yield WaitsUnknown(run.name, *run.waits_unknown)
    groups = max(run.groups_inferred for run in runs)
    if groups:
        yield GroupsInferred(groups)
    ranks = tuple((run.name, (f"{len(run.ranks)} of {run.world_size or len(run.ranks)}",))
                  for run in runs)  # fmt: skip
    if len({v for _, v in ranks}) > 1:
        yield Unlike("traced ranks", ranks)
    if all(run.steps for run in runs):
        yield OneRecordingEach(max(run.host for run in runs))
