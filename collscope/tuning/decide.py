"""Whether a setting is better than another, from launches that took turns (pure).

Times of a round are paired, so that slow drift of the machine meets both alike. The interval is
Student's, of the mean logarithm of their ratio over the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from collscope.stats import mad, mean_interval

# Our choices (docs/tune.md); tests/tuning/test_tune.py simulates how often they accept too much.
FEWEST_ROUNDS = 3  # that a decision needs
CONFIDENCE = 0.95  # of an interval, at least
FALSE_ACCEPTANCE = 0.01  # of a class with no possible saving, over all settings tried on it
LEAST_FLOOR = 0.02  # part of the time: less counts as noise, however quiet the machine is

Rounds = Mapping[int, float]  # us by round


class Improvement(msgspec.Struct, frozen=True):
    """Part of the time that a setting saves against another; negative: it is slower."""

    saved: float
    low: float
    high: float
    rounds: int

    def beyond(self, floor: float) -> bool:
        """Surely better, and by more than the noise."""
        return self.rounds >= FEWEST_ROUNDS and self.low > 0 and self.saved > floor

    def worse(self, floor: float) -> bool:
        """Surely worse, and by more than the noise."""
        return self.rounds >= FEWEST_ROUNDS and self.high < 0 and self.saved < -floor

    def doubtful(self, floor: float) -> bool:
        """Cannot be put in the other's place: worse by more than noise, or too little is known."""
        return self.rounds < FEWEST_ROUNDS or self.saved < -floor or self.high < 0


def improvement(before: Rounds, after: Rounds, compared: int = 1) -> Improvement | None:
    """What `after` saves against `before`, over the rounds that both have; None without any.

    compared  settings that were tried on the class: the interval is of 95 %, and so wide that at
              most 1 % of classes with no possible saving have one of so many settings accepted
    """
    common = sorted(before.keys() & after.keys())
    if not common:
        return None
    logs = [math.log(after[r] / before[r]) for r in common]
    if len(common) < 2:
        return Improvement(-math.expm1(logs[0]), -math.inf, 1.0, len(common))
    sure = max(CONFIDENCE, 1 - 2 * FALSE_ACCEPTANCE / max(1, compared))
    middle, half = mean_interval(logs, sure)
    low, high = -math.expm1(min(middle + half, 700)), -math.expm1(middle - half)
    return Improvement(-math.expm1(middle), low, high, len(common))


def noise_floor(repeats: Sequence[float]) -> float:
    """max(2 %, 2 x median absolute deviation) of the present setting's repeats, a ratio."""
    if len(repeats) < 2:
        return LEAST_FLOOR
    return max(LEAST_FLOOR, 2 * mad(repeats) / median(repeats))


class Standing(msgspec.Struct, frozen=True):
    """One setting on one class."""

    time_us: float  # median over its rounds
    against_present: Improvement | None
    against_default: Improvement | None
    accepted: bool  # surely better than the present setting, and not worse than the default
    # Not worse than the default: may be taken for a class because the others gain, even where the
    # present setting is faster. Nothing but the sum over the classes holds it against that.
    allowed: bool


def standings(
    times: Mapping[str, Rounds], present: str, default: str, repeats: Sequence[float]
) -> tuple[dict[str, Standing], float]:
    """Every setting that was tried on a class, and the noise floor.

    times             of the class by setting
    present, default  names among them; the present may have no times, where the library refuses it
    repeats           every time of the present setting, us
    """
    floor = noise_floor(repeats)
    challengers = sum(name not in (present, default) for name in times)
    found = {}
    for name, rounds in times.items():
        if not rounds:
            continue
        first = _against(times.get(present), rounds, challengers)
        second = _against(times.get(default), rounds, challengers)
        allowed = name == default or second is None or not second.doubtful(floor)
        reference = first if first is not None else second
        better = name != present and reference is not None and reference.beyond(floor)
        if first is None and name == default:
            better = len(rounds) >= FEWEST_ROUNDS  # what runs is better than what does not
        found[name] = Standing(
            median(rounds.values()), first, second, accepted=better and allowed, allowed=allowed
        )
    return found, floor


def _against(other: Rounds | None, rounds: Rounds, compared: int) -> Improvement | None:
    return improvement(other, rounds, compared) if other else None
