"""What a page adds to a comparison: speed-ups over size, and the curves of every label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collscope.errors import UsageError
from collscope.reports.compare.answer import ClassComparison, Comparison, curves
from collscope.reports.rendering.drawing import INK, Sheet, log_axis, series_style, size_axis
from collscope.reports.rendering.layout import NUMBER, table
from collscope.reports.rendering.page import Extras, Fact, Figure
from collscope.reports.rendering.ratio_figure import (
    RatioPoint,
    curve_name,
    ratio_figure,
    step_facts,
)
from collscope.roofline.roof import Roofs
from collscope.roofline.workload import Workload
from collscope.units import count, format_size

if TYPE_CHECKING:
    from collscope.reports.rendering.drawing import Drawing


_MOST_CURVES = 12
_MOST_LABELS = 12
_LONGEST = 44  # characters of a label


def compare_extras(found: Comparison, roofs: Roofs | None = None) -> Extras:
    """Speed-ups with intervals over size, and each operation's curve of every label.

    roofs  of the system whose reachable ceiling is drawn with the curves
    """
    alone = len(found.labels) == 2
    points = [
        RatioPoint(curve_name(c.key) if alone else cell.label, curve_name(c.key),
               c.key.size_bytes or 0, cell.speed_up, cell.low, cell.high)
        for c in found.classes for cell in c.cells[1:] if cell.speed_up is not None
    ]  # fmt: skip
    facts = [
        Fact(f"{t.label} against {found.labels[0]}", f"{t.speed_up:.3f} times as fast",
             "" if t.low is None or t.high is None else f"{t.low:.3f} to {t.high:.3f}", "Totals")
        for t in found.totals if t.label != found.labels[0]
    ]  # fmt: skip
    sure = [p for p in points if p.low is not None and p.high is not None]
    if sure:
        faster = sum((p.low or 0) > 1 for p in sure)
        slower = sum((p.high or 0) < 1 for p in sure)
        facts.append(Fact(
            "Beyond the noise" if alone else "Beyond the noise, all labels",
            f"{faster} faster, {slower} slower",
            f"{len(points) - faster - slower} of {count(len(points), 'class', 'classes')} "
            "within the noise, or with unknown noise", "Classes",
        ))  # fmt: skip
    facts.append(Fact("Crossovers", str(len(found.crossovers)),
                      "sizes from which another label is the fastest", "Crossovers"))  # fmt: skip
    facts = [*step_facts(found.traced), *facts]
    other = found.labels[1] if alone else "the label"
    ratios = ratio_figure(
        "Speed-up by message size",
        f"Time of {found.labels[0]} divided by time of {other}: above 1, {other} is faster. Lines "
        "are 95 % intervals. Marks of equal size are drawn side by side.",
        points, (),
    )  # fmt: skip
    drawn = [c for c in curves(found.classes) if len(c) > 1 and any(map(_rates, c))]
    chosen = sorted(drawn, key=lambda curve: -len(curve))[:_MOST_CURVES]
    paired = [
        _curve(found, curve, n, len(drawn) - len(chosen), roofs) for n, curve in enumerate(chosen)
    ]
    return Extras(tuple(facts), {"": (ratios,) if ratios else (), "Classes": paired})


def _rates(row: ClassComparison) -> list[float]:
    return [cell.busbw_gbps for cell in row.cells if cell.busbw_gbps]


def _curve(
    found: Comparison, curve: Sequence[ClassComparison], n: int, left: int, roofs: Roofs | None
) -> Figure:
    """Bus bandwidth of every label over the sizes of one kind of call, a pair at each size."""
    key = curve[0].key
    rows = [c for c in curve if c.key.size_bytes and _rates(c)]
    crossings = [
        x for x in found.crossovers
        if (x.op, x.datatype, x.nranks, x.in_place) == (
            key.op.value, key.datatype.value if key.datatype else None, key.nranks, key.in_place)
    ]  # fmt: skip
    roof = None if roofs is None else _roof(rows, roofs)

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.axis(3.8)
        for c in rows:
            rates = _rates(c)
            axis.plot([c.key.size_bytes or 1] * 2, [min(rates), max(rates)], color="#999999", lw=4,
                      alpha=0.5, zorder=1)  # fmt: skip
        for i, label in enumerate(found.labels[:_MOST_LABELS]):
            points = [(c.key.size_bytes, c.cells[i].busbw_gbps) for c in rows
                      if c.cells[i].busbw_gbps]  # fmt: skip
            if points:
                axis.plot(
                    *zip(*points, strict=True), ms=5, lw=1.4, label=label, gid=f"label-{n}-{i}",
                    **series_style(i),
                )  # fmt: skip
        if roof is not None:
            name, ceilings = roof
            axis.plot(*zip(*ceilings, strict=True), "--", color=INK, lw=1.2, label=name)
        for x in crossings:
            axis.axvline(x.size_bytes, color=INK, lw=1, ls=":")
            axis.annotate(f" {x.to[:_LONGEST]} from here", (x.size_bytes, 0.03), fontsize=9,
                          xycoords=("data", "axes fraction"))  # fmt: skip
        size_axis(axis, [c.key.size_bytes or 1 for c in rows])
        log_axis(axis, "y")
        axis.set_ylabel("bus bandwidth (GB/s)")
        return drawing

    labels = found.labels[:_MOST_LABELS]
    cells = table(
        [("size", NUMBER), *((f"{label} GB/s", NUMBER) for label in found.labels)],
        ((format_size(c.key.size_bytes), *(cell.busbw_gbps for cell in c.cells)) for c in rows),
    )
    more = f" {count(left, 'more curve')} not drawn." if left and not n else ""
    return Figure(
        f"Bus bandwidth of every label: {curve_name(key)}",
        "Grey bars join the labels at one size. A dotted line marks the size from which another "
        "label is the fastest." + more,
        make, cells,
        {f"label-{n}-{i}": label for i, label in enumerate(labels)},
    )  # fmt: skip


def _roof(
    rows: Sequence[ClassComparison], roofs: Roofs
) -> tuple[str, Sequence[tuple[int, float]]] | None:
    """Name of the reachable ceiling, and its size and GB/s; None where the system has none."""
    points, name = [], ""
    for row in rows:
        key = row.key
        ranks, size = key.nranks or 1, key.size_bytes or 0
        work = Workload(key.op, size, ranks, key.nnodes or roofs.system.fewest_nodes(ranks))
        try:
            ceilings = roofs.ceilings(work)
        except UsageError:
            return None
        if ceilings is not None:
            points.append((size, ceilings.target.busbw_gbps))
            name = f"reachable: {ceilings.target.name}"
    return (name, points) if points else None
