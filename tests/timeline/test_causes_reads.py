"""Values that one rank's host reads and the others do not: of synthetic jobs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from trace_builder import COMPUTE, US, Job, with_waits

from collscope.model.trace import Kind
from collscope.timeline.analyse import analyse
from collscope.timeline.step_causes.collectives import Facts
from collscope.timeline.step_causes.diagnose import diagnose
from collscope.timeline.step_causes.records import Cause

STEPS, LAYERS = 4, 6
NAMES = (
    "at::native::copy", "ncclDevKernel", "Memcpy DtoH (Device -> Pinned)", "mean", "more",
    *map("f{}".format, range(12)),
)  # fmt: skip


def _cause(*, mean_us: int = 2, apart: int = 0) -> Cause:
    """Layers of twelve kernels of 2 us, whose launches take 20 us, then 30 of 250 us.

    Rank 0 reads a value of each layer.

    mean_us  what the kernel that makes it lasts
    apart    kernels that rank 0 has more of in each layer, and reads nothing of
    """
    job = Job(2, host_work=20 * US)
    waits: list[list[tuple[int, int]]] = [[], []]
    for _ in range(STEPS):
        for rank in range(2):
            for _ in range(LAYERS):
                for _ in range(apart * (rank == 0)):
                    job.compute(rank, 2 * US)
                    job.rows[rank][-1].name = 4
                for place in range(12):
                    job.compute(rank, 2 * US)
                    job.rows[rank][-1].name = 5 + place
                for name, us in [(3, mean_us), (2, 2)] * (rank == 0):
                    job.compute(rank, us * US)
                    job.rows[rank][-1].name = name
                    if name == 2:
                        copy = job.rows[rank][-1]
                        copy.kind = Kind.COPY
                        waits[rank].append((copy.launch + 5 * US, copy.end + 4 * US))
                        job.host[rank] = copy.end + 4 * US
                job.compute(rank, 2 * US)  # between two layers' extra kernels
                job.rows[rank][-1].name = 5
            for _ in range(30):
                job.compute(rank, 250 * US)
        job.collective((0, 1), 100 * US, comm=COMPUTE)
    traces = [replace(trace, names=NAMES) for trace in with_waits(job, waits)]
    (cause,) = diagnose(analyse(traces), Facts(), steps=STEPS)[0].causes
    assert cause.ranks == (0,)
    return cause


def test_values_that_one_rank_reads_make_its_host_wait() -> None:
    cause = _cause()
    assert (cause.cause, cause.certain) == ("blocking_sync", True)
    assert (cause.evidence.kind, cause.evidence.name) == ("blocking_calls", "STREAM_SYNC")
    assert cause.evidence.count == pytest.approx(LAYERS, abs=0.5)
    # 6 * 14 launches behind the first read take 20 us, or 0.4 of it; kernels and gaps, 4 us
    assert cause.cost.low <= 6 * 14 * (0.4 * 0.02 - 0.004)
    assert cause.cost.high >= 6 * 14 * (0.95 * 0.02 - 0.004)


def test_kernels_that_cost_by_themselves_are_extra_work_though_their_values_are_read() -> None:
    cause = _cause(mean_us=100)
    assert (cause.cause, cause.evidence.kind) == ("extra_work", "extra_kernels")


def test_kernels_that_stand_before_no_read_are_extra_work() -> None:
    cause = _cause(apart=2)
    assert (cause.cause, cause.evidence.kind) == ("extra_work", "extra_kernels")
