"""Traced runs side by side: their steps are the samples (pure).

A run's classes become a label, as measurements do: the same statistics and the same gate judge
them. Beside them stand the step and its parts, which only traces tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from msgspec.structs import replace

from collscope.analysis.check import (
    DEFAULT_RULES,
    Check,
    Rules,
    StepVerdict,
    check,
    control_floor,
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
    OneRecording,
    OneRecordingEach,
    Unlike,
    UnlikeProfilers,
    WaitsUnknown,
    unlike,
)
from collscope.analysis.step_samples import (
    COMPUTE,
    OF_RANKS,
    PARTS,
    STEP,
    UNPROFILED,
    SampledRun,
)
from collscope.analysis.verdict import (
    TOTAL_THRESHOLD,
    Decision,
    Doubt,
    JudgedStep,
    Reason,
    Verdict,
)
from collscope.stats import Samples, effects
from collscope.timeline.unprofiled import SURE, USUAL, StepRatio, step_ratio, steps_enough

# Of a ratio of steps, by what adds most to its range.
_DOUBTS = {"profiler": Doubt.PROFILER, "hosts": Doubt.HOSTS, "starts": Doubt.ASSUMED}


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
        once_more = _ratio(baseline, control)
        floor = control_floor([] if once_more is None else [math.log(once_more.middle)])
    step = _judge_step(baseline, current, rules, floor)
    kept = (n for n in found.notes if not isinstance(n, FewLaunches))
    return replace(
        found,
        decision=_decide(found.decision, step),
        notes=(*_notes((baseline, current)), *kept),
        traced=_traced_parts((baseline, current)),
        step=StepVerdict(
            step.recorded, step.ratio, step.low, step.high, _outcome(step),
            None if step.doubt is None else step.doubt.value, step.enough,
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
    """Slower and faster where that is sure; in doubt where it may be slower by the resolution."""
    steps = ((baseline.name, baseline.steps), (current.name, current.steps))
    about = steps, str(baseline.store), _recorded_ratio(baseline, current)
    if baseline.digest == current.digest:
        return JudgedStep(*about, 1.0, 1.0, 1.0, None, None, slower=False, faster=False, same=True)
    usual, sure = _ratio(baseline, current), _ratio(baseline, current, SURE)
    if usual is None or sure is None:
        return JudgedStep(*about, None, None, None, Doubt.UNKNOWN, None, slower=False, faster=False)
    matters = max(math.log1p(TOTAL_THRESHOLD), floor)
    slower, faster = math.log(sure.low) > matters, math.log(sure.high) < -matters
    doubt, enough = None, None
    passes = max(math.log1p(rules.resolution), floor)
    if not slower and math.log(usual.high) > passes:
        room = passes - math.log(usual.middle)
        if room > 0:
            doubt, enough = _doubt(baseline, current, usual, 1, room)
        else:
            doubt, enough = _doubt(baseline, current, sure, 0, math.log(usual.middle) - matters)
    return JudgedStep(
        *about, usual.middle, usual.low, usual.high, doubt, enough, slower=slower, faster=faster
    )


def _doubt(
    first: SampledRun, other: SampledRun, found: StepRatio, side: int, room: float
) -> tuple[Doubt, int | None]:
    """What keeps a ratio from being judged, and the steps of each run that would settle it.

    side  0: it may be less; 1: it may be more
    room  by how much its logarithm may be that at most
    """
    sizes = {name: abs(ends[side]) for name, ends in found.doubts.items() if name != "steps"}
    if math.hypot(*sizes.values()) >= room:
        return _DOUBTS[max(sizes, key=sizes.__getitem__)], None
    assert first.unprofiled is not None  # there is a ratio
    assert other.unprofiled is not None
    within = math.sqrt(room**2 - sizes["profiler"] ** 2 - sizes["hosts"] ** 2)
    confidence = USUAL if side else SURE
    return Doubt.SPREAD, steps_enough(first.unprofiled, other.unprofiled, within, confidence)


def _recorded_ratio(first: SampledRun, other: SampledRun) -> float | None:
    """Step of the other run / that of the first, as recorded: means over the steps."""
    before, after = (_mean(run.parts.get(STEP)) for run in (first, other))
    return after / before if before and after else None


def _mean(samples: Samples | None) -> float | None:
    """Mean over the steps, µs, as every report of a step has it; None where not known."""
    return None if samples is None else fmean(samples.all)


def _ratio(first: SampledRun, other: SampledRun, confidence: float = USUAL) -> StepRatio | None:
    """Step of the other run / that of the first, without the profiler; None: not known."""
    if first.unprofiled is None or other.unprofiled is None:
        return None
    return step_ratio(first.unprofiled, other.unprofiled, confidence)


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
                *(
                    (None, None)
                    if r.unprofiled is None
                    else (ns / 1000 for ns in r.unprofiled.ends)
                ),
            )
            for r in runs
        ),
        tuple(p for p in parts if any(c.time_us is not None for c in p.cells)),
        tuple(_kernel_times(runs)),
    )


def _kernel_times(runs: Sequence[SampledRun]) -> Iterator[KernelComparison]:
    first = runs[0].kernels
    keys = sorted({key for run in runs for key in run.kernels})
    for key in sorted(keys, key=lambda k: -(_mean(first.get(k)) or 0.0)):
        times = [_mean(r.kernels.get(key)) for r in runs]
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
    if part == UNPROFILED:
        return _unprofiled_cell(first, run)
    before, after = (
        r.parts.get(part) if rank is None else r.of_rank.get((rank, part)) for r in (first, run)
    )
    old, new = _mean(before), _mean(after)
    if run is first or not old or not new:
        return PartCell(run.name, new, None, None, None)
    half = None
    if part == COMPUTE and before is not None and after is not None:
        half = _noise(before, after)
    ends = (
        (None, None) if half is None else (old / new / math.exp(half), old / new * math.exp(half))
    )
    return PartCell(run.name, new, old / new, *ends)


def _noise(before: Samples, after: Samples) -> float | None:
    """Half the 95 % interval of a logarithm: recordings differ as launches of a collective do."""
    if min(*before.all, *after.all) <= 0:
        return None
    (effect,) = effects([(before, after)])
    return effect.half_width()


def _unprofiled_cell(first: SampledRun, run: SampledRun) -> PartCell:
    time = None if run.unprofiled is None else run.unprofiled.middle / 1000
    found = None if run is first else _ratio(first, run)
    if found is None:
        return PartCell(run.name, time, None, None, None)
    return PartCell(run.name, time, 1 / found.middle, 1 / found.high, 1 / found.low)


def _notes(runs: Sequence[SampledRun]) -> Iterator[Note]:
    for run in runs:
        if not run.steps:
            yield NoSteps(run.name)
        if run.unsplit:
            yield NotSplit(run.name, run.unsplit, run.unsplit + len(run.label.classes))
        elif run.waits_unknown[0]:
            yield WaitsUnknown(run.name, *run.waits_unknown)
    groups = max(run.groups_inferred for run in runs)
    if groups:
        yield GroupsInferred(groups)
    ranks = tuple((run.name, (f"{len(run.ranks)} of {run.world_size or len(run.ranks)}",))
                  for run in runs)  # fmt: skip
    if len({v for _, v in ranks}) > 1:
        yield Unlike("rank count", ranks)
    if len({run.profiler for run in runs}) > 1:
        yield UnlikeProfilers(tuple((run.name, run.profiler) for run in runs))
    if len({run.digest for run in runs}) == 1:
        yield OneRecording()
    elif all(run.steps for run in runs):
        yield OneRecordingEach(max(run.host for run in runs))
