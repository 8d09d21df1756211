"""Jobs for the recorder on GPUs: torchrun recorder.py CASE OUT. recorder.sh runs them all.

Recorded beside NCCL's log and a Kineto trace: mixed, ddp, fsdp, graph, late. Without either: cost
(levels alternate every 20 steps within one process) and small (a loop of 8 KiB AllReduces).
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile

Step = Callable[[], None]

case, out = sys.argv[1], Path(sys.argv[2])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local = rank % torch.cuda.device_count()  # ranks may share a GPU
torch.cuda.set_device(local)
device = torch.device("cuda", local)
dist.init_process_group("nccl", device_id=device)
torch.manual_seed(rank)


def model(width: int, layers: int) -> nn.Module:
    """A stack of transformer layers."""
    layer = [
        nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
        for _ in range(layers)
    ]
    return nn.Sequential(*layer).to(device)


def training(wrapped: nn.Module, width: int, tokens: int) -> Step:
    """One step of training, and an AllReduce of its loss."""
    optimizer = torch.optim.AdamW(wrapped.parameters())

    def step() -> None:
        loss = wrapped(torch.randn(4, tokens, width, device=device)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach().clone())

    return step


def ddp(width: int = 1024, layers: int = 6, tokens: int = 512) -> Step:
    """Gradients in buckets."""
    wrapped = nn.parallel.DistributedDataParallel(model(width, layers), device_ids=[local])
    return training(wrapped, width, tokens)


def fsdp() -> Step:
    """Shards gathered and scattered."""
    full_model = model(1024, 6)
    for layer in full_model:
        fully_shard(layer)
    fully_shard(full_model)
    return training(full_model, 1024, 512)


def mixed() -> Step:
    """Every operation, datatypes and roots, a second communicator, groups of transfers."""
    pair = dist.new_group(list(range(world)))
    big = torch.randn(4 << 20, device=device, dtype=torch.bfloat16)

    def step() -> None:
        held = big.clone()
        dist.all_reduce(held, group=pair)
        dist.all_reduce(held, op=dist.ReduceOp.AVG)
        dist.all_reduce(torch.ones(7, device=device, dtype=torch.float64), op=dist.ReduceOp.MAX)
        dist.broadcast(held, 0)
        dist.broadcast(held, world - 1, group=pair)
        dist.reduce(held, 1)
        gathered = torch.empty(world * 4096, device=device)
        dist.all_gather_into_tensor(gathered, torch.randn(4096, device=device))
        own = gathered[rank * 4096 : (rank + 1) * 4096]
        dist.all_gather_into_tensor(gathered, own)  # in place
        parts = torch.randn(world * 65536, device=device, dtype=torch.float16)
        dist.reduce_scatter_tensor(torch.empty(65536, device=device, dtype=torch.float16), parts)
        even = torch.randn(world * 1024, device=device)
        dist.all_to_all_single(torch.empty_like(even), even)
        sends = [(rank + 1) * (peer + 1) * 16 for peer in range(world)]
        recvs = [(peer + 1) * (rank + 1) * 16 for peer in range(world)]
        dist.all_to_all_single(
            torch.empty(sum(recvs), device=device),
            torch.randn(sum(sends), device=device),
            recvs,
            sends,
        )
        others = [
            dist.P2POp(dist.isend, big, (rank + 1) % world),
            dist.P2POp(dist.irecv, torch.empty_like(big), (rank - 1) % world),
        ]
        for work in dist.batch_isend_irecv(others):
            work.wait()
        several = [torch.ones(1000 * (k + 1), device=device) for k in range(4)]
        with dist._coalescing_manager(device=device):
            for tensor in several:
                dist.all_reduce(tensor)
        dist.barrier()

    return step


def graph() -> Step:
    """Four AllReduces in a graph, launched once a step."""
    buffers = [torch.ones(1 << (18 + k), device=device) for k in range(4)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for tensor in buffers:
            dist.all_reduce(tensor)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for tensor in buffers:
            dist.all_reduce(tensor)
    return captured.replay


def late() -> Step:
    """The last rank comes 3 ms late to each AllReduce of 64 MiB."""
    data = torch.ones(16 << 20, device=device)

    def step() -> None:
        torch.cuda.synchronize()
        if rank == world - 1:
            time.sleep(0.003)
        dist.all_reduce(data)
        torch.cuda.synchronize()

    return step


def recorded() -> None:
    """Warm-up, eight steps under the profiler, a hundred without."""
    step = {"mixed": mixed, "ddp": ddp, "fsdp": fsdp, "graph": graph, "late": late}[case]()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as p:
        for _ in range(8):
            step()
        torch.cuda.synchronize()
    p.export_chrome_trace(str(out / f"{case}.rank{rank}.json.gz"))
    for _ in range(100):
        step()
    torch.cuda.synchronize()


def level_setter() -> Callable[[str], None]:
    """What sets the level of the recorder of this process; nothing where none is loaded."""
    plugin = os.environ.get("NCCL_PROFILER_PLUGIN", "")
    if not plugin:
        return lambda _: None
    library = ctypes.CDLL(plugin)
    return lambda level: library.collscope_recorder_level(level.encode())


def alternate(
    step: Step, levels: tuple[str, ...], rounds: int, steps: int
) -> dict[str, list[float]]:
    """Mean time of a step in ms for each level, per round; all ranks change at the same step."""
    set_level = level_setter()
    found: dict[str, list[float]] = {level: [] for level in levels}
    for number in range(rounds):
        # Each level comes first, second and third as often.
        turn = number % len(levels)
        for level in levels[turn:] + levels[:turn]:
            torch.cuda.synchronize()
            set_level(level)
            dist.barrier()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(steps):
                step()
                torch.cuda.synchronize()
            found[level].append((time.perf_counter() - begin) * 1e3 / steps)
    return found


def verdict(found: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """For each level the mean excess over the first in the same round, in percent, and the upper
    bound of its 95 % interval."""
    levels = list(found)
    answer = {levels[0]: {"ms": statistics.mean(found[levels[0]])}}
    for level in levels[1:]:
        excess = [100 * (a / b - 1) for a, b in zip(found[level], found[levels[0]], strict=True)]
        error = statistics.stdev(excess) / len(excess) ** 0.5
        answer[level] = {
            "ms": statistics.mean(found[level]),
            "excess_percent": statistics.mean(excess),
            "median_percent": statistics.median(excess),
            "upper_95_percent": statistics.mean(excess) + 1.96 * error,
        }
    return answer


def measured() -> None:
    """Cost of each level against none, as a line of JSON."""
    if case == "cost":
        step, steps, rounds = ddp(512, 4, 256), 20, 102
    else:
        data = torch.ones(2048, device=device)
        step, steps, rounds = (lambda: dist.all_reduce(data)), 500, 60
    for _ in range(50):
        step()
    levels = ("off", "calls", "sampled", "all")
    if not os.environ.get("NCCL_PROFILER_PLUGIN"):
        levels = ("none",)
    found = alternate(step, levels, rounds, steps)
    if rank == 0:
        setting = os.environ.get("SETTING", "")
        line = {"case": case, "setting": setting, "steps": steps * rounds, **verdict(found)}
        print("COST " + json.dumps(line), flush=True)


if case in ("cost", "small"):
    measured()
else:
    recorded()
dist.destroy_process_group()
