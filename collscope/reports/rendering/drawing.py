"""What all drawings of a page have in common: sizes, style, axes, colours, heat maps."""

from __future__ import annotations

import collscope.reports.rendering.mpl_cache  # noqa: F401 - before matplotlib

# isort: split

import io
import re
from collections.abc import Callable, Mapping, Sequence
from math import log2
from typing import TYPE_CHECKING, Any, TypeAlias

import matplotlib as mpl
import msgspec
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure as Whole
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from collscope.model import Op
from collscope.units import format_size

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


# Okabe and Ito 2008, distinct with every common colour blindness; yellow is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
# Labels of log axes, which matplotlib writes as powers of ten in TeX; the second of minor ticks.
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
TWO_AND_FIVE = FuncFormatter(
    lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else ""  # the first digit
)
# Stand for the page's own colours in the SVG, so that light, dark and print follow.
INK, LINE = "#010203", "#030201"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "text.parse_math": False, "font.family": "sans-serif",
    "font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": LINE,
    "xtick.color": INK, "ytick.color": INK, "grid.color": LINE, "grid.linewidth": 0.5,
    "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "figure.facecolor": "none", "axes.facecolor": "none",
}  # fmt: skip
_WIDE, _NARROW = 12.4, 4.4  # inches of a drawing as wide as the page, and as a telephone
_LEFT, _RIGHT, TOP, _BOTTOM = 0.72, 0.34, 0.12, 0.58  # inches around an axis with numbers
LETTER = 0.085  # inches of one in a name beside an axis, about
_LONGEST_NAME = 40  # characters of a row's name
_ROW, _ROW_NARROW = 0.28, 0.46  # inches of a row with its name beside it, and above it
_DECADE = 10  # highest over lowest value, below which evenly spaced numbers show more
_FEW_TICKS = 100  # highest over lowest value of an axis on which powers of ten are too few
_SIZE_TICK = 1.1  # inches that a label of the axis of sizes needs
# How a legend writes marks and lines: there the page's own text stands for matplotlib's shapes.
_SIGNS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "_": "▬", "|": "❘"}
_HOLLOW = {"o": "○", "s": "□"}
_LINES = {"-": "—", "--": "– –", "-.": "– ·", ":": "···"}
_HATCHES = {"": "■", "//": "▨", "\\\\": "▧", "..": "▩"}


Drawing: TypeAlias = Whole | SubFigure  # a picture, or a part of one


class Key(msgspec.Struct, frozen=True):
    """An entry of a drawing's legend.

    colour  as CSS writes it
    sign    character that looks like the mark or line
    mark    what the entry switches on and off; empty when it only explains
    """

    name: str
    colour: str
    sign: str
    mark: str = ""


class Picture(msgspec.Struct, frozen=True):
    """A drawing as markup, for wide and for narrow screens, and its legend.

    svg  of our own making, in which text from input is escaped
    """

    svg: str
    legend: tuple[Key, ...] = ()


class Sheet(msgspec.Struct, frozen=True):
    """What a drawing is made for, by inches of width: a screen, a telephone, a part of a file.

    parts  gives the part of a file for a drawing of this width and height; without it a drawing is
           a picture of its own
    """

    width: float
    parts: Callable[[float, float], Drawing] | None = None

    @property
    def narrow(self) -> bool:
        """True for a telephone's."""
        return self.width <= _NARROW

    @property
    def bar(self) -> float:
        """Height of a bar in rows: on a narrow sheet its name stands above it."""
        return 0.42 if self.narrow else 0.72

    def figure(self, width: float, height: float) -> Drawing:
        """An empty drawing, in inches."""
        return Whole(figsize=(width, height)) if self.parts is None else self.parts(width, height)

    def axes(
        self, height: float, rows: int = 1, *, left: float = _LEFT, bottom: float = _BOTTOM
    ) -> tuple[Drawing, Sequence[Axes]]:
        """Axes below each other that share what they show from left to right; all in inches."""
        drawing = self.figure(self.width, height)
        axes = drawing.subplots(rows, 1, sharex=True, squeeze=False, gridspec_kw={
            "left": left / self.width, "right": 1 - _RIGHT / self.width,
            "top": 1 - TOP / height, "bottom": bottom / height,
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
        shown = [n if len(n) <= _LONGEST_NAME else f"{n[: _LONGEST_NAME - 1]}~" for n in names]
        longest = 0.2 if self.narrow else 0.25 + LETTER * max(map(len, shown))
        row = _ROW_NARROW if self.narrow else step or _ROW
        drawing, (axis,) = self.axes(TOP + _BOTTOM + row * len(names), left=longest)
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
    with mpl.rc_context(STYLE):
        first = make(wide)
        keys = tuple(_key(artist, label) for label, artist in labelled(first).items())
        forms = [_svg(picture_of(first), "wide")]
        if picture_of(first).get_figwidth() > _NARROW:
            forms.append(_svg(picture_of(make(narrow)), "narrow"))
    return Picture("".join(forms), keys)


def _svg(drawing: Whole, form: str) -> str:
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
    return svg.replace(INK, "var(--ink)").replace(LINE, "var(--line)")


def picture_of(drawing: Drawing) -> Whole:
    """The picture that a drawing stands in, or is."""
    return drawing.get_figure(root=True)


def labelled(drawing: Drawing) -> Mapping[str, Artist | BarContainer]:
    """What the legend names: labelled artists, each label once."""
    found: dict[str, Artist | BarContainer] = {}
    for axis in drawing.axes:
        for artist, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, artist)
    return found


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


def colour_of(ops: Sequence[Op]) -> Mapping[Op, str]:
    """A colour per operation; of all that a report has, in order, so that its drawings agree."""
    return {op: COLOURS[i % len(COLOURS)] for i, op in enumerate(ops)}


def marker_of(ops: Sequence[Op]) -> Mapping[Op, str]:
    """A mark per operation: another shape where the colours begin again."""
    return {op: "osD^"[i // len(COLOURS) % 4] for i, op in enumerate(ops)}


def hatch_of(ops: Sequence[Op]) -> Mapping[Op, str]:
    """A hatch per operation, for bars: none until the colours begin again."""
    return {op: "//" if i >= len(COLOURS) else "" for i, op in enumerate(ops)}


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


WAITING = "waiting for a late rank"
PARTS = {  # of the bars, with colour and hatch: none that an operation has
    "at the reachable speed": ("#8C959F", ""),
    "above it: possible saving": ("#5E3C99", ""),
    "slower in the job than alone": ("#9A86C4", "//"),
    WAITING: ("#CC79A7", ".."),
    "not judged, or not known": ("#D0D7DE", ""),
}
