"""Kernels of graphs get the collectives of their capture in the same trace, or none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from readers import parse

from collscope.model import Datatype, Op
from collscope.model.trace import TraceFile
from collscope.parsers.traces.launch_shapes import reduced_bytes

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ONE_SHOT = "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 2>(int)"
GEMM = "nvjet_tst_64x8"
THREAD = 963

Call = tuple[str, int] | None
"""Operation and elements of a launch in a capture; None: compute."""


def event(cat: str, name: str, ts: float, dur: float, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": THREAD, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def capture(at: float, calls: Sequence[Call]) -> Iterator[dict[str, Any]]:
    """A capture of so many launches, 10 us each."""
    yield event("cuda_runtime", "cudaStreamBeginCapture", at, 1, correlation=1)
    for place, call in enumerate(calls):
        begin = at + 10 * (place + 1)
        number = int(at) + place
        yield event("cuda_runtime", "cudaLaunchKernelExC", begin + 2, 1, correlation=number)
        if call is None:
            continue
        op, elements = call
        if op == "one_shot":
            dims = {"Input Dims": [[elements // 8, 8], [], []],
                    "Input type": ["c10::BFloat16", "", ""]}  # fmt: skip
            yield event("cpu_op", "symm_mem::one_shot_all_reduce", begin, 5, **dims)
            continue
        counts = {"In msg nelems": elements, "Out msg nelems": elements}
        if op == "allgather":
            counts["Out msg nelems"] = 2 * elements
        record = {"Collective name": op, "dtype": "BFloat16", "Group size": 2, **counts,
                  "Process Group Name": "0", "External id": number}  # fmt: skip
        yield event("cpu_op", "record_param_comms", begin, 5, **record)
    end = at + 10 * (len(calls) + 1)
    yield event("cuda_runtime", "cudaStreamEndCapture", end, 1, correlation=2)


def launched(
    at: float,
    names: Sequence[str],
    blocks: int = 24,
    streams: Sequence[int] = (7,),
    threads: int = 0,
) -> Iterator[dict[str, Any]]:
    """A launch of a graph, and its kernels."""
    number = 100_000 + int(at)
    yield event("cuda_runtime", "cudaGraphLaunch", at, 3, correlation=number)
    for place, name in enumerate(names):
        args = {"device": 0, "stream": streams[place % len(streams)], "correlation": number,
                "grid": [blocks, 1, 1], "block": [threads, 1, 1]}  # fmt: skip
        yield event("kernel", name, at + 10 * (place + 1), 5, **args)


def read(*parts: Iterator[dict[str, Any]]) -> TraceFile:
    events = [one for part in parts for one in part]
    (file,) = parse([json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()], "t.json")
    return file


def counts(file: TraceFile) -> list[int | None]:
    """Elements that each collective of the trace puts in."""
    places = file.columns.collective
    return [file.collectives[place].in_count for place in places[places >= 0].tolist()]


def notes(file: TraceFile) -> dict[str, int]:
    return {d.code: d.count for d in file.diagnostics}


STEP: list[Call] = [None, ("allreduce", 64), None, ("allgather", 16), ("allreduce", 4096)]
KERNELS = [GEMM, NCCL, GEMM, GATHER, NCCL]


def test_kernels_of_every_launch_have_the_calls_of_the_capture() -> None:
    file = read(capture(100, STEP), launched(500, KERNELS), launched(700, KERNELS))
    assert counts(file) == [64, 16, 4096] * 2
    found = file.collectives[file.columns.collective[3]]
    assert (found.op, found.out_count, found.group) == (Op.ALL_GATHER, 32, "0")
    assert notes(file) == {"sizes_of_capture": 6}


def test_operators_of_symmetric_memory_have_sizes() -> None:
    step: list[Call] = [None, ("one_shot", 64), ("one_shot", 4096)]
    file = read(capture(100, step), launched(500, [GEMM, ONE_SHOT, ONE_SHOT]))
    assert counts(file) == [64, 4096]
    found = file.collectives[file.columns.collective[1]]
    assert (found.op, found.datatype) == (Op.ALL_REDUCE, Datatype.BFLOAT16)
    assert notes(file) == {"sizes_of_capture": 2}


def test_a_launch_by_the_host_within_such_an_operator_has_its_size() -> None:
    types = ["c10::BFloat16", "", ""]
    shapes = {"Input Dims": [[32, 8], [], []], "Input type": types}
    operator = event("cpu_op", "symm_mem::two_shot_all_reduce_", 100, 9, **shapes)
    launch = event("cuda_runtime", "cudaLaunchKernel", 102, 3, correlation=9)
    kernel = event("kernel", ONE_SHOT, 120, 5, device=0, stream=7, correlation=9)
    assert counts(read(iter([operator, launch, kernel]))) == [256]


@pytest.mark.parametrize(
    "kernels",
    [
        [GEMM, NCCL, GEMM, GATHER, NCCL, GEMM],  # one more
        [NCCL, GEMM, GEMM, GATHER, NCCL],  # at another place
        [GEMM, GATHER, GEMM, NCCL, NCCL],  # other operations
        [GEMM, NCCL.replace("bf16", "f32"), GEMM, GATHER, NCCL],  # another type
    ],
)
def test_another_graph_does_not_get_the_calls_of_a_capture(kernels: list[str]) -> None:
    file = read(capture(100, STEP), launched(500, kernels))
    assert counts(file) == [None] * 3
    (note,) = file.diagnostics
    assert (note.code, note.count) == ("graph_collectives", 3)
    assert "none with the kernels of these graphs" in note.message


def test_captures_that_differ_in_their_sizes_alone_give_none() -> None:
    """As an engine captures a graph for each batch."""
    other: list[Call] = [None, ("allreduce", 32), None, ("allgather", 8), ("allreduce", 2048)]
    file = read(capture(100, STEP), capture(300, other), launched(500, KERNELS))
    assert counts(file) == [None] * 3
    assert "Several captures or graphs" in file.diagnostics[0].message
    equal = read(capture(100, STEP), capture(300, STEP), launched(500, KERNELS))
    assert counts(equal) == [64, 16, 4096]


def test_a_graph_from_before_the_capture_makes_sizes_unknown() -> None:
    """Its kernels are in the same order, and its sizes are another capture's."""
    early = read(launched(20, KERNELS), capture(200, STEP), launched(500, KERNELS))
    assert counts(early) == [None] * 6
    # So are those of a second graph, which another number of thread blocks shows.
    second = read(capture(200, STEP), launched(500, KERNELS), launched(700, KERNELS, blocks=16))
    assert counts(second) == [None] * 6


def test_kernels_on_several_streams_have_no_order() -> None:
    file = read(capture(100, STEP), launched(500, KERNELS, streams=(7, 20)))
    assert counts(file) == [None] * 3
    assert "several streams" in file.diagnostics[0].message


def test_calls_that_share_a_launch_give_none() -> None:
    """As coalesced ones do: two calls around one launch."""
    events = list(capture(100, STEP))
    record = next(e for e in events if e["name"] == "record_param_comms")
    twin = {**record, "ts": record["ts"] + 0.5, "dur": 4}
    file = read(iter([*events, twin]), launched(500, KERNELS))
    assert counts(file) == [None] * 3


@pytest.mark.parametrize(
    ("blocks", "threads", "size", "inside"),
    [
        # PyTorch's own arithmetic: 16 bytes a thread, 512 threads a block, 32 threads a warp.
        (3, 512, 3 * 512 * 16, True), (3, 512, 2 * 512 * 16 + 2, True),
        (3, 512, 2 * 512 * 16, False), (3, 512, 3 * 512 * 16 + 2, False),
        (1, 96, 64 * 16 + 2, True), (1, 96, 64 * 16, False), (1, 32, 2, True),
        (24, 512, 1 << 30, True), (24, 512, 23 * 512 * 16, False),
    ],
)  # fmt: skip
def test_a_launch_shape_gives_a_range(blocks: int, threads: int, size: int, inside: bool) -> None:
    found = reduced_bytes(ONE_SHOT, blocks, threads)
    assert found is not None
    assert (found.least <= size and (found.most is None or size <= found.most)) is inside


def test_two_shot_kernels_divide_by_the_ranks() -> None:
    name = "void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(int)"
    # 32 x 8 192 bfloat16, as recorded on two H100.
    assert reduced_bytes(name, 16, 1024) == (15 * 1024 * 32 + 2, 524288)
    # Other ranks than 2, 4, 8 are not in the name; 512 threads in several blocks are not PyTorch's.
    assert reduced_bytes(name.replace("2>", "-1>"), 16, 1024) is None
    assert reduced_bytes(name, 16, 512) is None


def test_the_notice_has_the_ranges() -> None:
    file = read(launched(500, [GEMM, ONE_SHOT, ONE_SHOT], blocks=3, threads=512))
    (note,) = [d for d in file.diagnostics if d.code == "sizes_of_launch_shape"]
    assert "16,386 to 24,576 bytes (2 kernels)" in note.message
