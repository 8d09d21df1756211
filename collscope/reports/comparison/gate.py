"""The verdict of `collscope check`: slower, faster, neither, or nobody can tell (pure).

A class counts as changed when its effect is beyond a threshold and survives false-discovery
control over all classes. A change of one class alone is an accident until shown otherwise: the
verdict needs two neighbouring sizes of one curve, a class that carries a large share of the time,
or the share-weighted total.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import NormalDist, median

from collscope.reports.comparison.measured import Key, Label, total_us, unlike
from collscope.reports.comparison.noise import Effect, discoveries, effects, weighted_total
from collscope.reports.layout import count

SCHEMA = "collscope.check/1"
DISCOVERY_RATE = 0.01  # of the classes called changed, expected to be called so wrongly
TOTAL_THRESHOLD = 0.02  # effect of the weighted total that matters
TOTAL_P = 0.001  # probability at which the weighted total counts as changed
DOMINANT_SHARE = 0.2  # of the time: such a class decides alone
_NEEDED_SHARE = 0.5  # of the time must lie in classes whose noise allows a judgement


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


@dataclass(frozen=True, slots=True)
class ClassVerdict:
    """One class of both labels."""

    key: Key
    share: float  # of the baseline's time
    baseline_us: float
    current_us: float
    ratio: float  # current time / baseline time, 1 or less is good
    low: float | None  # 95 % confidence interval of the ratio; None: the noise is not known
    high: float | None
    threshold: float  # ratio beyond which a change matters
    outcome: str  # slower, faster, same, noisy (cannot be judged), wrong results
    paired: bool


@dataclass(frozen=True, slots=True)
class Impossible:
    """A value above what any schedule over the system's links can reach; rates in GB/s."""

    label: str
    key: Key
    busbw_gbps: float
    limit_gbps: float
    why: str  # what sets the limit, and what it assumes


@dataclass(frozen=True, slots=True)
class Check:
    """Answer of `collscope check`."""

    verdict: Verdict
    why: str  # one sentence
    baseline: str
    current: str
    classes_common: int
    classes_judged: int  # of these, with little enough noise
    classes_missing: int  # of the baseline (and the run, if named) that `current` does not have
    total_ratio: float | None  # weighted: current time / baseline time
    total_low: float | None
    total_high: float | None
    classes: tuple[ClassVerdict, ...]  # worst first
    impossible: tuple[Impossible, ...]  # values above what the links can do; needs a system
    notes: tuple[str, ...]
    schema: str = SCHEMA


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user sets."""

    threshold: float = 0.05  # slow-down of a class that matters
    resolution: float = 0.10  # a class whose 95 % interval is wider than this cannot be judged


DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True)
class _Judged:
    key: Key
    share: float
    effect: Effect
    threshold: float  # as an effect
    resolvable: bool
    slower: bool
    faster: bool


def check(
    baseline: Label,
    current: Label,
    *,
    weights: Mapping[Key, int] | None = None,
    control: tuple[Label, Label] | None = None,
    rules: Rules = DEFAULT_RULES,
) -> Check:
    """Verdict over the classes that both labels have.

    weights  calls by class of the job that is guarded; without it those of the baseline's plan,
             else every class counts the same
    control  two measurements of one and the same thing: their differences raise the thresholds
    """
    both = baseline.classes.keys() & current.classes.keys()
    times = _times(baseline, weights)
    common = sorted(k for k in both if times[k])
    if not common:
        return _nothing(baseline, current, uncalled=bool(both))
    whole = sum(times[k] for k in common)
    shares = [times[k] / whole for k in common]
    pairs = [(baseline.classes[k].samples, current.classes[k].samples) for k in common]
    found = effects(pairs)
    floor = _control_floor(control)
    judged = _judge(common, shares, found, max(math.log1p(rules.threshold), floor), rules)
    total = weighted_total(found, shares)
    verdict, why = _decide(
        judged, total, floor, _broken(baseline, current), whole / sum(times.values())
    )
    rows = [_row(j, baseline, current) for j in judged]
    half = total.half_width()
    return Check(
        verdict,
        why,
        baseline.name,
        current.name,
        len(common),
        sum(j.resolvable for j in judged),
        sum(t > 0 for t in times.values()) - len(common),
        math.exp(total.log_ratio),
        None if half is None else math.exp(total.log_ratio - half),
        None if half is None else math.exp(total.log_ratio + half),
        tuple(sorted(rows, key=lambda row: -row.ratio)),
        (),
        tuple(_notes(baseline, current, len(common), floor)),
    )


def _times(baseline: Label, weights: Mapping[Key, int] | None) -> dict[Key, float]:
    """Time of each class of the baseline in the job, over all ranks; 1 each without calls."""
    classes = baseline.classes
    calls = {k: m.calls if weights is None else weights.get(k, 0) for k, m in classes.items()}
    if weights is None and (any(n is None for n in calls.values()) or not any(calls.values())):
        return dict.fromkeys(classes, 1.0)
    return {k: total_us(baseline, k, calls[k] or 0) for k in classes}


def _broken(baseline: Label, current: Label) -> str | None:
    """What the current label does not do at all, or wrongly; None when nothing."""
    wrong = sum(m.n_wrong > 0 for m in current.classes.values())
    failed = len(current.failed & (baseline.classes.keys() - baseline.failed))
    told = [f"{count(wrong, 'class', 'classes')} with wrong results"] if wrong else []
    told += (
        [f"{count(failed, 'class', 'classes')} that failed or ran out of time"] if failed else []
    )
    return f"'{current.name}' has {' and '.join(told)}" if told else None


def _control_floor(control: tuple[Label, Label] | None) -> float:
    """Effect that two measurements of the same thing reach: three robust standard deviations."""
    if control is None:
        return 0.0
    first, second = control
    keys = sorted(first.classes.keys() & second.classes.keys())
    found = effects([(first.classes[k].samples, second.classes[k].samples) for k in keys])
    if not found:
        return 0.0
    return 3 * median(abs(e.log_ratio) for e in found) / NormalDist().inv_cdf(0.75)


def _judge(
    keys: Sequence[Key],
    shares: Sequence[float],
    found: Sequence[Effect],
    threshold: float,
    rules: Rules,
) -> list[_Judged]:
    slower = discoveries([e.p_slower() for e in found], DISCOVERY_RATE)
    faster = discoveries([e.p_faster() for e in found], DISCOVERY_RATE)
    judged = []
    for k, key in enumerate(keys):
        half = found[k].half_width()
        judged.append(
            _Judged(
                key,
                shares[k],
                found[k],
                threshold,
                half is not None and half <= math.log1p(rules.resolution),
                slower[k] and found[k].log_ratio > threshold,
                faster[k] and found[k].log_ratio < -threshold,
            )
        )
    return judged


def _decide(
    judged: Sequence[_Judged], total: Effect, floor: float, broken: str | None, covered: float
) -> tuple[Verdict, str]:
    """Verdict and its reason. What is broken or slower comes before everything else.

    covered  part of the baseline's time that lies in classes which both labels have
    """
    if broken is not None:
        return Verdict.REGRESSION, broken
    matters = max(math.log1p(TOTAL_THRESHOLD), floor)
    slower = _changed(judged, [j for j in judged if j.slower], "slower")
    if slower is None and total.log_ratio > matters and total.p_slower() < TOTAL_P:
        slower = f"the weighted total is {100 * math.expm1(total.log_ratio):.1f} % slower"
    if slower is not None:
        return Verdict.REGRESSION, slower
    seen = sum(j.share for j in judged if j.resolvable)
    if seen * covered < _NEEDED_SHARE:
        return Verdict.NO_VERDICT, _too_little(seen, covered)
    faster = _changed(judged, [j for j in judged if j.faster], "faster")
    percent = 100 * math.expm1(total.log_ratio)
    if faster is None and total.log_ratio < -matters and total.p_faster() < TOTAL_P:
        faster = f"the weighted total is {-percent:.1f} % faster"
    if faster is not None:
        return Verdict.IMPROVEMENT, faster
    return Verdict.PASS, f"no change beyond the noise; weighted total {percent:+.1f} %"


def _too_little(seen: float, covered: float) -> str:
    """Why there is no verdict: of the time, `covered` was measured again, and of that `seen`
    is quiet enough.
    """
    if covered < _NEEDED_SHARE:
        return (
            f"classes with only {100 * covered:.0f} % of the baseline's time were measured again:"
            " measure the others too"
        )
    return (
        f"only {100 * seen * covered:.0f} % of the time lies in classes whose noise allows a"
        " judgement: measure more rounds"
    )


def _changed(judged: Sequence[_Judged], changed: Sequence[_Judged], how: str) -> str | None:
    """What the changed classes that may decide amount to; None when there is none."""
    deciding = list(_together(changed, judged))
    return f"{len(deciding)} classes are {how}: {_name(deciding)}" if deciding else None


def _together(changed: Sequence[_Judged], judged: Sequence[_Judged]) -> Iterator[_Judged]:
    """Of the changed classes those that may decide: dominant, or with a changed neighbour."""
    curves: dict[tuple[str | int, ...], list[Key]] = defaultdict(list)
    for j in judged:
        curves[j.key.family].append(j.key)
    keys = {j.key for j in changed}
    for j in changed:
        curve = sorted(curves[j.key.family], key=lambda key: key.size_bytes)
        place = curve.index(j.key)
        neighbours = curve[max(place - 1, 0) : place] + curve[place + 1 : place + 2]
        if j.share >= DOMINANT_SHARE or keys.intersection(neighbours):
            yield j


def _name(classes: Sequence[_Judged]) -> str:
    worst = max(classes, key=lambda j: j.share * abs(j.effect.log_ratio))
    key, ratio = worst.key, math.exp(worst.effect.log_ratio)
    return f"{key.op} of {key.size_bytes} B on {key.nranks} ranks takes {ratio:.2f} x the time"


def _row(j: _Judged, baseline: Label, current: Label) -> ClassVerdict:
    half = j.effect.half_width()
    if current.classes[j.key].n_wrong:
        outcome = "wrong results"
    elif j.slower or j.faster:
        outcome = "slower" if j.slower else "faster"
    else:
        outcome = "same" if j.resolvable else "noisy"
    return ClassVerdict(
        j.key,
        j.share,
        median(baseline.classes[j.key].samples.all),
        median(current.classes[j.key].samples.all),
        math.exp(j.effect.log_ratio),
        None if half is None else math.exp(j.effect.log_ratio - half),
        None if half is None else math.exp(j.effect.log_ratio + half),
        math.exp(j.threshold),
        outcome,
        j.effect.paired,
    )


def _notes(baseline: Label, current: Label, common: int, floor: float) -> Iterator[str]:
    if floor:
        yield f"the control raises thresholds to {100 * math.expm1(floor):.1f} %"
    yield from unlike((baseline, current))
    for label in (baseline, current):
        if label.left_out:
            yield f"{label.name}: {label.left_out} rows failed or have no time"
        if len(label.classes) > common:
            yield f"{label.name}: {len(label.classes) - common} classes have no counterpart"


def _nothing(baseline: Label, current: Label, *, uncalled: bool) -> Check:
    """Nothing to judge; `uncalled`: there are common classes, but the run calls none of them."""
    why = "the labels have no class in common"
    if uncalled:
        why = "none of the classes that the run calls was measured with both labels"
    return Check(
        Verdict.NO_VERDICT, why, baseline.name, current.name, 0, 0, len(baseline.classes),
        None, None, None, (), (), tuple(_notes(baseline, current, 0, 0.0)),
    )  # fmt: skip
