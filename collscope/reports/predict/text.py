"""A prediction as text, Markdown, CSV, JSON or a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from collscope.model.profile import other_profilers
from collscope.reports.predict.answer import Basis, ClassChange, Known, PredictionReport
from collscope.reports.predict.words import change_words, in_range, ms, origin_words
from collscope.reports.rendering.class_words import inferred_groups, other_gpus_words
from collscope.reports.rendering.csv import records_csv
from collscope.reports.rendering.formats import in_format, in_words
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, Table, table
from collscope.reports.rendering.mark_words import mark_words
from collscope.reports.rendering.page import Extras
from collscope.timeline.tolerances import SLOWDOWN_PRIOR
from collscope.units import count, format_size

_HOST_BOUND = 0.2
# A given step that is off the recorded one by so much was given in another unit: profilers make
# steps at most a few times as long (docs/validation.md, cost of the profiler).
_OFF = 20
_NAMED = 3  # classes in a sentence
_OVER = 1.1  # of the given step: what the GPU alone takes is said to contradict it
_STEP_FROM = {
    "marks": "between the profiler's step marks",
    "kernels": "from the kernels that recur: the profiler marked no steps",
    "period": "from the period of the collectives: the profiler marked no steps",
    "given": "as many as was said at ingest (--steps)",
    "window": "the whole trace, as no step is known",
}


def render_prediction(said: PredictionReport, fmt: str, *, explain: bool = False) -> str:
    """A prediction in one of `layout.FORMATS`; csv has the classes, json all.

    explain  also what bounds the step before and after, and what the prediction rests on; a page
             always has it

    raises  UsageError for another format
    """
    title = f"collscope predict, run {said.run}"
    return in_format(
        fmt,
        in_words(
            said, times_from=origin_words(said.times_from), assumptions=_assumptions(said)
        ),
        lambda: _csv(said),
        lambda: (title, _sections(said, explain or fmt == "html")), lambda: _extras(said),
    )  # fmt: skip


def _extras(said: PredictionReport) -> Extras:
    from collscope.reports.predict.page import prediction_extras  # noqa: PLC0415 - matplotlib

    return prediction_extras(said)


def _csv(said: PredictionReport) -> str:
    return records_csv(ClassChange, (*said.changed, *said.unchanged))


def _sections(said: PredictionReport, explain: bool) -> Iterable[Section]:
    yield Section("", tuple(_answer(said)))
    if explain:
        yield Section("What bounds the step", (_bounds_table(said), *_rests_on(said)))
    yield Section("Classes that change", (_table(said.changed), *_of_unknown_size(said.changed)))
    if said.unchanged:
        text = "Without a new time, so left as recorded:"
        yield Section("Classes that stay", (text, _kept(said.unchanged)))
    yield Section("Assumptions", _assumptions(said))


def _answer(said: PredictionReport) -> Iterable[str]:
    if not 1 / _OFF <= said.step_us / said.recorded_us <= _OFF:
        yield (
            f"--step-ms {said.step_us / 1000:g} is {said.step_us / said.recorded_us:.3g} times the "
            f"recorded step of {ms(said.recorded_us)} ms: give milliseconds."
        )
    if said.known.host_bound >= _HOST_BOUND:
        yield (
            f"The host limits the recorded step: {100 * said.known.host_bound:.0f} % of "
            "the launches found the GPU idle. While the host is the limit, other collectives "
            "change little."
        )
    if said.other_gpus is not None:
        yield (
            f"{other_gpus_words(said.other_gpus)}: predicted is a step with the collectives of the "
            "one and the compute of the other."
        )
    whole = said.step_from == "window"
    if whole:
        yield (
            "No step is known: the whole trace counts as one. If each trace holds N steps, ingest"
            " them with --steps N."
        )
    called = (
        "Time of the whole trace" if whole and said.step_us == said.recorded_us else "Step time"
    )
    yield (
        f"{called} {ms(said.step_us)} -> {_new(said)}, {change_words(said, said.new_us)}, "
        f"with {origin_words(said.times_from)}."
    )
    yield from _of_given(said)
    yield from _of_untold(said)
    yield from _of_unknown(said)
    yield from _itself(said)
    yield (
        f"By the uplift formula alone: {in_range(said, said.simple_us)} ms, "
        f"{change_words(said, said.simple_us)}; it removes exposed transfer time and changes"
        " nothing else."
    )
    error = said.simulated_us / said.recorded_us - 1
    yield (
        f"Check: played from its causes alone, the recorded step takes "
        f"{ms(said.simulated_us)} ms; with the profiler it took {ms(said.recorded_us)} "
        f"({100 * error:+.1f} %). {_starts(said)}Idle time without a known cause is "
        f"{100 * said.known.idle_unexplained:.1f} % of a step. Step "
        f"time: mean of {count(said.steps, 'step')} of the slowest of "
        f"{count(said.ranks, 'rank')}, {_STEP_FROM[said.step_from]}."
    )
    if said.step_us == said.recorded_us:
        yield (
            "Both times are of steps with the profiler, as recorded. For times without it, give "
            "the step time without it as --step-ms."
        )
    else:
        yield (
            f"With the profiler a step is {said.recorded_us / said.step_us:.2f} times as long as "
            "the one given."
        )


def _of_given(said: PredictionReport) -> Iterator[str]:
    """What of the given step time the traces do not hold, or contradict."""
    known = said.known
    if known.rest_us:
        yield (
            f"The given step is longer than the recorded one: {ms(known.rest_us)} ms of it are "
            "not in the traces, as where another start waits for input. They are taken to stay, and"
            " the range holds that they hide the change."
        )
    elif said.assumptions.step_told and known.gpu_us > _OVER * said.step_us:
        yield (
            f"The GPU alone takes {ms(known.gpu_us)} ms of a recorded step, longer than the one "
            "given: the profiler slowed it, too, or that step is of another job."
        )


def _of_untold(said: PredictionReport) -> Iterator[str]:
    """That the transfer of some classes is not known, and what is made of it."""
    untold = sum(c.old_us is None for c in said.changed)
    if untold:
        yield (
            f"{count(untold, 'class', 'classes')} had no call that was seen on all its ranks: how "
            "much of the kernels is waiting for the others is not known. The range goes from none "
            "to all of it, and its middle says little. Traces of all ranks tell it."
        )


def _of_unknown(said: PredictionReport) -> Iterator[str]:
    """Of which classes the transfer is not known, what the range makes of it, what would tell it.

    Where two traced runs are compared, or the clocks of the ranks are not known to agree.
    """
    bounded = [c for c in said.changed if c.bounded]
    if bounded:
        yield (
            f"{_named(bounded)}: the clocks of the ranks cannot be compared, so how much of their "
            "kernels is waiting is not known. Each transfer is taken to last as long as the "
            "shortest kernel of its call; the range goes as far as the longest. Collectives in "
            "which every rank waits for all, as AllReduce, tell the clocks: record steps with one."
        )
    share = round(100 * said.known.unchanged)
    if said.assumptions.by_call and share:
        yield (
            f"{_named(said.unchanged)}: the traces of one run, or both, do not tell how long the "
            f"transfers take. They hold {share} % of the collectives' kernel time. They are left "
            "as recorded, and the range goes as far as their kernels or thread blocks allow. "
            "Traces of all ranks of both runs, or measurements of these classes (--with LABEL), "
            "tell it."
        )


def _named(changes: Sequence[ClassChange]) -> str:
    """The first classes, and how many more."""
    names = [" ".join(text for text in _class(c) if text) for c in changes[:_NAMED]]
    more = len(changes) - len(names)
    return ", ".join(names) + (f" and {count(more, 'more class', 'more classes')}" if more else "")


def _itself(said: PredictionReport) -> Iterator[str]:
    """The step of the run that the times are from, for information."""
    step = said.other_step_us
    if step is None:
        return
    text = f"Run {said.times_from.name} itself took {ms(step)} ms a step with the profiler"
    if said.assumptions.step_told:
        yield f"{text}; the prediction is of steps without it, and does not use that."
    elif said.low_us <= step <= said.high_us:
        yield f"{text}; the prediction does not use that."
    else:
        yield f"{text}, outside the predicted range; the prediction does not use that."


def _starts(said: PredictionReport) -> str:
    """How far collectives start from where they were recorded, in parts of the step."""
    if said.starts_off_us is None:
        return ""
    text = (
        f"Half of its collectives start within {100 * said.starts_off_us / said.recorded_us:.1f} % "
        "of a step of where they were recorded"
    )
    if said.other_starts_off_us is not None:
        off = 100 * said.other_starts_off_us / said.recorded_us
        text += (
            f"; played with {origin_words(said.times_from)}, half start within {off:.1f} % of a "
            "step of where they did there"
        )
    return f"{text}. "


def _bounds_table(said: PredictionReport) -> Table:
    columns = [("what", TEXT), ("of", TEXT), ("before ms", NUMBER), ("after ms", NUMBER)]
    rows = [(b.kind, b.of, b.before_us / 1000, b.after_us / 1000) for b in said.bounds]
    total = ("step", None, said.step_us / 1000, said.new_us / 1000)
    return table(columns, [*rows, total] if rows else rows)


def _rests_on(said: PredictionReport) -> Iterable[str]:
    known = said.known
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


def _of_unknown_size(changes: Iterable[ClassChange]) -> Iterator[str]:
    if any(c.size_bytes is None for c in changes):
        yield (
            "Times are medians over the calls of a class. One of unknown size may mix sizes: its "
            "times are means."
        )


def _kept(changes: Iterable[ClassChange]) -> Table:
    return table([("op", TEXT), ("type", TEXT), ("size", NUMBER)], map(_class, changes))


def _class(c: ClassChange) -> tuple[str, str | None, str]:
    return (
        c.op if c.nranks is None else f"{c.op} x{c.nranks}",
        c.datatype,
        "unknown size" if c.size_bytes is None else format_size(c.size_bytes),
    )


def _table(changes: Iterable[ClassChange]) -> Table:
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
        ((*_class(c), c.calls, c.old_us, c.new_us) for c in changes),
    )


def _assumptions(said: PredictionReport) -> tuple[str, ...]:
    """What the new times stand for, what is not known, and what would tell it."""
    return (
        *_of_times(said.assumptions),
        *_of_calls(said.assumptions),
        *_of_groups(said.known),
        *_of_exchanges(said.known),
        *_of_host(said),
        *_of_compute(said),
    )


def _of_times(basis: Basis) -> Iterator[str]:
    if basis.wrong:
        yield (
            f"{count(basis.wrong, 'class', 'classes')} measured with wrong results, or failed:"
            " left as recorded."
        )
    for mark, classes in basis.marks:
        yield f"{count(classes, 'new time', 'new times')}: {mark_words(mark)}."


def _of_calls(basis: Basis) -> Iterator[str]:
    if basis.system:
        yield (
            "Every collective is assumed to reach the roof; one that was faster in the job is left"
            " as recorded."
        )
    elif basis.by_call:
        yield "Every call takes as long as the call at its place of the step in the other run."
    elif basis.in_job:
        yield "The new times are those of a call in the job, not alone."


def _of_groups(known: Known) -> Iterator[str]:
    if known.groups_inferred:
        yield f"{inferred_groups(known.groups_inferred)}."


def _of_exchanges(known: Known) -> Iterator[str]:
    """How Sends and Recvs that name no peer are known."""
    if known.exchanges_alone is not None:
        yield (
            "The traces name no peer of some Sends and Recvs: each is taken to exchange with the "
            "kernel of another rank that ends when it does."
        )
    if known.exchanges_alone:
        yield (
            f"{100 * known.exchanges_alone:.0f} % of the Sends and Recvs end with no other: how "
            "long they wait for their peers is not known, and the range allows for it. Traces of "
            "all ranks on one clock narrow it."
        )


def _of_host(said: PredictionReport) -> Iterator[str]:
    known = said.known
    if said.low_us < said.high_us:
        yield (
            "The range holds the spread of the new times, the host's pace, the slowdown of compute "
            "beside the collectives, and 3 % from start to start."
        )
    low, high = known.host_low, known.host_high
    yield from _of_calls_told(known)
    if not said.assumptions.step_told:
        yield (
            f"What the profiler ({_profiler(known)}) costs the host is not known: its work is "
            f"taken to need {low:.2f} to {high:.2f} of the recorded time without it. --step-ms "
            "narrows the range."
        )
    elif known.host_determined:
        yield f"The host needs {low:.2f} to {high:.2f} of the recorded time without the profiler."
    else:
        yield (
            "The GPU bounds the recorded step, so that the host's own pace does not show: its "
            f"work is taken to need {low:.2f} to {high:.2f} of the recorded time. A recording of "
            "a faster setting, with its step time, narrows the range."
        )


def _profiler(known: Known) -> str:
    """Which profiler it was; of PyTorch's, what it recorded."""
    names = other_profilers(known.profilers)
    if names:
        return " and ".join(names)
    return "CPU and CUDA activities" if known.cpu_activities else "CUDA activities"


def _of_calls_told(known: Known) -> Iterator[str]:
    """What the traces lack of the host's side."""
    if not known.host_calls:
        yield (
            "Not all traces tell the host's calls (nsys --trace=cuda; rocprofv3 --hip-trace): what"
            " rows wait for is inferred from their times."
        )
    elif not known.event_records:
        yield (
            "The traces hold waits for events and no record of one (RPD leaves hipEventRecord"
            " out): what they wait for is inferred from the order of launches."
        )


def _of_compute(said: PredictionReport) -> Iterator[str]:
    known = said.known
    if known.slowdown is None:
        yield (
            "Too few kernels ran both alone and beside a collective: compute beside the new ones"
            " is assumed to last as long as recorded, and the range allows for a slowdown of "
            f"{100 * SLOWDOWN_PRIOR:.0f} %."
        )
        return
    slower = f"Compute beside collectives runs {100 * known.slowdown:.0f} % longer than alone"
    if known.blocks is None:
        yield f"{slower}. How many multiprocessors the new ones hold is not known."
    elif abs(known.blocks - 1) < 0.01:
        yield f"{slower}, and beside the new ones, too: they have as many thread blocks."
    else:
        low, high = sorted((known.slowdown, known.blocks * known.slowdown))
        yield (
            f"{slower}. The new ones have {known.blocks:.2g} times as many thread blocks: beside "
            f"them it may run {100 * low:.2g} to {100 * high:.2g} % longer."
        )


def _new(said: PredictionReport) -> str:
    """The predicted step time and its range."""
    new, low, high = (in_range(said, us) for us in (said.new_us, said.low_us, said.high_us))
    return f"{new} ms ({low} to {high})" if low != high else f"{new} ms"
