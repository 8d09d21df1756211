"""Which threshold to take, and whether that pays (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from collscope.whatif.policies import Policy
from collscope.whatif.times import HIGH, LOW, Floats

MIB = 1 << 20
LEAST_GAIN = 0.01  # smaller gains are within the day-to-day variation of a replay


class Choice(msgspec.Struct, frozen=True):
    """The fastest candidate against what is done now.

    best       index of the fastest candidate
    as_good    indices of those that are not slower within the uncertainty, the best too
    gain       part of the present time that the best saves; negative: it costs
    gain_low   5 % and 95 % quantiles of it; None where nothing is known to vary
    gain_high
    worth_it   the gain is above `LEAST_GAIN` also at its low end
    """

    best: int
    as_good: tuple[int, ...]
    gain: float
    gain_low: float | None
    gain_high: float | None
    worth_it: bool


def choose(candidates: Sequence[Floats], present: Floats) -> Choice:
    """Compare candidates resample by resample, so that what they share cancels.

    candidates, present  estimate and resamples in µs, each of shape (1 + resamples,)
    """
    table = np.stack(candidates)
    best = int(np.argmin(table[:, 0]))
    slower = np.quantile(table[:, 1:] - table[best, 1:], LOW, axis=1)
    as_good = [i for i, least in enumerate(slower.tolist()) if least <= 0 or i == best]
    gains = 1 - table[best] / present
    low, high = (float(q) for q in np.quantile(gains[1:], (LOW, HIGH)))
    known = high > low
    gain = float(gains[0])
    return Choice(
        best, tuple(as_good), gain, low if known else None, high if known else None,
        (min(low, gain) if known else gain) > LEAST_GAIN,
    )  # fmt: skip


def bucket_cap_mb(policy: Policy, setting: int, total_bytes: int) -> float:
    """Value for PyTorch's `bucket_cap_mb`, in MiB, that makes buckets like those of a policy.

    Of a number of buckets it is the size that each would have.
    """
    size = total_bytes / setting if policy is Policy.FIXED_COUNT else setting
    return size / MIB
