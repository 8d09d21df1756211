"""Time of the host's work without the profiler (pure)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import msgspec

from collscope.timeline.assumptions import GIVEN, host_prior
from collscope.timeline.prediction.contention_change import ContentionReading
from collscope.timeline.prediction.scenarios import Player

_PACES = (0.02, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0)


class PaceRange(msgspec.Struct, frozen=True):
    """Time of the host's work without the profiler, in parts of the recorded."""

    low: float
    middle: float
    high: float
    determined: bool = True  # by the step time without the profiler


def host_pace(
    player: Player,
    measured_ns: float | None,
    contention: ContentionReading,
    *,
    seen: bool = False,
) -> PaceRange:
    """Time of the host's work without the profiler, in parts of the recorded.

    The step time without the profiler tells it where the host is what bounds that step.

    seen  only edges that a recorded start shows
    """
    low, usual, high = host_prior(player.recorded)
    if measured_ns is None:
        return PaceRange(low, usual, high, determined=False)

    def step(place: int) -> float:
        return player.old_step(_PACES[place], contention, seen=seen)

    goal = min(max(measured_ns, step(0)), step(len(_PACES) - 1))
    least, most = (_pace(step, goal * (1 + change)) for change in (-GIVEN, GIVEN))
    if most - least < 0.2 * most:
        return PaceRange(least, (least + most) / 2, most)
    # The GPU bounds the step: what the host would need is not in the record.
    lower, upper = max(least, min(low, most)), min(most, max(high, least))
    middle = min(max(usual, lower), upper)
    return PaceRange(lower, middle, upper, determined=False)


def _pace(step: Callable[[int], float], goal: float) -> float:
    """Largest of the paces with which a step is no longer than `goal`, interpolated.

    step  by the place of its pace; a slower host shortens none
    """
    over = bisect_right(range(len(_PACES)), goal, key=step)
    if over in (0, len(_PACES)):
        return _PACES[min(over, len(_PACES) - 1)]
    part = (goal - step(over - 1)) / (step(over) - step(over - 1))
    return _PACES[over - 1] + part * (_PACES[over] - _PACES[over - 1])
