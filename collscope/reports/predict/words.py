"""Words of a prediction that its text and its page have in common."""

from __future__ import annotations

from typing import NamedTuple

from collscope.model import CollectiveClass
from collscope.reports.predict.answer import PredictionReport
from collscope.reports.predict.new_times import TimesFrom
from collscope.units import decimals, figure, format_size


def origin_words(origin: TimesFrom) -> str:
    """Where times come from."""
    words = {
        "measurements": f"measurements with label {origin.name}",
        "traces": f"the collectives of run {origin.name}",
        "system": f"the reachable speed of {origin.name}",
        "ceiling": f"collectives at the speed '{origin.name}'",
    }[origin.kind]
    return words if origin.against is None else f"{words} against {origin_words(origin.against)}"


def in_range(report: PredictionReport, ns: float) -> str:
    """A predicted time in ms, with the digits that the range of the prediction allows."""
    return f"{ns / 1e6:.{decimals(report.low_ns / 1e6, report.high_ns / 1e6)}f}"


def ms(ns: float) -> str:
    """A time that was recorded, in ms."""
    return figure(ns / 1e6, 4)


def change_words(report: PredictionReport, new_ns: float) -> str:
    """Change of the time, not of the speed: 5 -> 6 ms is 20 % longer."""
    if report.step_ns <= 0:
        return "change not defined"
    change, low, high = (
        100 * (ns / report.step_ns - 1) for ns in (new_ns, report.low_ns, report.high_ns)
    )
    digits = min(decimals(low, high), 1)
    percent = f"{abs(change):.{digits}f}"
    if float(percent) == 0:
        if ms(report.step_ns) == ms(new_ns):
            return "no change"
        percent = f"under {10**-digits:g}"
    return f"{percent} % {'longer' if change > 0 else 'shorter'}"


def new_words(report: PredictionReport) -> str:
    """The predicted step time, its range and its change; the range alone where that is known."""
    low, high = (in_range(report, ns) for ns in (report.low_ns, report.high_ns))
    if report.new_ns is None:
        return f"{low} to {high} ms"
    new = in_range(report, report.new_ns)
    step_words = f"{new} ms ({low} to {high})" if low != high else f"{new} ms"
    return f"{step_words}, {change_words(report, report.new_ns)}"


def class_cells(key: CollectiveClass) -> tuple[str, str | None, str]:
    """Operation with its ranks, datatype and size of a class."""
    return (
        key.op.value if key.nranks is None else f"{key.op.value} x{key.nranks}",
        key.datatype and key.datatype.value,
        "unknown size" if key.size_bytes is None else format_size(key.size_bytes),
    )


class BoundRow(NamedTuple):
    """A part of what bounds the step, before and after; ns a step."""

    kind: str
    of: str | None  # class of the collectives
    before_ns: float
    after_ns: float


def bound_rows(report: PredictionReport) -> list[BoundRow]:
    """What bounds the step before and after, the most of the old one first."""
    before, after = (
        {(b.kind, b.collective_class): b.ns for b in bounds}
        for bounds in (report.bound_before, report.bound_after)
    )
    return [
        BoundRow(
            kind,
            None if key is None else _short(key),
            before.get((kind, key), 0.0),
            after.get((kind, key), 0.0),
        )
        for kind, key in dict.fromkeys((*before, *after))
    ]


def _short(key: CollectiveClass) -> str:
    size = "" if key.size_bytes is None else f" {format_size(key.size_bytes)}"
    return f"{key.op.value} x{key.nranks}{size}"
