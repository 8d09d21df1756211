"""A verdict in words: what it follows from, what it leaves out, and what was looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collscope.reports.check.answer import Check
from collscope.reports.check.verdict import (
    Broken,
    ComparedClass,
    Decision,
    Doubt,
    JudgedStep,
    Lost,
    Noise,
    Reason,
    Verdict,
    moved,
    those,
)
from collscope.reports.compare.notes import NoResult
from collscope.reports.rendering.class_words import class_phrase
from collscope.reports.rendering.step_words import predict_command
from collscope.reports.tolerances import WIDEST_PERCENT
from collscope.stats import ENOUGH_ROUNDS, Effect
from collscope.timeline.tolerances import HOST_STARTS, STARTS
from collscope.units import count, count_of, figure

_NAMED = 3  # classes that a sentence names
_FIRST_STEPS = 10  # of a recording whose noise is not known yet


def why(decision: Decision) -> str:
    """The sentence of a verdict: what it follows from, and what it leaves out."""
    told = [_head(decision)]
    judged, step = decision.judged, decision.step
    if step is not None and step.same:
        return told[0]
    if step is not None and decision.reason is not Reason.STEP:
        told.append(step_words(step, remedy=decision.verdict is not Verdict.REGRESSION))
        if decision.verdict is Verdict.REGRESSION:
            told.append("slower collectives fail the check even where the step is not slower")
    elif step is not None and (step.slower or step.faster):
        how = "slower" if step.slower else "faster"
        changed = those(judged, how)
        if changed:
            told.append(_changed(changed, how))
    if decision.verdict is Verdict.REGRESSION:
        return "; ".join(told)
    told += _undecided(judged, "slower")
    told += _faster(decision)
    unseen = [j for j in judged if not j.seen]
    if unseen and decision.verdict is not Verdict.NO_VERDICT:
        told.append(f"not judged: {_unseen(unseen, len(judged))}")
    lost = decision.lost
    if lost is not None and lost.keys and decision.verdict is not Verdict.NO_VERDICT:
        told.append(f"missing: {_lost(lost)}")
    return "; ".join(told)


def _head(d: Decision) -> str:  # noqa: PLR0911 - one for each reason
    match d.reason:
        case Reason.BROKEN:
            assert d.broken is not None
            return _broken(d.broken)
        case Reason.CLASSES:
            return _changed(d.deciding, "slower" if d.verdict is Verdict.REGRESSION else "faster")
        case Reason.TOTAL | Reason.UNSURE | Reason.UNDECIDED | Reason.UNCHANGED:
            assert d.total is not None
            return _total(d.reason, d.total)
        case Reason.MISSING:
            assert d.lost is not None
            return f"too little was measured again; missing are {_lost(d.lost)}; measure these too"
        case Reason.BASELINE:
            assert d.lost is not None
            whole = d.lost.of + d.lost.untimed
            return (
                f"the baseline has no right result for {d.lost.untimed} of its"
                f" {count(whole, 'class', 'classes')}: measure it again"
            )
        case Reason.NOISE:
            assert d.noise is not None
            return (
                f"only {100 * d.noise.seen:.0f} % of the time is in classes whose noise is low"
                f" enough to judge; {_remedy(d.noise, len(d.judged))}"
            )
        case Reason.NO_RESULT:
            return no_result_words(d.no_results)
        case Reason.IMPOSSIBLE:
            return (
                f"every class is above what {d.system} can do: wrong system, ranks or measurement"
            )
        case Reason.STEP:
            assert d.step is not None
            return step_words(d.step)
        case _:
            return _WITHOUT_CLASSES[d.reason]


_WITHOUT_CLASSES = {
    Reason.NOT_CALLED: "none of the classes that the run calls was measured with both labels",
    Reason.NO_COMMON_RESULT: "no class has right results with both labels",
    Reason.NOTHING_COMMON: "the labels have no class in common",
}


def _total(reason: Reason, total: Effect) -> str:
    percent = 100 * math.expm1(total.log_ratio)
    if reason is Reason.TOTAL:
        slower = percent > 0
        return f"the weighted total is {abs(percent):.1f} % {'slower' if slower else 'faster'}"
    if reason is Reason.UNSURE:
        return f"weighted total {percent:+.1f} %, which is not sure enough for a verdict"
    what = "large enough to decide" if reason is Reason.UNDECIDED else "beyond the noise"
    return f"no change {what}; weighted total {percent:+.1f} %"


def step_words(step: JudgedStep, *, remedy: bool = True) -> str:
    """The step of two traced runs: how it changed, or why that is not known and what would tell."""
    few = " and ".join(f"'{run}' has {count(steps, 'step')}" for run, steps in step.steps)
    if step.same:
        return "both runs hold the same recording, so nothing changed"
    if step.ratio is None or step.low is None or step.high is None:
        return f"the noise of the step is not known: {few}; record {_FIRST_STEPS} steps of each run"
    recorded = ""
    if step.recorded is not None and f"{step.recorded:.2f}" != f"{step.ratio:.2f}":
        recorded = f"; {step.recorded:.2f} x as recorded with the profiler"
    became = f"{step.ratio:.2f} x the time (95 %: {step.low:.2f} to {step.high:.2f}{recorded})"
    if step.slower or step.faster:
        limit = f"; --total-threshold is {100 * step.threshold:g} %" * step.slower
        return f"the step is {'slower' if step.slower else 'faster'}: {became}{limit}"
    if step.doubt is not None:
        slower = f"the step takes {became}, so it may be {100 * (step.high - 1):.0f} % slower"
        if step.low > 1 + step.threshold:
            slower = f"the step takes {became}: slower, but not surely enough to fail"
        return f"{slower}: {_step_remedy(step, few)}" if remedy else slower
    if not step.low <= 1 <= step.high:
        return (
            f"the step takes {became}, which is not surely a change by more than"
            f" {100 * step.threshold:g} %"
        )
    return f"no change of the step beyond the noise: {became}"


def _step_remedy(step: JudgedStep, few: str) -> str:
    """Why a step may be slower than the gate allows, and which recording tells whether it is."""
    (first, _), (other, _) = step.steps
    assert step.high is not None
    wider = math.ceil(100 * (step.high - 1))
    settle = f"; or settle for --resolution {wider}" * (wider <= WIDEST_PERCENT)
    if step.doubt is Doubt.SPREAD:
        if step.enough is None:
            return f"{few}, whose noise is too much for any number of them to tell{settle}"
        return f"{few}, too few for their noise; record {step.enough} steps of each run{settle}"
    if step.doubt is Doubt.ASSUMED:
        return (
            f"two recordings of one setting differ by {100 * STARTS:.0f} % each, however many"
            f" steps they have{settle}"
        )
    why = "what the profiler costs the hosts is not known"
    if step.doubt is Doubt.HOSTS:
        why = (
            "the hosts bound the step, and those of two starts differ by about"
            f" {100 * HOST_STARTS:.0f} %"
        )
    return (
        f"{why}; more steps would not tell; measure the step of both without the profiler, in"
        f" several starts ('{predict_command(step.store, first, other)}', with that of '{first}',"
        f" tells what the collectives of '{other}' change){settle}"
    )


def no_result_words(found: Sequence[NoResult]) -> str:
    """Labels without a single right result, and what they have."""
    told = []
    for label in found:
        kinds = [f"{count(label.wrong, 'class is', 'classes are')} wrong"] * bool(label.wrong)
        if label.failed:
            kinds.append(f"{count(label.failed, 'class', 'classes')} without a time")
        told.append(f"'{label.label}' has no right result: {' and '.join(kinds)}")
    return "; ".join(told)


def _broken(broken: Broken) -> str:
    kinds = (
        ("with wrong results", broken.wrong),
        ("without a time", broken.failed),
    )
    told = [
        f"{count(len(keys), 'class', 'classes')} {what} ({class_phrase(keys[0])}"
        f"{', …' * (len(keys) > 1)})"
        for what, keys in kinds
        if keys
    ]
    return f"'{broken.label}' has {' and '.join(told)}"


def _changed(deciding: Sequence[ComparedClass], how: str) -> str:
    return f"{_are(deciding)} {how}: {_name(max(deciding, key=moved))}"


def _undecided(judged: Sequence[ComparedClass], how: str) -> list[str]:
    """Sentence on classes that changed without a verdict following from it, if there are any."""
    changed = sorted(those(judged, how), key=moved, reverse=True)
    if not changed:
        return []
    names = ", ".join(map(_name, changed[:_NAMED])) + ", …" * (len(changed) > _NAMED)
    verdict = "a regression" if how == "slower" else "an improvement"
    enough = "is by itself" if len(changed) == 1 else "are by themselves"
    return [f"{_are(changed)} {how}: {names}, which {enough} not enough for {verdict}"]


def _faster(decision: Decision) -> list[str]:
    """Sentence on classes that are faster, where that is no improvement."""
    faster = those(decision.judged, "faster")
    if not faster or decision.verdict is Verdict.IMPROVEMENT:
        return []
    if decision.step is not None and decision.verdict is Verdict.NO_VERDICT:
        # The classes may be enough for an improvement: what is in doubt is the step.
        return [_changed(faster, "faster")]
    return _undecided(decision.judged, "faster")


def _unseen(unseen: Sequence[ComparedClass], of: int) -> str:
    """Classes that cannot be judged, and what their noise hides."""
    widths = [half for j in unseen if (half := j.effect.half_width()) is not None]
    hides = f"hides a change of less than {_percent(max(widths))} %" if widths else "is not known"
    return (
        f"{count_of(len(unseen), of, 'class', 'classes')} with"
        f" {100 * sum(j.share for j in unseen):.1f} % of the time and up to"
        f" {figure(max(j.time_ns for j in unseen) / 1000)} us each, whose noise {hides}"
    )


def _remedy(noise: Noise, of: int) -> str:
    """What helps against the doubt that has most of the time."""
    if noise.doubt is Doubt.UNKNOWN:
        return (
            f"the noise of {count(len(noise.classes), 'class', 'classes')} is not known, because a"
            " label has a single value: measure more often, and read all runs under the same"
            " label"
        )
    if noise.doubt is Doubt.LAUNCHES:
        return (
            f"on a host's cores fewer than {ENOUGH_ROUNDS} launches do not show how much they"
            f" differ: measure in {ENOUGH_ROUNDS} rounds or more ('collscope replay --rounds')"
        )
    wider = ""
    if noise.resolution is not None:
        wider = f", or settle for --resolution {_percent(noise.resolution)}"
    if noise.doubt is Doubt.SPREAD:
        return f"measure both in turns, in more rounds{wider}"
    return (
        f"{_unseen(noise.classes, of)}, however often the labels are measured apart: measure"
        f" longer calls too, or both in turns ('collscope replay --variant'){wider}"
    )


def _percent(effect: float) -> int:
    """An effect as a change in whole %, rounded up."""
    return math.ceil(100 * math.expm1(effect))


def _lost(lost: Lost) -> str:
    names = ", ".join(map(class_phrase, lost.keys[:_NAMED])) + ", …" * (len(lost.keys) > _NAMED)
    return (
        f"{len(lost.keys)} of the baseline's {count(lost.of, 'class', 'classes')} with"
        f" {100 * lost.share:.0f} % of its time ({names})"
    )


def _are(classes: Sequence[ComparedClass]) -> str:
    return f"{count(len(classes), 'class', 'classes')} {'is' if len(classes) == 1 else 'are'}"


def _name(j: ComparedClass) -> str:
    return f"{class_phrase(j.key)} takes {math.exp(j.effect.log_ratio):.2f} x the time"


def scope_words(check: Check) -> str:
    """How many classes were looked at, and what all of them together took."""
    if check.traced is not None and not check.classes_common:
        return (
            f"'{check.baseline}' and '{check.current}' have no class in common whose transfer is"
            " known, so only the step was judged."
        )
    text = (
        f"Looked at {count(check.classes_common, 'class', 'classes')} that '{check.baseline}' and"
        f" '{check.current}' have in common; {check.classes_judged} can be judged"
    )
    missing = f"; {check.classes_missing} of the baseline are missing" * bool(check.classes_missing)
    if check.total_ratio is None:
        return text + missing + "."
    interval = ""
    if check.total_low is not None and check.total_high is not None:
        interval = f" (95 %: {check.total_low:.3f} to {check.total_high:.3f})"
    return f"{text}{missing}; weighted total: {check.total_ratio:.3f} x the time{interval}."
