"""The plot of `collscope bench p2p`: bandwidth over size, and heat maps of the pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import Colormap, to_rgb
from matplotlib.ticker import NullFormatter, NullLocator
from numpy.typing import NDArray

from collscope.bench.p2p_plan import LATENCY_BYTES, ONE_WAY, PING_PONG, TWO_WAY
from collscope.errors import NoVerdictError
from collscope.reports.p2p.answer import P2p, PairRow
from collscope.reports.rendering.figure import (
    COLOURS,
    GREY,
    MARKERS,
    PLAIN,
    STYLE,
    TWO_AND_FIVE,
    check_plot,
    write_figure,
)
from collscope.reports.rendering.layout import or_unknown
from collscope.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Draw = Callable[["Axes"], None]
_MOST_MAPS = 3  # variants with a heat map of their own
_MOST_NUMBERS = 16  # ranks up to which a cell holds its value
_TWO_ROWS = 4  # panels that stand in two rows of two
_MOST_TICKS = 8
_FEW_DECADES = 100  # highest over lowest bandwidth, where the tens alone are too few labels


def write_p2p_plot(found: P2p, path: Path) -> None:
    """Draw the curve of the first pair and, of more than two ranks, heat maps of the pairs.

    path    .png, .svg or .pdf; an earlier file is overwritten
    raises  UsageError for another ending, InputError when it cannot be written, NoVerdictError
            without a time
    """
    check_plot(path)
    panels = _panels(found)
    if not panels:
        raise NoVerdictError(f"--plot {path}: nothing was measured. See the messages above.")
    columns = 2 if len(panels) == _TWO_ROWS else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, columns, figsize=(5.8 * columns, 4.6 * rows), layout="constrained", squeeze=False
        )
        for axis, draw in zip(axes.flat, panels, strict=False):
            draw(axis)
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        figure.suptitle(f"{or_unknown(found.device)}, {or_unknown(found.library)}", fontsize=11)
        write_figure(figure, path)


def _panels(found: P2p) -> list[_Draw]:
    """What there is to draw: the curve, a map of each variant at the largest size, latencies."""
    timed = [row for row in found.rows if row.time_us is not None]
    panels: list[_Draw] = []
    if any(row.test != PING_PONG for row in timed):
        panels.append(partial(_draw_curve, found=found))
    if len({end for row in timed for end in (row.src, row.dst)}) < 3:
        return panels
    for test in (ONE_WAY, TWO_WAY):
        sizes = [s.size_bytes for s in found.spreads if s.test == test]
        if sizes:
            panels += _maps(found, timed, test, max(sizes))
            break  # where both were measured, the one that tells the two ways of a pair apart
    return panels + _maps(found, timed, PING_PONG, LATENCY_BYTES)


def _maps(found: P2p, timed: Sequence[PairRow], test: str, size: int) -> list[_Draw]:
    """Heat maps of the first variants, in one scale."""
    same = [row for row in timed if (row.test, row.size_bytes) == (test, size)]
    values = [_value(row) for row in same] or [0.0]
    # Of latencies what is usual is in the middle of the scale, so that a slow pair has room.
    top = max(*values, 2 * median(values)) if test == PING_PONG else max(values)
    maps: list[_Draw] = []
    for variant in found.variants[:_MOST_MAPS]:
        rows = [row for row in same if row.variant == variant]
        if rows:
            name = f", {variant}" if len(found.variants) > 1 else ""
            maps.append(partial(_draw_map, rows=rows, top=top, name=name))
    return maps


def _value(row: PairRow) -> float:
    return (row.time_us if row.test == PING_PONG else row.algbw_gbps) or 0.0


def _draw_map(axis: Axes, rows: Sequence[PairRow], top: float, name: str) -> None:
    """Source by destination; the scale begins at 0, so that noise does not look like a pattern."""
    latency = rows[0].test == PING_PONG
    ranks = sorted({end for row in rows for end in (row.src, row.dst)})
    place = {rank: i for i, rank in enumerate(ranks)}
    values = np.full((len(ranks), len(ranks)), np.nan)
    for row in rows:
        values[place[row.src], place[row.dst]] = _value(row)
        if row.test != ONE_WAY:
            values[place[row.dst], place[row.src]] = _value(row)
    colours = mpl.colormaps["viridis_r" if latency else "viridis"].with_extremes(bad="#f2f2f2")
    image = axis.imshow(values, cmap=colours, vmin=0, vmax=top)
    axis.figure.colorbar(image, ax=axis, shrink=0.85, label="us" if latency else "GB/s")
    if len(ranks) <= _MOST_NUMBERS:
        _write_numbers(axis, values, top, colours)
        axis.set_xticks(range(len(ranks)), labels=[str(rank) for rank in ranks])
        axis.set_yticks(range(len(ranks)), labels=[str(rank) for rank in ranks])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    axis.set_xlabel("to rank")
    axis.set_ylabel("from rank")
    what = "latency" if latency else f"{rows[0].test} bandwidth"
    axis.set_title(f"{what}, {format_size(rows[0].size_bytes)}{name}", fontsize=10)


def _write_numbers(axis: Axes, values: NDArray[np.float64], top: float, colours: Colormap) -> None:
    size = 10 if len(values) <= 4 else 8 if len(values) <= 8 else 5.5
    for (y, x), value in np.ndenumerate(values):
        if np.isnan(value):
            continue
        # Rec. 601 luma of the cell tells whether black or white is read on it
        red, green, blue = to_rgb(colours(value / top if top else 0.0))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        axis.text(
            x, y, f"{value:.3g}", ha="center", va="center", fontsize=size,
            color="white" if dark else "black",
        )  # fmt: skip


def _draw_curve(axis: Axes, found: P2p) -> None:
    """Bandwidth of the first pair over size; bars tell the slowest and the fastest pair."""
    ends = {found.curve_src, found.curve_dst}
    for number, variant in enumerate(found.variants):
        look: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKERS[number % len(MARKERS)],
            "markersize": 4.5,
        }
        name = f"{variant}, " if len(found.variants) > 1 else ""
        for test, dashes in ((ONE_WAY, "-"), (TWO_WAY, "--")):
            points = [
                (row.size_bytes, row.algbw_gbps)
                for row in found.rows
                if (row.variant, row.test) == (variant, test)
                and row.algbw_gbps
                and {row.src, row.dst} == ends
                and (test == TWO_WAY or row.src == found.curve_src)
            ]
            if points:
                axis.plot(*zip(*points, strict=True), linestyle=dashes, label=name + test, **look)
        _draw_range(axis, found, variant, look["color"])
    if found.copies:
        axis.plot(
            [point.size_bytes for point in found.copies],
            [point.algbw_gbps for point in found.copies],
            color=GREY, linestyle=":", label="copy engine",
        )  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    sizes = sorted({row.size_bytes for row in found.rows if row.test != PING_PONG})
    ticks = sizes[:: -(-len(sizes) // _MOST_TICKS)]
    axis.set_xticks(ticks, labels=[format_size(size) for size in ticks])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(PLAIN)
    low, high = axis.get_ylim()
    axis.yaxis.set_minor_formatter(TWO_AND_FIVE if high / low < _FEW_DECADES else NullFormatter())
    axis.tick_params(axis="x", labelrotation=30)
    axis.grid(visible=True, color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.set_xlabel("size of a message")
    axis.set_ylabel("GB/s of each direction")
    title = f"pair {found.curve_src}:{found.curve_dst}"
    ranges = any(s.test == ONE_WAY for s in found.spreads)
    title += "; bars: slowest to fastest of all pairs, one-way" if ranges else ""
    axis.set_title(title, fontsize=10)
    axis.legend(fontsize=9)


def _draw_range(axis: Axes, found: P2p, variant: str, colour: str) -> None:
    for s in found.spreads:
        if s.test == ONE_WAY and s.variant == variant and s.algbw_gbps_min:
            axis.vlines(
                s.size_bytes, s.algbw_gbps_min, s.algbw_gbps_max or s.algbw_gbps_min,
                color=colour, alpha=0.35, linewidth=5,
            )  # fmt: skip
