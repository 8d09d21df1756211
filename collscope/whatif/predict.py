"""Time of a step's buckets: one after the other, or beside the backward pass (pure).

Source of the formulas: blocking T = sum of t(S) over the buckets, or with a line αK + βΣS;
overlapped finish = max(ready, finish of the bucket before) + t(S), as buckets share a stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from collscope.roofline.fit import Hockney
from collscope.whatif.policies import Bucket
from collscope.whatif.times import HIGH, LOW, AllReduceTimes, Floats


class Production(msgspec.Struct, frozen=True):
    """When gradients are ready: µs since the backward pass began, by the part of the bytes.

    parts     rising from 0 to 1
    ready_us  not falling; the last is when the backward pass ends
    source    where it comes from, in words
    """

    parts: tuple[float, ...]
    ready_us: tuple[float, ...]
    source: str

    @property
    def end_us(self) -> float:
        """When the backward pass ends."""
        return self.ready_us[-1]

    def of(self, buckets: Sequence[Bucket]) -> Floats:
        """µs at which each bucket's last gradient is ready."""
        sums = np.cumsum([bucket.size_bytes for bucket in buckets], dtype=np.float64)
        return np.asarray(np.interp(sums / sums[-1], self.parts, self.ready_us))


def uniform(backward_us: float) -> Production:
    """Gradients at an even rate over a backward pass."""
    return Production((0.0, 1.0), (0.0, backward_us), f"evenly over {backward_us / 1000:g} ms")


def recorded(sizes: Sequence[int], ready_us: Sequence[float]) -> Production:
    """From recorded calls: the bytes of each were ready when it began.

    ready_us  on any clock, one per size, two at least. What was produced before the first call is
              taken to have come at the mean rate between the first and the last
    """
    total = sum(sizes)
    parts = np.cumsum(sizes) / total
    ready = np.maximum.accumulate(np.asarray(ready_us, dtype=np.float64))
    rest = 1.0 - parts[0]
    begin = ready[0] - (ready[-1] - ready[0]) * parts[0] / rest
    return Production(
        (0.0, *parts.tolist()),
        (0.0, *(ready - begin).tolist()),
        "at the recorded starts of the calls",
    )


def step_us(
    buckets: Sequence[Bucket], times: AllReduceTimes, production: Production | None
) -> Floats:
    """Estimate and resamples of what a step's buckets take in µs, shape (1 + resamples,).

    production  None: blocking or queued, the sum of the buckets' times; else the end of the last
                bucket since the backward pass began
    """
    each = times.us([bucket.size_bytes for bucket in buckets])
    if production is None:
        return np.asarray(each.sum(axis=1))
    finish = np.zeros(len(each))
    for ready, column in zip(production.of(buckets), each.T, strict=True):
        finish = np.maximum(finish, ready) + column
    return finish


def line_us(buckets: Sequence[Bucket], line: Hockney) -> float:
    """µs of the buckets one after the other by latency and bandwidth: αK + βΣS.

    >>> round(line_us([Bucket(0, 1, 1000), Bucket(1, 2, 3000)], Hockney(10.0, 1.0, 0, 0)), 6)
    24.0
    """
    total = sum(bucket.size_bytes for bucket in buckets)
    return line.latency_us * len(buckets) + total / (line.algbw_gbps * 1000)


class Slope(msgspec.Struct, frozen=True):
    """Least squares of time on the number of buckets; `r_squared` 1: a line, 0: none."""

    rest_us: float  # what no number of buckets changes
    per_bucket_us: float
    r_squared: float


def slope(counts: Sequence[int], times_us: Sequence[float]) -> Slope | None:
    """What one more bucket costs; None below three numbers of buckets that differ."""
    if len(set(counts)) < 3:
        return None
    x, y = np.asarray(counts, dtype=np.float64), np.asarray(times_us, dtype=np.float64)
    dx, dy = x - x.mean(), y - y.mean()
    per_bucket = float((dx * dy).sum() / (dx**2).sum())
    total = float((dy**2).sum())
    left = float(((dy - per_bucket * dx) ** 2).sum())
    return Slope(
        float(y.mean() - per_bucket * x.mean()), per_bucket, 1 - left / total if total else 1.0
    )


def interval(resamples: Floats) -> tuple[float, float] | None:
    """5 % and 95 % quantiles; None where nothing varied."""
    low, high = np.quantile(resamples, (LOW, HIGH))
    return (float(low), float(high)) if high > low else None
