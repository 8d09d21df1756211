"""The plot of `collscope bench interference`: R and bus bandwidth over channels or size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullLocator

from collscope.errors import NoVerdictError
from collscope.reports.interference.answer import InterferenceReport, InterferenceRow, model
from collscope.reports.rendering.figure import (
    COLOURS,
    GREY,
    MARKERS,
    STYLE,
    check_plot,
    write_figure,
)
from collscope.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write_interference_plot(found: InterferenceReport, path: Path) -> None:
    """Draw R and relative bus bandwidth over channels where several were measured, else over size.

    raises  UsageError for another ending, InputError when it cannot be written, NoVerdictError
            without a figure
    """
    check_plot(path)
    if not found.rows:
        raise NoVerdictError(f"--plot {path}: nothing was measured. Look at the messages above.")
    by_channels = len({r.channels for r in found.rows} - {None}) > 1
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(2, 1, figsize=(8, 8), layout="constrained", sharex=True)
        _draw(axes[0], found, "relative_compute", by_channels)
        _draw(axes[1], found, "relative_busbw", by_channels)
        axes[0].set_ylabel("computation beside calls / alone (R)")
        axes[1].set_ylabel("bus bandwidth beside work / alone")
        axes[1].set_xlabel("channels" if by_channels else "size")
        axes[0].legend(fontsize=9)
        axes[0].set_title(f"{found.device}, {found.library}", fontsize=10)
        write_figure(figure, path)


def _draw(axis: Axes, found: InterferenceReport, name: str, by_channels: bool) -> None:
    rows = [r for r in found.rows if (r.channels if by_channels else r.size_bytes)]
    for i, (label, line) in enumerate(_lines(rows, by_channels)):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        xs = [(r.channels if by_channels else r.size_bytes) or 0 for r in line]
        errors = (
            [r.relative_compute_ci or 0.0 for r in line] if name == "relative_compute" else None
        )
        axis.errorbar(xs, [getattr(r, name) for r in line], yerr=errors, color=colour,
                      marker=marker, markersize=5, capsize=2, label=label)  # fmt: skip
    noise = max((getattr(r, f"{name}_noise") or 0.0 for r in found.rows), default=0.0)
    axis.axhspan(1 - noise, 1 + noise, color=GREY, alpha=0.12, linewidth=0, label="noise")
    if name == "relative_compute" and by_channels:
        known = sorted({r.channels for r in rows if r.channels is not None})
        points = [(n, y) for n in known if (y := model(n, found.multiprocessors)) is not None]
        if points:
            axis.plot(
                *zip(*points, strict=True), color=GREY, linestyle="--", label="1 - channels/SMs"
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
