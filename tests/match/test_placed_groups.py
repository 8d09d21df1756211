"""CUDA-only traces of tensor × data parallelism beside logs: which calls of the step they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import collscope, rows

TENSOR, DATA = ((0, 1), (2, 3)), ((0, 2), (1, 3))
# One step of every rank: groups in the order of the launches, elements of bfloat16.
STEP = (("T", 1 << 19), ("T", 1 << 19), ("D", 1 << 21), ("T", 1 << 19), ("D", 1 << 22),
        ("T", 1 << 19), ("T", 1 << 19))  # fmt: skip
STEPS, TRACED = 8, 3
COUNTS = {"T": {1 << 19}, "D": {1 << 21, 1 << 22}}
KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _group(kind: str, rank: int) -> tuple[int, ...]:
    return next(g for g in (TENSOR if kind == "T" else DATA) if rank in g)


def _log(rank: int) -> str:
    head = f"node:{100 + rank}:{100 + rank} [{rank}] NCCL INFO "
    text = ""
    for kind in "WTD":
        ranks = (0, 1, 2, 3) if kind == "W" else _group(kind, rank)
        comm = 0x1000 + ord(kind)
        number = 16 * ord(kind) + ranks[0]
        text += (
            f"{head}ncclCommInitRank comm {comm:#x} rank {ranks.index(rank)} nranks {len(ranks)}"
            f" cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId {number:#x}"
            " - Init COMPLETE\n"
        )
    number = dict.fromkeys("TD", 0)
    for _ in range(STEPS):
        for kind, count in STEP:
            text += (
                f"{head}AllReduce: opCount {number[kind]:x} sendbuff 0x7f00 recvbuff 0x7f00 count"
                f" {count} datatype 9 op 0 root 0 comm {0x1000 + ord(kind):#x} [nranks=2] stream"
                " 0x1\n"
            )
            number[kind] += 1
    return text


def _trace(rank: int, skipped: int) -> str:
    """The last steps but one, less the first calls: a profiler begins anywhere."""
    events = []
    number, at, calls = 0, 1e9, TRACED * STEP
    for place, (kind, count) in enumerate(calls):
        at += 300
        if place < skipped:
            continue
        number += 1
        lasts = count / (1 << 19) * 20
        # Of two groups that do the same, one is late by what differs from call to call.
        late = 0 if 0 in _group(kind, rank) else 40 + 17 * (7 * place % 5)
        start = at + 20 + late + rank * 0.5
        common = {"ph": "X", "pid": rank, "tid": 1}
        events.append(
            {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 4,
             "args": {"correlation": number}}
        )  # fmt: skip
        events.append(
            {**common, "cat": "kernel", "name": KERNEL, "ts": start, "dur": lasts - rank * 0.5,
             "args": {"correlation": number, "device": rank, "stream": 20 + (kind == "D")}}
        )  # fmt: skip
    info = {"backend": "nccl", "rank": rank, "world_size": 4}
    return json.dumps({"distributedInfo": info, "traceEvents": events})


@pytest.mark.parametrize("skipped", [0, 1, 3])
def test_what_stands_between_the_calls_of_a_group_places_it(
    tmp_path: Path, db_path: Path, skipped: int
) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(_log(rank))
        (tmp_path / f"rank{rank}.json").write_text(_trace(rank, skipped))
    logs = sorted(tmp_path.glob("*.log"))
    assert collscope("ingest", "log", *logs, "--db", db_path).code == 0
    assert collscope("ingest", "trace", *sorted(tmp_path.glob("*.json")), "--db", db_path).code == 0
    assert rows(db_path, "SELECT count(*) FROM calls WHERE count IS NULL") == [(0,)]
    # Kernel time by size: 20 us for 1 MiB, in proportion; each group has as many of each as traced.
    query = (
        "SELECT c.count, COUNT(*), MIN(k.duration_ns), MAX(k.duration_ns) FROM kernels k"
        " JOIN calls c USING (call_id) GROUP BY 1"
    )
    expected = [count for _, count in (TRACED * STEP)[skipped:]]
    for count, kernels, least, most in rows(db_path, query):
        assert kernels == 4 * expected.count(count)
        assert most <= count / (1 << 19) * 20_000
        assert least >= count / (1 << 19) * 20_000 - 2_000
