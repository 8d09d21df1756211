"""Which changes decide the verdict of `collscope check` (pure).

A change of one class alone may be chance, so the verdict needs two
neighbouring sizes of one curve, classes that carry a large share of the time together, one whose
change is sure and moves the total, or the share-weighted total.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from collscope.model import CollectiveClass
from collscope.reports.compare.notes import NoResult
from collscope.reports.tolerances import (
    DOMINANT_SHARE,
    MIN_DECIDABLE_SHARE,
    TOTAL_P,
    TOTAL_THRESHOLD,
    WIDEST_PERCENT,
)
from collscope.stats import Effect


class Verdict(Enum):
    """Outcome; `exit_code` is that of `collscope check`."""

    PASS = "pass"
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    NO_VERDICT = "no verdict"

    @property
    def exit_code(self) -> int:
        """0 for pass and improvement, 1 for regression, 4 for no verdict (DESIGN: exit codes)."""
        return {Verdict.REGRESSION: 1, Verdict.NO_VERDICT: 4}.get(self, 0)


class Reason(Enum):
    """What a verdict follows from."""

    BROKEN = "broken"  # wrong or failed, where the baseline is right
    CLASSES = "classes"  # changed classes that decide
    TOTAL = "total"  # the weighted total
    MISSING = "missing"  # too little was measured again
    BASELINE = "baseline"  # too little of the baseline is right
    NOISE = "noise"  # too little can be judged
    UNSURE = "unsure"  # the total moved, but not surely
    UNDECIDED = "undecided"  # classes changed, and none decides
    UNCHANGED = "unchanged"
    NO_RESULT = "no_result"  # a label has no right result
    NOT_CALLED = "not_called"  # the run calls none of the common classes
    NO_COMMON_RESULT = "no_common_result"  # no class is right with both labels
    NOTHING_COMMON = "nothing_common"
    IMPOSSIBLE = "impossible"  # every class is above what the system can do
    STEP = "step"  # the step of traced runs
    RANKS = "ranks"  # traced runs have different ranks, and only their steps compare


class Doubt(Enum):
    """Why a class cannot be judged."""

    UNKNOWN = "unknown"  # a single value of a label, so its noise is not known
    LAUNCHES = "launches"  # too few on a host's cores, which differ by any amount
    ASSUMED = "assumed"  # the noise between labels that did not take turns is too much
    SPREAD = "spread"  # its samples or rounds differ too much
    PROFILER = "profiler"  # of a step: what the profiler costs its hosts is not known
    HOSTS = "hosts"  # of a step: the hosts of two starts differ


class ComparedClass(msgspec.Struct, frozen=True):
    """One class of both labels, and whether it changed beyond threshold and noise."""

    key: CollectiveClass
    share: float  # of the baseline's time
    time_ns: float  # of the baseline
    effect: Effect
    threshold: float  # as an effect
    doubt: Doubt | None  # what keeps its interval too wide; None: narrow enough
    slower: bool
    faster: bool

    @property
    def seen(self) -> bool:
        """Whether the class was judged: it changed, or it did not."""
        return self.doubt is None or self.slower or self.faster


class MissingClasses(msgspec.Struct, frozen=True):
    """Classes of the baseline that the current label does not have."""

    keys: tuple[CollectiveClass, ...]  # heaviest first
    of: int  # classes of the baseline that count
    share: float  # of the baseline's time
    untimed: int = 0  # further classes, that the baseline itself has wrong or failed


class BrokenClasses(msgspec.Struct, frozen=True):
    """Classes that are wrong or failed in the current label."""

    label: str
    wrong: tuple[CollectiveClass, ...]
    failed: tuple[CollectiveClass, ...]  # ran out of time, or contradict themselves


class Noise(msgspec.Struct, frozen=True):
    """Too much noise: which doubt has most of the time that cannot be judged."""

    seen: float  # part of the baseline's time that can be judged
    doubt: Doubt
    classes: tuple[ComparedClass, ...]  # of that doubt
    resolution: (
        float | None
    )  # least at which enough could be judged; None: it is too wide to be of use


class JudgedStep(msgspec.Struct, frozen=True):
    """The step of two traced runs."""

    steps: tuple[tuple[str, int], tuple[str, int]]  # runs, and how many steps each has
    store: str  # that they are in
    recorded: float | None  # current / baseline, with the profiler; None: a run has no steps
    ratio: float | None  # current / baseline, without it; None: a run has no steps
    low: float | None  # its 95 % interval; None: noise not known
    high: float | None
    doubt: Doubt | None  # why it may be too much slower to pass; None: it is not
    # Steps of each run that would settle it; None: no number of steps does, or nothing is to settle
    enough: int | None
    slower: bool
    faster: bool
    same: bool = False  # both runs hold one recording
    threshold: float = TOTAL_THRESHOLD  # change beyond which it counts
    # Of runs with different ranks, those that lack some: name, traced ranks, ranks of the job
    lacking: tuple[tuple[str, int, int], ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """A verdict and what it follows from; empty and None: does not apply."""

    verdict: Verdict
    reason: Reason
    system: str | None = None
    no_results: tuple[NoResult, ...] = ()
    broken: BrokenClasses | None = None
    deciding: tuple[ComparedClass, ...] = ()
    judged: tuple[ComparedClass, ...] = ()
    total: Effect | None = None
    lost: MissingClasses | None = None
    noise: Noise | None = None
    step: JudgedStep | None = None


def decide(
    judged: Sequence[ComparedClass],
    total: Effect,
    matters: float,
    broken: BrokenClasses | None,
    lost: MissingClasses,
) -> Decision:
    """Verdict and its reason. What is broken or slower comes before everything else.

    matters  change of the total's logarithm beyond which it counts
    """
    found = _found(judged, total, matters, broken, lost)
    return replace(found, judged=tuple(judged), total=total, lost=lost)


def _found(  # noqa: PLR0911 - one for each reason
    judged: Sequence[ComparedClass],
    total: Effect,
    matters: float,
    broken: BrokenClasses | None,
    lost: MissingClasses,
) -> Decision:
    if broken is not None:
        return Decision(Verdict.REGRESSION, Reason.BROKEN, broken=broken)
    slower = _deciding(judged, changed_classes(judged, "slower"), matters)
    if slower:
        return Decision(Verdict.REGRESSION, Reason.CLASSES, deciding=tuple(slower))
    if total.log_ratio > matters and total.p_slower() < TOTAL_P:
        return Decision(Verdict.REGRESSION, Reason.TOTAL)
    too_little = _too_little(judged, lost)
    if too_little is not None:
        return too_little
    faster = _deciding(judged, changed_classes(judged, "faster"), matters)
    if faster:
        return Decision(Verdict.IMPROVEMENT, Reason.CLASSES, deciding=tuple(faster))
    if total.log_ratio < -matters and total.p_faster() < TOTAL_P:
        return Decision(Verdict.IMPROVEMENT, Reason.TOTAL)
    half = total.half_width()
    if half is not None and abs(total.log_ratio) > max(half, matters):
        return Decision(Verdict.PASS, Reason.UNSURE)
    changed = any(j.slower or j.faster for j in judged)
    return Decision(Verdict.PASS, Reason.UNDECIDED if changed else Reason.UNCHANGED)


def _too_little(judged: Sequence[ComparedClass], lost: MissingClasses) -> Decision | None:
    """No verdict, as too much is missing, or too noisy; None when there is enough."""
    covered = 1 - lost.share
    seen = sum(j.share for j in judged if j.seen)
    if covered <= MIN_DECIDABLE_SHARE or len(lost.keys) >= MIN_DECIDABLE_SHARE * lost.of:
        return Decision(Verdict.NO_VERDICT, Reason.MISSING)
    if len(lost.keys) + lost.untimed >= MIN_DECIDABLE_SHARE * (lost.of + lost.untimed):
        return Decision(Verdict.NO_VERDICT, Reason.BASELINE)
    if seen * covered < MIN_DECIDABLE_SHARE:
        noise = _noise(judged, covered, seen)
        return Decision(Verdict.NO_VERDICT, Reason.NOISE, noise=noise)
    return None


def _noise(judged: Sequence[ComparedClass], covered: float, seen: float) -> Noise:
    unseen = [j for j in judged if not j.seen]
    most = max(Doubt, key=lambda doubt: sum(j.share for j in unseen if j.doubt is doubt))
    theirs = tuple(j for j in unseen if j.doubt is most)
    return Noise(seen * covered, most, theirs, _enough_resolution(unseen, covered, seen))


def _enough_resolution(
    unseen: Sequence[ComparedClass], covered: float, seen: float
) -> float | None:
    """The resolution at which enough could be judged; None when it would be of no use."""
    for half, share in sorted(
        (half, j.share) for j in unseen if (half := j.effect.half_width()) is not None
    ):
        seen += share
        if seen * covered >= MIN_DECIDABLE_SHARE:
            return half if math.ceil(100 * math.expm1(half)) <= WIDEST_PERCENT else None
    return None


def changed_classes(judged: Sequence[ComparedClass], how: str) -> list[ComparedClass]:
    """The classes that are `slower` or `faster`."""
    return [j for j in judged if (j.slower if how == "slower" else j.faster)]


def _deciding(
    judged: Sequence[ComparedClass], changed: Sequence[ComparedClass], matters: float
) -> list[ComparedClass]:
    """Of the changed classes those that decide (docs/compare-and-check.md, condition 2).

    matters  effect of the weighted total beyond which one class alone decides, when it is sure
    """
    if sum(j.share for j in changed) >= DOMINANT_SHARE:
        return list(changed)
    curves: dict[CollectiveClass, list[CollectiveClass]] = defaultdict(list)
    for j in judged:
        curves[j.key.family].append(j.key)
    keys = {j.key for j in changed}
    found = []
    for j in changed:
        curve = sorted(curves[j.key.family], key=lambda key: key.size_bytes or 0)
        place = curve.index(j.key)
        neighbours = curve[max(place - 1, 0) : place] + curve[place + 1 : place + 2]
        if keys.intersection(neighbours) or (effect_on_total(j) > matters and _sure(j)):
            found.append(j)
    return found


def effect_on_total(j: ComparedClass) -> float:
    """Effect on the weighted total of this class alone."""
    return j.share * abs(j.effect.log_ratio)


def _sure(j: ComparedClass) -> bool:
    """Whether the whole interval of the effect lies beyond the threshold, not only beyond zero."""
    beyond = abs(j.effect.log_ratio) - j.threshold
    return replace(j.effect, log_ratio=beyond).p_slower() < TOTAL_P
