"""What all plots have in common: colours, style, and the file they go to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")  # files only: a machine without a display must do

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from collscope.errors import InputError, UsageError
from collscope.outputs import replaced, require_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
# Okabe and Ito 2008, told apart with every common colour blindness; yellow is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#444444"
# Labels of log axes, which matplotlib writes as powers of ten in TeX; the second of minor ticks.
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
TWO_AND_FIVE = FuncFormatter(
    lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else ""  # the first digit
)
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # a label is a person's text, whatever dollars it holds
    "svg.hashsalt": "collscope",  # ids do not change from run to run
}


def check_plot(path: Path) -> None:
    """Refuse a file that cannot be drawn into before anything is measured.

    raises  UsageError for an ending that is not in `FORMATS`, InputError without its folder
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot {path}: not .png, .svg or .pdf. Choose one of them.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: no such folder. Name another file with --plot.")
    require_output(path, "--plot")


def write_figure(figure: Figure, path: Path) -> None:
    """Write a plot to the file of `--plot`, in the form that its ending says, and forget it.

    raises  InputError when it cannot be written
    """
    # A date in the file would make equal plots differ.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    form = path.suffix.removeprefix(".").lower()
    try:
        with replaced(path) as file:
            figure.savefig(file, format=form, dpi=150, metadata=metadata)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}. Name another file with --plot.") from error
    finally:
        plt.close(figure)
