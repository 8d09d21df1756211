"""Collectives of Python objects, as `torch.distributed.all_gather_object`: of synthetic jobs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from trace_builder import COMPUTE, US, Job, with_waits

from collscope.model import Op
from collscope.model.trace import Kind
from collscope.reports.rendering.cause_words import advice, evidence
from collscope.timeline.analyse import analyse
from collscope.timeline.step_causes.collectives import Facts
from collscope.timeline.step_causes.diagnose import diagnose
from collscope.timeline.step_causes.records import Diagnosis

STEPS, MS = 4, 1_000 * US
NAMES = (
    "gemm", "ncclDevKernel", "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoD (Device -> Device)",
    "Memcpy DtoH (Device -> Pinned)", "at::native::FillFunctor<long>",
)  # fmt: skip
TO_GPU, INSIDE, TO_HOST, OF_SIZES = 2, 3, 4, 5


class _Objects:
    """Steps of kernels and collectives on two ranks, whose hosts wait for what they copy."""

    def __init__(self) -> None:
        self.job = Job(2, host_work=20 * US)
        self.waits: list[list[tuple[int, int]]] = [[], []]

    def row(self, rank: int, name: int, *, waited: bool = True) -> None:
        self.job.compute(rank, 2 * US)
        row = self.job.rows[rank][-1]
        row.kind, row.name = Kind.KERNEL if name == OF_SIZES else Kind.COPY, name
        if waited and name in (TO_GPU, TO_HOST):
            self.waits[rank].append((row.launch + 5 * US, row.end + 4 * US))
            self.job.host[rank] = row.end + 4 * US

    def call(self, op: Op, transfer: int = 5 * US) -> None:
        self.job.collective((0, 1), transfer, op=op, count=None, comm=COMPUTE)  # type: ignore[arg-type]

    def gathered(self, *, sent: int = 2, new: bool = False, read: bool = True) -> None:
        """All ranks send an object to all; the rest is what such a collective never lacks.

        sent  copies to the GPU
        new   one more between the calls
        read  what came is read
        """
        for rank in range(2):
            for name in (TO_GPU,) * sent + (OF_SIZES,):
                self.row(rank, name)
        self.call(Op.ALL_GATHER)
        for rank in range(2):
            for name in (INSIDE, INSIDE, OF_SIZES, TO_HOST, TO_HOST) + (TO_GPU,) * new:
                self.row(rank, name)
        self.call(Op.ALL_GATHER)
        for rank in range(2):
            for name in (INSIDE, INSIDE) + (TO_HOST,) * 4 * read:
                self.row(rank, name)

    def broadcast(self) -> None:
        """Rank 0 sends an object to the other."""
        for name in (TO_GPU, TO_GPU):
            self.row(0, name)
        self.call(Op.BROADCAST)
        for name in (OF_SIZES, TO_HOST):
            self.row(1, name)
        self.call(Op.BROADCAST)
        for name in (TO_HOST, TO_HOST, OF_SIZES, TO_HOST):
            self.row(1, name)

    def work(self) -> None:
        for rank in range(2):
            for _ in range(20):
                self.job.compute(rank, 100 * US)

    def found(self) -> Diagnosis:
        traces = [replace(t, names=NAMES) for t in with_waits(self.job, self.waits)]
        return diagnose(analyse(traces), Facts(), steps=STEPS)[0]


def _steps(number: int, *, kind: str = "gathered", apart: bool = False, **more: int) -> Diagnosis:
    """So many collectives of objects a step, one after the other, or with work between them."""
    made = _Objects()
    for _ in range(STEPS):
        made.work()
        for _ in range(number):
            getattr(made, kind)(**more)
            if apart:
                made.work()
        made.work()
        made.call(Op.ALL_REDUCE, 100 * US)
    return made.found()


@pytest.mark.parametrize("kind", ["gathered", "broadcast"])
@pytest.mark.parametrize("apart", [False, True])
def test_collectives_of_objects_cost_what_hosts_spend_on_them(kind: str, apart: bool) -> None:
    found, plain = _steps(4, kind=kind, apart=apart), _steps(0)
    assert found.step_ns is not None
    assert plain.step_ns is not None
    (cause,) = found.causes
    assert (cause.cause, cause.ranks) == ("blocking_sync", ())
    assert cause.evidence.kind == "objects"
    assert cause.evidence.count == pytest.approx(4, abs=0.3)
    assert "4 collectives" in evidence(cause)
    assert "in one call" in advice(cause)
    work = 4 * 20 * 0.102 if apart else 0.0
    known = (found.step_ns - plain.step_ns) / 1e6 - work
    # Hosts take 0.6 to 1.0 of the recorded time; they do nothing else meanwhile.
    assert cause.cost.low <= 0.6 * known
    assert cause.cost.high >= 0.95 * known
    assert cause.evidence.ms == pytest.approx(known, rel=0.2)


def test_one_collective_of_objects_a_step_is_usual() -> None:
    kinds = [c.evidence.kind for c in _steps(1).causes]
    assert "objects" not in kinds


@pytest.mark.parametrize(
    "more",
    [
        {"sent": 0},  # sizes that the GPU counts, as of what experts get
        {"sent": 1},  # one value
        {"new": 1},  # two values that are gathered one by one
        {"read": 0},  # tensors of different sizes: they stay on the GPU
    ],
)
def test_sizes_that_hosts_read_are_no_objects_by_themselves(more: dict[str, Any]) -> None:
    assert "objects" not in [c.evidence.kind for c in _steps(4, **more).causes]
