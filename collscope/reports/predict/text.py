"""A prediction as text, Markdown, CSV, JSON or a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from collscope.model import CollectiveClass
from collscope.reports.predict.answer import PredictionReport
from collscope.reports.predict.assumptions_text import assumption_notes
from collscope.reports.predict.words import (
    bound_rows,
    change_words,
    class_cells,
    in_range,
    ms,
    new_words,
    origin_words,
)
from collscope.reports.rendering.class_words import other_gpus_words
from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import in_format, in_words
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, Table, table
from collscope.reports.rendering.page import Extras
from collscope.timeline.records import ChangedClass
from collscope.units import count

_HOST_BOUND = 0.2
_NAMED = 3  # classes in a sentence
_OVER = 1.1  # of the given step: what the GPU alone takes contradicts it
_STEP_FROM = {
    "marks": "between the profiler's step marks",
    "graphs": "from the launches of graphs: a step is one graph, or a few that recur",
    "kernels": "found by recurring kernels, as the profiler marked no steps",
    "period": "found by the period of the collectives, as the profiler marked no steps",
    "given": "as many as given at ingest (--steps)",
    "window": "the whole trace, because no step is known",
}


def render_prediction(report: PredictionReport, fmt: str, *, explain: bool = False) -> str:
    """A prediction in one of `layout.FORMATS`; csv has the classes, json all.

    explain  also what bounds the step before and after, and what the prediction rests on; a page
             always has it

    raises  UsageError for another format
    """
    title = f"collscope predict, run {report.run}"
    return in_format(
        fmt,
        in_words(
            report, times_from=origin_words(report.times_from), assumptions=assumption_notes(report)
        ),
        lambda: _csv(report),
        lambda: (title, _sections(report, explain or fmt == "html")), lambda: _extras(report),
    )  # fmt: skip


def _extras(report: PredictionReport) -> Extras:
    from collscope.reports.predict.page import prediction_extras  # noqa: PLC0415 - matplotlib

    return prediction_extras(report)


def _csv(report: PredictionReport) -> str:
    """Times in us; a class without a new time has none."""
    columns = ("op", "datatype", "count", "size_bytes", "nranks", "calls", "old_us", "new_us",
               "bounded")  # fmt: skip
    changed = (
        (*_key_cells(c.collective_class), c.calls, None if c.old_ns is None else c.old_ns / 1000,
         c.new_ns / 1000, c.bounded)
        for c in report.changed
    )  # fmt: skip
    unchanged = ((*_key_cells(key), None, None, None, False) for key in report.unchanged)
    return to_csv(columns, [*changed, *unchanged])


def _key_cells(key: CollectiveClass) -> tuple[str | int | None, ...]:
    datatype = key.datatype and key.datatype.value
    return (key.op.value, datatype, key.count, key.size_bytes, key.nranks)


def _sections(report: PredictionReport, explain: bool) -> Iterable[Section]:
    yield Section("", tuple(_answer(report)))
    if explain:
        yield Section("What bounds the step", (_bounds_table(report), *_rests_on(report)))
    yield Section(
        "Classes with new times", (_table(report.changed), *_of_unknown_size(report.changed))
    )
    if report.unchanged:
        text = "Not measured, so kept as recorded:"
        yield Section("Classes that stay", (text, _kept(report.unchanged)))
    yield Section("Assumptions", tuple(note.text for note in assumption_notes(report)))


def _answer(report: PredictionReport) -> Iterable[str]:
    if report.knowledge.host_bound >= _HOST_BOUND:
        yield (
            f"The host limits the recorded step: {100 * report.knowledge.host_bound:.0f} % "
            "of the launches found the GPU idle. While the host is the limit, other "
            "collectives change little."
        )
    if report.other_gpus is not None:
        yield (
            f"{other_gpus_words(report.other_gpus)}: the prediction mixes that system's "
            "collectives with this job's compute."
        )
    one_step = report.step_from == "window"
    if one_step:
        yield (
            "No step is known: the whole trace counts as one. If each trace holds N steps, ingest"
            " them with --steps N."
        )
    called = (
        "Time of the whole trace"
        if one_step and report.step_ns == report.recorded_ns
        else "Step time"
    )
    yield (
        f"{called} {ms(report.step_ns)} -> {new_words(report)}, with"
        f" {origin_words(report.times_from)}."
    )
    if report.new_ns is None:
        yield (
            "No time within that range is more likely: idle time without a known cause is "
            f"{100 * report.knowledge.idle_unexplained:.0f} % of a step. Trace with CPU "
            "activities and enable_cuda_sync_events to record what waits for what."
        )
    yield from _of_given(report)
    yield from _of_unsplit(report)
    yield from _of_unknown(report)
    yield from _itself(report)
    yield (
        f"Simple estimate: {in_range(report, report.simple_ns)} ms, "
        f"{change_words(report, report.simple_ns)}. It only subtracts the "
        "change of exposed transfer time."
    )
    error = report.simulated_ns / report.recorded_ns - 1
    yield (
        f"Self-check: simulated without a change, the step takes {ms(report.simulated_ns)} ms. It "
        f"was recorded with {ms(report.recorded_ns)} ms ({100 * error:+.1f} %). "
        f"{_starts(report)}Idle time without a known cause is "
        f"{100 * report.knowledge.idle_unexplained:.1f} % of a step. Step time: mean of "
        f"{count(report.steps, 'step')} of the slowest of {count(report.ranks, 'rank')}, "
        f"{_STEP_FROM[report.step_from]}."
    )
    if report.step_ns == report.recorded_ns:
        yield (
            "Both times include the profiler, as recorded. For times without the profiler, "
            "measure a step without it and pass --step-ms."
        )
    else:
        yield (
            f"With the profiler a step takes {report.recorded_ns / report.step_ns:.2f} times "
            "as long as the given one."
        )


def _of_given(report: PredictionReport) -> Iterator[str]:
    """What of the given step time the traces do not hold, or contradict."""
    known = report.knowledge
    if known.rest_ns:
        yield (
            f"The given step is longer than the recorded one: {ms(known.rest_ns)} ms of it "
            "are not in the traces, for example where another start waits for input. We "
            "assume that this time remains; the range covers it hiding the change."
        )
    elif report.assumptions.step_given and known.gpu_ns > _OVER * report.step_ns:
        yield (
            f"The GPU alone takes {ms(known.gpu_ns)} ms of a recorded step, longer than the "
            "given step. Either the profiler slowed the GPU too, or the given step is from "
            "another job."
        )


def _of_unsplit(report: PredictionReport) -> Iterator[str]:
    """That the transfer of some classes is not known, and what is made of it."""
    unsplit = sum(c.old_ns is None for c in report.changed)
    if unsplit:
        yield (
            f"{count(unsplit, 'class', 'classes')} had no call that was recorded on all its "
            "ranks, so how much of the kernels is waiting is not known. The range covers "
            "everything from none to all of it, so ignore its midpoint. Trace all ranks to "
            "narrow it."
        )


def _of_unknown(report: PredictionReport) -> Iterator[str]:
    """Classes without a known transfer: what the range assumes, and what would show it.

    Where two traced runs are compared, or the clocks of the ranks are not known to agree.
    """
    bounded = [c.collective_class for c in report.changed if c.bounded]
    if bounded:
        yield (
            f"{_named(bounded)}: the clocks of the ranks cannot be compared, so how much of "
            "the kernels is waiting is not known. We assume that each transfer lasts as long "
            "as the shortest kernel of its call; the range extends to the longest. Clocks "
            "align only on synchronising collectives such as AllReduce: record steps that "
            "have one."
        )
    share = round(100 * report.knowledge.unchanged)
    if report.assumptions.by_call and share:
        yield (
            f"{_named(report.unchanged)}: the transfer times are not known from the traces "
            f"of one run, or both. These classes hold {share} % of the kernel time of "
            "collectives. They stay as recorded, and the range extends as far as their "
            "kernels or thread blocks allow. Trace all ranks of both runs, or measure these "
            "classes (--with LABEL)."
        )


def _named(keys: Sequence[CollectiveClass]) -> str:
    """The first classes, and how many more."""
    names = [" ".join(text for text in class_cells(key) if text) for key in keys[:_NAMED]]
    more = len(keys) - len(names)
    return ", ".join(names) + (f" and {count(more, 'more class', 'more classes')}" if more else "")


def _itself(report: PredictionReport) -> Iterator[str]:
    """The step of the run that the times are from, for information."""
    step = report.other_step_ns
    if step is None:
        return
    text = f"Run {report.times_from.name} itself took {ms(step)} ms a step with the profiler"
    if report.assumptions.step_given:
        yield f"{text}. The prediction is for steps without it and does not use that time."
    elif report.low_ns <= step <= report.high_ns:
        yield f"{text}. The prediction does not use that time."
    else:
        yield f"{text}, outside the predicted range. The prediction does not use that time."


def _starts(report: PredictionReport) -> str:
    """How far collectives start from where they were recorded, in parts of the step."""
    if report.starts_off_ns is None:
        return ""
    text = (
        "In the simulation, half of the collectives start within "
        f"{100 * report.starts_off_ns / report.recorded_ns:.1f} % of a step of their recorded start"
    )
    if report.other_starts_off_ns is not None:
        off = 100 * report.other_starts_off_ns / report.recorded_ns
        text += (
            f"; with {origin_words(report.times_from)}, within {off:.1f} % of their recorded start "
            "there"
        )
    return f"{text}. "


def _bounds_table(report: PredictionReport) -> Table:
    columns = [("what", TEXT), ("of", TEXT), ("before ms", NUMBER), ("after ms", NUMBER)]
    rows = [(b.kind, b.of, b.before_ns / 1e6, b.after_ns / 1e6) for b in bound_rows(report)]
    if report.new_ns is None:
        return table(columns, [])
    total = ("step", None, report.step_ns / 1e6, report.new_ns / 1e6)
    return table(columns, [*rows, total] if rows else rows)


def _rests_on(report: PredictionReport) -> Iterable[str]:
    known = report.knowledge
    inferred = known.edges_named + known.edges_inferred
    yield (
        "No cross-stream waits found."
        if not inferred + known.edges_contradicted + known.edges_unknown
        else f"Waits between streams: {inferred} are inferred from the order of calls and agree "
        f"with all recorded times; for {known.edges_named} of them the traces name the "
        f"waiting stream. {known.edges_contradicted} did not agree and are left out, and "
        f"{known.edges_unknown} are not known."
    )
    yield (
        "The parts lie on the longest path through the steps and sum to the step. "
        "Collective: transfer time that nothing hides. Waiting: from a cause to its effect, "
        "for example from a launch to the start of its kernel."
    )


def _of_unknown_size(changes: Iterable[ChangedClass]) -> Iterator[str]:
    if any(c.collective_class.size_bytes is None for c in changes):
        yield (
            "Times are medians over the calls of a class. A class of unknown size may mix "
            "sizes, so its times are means."
        )


def _kept(keys: Iterable[CollectiveClass]) -> Table:
    return table([("op", TEXT), ("type", TEXT), ("size", NUMBER)], map(class_cells, keys))


def _table(changes: Iterable[ChangedClass]) -> Table:
    columns = [
        ("op", TEXT),
        ("type", TEXT),
        ("size", NUMBER),
        ("calls", NUMBER),
        ("before us", NUMBER),
        ("after us", NUMBER),
    ]
    return table(
        columns,
        (
            (*class_cells(c.collective_class), c.calls,
             None if c.old_ns is None else c.old_ns / 1000, c.new_ns / 1000)
            for c in changes
        ),
    )  # fmt: skip
