"""A prediction as text, Markdown, CSV, JSON or a page."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.reports.html.page import Extras
from collscope.reports.layout import NUMBER, TEXT, Section, Table, in_format, table, to_csv
from collscope.reports.prediction.build import ClassChange, PredictionReport
from collscope.units import count, format_size

_HOST_BOUND = 0.2
_STEP_FROM = {
    "marks": "between the profiler's step marks",
    "kernels": "from the kernels that recur: the profiler marked no steps",
    "period": "from the period of the collectives: the profiler marked no steps",
    "given": "as many as was said at ingest (--steps)",
    "window": "from the whole trace: neither marks nor a period were found, so the trace counts as"
    " one step",
}


def render_prediction(said: PredictionReport, fmt: str, *, explain: bool = False) -> str:
    """A prediction in one of `layout.FORMATS`; csv has the classes, json all.

    explain  also what bounds the step before and after, and what the prediction rests on; a page
             always has it

    raises  UsageError for another format
    """
    title = f"collscope predict, run {said.run}"
    return in_format(
        fmt, said, lambda: _csv(said),
        lambda: (title, _sections(said, explain or fmt == "html")), lambda: _extras(said),
    )  # fmt: skip


def _extras(said: PredictionReport) -> Extras:
    from collscope.reports.html.predicted import prediction_extras  # noqa: PLC0415 - matplotlib

    return prediction_extras(said)


def _csv(said: PredictionReport) -> str:
    names = tuple(ClassChange.__dataclass_fields__)
    changes = (*said.changed, *said.unchanged)
    return to_csv(names, ([getattr(change, name) for name in names] for change in changes))


def _sections(said: PredictionReport, explain: bool) -> Iterable[Section]:
    yield Section("", tuple(_answer(said)))
    if explain:
        yield Section("What bounds the step", (_bounds_table(said), *_rests_on(said)))
    yield Section("Classes that change", (_table(said.changed),))
    if said.unchanged:
        text = "Without a new time, so left as recorded:"
        yield Section("Classes that stay", (text, _table(said.unchanged)))
    yield Section("Assumptions", said.assumptions)


def _answer(said: PredictionReport) -> Iterable[str]:
    low, high = _ms(said.low_us), _ms(said.high_us)
    if said.known.host_bound >= _HOST_BOUND:
        yield (
            f"The host limits the recorded step: {100 * said.known.host_bound:.0f} % of "
            "the launches found the GPU idle. Faster collectives gain little then."
        )
    yield (
        f"Step time {_ms(said.step_us)} -> {_ms(said.new_us)} ms"
        f"{f' ({low} to {high})' if low != high else ''}, {_change(said.step_us, said.new_us)}, "
        f"with {said.times_from}."
    )
    yield (
        f"By the uplift formula alone: {_ms(said.simple_us)} ms, "
        f"{_change(said.step_us, said.simple_us)}; it removes exposed transfer time and changes"
        " nothing else."
    )
    error = said.simulated_us / said.recorded_us - 1
    yield (
        f"Check: from its causes alone, without the recorded starts, the step takes "
        f"{_ms(said.simulated_us)} ms for {_ms(said.recorded_us)} recorded with the profiler "
        f"({100 * error:+.1f} %){_starts(said)}; idle time without a known cause is "
        f"{100 * said.known.idle_unexplained:.1f} % of it. Step "
        f"time: mean of {count(said.steps, 'step')} of the slowest of "
        f"{count(said.ranks, 'rank')}, {_STEP_FROM[said.step_from]}."
    )
    if said.step_us == said.recorded_us:
        yield (
            "Both times are of steps with the profiler, as recorded; --step-ms with the step time "
            "without it gives those without."
        )
    else:
        yield (
            f"With the profiler a step is {said.recorded_us / said.step_us:.2f} times as long as "
            "the one given."
        )


def _starts(said: PredictionReport) -> str:
    """How far collectives start from where they did, in parts of the step."""
    text = ""
    if said.starts_off_us is not None:
        text = f", its collectives start {100 * said.starts_off_us / said.recorded_us:.1f} % of it"
        text += " from where they did"
    if said.other_starts_off_us is not None:
        off = 100 * said.other_starts_off_us / said.recorded_us
        text += f", and with {said.times_from} {off:.1f} % from where those did"
    return text


def _bounds_table(said: PredictionReport) -> Table:
    columns = [("what", TEXT), ("of", TEXT), ("before ms", NUMBER), ("after ms", NUMBER)]
    return table(
        columns, ((b.kind, b.of, b.before_us / 1000, b.after_us / 1000) for b in said.bounds)
    )


def _rests_on(said: PredictionReport) -> Iterable[str]:
    known = said.known
    yield (
        f"Waits between streams: {known.edges_told + known.edges_inferred} inferred from the order "
        f"of calls, {known.edges_told} of them with the waiting stream told, none contradicted by "
        f"the times; {known.edges_contradicted} contradicted and left out, "
        f"{known.edges_unknown} not known."
    )
    yield (
        "The longest path through the steps, without the profiler where its cost is known: "
        "collective is transfer time that nothing hides, waiting the time from a cause to its "
        "effect."
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
        (
            (
                c.op if c.nranks is None else f"{c.op} x{c.nranks}",
                c.datatype,
                None if c.size_bytes is None else format_size(c.size_bytes),
                c.calls,
                c.old_us,
                c.new_us,
            )
            for c in changes
        ),
    )


def _ms(us: float) -> str:
    return f"{us / 1000:.3f}"


def _change(old_us: float, new_us: float) -> str:
    """Change of the time, which is not that of the speed: 5 -> 6 ms is 20 % longer."""
    if old_us <= 0:
        return "change not defined"
    change = new_us / old_us - 1
    return f"{100 * abs(change):.1f} % {'longer' if change > 0 else 'shorter'}"
