"""What a record does not show, and what is assumed instead, each with its source (pure)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from collscope.timeline.tolerances import CLOCK_EXPONENT, HOST_PRIOR, MAX_CLOCK_RATIO

if TYPE_CHECKING:
    from collscope.timeline.recorded_job import RecordedJob


def host_prior(recorded: RecordedJob) -> tuple[float, float, float]:
    """Least, usual and most of the host's work without the profiler, in parts of the recorded."""
    profiler = recorded.profiler
    low, high = HOST_PRIOR[profiler]
    usual = math.sqrt(math.prod(HOST_PRIOR["light" if profiler == "other" else profiler]))
    return low, usual, high


def clock_change(ratio: float) -> float:
    """Clock of a GPU at its power cap where its collectives make the step `ratio` as long."""
    return min(max(math.pow(ratio, CLOCK_EXPONENT), 1 / MAX_CLOCK_RATIO), MAX_CLOCK_RATIO)


def least_clock(computes: float) -> float:
    """Clock of a GPU that is at its power cap or not, to its highest clock, at least.

    What a GPU at the cap draws at one clock grows with the time for which it computes. We assume
    that it is at MAX_CLOCK_RATIO if it always computes, so it is not at the cap below
    1 / MAX_CLOCK_RATIO ** (1 / CLOCK_EXPONENT) of the time. The measured job computes for 0.86 of
    it, but nearly all of that are matrix products, which draw more than the kernels of a model.

    computes  part of the time
    """
    return min(1.0, math.pow(max(computes, 1e-9), -CLOCK_EXPONENT) / MAX_CLOCK_RATIO)
