"""How long an all-reduce of any size takes, from measured sizes, with its uncertainty.

Row 0 of every array is the estimate, the rows below it are resamples of the measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.errors import NoVerdictError
from collscope.model import Measurement
from collscope.roofline.fit import REACH, Hockney, fit, hockney
from collscope.stats import RESAMPLES, SEED, resampled_medians
from collscope.units import count

Floats = npt.NDArray[np.float64]
LOW, HIGH = 0.05, 0.95  # quantiles of an interval


class AllReduceTimes(msgspec.Struct, frozen=True):
    """Times of one operation on one shape of communicator by size.

    sizes               bytes, rising, shape (n,)
    logs                logarithms of µs, shape (1 + resamples, n)
    noise               added between two sizes to the interpolated logarithm: (1 + resamples, n-1)
    interpolation_error largest standard deviation of that noise, a ratio; 0 below three sizes
    line                latency and bandwidth of the whole curve; None below three sizes
    """

    sizes: npt.NDArray[Any]
    logs: Floats
    noise: Floats
    interpolation_error: float
    line: Hockney | None

    def us(self, sizes: Sequence[int]) -> Floats:
        """µs of calls of these sizes, shape (1 + resamples, len(sizes)).

        Between two measured sizes a power law; below the first its time, beyond the last its
        bandwidth: ask `reaches` whether they are near enough.
        """
        wanted = np.asarray(sizes, dtype=np.float64)
        if len(self.sizes) == 1:
            beyond = np.log(np.maximum(wanted / self.sizes[0], 1.0))
            return _floats(np.exp(self.logs + beyond))
        right = np.clip(np.searchsorted(self.sizes, wanted), 1, len(self.sizes) - 1)
        x = np.log(self.sizes.astype(np.float64))
        place = (np.log(np.maximum(wanted, 1.0)) - x[right - 1]) / (x[right] - x[right - 1])
        inside = np.clip(place, 0.0, 1.0)
        logs = self.logs[:, right - 1] * (1 - inside) + self.logs[:, right] * inside
        # nothing is added at a measured size
        between = (inside > 0) & (inside < 1)
        logs = logs + np.where(between, self.noise[:, right - 1], 0.0)
        return _floats(np.exp(logs + np.log(np.maximum(wanted / self.sizes[-1], 1.0))))

    def reaches(self, sizes: Sequence[int]) -> bool:
        """True where all of these sizes are within `REACH` of the measured ones."""
        return bool(self.sizes[0] <= REACH * min(sizes) and max(sizes) <= REACH * self.sizes[-1])

    def outside(self, sizes: Sequence[int]) -> int:
        """How many of these sizes are below the first or beyond the last measured."""
        return sum(not self.sizes[0] <= size <= self.sizes[-1] for size in sizes)


def make_times(
    measured: Sequence[Measurement], name: str, *, exact: bool = False
) -> AllReduceTimes:
    """Times from measurements of one operation, number of ranks and number of nodes.

    measured  measurements of one size are alternatives; the fastest counts
    name      of what was measured, for errors
    exact     every requested size was measured: its own time counts, also where a
              larger message was faster; else the monotone envelope of `roofline.fit`
    raises    NoVerdictError when none has a size and a time
    """
    fitted = fit(measured, name)
    (curve,) = fitted.curves.values()
    by_size: dict[int, list[Measurement]] = {size: [] for size in curve.sizes}
    for m in measured:
        if m.right and m.time_us_median and m.size_bytes in by_size:
            by_size[m.size_bytes].append(m)
    rng = np.random.default_rng(SEED)
    columns = [_resampled(same, rng) for same in by_size.values()]
    resampled = np.stack(columns, axis=1)
    times = np.vstack(
        [[min(m.time_us_median or 0.0 for m in s) for s in by_size.values()], resampled]
    )
    if not exact:
        times = np.minimum.accumulate(times[:, ::-1], axis=1)[:, ::-1]
    sizes = np.array(curve.sizes)
    logs = np.log(times)
    errors = np.zeros(len(sizes) - 1) if exact else _interpolation_errors(np.log(sizes), logs[0])
    noise = rng.normal(0.0, 1.0, (RESAMPLES, len(errors))) * errors
    noise = np.vstack([np.zeros(len(sizes) - 1), noise])
    line = hockney(curve.sizes, tuple(times[0].tolist())) if len(sizes) >= 3 else None
    return AllReduceTimes(sizes, logs, noise, float(errors.max(initial=0.0)), line)


def _floats(values: npt.ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def resampled_times(m: Measurement) -> Floats:
    """Median of a measurement, then those of resamples of its samples, (1 + RESAMPLES,)."""
    return _floats([m.time_us_median or 0.0, *_resampled([m], np.random.default_rng(SEED))])


def _resampled(same: Sequence[Measurement], rng: np.random.Generator) -> Floats:
    """Least of the medians of resamples of each measurement of a size, (RESAMPLES,)."""
    blocks = resampled_medians([m.times_us for m in same], rng)
    return _floats(np.min([medians.min(axis=0) for _, medians in blocks], axis=0))


def _interpolation_errors(x: Floats, y: Floats) -> Floats:
    """Relative error of interpolation between each two neighbouring sizes, (n - 1,).

    From how much a point's logarithm differs from what its own neighbours give, root mean square
    of a segment's two ends. Where the time jumps by J within a segment (a protocol ends there),
    that is J/2, and the error at an even place J/√12; a smooth bend has a smaller part of it, so
    the errors are rather too large. 0 below three sizes.
    """
    if len(x) < 3:
        return np.zeros(len(x) - 1)
    place = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    squared = (y[:-2] * (1 - place) + y[2:] * place - y[1:-1]) ** 2
    # the first and the last point have no two neighbours: their segments go by the other end
    squared = np.concatenate([squared[:1], squared, squared[-1:]])
    return _floats(np.sqrt((squared[:-1] + squared[1:]) / 2) / np.sqrt(3))


def require_alike(measured: Sequence[Measurement], name: str) -> None:
    """Refuse measurements of several numbers of ranks or nodes.

    raises  NoVerdictError for none, or for several
    """
    shapes = sorted({(m.nranks or 0, m.nnodes or 1) for m in measured})
    if len(shapes) != 1:
        known = (
            ", ".join(
                f"{count(ranks, 'rank')} on {count(nodes, 'node')}" for ranks, nodes in shapes
            )
            or "none"
        )
        raise NoVerdictError(
            f"{name}: AllReduce measured on {known}. Choose one with --ranks and --nodes, or "
            "measure with collscope replay --sweep allreduce:1K..256M*2."
        )
