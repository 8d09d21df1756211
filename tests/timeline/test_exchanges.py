"""Sends and Recvs that name no peer: which kernels exchange, and what a change does then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import collscope
from msgspec.structs import replace
from readers import parse

from collscope.model import Op
from collscope.model.trace import TraceFile
from collscope.timeline.analyse import Timeline, analyse
from collscope.timeline.exchanges import with_exchanges
from collscope.timeline.prediction.predict import predict
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.tolerances import HOST_PRIOR
from collscope.timeline.traced_transfers import transfers_of
from collscope.timeline.transfer_factors import NewTime

US = 1_000
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
Kernel = tuple[str, float, float]  # name, start, end in us


def document(rank: int, kernels: list[Kernel], ranks: int) -> str:
    """CUDA activities alone: all kernels on one stream, launched long before they start."""
    events = []
    for k, (name, start, end) in enumerate(kernels):
        for cat, what, at, lasts in (
            ("cuda_runtime", "cudaLaunchKernel", 2.0 * k, 1.0), ("kernel", name, start, end - start)
        ):  # fmt: skip
            events.append(
                {"ph": "X", "cat": cat, "name": what, "tid": 7, "ts": at, "dur": lasts,
                 "args": {"correlation": k, "stream": 7, "device": 0}}
            )  # fmt: skip
    info = {"rank": rank, "world_size": ranks}
    return json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events})


def trace(rank: int, kernels: list[Kernel], ranks: int) -> TraceFile:
    (found,) = parse([document(rank, kernels, ranks).encode()], "t.json")
    return found


COMPUTE = (100.0, 200.0, 50.0)  # us of each rank


def pipeline_kernels(
    transfer: float, compute: tuple[float, ...] = COMPUTE, steps: int = 8
) -> list[list[Kernel]]:
    """Each rank computes and sends to the next one, which waits for it; the last to the first.

    2 us pass between two kernels of a rank; a receiver leaves 1 us after its sender.
    """
    kernels: list[list[Kernel]] = [[] for _ in compute]
    free = [1000.0] * len(compute)
    for _ in range(steps):
        for rank, lasts in enumerate(compute):
            half, done = free[rank] + lasts / 2, free[rank] + lasts
            kernels[rank] += [("void a", free[rank], half), ("void b", half, done)]
            receiver, sent = (rank + 1) % len(compute), done + 2 + transfer
            kernels[rank].append((SEND_RECV, done + 2, sent))
            kernels[receiver].append((SEND_RECV, free[receiver], sent + 1))
            free[rank], free[receiver] = sent + 2, sent + 3
    return kernels


def pipeline(transfer: float, compute: tuple[float, ...] = COMPUTE) -> list[TraceFile]:
    kernels = pipeline_kernels(transfer, compute)
    return [trace(rank, own, len(kernels)) for rank, own in enumerate(kernels)]


def change(old: Timeline, new: Timeline) -> tuple[RecordedJob, float, float, float, float | None]:
    """The record, and the ratios new, least and most, and the share of exchanges alone."""
    recorded, other = old.recorded(), new.recorded()
    traced = transfers_of(new.rows, other.linked, other.linked_times)
    found = predict(recorded, {}, traced=traced)
    assert found is not None
    ratios = (v / found.step_ns for v in (found.new_ns, found.low_ns, found.high_ns))
    return recorded, *ratios, found.knowledge.exchanges_alone


@pytest.mark.parametrize(("old", "new"), [(40.0, 140.0), (140.0, 40.0), (200.0, 190.0)])
def test_a_pipeline(old: float, new: float) -> None:
    """By hand: a step is 350 us of compute, three transfers, and 5 us with each."""
    recorded, ratio, low, high, alone = change(analyse(pipeline(old)), analyse(pipeline(new)))
    linked = recorded.linked
    assert len(recorded.calls) == 0
    assert linked.seen.tolist() == [2] * 24
    assert {key.op for key in linked.classes} == {Op.SEND_RECV}
    assert recorded.linked_times.known.all()
    assert set((recorded.linked_times.transfer / US).round()) == {old + 1}
    assert alone == 0
    assert recorded.step_ns == pytest.approx((365 + 3 * old) * US)
    assert ratio == pytest.approx((365 + 3 * new) / (365 + 3 * old), rel=0.01)
    assert low <= ratio <= high


def test_two_ranks_exchange_by_the_clock_too() -> None:
    """By hand: 300 us of compute, two transfers, and 5 us with each."""
    old, new = (analyse(pipeline(transfer, COMPUTE[:2])) for transfer in (40.0, 140.0))
    recorded, ratio, _, _, alone = change(old, new)
    assert recorded.linked.seen.tolist() == [2] * 16
    assert recorded.linked_times.known.all()
    assert alone == 0
    assert ratio == pytest.approx((310 + 2 * 140) / (310 + 2 * 40), rel=0.01)


def test_a_host_that_does_not_show_is_not_known() -> None:
    """All kernels are launched long before: no step time tells what the host needs."""
    recorded = analyse(pipeline(40.0)).recorded()
    (key,) = recorded.linked.classes
    for given in (0.9, 1.0, 1.1):
        assert recorded.step_ns is not None
        step = given * recorded.step_ns
        found = predict(recorded, {key: NewTime(20_000.0)}, measured_step_ns=step)
        assert found is not None
        assert not found.knowledge.host_determined
        assert (found.knowledge.host_low, found.knowledge.host_high) == HOST_PRIOR["light"]


def test_the_command_predicts_a_pipeline(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    for transfer in (40.0, 140.0):
        kernels = pipeline_kernels(transfer)
        folder = tmp_path / f"{transfer:.0f}"
        folder.mkdir()
        for rank, own in enumerate(kernels):
            (folder / f"rank{rank}.json").write_text(document(rank, own, len(kernels)))
        done = collscope("ingest", "trace", folder, "--db", db, "--run", folder.name)
        assert done.code == 0, done.err
    done = collscope("predict", "--db", db, "--run", "40", "--with", "140", "--format", "json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["new_ns"] / found["step_ns"] == pytest.approx(785 / 485, rel=0.01)
    assert found["knowledge"]["exchanges_alone"] == 0
    done = collscope("predict", "--db", db, "--run", "40", "--with", "140")
    assert "name no peer" in done.out


def test_peers_without_a_trace() -> None:
    """Rank 1's trace alone: how long it waits for its peers is not known, and the range says so."""
    old, new = (analyse(pipeline(transfer)[1:2]) for transfer in (40.0, 140.0))
    recorded, ratio, low, high, alone = change(old, new)
    assert set(recorded.linked.seen.tolist()) == {1}
    assert not recorded.linked_times.known.any()
    assert alone == 1
    truth = (365 + 3 * 140) / (365 + 3 * 40)
    assert low <= truth <= high
    assert low <= ratio - 0.2 < ratio + 0.2 <= high


def test_a_sender_that_leaves_early_is_alone() -> None:
    """Its bytes fit the buffer: the receiver comes 100 us later, and waits for nobody."""
    ends = 500.0 * np.arange(1, 9)
    apart = [[(SEND_RECV, e + 120.0 * k, e + 120.0 * k + 40.0) for e in ends] for k in range(3)]
    timeline = analyse([trace(rank, own, 3) for rank, own in enumerate(apart)])
    linked, _ = with_exchanges(timeline.rows, timeline.calls, timeline.clocks)
    assert linked.seen.tolist() == [1] * 24


def test_hosts_without_a_common_clock_exchange_nothing() -> None:
    traces = [replace(found, host=f"node{rank}") for rank, found in enumerate(pipeline(40.0))]
    assert set(analyse(traces).recorded().linked.seen.tolist()) == {1}


@pytest.mark.parametrize("seed", range(5))
def test_neighbours_of_a_pipeline_are_found(seed: int) -> None:
    """Four stages, each passing on to the next after a random time: no other ranks exchange."""
    generator = np.random.default_rng(seed)
    kernels: list[list[Kernel]] = [[] for _ in range(4)]
    free = np.zeros(4)
    expected = []
    for _ in range(30):
        arrives = 0.0
        for stage in range(4):
            if stage:
                begin = max(free[stage - 1], free[stage])
                done = max(begin, arrives) + 60.0 + generator.uniform(0, 2)
                kernels[stage - 1].append((SEND_RECV, free[stage - 1], done))
                kernels[stage].append((SEND_RECV, free[stage], done + 1))
                free[stage - 1 : stage + 1] = done + 2
                expected.append((stage - 1, stage))
            arrives = free[stage] + generator.uniform(200, 900)
            kernels[stage].append(("void work", free[stage] + 1, arrives))
            free[stage] = arrives + 1
    timeline = analyse([trace(rank, own, 4) for rank, own in enumerate(kernels)])
    linked, clocks = with_exchanges(timeline.rows, timeline.calls, timeline.clocks)
    assert len(set(clocks.component.tolist())) == 1
    members = [linked.groups[g].members for g in linked.group.tolist()]
    assert sorted(members) == sorted(expected)
