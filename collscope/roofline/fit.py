"""Roofs from measurements: the lower envelope of a sweep, and its latency and bandwidth.

One curve per (operation, ranks, nodes): the best time seen at each size, made monotone (a larger
message that was faster shows that the smaller one can be), interpolated in log(size), log(time).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from math import exp, log
from statistics import median

import msgspec

from collscope.errors import NoVerdictError
from collscope.model import Measurement, Op
from collscope.model.note import Note

# Measured sizes predict times of sizes up to four times smaller or larger, and no others: protocols
# and algorithms change within a few octaves.
REACH = 4
CurveKey = tuple[Op, int, int]  # operation, ranks, nodes


class Hockney(msgspec.Struct, frozen=True):
    """Time = latency + size / bandwidth, fitted to relative errors (docs/roofline.md).

    median_error, worst_error  of |fitted / measured − 1| over the points
    """

    latency_us: float
    algbw_gbps: float
    median_error: float
    worst_error: float


BEYOND = Note("beyond_measured_sizes", {}, "beyond the measured sizes")


class Curve(msgspec.Struct, frozen=True):
    """Best times of one operation and communicator shape: sizes rising, times not falling."""

    key: CurveKey
    sizes: tuple[int, ...]
    times_us: tuple[float, ...]
    source: str = ""

    def time_us(self, size: int) -> float:
        """Time of `size` bytes in µs.

        Below the first size its time; beyond the last size the bandwidth of the last. Only where
        the curve `reaches` is that more than a guess.
        """
        if size <= self.sizes[0]:
            return self.times_us[0]
        if size >= self.sizes[-1]:
            return self.times_us[-1] * size / self.sizes[-1]
        right = bisect_left(self.sizes, size)
        x0, x1 = log(self.sizes[right - 1]), log(self.sizes[right])
        y0, y1 = log(self.times_us[right - 1]), log(self.times_us[right])
        return exp(y0 + (y1 - y0) * (log(size) - x0) / (x1 - x0))

    def covers(self, size: int) -> bool:
        """True inside the measured sizes."""
        return self.sizes[0] <= size <= self.sizes[-1]

    def reaches(self, size: int) -> bool:
        """True where the measured sizes predict a time: at most `REACH` times beyond them."""
        return self.sizes[0] <= REACH * size and size <= REACH * self.sizes[-1]


class Fit(msgspec.Struct, frozen=True):
    """Curves of one set of measurements; `name` is that of the set."""

    name: str
    curves: dict[CurveKey, Curve]
    unusable: int = 0  # measurements left out: they failed, or gave wrong results

    def curve(self, op: Op, nranks: int, nnodes: int) -> Curve | None:
        """Curve of exactly this shape, or None."""
        return self.curves.get((op, nranks, nnodes))


def fit(measurements: Iterable[Measurement], name: str, *, nnodes: int | None = None) -> Fit:
    """Curves of every operation and shape that was measured.

    measurements  of any number of settings: the best at each size counts. Those that failed, gave
                  wrong data, or lack size, ranks or time are left out
    nnodes        nodes of measurements with an unknown number of nodes; None: one
    raises        NoVerdictError when nothing is left
    """
    best: dict[CurveKey, dict[int, float]] = defaultdict(dict)
    unusable = 0
    for m in measurements:
        if not m.right:
            unusable += 1
            continue
        if not m.size_bytes or not m.nranks or not m.time_us_median:
            continue
        if m.size_bytes < 0 or m.time_us_median < 0:
            continue
        nodes = m.nnodes or nnodes or 1
        times = best[m.op, m.nranks, nodes]
        times[m.size_bytes] = min(m.time_us_median, times.get(m.size_bytes, m.time_us_median))
    if not best:
        why = f" ({unusable} failed or gave wrong results)" * bool(unusable)
        raise NoVerdictError(
            f"{name}: no measurement with right results, a size, ranks and a time{why}. "
            "Measure a sweep of sizes first."
        )
    return Fit(name, {key: envelope(key, points) for key, points in best.items()}, unusable)


def hockney(sizes: tuple[int, ...], times_us: tuple[float, ...]) -> Hockney:
    """Latency and bandwidth with the least sum of relative errors |α + βm − t| / t.

    Found exactly: with two unknowns an optimum passes through two of the points, or through one
    with α = 0; every such line is tried (sweeps have tens of points; the cost grows as their cube).
    """
    points = list(zip(sizes, times_us, strict=True))
    lines = [(0.0, t / m) for m, t in points]
    for index, (m0, t0) in enumerate(points):
        for m1, t1 in points[index + 1 :]:
            if m0 != m1:
                beta = (t1 - t0) / (m1 - m0)
                lines.append((t0 - beta * m0, beta))
    _, alpha, beta = min(
        (sum(abs(a + b * m - t) / t for m, t in points), a, b) for a, b in lines if a >= 0 and b > 0
    )
    relative = [abs(alpha + beta * m - t) / t for m, t in points]
    return Hockney(alpha, 1 / (beta * 1000), median(relative), max(relative))


def envelope(key: CurveKey, points: dict[int, float], source: str = "") -> Curve:
    """Monotone envelope of the best time at each size."""
    sizes = tuple(sorted(points))
    times: list[float] = []
    least = float("inf")
    for size in reversed(sizes):
        least = min(least, points[size])
        times.append(least)
    times.reverse()
    return Curve(key, sizes, tuple(times), source)
