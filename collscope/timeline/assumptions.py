"""What a record does not tell, and what is assumed instead, each with its source (pure)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collscope.timeline.recorded_job import RecordedJob

HOST_PRIOR = {"light": (0.6, 1.0), "full": (0.4, 0.95), "other": (0.4, 1.0)}
"""Time of the host's work without the profiler, in parts of that with it.

source  a loop of small launches on 4 x H200, torch 2.11 (`benchmarks/gpu/jobs.py`, `calibrate`), in
        twelve starts: 0.89 to 1.31 x as long with CUDA activities, 1.07 to 1.52 x with CPU
        activities too; a step of 3.16 s took 6.17 with the latter (kineto's issues). The least cost
        measured is the upper end, but no profiler makes a host faster; the lower one lies below
        the most: ranks that share a host's cores bear more.
        What other profilers cost was not measured: both ranges together. They record calls and
        kernels, as PyTorch's does without CPU activities, so that the middle is the one of that.
"""
# The ratio of a host's paces in two starts of one job. source: docs/validation.md, "Cost of
# the profiler": steps of host-bound jobs in pairs of starts of one setting.
HOST_STARTS = 0.3
STARTS = 0.03  # two starts of one setting differ by so much; stated, not measured per job
SLOWDOWN_PRIOR = 0.4
"""Most that collectives slow down a job's compute beside them, where the record does not tell it.

source  arXiv 2507.03114, training on A100, H100, MI250, MI210: 19 % on average, 40 % at most
"""
# At its power cap a GPU's clock follows what power the change spares. source: docs/validation.md,
# 2 x H200: steps 1.26 x as long with two channels, clock from 1667 to 1950 MHz of 1980 at most.
_CLOCK_EXPONENT, _MOST_CLOCK = 0.67, 1.19
REST = 0.1  # of the recorded step: what a given one is longer by is more than another start
IDLE = 0.1  # of the step; more of it without a known cause widens the range
GIVEN = 0.02  # a step time that is given is true to so much


def host_prior(recorded: RecordedJob) -> tuple[float, float, float]:
    """Least, usual and most of the host's work without the profiler, in parts of the recorded."""
    profiler = recorded.profiler
    low, high = HOST_PRIOR[profiler]
    usual = math.sqrt(math.prod(HOST_PRIOR["light" if profiler == "other" else profiler]))
    return low, usual, high


def clock_change(ratio: float) -> float:
    """Clock of a GPU at its power cap where its collectives make the step `ratio` as long."""
    return min(max(math.pow(ratio, _CLOCK_EXPONENT), 1 / _MOST_CLOCK), _MOST_CLOCK)
