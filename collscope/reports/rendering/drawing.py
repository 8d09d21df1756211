"""What all drawings of a page have in common: sizes, style, axes, colours, heat maps."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, log2
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import msgspec
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from collscope.reports.rendering.figure import COLOURS, MARKERS, PLAIN, TWO_AND_FIVE
from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.page import Figure, Key, Picture
from collscope.units import figure, format_size

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


# Stand for the page's own colours in the SVG, so that light, dark and print follow.
INK, _LINE = "#010203", "#030201"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "text.parse_math": False, "font.family": "sans-serif",
    "font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": _LINE,
    "xtick.color": INK, "ytick.color": INK, "grid.color": _LINE, "grid.linewidth": 0.5,
    "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "figure.facecolor": "none", "axes.facecolor": "none",
}  # fmt: skip
_WIDE, _NARROW = 12.4, 4.4  # inches of a drawing as wide as the page, and as a telephone
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.72, 0.34, 0.12, 0.58  # inches around an axis with numbers
_LETTER = 0.085  # inches of one in a name beside an axis, about
_LONGEST_NAME = 40  # characters of a row's name
_ROW, _ROW_NARROW = 0.28, 0.46  # inches of a row with its name beside it, and above it
_DECADE = 10  # highest over lowest value, below which evenly spaced numbers tell more
_FEW_TICKS = 100  # highest over lowest value of an axis on which powers of ten are too few
_SIZE_TICK = 1.1  # inches that a label of the axis of sizes needs
_SHORT_NAME = 5  # characters of a column's name that needs no room to turn
_MOST_NUMBERS = 400  # cells of a matrix with a number each
_CELL, _CELL_NUMBER = 0.62, 0.4  # inches of a cell, and the least with a number in it
_COLUMN_NAME = 0.2  # inches that the name of a column needs
# How a legend writes marks and lines: there the page's own text stands for matplotlib's shapes.
_SIGNS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "_": "▬", "|": "❘"}
_HOLLOW = {"o": "○", "s": "□"}
_LINES = {"-": "—", "--": "– –", "-.": "– ·", ":": "···"}
_HATCHES = {"": "■", "//": "▨", "\\\\": "▧", "..": "▩"}


class Sheet(msgspec.Struct, frozen=True):
    """What a drawing is made for: the page on a screen, or on a telephone, by inches of width."""

    width: float

    @property
    def narrow(self) -> bool:
        """True for a telephone's."""
        return self.width <= _NARROW

    @property
    def bar(self) -> float:
        """Height of a bar in rows: on a narrow sheet its name stands above it."""
        return 0.42 if self.narrow else 0.72

    def axes(
        self, height: float, rows: int = 1, *, left: float = _LEFT, bottom: float = _BOTTOM
    ) -> tuple[Drawing, Sequence[Axes]]:
        """Axes below each other that share what they show from left to right; all in inches."""
        drawing = Drawing(figsize=(self.width, height))
        axes = drawing.subplots(rows, 1, sharex=True, squeeze=False, gridspec_kw={
            "left": left / self.width, "right": 1 - _RIGHT / self.width,
            "top": 1 - _TOP / height, "bottom": bottom / height,
        })  # fmt: skip
        return drawing, list(axes[:, 0])

    def axis(self, height: float) -> tuple[Drawing, Axes]:
        """One axis with numbers on both sides."""
        drawing, (axis,) = self.axes(height)
        return drawing, axis

    def rows(self, names: Sequence[str], step: float | None = None) -> tuple[Drawing, Axes]:
        """An axis of rows from the top, each with a name; long names keep their beginning.

        step  inches of a row on a wide sheet
        """
        shown = [n if len(n) <= _LONGEST_NAME else f"{n[: _LONGEST_NAME - 1]}…" for n in names]
        longest = 0.2 if self.narrow else 0.25 + _LETTER * max(map(len, shown))
        row = _ROW_NARROW if self.narrow else step or _ROW
        drawing, (axis,) = self.axes(_TOP + _BOTTOM + row * len(names), left=longest)
        if self.narrow:
            axis.set_yticks([])
            for i, name in enumerate(shown):
                axis.text(0, i - 0.26, name, transform=axis.get_yaxis_transform())
        else:
            axis.set_yticks(range(len(names)), shown)
        axis.set_ylim(len(names) - 0.5, -0.75 if self.narrow else -0.6)
        axis.grid(visible=False, axis="y")
        return drawing, axis


def draw(make: Callable[[Sheet], Drawing]) -> Picture:
    """A drawing for screens and for telephones: text as text, colours as the page's variables.

    make  draws it on a sheet; labelled artists make the legend, whose entry switches the marks of
          the artist's `gid` where it has one. A `gid` with a hyphen is a mark's id.
    """
    wide, narrow = Sheet(_WIDE), Sheet(_NARROW)
    with mpl.rc_context(_STYLE):
        first = make(wide)
        keys = tuple(_keys(first))
        forms = [_svg(first, "wide")]
        if first.get_figwidth() > _NARROW:
            forms.append(_svg(make(narrow), "narrow"))
    return Picture("".join(forms), keys)


def _svg(drawing: Drawing, form: str) -> str:
    """SVG markup; `form` is its class, and keeps its ids apart from those of other forms."""
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": form}):
        drawing.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    small = drawing.get_figwidth() <= _NARROW and form == "wide"
    svg = svg.replace("<svg ", f'<svg class="{"small" if small else form}" ', 1)
    svg = re.sub(r' id="[^"-]*_\d+"', "", svg)  # matplotlib's own, which nothing refers to
    svg = re.sub(r' id="([^"]*-[^"]*)"', r' data-mark="\1"', svg)  # the same in both forms
    return svg.replace(INK, "var(--ink)").replace(_LINE, "var(--line)")


def _keys(drawing: Drawing) -> Iterable[Key]:
    """The legend: labelled artists, each label once."""
    seen = set()
    for axis in drawing.axes:
        for artist, label in zip(*axis.get_legend_handles_labels(), strict=True):
            if label not in seen:
                seen.add(label)
                yield _key(artist, label)


def _key(artist: Artist | BarContainer, label: str) -> Key:
    if isinstance(artist, BarContainer):
        bar = artist.patches[0]
        colour, sign = bar.get_facecolor(), _HATCHES[bar.get_hatch() or ""]
        return Key(label, to_hex(colour), sign)
    assert isinstance(artist, Line2D)
    colour, marker = to_hex(artist.get_color()), str(artist.get_marker())
    if marker in _SIGNS:
        hollow = artist.get_markerfacecolor() == "none" and marker in _HOLLOW
        sign, colour = (_HOLLOW if hollow else _SIGNS)[marker], to_hex(artist.get_markeredgecolor())
    else:
        sign = _LINES[str(artist.get_linestyle())]
    return Key(label, "var(--ink)" if colour == INK else colour, sign, artist.get_gid() or "")


def colour_of(ops: Iterable[str]) -> Mapping[str, str]:
    """A colour per operation; of all that a report has, so that its drawings have the same."""
    return {op: COLOURS[i % len(COLOURS)] for i, op in enumerate(sorted(set(ops)))}


def marker_of(ops: Iterable[str]) -> Mapping[str, str]:
    """A mark per operation: another shape where the colours begin again."""
    return {op: "osD^"[i // len(COLOURS) % 4] for i, op in enumerate(sorted(set(ops)))}


def hatch_of(ops: Iterable[str]) -> Mapping[str, str]:
    """A hatch per operation, for bars: none until the colours begin again."""
    return {op: "//" if i >= len(COLOURS) else "" for i, op in enumerate(sorted(set(ops)))}


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
    most = max(2, int(axis.bbox.width / axis.figure.dpi / _SIZE_TICK))
    step = max(1, -(-(last - first) // most))
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
    few = _DECADE * low <= high < _FEW_TICKS * low
    side.set_minor_locator(LogLocator(subs=(2, 5)) if few else NullLocator())
    side.set_major_formatter(PLAIN)
    side.set_minor_formatter(TWO_AND_FIVE if few else NullFormatter())


class Matrix(msgspec.Struct, frozen=True):
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
    found = table(
        [(matrix.corner, TEXT), *((f"{c} {matrix.unit}", NUMBER) for c in matrix.columns)],
        ([name, *line] for name, line in zip(matrix.rows, matrix.values, strict=True)),
    )
    picture = draw(lambda sheet: _heat_map(matrix, sheet))
    cells = [
        [f"{row}, {column}: " + ("none" if v is None else f"{figure(v, 4)} {matrix.unit}")
         for column, v in zip(matrix.columns, values, strict=True)]
        for row, values in zip(matrix.rows, matrix.values, strict=True)
    ]  # fmt: skip
    return Figure(title, text, picture, found, {}, cells=cells)


def _heat_map(matrix: Matrix, sheet: Sheet) -> Drawing:
    rows, columns = matrix.rows, matrix.columns
    grid = np.array([[np.nan if v is None else v for v in r] for r in matrix.values], dtype=float)
    longest = max(map(len, columns))
    turn = 0 if longest <= _SHORT_NAME else 90 if sheet.narrow else 45
    across, down = ({0: 0.0, 45: 0.75, 90: 0.3}[turn], {0: 0.0, 45: 0.75, 90: 1.0}[turn])
    left = max(0.25 + _LETTER * max(map(len, rows)), across * _LETTER * longest)
    bottom, bar = 0.35 + down * _LETTER * longest, 0.95
    cell = min(_CELL, (sheet.width - left - bar) / len(columns))
    width, height = left + cell * len(columns) + bar, _TOP + 0.34 * len(rows) + bottom
    drawing = Drawing(figsize=(width, height))
    tall = bottom / height, 0.34 * len(rows) / height
    axis = drawing.add_axes((left / width, tall[0], cell * len(columns) / width, tall[1]))
    shown = axis.imshow(
        np.ma.masked_invalid(grid), cmap="viridis", aspect="auto", interpolation="none",
        extent=(0, len(columns), len(rows), 0), gid="heat-map",
    )  # fmt: skip
    places = range(0, len(columns), ceil(_COLUMN_NAME / cell))
    axis.set_xticks([i + 0.5 for i in places], [columns[i] for i in places], rotation=turn,
                    ha="right" if turn == 45 else "center")  # fmt: skip
    axis.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axis.grid(visible=False)
    scale = drawing.add_axes((1 - (bar - 0.15) / width, tall[0], 0.15 / width, tall[1]))
    drawing.colorbar(shown, cax=scale, label=matrix.unit, format=PLAIN)
    if grid.size <= _MOST_NUMBERS and cell >= _CELL_NUMBER:
        middle = np.nanmean([np.nanmin(grid), np.nanmax(grid)])
        for i, j in np.argwhere(~np.isnan(grid)):
            colour = "black" if grid[i, j] > middle else "white"
            axis.text(j + 0.5, i + 0.5, figure(grid[i, j]), ha="center", va="center",
                      fontsize=9, color=colour)  # fmt: skip
    return drawing


WAITING = "waiting for a late rank"
PARTS = {  # of the bars, with colour and hatch: none that an operation has
    "at the roof": ("#8C959F", ""),
    "above the roof, to win": ("#5E3C99", ""),
    "slower in the job than alone": ("#9A86C4", "//"),
    WAITING: ("#CC79A7", ".."),
    "not judged": ("#D0D7DE", ""),
}
