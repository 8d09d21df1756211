"""Steps without the profiler: their ratio by hand, and how often its range errs."""

from __future__ import annotations

import random
from math import exp, hypot, log, sqrt

import pytest
from trace_builder import US, Job

from collscope.stats import t_quantile
from collscope.timeline.analyse import analyse
from collscope.timeline.tolerances import HOST_STARTS, STARTS, SURE
from collscope.timeline.unprofiled import (
    PACES,
    UnprofiledSteps,
    step_ratio,
    steps_enough,
    unprofiled_steps,
)

PRIOR = (0.6, 0.77, 1.0)


def run(
    steps: tuple[float, ...], *, host: float, gpu: float, profiler: str = "light"
) -> UnprofiledSteps:
    """Steps that take what the host or the GPU needs, whichever is more, with the profiler."""
    played = tuple(tuple(max(gpu, host * cost * pace) for pace in PACES) for cost in PRIOR)
    return UnprofiledSteps(profiler, steps, played)


def test_where_the_gpu_bounds_both_only_starts_and_steps_differ() -> None:
    """3 % each start to start; what the steps' spread makes is Student's, with its freedom."""
    a, b = run((100.0,) * 3, host=10, gpu=100), run((110.0,) * 3, host=10, gpu=110)
    found = step_ratio(a, b)
    assert found is not None
    assert (found.middle, found.low, found.high) == pytest.approx(
        (
            1.1,
            1.1 * exp(-hypot(STARTS, STARTS)),
            1.1 * exp(hypot(STARTS, STARTS)),
        )
    )
    assert found.doubts["profiler"] == found.doubts["hosts"] == (0, 0)


def test_many_steps_add_the_noise_of_a_median() -> None:
    """Steps of 1 % either way: an error of 1.2533 x the spread / sqrt(n), for each of the runs."""
    steps = tuple(100 * exp(0.1 * (-1) ** k) for k in range(400))
    same = run(steps, host=10, gpu=100)
    found = step_ratio(same, same)
    assert found is not None
    error = sqrt(2) * 1.2533 * 1.4826 * 0.1 / sqrt(400)
    half = hypot(1.96 * error, hypot(STARTS, STARTS))
    assert found.high == pytest.approx(exp(half), rel=0.003)


def test_the_same_profiler_costs_both_hosts_alike_and_another_one_does_not() -> None:
    light = run((100.0, 100.0), host=100, gpu=1)
    alike = step_ratio(light, light)
    unlike = step_ratio(run((100.0, 100.0), host=100, gpu=1, profiler="full"), light)
    assert alike is not None
    assert unlike is not None
    assert alike.doubts["profiler"] == pytest.approx((0, 0))
    assert unlike.doubts["profiler"] == pytest.approx((log(0.6), log(1 / 0.6)))
    assert alike.doubts["hosts"] == pytest.approx((log(1 - HOST_STARTS), -log(1 - HOST_STARTS)))


def test_idle_time_without_launches_may_be_the_hosts() -> None:
    """Steps of 1200 us, of which a GPU needs 304: without launches no cause of the rest is told.

    But for 10 % of the step it may take 0.4 x 0.7 to 0.95 x 1.3 of its time: 1200 - 0.72 x 776 =
    641 to 1200 + 0.235 x 776 = 1382 us; and 3 % from start to start.
    """
    job = Job(2, jitter_ns=0, host_work=300 * US)
    for _ in range(6):
        for count in (1 << 20, 1 << 22):
            for rank in range(2):
                job.compute(rank, 100 * US)
            job.collective((0, 1), 50 * US, count=count)
    for row in (row for rows in job.rows.values() for row in rows):
        row.launch = -(1 << 41)
    found = unprofiled_steps(analyse(job.traces()).recorded())
    assert found is not None
    assert found.ends == pytest.approx((0.97 * 641 * US, 1.03 * 1382 * US), rel=0.01)


def test_a_single_step_tells_no_range() -> None:
    assert step_ratio(run((100.0,), host=10, gpu=100), run((99.0, 100.0), host=1, gpu=99)) is None


def test_so_many_steps_are_enough_and_one_less_is_not() -> None:
    steps = tuple(100 * exp(0.05 * (-1) ** k) for k in range(4))
    a, b = (run(steps, host=10, gpu=100) for _ in range(2))
    enough = steps_enough(a, b, 0.08)
    assert enough is not None
    spread = 0.05 * sqrt(4 / 3)

    def half(n: int) -> float:
        """The two variances add; freedom as Satterthwaite has it."""
        own, between = (
            2 * (1.2533 * spread) ** 2 / n,
            (hypot(STARTS, STARTS) / 1.96) ** 2,
        )
        freedom = (own + between) ** 2 / (own**2 / (2 * (n - 1)))
        return t_quantile(0.975, freedom) * sqrt(own + between)

    assert half(enough) <= 0.08 < half(enough - 1)
    assert steps_enough(a, b, 0.04) is None  # two starts differ by more


@pytest.mark.parametrize(("host", "gpu"), [(30, 100), (100, 85), (100, 1)])
@pytest.mark.parametrize("steps", [2, 3, 10])
def test_equal_runs_are_hardly_ever_surely_slower(host: int, gpu: int, steps: int) -> None:
    """Starts as measured: of pairs nine of ten hosts differ by less than 1.32 x, GPUs by 2 %."""
    rng = random.Random(host + gpu + steps)

    def start() -> UnprofiledSteps:
        pace, clock = exp(rng.gauss(0, 0.12)), exp(rng.gauss(0, 0.01))
        noise = [exp(rng.gauss(0, 0.04)) for _ in range(steps)]
        own = run((), host=host * pace, gpu=gpu * clock)
        mean = sum(noise) / steps
        return UnprofiledSteps(
            "light",
            tuple(max(gpu * clock, host * pace) * n for n in noise),
            tuple(tuple(ns * mean for ns in of_cost) for of_cost in own.played),
        )

    slower = sum(
        found is not None and found.low > 1.02
        for found in (step_ratio(start(), start(), SURE) for _ in range(300))
    )
    assert slower <= 1
