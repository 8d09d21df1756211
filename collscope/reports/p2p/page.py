"""What a page adds to pairs of ranks: slow pairs, a map of the ranks, a pair's curve over size."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from collscope.bench.p2p_plan import ONE_WAY, PING_PONG, TWO_WAY
from collscope.reports.p2p.answer import P2p, PairRow
from collscope.reports.rendering.drawing import (
    INK,
    Sheet,
    log_axis,
    series_style,
    size_axis,
)
from collscope.reports.rendering.heat_map import Matrix, heat_figure
from collscope.reports.rendering.layout import NUMBER, TEXT, scaled, table
from collscope.reports.rendering.page import Extras, Fact, Figure
from collscope.units import count, figure, format_size

if TYPE_CHECKING:
    from collscope.reports.rendering.drawing import Drawing


_MOST_RANKS = 64
_KINDS = ((ONE_WAY, "One-way bandwidth of pairs", "GB/s"),
          (TWO_WAY, "Two-way bandwidth of pairs", "GB/s"),
          (PING_PONG, "Latency of pairs", "us"))  # fmt: skip


def p2p_extras(found: P2p) -> Extras:
    """Slow pairs, a map of the ranks for each test and setting, and one pair's curve over size."""
    maps = [
        _pairs(found, test, variant, title, unit)
        for test, title, unit in _KINDS for variant in found.variants
    ]  # fmt: skip
    drawn = [f for f in (_pair_curve(found), *maps) if f is not None]
    return Extras(tuple(_p2p_facts(found)), {"": drawn})


def _p2p_facts(found: P2p) -> Iterable[Fact]:
    for test, title, unit in _KINDS:
        spreads = [s for s in found.spreads if s.test == test]
        if not spreads:
            continue
        s = max(spreads, key=lambda s: s.size_bytes)
        values = (
            (s.time_min_ns / 1e3, s.time_median_ns / 1e3, s.time_max_ns / 1e3) if test == PING_PONG
            else (s.algbw_gbps_min, s.algbw_gbps_median, s.algbw_gbps_max)
        )  # fmt: skip
        low, middle, high = (figure(v or 0.0, 4) for v in values)
        yield Fact(f"{title}, {format_size(s.size_bytes)}", f"{middle} {unit}",
                   f"median of {count(s.pairs, 'pair')}; {low} to {high}")  # fmt: skip
    if found.slow_pairs:
        worst = found.slow_pairs[0]
        yield Fact(
            "Slow beyond the noise", f"rank {worst.src} to rank {worst.dst}",
            f"{worst.ratio:.2f} times the median of the pairs ({worst.test}, "
            f"{format_size(worst.size_bytes)}); {count(len(found.slow_pairs), 'such case')} in all",
        )  # fmt: skip
    elif found.spreads:
        yield Fact("Slow beyond the noise", "no pair")


def _pairs(found: P2p, test: str, variant: str, title: str, unit: str) -> Figure | None:
    """A map of the ranks at the largest size that the most pairs have."""
    rows = [r for r in found.rows
            if r.test == test and r.variant == variant and r.time_ns is not None]  # fmt: skip
    pairs = Counter(r.size_bytes for r in rows)
    if not pairs or max(pairs.values()) < 2:  # one pair is no map
        return None
    size = max(pairs, key=lambda size: (pairs[size], size))
    values = {(r.src, r.dst): scaled(r.time_ns, 1e3) if test == PING_PONG else r.algbw_gbps
              for r in rows if r.size_bytes == size}  # fmt: skip
    if test != ONE_WAY:  # both send: measured once for the two directions
        values |= {(dst, src): value for (src, dst), value in values.items()}
    ranks = sorted({rank for pair in values for rank in pair})
    shown = ranks[:_MOST_RANKS]
    left = len(ranks) - len(shown)
    text = ("From the rank of the row to that of the column." if test == ONE_WAY
            else "Both ranks send; each pair is shown twice.")  # fmt: skip
    return heat_figure(
        f"{title}, {format_size(size)}" + (f": {variant}" if len(found.variants) > 1 else ""),
        text + (f" {count(left, 'more rank')} not drawn." if left else ""),
        Matrix("from, to", [f"rank {r}" for r in shown], [str(r) for r in shown],
               [[values.get((a, b)) for b in shown] for a in shown], unit),
    )  # fmt: skip


def _pair_curve(found: P2p) -> Figure | None:
    """Bandwidth over size of the pair that was measured at the most sizes."""
    ends = {found.curve_src, found.curve_dst}
    curves: dict[tuple[str, str], list[PairRow]] = defaultdict(list)
    for r in found.rows:
        if r.algbw_gbps and ((r.src, r.dst) == (found.curve_src, found.curve_dst)
                             or (r.test == TWO_WAY and {r.src, r.dst} == ends)):  # fmt: skip
            curves[r.variant, r.test].append(r)
    drawn = {key: sorted(rows, key=lambda r: r.size_bytes)
             for key, rows in curves.items() if len(rows) > 2}  # fmt: skip
    if not drawn:
        return None
    names = [test if len(found.variants) == 1 else f"{variant}, {test}" for variant, test in drawn]

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.axis(3.8)
        for n, (name, rows) in enumerate(zip(names, drawn.values(), strict=True)):
            axis.plot(
                [r.size_bytes for r in rows], [r.algbw_gbps or 0 for r in rows], gid=f"pair-{n}",
                ms=5, lw=1.4, label=name, **series_style(n),
            )  # fmt: skip
        if found.copies:
            axis.plot([c.size_bytes for c in found.copies], [c.algbw_gbps for c in found.copies],
                      "--", color=INK, lw=1.2, label="copy engine")  # fmt: skip
        size_axis(axis, [r.size_bytes for rows in drawn.values() for r in rows])
        log_axis(axis, "y")
        axis.set_ylabel("GB/s of one direction")
        return drawing

    return Figure(
        f"Bandwidth over message size, rank {found.curve_src} and rank {found.curve_dst}",
        "GB/s are for one direction, even where both ranks send.", make,
        table([("what", TEXT), ("size", NUMBER), ("GB/s", NUMBER), ("us", NUMBER)],
              ((name, format_size(r.size_bytes), r.algbw_gbps, scaled(r.time_ns, 1e3))
               for name, rows in zip(names, drawn.values(), strict=True) for r in rows)),
        {f"pair-{n}": name for n, name in enumerate(names)},
    )  # fmt: skip
