"""What a page adds to interference: R and bus bandwidth over channels or message size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.ticker import NullLocator

from collscope.reports.interference.answer import InterferenceReport, InterferenceRow, model
from collscope.reports.rendering.drawing import INK, PLAIN, Sheet, series_style, size_axis
from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.page import Extras, Figure
from collscope.units import figure, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collscope.reports.rendering.drawing import Drawing


def interference_extras(found: InterferenceReport) -> Extras:
    """R and relative bus bandwidth over channels where several were measured, else over size."""
    by_channels = len({r.channels for r in found.rows} - {None}) > 1
    rows = [r for r in found.rows if (r.channels if by_channels else r.size_bytes)]
    if not rows:
        return Extras()
    lines: dict[str, list[InterferenceRow]] = {}
    for r in rows:
        what = f"{r.op} {format_size(r.size_bytes)}" if by_channels else f"{r.op} ({r.label})"
        lines.setdefault(f"{what}, {r.compute}", []).append(r)

    def make(sheet: Sheet) -> Drawing:
        drawing, (top, bottom) = sheet.axes(6.4, 2)
        for n, (name, line) in enumerate(lines.items()):
            xs = [(r.channels if by_channels else r.size_bytes) or 0 for r in line]
            style = series_style(n)
            for r, x in zip(line, xs, strict=True):
                if r.relative_compute is not None and r.relative_compute_ci:
                    ends = [r.relative_compute - r.relative_compute_ci,
                            r.relative_compute + r.relative_compute_ci]  # fmt: skip
                    top.plot([x, x], ends, lw=1, color=style["color"])
            top.plot(xs, [r.relative_compute for r in line], ms=5, label=name,
                     gid=f"beside-{n}", **style)  # fmt: skip
            bottom.plot(xs, [r.relative_busbw for r in line], ms=5, gid=f"beside-{n}", **style)
        _noise(top, [r.relative_compute_noise for r in rows])
        _noise(bottom, [r.relative_busbw_noise for r in rows])
        if by_channels:
            _channels(top, found, rows)
        else:
            size_axis(bottom, [r.size_bytes or 1 for r in rows])
        top.set_ylabel("R")
        bottom.set_ylabel("relative bus bandwidth")
        return drawing

    cells = table(
        [("call", TEXT), ("channels", NUMBER), ("size", NUMBER), ("R", NUMBER), ("+-", NUMBER),
         ("bus bandwidth", NUMBER)],
        ((name, r.channels, format_size(r.size_bytes), r.relative_compute, r.relative_compute_ci,
          r.relative_busbw) for name, line in lines.items() for r in line),
    )  # fmt: skip
    marks = {
        f"beside-{n}": f"{name}\nleast R {figure(least, 3)}" if least is not None else name
        for n, (name, line) in enumerate(lines.items())
        for least in (
            min((r.relative_compute for r in line if r.relative_compute is not None), default=None),
        )
    }
    shown = Figure(
        "Overlapped computation and collectives",
        "Above: R, the computation's performance during calls divided by its performance alone, "
        "with 95 % intervals. Below: the calls' bus bandwidth during computation divided by their "
        "bus bandwidth alone. The grey band is the noise.",
        make, cells, marks,
    )  # fmt: skip
    return Extras(drawings={"": (shown,)})


def _noise(axis: Axes, parts: Sequence[float | None]) -> None:
    noise = max((part or 0.0 for part in parts), default=0.0)
    axis.axhspan(1 - noise, 1 + noise, color="#8C959F", alpha=0.2, linewidth=0)


def _channels(axis: Axes, found: InterferenceReport, rows: Sequence[InterferenceRow]) -> None:
    """A logarithmic axis of channels, and the model's line."""
    known = sorted({r.channels for r in rows if r.channels is not None})
    points = [(n, y) for n in known if (y := model(n, found.multiprocessors)) is not None]
    if points:
        axis.plot(
            *zip(*points, strict=True),
            "--",
            color=INK,
            lw=1.2,
            label="1 - channels / multiprocessors",
        )  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(PLAIN)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.figure.axes[-1].set_xlabel("channels")
