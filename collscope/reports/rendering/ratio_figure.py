"""The figure of a comparison and of a verdict: ratios of times over message size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from collscope.model import CollectiveClass
from collscope.reports.compare.answer import TracedParts
from collscope.reports.rendering.drawing import INK, Sheet, log_axis, series_style, size_axis
from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.page import Fact, Figure
from collscope.units import format_size

if TYPE_CHECKING:
    from collscope.reports.rendering.drawing import Drawing


_MOST_POINTS = 2000
_SPREAD = 0.9  # powers of two that the points of one size take
_ROOM = 1.15  # above and below the ratios


class RatioPoint(msgspec.Struct, frozen=True):
    """A ratio of two times at one size, with its 95 % interval where the noise is known."""

    series: str
    what: str
    size_bytes: int
    ratio: float
    low: float | None
    high: float | None


def curve_name(key: CollectiveClass) -> str:
    """Operation, datatype, ranks and place of a class: what a curve over sizes has in common."""
    place = {True: " in place", False: " out of place", None: ""}[key.in_place]
    return f"{key.kind} x{key.nranks}{place}"


def step_facts(traced: TracedParts | None) -> list[Fact]:
    """The step of every traced run."""
    if traced is None or not traced.parts:
        return []
    return [
        Fact(f"Step of {cell.label}", f"{cell.time_ns / 1e6:.2f} ms", "", "Step")
        for cell in traced.parts[0].cells if cell.time_ns is not None
    ]  # fmt: skip


def ratio_figure(
    title: str, text: str, points: Sequence[RatioPoint], limits: Sequence[float],
) -> Figure | None:  # fmt: skip
    """Ratios over size; the points of one size are side by side."""
    shown = [p for p in points if p.size_bytes > 0 and p.ratio > 0][:_MOST_POINTS]
    if not shown:
        return None
    names = list(dict.fromkeys(p.series for p in shown))
    at = _side_by_side(shown)

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.axis(4.4)
        for n, name in enumerate(names):
            style = series_style(n)
            for i, p in enumerate(shown):
                if p.series != name:
                    continue
                if p.low is not None and p.high is not None:
                    axis.plot([at[i]] * 2, [p.low, p.high], lw=1, color=style["color"], zorder=2)
                axis.plot(at[i], p.ratio, ms=5, gid=f"ratio-{i}", zorder=3, **style)
            axis.plot([], [], ls="", label=name, **style)
        axis.axhline(1, color=INK, lw=1)
        for limit in limits:
            axis.axhline(limit, color=INK, lw=1, ls="--")
        size_axis(axis, [p.size_bytes for p in shown])
        ratios = [p.ratio for p in shown]
        axis.set_ylim(min(*ratios, 1) / _ROOM, max(*ratios, *limits, 1) * _ROOM)
        log_axis(axis, "y")
        axis.set_ylabel("ratio")
        return drawing

    found = table(
        [("label, kind or outcome", TEXT), ("class", TEXT), ("size", NUMBER), ("ratio", NUMBER),
         ("low", NUMBER), ("high", NUMBER)],
        ((p.series, p.what, format_size(p.size_bytes), p.ratio, p.low, p.high) for p in shown),
    )  # fmt: skip
    marks = {
        f"ratio-{i}": f"{p.what} {format_size(p.size_bytes)}\n{p.series}: {p.ratio:.3f}"
        + (f" ({p.low:.3f} to {p.high:.3f})" if p.low is not None and p.high is not None else "")
        for i, p in enumerate(shown)
    }
    left = len(points) - len(shown)
    rest = (
        f" {left} points without a size, or beyond {_MOST_POINTS}, are not drawn." if left else ""
    )
    return Figure(title, text + rest, make, found, marks)


def _side_by_side(points: Sequence[RatioPoint]) -> list[float]:
    """Place of each point on the axis of sizes, less than half a power of two off its size."""
    of_size: dict[int, list[int]] = defaultdict(list)
    for i, p in enumerate(points):
        of_size[p.size_bytes].append(i)
    places = [0.0] * len(points)
    for size, here in of_size.items():
        for k, i in enumerate(here):
            places[i] = size * 2 ** (_SPREAD * ((k + 0.5) / len(here) - 0.5))
    return places
