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
