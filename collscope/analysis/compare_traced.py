"""Traced runs side by side: their steps are the samples (pure).

A run's classes become a label, as measurements do: the same statistics and the same gate judge
them. Beside them stand the step and its parts, which only traces tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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
from collscope.analysis.step_samples import COMPUTE, OF_RANKS, PARTS, STEP, SampledRun
from collscope.analysis.verdict import (
    TOTAL_P,
    TOTAL_THRESHOLD,
    Decision,
    Doubt,
    JudgedStep,
    Reason,
    Verdict,
)
from collscope.stats import Effect, effects, with_noise

_SURE = (STEP, COMPUTE)  # parts whose noise between recordings can be stated
HOST_NOISE = 0.1
"""Standard deviation of the host's pace between two starts of one job, a ratio.

source  benchmarks' jobs on 4 x H200, starts of one setting: medians of steps that the host bounds
        differ by 10 to 20 % (FSDP, gradient accumulation), those that the GPU bounds by up to 2 %
"""


def compare_traced(runs: Sequence[SampledRun]) -> Comparison:
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
    baseline: SampledRun,
    current: SampledRun,
    *,
    control: SampledRun | None = None,
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


def _judge_step(
    baseline: SampledRun, current: SampledRun, rules: Rules, floor: float
) -> JudgedStep:
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
    effect: Effect, first: SampledRun, other: SampledRun
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
    first: SampledRun, other: SampledRun, part: str, rank: int | None = None
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


def _traced_parts(runs: Sequence[SampledRun]) -> TracedParts:
    ranks = sorted(set.intersection(*(set(run.ranks) for run in runs)))
    wanted: list[tuple[str, int | None]] = [(part, None) for part in PARTS]
    wanted += [(part, rank) for part in OF_RANKS for rank in ranks]
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


def _kernel_times(runs: Sequence[SampledRun]) -> Iterator[KernelComparison]:
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


def _cell(first: SampledRun, run: SampledRun, part: str, rank: int | None) -> PartCell:
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


def _notes(runs: Sequence[SampledRun]) -> Iterator[Note]:
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
