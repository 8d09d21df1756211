"""Decode steps with AllReduce by several backends: what a job wins beside what was predicted.

    torchrun --nproc-per-node 2 benchmarks/gpu/backends_job.py OUT [BATCHES [HIDDEN_SIZES]]

24 layers of two matrix products and an AllReduce, one CUDA graph a step. The backends take turns.
OUT/steps.csv: hidden size, batch, bytes of an AllReduce, backend, round, us a step on the slowest
rank.
OUT/HIDDEN.BATCH.rankN.json: a trace of steps with NCCL (CUDA activities).
"""

from __future__ import annotations

import csv
import ctypes
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm
from torch.profiler import ProfilerActivity, profile

LAYERS, ROUNDS, LAUNCHES = 24, 15, 20
ops = torch.ops.symm_mem


def weights(hidden: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """This rank's half of every layer."""
    half = hidden // 2
    return [
        (
            torch.randn(hidden, half, device="cuda", dtype=torch.bfloat16) / 64,
            torch.randn(half, hidden, device="cuda", dtype=torch.bfloat16) / 64,
        )
        for _ in range(LAYERS)
    ]


class Memory:
    """Bytes on the GPU that torch takes without a copy."""

    def __init__(self, address: int, size: int) -> None:
        """At an address."""
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "typestr": "|u1", "version": 2,
        }  # fmt: skip


def in_window(batch: int, hidden: int) -> torch.Tensor:
    """Memory in a symmetric window of NCCL's, without multicast."""
    nccl, size = ctypes.CDLL("libnccl.so.2"), batch * hidden * 2
    memory, window = ctypes.c_void_p(), ctypes.c_void_p()
    comm = ctypes.c_void_p(dist.group.WORLD._get_backend(torch.device("cuda"))._comm_ptr())
    symmetric = 1  # NCCL_WIN_COLL_SYMMETRIC
    bytes_ = ctypes.c_size_t(size)
    failed = nccl.ncclMemAlloc(ctypes.byref(memory), bytes_) or nccl.ncclCommWindowRegister(
        comm, memory, bytes_, ctypes.byref(window), symmetric
    )
    if failed or not window.value:
        raise RuntimeError(f"NCCL registers no window: {failed}")
    data = torch.as_tensor(Memory(memory.value or 0, size), device="cuda")
    return data.view(torch.bfloat16).view(batch, hidden)


def reducers(
    batch: int,
    hidden: int,
    group: Any,  # noqa: ANN401
) -> dict[str, tuple[torch.Tensor, Callable[[], torch.Tensor]]]:
    """By backend the tensor that is reduced, and the call, whose value is the result."""
    plain = torch.empty(batch, hidden, dtype=torch.bfloat16, device="cuda")
    one, two = (symm.empty(batch, hidden, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    for tensor in (one, two):
        symm.rendezvous(tensor, group=group)
    window = in_window(batch, hidden)

    def by_nccl(data: torch.Tensor) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            dist.all_reduce(data)
            return data

        return call

    name = group.group_name
    return {
        "nccl": (plain, by_nccl(plain)),
        "nccl-window": (window, by_nccl(window)),
        "torch-one-shot": (one, lambda: ops.one_shot_all_reduce(one, "sum", name)),
        "torch-two-shot": (two, lambda: ops.two_shot_all_reduce_(two, "sum", name)),
    }


def step_graph(
    layers: list[tuple[torch.Tensor, torch.Tensor]],
    x: torch.Tensor,
    reducer: tuple[torch.Tensor, Callable[[], torch.Tensor]],
) -> torch.cuda.CUDAGraph:
    """A step as a graph."""
    data, call = reducer

    def step() -> torch.Tensor:
        y = x
        for first, second in layers:
            torch.mm(torch.nn.functional.silu(y @ first), second, out=data)
            y = x + call() * 0.01
        return y

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    return graph


def step_us(graph: torch.cuda.CUDAGraph, host: Any) -> float:  # noqa: ANN401
    """Time of a step on the slowest rank."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.barrier(group=host)
    graph.replay()
    start.record()
    for _ in range(LAUNCHES):
        graph.replay()
    stop.record()
    torch.cuda.synchronize()
    us = torch.tensor([start.elapsed_time(stop) * 1e3 / LAUNCHES])
    dist.all_reduce(us, op=dist.ReduceOp.MAX, group=host)
    return float(us.item())


def main() -> None:
    """Time the steps, then trace some."""
    out = Path(sys.argv[1])
    batches, widths = (
        [int(n) for n in (sys.argv[place] if len(sys.argv) > place else default).split(",")]
        for place, default in ((2, "1,32,256"), (3, "4096"))
    )
    out.mkdir(parents=True, exist_ok=True)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank, group = dist.get_rank(), dist.group.WORLD
    host = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
    dist.all_reduce(torch.ones(1, device="cuda"))  # NCCL connects
    rows: list[list[object]] = []
    kept = []  # memory that the other rank knows
    for hidden in widths:
        layers = weights(hidden)
        for batch in batches:
            x = torch.randn(batch, hidden, device="cuda", dtype=torch.bfloat16)
            how = reducers(batch, hidden, group)
            kept.append(how)
            graphs = {name: step_graph(layers, x, one) for name, one in how.items()}
            rows += in_turns(graphs, host, [hidden, batch, batch * hidden * 2])
            with profile(activities=[ProfilerActivity.CUDA]) as recorded:
                for _ in range(8):
                    graphs["nccl"].replay()
                torch.cuda.synchronize()
            recorded.export_chrome_trace(str(out / f"{hidden}.{batch}.rank{rank}.json"))
            if rank == 0:
                write(out / "steps.csv", rows)
    sys.stdout.flush()
    os._exit(0)


def in_turns(
    graphs: dict[str, torch.cuda.CUDAGraph],
    host: Any,  # noqa: ANN401
    head: list[object],
) -> list[list[object]]:
    """A row of each backend and round; each round begins with another backend."""
    names, rows = list(graphs), []
    for turn in range(ROUNDS):
        for place in range(len(names)):
            name = names[(place + turn) % len(names)]
            rows.append([*head, name, turn, step_us(graphs[name], host)])
    return rows


def write(path: Path, rows: list[list[object]]) -> None:
    """All rows so far."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["hidden", "batch", "size_bytes", "backend", "round", "us"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
