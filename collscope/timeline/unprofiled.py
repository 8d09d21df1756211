"""Steps without the profiler and in another start: of one run, and the ratio of two runs' (pure).

The profiler slows the hosts by a factor that no record shows, and hosts differ from start to start.
So the recorded steps are played with other paces of the hosts: what the GPUs need stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import exp, hypot, log, sqrt
from statistics import NormalDist, harmonic_mean

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.stats import unpaired_effect, with_noise
from collscope.timeline.assumptions import host_prior
from collscope.timeline.overlap import covered, union
from collscope.timeline.play import Substitutions, play
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.tolerances import (
    HOST_STARTS,
    MAX_IDLE,
    MAX_STEPS_ADVISED,
    STARTS,
    SURE,
    USUAL,
)

_NORMAL = {c: NormalDist().inv_cdf(0.5 + c / 2) for c in (USUAL, SURE)}
# Paces of a start's hosts: as recorded, fast and slow ones of a usual range and of a sure one. Nine
# of ten pairs of starts lie within `HOST_STARTS` (docs/validation.md, "Cost of the profiler").
_AS_RECORDED = 1.0
_RARER = {USUAL: 1.0, SURE: _NORMAL[SURE] / NormalDist().inv_cdf(0.95)}
_FAST = {c: (1 - HOST_STARTS) ** rarer for c, rarer in _RARER.items()}
_SLOW = {c: (1 + HOST_STARTS) ** rarer for c, rarer in _RARER.items()}
PACES = (_AS_RECORDED, *_FAST.values(), *_SLOW.values())
_LEAST, _MIDDLE, _MOST = _COSTS = range(3)
_BETWEEN = hypot(STARTS, STARTS) / _NORMAL[USUAL]  # standard deviation of two starts
DOUBTS = (
    "profiler",  # what it costs the hosts
    "hosts",  # their pace differs from start to start
    "starts",  # two starts of one setting differ
    "steps",  # of one recording differ
)
"""What makes the range of a ratio wide."""


class UnprofiledSteps(msgspec.Struct, frozen=True):
    """Steps of one run, as recorded and as they may be without the profiler; ns."""

    profiler: str  # what was recorded, and how: a key of `HOST_PRIOR`
    recorded: tuple[float, ...]  # of the rank whose steps take longest together
    # With the hosts' work as in `host_prior` (least, usual, most), then with `PACES` of the start.
    played: tuple[tuple[float, ...], ...]

    def at(self, cost: int, pace: float = _AS_RECORDED) -> float:
        """The step with one of the profiler's costs and one of the paces; ns."""
        return self.played[cost][PACES.index(pace)]

    @property
    def middle(self) -> float:
        """The step with the usual cost of the profiler."""
        return self.at(_MIDDLE)

    @property
    def ends(self) -> tuple[float, float]:
        """Least and most that the step may take without the profiler, in any start."""
        least, most = self.at(_LEAST, _FAST[USUAL]), self.at(_MOST, _SLOW[USUAL])
        return least * (1 - STARTS), most * (1 + STARTS)


class StepRatio(msgspec.Struct, frozen=True):
    """Step of one run / that of another, both without the profiler."""

    middle: float
    low: float  # its range
    high: float
    # By how much the logarithm may be less (negative) and more, thing by thing of `DOUBTS`; they
    # are independent of each other, and add in squares.
    doubts: dict[str, tuple[float, float]]


def unprofiled_steps(recorded: RecordedJob) -> UnprofiledSteps | None:
    """Play a run with what its hosts may take without the profiler; None without steps."""
    if not recorded.step_ns or recorded.steps.source == "window":
        return None
    ends = recorded.steps.ends(recorded.rows.end)
    times = np.diff(ends[:, (ends[-1] - ends[0]).argmax()])
    if times.min() <= 0:
        return None
    slowdown = recorded.contention.slowdown
    alone = recorded.contention.alone(recorded.graph.duration, slowdown)

    idle = _idle_without_cause(recorded)

    def step(pace: float) -> float:
        new = Substitutions(None, pace, alone, slowdown)
        return recorded.step(play(recorded.graph, new)) + idle * (pace - 1)

    return UnprofiledSteps(
        recorded.profiler,
        tuple(times.tolist()),
        tuple(tuple(step(cost * pace) for pace in PACES) for cost in host_prior(recorded)),
    )


def _idle_without_cause(recorded: RecordedJob) -> float:
    """Time of a step in which a GPU is idle for no cause that its trace shows, ns; of the worst.

    As far as is known it is the host's: of traces without launches all of it. What good traces do
    not explain, up to `MAX_IDLE` of a step, is left out.
    """
    rows, steps = recorded.rows, recorded.steps
    begin, finish = steps.span(rows.end, len(rows.ranks))
    most = 0.0
    for trace in steps.traces.tolist():
        trace_rows = rows.of(trace)
        start, end = (v[trace_rows].astype(np.float64) for v in (rows.start, rows.end))
        ends = np.array([begin[trace], finish[trace]], dtype=np.float64)
        before, after = covered(*union(start, end), ends).tolist()
        idle = float(finish[trace] - begin[trace]) - (after - before)
        most = max(most, min(idle, float(recorded.graph.idle_ns[trace])))
    return max(0.0, most / int(steps.count[0]) - MAX_IDLE * (recorded.step_ns or 0.0))


def step_ratio(
    first: UnprofiledSteps, second: UnprofiledSteps, confidence: float = USUAL
) -> StepRatio | None:
    """Step of the second run / that of the first; None where a run has a single step.

    The same profiler costs two runs of a job alike; that of other activities does not.

    confidence  `USUAL` or `SURE`
    """
    together = with_noise(unpaired_effect(first.recorded, second.recorded), _BETWEEN**2).half_width(
        confidence
    )
    if together is None:
        return None
    starts = _NORMAL[confidence] * _BETWEEN
    steps = sqrt(max(0.0, together**2 - starts**2))
    middle = log(second.middle / first.middle)
    alike = first.profiler == second.profiler
    costs = list(zip(_COSTS, _COSTS, strict=True)) if alike else list(product(_COSTS, _COSTS))
    profiler = [log(second.at(b) / first.at(a)) - middle for a, b in costs]
    hosts = [
        change for pair in costs for change in _of_other_hosts(first, second, pair, confidence)
    ]
    doubts = {
        "profiler": (min(profiler), max(profiler)),
        "hosts": (min(0.0, *hosts), max(0.0, *hosts)),
        "starts": (-starts, starts),
        "steps": (-steps, steps),
    }
    down, up = (hypot(*(ends[side] for ends in doubts.values())) for side in (0, 1))
    return StepRatio(exp(middle), exp(middle - down), exp(middle + up), doubts)


def steps_enough(
    first: UnprofiledSteps, second: UnprofiledSteps, within: float, confidence: float = USUAL
) -> int | None:
    """Least number of steps of each run that gives the ratio's logarithm to `within`; None: none.

    within  what other starts and the noise of the steps may make together
    """
    noise = unpaired_effect(first.recorded, second.recorded)
    if noise.error is None:
        return None
    one = noise.error * sqrt(harmonic_mean([len(first.recorded), len(second.recorded)]))
    for steps in range(max(len(first.recorded), len(second.recorded)) + 1, MAX_STEPS_ADVISED + 1):
        so_many = replace(noise, error=one / sqrt(steps), freedom=2 * (steps - 1))
        half = with_noise(so_many, _BETWEEN**2).half_width(confidence)
        if half is not None and half <= within:
            return steps
    return None


def _of_other_hosts(
    first: UnprofiledSteps, second: UnprofiledSteps, costs: tuple[int, int], confidence: float
) -> Iterator[float]:
    """Changes of the ratio's logarithm where either start had faster or slower hosts."""
    a, b = costs
    for pace in (_FAST[confidence], _SLOW[confidence]):
        yield log(second.at(b, pace) / second.at(b))
        yield log(first.at(a) / first.at(a, pace))
