"""A sentence for each remark on a comparison or a verdict."""

from __future__ import annotations

from collscope.model import Gap
from collscope.reports.compare.notes import (
    ControlRaises,
    Damaged,
    FewLaunches,
    GroupsInferred,
    HeldAgainst,
    Impossible,
    Mixed,
    NoCounterpart,
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
    UnlikeProfilers,
    WaitsUnknown,
    Weighed,
    WeightsCoverage,
    WithoutTime,
    WrongResults,
)
from collscope.reports.rendering.class_words import class_phrase, inferred_groups
from collscope.stats import ENOUGH_ROUNDS, LAUNCH_NOISE
from collscope.timeline.tolerances import HOST_STARTS, STARTS
from collscope.units import count, count_of

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


_RECORDED = {
    "light": "GPU activities", "full": "CPU and GPU activities", "other": "by another profiler",
}  # fmt: skip


def note_sentence(note: Note) -> str:
    """The same with its full stop, as a line of its own."""
    words = note_words(note)
    return words if words.endswith((".", ":")) else f"{words}."


def note_words(note: Note) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each kind
    """A remark in a sentence."""
    match note:
        case Unlike(name, values):
            listed = ", ".join(f"{k}: {'/'.join(v) or 'not known'}" for k, v in values)
            return f"{name} differs ({listed})"
        case Mixed(name, values):
            kinds = "/".join(values)
            return f"every label mixes measurements with several values of {name} ({kinds})"
        case WrongResults(label, classes, first):
            return (
                f"{label}: {count(classes, 'class', 'classes')} with wrong results, so "
                f"without a time ({class_phrase(first)}{', …' * (classes > 1)})"
            )
        case WithoutTime(label, rows):
            has = "has" if rows == 1 else "have"
            return f"{label}: {count(rows, 'row')} failed or {has} no time"
        case NotEverywhere(label, classes, of):
            some = count_of(classes, of, "class", "classes")
            return f"{label}: {some} not in every other label or run"
        case NoCounterpart(label, classes):
            alone = count(classes, "class", "classes")
            are = "is" if classes == 1 else "are"
            return f"{alone} {are} only in '{label}'"
        case PlacesDiffer(label, key, out, in_):
            return (
                f"{label}: {key.op.value} of {key.size_bytes} B takes {out / 1000:.1f} us out of"
                f" place and {in_ / 1000:.1f} us in place (ratio {out / in_:.2f}): first use of"
                " the buffer, or an outlier"
            )
        case HeldAgainst(label, classes, gap):
            return f"{label}: {count(classes, 'class', 'classes')} compared although {GAPS[gap]}"
        case Weighed(run, calls, gap):
            return f"run {run}: {count(calls, 'call')} weighted although {GAPS[gap]}"
        case ControlRaises(threshold):
            return f"the control raises thresholds to {100 * threshold:.1f} %"
        case OneCallEach():
            return (
                "the number of calls is not known: each class counts as one call, as in a "
                "sweep that runs once. --weights uses the calls of a job"
            )
        case FewLaunches(classes, of):
            return (
                f"{count_of(classes, of, 'class', 'classes')} with fewer than {ENOUGH_ROUNDS} "
                "launches (rounds) per label: the variation between launches is assumed, not "
                f"measured. Measure {ENOUGH_ROUNDS} or more"
            )
        case WeightsCoverage():
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
                f"{label}: {class_phrase(key)} has {busbw:.4g} GB/s, which is impossible:"
                f" the limit is {limit:.4g} ({reason})"
            )
        case NoSteps(label):
            return (
                f"{label}: no step recurs in its traces, so its step is not known. Each "
                "class has one sample, the whole window"
            )
        case NotSplit(label, classes, of):
            return (
                f"{label}: {count_of(classes, of, 'class', 'classes')} not compared, and "
                "waiting not summed: the traces lack ranks or partners, or their clocks "
                "cannot be compared. Waiting and transfer cannot be separated"
            )
        case WaitsUnknown(label, kernels, of):
            some = count_of(kernels, of, "kernel of collectives", "kernels of collectives")
            return (
                f"{label}: the waiting in {some} in its steps is not known, so it is not "
                "summed: the traces lack ranks or partners, or their clocks cannot be "
                "compared"
            )
        case UnlikeProfilers(values):
            listed = ", ".join(f"{run}: {_RECORDED[profiler]}" for run, profiler in values)
            return (
                f"The profilers recorded different things ({listed}), so their cost on the "
                "hosts differs too"
            )
        case GroupsInferred(groups):
            return inferred_groups(groups)
        case OneRecording():
            return "The runs hold the same recording: all times in their traces are equal"
        case OneRecordingEach(host):
            extra = (
                f", {100 * HOST_STARTS:.0f} % of host work. Host work is up to {100 * host:.0f} %"
                " of a step's critical path, depending on the run"
            )
            return (
                "Each run was recorded once, so the variation between recordings of one job is "
                f"assumed: {100 * LAUNCH_NOISE:.0f} % of a transfer, "
                f"{100 * STARTS:.0f} % of a step{extra * (host >= 0.05)}"
            )
        case Damaged():
            where = "" if note.line is None else f" First at line {note.line}."
            return (
                f"{note.path}: {note.severity}: {note.count} x {note.code}: {note.message}{where}"
            )


def _coverage(note: WeightsCoverage) -> str:
    if not note.of:
        return f"run {note.run} has no calls of known size, so no class has a weight"
    calls, size = (
        "none" if part is None else f"{100 * part:.3g} %" for part in (note.calls, note.size)
    )
    return (
        f"run {note.run}: measured {count_of(note.classes, note.of, 'class', 'classes')}, "
        f"{calls} of its calls and {size} of their bytes; classes that it does not call have "
        "no weight"
    )
