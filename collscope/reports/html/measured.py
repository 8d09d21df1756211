"""What a page adds to answers about measurements: comparisons, verdicts, pairs of GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt

from collscope.analysis.check import Check
from collscope.analysis.compare import ClassComparison, Comparison, TracedParts, curves
from collscope.bench.p2p_plan import ONE_WAY, PING_PONG, TWO_WAY
from collscope.model import CollectiveClass
from collscope.reports.comparison.words import kind_of
from collscope.reports.figure import COLOURS, MARKERS
from collscope.reports.html.drawing import INK, WIDE, Matrix, draw, heat_figure, log_axis, size_axis
from collscope.reports.html.page import Extras, Fact, Figure
from collscope.reports.layout import NUMBER, TEXT, table
from collscope.reports.p2p_model import P2p
from collscope.units import count, format_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_MOST_POINTS = 2000
_MOST_CURVES = 12
_MOST_LABELS = 12
_LONGEST = 44  # characters of a label
_SPREAD = 0.9  # powers of two that the points of one size take
_ROOM = 1.15  # above and below the ratios
_MOST_RANKS = 64
_KINDS = ((ONE_WAY, "One-way bandwidth of pairs", "GB/s"),
          (TWO_WAY, "Two-way bandwidth of pairs", "GB/s"),
          (PING_PONG, "Latency of pairs", "us"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Point:
    """A ratio of two times at one size, with its 95 % interval where the noise is known."""

    series: str
    what: str
    size_bytes: int
    ratio: float
    low: float | None
    high: float | None


def compare_extras(found: Comparison) -> Extras:
    """Speed-ups with intervals over size, and each operation's curve of every label."""
    alone = len(found.labels) == 2
    points = [
        _Point(_curve_name(c.key) if alone else cell.label, _curve_name(c.key),
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
            "within the noise, or the noise is not known", "Classes",
        ))  # fmt: skip
    facts.append(Fact("Crossovers", str(len(found.crossovers)),
                      "sizes from which another label is the fastest", "Crossovers"))  # fmt: skip
    facts = [*_step_facts(found.traced), *facts]
    other = found.labels[1] if alone else "the label"
    figure = _ratios(
        "Speed-up by message size",
        f"Time of {found.labels[0]} over that of {other}; above 1 {other} is faster. Lines are "
        "95 % intervals. Marks of one size stand side by side.",
        points, (),
    )  # fmt: skip
    drawn = [c for c in curves(found.classes) if len(c) > 1 and any(map(_rates, c))]
    chosen = sorted(drawn, key=lambda curve: -len(curve))[:_MOST_CURVES]
    paired = [_curve(found, curve, n, len(drawn) - len(chosen)) for n, curve in enumerate(chosen)]
    return Extras(tuple(facts), {"": (figure,) if figure else (), "Classes": paired})


def _curve_name(key: CollectiveClass) -> str:
    place = {True: " in place", False: " out of place", None: ""}[key.in_place]
    return f"{kind_of(key)} x{key.nranks}{place}"


def _rates(row: ClassComparison) -> list[float]:
    return [cell.busbw_gbps for cell in row.cells if cell.busbw_gbps]


def _curve(found: Comparison, curve: Sequence[ClassComparison], n: int, left: int) -> Figure:
    """Bus bandwidth of every label over the sizes of one kind of call, a pair at each size."""
    key = curve[0].key
    rows = [c for c in curve if c.key.size_bytes and _rates(c)]
    crossings = [
        x for x in found.crossovers
        if (x.op, x.datatype, x.nranks, x.in_place) == (
            key.op.value, key.datatype.value if key.datatype else None, key.nranks, key.in_place)
    ]  # fmt: skip

    def make() -> Drawing:
        drawing, axis = plt.subplots(figsize=(WIDE, 3.8), layout="constrained")
        for c in rows:
            rates = _rates(c)
            axis.plot([c.key.size_bytes or 1] * 2, [min(rates), max(rates)], color="#999999", lw=4,
                      alpha=0.5, zorder=1)  # fmt: skip
        for i, label in enumerate(found.labels[:_MOST_LABELS]):
            points = [(c.key.size_bytes, c.cells[i].busbw_gbps) for c in rows
                      if c.cells[i].busbw_gbps]  # fmt: skip
            if points:
                (line,) = axis.plot(
                    *zip(*points, strict=True), marker=MARKERS[i % len(MARKERS)], ms=5, lw=1.4,
                    color=COLOURS[i % len(COLOURS)], label=label[:_LONGEST],
                )  # fmt: skip
                line.set_gid(f"label-{n}-{i}")
        for x in crossings:
            axis.axvline(x.size_bytes, color=INK, lw=1, ls=":")
            axis.annotate(f" {x.to[:_LONGEST]} from here", (x.size_bytes, 0.03), fontsize=9,
                          xycoords=("data", "axes fraction"))  # fmt: skip
        size_axis(axis, [c.key.size_bytes or 1 for c in rows])
        log_axis(axis, "y")
        axis.set_ylabel("bus bandwidth (GB/s)")
        drawing.legend(loc="outside upper left", ncols=4, fontsize=9)
        return drawing

    labels = found.labels[:_MOST_LABELS]
    cells = table(
        [("size", NUMBER), *((f"{label} GB/s", NUMBER) for label in found.labels)],
        ((format_size(c.key.size_bytes), *(cell.busbw_gbps for cell in c.cells)) for c in rows),
    )
    more = f" {count(left, 'more curve')} not drawn." if left and not n else ""
    return Figure(
        f"Bus bandwidth of every label: {_curve_name(key)}",
        "Grey joins the labels at one size; a dotted line is the size from which another label is "
        "the fastest." + more,
        draw(make), cells,
        {f"label-{n}-{i}": label for i, label in enumerate(labels)},
        series=[(f"label-{n}-{i}", label) for i, label in enumerate(labels)],
    )  # fmt: skip


def check_extras(found: Check) -> Extras:
    """The verdict's ratios over size, with the thresholds beyond which a change matters."""
    points = [
        _Point(c.outcome, _curve_name(c.key), c.key.size_bytes or 0, c.ratio,
               c.low, c.high)
        for c in found.classes if c.ratio is not None
    ]  # fmt: skip
    total = "not known" if found.total_ratio is None else f"{found.total_ratio:.3f} x the time"
    spread = (
        "" if found.total_low is None or found.total_high is None
        else f"{found.total_low:.3f} to {found.total_high:.3f}"
    )  # fmt: skip
    facts = (
        Fact("Verdict", found.verdict.value),
        *_step_facts(found.traced),
        Fact(f"{found.current} against {found.baseline}", total, spread),
        Fact("Classes judged", f"{found.classes_judged} of {found.classes_common}",
             f"{found.classes_missing} missing" if found.classes_missing else ""),
    )  # fmt: skip
    limits = tuple({c.threshold for c in found.classes})[:1]
    figure = _ratios(
        "Time of each class against the baseline",
        f"Time of {found.current} over that of {found.baseline}; below 1 is faster. Lines are 95 % "
        "intervals, the dashed one is where a slow-down matters. Marks of one size stand side by "
        "side.", points, limits,
    )  # fmt: skip
    return Extras(facts, {"": (figure,)} if figure else {})


def _step_facts(traced: TracedParts | None) -> list[Fact]:
    """The step of every traced run."""
    if traced is None or not traced.parts:
        return []
    return [
        Fact(f"Step of {cell.label}", f"{cell.time_us / 1000:.2f} ms", "", "Step")
        for cell in traced.parts[0].cells if cell.time_us is not None
    ]  # fmt: skip


def p2p_extras(found: P2p) -> Extras:
    """A matrix of ranks for each test at its largest size."""
    figures = []
    for test, title, unit in _KINDS:
        rows = [r for r in found.rows if r.test == test and r.time_us is not None]
        if not rows or found.nranks < 2:
            continue
        size = max(r.size_bytes for r in rows)
        variant = rows[0].variant
        values = {
            (r.src, r.dst): r.time_us if test == PING_PONG else r.algbw_gbps
            for r in rows if r.size_bytes == size and r.variant == variant
        }  # fmt: skip
        ranks = sorted({rank for pair in values for rank in pair})[:_MOST_RANKS]
        figures.append(heat_figure(
            f"{title}, {format_size(size)}", "From the rank of the row to that of the column.",
            Matrix("from, to", [f"rank {r}" for r in ranks], [str(r) for r in ranks],
                   [[values.get((a, b)) for b in ranks] for a in ranks], unit),
        ))  # fmt: skip
    return Extras((), {"": figures})


def _ratios(
    title: str, text: str, points: Sequence[_Point], limits: Sequence[float],
) -> Figure | None:  # fmt: skip
    """Ratios over size; the points of one size stand beside each other."""
    shown = [p for p in points if p.size_bytes > 0 and p.ratio > 0][:_MOST_POINTS]
    if not shown:
        return None
    names = list(dict.fromkeys(p.series for p in shown))
    at = _side_by_side(shown)

    def make() -> Drawing:
        drawing, axis = plt.subplots(figsize=(WIDE, 4.4), layout="constrained")
        for n, name in enumerate(names):
            style: dict[str, Any] = {"color": COLOURS[n % len(COLOURS)],
                     "marker": MARKERS[n // len(COLOURS) % len(MARKERS)]}  # fmt: skip
            for i, p in enumerate(shown):
                if p.series != name:
                    continue
                if p.low is not None and p.high is not None:
                    axis.plot([at[i]] * 2, [p.low, p.high], lw=1, color=style["color"], zorder=2)
                axis.plot(at[i], p.ratio, ms=5, gid=f"ratio-{i}", zorder=3, **style)
            axis.plot([], [], ls="", label=name[:_LONGEST], **style)
        axis.axhline(1, color=INK, lw=1)
        for limit in limits:
            axis.axhline(limit, color=INK, lw=1, ls="--")
        size_axis(axis, [p.size_bytes for p in shown])
        ratios = [p.ratio for p in shown]
        axis.set_ylim(min(*ratios, 1) / _ROOM, max(*ratios, *limits, 1) * _ROOM)
        log_axis(axis, "y")
        axis.set_ylabel("ratio")
        drawing.legend(loc="outside upper left", ncols=4, fontsize=9)
        return drawing

    found = table(
        [("label, kind or outcome", TEXT), ("class", TEXT), ("size", NUMBER), ("ratio", NUMBER),
         ("low", NUMBER), ("high", NUMBER)],
        ((p.series, p.what, format_size(p.size_bytes), p.ratio, p.low, p.high) for p in shown),
    )  # fmt: skip
    marks = {
        f"ratio-{i}": f"{p.what} {format_size(p.size_bytes)}\n{p.series}: {p.ratio:.3f}"
        + (f" ({p.low:.3f} to {p.high:.3f})" if p.low is not None and p.high is not None else "")
        for i, p in enumerate(shown)
    }
    left = len(points) - len(shown)
    rest = (
        f" {left} points without a size, or beyond {_MOST_POINTS}, are not drawn." if left else ""
    )
    return Figure(title, text + rest, draw(make), found, marks)


def _side_by_side(points: Sequence[_Point]) -> list[float]:
    """Place of each point on the axis of sizes, less than half a power of two off its size."""
    of_size: dict[int, list[int]] = defaultdict(list)
    for i, p in enumerate(points):
        of_size[p.size_bytes].append(i)
    places = [0.0] * len(points)
    for size, here in of_size.items():
        for k, i in enumerate(here):
            places[i] = size * 2 ** (_SPREAD * ((k + 0.5) / len(here) - 0.5))
    return places
