"""Drawings of a report as SVG that follows the page's colours, each with its data as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collscope.analysis.curves import Curve
from collscope.analysis.traced_kernels import TracedKernels
from collscope.reports.figure import PLAIN
from collscope.reports.html.drawing import (
    INK,
    Sheet,
    colour_of,
    draw,
    hatch_of,
    log_axis,
    marker_of,
    series_style,
    size_axis,
)
from collscope.reports.html.page import Figure
from collscope.reports.judgement import JudgedClass
from collscope.reports.layout import NUMBER, TEXT, table
from collscope.reports.model import Report
from collscope.units import count, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure as Drawing

_MOST_MARKS = 2000  # of one drawing; the classes with the least time are left out
_MOST_BARS = 30
_MOST_MARKED = 100  # points of a curve with a mark each
_MOST_SERIES = 12
_NEARLY_ALL = 0.95  # of the collective time
_FAR = 8  # times beyond the sizes and the rates of the classes that have it
_FEW = 3  # classes that a sentence names
_MANY_BINS, _MANY_BINS_NARROW = 14, 5  # beyond them their names are turned
_MOST_RANKS = 64
_EXPOSED = ("", "//", "\\\\")  # hatches of the classes of one operation with the most exposed time
# What is no operation is grey, and waiting as among the parts of a class.
_COMPUTE, _COPIES, _OTHER, _IDLE = "#8C959F", "#6E7781", "#444444", "#D0D7DE"


def classes_figure(report: Report) -> Figure | None:
    """The picture that says it all: size against bus bandwidth, area by share of time."""
    judged = report.judgement.classes
    rows, outside = drawn_classes(judged)
    if not rows:
        return None
    marks = {f"class-{row.class_id}": _says(row) for row in rows}

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.axis(4.8)
        draw_classes(axis, rows, report_ops(report))
        return drawing

    found = table(
        [("class", NUMBER), ("op", TEXT), ("size", NUMBER), ("ranks", NUMBER), ("GB/s", NUMBER),
         ("reachable", NUMBER), ("limit", NUMBER), ("% time", NUMBER)],
        ((r.class_id, r.op, format_size(r.size_bytes), r.nranks, r.busbw_gbps, r.roof_gbps,
          r.limit_gbps, None if r.time_share is None else f"{100 * r.time_share:.2f}")
         for r in (*rows, *outside)),
    )  # fmt: skip
    return Figure(
        "Every class: how large, how fast, how much of the time",
        "Each mark is a class; its area is its share of collective time, its colour the operation. "
        "The bar above a mark is the reachable ceiling, the dotted line the limit of the fabric. "
        "A click filters the tables." + _not_drawn(judged, rows, outside),
        draw(make), found, marks,
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
    said = []
    if outside:
        share = 100 * sum(r.time_share or 0.0 for r in outside)
        rates = sorted({f"{r.op} {format_size(r.size_bytes)} at {r.busbw_gbps:.3g} GB/s"
                        for r in outside})  # fmt: skip
        more = f" and {len(rates) - _FEW} more" if len(rates) > _FEW else ""
        said.append(
            f" Outside of the axes, with {share:.1f} % of the time: "
            f"{', '.join(rates[:_FEW])}{more}."
        )
    left = len([r for r in judged if r.size_bytes]) - len(rows) - len(outside)
    if left:
        said.append(
            f" {count(left, 'class', 'classes')} without a time, or with the least, not drawn."
        )
    return "".join(said)


def report_ops(report: Report) -> Sequence[str]:
    """Every operation of a report: each has one colour in all of its drawings."""
    classes = {row.op for row in report.classes} | {row.op for row in report.judgement.classes}
    return sorted(classes | {row.op for h in report.histograms for b in h.bins for row in b.ops})


def draw_classes(axis: Axes, rows: Sequence[JudgedClass], ops: Sequence[str]) -> None:
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
        if row.roof_gbps and row.busbw_gbps:
            axis.plot(
                [row.size_bytes or 1] * 2, [row.busbw_gbps, row.roof_gbps], lw=1.4,
                color=INK, marker="_", markevery=[1], ms=14, mew=2.2, mec=colours[row.op], zorder=3,
            )  # fmt: skip
    limits: dict[float, list[int]] = defaultdict(list)
    for row in rows:
        if row.limit_gbps:
            limits[row.limit_gbps].append(row.size_bytes or 1)
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


def _range(row: JudgedClass) -> str:
    found = row.roof_range_gbps
    return "" if found is None else f" ({found[0]:.4g} to {found[1]:.4g})"


def _says(row: JudgedClass) -> str:
    lines = [
        f"class {row.class_id}: {row.op} of {format_size(row.size_bytes)} on {row.nranks} ranks",
        f"{row.busbw_gbps:.4g} GB/s" if row.busbw_gbps else "",
        f"reachable {row.roof_gbps:.4g}{_range(row)} GB/s, limit {row.limit_gbps:.4g}"
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
    judged = report.judgement.classes
    limits = {(r.op, r.nranks): r.limit_gbps for r in judged if r.limit_gbps}
    return [
        _curves(op, curves[:_MOST_SERIES], len(curves),
                {n: gbps for (o, n), gbps in limits.items() if o == op and n})
        for op, curves in by_op.items()
    ]  # fmt: skip


def _curves(op: str, curves: Sequence[Curve], total: int, limits: Mapping[int, float]) -> Figure:
    """Curves of one operation, the ceilings of each number of ranks, and the limits."""
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
        "Measured, with the reachable ceiling as a broken line." + left,
        draw(make), found, marks,
    )  # fmt: skip


def step_figure(report: Report, traced: TracedKernels, names: Mapping[int, str]) -> Figure | None:
    """What each rank's GPU did: compute, waiting, exposed classes, copies alone, nothing.

    names  of classes
    """
    ranks = report.timeline.ranks[:_MOST_RANKS]
    if not ranks:
        return None
    waiting, by_class = _exposed(traced, {r.rank: r.exposed_ns for r in ranks})
    shown = sorted(by_class, key=lambda i: -by_class[i].sum())[: len(_EXPOSED)]
    parts = [("compute, collectives beside it included", (_COMPUTE, ""),
              np.array([r.compute_ns for r in ranks])),
             ("exposed: waiting for the last rank", PARTS[WAITING], waiting)]  # fmt: skip
    parts += [(f"exposed: {names.get(i, 'class')} #{i}", style, by_class[i])
              for i, style in zip(shown, _class_styles(report, shown), strict=True)]  # fmt: skip
    rest = np.array([r.exposed_ns for r in ranks]) - sum(ns for _, _, ns in parts[1:])
    idle = np.array([r.idle_ns for r in ranks])
    copies = np.array([r.span_ns - r.compute_ns - r.exposed_ns for r in ranks]) - idle
    parts += [("exposed: other collectives", (_OTHER, ""), np.maximum(rest, 0)),
              ("copies alone", (_COPIES, "//"), np.maximum(copies, 0)),
              ("idle: the GPU has no work", (_IDLE, ""), idle)]  # fmt: skip
    parts = [(name, style, ns) for name, style, ns in parts if ns.max() >= 1]
    marks = {
        f"step-{r.rank}-{n}": f"rank {r.rank}\n{name}\n"
        f"{ns[i] / 1e6:.3f} ms of {r.span_ns / 1e6:.3f}"
        for n, (name, _, ns) in enumerate(parts) for i, r in enumerate(ranks)
    }  # fmt: skip

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.rows([f"rank {r.rank}" for r in ranks])
        before = np.zeros(len(ranks))
        for n, (name, (colour, hatch), ns) in enumerate(parts):
            ms = ns / 1e6
            bars = axis.barh(
                range(len(ranks)), ms, left=before, color=colour, hatch=hatch, label=name,
                height=sheet.bar, edgecolor="white", linewidth=0.5,
            )  # fmt: skip
            before += ms
            for bar, r in zip(bars, ranks, strict=True):
                bar.set_gid(f"step-{r.rank}-{n}")
        axis.set_xlabel("ms, warm-up left out")
        return drawing

    columns = [(f"{name} ms", NUMBER) for name, _, _ in parts]
    found = table(
        [("rank", NUMBER), ("traced ms", NUMBER), *columns],
        ((r.rank, r.span_ns / 1e6, *(ns[i] / 1e6 for _, _, ns in parts))
         for i, r in enumerate(ranks)),
    )  # fmt: skip
    left = len(report.timeline.ranks) - len(ranks)
    return Figure(
        "Where the time of each rank goes",
        "Traced time of each rank's GPU. Exposed: no compute beside it. Waiting: the exposed time "
        "beyond the call's transfer; where compute runs beside a part of a call, more of the "
        "class's time may be waiting." + (f" {left} more ranks are not drawn." if left else ""),
        draw(make), found, marks,
    )  # fmt: skip


def _class_styles(report: Report, ids: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Colour and hatch of some classes: the colour of the operation, a hatch for a further one."""
    op_of = {row.class_id: row.op for row in report.classes}
    colours = colour_of(report_ops(report))
    seen: dict[str, int] = defaultdict(int)
    for i in ids:
        op = op_of.get(i, "")
        yield colours.get(op, _OTHER), _EXPOSED[seen[op]]
        seen[op] += 1


def _exposed(
    traced: TracedKernels, ranks: Mapping[int, int]
) -> tuple[NDArray[np.float64], dict[int, NDArray[np.float64]]]:
    """Exposed time of each rank in ns: what is surely waiting, and the rest by class.

    ranks  exposed time of each, which collectives that overlap each other share
    """
    chosen = np.isin(traced.kernels[:, 0], list(ranks))
    kernels, exposed = traced.kernels[chosen], traced.exposed[chosen]
    order = sorted(ranks)
    place = np.searchsorted(order, kernels[:, 0])
    ids, klass = np.unique(kernels[:, 4], return_inverse=True)
    transfer = kernels[:, 2] - np.maximum(kernels[:, 3], 0)
    wait = np.where(kernels[:, 3] < 0, 0, np.maximum(exposed - transfer, 0))
    waiting = np.bincount(place, wait, len(order))
    rest = np.bincount(place * len(ids) + klass, exposed - wait, len(order) * len(ids))
    by_class = rest.reshape(len(order), len(ids))
    told = waiting + by_class.sum(1)
    part = np.minimum(1, np.array([ranks[rank] for rank in order]) / np.maximum(told, 1))
    back = np.searchsorted(order, list(ranks))  # into the order of the bars
    return (waiting * part)[back], {
        i: (by_class[:, n] * part)[back] for n, i in enumerate(ids.tolist())
    }


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
    )  # fmt: skip
    marks = {
        f"bar-{r.class_id}-{n}": f"{_says(r)}\n{name}: {100 * part:.1f} %"
        for r in shown for n, (name, part) in enumerate(zip(PARTS, parts[r.class_id], strict=True))
        if part
    }  # fmt: skip
    left = len(rows) - len(shown)
    rest = f" {count(left, 'more class', 'more classes')} not drawn." if left else ""
    whole = report.judgement.decomposition
    return Figure(
        "Collective time by class",
        "The largest first. A click filters the tables. "
        + ("" if whole is None else f"Collective time: {whole.basis}.") + rest,
        draw(make), found, marks,
        filters={mark: f"class={mark.split('-')[1]}" for mark in marks},
    )  # fmt: skip


WAITING = "waiting for a late rank"
PARTS = {  # of the bars, with colour and hatch: none that an operation has
    "at the roof": ("#8C959F", ""),
    "above the roof, to win": ("#5E3C99", ""),
    "slower in the job than alone": ("#9A86C4", "//"),
    WAITING: ("#CC79A7", ".."),
    "not judged": ("#D0D7DE", ""),
}


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
    share = row.time_share or 0.0
    alone = row.measured_us if row.contention is None else (row.transfer_us or 0) / row.contention
    transfer = row.transfer_us if row.transfer_us is not None else alone
    if transfer is None or alone is None:
        return 0, 0, 0, 0, share
    wait = row.wait_us or 0.0
    scale = share / (transfer + wait) if transfer + wait else 0.0
    if row.roof_us is None or row.recoverable_s is None:
        return 0, 0, 0, wait * scale, transfer * scale
    least = min(alone, transfer)
    roof = min(row.roof_us, least)
    return roof * scale, (least - roof) * scale, (transfer - least) * scale, wait * scale, 0


def class_name(row: JudgedClass) -> str:
    """A class on an axis: `AllReduce x4 8 MiB  #3`."""
    size = "" if row.size_bytes is None else f" {format_size(row.size_bytes)}"
    ranks = "" if row.nranks is None else f" x{row.nranks}"
    return f"{row.op}{ranks}{size}  #{row.class_id}"


def sizes_figure(report: Report) -> Figure | None:
    """Calls by message size and operation, and their bytes."""
    histogram = next((h for h in report.histograms if h.name == "powers_of_two"), None)
    bins = () if histogram is None else tuple(b for b in histogram.bins if b.calls)
    if not bins:
        return None
    names = [format_size(b.low_bytes) for b in bins]
    colours, hatches = colour_of(report_ops(report)), hatch_of(report_ops(report))
    there = {o.op for b in bins for o in b.ops}

    def make(sheet: Sheet) -> Drawing:
        turned = len(bins) > (_MANY_BINS_NARROW if sheet.narrow else _MANY_BINS)
        drawing, (top, bottom) = sheet.axes(4.6, 2, bottom=1.0 if turned else 0.58)
        base = np.zeros(len(bins))
        for op in (op for op in colours if op in there):
            calls = np.array([sum(o.calls for o in b.ops if o.op == op) for b in bins])
            bars = top.bar(
                range(len(bins)), calls, 0.7, bottom=base, color=colours[op], label=op,
                hatch=hatches[op], edgecolor="white", linewidth=0.5,
            )  # fmt: skip
            base += calls
            for n, bar in enumerate(bars):
                bar.set_gid(f"size-{n}-{op}")
        bottom.bar(range(len(bins)), [b.total_bytes / 1e6 for b in bins], 0.7, color="#888888")
        top.set_ylabel("calls")
        bottom.set_ylabel("MB of all calls")
        bottom.set_xticks(range(len(bins)), names, rotation=45 if turned else 0)
        bottom.set_xlabel("message size, from")
        for axis in (top, bottom):
            axis.grid(visible=False, axis="x")
            axis.yaxis.set_major_formatter(PLAIN)
        return drawing

    found = table(
        [("from", TEXT), ("calls", NUMBER), ("total MB", NUMBER), ("calls per operation", TEXT)],
        ((n, b.calls, b.total_bytes / 1e6, ", ".join(f"{o.op} {o.calls}" for o in b.ops))
         for n, b in zip(names, bins, strict=True)),
    )  # fmt: skip
    marks = {
        f"size-{n}-{o.op}": f"from {names[n]}\n{o.op}: {count(o.calls, 'call')} of {b.calls}\n"
        f"{b.total_bytes / 1e6:.4g} MB of all"
        for n, b in enumerate(bins) for o in b.ops
    }  # fmt: skip
    return Figure(
        "Calls by message size",
        "Powers of two that have calls: above the calls, below their bytes. A bin ends at the next "
        "power of two.",
        draw(make), found, marks,
    )  # fmt: skip
