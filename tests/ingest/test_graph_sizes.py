"""Calls that a graph launches have their sizes from the log of the capture, or a reason."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from command import collscope
from inputs import ROOT

REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEP = (REDUCE, GATHER, REDUCE)

Logged = tuple[str, int]
"""Operation and count of a logged call, of bfloat16."""
CAPTURED: list[Logged] = [("AllReduce", 64), ("AllGather", 16), ("AllReduce", 4096)]


def trace(
    folder: Path, rank: int, kernels: Sequence[str], streams: Sequence[int], launches: int
) -> Path:
    """A rank's trace of CUDA activities: launches of a graph with a matrix product before each
    collective."""
    events = []
    for launch in range(launches):
        at, number = 1e6 + 1000.0 * launch, launch + 1
        call = {"cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": at, "dur": 4.0}
        events.append({"ph": "X", "pid": 9, "tid": 9, **call, "args": {"correlation": number}})
        for place, name in enumerate(kernels):
            for part, own in enumerate(("gemm", name)):
                args = {"device": rank, "stream": streams[place % len(streams)],
                        "correlation": number}  # fmt: skip
                events.append({"ph": "X", "cat": "kernel", "name": own, "pid": rank, "tid": 7,
                               "ts": at + 20 + 40 * place + 20 * part, "dur": 15.0,
                               "args": args})  # fmt: skip
    found = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "traceEvents": events,
    }
    path = folder / f"trace.rank{rank}.json"
    path.write_text(json.dumps(found))
    return path


def log(folder: Path, rank: int, calls: Sequence[Logged], *, created: bool = True) -> Path:
    """A rank's log of NCCL 2.28."""
    comm, at = f"0x47{rank}", f"vm:10{rank}:10{rank} [{rank}] NCCL INFO"
    lines = []
    if created:
        what = f"comm {comm} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId 6{rank}0"
        lines = [
            f"{at} ncclCommInitRankConfig {what} commId 0xda94 - Init {word}"
            for word in ("START", "COMPLETE")
        ]
    lines += [
        f"{at} {op}: opCount 0 sendbuff 0x7f00 recvbuff 0x7f00 count {count} datatype 9 op 0 root 0"
        f" comm {comm} [nranks=2] stream 0x33"
        for op, count in calls
    ]
    path = folder / f"nccl.rank{rank}.log"
    path.write_text("\n".join(lines) + "\n")
    return path


def sizes(
    folder: Path,
    calls: Sequence[Logged],
    kernels: Sequence[str] = STEP,
    streams: Sequence[int] = (7,),
    *,
    created: bool = True,
) -> tuple[dict[tuple[str, int | None], int], str]:
    """Calls by operation and bytes, and the diagnostics. Twelve launches."""
    db = folder / "job.db"
    files = [trace(folder, rank, kernels, streams, 12) for rank in (0, 1)]
    files += [log(folder, rank, calls, created=created) for rank in (0, 1)]
    got = collscope("ingest", "auto", *files, "--db", db)
    assert got.code == 0, got.err
    with closing(sqlite3.connect(db)) as store:
        rows = store.execute("SELECT op, size_bytes, SUM(calls) FROM classes GROUP BY 1, 2")
        found = {(op, size): number for op, size, number in rows}
        notes = store.execute("SELECT code || ': ' || message FROM diagnostics").fetchall()
    return found, "\n".join(note for (note,) in notes)


def test_every_launch_has_the_sizes_of_the_series_that_was_logged(tmp_path: Path) -> None:
    # A warm-up without a graph, then the capture. 12 launches of three calls, and the log's own.
    found, notes = sizes(tmp_path, 2 * CAPTURED)
    assert found == {
        ("AllReduce", 128): 12 + 2, ("AllGather", 64): 12 + 2, ("AllReduce", 8192): 12 + 2,
    }  # fmt: skip
    assert "\nsizes_of_log" in notes
    assert "no_sizes_of_log" not in notes


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        # Two graphs are captured, for two batches: either may be the one that runs.
        ([*CAPTURED, ("AllReduce", 32), ("AllGather", 8), ("AllReduce", 2048)], "several series"),
        ([("AllReduce", 64)] * 50, "no series"),
        (CAPTURED[:2], "no series"),
    ],
)  # fmt: skip
def test_other_series_give_no_sizes(tmp_path: Path, calls: list[Logged], why: str) -> None:
    found, notes = sizes(tmp_path, calls)
    assert {(op, size) for op, size in found if size is None} == {
        ("AllReduce", None), ("AllGather", None),
    }  # fmt: skip
    assert "no_sizes_of_log" in notes
    assert why in notes


def test_a_log_that_begins_after_the_communicator_may_lack_the_capture(tmp_path: Path) -> None:
    found, notes = sizes(tmp_path, 2 * CAPTURED, created=False)
    assert ("AllReduce", None) in found
    assert "lack the creation" in notes


def test_kernels_on_several_streams_have_no_order(tmp_path: Path) -> None:
    found, notes = sizes(tmp_path, 2 * CAPTURED, streams=(7, 20))
    assert ("AllReduce", None) in found
    assert "several streams" in notes


RECORDED = ROOT / "tests" / "recordings" / "h100x2-sizes"


@pytest.mark.parametrize(
    ("job", "files", "known"),
    [
        ("nccl-b200", ["capture.*"], True),
        ("nccl-b200", ["light.*", "nccl.*"], True),
        ("nccl-b200", ["light.*"], False),
        ("twoshot-b3", ["capture.*"], True),
        ("twoshot-b3", ["light.*"], False),
    ],
)
def test_kernels_of_recorded_graphs_have_their_sizes(
    tmp_path: Path, job: str, files: list[str], known: bool
) -> None:
    """Jobs on two H100 that wrote down what each of six launches has: operation, type, bytes."""
    lines = map(json.loads, (RECORDED / "truth.jsonl").read_text().splitlines())
    (truth,) = [line for line in lines if line["job"] == job]
    expected: Counter[tuple[str, str | None, int | None]] = Counter()
    for graph in truth["launches"]:
        for op, datatype, size in truth["graphs"][graph]:
            expected[op, datatype if known else None, size if known else None] += 1
    db = tmp_path / "job.db"
    chosen = [path for pattern in files for path in sorted((RECORDED / job).glob(pattern))]
    got = collscope("ingest", "auto", *chosen, "--db", db)
    assert got.code == 0, got.err
    query = """
        SELECT c.op, lower(c.datatype), c.size_bytes, COUNT(*)
        FROM kernels k JOIN calls c USING (run, call_id) WHERE k.rank = ? GROUP BY 1, 2, 3
    """
    with closing(sqlite3.connect(db)) as store:
        for rank in (0, 1):
            found: Counter[tuple[str, str | None, int | None]] = Counter()
            for op, datatype, size, number in store.execute(query, (rank,)):
                found[op, datatype if known else None, size] += number
            assert found == expected
