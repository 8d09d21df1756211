"""What a page adds to answers about measurements: comparisons, verdicts, pairs of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt

from collscope.analysis.check import Check
from collscope.analysis.compare import Comparison, TracedParts
from collscope.bench.p2p_plan import ONE_WAY, PING_PONG, TWO_WAY
from collscope.reports.figure import COLOURS, MARKERS
from collscope.reports.html.drawing import INK, Matrix, draw, heat_figure, size_axis
from collscope.reports.html.page import Extras, Fact, Figure
from collscope.reports.layout import NUMBER, TEXT, table
from collscope.reports.p2p_model import P2p
from collscope.units import format_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_MOST_POINTS = 2000
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
    """Speed-ups with intervals over size, a series per label; crossovers as lines."""
    points = [
        _Point(cell.label, f"{c.key.op.value} x{c.key.nranks}", c.key.size_bytes or 0,
               cell.speed_up, cell.low, cell.high)
        for c in found.classes for cell in c.cells[1:] if cell.speed_up is not None
    ]  # fmt: skip
    facts = [
        Fact(f"{t.label} against {found.labels[0]}", f"{t.speed_up:.3f} x",
             "" if t.low is None or t.high is None else f"{t.low:.3f} to {t.high:.3f}", "Totals")
        for t in found.totals if t.label != found.labels[0]
    ]  # fmt: skip
    facts = [*_step_facts(found.traced), *facts]
    figure = _ratios(
        "Speed-up by message size",
        f"Time of {found.labels[0]} over that of the label; above 1 the label is faster. Bars are "
        "95 % intervals; vertical lines are sizes at which the leading label changes.",
        points, [x.size_bytes for x in found.crossovers], (),
    )  # fmt: skip
    return Extras(tuple(facts), {"": (figure,)} if figure else {})


def check_extras(found: Check) -> Extras:
    """The verdict's ratios over size, with the thresholds beyond which a change matters."""
    points = [
        _Point(c.outcome, f"{c.key.op.value} x{c.key.nranks}", c.key.size_bytes or 0, c.ratio,
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
        f"Time of {found.current} over that of {found.baseline}; below 1 is faster. Bars are 95 % "
        "intervals, the dashed line is where a slow-down matters.", points, (), limits,
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
            Matrix([f"rank {r}" for r in ranks], [str(r) for r in ranks],
                   [[values.get((a, b)) for b in ranks] for a in ranks], unit),
        ))  # fmt: skip
    return Extras((), {"": figures})


def _ratios(
    title: str, text: str, points: Sequence[_Point], crossings: Sequence[int],
    limits: Sequence[float],
) -> Figure | None:  # fmt: skip
    shown = [p for p in points if p.size_bytes > 0][:_MOST_POINTS]
    if not shown:
        return None
    names = list(dict.fromkeys(p.series for p in shown))

    def make() -> Drawing:
        figure, axis = plt.subplots(figsize=(11, 4), layout="constrained")
        for n, name in enumerate(names):
            colour, marker = COLOURS[n % len(COLOURS)], MARKERS[n % len(MARKERS)]
            for i, p in enumerate(shown):
                if p.series != name:
                    continue
                if p.low is not None and p.high is not None:
                    axis.plot([p.size_bytes] * 2, [p.low, p.high], lw=1, color=colour, zorder=2)
                axis.plot(p.size_bytes, p.ratio, marker, ms=6, color=colour, gid=f"ratio-{i}",
                          zorder=3)  # fmt: skip
            axis.plot([], [], marker, color=colour, label=name[:60])
        axis.axhline(1, color=INK, lw=1)
        for limit in limits:
            axis.axhline(limit, color=INK, lw=1, ls="--")
        for size in crossings:
            axis.axvline(size, color=INK, lw=0.6, ls=":")
        size_axis(axis, [p.size_bytes for p in shown])
        axis.set_ylabel("ratio")
        axis.legend(loc="best", fontsize=9)
        return figure

    found = table(
        [("label or outcome", TEXT), ("class", TEXT), ("size", NUMBER), ("ratio", NUMBER),
         ("low", NUMBER), ("high", NUMBER)],
        ((p.series, p.what, format_size(p.size_bytes), p.ratio, p.low, p.high) for p in shown),
    )  # fmt: skip
    marks = {
        f"ratio-{i}": f"{p.what} {format_size(p.size_bytes)}\n{p.series}: {p.ratio:.3f}"
        + (f" ({p.low:.3f} to {p.high:.3f})" if p.low is not None and p.high is not None else "")
        for i, p in enumerate(shown)
    }
    return Figure(title, text, draw(make), found, marks)
