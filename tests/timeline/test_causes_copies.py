"""Copies between GPU and pageable memory: of synthetic jobs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from trace_builder import US, Job

from collscope.model.trace import Kind
from collscope.timeline.analyse import analyse
from collscope.timeline.step_causes.collectives import Facts
from collscope.timeline.step_causes.diagnose import diagnose
from collscope.timeline.step_causes.records import Cause

STEPS, LAYERS = 4, 20
MS = 1_000 * US
TO_HOST, TO_GPU = "Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pageable -> Device)"


def _causes(copy: str, *, each: int = MS // 2, extra: int = 0) -> tuple[Cause, ...]:
    """Steps of equal layers; rank 1 copies twice in each.

    each   what a copy lasts
    extra  kernels of 0.2 ms that it has more
    """
    job = Job(2, host_work=20 * US)
    for _ in range(STEPS):
        for rank in range(2):
            for layer in range(LAYERS):
                job.compute(rank, (150 + 5 * (layer % 4)) * US)
                if rank and layer in (5, 10):
                    job.compute(rank, each)
                    job.rows[rank][-1].kind, job.rows[rank][-1].name = Kind.COPY, 2
            for _ in range(extra if rank else 0):
                job.compute(rank, 200 * US)
                job.rows[rank][-1].name = 3
        job.collective((0, 1), 100 * US)
    names = ("gemm", "ncclDevKernel", copy, "more")
    traces = [replace(trace, names=names) for trace in job.traces()]
    found, _ = diagnose(analyse(traces), Facts(), steps=STEPS)
    return found.causes


def test_a_copy_to_the_gpu_costs_what_it_lasts() -> None:
    (cause,) = _causes(TO_GPU)
    assert (cause.cause, cause.ranks, cause.certain) == ("slow_transfer", (1,), True)
    assert 0.5 <= cause.cost.low <= 1.0 <= cause.cost.high


def test_a_copy_to_memory_that_is_written_to_before_is_shorter() -> None:
    """Of the 1 ms a step the first touch of the memory may be four fifths."""
    (cause,) = _causes(TO_HOST)
    assert (cause.cause, cause.ranks, cause.certain) == ("slow_transfer", (1,), True)
    assert cause.cost.low <= 0.2
    assert cause.cost.high >= 1.0


def test_a_copy_that_may_be_shorter_is_likely_where_little_would_be_left_of_it() -> None:
    """0.3 ms of 3.6 ms a step; a fifth of that is less than two starts differ by."""
    (cause,) = _causes(TO_HOST, each=150 * US)
    assert (cause.cause, cause.ranks, cause.certain) == ("slow_transfer", (1,), False)
    assert _causes(TO_GPU, each=150 * US)[0].certain


def test_kernels_are_extra_work_and_such_copies_are_not() -> None:
    found = {c.cause: c.evidence.ms for c in _causes(TO_GPU, extra=8)}
    assert found.keys() == {"extra_work", "slow_transfer"}
    assert found["extra_work"] == pytest.approx(1.6, rel=0.1)
