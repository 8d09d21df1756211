"""The plot of a fusion what-if: threshold against step time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from collscope.errors import NoVerdictError
from collscope.reports.rendering.figure import COLOURS, GREY, STYLE, check_plot, write_figure
from collscope.reports.whatif.text import setting_text, setting_word
from collscope.whatif.policies import Policy
from collscope.whatif.records import Fusion

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Point = tuple[int, float, float, float, int]  # setting, ms, low, high, buckets
_LINE, _BEST, _NOW = COLOURS[0], COLOURS[1], GREY


def write_fusion_plot(found: Fusion, path: Path) -> None:
    """Draw time over threshold, its interval, and what is done now.

    path    .png, .svg or .pdf; an earlier file is overwritten
    raises  UsageError for another ending, InputError when it cannot be written, NoVerdictError
            without a time
    """
    check_plot(path)
    points = [
        (row.setting, row.time_us / 1e3, (row.low_us or row.time_us) / 1e3,
         (row.high_us or row.time_us) / 1e3, row.buckets)
        for row in found.rows if row.setting is not None and row.time_us is not None
    ]  # fmt: skip
    if not points:
        raise NoVerdictError(f"--plot {path}: no setting has a time. Measure with --measure.")
    with mpl.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
        _draw(axis, found, points)
        write_figure(figure, path)


def _draw(axis: Axes, found: Fusion, points: Sequence[_Point]) -> None:
    settings, times, lows, highs, buckets = zip(*points, strict=True)
    axis.fill_between(settings, lows, highs, color=_LINE, alpha=0.2, linewidth=0)
    kind = "measured" if found.measured else "predicted"
    axis.plot(settings, times, color=_LINE, marker="o", markersize=4.5, label=kind)
    for setting, time, number in zip(settings, times, buckets, strict=True):
        axis.annotate(
            str(number), (setting, time), xytext=(0, 7), textcoords="offset points",
            ha="center", fontsize=7, color=_NOW,
        )  # fmt: skip
    if found.present.time_us is not None:
        now = found.present.time_us / 1e3
        axis.axhline(now, color=_NOW, linestyle="--", label=f"now: {found.present_name}")
    if found.recommended is not None:
        axis.axvline(found.recommended.setting, color=_BEST, linestyle=":", label="fastest")
    axis.set_xscale("log", base=2)
    label = (lambda v, _: f"{v:g}") if found.policy == Policy.FIXED_COUNT.value else _size
    axis.xaxis.set_major_formatter(FuncFormatter(label))
    axis.set_ylim(bottom=0)
    axis.set_xlabel(f"{setting_word(found.policy)} (policy {found.policy})")
    axis.set_ylabel(f"time of a step's buckets, {found.execution} (ms)")
    axis.set_title(f"{found.source}; number of buckets at the points", fontsize=10)
    axis.legend(frameon=False, fontsize=9)


def _size(value: float, _place: int) -> str:
    return setting_text(Policy.POST_GT.value, int(value))
