"""Kernels of one rank that last longer: by more data, or by a slow GPU. Of synthetic jobs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from trace_builder import US, Job

from collscope.model import Op
from collscope.reports.rendering.cause_words import advice
from collscope.timeline.analyse import analyse
from collscope.timeline.step_causes.collectives import Facts
from collscope.timeline.step_causes.diagnose import diagnose
from collscope.timeline.step_causes.records import Cause

STEPS, LAYERS = 3, 12
GEMM, COPY, GATHER, ATTENTION = 0, 2, 3, 4
NAMES = ("nvjet_sm90", "ncclDevKernel", "at::native::copy", "at::native::gather", "flash_fwd")


def _cause(
    longer: dict[int, float], *, first_copy: float = 1.0, short: int = 1, exchange: bool = False
) -> Cause:
    """Layers of a product, two copies, a gather, and attention; rank 1 needs more time for some.

    longer      factor of each kernel; of the copies it is the second in a layer
    first_copy  factor of the first one
    short       all kernels last so many times less
    """
    job = Job(2, host_work=US)
    for _ in range(STEPS):
        for rank in range(2):
            for layer in range(LAYERS):
                first, second = (first_copy, longer.get(COPY, 1.0)) if rank else (1.0, 1.0)
                kernels = [
                    (GEMM, 170, longer.get(GEMM, 1.0) if rank else 1.0),
                    (COPY, 120, first),
                    (COPY, 160, second),
                    (GATHER, 200, longer.get(GATHER, 1.0) if rank else 1.0),
                    (ATTENTION, 500, longer.get(ATTENTION, 1.0) if rank else 1.0),
                ]
                for name, us, factor in kernels:
                    job.compute(rank, round((us + layer % 3) * US * factor) // short)
                    job.rows[rank][-1].name = name
        for op in (Op.ALL_TO_ALL, Op.ALL_REDUCE) if exchange else (Op.ALL_REDUCE,):
            job.collective((0, 1), 100 * US, op=op)
    traces = [replace(trace, names=NAMES) for trace in job.traces()]
    found, _ = diagnose(analyse(traces), Facts(), steps=STEPS)
    (cause,) = found.causes
    assert cause.ranks == (1,)
    return cause


def test_a_kernel_that_is_longer_at_some_places_has_more_data_there() -> None:
    # Copies of 160 us and gathers of 200 us take 1.4 times as long: 12 * 144 us.
    cause = _cause({COPY: 1.4, GATHER: 1.4})
    assert (cause.cause, cause.certain) == ("uneven_work", True)
    assert cause.cost.low <= 12 * 0.144 <= cause.cost.high


def test_more_data_at_some_places_may_be_shared_where_ranks_exchange_them() -> None:
    cause = _cause({COPY: 1.8, GATHER: 1.8}, exchange=True)
    assert cause.cause == "uneven_work"
    assert cause.cost.low <= 6 * 0.288
    assert cause.cost.high >= 12 * 0.288


@pytest.mark.parametrize("copy", [1.0, 1.15])
def test_products_that_are_longer_have_a_lower_clock(copy: float) -> None:
    """Some copies may be longer, too: most of the time is the products'."""
    cause = _cause({GEMM: 1.6, COPY: copy})
    assert (cause.cause, cause.certain) == ("slow_gpu", True)


@pytest.mark.parametrize("first_copy", [1.0, 1.4])
def test_what_moves_data_and_is_always_longer_may_be_a_slow_gpu(first_copy: float) -> None:
    """Gathers alone, or all that moves data: more data, or slower memory, would do that."""
    longer = {GATHER: 1.4} if first_copy == 1 else {COPY: 1.4, GATHER: 1.4}
    cause = _cause(longer, first_copy=first_copy)
    assert (cause.cause, cause.certain) == ("slow_gpu", False)
    assert advice(cause).endswith("this rank may have more data.")


def test_short_kernels_may_be_longer_since_a_cache_holds_their_data() -> None:
    """Of the same kernel, some data are in a cache, which follows the clock, and some are not."""
    cause = _cause({COPY: 1.4, GATHER: 1.4}, short=10)
    assert (cause.cause, cause.certain) == ("slow_gpu", False)


def test_most_kernels_but_those_that_move_data_may_have_a_lower_clock() -> None:
    """Products and attention last longer: that is more work, or a lower clock."""
    cause = _cause({GEMM: 1.6, ATTENTION: 1.6})
    assert (cause.cause, cause.certain) == ("uneven_work", False)
    assert "clock" in advice(cause)
    cause = _cause({GEMM: 1.6, ATTENTION: 1.6, COPY: 1.6, GATHER: 1.6}, first_copy=1.6)
    assert (cause.cause, cause.certain) == ("uneven_work", True)
    assert "clock" not in advice(cause)
