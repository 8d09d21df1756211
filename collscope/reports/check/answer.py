"""The verdict of `collscope check`: slower, faster, neither, or not known (pure).

A class counts as changed when its effect is beyond a threshold and survives false-discovery
control over all classes; `collscope.reports.check.verdict` derives the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated

import msgspec
from msgspec.structs import replace

from collscope.model import CollectiveClass
from collscope.reports.check.verdict import (
    BrokenClasses,
    ComparedClass,
    Decision,
    Doubt,
    MissingClasses,
    Reason,
    Verdict,
    decide,
)
from collscope.reports.compare.answer import TracedParts
from collscope.reports.compare.labels import Label, total_us
from collscope.reports.compare.notes import (
    ControlRaises,
    FewLaunches,
    Impossible,
    NoCounterpart,
    Note,
    OneCallEach,
    held_against,
    no_results,
    unlike,
    without_times,
)
from collscope.reports.tolerances import (
    DISCOVERY_RATE,
    FAR_CLASSES,
    FAR_RATIO,
    TOTAL_THRESHOLD,
)
from collscope.stats import (
    MAD_TO_SIGMA,
    Effect,
    Samples,
    discoveries,
    effects,
    weighted_total,
)

SCHEMA = "collscope.check/2"
# Outcomes of classes without a right result in the current label or in the baseline.
NO_TIME = ("wrong results", "failed", "baseline wrong", "baseline failed")
_OUTCOMES = ("slower", "faster", "same", "noisy", "unknown", *NO_TIME)


class ClassVerdict(msgspec.Struct, frozen=True):
    """One class of both labels."""

    key: CollectiveClass
    share: float | None  # of the baseline's time; None: a label has no right result
    baseline_ns: float | None  # median time; None: no right result
    current_ns: float | None  # median time; None: no right result
    # current time / baseline time, 1 or less is good; None: a label has no right result
    ratio: float | None
    low: float | None  # 95 % confidence interval of the ratio; None: the noise is not known
    high: float | None  # end of the interval
    threshold: float  # ratio beyond which a change matters
    # slower, faster, same, noisy, unknown (its noise); wrong results, failed: of the current label;
    # baseline wrong, baseline failed: there is no time to compare with
    outcome: Annotated[str, _OUTCOMES]
    paired: bool  # rounds were measured in turns and compared pair by pair


class StepVerdict(msgspec.Struct, frozen=True):
    """The step of two traced runs as judged."""

    recorded: float | None  # current / baseline, with the profiler; None: no steps
    ratio: float | None  # the same without it, with the middle of what it may cost; None: no steps
    low: float | None  # its 95 % interval: profiler overhead, run-to-run variation, noise of steps
    high: float | None  # None: the noise is not known
    outcome: Annotated[str, ("slower", "faster", "same", "unsure")]
    # Why it may be too much slower to pass. None: it is not; unknown: a single step, or none;
    # spread: of the steps; profiler: its overhead on the hosts is unknown; hosts: their speed
    # varies from run to run; assumed: the run-to-run variation of a step
    doubt: Annotated[str | None, (*(d.value for d in Doubt), None)]
    steps_enough: int | None  # steps of each run that would settle it; None: no number of them


class Check(msgspec.Struct, frozen=True):
    """Answer of `collscope check`."""

    decision: Decision
    baseline: str  # label or path
    current: str  # label or path
    classes_common: int  # classes that both have and that count
    classes_judged: int  # of these, changed or with little enough noise
    classes_missing: int  # of the baseline (and the run, if named) without a time in `current`
    total_ratio: float | None  # weighted: current time / baseline time
    total_low: float | None  # 95 % confidence interval of total_ratio; None: not known
    total_high: float | None  # of the same interval
    classes: tuple[ClassVerdict, ...]  # worst first
    impossible: tuple[Impossible, ...]  # values above what the links can do; needs a system
    notes: tuple[Note, ...]
    # of traced runs: their steps, and the parts of a step; None: measurements
    traced: TracedParts | None = None
    step: StepVerdict | None = None  # of traced runs
    schema: str = SCHEMA

    @property
    def verdict(self) -> Verdict:
        """The verdict of the decision."""
        return self.decision.verdict


class Rules(msgspec.Struct, frozen=True):
    """What the user sets."""

    threshold: float = 0.05  # slow-down of a class that matters
    # A class whose 95 % interval is wider than this cannot be judged; where the interval of traced
    # runs' step reaches beyond it, the step does not pass.
    resolution: float = 0.10
    total: float = TOTAL_THRESHOLD  # of the weighted total, and of traced runs' step


DEFAULT_RULES = Rules()


def check(
    baseline: Label,
    current: Label,
    *,
    weights: Mapping[CollectiveClass, int] | None = None,
    control: tuple[Label, Label] | None = None,
    rules: Rules = DEFAULT_RULES,
) -> Check:
    """Verdict over the classes that both labels have.

    weights  calls by class of the job that is guarded; without it those of the baseline's plan,
             else a class weighs the time of one call
    control  two measurements of the same thing: their differences raise the thresholds
    """
    without = no_results((baseline, current))
    if without:
        decision = Decision(Verdict.NO_VERDICT, Reason.NO_RESULT, no_results=without)
        return _nothing(baseline, current, decision)
    both = baseline.classes.keys() & current.classes.keys()
    times = _times(baseline, weights)
    common = sorted(k for k in both if times[k])
    broken = _broken(baseline, current)
    if not common:
        decision = Decision(Verdict.NO_VERDICT, Reason.NO_COMMON_RESULT)
        if broken is not None:
            decision = Decision(Verdict.REGRESSION, Reason.BROKEN, broken=broken)
        elif both:
            decision = Decision(Verdict.NO_VERDICT, Reason.NOT_CALLED)
        elif not baseline.measured & current.measured:
            decision = Decision(Verdict.NO_VERDICT, Reason.NOTHING_COMMON)
        return _nothing(baseline, current, decision)
    total_time = sum(times[k] for k in common)
    shares = [times[k] / total_time for k in common]
    pairs = [(baseline.classes[k].samples, current.classes[k].samples) for k in common]
    found = _believed(effects(pairs), baseline, current)
    floor = _control_floor(control)
    threshold = max(math.log1p(rules.threshold), floor)
    on_host = any("host" in label.circumstances["backend"] for label in (baseline, current))
    far = [0] * len(found) if on_host else _far(found)
    judged = _judge(common, shares, pairs, _EffectsToJudge(found, threshold, rules.resolution, far))
    total = weighted_total(found, shares)
    untimed = 0 if weights is not None else len(baseline.measured - baseline.classes.keys())
    lost = _lost(times, current, untimed)
    rows = [_row(j, baseline, current) for j in judged]
    rows.sort(key=lambda row: -(row.ratio or 0.0))
    half = total.half_width()
    return Check(
        decide(judged, total, max(math.log1p(rules.total), floor), broken, lost),
        baseline.name,
        current.name,
        len(common),
        sum(j.seen for j in judged),
        len(lost.keys),
        math.exp(total.log_ratio),
        None if half is None else math.exp(total.log_ratio - half),
        None if half is None else math.exp(total.log_ratio + half),
        (*_without_times(baseline, current, threshold), *rows),
        (),
        (
            *_weighing(baseline, weights),
            *_launches(judged),
            *_notes(baseline, current, len(common), floor),
        ),
    )


def _far(found: Sequence[Effect]) -> list[int]:
    """1 and -1 for single values that are slower, or faster, by more than any noise makes them.

    One class alone may be an outlier: several must agree, and none contradict.
    """
    bound = math.log(FAR_RATIO)
    far = [0 if e.error is not None or e.few else _sign(e.log_ratio, bound) for e in found]
    signs = set(far) - {0}
    return far if len(signs) == 1 and sum(map(abs, far)) >= FAR_CLASSES else [0] * len(far)


def _sign(effect: float, bound: float) -> int:
    return (effect > bound) - (effect < -bound)


def _believed(found: Sequence[Effect], *labels: Label) -> list[Effect]:
    """The effects; without an error for few launches on host cores.

    The assumed variation of launches holds for GPUs: on shared cores it may be many times larger.
    """
    if not any("host" in label.circumstances["backend"] for label in labels):
        return list(found)
    return [replace(e, error=None) if e.few else e for e in found]


def _times(
    baseline: Label, weights: Mapping[CollectiveClass, int] | None
) -> dict[CollectiveClass, float]:
    """Time of each class of the baseline in the job, over all ranks; without a job, of one call."""
    classes = baseline.classes
    if weights is not None:
        return {k: total_us(baseline, k, weights.get(k, 0)) for k in classes}
    known = _has_calls(baseline)
    return {k: total_us(baseline, k, (m.calls or 0) if known else 1) for k, m in classes.items()}


def _has_calls(label: Label) -> bool:
    calls = [m.calls for m in label.classes.values()]
    return None not in calls and any(calls)


def _weighing(baseline: Label, weights: Mapping[CollectiveClass, int] | None) -> Iterator[Note]:
    if weights is None and not _has_calls(baseline):
        yield OneCallEach()


def _launches(judged: Sequence[ComparedClass]) -> Iterator[Note]:
    """Note on labels with too few launches to know how launches differ."""
    few = sum(j.effect.few and j.effect.error is not None for j in judged)
    if few:
        yield FewLaunches(few, len(judged))


def _lost(times: Mapping[CollectiveClass, float], current: Label, untimed: int) -> MissingClasses:
    counting = {k: t for k, t in times.items() if t > 0}
    keys = sorted(counting.keys() - current.classes.keys(), key=lambda k: (-counting[k], k))
    share = sum(counting[k] for k in keys) / sum(counting.values())
    return MissingClasses(tuple(keys), len(counting), share, untimed)


def _broken(baseline: Label, current: Label) -> BrokenClasses | None:
    """Classes that are wrong or failed in the current label; None without any."""
    wrong = current.wrong - baseline.wrong
    failed = current.failed & (baseline.classes.keys() - baseline.failed)
    if not wrong and not failed:
        return None
    return BrokenClasses(current.name, tuple(sorted(wrong)), tuple(sorted(failed)))


def _control_floor(control: tuple[Label, Label] | None) -> float:
    """The effect that two measurements of the same thing can show."""
    if control is None:
        return 0.0
    first, second = control
    keys = sorted(first.classes.keys() & second.classes.keys())
    found = effects([(first.classes[k].samples, second.classes[k].samples) for k in keys])
    return control_floor(e.log_ratio for e in found)


def control_floor(log_ratios: Iterable[float]) -> float:
    """Three robust standard deviations of effects between measurements of the same thing."""
    sizes = [abs(ratio) for ratio in log_ratios]
    return 3 * MAD_TO_SIGMA * median(sizes) if sizes else 0.0


class _EffectsToJudge(msgspec.Struct, frozen=True):
    """Effects of the common classes, and the limits that they are compared with."""

    effects: Sequence[Effect]
    threshold: float  # as an effect
    resolution: float
    far: Sequence[int]  # result of `_far`


def _judge(
    keys: Sequence[CollectiveClass],
    shares: Sequence[float],
    pairs: Sequence[tuple[Samples, Samples]],
    found: _EffectsToJudge,
) -> list[ComparedClass]:
    slower = discoveries([e.p_slower() for e in found.effects], DISCOVERY_RATE)
    faster = discoveries([e.p_faster() for e in found.effects], DISCOVERY_RATE)
    return [
        ComparedClass(
            key,
            shares[k],
            pairs[k][0].time_ns,
            effect,
            found.threshold,
            _doubt_of(effect, math.log1p(found.resolution)),
            (slower[k] or found.far[k] > 0) and effect.log_ratio > found.threshold,
            (faster[k] or found.far[k] < 0) and effect.log_ratio < -found.threshold,
        )
        for k, (key, effect) in enumerate(zip(keys, found.effects, strict=True))
    ]


def _doubt_of(effect: Effect, widest: float) -> Doubt | None:
    """Why half the 95 % interval of an effect is wider than `widest`; None when it is not."""
    half = effect.half_width()
    if half is None:
        return Doubt.LAUNCHES if effect.few else Doubt.UNKNOWN
    if half <= widest:
        return None
    assumed = replace(effect, error=effect.shared, freedom=math.inf).half_width() or 0.0
    return Doubt.ASSUMED if assumed > widest else Doubt.SPREAD


def _row(j: ComparedClass, baseline: Label, current: Label) -> ClassVerdict:
    half = j.effect.half_width()
    if j.slower or j.faster:
        outcome = "slower" if j.slower else "faster"
    elif j.doubt is None:
        outcome = "same"
    else:
        outcome = "noisy" if j.effect.error is not None else "unknown"
    return ClassVerdict(
        j.key,
        j.share,
        baseline.classes[j.key].samples.time_ns,
        current.classes[j.key].samples.time_ns,
        math.exp(j.effect.log_ratio),
        None if half is None else math.exp(j.effect.log_ratio - half),
        None if half is None else math.exp(j.effect.log_ratio + half),
        math.exp(j.threshold),
        outcome,
        j.effect.paired,
    )


def _without_times(baseline: Label, current: Label, threshold: float) -> list[ClassVerdict]:
    """Rows of the classes whose results are wrong or failed in a label."""
    found = []
    for key in sorted(baseline.measured & current.measured):
        if key in baseline.classes and key in current.classes:
            continue
        outcome = f"baseline {baseline.status(key)}"
        if key in baseline.classes:
            outcome = "wrong results" if key in current.wrong else "failed"
        before, after = (
            label.classes[key].samples.time_ns if key in label.classes else None
            for label in (baseline, current)
        )
        found.append(
            ClassVerdict(
                key, None, before, after, None, None, None, math.exp(threshold), outcome,
                paired=False,
            )
        )  # fmt: skip
    return found


def _notes(baseline: Label, current: Label, common: int, floor: float) -> Iterator[Note]:
    if floor:
        yield ControlRaises(math.expm1(floor))
    yield from unlike((baseline, current))
    yield from held_against((baseline, current))
    for label in (baseline, current):
        yield from without_times(label)
        if len(label.classes) > common:
            yield NoCounterpart(label.name, len(label.classes) - common)


def _nothing(baseline: Label, current: Label, decision: Decision) -> Check:
    """No class has a time with both labels that counts."""
    return Check(
        decision, baseline.name, current.name, 0, 0, len(baseline.classes), None, None, None,
        tuple(_without_times(baseline, current, 0.0)), (),
        tuple(_notes(baseline, current, 0, 0.0)),
    )  # fmt: skip
