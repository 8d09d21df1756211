"""A verdict in words: its reason, what it leaves out, and what was compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collscope.reports.check.answer import Check
from collscope.reports.check.verdict import (
    BrokenClasses,
    ComparedClass,
    Decision,
    Doubt,
    JudgedStep,
    MissingClasses,
    Noise,
    Reason,
    Verdict,
    changed_classes,
    effect_on_total,
)
from collscope.reports.compare.notes import NoResult
from collscope.reports.rendering.class_words import class_phrase
from collscope.reports.rendering.step_words import measure_steps
from collscope.reports.tolerances import WIDEST_PERCENT
from collscope.stats import ENOUGH_ROUNDS, Effect
from collscope.timeline.tolerances import HOST_STARTS, STARTS, SURE
from collscope.units import count, count_of, figure

_TOTAL = "All compared classes together, weighted by their time,"
_NAMED = 3  # classes that a sentence names
_SURE = f"{50 * (1 + SURE):g} %"  # on one side
_FIRST_STEPS = 10  # of a recording whose noise is not known yet


def why(decision: Decision) -> str:
    """Sentences on a verdict: its reason, and what it leaves out."""
    return " ".join(reasons(decision))


def reasons(decision: Decision) -> list[str]:
    """The same in paragraphs, one for each subject."""
    sentences = _head(decision)
    judged, step = decision.judged, decision.step
    if step is not None and step.same:
        return sentences
    if step is not None and decision.reason is not Reason.STEP:
        sentences += _on_step(step, remedy=decision.verdict is not Verdict.REGRESSION)
        if decision.verdict is Verdict.REGRESSION:
            sentences.append("Slower collectives fail the check even if the step is not slower.")
    elif step is not None and (step.slower or step.faster):
        how = "slower" if step.slower else "faster"
        changed = changed_classes(judged, how)
        if changed:
            sentences.append(_changed(changed, how))
    if decision.verdict is Verdict.REGRESSION:
        return sentences
    sentences += _undecided(judged, "slower")
    sentences += _faster(decision)
    unseen = [j for j in judged if not j.seen]
    if unseen and decision.verdict is not Verdict.NO_VERDICT:
        sentences.append(f"Not judged: {_not_judged(unseen, len(judged))}")
    lost = decision.lost
    if lost is not None and lost.keys and decision.verdict is not Verdict.NO_VERDICT:
        sentences.append(f"Missing: {_missing(lost)}.")
    return sentences


def _head(d: Decision) -> list[str]:
    if d.reason is Reason.STEP:
        assert d.step is not None
        return _on_step(d.step)
    return [_reason(d)]


def _reason(d: Decision) -> str:  # noqa: PLR0911 - one for each reason
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
            return f"Too little was measured again. Missing: {_missing(d.lost)}. Measure these too."
        case Reason.BASELINE:
            assert d.lost is not None
            classes = d.lost.of + d.lost.untimed
            return (
                f"The baseline has no right result for {d.lost.untimed} of its"
                f" {count(classes, 'class', 'classes')}. Measure it again."
            )
        case Reason.NOISE:
            assert d.noise is not None
            return (
                f"Only {100 * d.noise.seen:.0f} % of the time is in classes with noise low enough"
                f" to judge. {_remedy(d.noise, len(d.judged))}"
            )
        case Reason.NO_RESULT:
            return no_result_words(d.no_results)
        case Reason.IMPOSSIBLE:
            return (
                f"Every class is faster than {d.system} can be. The system, the ranks or the"
                " measurement is wrong."
            )
        case Reason.RANKS:
            assert d.step is not None
            return _ranks_lacking(d.step)
        case _:
            return _WITHOUT_CLASSES[d.reason]


def _ranks_lacking(step: JudgedStep) -> str:
    traces = " and ".join(f"'{run}' has {n} of {of} ranks" for run, n, of in step.lacking)
    return (
        f"Too little was measured: {traces}, and no class can be judged. Trace the same ranks of"
        " both runs, or all."
    )


_WITHOUT_CLASSES = {
    Reason.NOT_CALLED: "The run calls no class that was measured with both labels.",
    Reason.NO_COMMON_RESULT: "No class has right results with both labels.",
    Reason.NOTHING_COMMON: "The labels have no class in common.",
}


def _total(reason: Reason, total: Effect) -> str:
    percent = 100 * math.expm1(total.log_ratio)
    if reason is Reason.TOTAL:
        slower = percent > 0
        return f"{_TOTAL} are {abs(percent):.1f} % {'slower' if slower else 'faster'}."
    if reason is Reason.UNSURE:
        return f"{_TOTAL} changed by {percent:+.1f} %: not sure enough for a verdict."
    what = "large enough to decide" if reason is Reason.UNDECIDED else "beyond the noise"
    return f"No change is {what}."


def step_words(step: JudgedStep) -> str:
    """Sentences on the step of two traced runs: its change, or why that is unknown and a remedy."""
    return " ".join(_on_step(step))


def _on_step(  # noqa: PLR0911 - one for each outcome
    step: JudgedStep, *, remedy: bool = True
) -> list[str]:
    """What is known of the step, why that gives no verdict, and what to do about it."""
    (first, _), (other, _) = step.steps
    few = " and ".join(f"'{run}' has {count(steps, 'step')}" for run, steps in step.steps)
    if step.same:
        return ["Both runs hold the same recording, so nothing changed."]
    if step.ratio is None or step.low is None or step.high is None:
        return [
            f"The noise of the step is unknown: {few}. Record {_FIRST_STEPS} steps of each run."
        ]
    recorded = ""
    if step.recorded is not None and f"{step.recorded:.2f}" != f"{step.ratio:.2f}":
        recorded = f"; as recorded, {step.recorded:.2f} times"
    known = (
        f"Estimated without the profiler, a step of '{other}' takes {step.ratio:.2f} times as long"
        f" as a step of '{first}' (95 %: {step.low:.2f} to {step.high:.2f}){recorded}."
    )
    percent = f"{100 * step.threshold:g} %"
    if step.slower:
        return [f"The step is slower. {known} The limit is {percent} (--total-threshold)."]
    if step.faster:
        return [f"The step is faster. {known}"]
    if step.doubt is not None:
        doubt = f"may be up to {100 * (step.high - 1):.0f} % slower"
        if step.low > 1 + step.threshold:
            doubt = f"is slower, but a slowdown of more than {percent} is less than {_SURE} certain"
        if not remedy:
            return [f"{known} It {doubt}."]
        reason, todo = _step_remedy(step, few)
        return [known, f"No verdict: the step {doubt}. {reason}", *filter(None, (todo,))]
    if not step.low <= 1 <= step.high:
        return [f"{known} A change of more than {percent} is less than {_SURE} certain."]
    return [f"The step did not change beyond the noise. {known}"]


def _step_remedy(step: JudgedStep, few: str) -> tuple[str, str]:
    """Why a step may be slower than the gate allows, and which recording would decide it."""
    (first, _), (other, _) = step.steps
    assert step.high is not None
    wider = math.ceil(100 * (step.high - 1))
    accept = _accept(wider) if wider <= WIDEST_PERCENT else ""
    if step.doubt is Doubt.SPREAD:
        if step.enough is None:
            return f"{few}. Their noise is too large for any number of steps.", accept.lstrip()
        return (
            f"{few}, too few for their noise.",
            f"Record {step.enough} steps of each run.{accept}",
        )
    if step.doubt is Doubt.ASSUMED:
        return (
            f"Each recording has {100 * STARTS:.0f} % run-to-run variation, however many steps it"
            " has.",
            accept.lstrip(),
        )
    reason = "The largest uncertainty is the profiler's overhead on the hosts."
    if step.doubt is Doubt.HOSTS:
        reason = (
            "The largest uncertainty is host work, which varies by about"
            f" {100 * HOST_STARTS:.0f} % from run to run."
        )
    return (
        f"{reason} More steps would not help.",
        f"{measure_steps(step.store, first, other)}{accept}",
    )


def no_result_words(found: Sequence[NoResult]) -> str:
    """Labels without a single right result, and what they have."""
    sentences = []
    for label in found:
        kinds = [f"{count(label.wrong, 'class is', 'classes are')} wrong"] * bool(label.wrong)
        if label.failed:
            kinds.append(f"{count(label.failed, 'class has', 'classes have')} no time")
        sentences.append(f"'{label.label}' has no right result: {' and '.join(kinds)}.")
    return " ".join(sentences)


def _broken(broken: BrokenClasses) -> str:
    kinds = (
        ("with wrong results", broken.wrong),
        ("without a time", broken.failed),
    )
    classes = [
        f"{count(len(keys), 'class', 'classes')} {what} ({class_phrase(keys[0])}"
        f"{', …' * (len(keys) > 1)})"
        for what, keys in kinds
        if keys
    ]
    return f"'{broken.label}' has {' and '.join(classes)}."


def _changed(deciding: Sequence[ComparedClass], how: str) -> str:
    first = ":" if len(deciding) == 1 else ". Largest effect:"
    largest = max(deciding, key=effect_on_total)
    return f"{_count_and_verb(deciding)} {how}{first} {_change_of_class(largest)}."


def _undecided(judged: Sequence[ComparedClass], how: str) -> list[str]:
    """Sentences on classes that changed without a verdict following from it, if there are any."""
    changed = sorted(changed_classes(judged, how), key=effect_on_total, reverse=True)
    if not changed:
        return []
    names = ", ".join(map(_change_of_class, changed[:_NAMED])) + ", …" * (len(changed) > _NAMED)
    verdict = "a regression" if how == "slower" else "an improvement"
    alone = "This alone is" if len(changed) == 1 else "These alone are"
    return [f"{_count_and_verb(changed)} {how}: {names}. {alone} not enough for {verdict}."]


def _faster(decision: Decision) -> list[str]:
    """Sentence on classes that are faster, where that is no improvement."""
    faster = changed_classes(decision.judged, "faster")
    if not faster or decision.verdict is Verdict.IMPROVEMENT:
        return []
    if decision.step is not None and decision.verdict is Verdict.NO_VERDICT:
        # The classes may be enough for an improvement: what is in doubt is the step.
        return [_changed(faster, "faster")]
    return _undecided(decision.judged, "faster")


def _not_judged(unseen: Sequence[ComparedClass], of: int) -> str:
    """Classes that cannot be judged, and what their noise hides; ends a sentence."""
    widths = [half for j in unseen if (half := j.effect.half_width()) is not None]
    hides = f"hides changes of less than {_percent(max(widths))} %" if widths else "is unknown"
    return (
        f"{count_of(len(unseen), of, 'class', 'classes')} with"
        f" {100 * sum(j.share for j in unseen):.1f} % of the time and up to"
        f" {figure(max(j.time_ns for j in unseen) / 1000)} us each. Their noise {hides}."
    )


def _remedy(noise: Noise, of: int) -> str:
    """What helps against the doubt that has most of the time."""
    if noise.doubt is Doubt.UNKNOWN:
        return (
            f"The noise of {count(len(noise.classes), 'class', 'classes')} is unknown, because a"
            " label has a single value. Measure more often, and read all runs under the same label."
        )
    if noise.doubt is Doubt.LAUNCHES:
        return (
            f"On host cores, fewer than {ENOUGH_ROUNDS} launches do not show how much launches"
            f" differ. Measure in {ENOUGH_ROUNDS} rounds or more ('collscope replay --rounds')."
        )
    accept = "" if noise.resolution is None else _accept(_percent(noise.resolution))
    if noise.doubt is Doubt.SPREAD:
        return f"Measure both labels in turns, in more rounds.{accept}"
    return (
        f"Too noisy: {_not_judged(noise.classes, of)} Measuring the labels separately more often"
        " does not help. Measure longer calls too, or both labels in turns ('collscope replay"
        f" --variant').{accept}"
    )


def _accept(percent: int) -> str:
    """How to let the check pass a change of this size that noise may hide; follows a sentence."""
    return f" Or accept that uncertainty with --resolution {percent}."


def _percent(effect: float) -> int:
    """An effect as a change in whole %, rounded up."""
    return math.ceil(100 * math.expm1(effect))


def _missing(lost: MissingClasses) -> str:
    names = ", ".join(map(class_phrase, lost.keys[:_NAMED])) + ", …" * (len(lost.keys) > _NAMED)
    return (
        f"{len(lost.keys)} of the baseline's {count(lost.of, 'class', 'classes')} with"
        f" {100 * lost.share:.0f} % of its time ({names})"
    )


def _count_and_verb(classes: Sequence[ComparedClass]) -> str:
    return f"{count(len(classes), 'class', 'classes')} {'is' if len(classes) == 1 else 'are'}"


def _change_of_class(j: ComparedClass) -> str:
    return f"{class_phrase(j.key)} takes {math.exp(j.effect.log_ratio):.2f} times as long"


def scope_words(check: Check) -> str:
    """How many classes were compared, and the change of their weighted total."""
    if check.traced is not None and not check.classes_common:
        return (
            f"'{check.baseline}' and '{check.current}' have no class in common with a known"
            " transfer time. Only the step was judged."
        )
    are = "is" if check.classes_judged == 1 else "are"
    text = (
        f"Compared {count(check.classes_common, 'class', 'classes')} of '{check.baseline}' and"
        f" '{check.current}'; {check.classes_judged} {are} precise enough to judge."
    )
    missing = f" {check.classes_missing} of the baseline are missing." * bool(check.classes_missing)
    if check.total_ratio is None:
        return text + missing
    interval = ""
    if check.total_low is not None and check.total_high is not None:
        interval = f" (95 %: {check.total_low:.3f} to {check.total_high:.3f})"
    together = _TOTAL
    if check.traced is not None:
        together = "All their transfers together, weighted by time and without waiting,"
    return f"{text}{missing} {together} take {check.total_ratio:.3f} times as long{interval}."
