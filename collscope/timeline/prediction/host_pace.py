"""Time of the host's work without the profiler (pure)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import msgspec

from collscope.timeline.assumptions import host_prior
from collscope.timeline.prediction.contention_change import ContentionReading
from collscope.timeline.prediction.scenarios import Player
from collscope.timeline.tolerances import GIVEN_STEP_ERROR, HOST_PACES, MAX_PACE_SPREAD


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

    The step time without the profiler shows it where the host bounds that step.

    seen  only edges that a recorded start shows
    """
    low, usual, high = host_prior(player.recorded)
    if measured_ns is None:
        return PaceRange(low, usual, high, determined=False)

    def step(place: int) -> float:
        return player.old_step(HOST_PACES[place], contention, seen=seen)

    goal = min(max(measured_ns, step(0)), step(len(HOST_PACES) - 1))
    least, most = (
        _pace(step, goal * (1 + change)) for change in (-GIVEN_STEP_ERROR, GIVEN_STEP_ERROR)
    )
    if most - least < MAX_PACE_SPREAD * most:
        return PaceRange(least, (least + most) / 2, most)
    # The GPU bounds the step: what the host would need is not in the record.
    lower, upper = max(least, min(low, most)), min(most, max(high, least))
    middle = min(max(usual, lower), upper)
    return PaceRange(lower, middle, upper, determined=False)


def _pace(step: Callable[[int], float], goal: float) -> float:
    """Largest of the paces with which a step is no longer than `goal`, interpolated.

    step  by the place of its pace; a slower host shortens none
    """
    over = bisect_right(range(len(HOST_PACES)), goal, key=step)
    if over in (0, len(HOST_PACES)):
        return HOST_PACES[min(over, len(HOST_PACES) - 1)]
    part = (goal - step(over - 1)) / (step(over) - step(over - 1))
    return HOST_PACES[over - 1] + part * (HOST_PACES[over] - HOST_PACES[over - 1])
