"""Decode steps with AllReduce by several backends: what a job wins beside what was predicted.

    torchrun --nproc-per-node 2 benchmarks/gpu/backends_job.py OUT [BATCHES]

24 layers of two matrix products and an AllReduce, one CUDA graph a step. The backends take turns.
OUT/steps.csv: batch, bytes of an AllReduce, backend, round, us a step on the slowest rank.
OUT/BATCH.rankN.json: a trace of steps with NCCL (CUDA activities).
"""

from __future__ import annotations

import csv
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

HIDDEN, LAYERS, ROUNDS, LAUNCHES = 4096, 24, 15, 20
ops = torch.ops.symm_mem


def weights() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """This rank's half of every layer."""
    half = HIDDEN // 2
    return [
        (
            torch.randn(HIDDEN, half, device="cuda", dtype=torch.bfloat16) / 64,
            torch.randn(half, HIDDEN, device="cuda", dtype=torch.bfloat16) / 64,
        )
        for _ in range(LAYERS)
    ]


def reducers(batch: int, group: Any) -> dict[str, tuple[torch.Tensor, Callable[[], torch.Tensor]]]:  # noqa: ANN401
    """By backend the tensor that is reduced, and the call, whose value is the result."""
    plain = torch.empty(batch, HIDDEN, dtype=torch.bfloat16, device="cuda")
    one, two = (symm.empty(batch, HIDDEN, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    for tensor in (one, two):
        symm.rendezvous(tensor, group=group)

    def nccl() -> torch.Tensor:
        dist.all_reduce(plain)
        return plain

    name = group.group_name
    return {
        "nccl": (plain, nccl),
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
    batches = [int(n) for n in (sys.argv[2] if len(sys.argv) > 2 else "1,32,256").split(",")]
    out.mkdir(parents=True, exist_ok=True)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank, group = dist.get_rank(), dist.group.WORLD
    host = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
    layers, rows = weights(), []
    for batch in batches:
        x = torch.randn(batch, HIDDEN, device="cuda", dtype=torch.bfloat16)
        kept = reducers(batch, group)  # their memory must outlive the graphs
        graphs = {name: step_graph(layers, x, how) for name, how in kept.items()}
        names = list(graphs)
        for turn in range(ROUNDS):
            for place in range(len(names)):
                name = names[(place + turn) % len(names)]
                rows.append([batch, batch * HIDDEN * 2, name, turn, step_us(graphs[name], host)])
        with profile(activities=[ProfilerActivity.CUDA]) as recorded:
            for _ in range(8):
                graphs["nccl"].replay()
            torch.cuda.synchronize()
        recorded.export_chrome_trace(str(out / f"{batch}.rank{rank}.json"))
    if rank == 0:
        with (out / "steps.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["batch", "size_bytes", "backend", "round", "us"])
            writer.writerows(rows)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
