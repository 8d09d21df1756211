"""Drawings of a report as SVG that follows the page's colours, each with its data as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np

from collscope.reports.figure import COLOURS, MARKERS
from collscope.reports.html.drawing import INK, PLAIN, colour_of, draw, marker_of, size_axis
from collscope.reports.html.page import Figure
from collscope.reports.judgement.records import Curve, JudgedClass
from collscope.reports.layout import NUMBER, TEXT, table
from collscope.reports.model import Report
from collscope.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_MOST_MARKS = 2000  # of one drawing; the classes with the least time are left out
_MOST_BARS = 30
_MOST_SERIES = 12
_MOST_RANKS = 64


def classes_figure(report: Report) -> Figure | None:
    """The picture that says it all: size against bus bandwidth, area by share of time."""
    judged = report.judgement.classes
    rows = [r for r in judged if r.size_bytes and r.busbw_gbps and r.busbw_gbps > 0][:_MOST_MARKS]
    if not rows:
        return None
    marks = {f"class-{row.class_id}": _says(row) for row in rows}

    def make() -> Drawing:
        figure, axis = plt.subplots(figsize=(11, 5), layout="constrained")
        draw_classes(axis, rows)
        for collection, row in zip(axis.collections[: len(rows)], rows, strict=True):
            collection.set_gid(f"class-{row.class_id}")
        return figure

    found = table(
        [("class", NUMBER), ("op", TEXT), ("size", NUMBER), ("ranks", NUMBER), ("GB/s", NUMBER),
         ("reachable", NUMBER), ("limit", NUMBER), ("% time", NUMBER)],
        ((r.class_id, r.op, format_size(r.size_bytes), r.nranks, r.busbw_gbps, r.roof_gbps,
          r.limit_gbps, None if r.time_share is None else f"{100 * r.time_share:.2f}")
         for r in rows),
    )  # fmt: skip
    left = len([r for r in judged if r.size_bytes]) - len(rows)
    rest = f" {left} classes without a time, or with the least, are not drawn." if left else ""
    return Figure(
        "Every class: how large, how fast, how much of the time",
        "Each mark is a class; its area is its share of collective time, its colour the operation. "
        "A line above it ends at the reachable ceiling, a dot at the fabric's limit. "
        "A click filters the tables." + rest,
        draw(make), found, marks,
        filters={f"class-{r.class_id}": r.op for r in rows},
    )  # fmt: skip


def draw_classes(axis: Axes, rows: Sequence[JudgedClass]) -> None:
    """Marks, ceilings and axes of `classes_figure`, for a page as for a file of its own."""
    colours, markers = colour_of([r.op for r in rows]), marker_of([r.op for r in rows])
    largest = max((row.time_share or 0.0 for row in rows), default=0.0)
    for row in rows:
        part = sqrt((row.time_share or 0.0) / largest) if largest else 0.4
        axis.scatter(
            [row.size_bytes or 1], [row.busbw_gbps or 0], s=(8 + 34 * part) ** 2 / 2,
            color=colours[row.op], marker=markers[row.op], alpha=0.75, linewidths=0.8,
            edgecolors=INK, zorder=3,
        )  # fmt: skip
    for row in rows:
        if row.roof_gbps and row.busbw_gbps:
            axis.plot(
                [row.size_bytes or 1] * 2, [row.busbw_gbps, row.roof_gbps], lw=1.2,
                color=colours[row.op], marker="_", markevery=[1], ms=9, zorder=2,
            )  # fmt: skip
        if row.limit_gbps:
            axis.plot(row.size_bytes or 1, row.limit_gbps, ".", color=INK, ms=3, zorder=1)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(PLAIN)
    size_axis(axis, [row.size_bytes or 1 for row in rows])
    axis.set_ylabel("bus bandwidth (GB/s)")
    handles = [
        axis.plot([], [], markers[op], color=colour, label=op)[0] for op, colour in colours.items()
    ]
    axis.legend(handles=handles, loc="lower right", ncols=2)


def _says(row: JudgedClass) -> str:
    lines = [
        f"class {row.class_id}: {row.op} of {format_size(row.size_bytes)} on {row.nranks} ranks",
        f"{row.busbw_gbps:.4g} GB/s" if row.busbw_gbps else "",
        f"reachable {row.roof_gbps:.4g} GB/s, limit {row.limit_gbps:.4g}"
        if row.roof_gbps and row.limit_gbps else "",
        f"{100 * row.time_share:.1f} % of collective time" if row.time_share else "",
    ]  # fmt: skip
    return "\n".join(line for line in lines if line)


def curve_figures(report: Report) -> list[Figure]:
    """Bus bandwidth against size by operation, labels switched on and off; single points: none."""
    by_op: dict[str, list[Curve]] = defaultdict(list)
    for curve in report.judgement.curves:
        if len(curve.points) > 2:
            by_op[curve.op].append(curve)
    limits = {row.op: row.limit_gbps for row in report.judgement.classes}
    return [
        _curves(op, curves[:_MOST_SERIES], len(curves), limits.get(op))
        for op, curves in by_op.items()
    ]


def _curves(op: str, curves: Sequence[Curve], total: int, limit: float | None) -> Figure:
    names = [
        f"{c.label}, {c.nranks} ranks" + f", {c.nnodes} nodes" * bool(c.nnodes) for c in curves
    ]
    prefix = f"curve-{op}"
    marks: dict[str, str] = {}

    def make() -> Drawing:
        figure, axis = plt.subplots(figsize=(11, 4.2), layout="constrained")
        for i, curve in enumerate(curves):
            (line,) = axis.plot(
                [p.size_bytes for p in curve.points], [p.busbw_gbps for p in curve.points],
                marker=MARKERS[i % len(MARKERS)], ms=5, lw=1.4, color=COLOURS[i % len(COLOURS)],
                label=names[i] if len(names[i]) <= 60 else names[i][:59] + "…",
            )  # fmt: skip
            line.set_gid(f"{prefix}-{i}")
        roof = max(curves, key=lambda c: len(c.roof_points))
        if roof.roof_points:
            axis.plot([p.size_bytes for p in roof.roof_points],
                      [p.busbw_gbps for p in roof.roof_points],
                      "--", color=INK, lw=1.2, label=roof.roof)  # fmt: skip
        if limit is not None:
            axis.axhline(limit, color=INK, lw=0.8, ls=":", label="limit of the fabric")
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(PLAIN)
        size_axis(axis, [p.size_bytes for c in curves for p in c.points])
        axis.set_ylabel("bus bandwidth (GB/s)")
        axis.legend(loc="lower right", fontsize=9)
        return figure

    marks |= {
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
        "Measured, with the reachable ceiling as a dashed line." + left,
        draw(make), found, marks,
        series=[(f"{prefix}-{i}", name) for i, name in enumerate(names)],
    )  # fmt: skip


def step_figure(report: Report) -> Figure | None:
    """What each rank's GPU did: compute, exposed collectives, copies alone, nothing."""
    ranks = report.timeline.ranks[:_MOST_RANKS]
    if not ranks:
        return None
    parts = [
        ("compute, collectives beside it included", COLOURS[2], [r.compute_ns for r in ranks]),
        ("collectives, exposed", COLOURS[1], [r.exposed_ns for r in ranks]),
        ("idle", "#999999", [r.idle_ns for r in ranks]),
    ]
    rest = [r.span_ns - r.compute_ns - r.exposed_ns - r.idle_ns for r in ranks]
    parts.insert(2, ("copies alone", COLOURS[4], [max(0, ns) for ns in rest]))
    marks = {
        f"step-{r.rank}-{n}": f"rank {r.rank}\n{name}\n"
        f"{ns[i] / 1e6:.3f} ms of {r.span_ns / 1e6:.3f}"
        for n, (name, _, ns) in enumerate(parts) for i, r in enumerate(ranks)
    }  # fmt: skip

    def make() -> Drawing:
        figure, axis = plt.subplots(figsize=(11, 1.4 + 0.28 * len(ranks)), layout="constrained")
        before = np.zeros(len(ranks))
        for n, (name, colour, ns) in enumerate(parts):
            ms = np.array(ns) / 1e6
            bars = axis.barh(range(len(ranks)), ms, left=before, color=colour, label=name)
            before += ms
            for bar, r in zip(bars, ranks, strict=True):
                bar.set_gid(f"step-{r.rank}-{n}")
        axis.set_yticks(range(len(ranks)), [f"rank {r.rank}" for r in ranks])
        axis.invert_yaxis()
        axis.set_xlabel("ms, warm-up left out")
        axis.grid(visible=False, axis="y")
        figure.legend(loc="outside upper left", ncols=4, fontsize=9)
        return figure

    columns = [(f"{name} ms", NUMBER) for name, _, _ in parts]
    found = table(
        [("rank", NUMBER), ("traced ms", NUMBER), *columns],
        ((r.rank, r.span_ns / 1e6, *(ns[i] / 1e6 for _, _, ns in parts))
         for i, r in enumerate(ranks)),
    )  # fmt: skip
    left = len(report.timeline.ranks) - len(ranks)
    return Figure(
        "Where the time of each rank goes",
        "Traced time of each rank's GPU." + (f" {left} more ranks are not drawn." if left else ""),
        draw(make), found, marks,
    )  # fmt: skip


def bars_figure(report: Report) -> Figure | None:
    """Collective time by class; a click filters the tables."""
    rows = [r for r in report.judgement.classes if r.time_share]
    rows = sorted(rows, key=lambda r: -(r.time_share or 0.0))[:_MOST_BARS]
    if not rows:
        return None
    colours = colour_of([r.op for r in report.judgement.classes])
    names = [f"{r.op} {format_size(r.size_bytes)} x{r.nranks}" for r in rows]

    def make() -> Drawing:
        figure, axis = plt.subplots(figsize=(11, 0.9 + 0.26 * len(rows)), layout="constrained")
        bars = axis.barh(
            range(len(rows)), [100 * (r.time_share or 0.0) for r in rows],
            color=[colours[r.op] for r in rows],
        )  # fmt: skip
        for bar, row in zip(bars, rows, strict=True):
            bar.set_gid(f"bar-{row.class_id}")
        axis.set_yticks(range(len(rows)), names)
        axis.invert_yaxis()
        axis.set_xlabel("% of the collective time")
        axis.grid(visible=False, axis="y")
        return figure

    found = table(
        [("class", NUMBER), ("what", TEXT), ("% of the collective time", NUMBER)],
        ((r.class_id, n, f"{100 * (r.time_share or 0):.2f}")
         for r, n in zip(rows, names, strict=True)),
    )  # fmt: skip
    return Figure(
        "Collective time by class", "The largest first. A click filters the tables.", draw(make),
        found, {f"bar-{r.class_id}": _says(r) for r in rows},
        filters={f"bar-{r.class_id}": r.op for r in rows},
    )  # fmt: skip


def sizes_figure(report: Report) -> Figure | None:
    """Calls by message size."""
    histogram = next((h for h in report.histograms if h.name == "powers_of_two"), None)
    bins = () if histogram is None else tuple(b for b in histogram.bins if b.calls)
    if not bins:
        return None
    names = [format_size(b.low_bytes) for b in bins]

    def make() -> Drawing:
        figure, axis = plt.subplots(figsize=(11, 2.8), layout="constrained")
        bars = axis.bar(range(len(bins)), [b.calls for b in bins], color=COLOURS[0])
        for n, bar in enumerate(bars):
            bar.set_gid(f"size-{n}")
        axis.set_xticks(range(len(bins)), names)
        axis.set_ylabel("calls")
        axis.set_xlabel("message size, from")
        axis.grid(visible=False, axis="x")
        return figure

    found = table(
        [("from", TEXT), ("calls", NUMBER), ("total MB", NUMBER)],
        ((n, b.calls, b.total_bytes / 1e6) for n, b in zip(names, bins, strict=True)),
    )
    marks = {
        f"size-{n}": f"from {names[n]}\n{b.calls} calls, {b.total_bytes / 1e6:.4g} MB\n"
        + ", ".join(f"{o.op} {o.calls}" for o in b.ops)
        for n, b in enumerate(bins)
    }
    return Figure("Calls by message size", "Bins of powers of two.", draw(make), found, marks)


def lateness_figure(
    calls: Sequence[tuple[int, float]], ranks: Sequence[int], total: int
) -> Figure | None:
    """Which rank came last to each call, and by how much.

    calls  (rank that came last, its lateness in us) in the order of the calls; total: of all calls
    """
    if not calls:
        return None
    shown = list(enumerate(calls))[:: max(1, len(calls) // _MOST_MARKS)]

    def make() -> Drawing:
        figure, axis = plt.subplots(figsize=(11, 3.2), layout="constrained")
        for n, rank in enumerate(ranks[:_MOST_SERIES]):
            points = [(i, us) for i, (last, us) in shown if last == rank]
            if points:
                axis.plot(*zip(*points, strict=True), MARKERS[n % len(MARKERS)], ms=4,
                          color=COLOURS[n % len(COLOURS)], label=f"rank {rank}",
                          gid=f"late-{rank}")  # fmt: skip
        axis.set_yscale("symlog", linthresh=1)
        axis.yaxis.set_major_formatter(PLAIN)
        axis.set_ylabel("late by (us)")
        axis.set_xlabel(
            "call in order of time, with a rank that came last beyond the clocks' error"
        )
        axis.legend(loc="upper left", ncols=6, fontsize=9)
        return figure

    sums: dict[int, list[float]] = defaultdict(list)
    for rank, us in calls:
        sums[rank].append(us)
    found = table(
        [("rank", NUMBER), ("last in calls", NUMBER), ("median us", NUMBER), ("sum ms", NUMBER)],
        ((rank, len(us), float(np.median(us)), sum(us) / 1e3)
         for rank, us in sorted(sums.items(), key=lambda item: -sum(item[1]))),
    )  # fmt: skip
    drawn = [rank for rank in ranks[:_MOST_SERIES] if rank in sums]
    return Figure(
        "Who comes last, and how late",
        f"{len(calls)} of {total} calls have a rank that came last.", draw(make), found,
        {f"late-{rank}": f"rank {rank}: last in {len(sums[rank])} calls" for rank in drawn},
        series=[(f"late-{rank}", f"rank {rank}") for rank in drawn],
    )  # fmt: skip
