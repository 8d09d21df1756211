"""The verdict over two traced runs: their steps are the samples (pure)."""

from __future__ import annotations

import math

from msgspec.structs import replace

from collscope.reports.check.answer import (
    DEFAULT_RULES,
    Check,
    Rules,
    StepVerdict,
    check,
    control_floor,
)
from collscope.reports.check.verdict import (
    Decision,
    Doubt,
    JudgedStep,
    Reason,
    Verdict,
)
from collscope.reports.compare.notes import FewLaunches
from collscope.reports.compare.step_samples import STEP, SampledRun
from collscope.reports.compare.traced import mean, ratio_unprofiled, traced_notes, traced_parts
from collscope.timeline.tolerances import SURE, USUAL
from collscope.timeline.unprofiled import StepRatio, steps_enough

# Of a ratio of steps, by what adds most to its range.
_DOUBTS = {"profiler": Doubt.PROFILER, "hosts": Doubt.HOSTS, "starts": Doubt.ASSUMED}


def check_traced(
    baseline: SampledRun,
    current: SampledRun,
    *,
    control: SampledRun | None = None,
    rules: Rules = DEFAULT_RULES,
) -> Check:
    """Judge a run by another, with the gate of measurements: its classes, and its step.

    A slower step is a regression, and so are classes that fail the gate. Otherwise there is no
    verdict without enough steps.

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
        once_more = ratio_unprofiled(baseline, control)
        floor = control_floor([] if once_more is None else [math.log(once_more.middle)])
    step = _judge_step(baseline, current, rules, floor)
    kept = (n for n in found.notes if not isinstance(n, FewLaunches))
    return replace(
        found,
        decision=_decide(found.decision, step),
        notes=(*traced_notes((baseline, current)), *kept),
        traced=traced_parts((baseline, current)),
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
    reason = Reason.STEP
    if (
        verdict is not Verdict.REGRESSION
        and step.lacking
        and not any(c.seen for c in classes.judged)
    ):
        verdict, reason = Verdict.NO_VERDICT, Reason.RANKS
    return Decision(
        verdict, reason, step=step, judged=classes.judged, total=classes.total,
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
    usual, sure = ratio_unprofiled(baseline, current), ratio_unprofiled(baseline, current, SURE)
    if usual is None or sure is None:
        return JudgedStep(*about, None, None, None, Doubt.UNKNOWN, None, slower=False, faster=False)
    matters = max(math.log1p(rules.total), floor)
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
        *about, usual.middle, usual.low, usual.high, doubt, enough, slower=slower, faster=faster,
        threshold=rules.total, lacking=_lacking(baseline, current),
    )  # fmt: skip


def _lacking(*runs: SampledRun) -> tuple[tuple[str, int, int], ...]:
    """Runs without all ranks of their job; none where all runs have the same ranks."""
    if len({run.ranks for run in runs}) == 1:
        return ()
    return tuple(
        (run.name, len(run.ranks), run.world_size)
        for run in runs
        if run.world_size is not None and len(run.ranks) < run.world_size
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
    before, after = (mean(run.parts.get(STEP)) for run in (first, other))
    return after / before if before and after else None
