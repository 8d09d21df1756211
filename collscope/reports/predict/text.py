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
    "graphs": "from the launches of graphs: each step is one, or a few that recur",
    "kernels": "from the kernels that recur: the profiler marked no steps",
    "period": "from the period of the collectives: the profiler marked no steps",
    "given": "as many as was said at ingest (--steps)",
    "window": "the whole trace, as no step is known",
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
        "Classes that change", (_table(report.changed), *_of_unknown_size(report.changed))
    )
    if report.unchanged:
        text = "Without a new time, so left as recorded:"
        yield Section("Classes that stay", (text, _kept(report.unchanged)))
    yield Section("Assumptions", tuple(note.text for note in assumption_notes(report)))


def _answer(report: PredictionReport) -> Iterable[str]:
    if report.knowledge.host_bound >= _HOST_BOUND:
        yield (
            f"The host limits the recorded step: {100 * report.knowledge.host_bound:.0f} % of "
            "the launches found the GPU idle. While the host is the limit, other collectives "
            "change little."
        )
    if report.other_gpus is not None:
        yield (
            f"{other_gpus_words(report.other_gpus)}: predicted is a step with the collectives of"
            " the one and the compute of the other."
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
            "Nothing within that range is likelier: idle time without a known cause is"
            f" {100 * report.knowledge.idle_unexplained:.0f} % of a step. Trace with CPU activities"
            " and enable_cuda_sync_events, which shows what waits for what."
        )
    yield from _of_given(report)
    yield from _of_untold(report)
    yield from _of_unknown(report)
    yield from _itself(report)
    yield (
        f"By the uplift formula alone: {in_range(report, report.simple_ns)} ms, "
        f"{change_words(report, report.simple_ns)}; it removes exposed transfer time and changes"
        " nothing else."
    )
    error = report.simulated_ns / report.recorded_ns - 1
    yield (
        f"Check: played from its causes alone, the recorded step takes "
        f"{ms(report.simulated_ns)} ms; with the profiler it took {ms(report.recorded_ns)} "
        f"({100 * error:+.1f} %). {_starts(report)}Idle time without a known cause is "
        f"{100 * report.knowledge.idle_unexplained:.1f} % of a step. Step "
        f"time: mean of {count(report.steps, 'step')} of the slowest of "
        f"{count(report.ranks, 'rank')}, {_STEP_FROM[report.step_from]}."
    )
    if report.step_ns == report.recorded_ns:
        yield (
            "Both times are of steps with the profiler, as recorded. For times without it, give "
            "the step time without it as --step-ms."
        )
    else:
        yield (
            f"With the profiler a step is {report.recorded_ns / report.step_ns:.2f} times as long"
            " as the one given."
        )


def _of_given(report: PredictionReport) -> Iterator[str]:
    """What of the given step time the traces do not hold, or contradict."""
    known = report.knowledge
    if known.rest_ns:
        yield (
            f"The given step is longer than the recorded one: {ms(known.rest_ns)} ms of it are "
            "not in the traces, as where another start waits for input. They are taken to stay, and"
            " the range holds that they hide the change."
        )
    elif report.assumptions.step_told and known.gpu_ns > _OVER * report.step_ns:
        yield (
            f"The GPU alone takes {ms(known.gpu_ns)} ms of a recorded step, longer than the one "
            "given: the profiler slowed it, too, or that step is of another job."
        )


def _of_untold(report: PredictionReport) -> Iterator[str]:
    """That the transfer of some classes is not known, and what is made of it."""
    untold = sum(c.old_ns is None for c in report.changed)
    if untold:
        yield (
            f"{count(untold, 'class', 'classes')} had no call that was seen on all its ranks: how "
            "much of the kernels is waiting for the others is not known. The range goes from none "
            "to all of it, and its middle says little. Traces of all ranks tell it."
        )


def _of_unknown(report: PredictionReport) -> Iterator[str]:
    """Of which classes the transfer is not known, what the range makes of it, what would tell it.

    Where two traced runs are compared, or the clocks of the ranks are not known to agree.
    """
    bounded = [c.collective_class for c in report.changed if c.bounded]
    if bounded:
        yield (
            f"{_named(bounded)}: the clocks of the ranks cannot be compared, so how much of their "
            "kernels is waiting is not known. Each transfer is taken to last as long as the "
            "shortest kernel of its call; the range goes as far as the longest. Collectives in "
            "which every rank waits for all, as AllReduce, tell the clocks: record steps with one."
        )
    share = round(100 * report.knowledge.unchanged)
    if report.assumptions.by_call and share:
        yield (
            f"{_named(report.unchanged)}: the traces of one run, or both, do not tell how long the "
            f"transfers take. They hold {share} % of the collectives' kernel time. They are left "
            "as recorded, and the range goes as far as their kernels or thread blocks allow. "
            "Traces of all ranks of both runs, or measurements of these classes (--with LABEL), "
            "tell it."
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
    if report.assumptions.step_told:
        yield f"{text}; the prediction is of steps without it, and does not use that."
    elif report.low_ns <= step <= report.high_ns:
        yield f"{text}; the prediction does not use that."
    else:
        yield f"{text}, outside the predicted range; the prediction does not use that."


def _starts(report: PredictionReport) -> str:
    """How far collectives start from where they were recorded, in parts of the step."""
    if report.starts_off_ns is None:
        return ""
    text = (
        "Half of its collectives start within"
        f" {100 * report.starts_off_ns / report.recorded_ns:.1f} % of a step of where they"
        " were recorded"
    )
    if report.other_starts_off_ns is not None:
        off = 100 * report.other_starts_off_ns / report.recorded_ns
        text += (
            f"; played with {origin_words(report.times_from)}, half start within {off:.1f} % of a "
            "step of where they did there"
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
    inferred = known.edges_told + known.edges_inferred
    yield (
        "No stream is known to wait for another."
        if not inferred + known.edges_contradicted + known.edges_unknown
        else f"Waits between streams: {inferred} are inferred from the "
        f"order of calls and agree with all recorded times; of {known.edges_told} of them the "
        f"traces tell the waiting stream. {known.edges_contradicted} did not agree and are left "
        f"out, and {known.edges_unknown} are not known."
    )
    yield (
        "The parts are what the longest path through the steps goes through, and sum to the step. "
        "Collective: transfer time that nothing hides. Waiting: from a cause to its effect, as from"
        " a launch to the start of its kernel."
    )


def _of_unknown_size(changes: Iterable[ChangedClass]) -> Iterator[str]:
    if any(c.collective_class.size_bytes is None for c in changes):
        yield (
            "Times are medians over the calls of a class. One of unknown size may mix sizes: its "
            "times are means."
        )


def _kept(keys: Iterable[CollectiveClass]) -> Table:
    return table([("op", TEXT), ("type", TEXT), ("size", NUMBER)], map(class_cells, keys))


def _table(changes: Iterable[ChangedClass]) -> Table:
    columns = [
        ("op", TEXT),
        ("type", TEXT),
        ("size", NUMBER),
        ("calls", NUMBER),
        ("old us", NUMBER),
        ("new us", NUMBER),
    ]
    return table(
        columns,
        (
            (*class_cells(c.collective_class), c.calls,
             None if c.old_ns is None else c.old_ns / 1000, c.new_ns / 1000)
            for c in changes
        ),
    )  # fmt: skip
