"""Bus bandwidth against size, both logarithmic: a curve per label, crossovers and the roof."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from collscope.errors import UsageError
from collscope.reports.compare.answer import ClassComparison, Comparison, curves
from collscope.reports.rendering.figure import COLOURS, MARKERS, check_plot, write_figure
from collscope.roofline.roof import Roofs
from collscope.roofline.workload import Workload
from collscope.units import format_size

_PANELS = 6  # curves drawn; the rest would be too small to read
_ROWS_OF = 2  # panels beside each other
_WIDTH, _HEIGHT = 6.4, 4.2  # inches of a panel
_Y_STEPS = (1.0, 2.0, 5.0)  # of a decade, that have a number on the axis, unless it is long
_WIDE = 1e3


def plot_compare(comparison: Comparison, path: Path, roofs: Roofs | None = None) -> None:
    """Draw the curves with the most sizes into a file.

    path    .png, .svg or .pdf; an earlier file is overwritten
    roofs   of the system whose roof is drawn
    raises  UsageError for another ending, or nothing to draw; InputError when it cannot be written
    """
    check_plot(path)
    drawn = [c for c in curves(comparison.classes) if any(_known(c, i) for i in _each(comparison))]
    if not drawn:
        raise UsageError(
            f"{path}: no common class has a bus bandwidth, so there is nothing to"
            " plot. Leave --plot out."
        )
    chosen = sorted(drawn, key=lambda curve: -len(curve))[:_PANELS]
    write_figure(_figure(comparison, chosen, len(drawn), roofs), path)


def _each(comparison: Comparison) -> range:
    return range(len(comparison.labels))


def _figure(
    comparison: Comparison,
    chosen: Sequence[Sequence[ClassComparison]],
    number: int,
    roofs: Roofs | None,
) -> Figure:
    across = min(_ROWS_OF, len(chosen))
    down = -(-len(chosen) // across)
    figure = Figure(figsize=(_WIDTH * across, _HEIGHT * down + 0.4), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flat
    for axes, curve in zip(panels, chosen, strict=False):
        _panel(axes, comparison, curve, roofs)
    for unused in list(figure.axes)[len(chosen) :]:
        unused.set_axis_off()
    handles = {
        str(line.get_label()): line
        for axes in figure.axes
        for line in axes.get_lines()
        if not str(line.get_label()).startswith("_")
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", frameon=False)
    if number > len(chosen):
        figure.suptitle(f"{len(chosen)} of {number} curves, those with the most sizes")
    return figure


def _panel(
    axes: Axes, comparison: Comparison, curve: Sequence[ClassComparison], roofs: Roofs | None
) -> None:
    key = curve[0].key
    for i, label in enumerate(comparison.labels):
        points = _known(curve, i)
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        # A dollar sign would begin a formula.
        name = label.replace("$", r"\$")
        axes.plot(*_columns(points), label=name, color=colour, marker=marker, markersize=4)
    if roofs is not None:
        _roof(axes, curve, roofs)
    datatype = None if key.datatype is None else key.datatype.value
    family = (key.op.value, datatype, key.nranks, key.in_place)
    for change in comparison.crossovers:
        if family == (change.op, change.datatype, change.nranks, change.in_place):
            axes.axvline(
                change.size_bytes, label="crossover", color="0.6", linewidth=0.8, linestyle=":"
            )
    place = {True: ", in place", False: ", out of place", None: ""}[key.in_place]
    kind = key.kind
    axes.set_title(f"{kind}, {key.nranks} ranks{place}", fontsize=10)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(int(size))))
    axes.tick_params(axis="x", labelrotation=30)
    axes.set_xlabel("size S")
    axes.set_ylabel("busbw GB/s")
    # Small sizes have a thousandth of the bandwidth of large ones.
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=_Y_STEPS if high < _WIDE * low else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda busbw, _: f"{busbw:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, color="0.9")


def _roof(axes: Axes, curve: Sequence[ClassComparison], roofs: Roofs) -> None:
    """Draw the target roof at the measured sizes, if the system says something of them."""
    key = curve[0].key
    nodes = key.nnodes or roofs.system.fewest_nodes(key.nranks or 1)
    points, name = [], ""
    for row in curve:
        size = row.key.size_bytes or 0
        work = Workload(key.op, size, key.nranks or 1, nodes)
        try:
            ceilings = roofs.ceilings(work)
        except UsageError:
            return
        if ceilings is not None:
            points.append((size, ceilings.target.busbw_gbps))
            name = f"roof: {ceilings.target.name}"
    if points:
        axes.plot(*_columns(points), label=name, color="black", linewidth=1.2, linestyle="--")


def _known(curve: Sequence[ClassComparison], label: int) -> list[tuple[int, float]]:
    """Sizes and bus bandwidths of one label; 0 has no place on a logarithmic axis."""
    pairs = [(row.key.size_bytes or 0, row.cells[label].busbw_gbps) for row in curve]
    return [(size, busbw) for size, busbw in pairs if busbw]


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [size for size, _ in points], [busbw for _, busbw in points]
