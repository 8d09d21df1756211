"""What all drawings of a page have in common: style, axes, colours of operations, heat maps."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from collscope.reports.figure import COLOURS, MARKERS
from collscope.reports.html.page import Figure
from collscope.reports.layout import NUMBER, TEXT, table
from collscope.units import figure, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# Stand for the page's own colours in the SVG, so that light, dark and print follow.
INK, _LINE = "#010203", "#030201"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "text.parse_math": False, "svg.hashsalt": "collscope",
    "font.family": "sans-serif",
    "font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": _LINE,
    "xtick.color": INK, "ytick.color": INK, "grid.color": _LINE, "grid.linewidth": 0.5,
    "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "figure.facecolor": "none", "axes.facecolor": "none",
    "legend.frameon": False,
}  # fmt: skip
WIDE = 12.4  # inches of a drawing as wide as the page
_NARROW = 6.0  # of one that a telephone can show
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")  # labels of a log axis
_TWO_AND_FIVE = FuncFormatter(
    lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else ""  # the first digit
)
_DECADE = 10  # highest over lowest value, below which evenly spaced numbers tell more
_FEW_TICKS = 30  # highest over lowest value of an axis on which powers of ten are too few
_SHORT_NAME = 5  # characters of a column's name that needs no room to turn
_LONGEST_NAME = 40  # characters of a row's name
_MOST_NUMBERS = 400  # cells of a matrix with a number each


def draw(make: Callable[[], Drawing]) -> str:
    """SVG markup of a drawing: text as text, colours as the page's variables."""
    with mpl.rc_context(_STYLE):
        figure = make()
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)
        wide = figure.get_figwidth() > _NARROW  # is not shrunk to a narrow screen
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg ", '<svg class="wide" ', 1) if wide else svg
    return svg.replace(INK, "var(--ink)").replace(_LINE, "var(--line)")


def colour_of(ops: Sequence[str]) -> Mapping[str, str]:
    """A colour per operation, the same in every drawing of a page."""
    return {op: COLOURS[i % len(COLOURS)] for i, op in enumerate(sorted(set(ops)))}


def marker_of(ops: Sequence[str]) -> Mapping[str, str]:
    """A mark per operation: another shape where the colours begin again."""
    return {op: "osD^"[i // len(COLOURS) % 4] for i, op in enumerate(sorted(set(ops)))}


def series_style(number: int, *, marked: bool = True) -> dict[str, Any]:
    """Colour and mark of a line: no two of the first 36 have both in common."""
    mark = MARKERS[(number + number // len(COLOURS)) % len(MARKERS)] if marked else ""
    return {"color": COLOURS[number % len(COLOURS)], "marker": mark}


def size_axis(axis: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis of message sizes, labelled in binary units."""
    low, high = min(sizes), max(sizes)
    axis.set_xscale("log", base=2)
    axis.set_xlim(low / 2, high * 2)
    first, last = int(log2(low)) - 1, int(log2(high)) + 2
    step = max(1, (last - first) // 9)
    ticks = [2**k for k in range(first, last, step) if k >= 0]
    axis.set_xticks(ticks, [format_size(t) for t in ticks])
    axis.minorticks_off()
    axis.set_xlabel("message size (nccl-tests size of one call)")


def log_axis(axis: Axes, which: str) -> None:
    """Make the axis `x` or `y` of what is drawn logarithmic, with plain numbers, and enough."""
    axis.set(**{f"{which}scale": "log"})
    side = axis.xaxis if which == "x" else axis.yaxis
    low, high = axis.get_xlim() if which == "x" else axis.get_ylim()
    if high < _DECADE * low:
        side.set_major_locator(MaxNLocator(6))
        side.set_minor_locator(NullLocator())
    side.set_major_formatter(PLAIN)
    side.set_minor_formatter(_TWO_AND_FIVE if high < _FEW_TICKS * low else NullFormatter())


def row_axis(axis: Axes, names: Sequence[str]) -> None:
    """Rows from the top with a name each; long names keep their beginning."""
    shown = [n if len(n) <= _LONGEST_NAME else f"{n[: _LONGEST_NAME - 1]}…" for n in names]
    axis.set_yticks(range(len(names)), shown)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")


@dataclass(frozen=True, slots=True)
class Matrix:
    """Values by row and column, None where there is none, and their unit.

    corner  what rows and columns are, in the table's head
    """

    corner: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    unit: str


def heat_figure(title: str, text: str, matrix: Matrix) -> Figure:
    """A matrix as coloured cells with its values; a missing value stays empty."""
    rows, columns, values = matrix.rows, matrix.columns, matrix.values
    grid = np.array([[np.nan if v is None else v for v in row] for row in values], dtype=float)
    short = max(map(len, columns)) <= _SHORT_NAME

    def make() -> Drawing:
        size = min(WIDE, 2.8 + 0.62 * len(columns)), (0.9 if short else 1.9) + 0.34 * len(rows)
        drawing, axis = plt.subplots(figsize=size, layout="constrained")
        shown = axis.imshow(
            np.ma.masked_invalid(grid), cmap="viridis", aspect="auto", interpolation="none",
            extent=(0, len(columns), len(rows), 0),
        )  # fmt: skip
        turned, end = (0, "center") if short else (45, "right")
        axis.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=turned, ha=end)
        axis.set_yticks(np.arange(len(rows)) + 0.5, rows)
        axis.grid(visible=False)
        drawing.colorbar(shown, ax=axis, label=matrix.unit, format=PLAIN)
        if grid.size <= _MOST_NUMBERS:
            middle = np.nanmean([np.nanmin(grid), np.nanmax(grid)])
            for i, j in np.argwhere(~np.isnan(grid)):
                colour = "black" if grid[i, j] > middle else "white"
                axis.text(j + 0.5, i + 0.5, figure(grid[i, j]), ha="center", va="center",
                          fontsize=9, color=colour)  # fmt: skip
        return drawing

    found = table(
        [(matrix.corner, TEXT), *((f"{column} {matrix.unit}", NUMBER) for column in columns)],
        ([name, *line] for name, line in zip(rows, values, strict=True)),
    )
    return Figure(title, text, draw(make), found, {})
