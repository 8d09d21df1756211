"""Kernels that one of two recorded jobs has more of, or that last longer there (pure)."""

from __future__ import annotations

import msgspec
import numpy as np

from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.step_causes.tolerances import MIN_KERNEL_CHANGE


class ChangedKernel(msgspec.Struct, frozen=True):
    """Kernels or copies of one name on one rank, a step of either run."""

    rank: int  # world rank
    kernel: str  # name as traced
    first: float  # number in the first run
    second: float  # in the second
    first_ms: float  # summed durations in the first run
    second_ms: float  # in the second


def kernel_changes(first: RecordedJob, second: RecordedJob) -> tuple[ChangedKernel, ...]:
    """What differs by more than 1 % of the longer step, the largest difference first.

    Collectives are left out: their durations hold the waiting for late ranks.
    """
    least = MIN_KERNEL_CHANGE * max(first.step_ns or 0.0, second.step_ns or 0.0)
    one, other = _totals(first), _totals(second)
    found = [
        ChangedKernel(*key, one.get(key, (0, 0))[0], other.get(key, (0, 0))[0],
                      one.get(key, (0, 0))[1] / 1e6, other.get(key, (0, 0))[1] / 1e6)
        for key in {**one, **other}
        if abs(other.get(key, (0, 0))[1] - one.get(key, (0, 0))[1]) > least
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda k: (-abs(k.second_ms - k.first_ms), k.rank, k.kernel)))


def _totals(recorded: RecordedJob) -> dict[tuple[int, str], tuple[float, float]]:
    """Number and ns a step of each rank's kernels and copies in whole steps, by name."""
    rows = recorded.rows
    begin, finish = recorded.steps.span(rows.end, len(rows.ranks))
    inside = (rows.entry < 0) & (rows.name >= 0)
    inside &= (rows.end > begin[rows.trace]) & (rows.end <= finish[rows.trace])
    key = rows.trace[inside].astype(np.int64) * len(rows.names) + rows.name[inside]
    kinds, number = np.unique(key, return_inverse=True)
    counts = np.bincount(number, minlength=len(kinds))
    spent = np.bincount(number, (rows.end - rows.start)[inside], minlength=len(kinds))
    steps = max(1, int(recorded.steps.count.max(initial=1)))
    return {
        (rows.ranks[k // len(rows.names)], rows.names[k % len(rows.names)]): (n / steps, ns / steps)
        for k, n, ns in zip(kinds.tolist(), counts.tolist(), spent.tolist(), strict=True)
    }
