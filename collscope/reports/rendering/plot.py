"""The file of `--plot`: a page's figures one below the other, in print colours on white."""

from __future__ import annotations

import collscope.reports.rendering.mpl_cache  # noqa: F401 - before matplotlib

# isort: split

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
import msgspec
from matplotlib.figure import Figure as Whole

from collscope.errors import InputError, UsageError
from collscope.outputs import replaced, require_folder, require_output
from collscope.reports.rendering.drawing import STYLE, Drawing, Sheet, labelled, picture_of
from collscope.reports.rendering.page import CLICK, Figure
from collscope.writing import visible

if TYPE_CHECKING:
    from matplotlib.artist import Artist

FORMATS = (".png", ".svg", ".pdf")
_WIDTH = 9.0  # inches
_MARGIN, _GAP = 0.2, 0.3  # inches left of words, and below a figure
_TITLE, _LINE, _KEY_LINE = 0.34, 0.19, 0.23  # inches of a line of the title, the text, the legend
_LETTER, _SIGN = 0.08, 0.6  # inches of a letter in the legend, and of the sign before a name
_LETTERS = 115  # of a line of text
_LONGEST_KEY = 90  # letters of a name in the legend
_STYLE: dict[Any, Any] = STYLE | {
    "figure.facecolor": "white", "axes.facecolor": "white", "axes.edgecolor": "#8C959F",
    "grid.color": "#D0D7DE", "legend.frameon": False,
    "svg.fonttype": "path",  # a file looks the same where the font is missing
    "svg.hashsalt": "collscope",  # ids do not change from run to run
}  # fmt: skip


def check_plot(path: Path) -> None:
    """Refuse a file that cannot be drawn into before anything is measured.

    raises  UsageError for an ending that is not in `FORMATS`, InputError without its folder
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot {path}: not .png, .svg or .pdf. Choose one of them.")
    require_folder(path, "--plot")
    require_output(path, "--plot")


def write_plot(figures: Sequence[Figure], path: Path) -> None:
    """Draw figures into the file of `--plot`, in the form that its ending names.

    figures  at least one
    raises   UsageError for another ending, InputError when it cannot be written
    """
    check_plot(path)
    form = path.suffix.removeprefix(".").lower()
    # A date in the file would make equal plots differ.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    try:
        with mpl.rc_context(_STYLE), replaced(path) as file:
            _stacked(figures).savefig(file, format=form, dpi=150, metadata=metadata)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}. Name another file with --plot.") from error


class _Part(msgspec.Struct, frozen=True):
    """A figure and the heights that it needs: words are known only once it was drawn."""

    figure: Figure
    text: Sequence[str]
    columns: int
    head: float  # inches of title, text and legend
    height: float

    @staticmethod
    def of(figure: Figure) -> _Part:
        drawn = figure.make(Sheet(_WIDTH))
        text = wrap(visible(" ".join(figure.text.replace(CLICK, "").split())), _LETTERS)
        names = labelled(drawn)
        longest = min(max(map(len, names), default=0), _LONGEST_KEY)
        columns = max(1, int((_WIDTH - 2 * _MARGIN) / (_SIGN + _LETTER * longest)))
        lines = -(-len(names) // columns)
        head = _TITLE + _LINE * len(text) + _KEY_LINE * lines + 0.05
        return _Part(figure, text, columns, head, picture_of(drawn).get_figheight())


def stacked(figures: Sequence[Figure]) -> Whole:
    """Figures one below the other, as one of matplotlib."""
    with mpl.rc_context(_STYLE):
        return _stacked(figures)


def _stacked(figures: Sequence[Figure]) -> Whole:
    parts = [_Part.of(figure) for figure in figures]
    height = sum(part.head + part.height + _GAP for part in parts)
    page = Whole(figsize=(_WIDTH, height))
    top = 0.1
    for part in parts:
        _draw(part, page, top)
        top += part.head + part.height + _GAP
    return page


def _draw(part: _Part, page: Whole, top: float) -> None:
    """A figure, `top` inches from the upper edge."""
    height = page.get_figheight()

    def place(width: float, tall: float) -> Drawing:
        above = top + part.head
        grid = page.add_gridspec(
            3, 2, height_ratios=(above, tall, height - above - tall),
            width_ratios=(width, _WIDTH - width),
        )  # fmt: skip
        return page.add_subfigure(grid[1, 0])

    left, y = _MARGIN / _WIDTH, top
    page.text(left, 1 - y / height, visible(part.figure.title), size=12, weight="bold", va="top")
    y += _TITLE
    for line in part.text:
        page.text(left, 1 - y / height, line, size=9, va="top")
        y += _LINE
    y += 0.05
    names = labelled(part.figure.make(Sheet(_WIDTH, place)))
    if names:
        shown = [n if len(n) <= _LONGEST_KEY else f"{n[: _LONGEST_KEY - 1]}~" for n in names]
        page.legend(
            cast("list[Artist]", list(names.values())), list(map(visible, shown)),
            ncols=part.columns, fontsize=9, loc="upper left", bbox_to_anchor=(left, 1 - y / height),
            borderaxespad=0, borderpad=0,
        )  # fmt: skip
