"""From efficiency to end-to-end gain: pure formulas over plain numbers (docs/report.md).

T is the time the fractions are of, wall or GPU time. Of a class of collectives: f its fraction of
T, e its exposed part, phi the transfer's part of its time, kappa what the job makes transfers
slower than alone, eta its roof time over its time alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collscope.stats import RESAMPLES, SEED, resampled_medians


class GainPart(msgspec.Struct, frozen=True):
    """What one class contributes.

    fraction    f, ratio to T
    efficiency  eta; None: not known, and then no gain is counted; above 1: the roof does not apply
    exposure    e; transfer: phi; contention: kappa
    most        the transfer's part where all that is not known to be waiting is transfer
    """

    fraction: float
    efficiency: float | None
    exposure: float = 1.0
    transfer: float = 1.0
    contention: float = 1.0
    most: float = 1.0

    @property
    def saved(self) -> float:
        """f e phi / kappa (1 - eta), never negative."""
        if self.efficiency is None:
            return 0.0
        idle = max(0.0, 1.0 - self.efficiency)
        return self.fraction * self.exposure * self.transfer / self.contention * idle


class Split(msgspec.Struct, frozen=True):
    """Times of one call: they add up to its transfer in the job, or its time alone."""

    contention: float
    tunable: float
    roof: float


def gain(saved: float) -> float | None:
    """Speed-up minus one when the part `saved` of T goes away: 1/(1-s) - 1; None when s is 1.

    >>> round(gain(0.2), 12)
    0.25
    """
    return None if saved >= 1 else 1 / (1 - saved) - 1


def saved_share(parts: Sequence[GainPart]) -> float:
    """Part of T that disappears if every class reaches its roof."""
    return sum(part.saved for part in parts)


def ceiling(parts: Sequence[GainPart]) -> float | None:
    """Gain at most if transfers were free; None when T is nothing but exposed transfers.

    Waiting stays: it is the lateness of a rank, which no collective removes.
    """
    return gain(sum(part.fraction * part.exposure * part.most for part in parts))


def implied_share(actual_gain: float, speed_up: float) -> float | None:
    """Exposed collective share that explains a gain: (1 - 1/(1+U)) / (1 - 1/g).

    actual_gain  U, end to end
    speed_up     g, of the collectives; None is returned when it is 1
    """
    if speed_up in (0.0, 1.0) or actual_gain <= -1:
        return None
    return (1 - 1 / (1 + actual_gain)) / (1 - 1 / speed_up)


def predicted_gain(share: float, speed_up: float) -> float | None:
    """Gain if collectives with this exposed share of T become `speed_up` times as fast."""
    return gain(share * (1 - 1 / speed_up)) if speed_up > 0 else None


def split(roof: float, alone: float | None, in_job: float | None) -> Split | None:
    """Where the time of one call goes; units are the caller's.

    roof    least time; alone: measured; in_job: transfer in the job, waiting taken off
    returns parts whose sum is in_job, else alone; None when neither is known. A time below the
            roof is all roof: then the roof does not apply, and nothing can be gained
    """
    times = [time for time in (alone, in_job) if time is not None]
    if not times:
        return None
    least = min(times)
    total = in_job if in_job is not None else least
    bound = min(roof, least)
    return Split(total - least, least - bound, bound)


class Spread(msgspec.Struct, frozen=True):
    """Gain over resampled measurements: 5 %, 50 % and 95 % quantiles."""

    low: float
    median: float
    high: float


def bootstrap(
    weights: Sequence[float],
    samples: Sequence[Sequence[float]],
    ceilings: Sequence[Sequence[float]],
    in_job: Sequence[float],
) -> Spread | None:
    """Spread of the gain over resampled measurements and over the ceilings.

    weights   f e phi of each class
    samples   times of each class alone in us, at least one
    ceilings  one sequence per ceiling: roof times of the classes in us
    in_job    transfers of the classes in the job in us; infinite where not known
    returns   None when nothing can vary: one sample per class, one ceiling
    """
    import numpy as np  # noqa: PLC0415 - loading it takes longer than most reports

    counts = np.array([len(times) for times in samples])
    if not len(counts) or (counts.max() < 2 and len(ceilings) < 2):
        return None
    rng = np.random.default_rng(SEED)
    totals = np.zeros((len(ceilings), RESAMPLES))
    roofs, job, scale = np.array(ceilings), np.array(in_job), np.array(weights)
    for rows, alone in resampled_medians(samples, rng):
        least = np.minimum(alone, job[rows, None])
        total = np.where(np.isinf(job[rows, None]), alone, job[rows, None])
        for number, roof in enumerate(roofs):
            won = np.maximum(0.0, least - roof[rows, None]) / total
            totals[number] += (scale[rows, None] * won).sum(axis=0)
    saved = np.minimum(totals.ravel(), 1 - 1e-9)
    low, middle, high = np.quantile(1 / (1 - saved) - 1, (0.05, 0.5, 0.95))
    return Spread(float(low), float(middle), float(high))
