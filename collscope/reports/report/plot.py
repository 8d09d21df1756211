"""The plot of a report: everything that it has data for, in one picture."""

from __future__ import annotations

import string
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import msgspec
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import NDArray

from collscope.reports.calls.answer import Bin
from collscope.reports.efficiency.curves import Curve, CurvePoint
from collscope.reports.efficiency.page import class_name, draw_classes, draw_shares, drawn_classes
from collscope.reports.rendering.drawing import colour_of, hatch_of
from collscope.reports.rendering.figure import (
    COLOURS,
    GREY,
    MARKERS,
    PLAIN,
    STYLE,
    TWO_AND_FIVE,
    write_figure,
)
from collscope.reports.report.answer import Report, report_ops
from collscope.units import count, format_size, format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

_MOST_CURVES = len(COLOURS)
_MOST_BARS = 20
_FEWEST_POINTS = 2  # of a curve
_WIDEST_BAR = 0.4  # of a bin
_DECADES = 1e4  # what is smaller than the largest by more is not told apart
_LONGEST = 24  # characters of a label in a legend
_MOST_IN_TWO_COLUMNS = 4
_PANEL = {1: (7.5, 5.2), 2: (7.5, 5.2), 3: (5.2, 3.9)}  # inches of one, by columns
_CAPTION_LINE = 0.2  # inches
_FEW_TICKS = 30  # highest over lowest bandwidth
_WIDEST = 14.0  # inches
_GRID: dict[Any, Any] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
}


class Drawing(msgspec.Struct, frozen=True):
    """A part of the picture, and the inches that it wants."""

    width: float
    height: float
    draw: Callable[[SubFigure], None]


def write_plot(report: Report, path: Path) -> bool:
    """Draw what the report has data for into one file, from top to bottom; False: there is nothing.

    report   with all its classes
    path     .png, .svg or .pdf, as `check_plot` has found it
    raises   InputError when the file cannot be written
    """
    plots = (classes_plot, busbw_plot, share_plot, sizes_plot, recoverable_plot)
    drawings = [drawing for plot in plots if (drawing := plot(report)) is not None]
    if not drawings:
        return False
    with mpl.rc_context(STYLE | _GRID):
        write_figure(draw_figure(drawings), path)
    return True


def draw_figure(drawings: Sequence[Drawing]) -> Figure:
    """One figure of several drawings, one below the other."""
    heights = [drawing.height for drawing in drawings]
    size = (max(drawing.width for drawing in drawings), sum(heights))
    figure = plt.figure(figsize=size, layout="constrained")
    parts = figure.subfigures(len(drawings), 1, squeeze=False, height_ratios=heights)
    for part, drawing in zip(parts.flat, drawings, strict=True):
        drawing.draw(part)
    return figure


def classes_plot(report: Report) -> Drawing | None:
    """Every class as a mark: size, bus bandwidth, share of the collective time, both ceilings."""
    rows, outside = drawn_classes(report.judgement.classes)
    if not rows:
        return None
    beyond = f", {len(outside)} outside of the axes" if outside else ""

    def draw(figure: SubFigure) -> None:
        axis = figure.subplots()
        draw_classes(axis, rows, report_ops(report))
        # beside the panel: no corner of it is always free
        axis.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        axis.set_title(
            f"Classes of run {report.header.run}: area by share of collective time{beyond}"
        )
        figure.supxlabel(
            "bar above a mark: the reachable ceiling; dotted line: the fabric's limit",
            fontsize=8,
            x=0.98,
            ha="right",
        )

    return Drawing(11, 5.5, draw)


def busbw_plot(report: Report) -> Drawing | None:
    """Bus bandwidth over message size with the roof, one panel per operation; no single points."""
    by_op: dict[str, list[Curve]] = defaultdict(list)
    for curve in report.judgement.curves:
        if len(curve.points) >= _FEWEST_POINTS:
            by_op[curve.op].append(curve)
    if not by_op:
        return None
    columns = min(len(by_op), 2 if len(by_op) <= _MOST_IN_TWO_COLUMNS else 3)
    rows = -(-len(by_op) // columns)
    width, height = _PANEL[columns]
    shown = {op: _most_telling(c, report.judgement.label) for op, c in by_op.items()}
    names = _short_labels(curve for curves in shown.values() for curve in curves)
    caption = [f"{short}: {label}" for label, short in names.items() if short != label]

    def draw(figure: SubFigure) -> None:
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis, (op, curves) in zip(axes.flat, shown.items(), strict=False):
            _draw_curves(axis, curves, names)
            left = len(by_op[op]) - len(curves)
            axis.set_title(op + (f" ({count(left, 'more curve')} not drawn)" if left else ""))
        for axis in axes.flat[len(by_op) :]:
            axis.set_visible(False)
        if caption:
            figure.supxlabel("\n".join(caption), fontsize=8, x=0.02, ha="left")
        figure.suptitle(f"Bus bandwidth of run {report.header.run}", fontweight="bold")

    return Drawing(width * columns, height * rows + _CAPTION_LINE * len(caption), draw)


def _short_labels(curves: Iterable[Curve]) -> dict[str, str]:
    """What legends call the labels: letters, named below the panels, where one of them is long."""
    labels = list(dict.fromkeys(curve.label for curve in curves))
    if all(len(label) <= _LONGEST for label in labels):
        return {label: label for label in labels}
    letters = string.ascii_uppercase
    return {
        label: letters[index] if index < len(letters) else f"#{index + 1}"
        for index, label in enumerate(labels)
    }


def _draw_curves(axis: Axes, shown: Sequence[Curve], names: Mapping[str, str]) -> None:
    for index, curve in enumerate(shown):
        axis.plot(
            [point.size_bytes for point in curve.points],
            [point.busbw_gbps for point in curve.points],
            color=COLOURS[index],
            marker=MARKERS[index],
            markersize=4.5,
            linewidth=1.6,
            label=_curve_name(curve, shown, names),
        )
    dashes = ("--", ":", "-.")
    roofs = {(c.nranks, c.nnodes): c for c in shown if c.roof_points}
    for index, ((nranks, _), curve) in enumerate(roofs.items()):
        ranks = f" ({nranks} ranks)" if len(roofs) > 1 else ""
        axis.plot(
            [point.size_bytes for point in curve.roof_points],
            [point.busbw_gbps for point in curve.roof_points],
            color=GREY,
            linestyle=dashes[index % len(dashes)],
            # a line of one point is invisible
            marker="_" if len(curve.roof_points) == 1 else "",
            markersize=16,
            linewidth=1.4,
            label=f"roof: {curve.roof}{ranks}",
        )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(int(value))))
    axis.yaxis.set_major_formatter(PLAIN)
    _fit_axes(axis, [p for curve in shown for p in (*curve.points, *curve.roof_points)])
    axis.tick_params(axis="x", labelrotation=30)
    axis.set_xlabel("message size (nccl-tests size S)")
    axis.set_ylabel("bus bandwidth (GB/s)")
    # below the panel: no corner of it is always free
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.36), ncols=2, fontsize=8)


def _fit_axes(axis: Axes, points: Sequence[CurvePoint]) -> None:
    """Room around points of one size; labels between powers of ten where these are too few."""
    size = points[0].size_bytes
    lowest, highest = (f(point.busbw_gbps for point in points) for f in (min, max))
    if all(point.size_bytes == size for point in points):
        axis.set_xlim(size / 4, size * 4)
        axis.set_ylim(lowest / 2, highest * 2)
    narrow = highest < _FEW_TICKS * lowest
    axis.yaxis.set_minor_formatter(TWO_AND_FIVE if narrow else NullFormatter())


def _most_telling(curves: Sequence[Curve], judged: str | None) -> list[Curve]:
    """The judged label's curves, then those with the most points; drawn in their own order."""
    order = sorted(
        range(len(curves)), key=lambda i: (curves[i].label != judged, -len(curves[i].points))
    )
    return [curves[i] for i in sorted(order[:_MOST_CURVES])]


def _curve_name(curve: Curve, shown: Sequence[Curve], names: Mapping[str, str]) -> str:
    """Label, with ranks and nodes where the panel has several shapes."""
    label = names[curve.label]
    if len({(c.nranks, c.nnodes) for c in shown}) == 1:
        return label
    nodes = "" if curve.nnodes is None else f" on {count(curve.nnodes, 'node')}"
    return f"{label}, {curve.nranks} ranks{nodes}"


def share_plot(report: Report) -> Drawing | None:
    """Part of the collective time by class: what is at the roof, and what could be won."""
    rows = [row for row in report.judgement.classes if row.time_share]
    rows.sort(key=lambda row: -(row.time_share or 0))
    if not rows:
        return None
    shown = rows[:_MOST_BARS]

    def draw(figure: SubFigure) -> None:
        axis = figure.subplots()
        draw_shares(axis, shown)
        axis.set_yticks(range(len(shown)), [class_name(row) for row in shown])
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.set_xlabel("part of the run's collective time (%)")
        more = f", the first {len(shown)} of {len(rows)}" if len(rows) > len(shown) else ""
        axis.set_title(f"Collective time by class{more}", fontweight="bold")
        axis.legend(loc="lower right", fontsize=9)

    return Drawing(9, 1.6 + 0.36 * len(shown), draw)


def sizes_plot(report: Report) -> Drawing | None:
    """Calls and bytes by message size, in powers of two, by operation."""
    found = [h for h in report.histograms if h.name == "powers_of_two"]
    if not found:
        return None
    bins = found[0].bins
    colours, hatches = colour_of(report_ops(report)), hatch_of(report_ops(report))
    there = {op.op for row in bins for op in row.ops}

    def draw(figure: SubFigure) -> None:
        top, bottom = figure.subplots(2, 1, sharex=True)
        places = np.arange(len(bins))
        for op in (op for op in colours if op in there):
            where, width, calls = zip(*_bars_of(op, bins), strict=True)
            top.bar(where, calls, width, color=colours[op], hatch=hatches[op], label=op)
        top.set_yscale("log")
        top.yaxis.set_major_formatter(PLAIN)
        top.set_ylim(bottom=0.7)
        top.set_ylabel("calls")
        # beside the panel: no corner of it is always free
        top.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        top.set_title("Message sizes", fontweight="bold")
        bottom.bar(places, [row.total_bytes / 1e9 for row in bins], 0.8, color=GREY)
        bottom.set_ylabel("all calls' bytes (GB)")
        bottom.set_xlabel("message size: from (a bin ends at the next)")
        bottom.set_xticks(places, [format_size(row.low_bytes) for row in bins], rotation=60)
        for axis in (top, bottom):
            axis.grid(axis="x", visible=False)

    return Drawing(_width(len(bins)), 6.4, draw)


def _bars_of(op: str, bins: Sequence[Bin]) -> list[tuple[float, float, int]]:
    """(place, width, calls) of an operation's bars: those of a bin share the room at its tick."""
    bars = []
    for place, row in enumerate(bins):
        here = list(dict.fromkeys(o.op for o in row.ops))
        if op in here:
            width = min(0.8 / len(here), _WIDEST_BAR)
            offset = (here.index(op) - (len(here) - 1) / 2) * width
            bars.append((place + offset, width, sum(o.calls for o in row.ops if o.op == op)))
    return bars


def _width(columns: int) -> float:
    """Inches of a figure with so many columns."""
    return min(max(7.0, 0.42 * columns + 2), _WIDEST)


def recoverable_plot(report: Report) -> Drawing | None:
    """Seconds above the roof by operation and size: where tuning would pay."""
    cells: dict[tuple[str, int], float] = defaultdict(float)
    for row in report.judgement.classes:
        if row.recoverable_s is not None and row.size_bytes:
            # the power of two at or below the size
            cells[f"{row.op} x{row.nranks}", row.size_bytes.bit_length() - 1] += row.recoverable_s
    if not cells:
        return None
    ops = sorted({op for op, _ in cells})
    powers = range(min(p for _, p in cells), max(p for _, p in cells) + 1)
    grid = np.full((len(ops), len(powers)), np.nan)
    for (op, power), seconds in cells.items():
        grid[ops.index(op), power - powers[0]] = seconds
    names = (ops, [format_size(2**power) for power in powers])
    size = (_width(len(powers)), 2.2 + 0.5 * len(ops))
    return Drawing(*size, lambda figure: _draw_heat(figure, grid, names))


def _draw_heat(
    figure: SubFigure, grid: NDArray[np.float64], names: tuple[list[str], list[str]]
) -> None:
    """Heat map with a logarithmic colour scale; cells without a class stay white."""
    axis = figure.subplots()
    highest = float(np.nanmax(grid))
    positive = grid[grid > 0]
    lowest = max(float(positive.min()), highest / _DECADES) if len(positive) else 0.1
    shown = np.where(np.isnan(grid), np.nan, np.maximum(grid, lowest))
    # a range of its own where all cells are equal
    norm = LogNorm(vmin=lowest, vmax=max(highest, 1.01 * lowest))
    image = axis.imshow(shown, aspect="auto", cmap="cividis", norm=norm)
    for row, column in zip(*np.nonzero(~np.isnan(grid)), strict=True):
        seconds = float(grid[row, column])
        dark = norm(max(seconds, lowest)) < 0.5
        axis.text(
            column, row, format_time(seconds * 1e9).replace(" ", "\n") if seconds else "0",
            ha="center", va="center", fontsize=7, color="white" if dark else "black",
        )  # fmt: skip
    axis.set_yticks(range(len(names[0])), names[0])
    axis.set_xticks(range(len(names[1])), names[1], rotation=60)
    axis.grid(visible=False)
    axis.set_xlabel("message size: from (a cell ends at the next)")
    axis.set_title("Time above the roof: seconds over all calls and devices", fontweight="bold")
    bar = figure.colorbar(image, ax=axis, label="recoverable time (s)", format=PLAIN)
    bar.ax.yaxis.set_minor_formatter(TWO_AND_FIVE)
