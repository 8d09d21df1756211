"""From efficiency to end-to-end gain: pure formulas over plain numbers (docs/report.md).

T is the time the fractions are of, wall or GPU time. Of a class of collectives: f its fraction of
T, e its exposed part, phi the transfer's part of its time, kappa what the job makes transfers
slower than alone, eta its roof time over its time alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """What one class contributes.

    fraction    f, ratio to T
    efficiency  eta; None: not known, and then no gain is counted; above 1: the roof does not apply
    exposure    e; transfer: phi; contention: kappa
    """

    fraction: float
    efficiency: float | None
    exposure: float = 1.0
    transfer: float = 1.0
    contention: float = 1.0

    @property
    def saved(self) -> float:
        """f e phi / kappa (1 - eta), never negative."""
        if self.efficiency is None:
            return 0.0
        idle = max(0.0, 1.0 - self.efficiency)
        return self.fraction * self.exposure * self.transfer / self.contention * idle


@dataclass(frozen=True, slots=True)
class Split:
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


def saved_share(parts: Sequence[Part]) -> float:
    """Part of T that disappears if every class reaches its roof."""
    return sum(part.saved for part in parts)


def ceiling(parts: Sequence[Part]) -> float | None:
    """Gain if collectives were free; None when T is nothing but exposed collectives."""
    return gain(sum(part.fraction * part.exposure for part in parts))


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
    whole = in_job if in_job is not None else least
    bound = min(roof, least)
    return Split(whole - least, least - bound, bound)
