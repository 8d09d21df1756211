"""Drawings of efficiency: every class, where the time goes, and bandwidth over size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from collscope.model import Op
from collscope.reports.efficiency.breakdown_text import basis_words
from collscope.reports.efficiency.curves import Curve
from collscope.reports.efficiency.judged_classes import JudgedClass
from collscope.reports.efficiency.text import ceilings, class_origin
from collscope.reports.rendering.drawing import (
    INK,
    PARTS,
    Sheet,
    colour_of,
    log_axis,
    marker_of,
    series_style,
    size_axis,
)
from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.page import CLICK, Figure
from collscope.reports.report.answer import Report, report_ops
from collscope.roofline.workload import RoofAt
from collscope.units import count, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer

    from collscope.reports.rendering.drawing import Drawing


_MOST_MARKS = 2000  # of one drawing; the classes with the least time are left out
_MOST_BARS = 30
_MOST_MARKED = 100  # points of a curve with a mark each
_MOST_SERIES = 12
_NEARLY_ALL = 0.95  # of the collective time
_FAR = 8  # times beyond the sizes and the rates of the classes that have it
_FEW = 3  # classes that a sentence names


def classes_figure(report: Report) -> Figure | None:
    """The main picture: size against bus bandwidth, area by share of time."""
    judged = report.judgement.classes
    rows, outside = drawn_classes(judged)
    if not rows:
        return None
    marks = {f"class-{row.class_id}": _hover_words(row) for row in rows}

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.axis(4.8)
        draw_classes(axis, rows, report_ops(report))
        return drawing

    found = table(
        [("class", NUMBER), ("op", TEXT), ("size", NUMBER), ("ranks", NUMBER), ("GB/s", NUMBER),
         ("reachable", NUMBER), ("limit", NUMBER), ("% time", NUMBER)],
        ((r.class_id, r.op, format_size(r.size_bytes), r.nranks, r.busbw_gbps,
          *ceilings(r), None if r.time_share is None else f"{100 * r.time_share:.2f}")
         for r in (*rows, *outside)),
        (class_origin(r, report.judgement.label) for r in (*rows, *outside)),
    )  # fmt: skip
    return Figure(
        "Every class: how large, how fast, how much of the time",
        "Each mark is a class. Its area is its share of collective time; its colour is the "
        "operation. The bar above a mark is the reachable speed, the dotted line the limit "
        "of the fabric. "
        + CLICK + _not_drawn(judged, rows, outside),
        make, found, marks,
        filters={f"class-{r.class_id}": f"class={r.class_id}" for r in rows},
    )  # fmt: skip


def drawn_classes(
    judged: Sequence[JudgedClass],
) -> tuple[Sequence[JudgedClass], Sequence[JudgedClass]]:
    """Classes with a rate that the picture draws, and those outside of its axes.

    The axes follow the classes that together have nearly all of the time: a class with little time
    that is far from all of them would press the others into a corner.
    """
    known = [r for r in judged if r.size_bytes and r.busbw_gbps and r.busbw_gbps > 0][:_MOST_MARKS]
    order = sorted(known, key=lambda r: -(r.time_share or 0.0))
    sums = np.cumsum([r.time_share or 0.0 for r in order])
    if not order or not sums[-1]:
        return known, ()
    heavy = order[: int(np.searchsorted(sums, _NEARLY_ALL * sums[-1])) + 1]
    sizes, rates = [r.size_bytes or 0 for r in heavy], [r.busbw_gbps or 0.0 for r in heavy]

    def inside(r: JudgedClass) -> bool:
        return (
            min(sizes) / _FAR <= (r.size_bytes or 0) <= max(sizes) * _FAR
            and min(rates) / _FAR <= (r.busbw_gbps or 0) <= max(rates) * _FAR
        )

    return [r for r in known if inside(r)], [r for r in known if not inside(r)]


def _not_drawn(
    judged: Sequence[JudgedClass], rows: Sequence[JudgedClass], outside: Sequence[JudgedClass]
) -> str:
    """What the picture leaves out, in words."""
    notes = []
    if outside:
        share = 100 * sum(r.time_share or 0.0 for r in outside)
        rates = sorted({f"{r.op} {format_size(r.size_bytes)} at {r.busbw_gbps:.3g} GB/s"
                        for r in outside})  # fmt: skip
        more = f" and {len(rates) - _FEW} more" if len(rates) > _FEW else ""
        notes.append(
            f" Outside of the axes, with {share:.1f} % of the time: "
            f"{', '.join(rates[:_FEW])}{more}."
        )
    left = len([r for r in judged if r.size_bytes]) - len(rows) - len(outside)
    if left:
        notes.append(f" {count(left, 'class', 'classes')} with no time, or the least, not drawn.")
    return "".join(notes)


def draw_classes(axis: Axes, rows: Sequence[JudgedClass], ops: Sequence[Op]) -> None:
    """Marks, ceilings and axes of `classes_figure`, for a page as for a file of its own.

    ops  of the report
    """
    colours, markers = colour_of(ops), marker_of(ops)
    drawn = {row.op for row in rows}
    largest = max((row.time_share or 0.0 for row in rows), default=0.0)
    # the largest first, so that no mark hides another
    for row in sorted(rows, key=lambda row: -(row.time_share or 0.0)):
        part = sqrt((row.time_share or 0.0) / largest) if largest else 0.4
        axis.scatter(
            [row.size_bytes or 1], [row.busbw_gbps or 0], s=(8 + 34 * part) ** 2 / 2,
            color=colours[row.op], marker=markers[row.op], alpha=0.6, linewidths=0.8,
            edgecolors=INK, zorder=2, gid=f"class-{row.class_id}",
        )  # fmt: skip
    for row in rows:
        if row.roof and row.busbw_gbps:
            axis.plot(
                [row.size_bytes or 1] * 2, [row.busbw_gbps, row.roof.busbw_gbps], lw=1.4,
                color=INK, marker="_", markevery=[1], ms=14, mew=2.2, mec=colours[row.op], zorder=3,
            )  # fmt: skip
    limits: dict[float, list[int]] = defaultdict(list)
    for row in rows:
        if row.roof and row.roof.limit_gbps:
            limits[row.roof.limit_gbps].append(row.size_bytes or 1)
    for limit, sizes in limits.items():
        axis.plot([min(sizes) / 1.5, max(sizes) * 1.5], [limit, limit], ":", color=INK, lw=1.2)
    size_axis(axis, [row.size_bytes or 1 for row in rows])
    log_axis(axis, "y")
    axis.set_ylabel("bus bandwidth (GB/s)")
    for op in (op for op in colours if op in drawn):
        axis.plot([], [], markers[op], color=colours[op], label=op)
    axis.plot([], [], "_", color=INK, ms=12, mew=2.2, label="reachable")
    if limits:
        axis.plot([], [], ":", color=INK, label="limit")


def _reachable(roof: RoofAt | None) -> str:
    if roof is None or not roof.limit_gbps:
        return ""
    ends = roof.range_gbps
    between = "" if ends is None else f" ({ends[0]:.4g} to {ends[1]:.4g})"
    return f"reachable {roof.busbw_gbps:.4g}{between} GB/s, limit {roof.limit_gbps:.4g}"


def _hover_words(row: JudgedClass) -> str:
    lines = [
        f"class {row.class_id}: {row.op} of {format_size(row.size_bytes)} on {row.nranks} ranks",
        f"{row.busbw_gbps:.4g} GB/s" if row.busbw_gbps else "",
        _reachable(row.roof),
        f"{100 * row.time_share:.1f} % of collective time" if row.time_share else "",
    ]  # fmt: skip
    return "\n".join(line for line in lines if line)


def curve_figures(report: Report) -> list[Figure]:
    """Bus bandwidth against size by operation, labels switched on and off; single points: none."""
    by_op: dict[Op, list[Curve]] = defaultdict(list)
    for curve in report.judgement.curves:
        if len(curve.points) > 2:
            by_op[curve.op].append(curve)
    judged = report.judgement.classes
    limits = {(r.op, r.nranks): r.roof.limit_gbps for r in judged if r.roof and r.roof.limit_gbps}
    return [
        _curves(op, curves[:_MOST_SERIES], len(curves),
                {n: gbps for (o, n), gbps in limits.items() if o == op and n})
        for op, curves in by_op.items()
    ]  # fmt: skip


def _curves(op: Op, curves: Sequence[Curve], total: int, limits: Mapping[int, float]) -> Figure:
    """Curves of one operation, the reachable speed of each number of ranks, and the limits."""
    names = [
        f"{c.label}, {count(c.nranks, 'rank')}"
        + (f", {count(c.nnodes, 'node')}" if c.nnodes else "")
        for c in curves
    ]
    prefix = f"curve-{op}"

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.axis(4.4)
        for i, curve in enumerate(curves):
            axis.plot(
                [p.size_bytes for p in curve.points], [p.busbw_gbps for p in curve.points],
                ms=5, lw=1.4, **series_style(i, marked=len(curve.points) <= _MOST_MARKED),
                label=names[i], gid=f"{prefix}-{i}",
            )  # fmt: skip
        shapes = {(c.nranks, c.nnodes): c for c in curves if c.roof_points}
        for n, ((ranks, _), c) in enumerate(shapes.items()):
            axis.plot([p.size_bytes for p in c.roof_points], [p.busbw_gbps for p in c.roof_points],
                      ("--", "-.", ":")[n % 3], color=INK, lw=1.2,
                      label=f"{c.roof}, {count(ranks, 'rank')}")  # fmt: skip
        for limit in sorted({limits[c.nranks] for c in curves if c.nranks in limits}):
            of = ", ".join(f"{n}" for n, gbps in limits.items() if gbps == limit)
            axis.axhline(limit, color=INK, lw=0.8, ls=":", label=f"limit, {of} ranks")
        size_axis(axis, [p.size_bytes for c in curves for p in c.points])
        log_axis(axis, "y")
        axis.set_ylabel("bus bandwidth (GB/s)")
        return drawing

    marks = {
        f"{prefix}-{i}": f"{name}\nbest {max(p.busbw_gbps for p in c.points):.4g} GB/s"
        for i, (name, c) in enumerate(zip(names, curves, strict=True))
    }
    found = table(
        [("label and ranks", TEXT), ("size", NUMBER), ("GB/s", NUMBER)],
        ((name, format_size(p.size_bytes), p.busbw_gbps)
         for name, c in zip(names, curves, strict=True) for p in c.points),
    )  # fmt: skip
    left = f" {total - len(curves)} more are not drawn." if total > len(curves) else ""
    return Figure(
        f"Bus bandwidth against size: {op}",
        "Measured bandwidth; the broken line is the reachable speed." + left,
        make, found, marks,
    )  # fmt: skip


def bars_figure(report: Report) -> Figure | None:
    """Collective time by class, in its parts; a click filters the tables."""
    rows = [r for r in report.judgement.classes if r.time_share]
    rows = sorted(rows, key=lambda r: -(r.time_share or 0.0))
    shown = rows[:_MOST_BARS]
    if not rows:
        return None

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.rows([class_name(row) for row in shown])
        for n, bars in enumerate(draw_shares(axis, shown, sheet.bar)):
            for bar, row in zip(bars, shown, strict=True):
                bar.set_gid(f"bar-{row.class_id}-{n}")
        axis.set_xlabel("% of the collective time")
        return drawing

    parts = {row.class_id: _parts(row) for row in shown}
    found = table(
        [("class", NUMBER), ("what", TEXT), ("% of the collective time", NUMBER),
         *((f"{name} %", NUMBER) for name in PARTS)],
        ((r.class_id, class_name(r), f"{100 * (r.time_share or 0):.2f}",
          *(f"{100 * part:.2f}" for part in parts[r.class_id])) for r in shown),
        (class_origin(r, report.judgement.label) for r in shown),
    )  # fmt: skip
    marks = {
        f"bar-{r.class_id}-{n}": f"{_hover_words(r)}\n{name}: {100 * part:.1f} %"
        for r in shown for n, (name, part) in enumerate(zip(PARTS, parts[r.class_id], strict=True))
        if part
    }  # fmt: skip
    left = len(rows) - len(shown)
    rest = f" {count(left, 'more class', 'more classes')} not drawn." if left else ""
    breakdown = report.judgement.breakdown
    return Figure(
        "Collective time by class",
        f"Largest first. {CLICK} "
        + ("" if breakdown is None else f"Collective time: {basis_words(breakdown)}.") + rest,
        make, found, marks,
        filters={mark: f"class={mark.split('-')[1]}" for mark in marks},
    )  # fmt: skip


def draw_shares(
    axis: Axes, rows: Sequence[JudgedClass], height: float = 0.72
) -> list[BarContainer]:
    """Bars of `bars_figure`, for a page as for a file of its own: a container for each part."""
    left = np.zeros(len(rows))
    parts = np.array([_parts(row) for row in rows]) * 100
    drawn = []
    for n, (name, (colour, hatch)) in enumerate(PARTS.items()):
        drawn.append(axis.barh(
            np.arange(len(rows)), parts[:, n], left=left, color=colour, hatch=hatch, height=height,
            edgecolor="white", linewidth=0.5, label=name if parts[:, n].any() else None,
        ))  # fmt: skip
        left += parts[:, n]
    return drawn


def _parts(row: JudgedClass) -> tuple[float, float, float, float, float]:
    """A class's time share in the parts of `PARTS`."""
    unknown = row.unknown_share
    share = (row.time_share or 0.0) - unknown
    alone = row.measured_ns if row.contention is None else (row.transfer_ns or 0) / row.contention
    transfer = row.transfer_ns if row.transfer_ns is not None else alone
    if transfer is None or alone is None:
        return 0, 0, 0, 0, share + unknown
    wait = row.wait_ns or 0.0
    scale = share / (transfer + wait) if transfer + wait else 0.0
    if row.roof is None or row.recoverable_ns is None:
        return 0, 0, 0, wait * scale, transfer * scale + unknown
    least = min(alone, transfer)
    roof = min(row.roof.time_ns, least)
    above, slower = (least - roof) * scale, (transfer - least) * scale
    return roof * scale, above, slower, wait * scale, unknown


def class_name(row: JudgedClass) -> str:
    """A class on an axis: `AllReduce x4 8 MiB  #3`."""
    size = "" if row.size_bytes is None else f" {format_size(row.size_bytes)}"
    ranks = "" if row.nranks is None else f" x{row.nranks}"
    return f"{row.op}{ranks}{size}  #{row.class_id}"
