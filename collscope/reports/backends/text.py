"""`collscope bench backends` in its forms: text, Markdown, CSV, JSON, a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import asdict

from collscope.reports.backends.answer import (
    BackendsReport,
    BackendTime,
    LeftOut,
    SizeRow,
    StepGain,
)
from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import in_format
from collscope.reports.rendering.layout import (
    NUMBER,
    TEXT,
    WORD,
    Section,
    Table,
    or_unknown,
    table,
)
from collscope.stats import ENOUGH_ROUNDS, LAUNCH_NOISE
from collscope.units import count, count_of, figure, format_size, us_or_ms

_WHY = {
    "size_unknown": "their size was not recorded. Name it with --call-size, or log with"
    " NCCL_DEBUG_SUBSYS=INIT,COLL from before the graphs are captured",
    "not_measured": "no backend was measured at their size and datatype",
    "other_ranks": "their communicators have another number of ranks",
    "other_backend": "their kernels are not those of the baseline",
}
_EXPOSED = 0.99  # from here on nothing is called hidden


def render_backends(found: BackendsReport, fmt: str) -> str:
    """In one of `layout.FORMATS`; csv has a row for each size and backend.

    raises  UsageError for another format
    """
    return in_format(
        fmt, found, lambda: _csv(found), lambda: ("collscope bench backends", _sections(found))
    )


def _csv(found: BackendsReport) -> str:
    columns = [name.replace("time_ns", "time_us") for name in BackendTime.__struct_fields__]
    rows = []
    for row in found.rows:
        for one in row.backends:
            values = asdict(one)
            time_ns = values.pop("time_ns")
            values = {"time_us": None if time_ns is None else time_ns / 1000, **values}
            rows.append([row.size_bytes, row.datatype, *(values[name] for name in columns)])
    return to_csv(["size_bytes", "datatype", *columns], rows)


def _sections(found: BackendsReport) -> list[Section]:
    sections = [Section("", tuple(_head(found)))]
    if found.rows:
        sections.append(Section("Best backend by size", (_best(found),)))
        title = f"Time of a call, us, and its difference from {found.baseline}, %"
        sections.append(Section(title, (_times(found),)))
    notes = tuple(_notes(found))
    if notes:
        sections.append(Section("Notes", notes))
    return sections


def _head(found: BackendsReport) -> Iterator[str]:
    if found.baseline is None:
        yield "Nothing was measured."
        return
    compared = [row for row in found.rows if row.best is not None]
    if compared:
        won = sum(row.best != found.baseline for row in compared)
        sizes = count_of(won, len(compared), "size")
        yield f"Another backend is faster than {found.baseline} at {sizes}."
    else:
        yield f"{found.baseline} has no time, so nothing can be compared with it."
    if found.step is not None:
        yield from _gain(found.step, found.baseline)
    yield (
        f"AllReduce on {or_unknown(found.nranks)} ranks, {or_unknown(found.device)}. Every result"
        f" was compared with the expected sum. Backends take turns in {_launches(found.launches)}."
    )
    if found.shared_gpu:
        yield "Ranks shared a GPU. With a GPU for each rank, times and best backends differ."
    if found.method != "graph":
        yield "Measured without a GPU and without graphs: these times do not apply to a job."


def _launches(number: int) -> str:
    return count(number, "launch", "launches")


def _gain(step: StepGain, baseline: str) -> Iterator[str]:
    if not step.calls:
        yield f"The gain of a step of run '{step.run}' is unknown: see the notes."
        return
    span = ""
    if step.saved_low_ns is not None and step.saved_high_ns is not None:
        span = f" ({us_or_ms(step.saved_low_ns)} to {us_or_ms(step.saved_high_ns)})"
    of_step = "" if step.step_ns is None else f" of {us_or_ms(step.step_ns)}"
    yield (
        f"A step of run '{step.run}' saves {us_or_ms(step.saved_ns)}{span}{of_step}: its"
        f" {figure(step.calls)} AllReduces take {us_or_ms(step.baseline_ns)} with {baseline}."
    )
    if step.saved_low_ns is not None and step.saved_low_ns <= 0 < step.saved_ns:
        yield "The range holds 0: the step may win nothing. Measure its time with both."


def _best(found: BackendsReport) -> Table:
    columns = [
        ("size", NUMBER), ("type", WORD), (f"{found.baseline} us", NUMBER), ("best", TEXT),
        ("best us", NUMBER), ("difference %", NUMBER), ("95 % interval", TEXT),
    ]  # fmt: skip
    with_step = found.step is not None
    if with_step:
        columns += [("calls a step", NUMBER), ("saves us a step", NUMBER), ("range", TEXT)]
    return table(columns, [_best_cells(row, found, with_step=with_step) for row in found.rows])


def _best_cells(row: SizeRow, found: BackendsReport, *, with_step: bool) -> list[object]:
    base = _of(row, found.baseline)
    best = _of(row, row.best)
    difference, interval = (None, None)
    if best is not None and best.ratio is not None:
        difference = f"{100 * (best.ratio - 1):+.1f}"
        interval = _interval(best)
    cells: list[object] = [
        format_size(row.size_bytes), row.datatype, _us(base), row.best, _us(best), difference,
        interval,
    ]  # fmt: skip
    if with_step:
        saved = None if row.saved_ns is None else row.saved_ns / 1000
        cells += [row.calls_per_step, saved, _range(row)]
    return cells


def _range(row: SizeRow) -> str | None:
    """Of what a step saves."""
    if row.saved_low_ns is None or row.saved_high_ns is None:
        return None
    return f"{figure(row.saved_low_ns / 1000)} to {figure(row.saved_high_ns / 1000)}"


def _interval(one: BackendTime) -> str | None:
    if one.ratio_low is None or one.ratio_high is None:
        return None
    return f"{100 * (one.ratio_low - 1):+.1f} to {100 * (one.ratio_high - 1):+.1f}"


def _of(row: SizeRow, backend: str | None) -> BackendTime | None:
    return next((one for one in row.backends if one.backend == backend), None)


def _us(one: BackendTime | None) -> float | None:
    return None if one is None or one.time_ns is None else one.time_ns / 1000


def _times(found: BackendsReport) -> Table:
    names = dict.fromkeys(
        one.backend for row in found.rows for one in row.backends if one.time_ns is not None
    )
    columns = [("size", NUMBER), ("type", WORD), *((name, TEXT) for name in names)]
    return table(
        columns,
        [
            [format_size(row.size_bytes), row.datatype, *(_time(_of(row, name)) for name in names)]
            for row in found.rows
        ],
    )


def _time(one: BackendTime | None) -> str | None:
    """A time with its difference: `12.3 (-4.1)`."""
    if one is None or one.time_ns is None:
        return None
    difference = "" if one.ratio is None else f" ({100 * (one.ratio - 1):+.1f})"
    return f"{figure(one.time_ns / 1000)}{difference}"


def _notes(found: BackendsReport) -> Iterator[str]:
    missing: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for row in found.rows:
        for one in row.backends:
            if one.status != "ok":
                why = one.message or f"{count(one.n_wrong, 'wrong element')}"
                missing[one.backend, one.status, why].append(row.size_bytes)
    for (backend, status, why), sizes in missing.items():
        where = "" if len(sizes) == len(found.rows) else f" at {', '.join(map(format_size, sizes))}"
        yield f"{backend}: {status}{where}: {why}."
    if found.step is not None:
        yield from _step_notes(found.step)
        if found.other_compute is not None:
            yield (
                "The range of a gain has the intervals of the times, and"
                f" {100 * found.other_compute:.1f} % of both backends' times: so much a gain"
                " differs behind other compute, as measured."
            )
        elif found.step.saved_ns:
            yield (
                "The gain has no range: the calls were measured behind one kind of compute, so how"
                " they differ behind that of the job is not known."
            )
    if any(one.ratio_low is not None for row in found.rows for one in row.backends):
        few = found.launches < ENOUGH_ROUNDS
        basis = f", with {100 * LAUNCH_NOISE:.0f} % assumed between launches" if few else ""
        yield (
            f"Intervals are of {_launches(found.launches)}{basis}. At most 5 of 100 backends that"
            " are reported as faster are not faster."
        )


def _step_notes(step: StepGain) -> Iterator[str]:
    if step.exposed_share is not None and step.exposed_share < _EXPOSED:
        hidden = 100 * (1 - step.exposed_share)
        yield (
            f"In run '{step.run}' compute hides {hidden:.0f} % of these AllReduces, so the step"
            " saves less."
        )
    for one in step.left_out:
        yield f"{_left_out(one)}: {_WHY[one.reason]}."


def _left_out(one: LeftOut) -> str:
    size = "" if one.size_bytes is None else f" of {format_size(one.size_bytes)}"
    family = f" ({or_unknown(one.family)})" if one.reason == "other_backend" else ""
    return f"{figure(one.calls_per_step)} AllReduces a step{size}{family} are not in the gain"
