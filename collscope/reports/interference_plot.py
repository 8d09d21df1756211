"""The plot of `collscope bench interference`: R and bus bandwidth over channels or size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")  # files only: a machine without a display must do

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullLocator

from collscope.errors import InputError, NoVerdictError, UsageError
from collscope.reports.interference_build import InterferenceReport, InterferenceRow, model
from collscope.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
# Okabe and Ito 2008
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_GREY = "#444444"
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "collscope",
}


def check_interference_plot(path: Path) -> None:
    """Refuse a file that cannot be drawn into before anything is measured.

    raises  UsageError for an ending that is not in `FORMATS`, InputError without its folder
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"--plot {path}: not .png, .svg or .pdf. Choose one of them.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: no such folder. Name another file with --plot.")


def write_interference_plot(found: InterferenceReport, path: Path) -> None:
    """Draw R and relative bus bandwidth over channels where several were measured, else over size.

    raises  UsageError for another ending, InputError when it cannot be written, NoVerdictError
            without a figure
    """
    check_interference_plot(path)
    if not found.rows:
        raise NoVerdictError(f"--plot {path}: nothing was measured. Look at the messages above.")
    by_channels = len({r.channels for r in found.rows} - {None}) > 1
    with mpl.rc_context(_STYLE):
        figure, axes = plt.subplots(2, 1, figsize=(8, 8), layout="constrained", sharex=True)
        _draw(axes[0], found, "relative_compute", by_channels)
        _draw(axes[1], found, "relative_busbw", by_channels)
        axes[0].set_ylabel("computation beside calls / alone (R)")
        axes[1].set_ylabel("bus bandwidth beside work / alone")
        axes[1].set_xlabel("channels" if by_channels else "size")
        axes[0].legend(fontsize=9)
        axes[0].set_title(f"{found.device}, {found.library}", fontsize=10)
        try:
            # a date in the file would make equal plots differ
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, dpi=150, metadata=metadata)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}. Name another file with --plot.") from error
        finally:
            plt.close(figure)


def _draw(axis: Axes, found: InterferenceReport, name: str, by_channels: bool) -> None:
    rows = [r for r in found.rows if (r.channels if by_channels else r.size_bytes)]
    for i, (label, line) in enumerate(_lines(rows, by_channels)):
        colour, marker = _COLOURS[i % len(_COLOURS)], _MARKERS[i % len(_MARKERS)]
        xs = [(r.channels if by_channels else r.size_bytes) or 0 for r in line]
        errors = (
            [r.relative_compute_ci or 0.0 for r in line] if name == "relative_compute" else None
        )
        axis.errorbar(xs, [getattr(r, name) for r in line], yerr=errors, color=colour,
                      marker=marker, markersize=5, capsize=2, label=label)  # fmt: skip
    noise = max((getattr(r, f"{name}_noise") or 0.0 for r in found.rows), default=0.0)
    axis.axhspan(1 - noise, 1 + noise, color=_GREY, alpha=0.12, linewidth=0, label="noise")
    if name == "relative_compute" and by_channels:
        known = sorted({r.channels for r in rows if r.channels is not None})
        points = [(n, y) for n in known if (y := model(n, found.multiprocessors)) is not None]
        if points:
            axis.plot(
                *zip(*points, strict=True), color=_GREY, linestyle="--", label="1 - channels/SMs"
            )
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(
        FuncFormatter(lambda v, _: f"{v:g}" if by_channels else _size(v))
    )
    axis.xaxis.set_minor_locator(NullLocator())


def _lines(
    rows: Sequence[InterferenceRow], by_channels: bool
) -> list[tuple[str, list[InterferenceRow]]]:
    lines: dict[str, list[InterferenceRow]] = {}
    for r in rows:
        what = f"{r.op} {format_size(r.size_bytes)}" if by_channels else f"{r.op} ({r.label})"
        lines.setdefault(f"{what}, {r.compute}", []).append(r)
    return list(lines.items())


def _size(value: float) -> str:
    return format_size(int(value))
