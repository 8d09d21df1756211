"""Which changes decide the verdict of `collscope check`, and the sentence that says why (pure).

A change of one class alone is an accident until shown otherwise: the verdict needs two
neighbouring sizes of one curve, classes that carry a large share of the time together, one whose
change is sure and moves the total, or the share-weighted total.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from collscope.analysis.labels import Key, called
from collscope.stats import ENOUGH_ROUNDS, Effect
from collscope.units import count, count_of, figure

TOTAL_THRESHOLD = 0.02  # effect of the weighted total that matters
TOTAL_P = 0.001  # probability at which the weighted total counts as changed
DOMINANT_SHARE = 0.2  # of the time: changed classes that carry it together decide
_NEEDED_SHARE = 0.5  # of the time must lie in classes whose noise allows a judgement
_WIDEST_PERCENT = 25  # resolution that is still worth its name
_NAMED = 3  # classes that a sentence names


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


class Doubt(Enum):
    """Why a class cannot be judged."""

    UNKNOWN = "a single value of a label, so its noise is not known"
    LAUNCHES = "too few launches on a host's cores, which differ by any amount"
    ASSUMED = "the noise assumed between labels that did not take turns is too much"
    SPREAD = "its samples or rounds differ too much"


@dataclass(frozen=True, slots=True)
class Judged:
    """One class of both labels, and whether it changed beyond threshold and noise."""

    key: Key
    share: float  # of the baseline's time
    time_us: float  # of the baseline
    effect: Effect
    threshold: float  # as an effect
    doubt: Doubt | None  # what keeps its interval too wide; None: narrow enough
    slower: bool
    faster: bool

    @property
    def seen(self) -> bool:
        """Whether the class says something: that it changed, or that it did not."""
        return self.doubt is None or self.slower or self.faster


@dataclass(frozen=True, slots=True)
class Lost:
    """Classes of the baseline that the current label does not have."""

    keys: tuple[Key, ...]  # heaviest first
    of: int  # classes of the baseline that count
    share: float  # of the baseline's time
    untimed: int = 0  # further classes, that the baseline itself has wrong or failed


def decide(
    judged: Sequence[Judged], total: Effect, floor: float, broken: str | None, lost: Lost
) -> tuple[Verdict, str]:
    """Verdict and its reason. What is broken or slower comes before everything else."""
    verdict, why = _found(judged, total, floor, broken, lost)
    if verdict is Verdict.REGRESSION:
        return verdict, why
    told = [why, *_undecided(judged, "slower")]
    if verdict is not Verdict.IMPROVEMENT:
        told += _undecided(judged, "faster")
    unseen = [j for j in judged if not j.seen]
    if unseen and verdict is not Verdict.NO_VERDICT:
        told.append(f"not judged: {_unseen(unseen, len(judged))}")
    if lost.keys and verdict is not Verdict.NO_VERDICT:
        told.append(f"missing: {_told(lost)}")
    return verdict, "; ".join(told)


def _found(
    judged: Sequence[Judged], total: Effect, floor: float, broken: str | None, lost: Lost
) -> tuple[Verdict, str]:
    if broken is not None:
        return Verdict.REGRESSION, broken
    matters = max(math.log1p(TOTAL_THRESHOLD), floor)
    percent = 100 * math.expm1(total.log_ratio)
    slower = _changed(judged, "slower", matters)
    if slower is None and total.log_ratio > matters and total.p_slower() < TOTAL_P:
        slower = f"the weighted total is {percent:.1f} % slower"
    if slower is not None:
        return Verdict.REGRESSION, slower
    too_little = _too_little(judged, lost)
    if too_little is not None:
        return Verdict.NO_VERDICT, too_little
    faster = _changed(judged, "faster", matters)
    if faster is None and total.log_ratio < -matters and total.p_faster() < TOTAL_P:
        faster = f"the weighted total is {-percent:.1f} % faster"
    if faster is not None:
        return Verdict.IMPROVEMENT, faster
    return Verdict.PASS, _unchanged(judged, total, matters)


def _unchanged(judged: Sequence[Judged], total: Effect, matters: float) -> str:
    """What a pass says: nothing at all, or nothing that decides."""
    percent = 100 * math.expm1(total.log_ratio)
    half = total.half_width()
    if half is not None and abs(total.log_ratio) > max(half, matters):
        return f"weighted total {percent:+.1f} %, which is not sure enough to decide by rule 4"
    if any(j.slower or j.faster for j in judged):
        return f"no change that decides; weighted total {percent:+.1f} %"
    return f"no change beyond the noise; weighted total {percent:+.1f} %"


def _undecided(judged: Sequence[Judged], how: str) -> list[str]:
    """Sentence on classes that changed without a verdict following from it, if there are any."""
    changed = sorted(_those(judged, how), key=_moved, reverse=True)
    if not changed:
        return []
    names = ", ".join(map(_name, changed[:_NAMED])) + ", …" * (len(changed) > _NAMED)
    verdict = "a regression" if how == "slower" else "an improvement"
    return [f"{_are(changed)} {how} alone: {names}; not enough for {verdict} by rule 4"]


def _too_little(judged: Sequence[Judged], lost: Lost) -> str | None:
    """Why there is no verdict, if so: too much is missing, or too noisy."""
    covered = 1 - lost.share
    seen = sum(j.share for j in judged if j.seen)
    if covered <= _NEEDED_SHARE or len(lost.keys) >= _NEEDED_SHARE * lost.of:
        return f"too little was measured again, missing: {_told(lost)}: measure them too"
    whole = lost.of + lost.untimed
    if len(lost.keys) + lost.untimed >= _NEEDED_SHARE * whole:
        return (
            f"the baseline has no right result of {lost.untimed} of its"
            f" {count(whole, 'class', 'classes')}: measure it again"
        )
    if seen * covered < _NEEDED_SHARE:
        return (
            f"only {100 * seen * covered:.0f} % of the time lies in classes whose noise allows a"
            f" judgement; {_remedy(judged, covered)}"
        )
    return None


def _unseen(unseen: Sequence[Judged], of: int) -> str:
    """Classes that cannot be judged, and what their noise hides."""
    widths = [half for j in unseen if (half := j.effect.half_width()) is not None]
    hides = f"hides a change of less than {_percent(max(widths))} %" if widths else "is not known"
    return (
        f"{count_of(len(unseen), of, 'class', 'classes')} with"
        f" {100 * sum(j.share for j in unseen):.1f} % of the time and up to"
        f" {figure(max(j.time_us for j in unseen))} us each, whose noise {hides}"
    )


def _remedy(judged: Sequence[Judged], covered: float) -> str:
    """Which doubt has most of the time, and what helps against it."""
    unseen = [j for j in judged if not j.seen]
    most = max(Doubt, key=lambda doubt: sum(j.share for j in unseen if j.doubt is doubt))
    theirs = [j for j in unseen if j.doubt is most]
    if most is Doubt.UNKNOWN:
        return (
            f"the noise of {count(len(theirs), 'class', 'classes')} is not known, with a single"
            " value of a label: measure more often, and read all runs under the same label"
        )
    if most is Doubt.LAUNCHES:
        return (
            f"on a host's cores fewer than {ENOUGH_ROUNDS} launches do not tell how much they"
            f" differ: measure in {ENOUGH_ROUNDS} rounds or more ('collscope replay --rounds')"
        )
    enough = _enough_resolution(judged, covered)
    wider = "" if enough is None else f", or settle for --resolution {enough}"
    if most is Doubt.SPREAD:
        return f"measure both in turns, in more rounds{wider}"
    return (
        f"{_unseen(theirs, len(judged))}, however often the labels are measured apart: measure"
        f" longer calls too, or both in turns ('collscope replay --variant'){wider}"
    )


def _enough_resolution(judged: Sequence[Judged], covered: float) -> int | None:
    """Least --resolution in % at which enough could be judged; None when that says too little."""
    seen = sum(j.share for j in judged if j.seen)
    for half, share in sorted(
        (half, j.share)
        for j in judged
        if not j.seen and (half := j.effect.half_width()) is not None
    ):
        seen += share
        if seen * covered >= _NEEDED_SHARE:
            return _percent(half) if _percent(half) <= _WIDEST_PERCENT else None
    return None


def _percent(effect: float) -> int:
    """Change in whole % that is not less than an effect."""
    return math.ceil(100 * math.expm1(effect))


def _told(lost: Lost) -> str:
    names = ", ".join(map(called, lost.keys[:_NAMED])) + ", …" * (len(lost.keys) > _NAMED)
    return (
        f"{len(lost.keys)} of the baseline's {count(lost.of, 'class', 'classes')} with"
        f" {100 * lost.share:.0f} % of its time ({names})"
    )


def _changed(judged: Sequence[Judged], how: str, matters: float) -> str | None:
    """What the changed classes that may decide amount to; None when there is none."""
    deciding = _deciding(judged, _those(judged, how), matters)
    if not deciding:
        return None
    return f"{_are(deciding)} {how}: {_name(max(deciding, key=_moved))}"


def _those(judged: Sequence[Judged], how: str) -> list[Judged]:
    return [j for j in judged if (j.slower if how == "slower" else j.faster)]


def _deciding(judged: Sequence[Judged], changed: Sequence[Judged], matters: float) -> list[Judged]:
    """Of the changed classes those that decide (docs/compare-and-check.md, rule 4).

    matters  effect of the weighted total beyond which one class alone decides, when it is sure
    """
    if sum(j.share for j in changed) >= DOMINANT_SHARE:
        return list(changed)
    curves: dict[tuple[str | int, ...], list[Key]] = defaultdict(list)
    for j in judged:
        curves[j.key.family].append(j.key)
    keys = {j.key for j in changed}
    found = []
    for j in changed:
        curve = sorted(curves[j.key.family], key=lambda key: key.size_bytes)
        place = curve.index(j.key)
        neighbours = curve[max(place - 1, 0) : place] + curve[place + 1 : place + 2]
        if keys.intersection(neighbours) or (_moved(j) > matters and _sure(j)):
            found.append(j)
    return found


def _moved(j: Judged) -> float:
    """Effect on the weighted total of this class alone."""
    return j.share * abs(j.effect.log_ratio)


def _sure(j: Judged) -> bool:
    """Whether the effect is beyond the threshold itself, not only beyond none."""
    beyond = abs(j.effect.log_ratio) - j.threshold
    return replace(j.effect, log_ratio=beyond).p_slower() < TOTAL_P


def _are(classes: Sequence[Judged]) -> str:
    return f"{count(len(classes), 'class', 'classes')} {'is' if len(classes) == 1 else 'are'}"


def _name(j: Judged) -> str:
    return f"{called(j.key)} takes {math.exp(j.effect.log_ratio):.2f} x the time"
