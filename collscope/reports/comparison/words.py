"""Comparisons and verdicts in words: the sentence of a verdict, and a sentence for each remark."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from collscope.analysis.notes import (
    ControlRaises,
    Coverage,
    Damaged,
    FewLaunches,
    GroupsInferred,
    HeldAgainst,
    Impossible,
    Mixed,
    NoCounterpart,
    NoResult,
    NoSteps,
    NotApplicable,
    Note,
    NotEverywhere,
    NotSplit,
    OneCallEach,
    OneRecording,
    OneRecordingEach,
    PlacesDiffer,
    SeveralNodes,
    Unlike,
    WaitsUnknown,
    Weighed,
    WithoutTime,
    WrongResults,
)
from collscope.analysis.verdict import (
    TOTAL_THRESHOLD,
    WIDEST,
    Broken,
    Decision,
    Doubt,
    Judged,
    JudgedStep,
    Lost,
    Noise,
    Reason,
    Verdict,
    moved,
    those,
)
from collscope.model import CollectiveClass, Gap
from collscope.reports.class_words import inferred_groups
from collscope.stats import ENOUGH_ROUNDS, LAUNCH_NOISE, Effect
from collscope.timeline.assumptions import HOST_STARTS, STARTS
from collscope.units import count, count_of, figure

_NAMED = 3  # classes that a sentence names
_FIRST_STEPS = 10  # of a recording whose noise is not known yet


GAPS = {
    Gap.SCALED: "measured on fewer ranks",
    Gap.NODES_DIFFER: "measured on another number of nodes",
    Gap.NODES_UNKNOWN: "the nodes are not known",
    Gap.SHAPE_UNKNOWN: "the shape is not known",
    Gap.PLACE_UNKNOWN: "in place or out of place is not known",
    Gap.DATATYPE_UNKNOWN: "the datatype is not known",
    Gap.REDOP_UNKNOWN: "the reduction is not known",
    Gap.ROOT_DIFFERS: "measured with another root",
    Gap.ROOT_UNKNOWN: "the root is not known",
}


def called(key: CollectiveClass) -> str:
    """A class in a sentence."""
    ranks = count(key.nranks, "rank") if key.nranks else "an unknown number of ranks"
    size = "unknown size" if key.size_bytes is None else f"{key.size_bytes} B"
    return f"{key.op.value} of {size} on {ranks}"


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
        return f"the step is {'slower' if step.slower else 'faster'}: {became}"
    if step.doubt is not None:
        slower = f"the step takes {became}, so it may be {100 * (step.high - 1):.0f} % slower"
        if step.low > 1 + TOTAL_THRESHOLD:
            slower = f"the step takes {became}: slower, but not surely enough to fail"
        return f"{slower}: {_step_remedy(step, few)}" if remedy else slower
    if not step.low <= 1 <= step.high:
        return (
            f"the step takes {became}, which is not surely a change by more than"
            f" {100 * TOTAL_THRESHOLD:.0f} %"
        )
    return f"no change of the step beyond the noise: {became}"


def _step_remedy(step: JudgedStep, few: str) -> str:
    """Why a step may be slower than the gate allows, and which recording tells whether it is."""
    (first, _), (other, _) = step.steps
    assert step.high is not None
    wider = math.ceil(100 * (step.high - 1))
    settle = f"; or settle for --resolution {wider}" * (wider <= WIDEST)
    if step.doubt is Doubt.SPREAD:
        if step.enough is None:
            return f"{few}, which differ too much for any number of steps to tell{settle}"
        return f"{few}, which differ; record {step.enough} steps of each run{settle}"
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


def without_profiler(
    runs: Sequence[tuple[str, float, float]], ratios: Sequence[tuple[float, float] | None]
) -> str:
    """What steps of traced runs may take without the profiler.

    runs    with the least and the most, ms; the first is the reference
    ratios  of the others' steps to the reference's, where known
    """
    (first, low, high), *others = runs
    told = ", ".join((
        f"a step of '{first}' may take {low:.1f} to {high:.1f} ms",
        *(f"one of '{run}' {low:.1f} to {high:.1f} ms" for run, low, high in others),
    ))  # fmt: skip
    against = "".join(
        f" With the noise of these steps, one of '{run}' takes {ratio[0]:.2f} to {ratio[1]:.2f} x"
        f" the time of one of '{first}'."
        for (run, _, _), ratio in zip(others, ratios, strict=True)
        if ratio is not None
    )
    return f"Without the profiler, and in another start, {told}.{against}"


def predict_command(store: str, first: str, other: str) -> str:
    """The command that compares two traced runs from the first's step without the profiler."""
    words = ["collscope", "predict", "--db", store, "--run", first, "--with", other]
    return f"{shlex.join(words)} --step-ms N"


def no_result_words(found: Sequence[NoResult]) -> str:
    """Labels without a single right result, and what they have."""
    told = []
    for label in found:
        kinds = [f"{count(label.wrong, 'class is', 'classes are')} wrong"] * bool(label.wrong)
        if label.failed:
            kinds.append(f"{count(label.failed, 'class', 'classes')} failed or ran out of time")
        told.append(f"'{label.label}' has no right result: {' and '.join(kinds)}")
    return "; ".join(told)


def _broken(broken: Broken) -> str:
    kinds = (
        ("with wrong results", broken.wrong),
        ("that failed or ran out of time", broken.failed),
    )
    told = [
        f"{count(len(keys), 'class', 'classes')} {what} ({called(keys[0])}"
        f"{', …' * (len(keys) > 1)})"
        for what, keys in kinds
        if keys
    ]
    return f"'{broken.label}' has {' and '.join(told)}"


def _changed(deciding: Sequence[Judged], how: str) -> str:
    return f"{_are(deciding)} {how}: {_name(max(deciding, key=moved))}"


def _undecided(judged: Sequence[Judged], how: str) -> list[str]:
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


def _unseen(unseen: Sequence[Judged], of: int) -> str:
    """Classes that cannot be judged, and what their noise hides."""
    widths = [half for j in unseen if (half := j.effect.half_width()) is not None]
    hides = f"hides a change of less than {_percent(max(widths))} %" if widths else "is not known"
    return (
        f"{count_of(len(unseen), of, 'class', 'classes')} with"
        f" {100 * sum(j.share for j in unseen):.1f} % of the time and up to"
        f" {figure(max(j.time_us for j in unseen))} us each, whose noise {hides}"
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
    names = ", ".join(map(called, lost.keys[:_NAMED])) + ", …" * (len(lost.keys) > _NAMED)
    return (
        f"{len(lost.keys)} of the baseline's {count(lost.of, 'class', 'classes')} with"
        f" {100 * lost.share:.0f} % of its time ({names})"
    )


def _are(classes: Sequence[Judged]) -> str:
    return f"{count(len(classes), 'class', 'classes')} {'is' if len(classes) == 1 else 'are'}"


def _name(j: Judged) -> str:
    return f"{called(j.key)} takes {math.exp(j.effect.log_ratio):.2f} x the time"


def note_words(note: Note) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each kind
    """A remark in a sentence."""
    match note:
        case Unlike(name, values):
            told = ", ".join(f"{k}: {'/'.join(v) or 'not known'}" for k, v in values)
            return f"{name} differs ({told})"
        case Mixed(name, values):
            kinds = "/".join(values)
            return f"every label mixes measurements with several values of {name} ({kinds})"
        case WrongResults(label, classes, first):
            return (
                f"{label}: {count(classes, 'class', 'classes')} with wrong results, so without a"
                " time"
                f" ({called(first)}{', …' * (classes > 1)})"
            )
        case WithoutTime(label, rows):
            has = "has" if rows == 1 else "have"
            return f"{label}: {count(rows, 'row')} failed or {has} no time"
        case NotEverywhere(label, classes, of):
            some = count_of(classes, of, "class", "classes")
            return f"{label}: {some} not measured with every label"
        case NoCounterpart(label, classes):
            alone = count(classes, "class", "classes")
            return f"{label}: {alone} that the other label has no time of"
        case PlacesDiffer(label, key, out, in_):
            return (
                f"{label}: {key.op.value} of {key.size_bytes} B takes {out:.1f} us out of place"
                f" and {in_:.1f} us in place ({out / in_:.2f} x): first touch, or an outlier"
            )
        case HeldAgainst(label, classes, gap):
            return f"{label}: {count(classes, 'class', 'classes')} compared although {GAPS[gap]}"
        case Weighed(run, calls, gap):
            return f"run {run}: {count(calls, 'call')} weighed although {GAPS[gap]}"
        case ControlRaises(threshold):
            return f"the control raises thresholds to {100 * threshold:.1f} %"
        case OneCallEach():
            return (
                "the number of calls is not known: each class counts as one call, as in a sweep"
                " that runs once; --weights takes the calls of a job"
            )
        case FewLaunches(classes, of):
            return (
                f"{count_of(classes, of, 'class', 'classes')} with fewer than {ENOUGH_ROUNDS}"
                f" launches (rounds) per label: how much launches differ is assumed, not measured;"
                f" measure {ENOUGH_ROUNDS} or more"
            )
        case Coverage():
            return _coverage(note)
        case NotApplicable(system, reason):
            return f"{system} does not apply, and nothing is compared with it: {reason}"
        case SeveralNodes():
            return (
                f"{note.nranks} ranks are more than the {note.gpus} GPUs of one {note.system}:"
                f" compared with {note.nodes} of them over {note.nics} x {note.network} each"
                + " (the nodes are not known)"
                * note.assumed
            )
        case Impossible(label, key, busbw, limit, reason):
            return (
                f"{label}: {called(key)} has {busbw:.4g} GB/s, which is impossible: the limit is"
                f" {limit:.4g} ({reason})"
            )
        case NoSteps(label):
            return (
                f"{label}: no step recurs in its traces, so its step is not known; each class has"
                " one sample, the whole window"
            )
        case NotSplit(label, classes, of):
            return (
                f"{label}: {count_of(classes, of, 'class', 'classes')} not compared, and waiting"
                " not summed: ranks or partners are missing in the traces, or their clocks cannot"
                " be compared, so waiting cannot be told from transfer"
            )
        case WaitsUnknown(label, kernels, of):
            some = count_of(kernels, of, "kernel of collectives", "kernels of collectives")
            return (
                f"{label}: the waiting in {some} in its steps is not known, so it is not summed:"
                " ranks or partners are missing in the traces, or their clocks cannot be compared"
            )
        case GroupsInferred(groups):
            return inferred_groups(groups)
        case OneRecording():
            return "both runs hold the same recording: every step and every transfer is equal"
        case OneRecordingEach(host):
            extra = (
                f"; of the hosts' pace {100 * HOST_STARTS:.0f} %, and the hosts bound up to"
                f" {100 * host:.0f} % of a step here"
            )
            return (
                "each run was recorded once: how much recordings of one job differ is assumed, not"
                f" measured: {100 * LAUNCH_NOISE:.0f} % of a transfer, {100 * STARTS:.0f} % of a"
                f" step{extra * (host >= 0.05)}"
            )
        case Damaged():
            where = "" if note.line is None else f" First at line {note.line}."
            return (
                f"{note.path}: {note.severity}: {note.count} x {note.code}: {note.message}{where}"
            )


def _coverage(note: Coverage) -> str:
    if not note.of:
        return f"run {note.run} has no calls of known size, so no class has a weight"
    calls, size = (
        "none" if part is None else f"{100 * part:.3g} %" for part in (note.calls, note.size)
    )
    return (
        f"run {note.run}: measured {count_of(note.classes, note.of, 'class', 'classes')}, {calls}"
        f" of its calls and {size} of their bytes; classes that it does not call have no weight"
    )
