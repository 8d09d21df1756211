"""Jobs for the recorder on GPUs: torchrun recorder.py CASE OUT. recorder.sh runs them all.

Recorded beside NCCL's log and a Kineto trace: mixed, ddp, fsdp, graph, late. Without either: cost
(levels alternate every 20 steps within one process) and small (a loop of 8 KiB AllReduces); turns
(the same loops by processes with no plugin and with each level, which take turns: two ranks each);
kernels (durations of AllReduces in a Kineto trace, with events of kernels and without).
OUT/CASE.rounds.json has the time of each round. A bar holds if the upper end of `paired` does: of
the differences of two levels in the same round the median, and its 95 % interval.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
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

LEVELS = ("off", "calls", "sampled", "all")
MEASURED = ("off", "calls", "sampled")  # within one process; `all` is not held to a bar
PAIR = 2  # ranks of a job in turns

case, out = sys.argv[1], Path(sys.argv[2])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local = rank % torch.cuda.device_count()  # ranks may share a GPU
torch.cuda.set_device(local)
device = torch.device("cuda", local)
if case == "turns":
    dist.init_process_group("gloo")
else:
    dist.init_process_group("nccl", device_id=device)
torch.manual_seed(rank)


def model(width: int, layers: int) -> nn.Module:
    """A stack of transformer layers."""
    layer = [
        nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
        for _ in range(layers)
    ]
    return nn.Sequential(*layer).to(device)


def training(
    wrapped: nn.Module, width: int, tokens: int, group: dist.ProcessGroup | None = None
) -> Step:
    """One step of training, and an AllReduce of its loss."""
    optimizer = torch.optim.AdamW(wrapped.parameters())

    def step() -> None:
        loss = wrapped(torch.randn(4, tokens, width, device=device)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach().clone(), group=group)

    return step


def ddp(
    width: int = 1024,
    layers: int = 6,
    tokens: int = 512,
    group: dist.ProcessGroup | None = None,
) -> Step:
    """Gradients in buckets."""
    wrapped = nn.parallel.DistributedDataParallel(
        model(width, layers), device_ids=[local], process_group=group
    )
    return training(wrapped, width, tokens, group)


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
    p.export_chrome_trace(str(out / f"{case}.rank{rank}.json"))
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


def alternate(step: Step, rounds: int, steps: int, settle: int) -> dict[str, list[float]]:
    """Mean time of a step in ms for each level, per round; all ranks change at the same step.

    settle  steps behind each change that are not timed
    """
    set_level = level_setter()
    found: dict[str, list[float]] = {level: [] for level in MEASURED}
    for number in range(rounds):
        # Each level comes first, second and so on as often.
        turn = number % len(MEASURED)
        for level in MEASURED[turn:] + MEASURED[:turn]:
            set_level(level)
            for _ in range(settle):
                step()
                torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(steps):
                step()
                torch.cuda.synchronize()
            found[level].append((time.perf_counter() - begin) * 1e3 / steps)
    return found


def verdict(found: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """For each level the excess of its time over the first's, in percent.

    sum, median  of all the time, and of the median round: with the 95 % interval of rounds that are
                 drawn again
    paired       the median of the differences in the same round, with the 95 % interval of its rank
    """
    draw = random.Random(1)
    base, *levels = found
    rounds = len(found[base])
    answer = {base: {"ms": statistics.mean(found[base]), "median": statistics.median(found[base])}}
    resampled = [[draw.randrange(rounds) for _ in range(rounds)] for _ in range(500)]
    for level in levels:
        excess: list[list[float]] = [[], []]
        for rows in (range(rounds), *resampled):
            own, other = [found[level][i] for i in rows], [found[base][i] for i in rows]
            excess[0].append(100 * (sum(own) / sum(other) - 1))
            excess[1].append(100 * (statistics.median(own) / statistics.median(other) - 1))
        answer[level] = {"ms": statistics.mean(found[level]), **paired(found[level], found[base])}
        for name, (measured_excess, *drawn) in zip(("sum", "median"), excess, strict=True):
            drawn.sort()
            answer[level] |= {
                f"{name}_percent": measured_excess,
                f"{name}_low_95": drawn[12],
                f"{name}_high_95": drawn[-13],
            }
    return answer


def paired(own: list[float], other: list[float]) -> dict[str, float]:
    """Median difference of rounds, in percent of the other level's median round.

    The interval is of order statistics: how many of the differences lie below their true median is
    binomial, however the host's noise is distributed.
    """
    differences = sorted(a - b for a, b in zip(own, other, strict=True))
    count = len(differences)
    away = 0.98 * count**0.5  # 1.96 standard deviations
    low, high = max(int(count / 2 - away), 0), min(int(count / 2 + away) + 1, count - 1)
    percent = 100 / statistics.median(other)
    return {
        "paired_percent": statistics.median(differences) * percent,
        "paired_low_95": differences[low] * percent,
        "paired_high_95": differences[high] * percent,
    }


def blocking(group: dist.ProcessGroup | None = None) -> Step:
    """Products of matrices and six collectives, 8 KiB to 64 MiB."""
    a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16) / 64
    sums = [torch.zeros(n, device=device) for n in (2048, 128 << 10, 2 << 20, 16 << 20)]
    part = torch.zeros(4 << 20, device=device)
    gathered = torch.zeros(8 << 20, device=device)

    def step() -> None:
        b = a
        for data in sums:
            for _ in range(3):
                b = b @ a
            dist.all_reduce(data, group=group)
        dist.reduce_scatter_tensor(part, gathered, group=group)
        dist.all_gather_into_tensor(gathered, part, group=group)

    return step


def measured() -> None:
    """Cost of each level against none, as a line of JSON."""
    if case == "cost":
        step, steps, rounds, settle = blocking(), 20, 160, 1
    else:
        step, steps, rounds, settle = small(None), 25, 4500, 5
    for _ in range(50):
        step()
    report_cost(alternate(step, rounds, steps, settle), steps)


def small(group: dist.ProcessGroup | None) -> Step:
    """An AllReduce of 8 KiB."""
    data = torch.ones(2048, device=device)
    return lambda: dist.all_reduce(data, group=group)


def kernels() -> None:
    """Durations of AllReduces in a trace, by bytes and level: the shortest of the ranks, in us."""
    set_level, repeats, kept = level_setter(), 12, 10
    buffers = [torch.ones(n, device=device) for n in (2048, 256 << 10, 2 << 20, 6 << 20, 16 << 20)]
    for data in buffers:
        dist.all_reduce(data)
    torch.cuda.synchronize()
    rounds = 10
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for _ in range(rounds):
            for level in ("off", "all"):
                set_level(level)
                for data in buffers:
                    for _ in range(repeats):
                        dist.all_reduce(data)
                        torch.cuda.synchronize()
    path = out / f"kernels.rank{rank}.json"
    p.export_chrome_trace(str(path))
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "kernel"]
    events.sort(key=lambda e: e["ts"])
    own = [e["dur"] for e in events if "nccl" in e["name"]]
    every: list[list[float]] = [[]] * world
    dist.all_gather_object(every, own)
    if rank == 0:
        shortest = iter([min(calls) for calls in zip(*every, strict=True)])
        medians: dict[str, list[float]] = {}
        for _ in range(rounds):
            for level in ("off", "all"):
                for data in buffers:
                    block = [next(shortest) for _ in range(repeats)][repeats - kept :]
                    medians.setdefault(f"{data.nbytes} {level}", []).append(
                        statistics.median(block)
                    )
        line = {"case": case, "setting": os.environ.get("SETTING", "")}
        times = {name: sorted(found) for name, found in medians.items()}
        print("COST " + json.dumps({**line, "us": times}), flush=True)


def report_cost(found: dict[str, list[float]], steps: int, name: str = case) -> None:
    """Rounds into a file, and what they amount to as a line."""
    if rank == 0:
        (out / f"{name}.rounds.json").write_text(json.dumps(found))
        setting = os.environ.get("SETTING", "")
        line = {"case": name, "setting": setting, "steps": steps, **verdict(found)}
        print("COST " + json.dumps(line), flush=True)


def turns() -> None:
    """Loops of jobs that take turns: without a plugin, and with one at each level."""
    plugin, levels = os.environ.pop("NCCL_PROFILER_PLUGIN"), ("none", *LEVELS)
    own = rank // PAIR
    if levels[own] != "none":
        os.environ |= {"NCCL_PROFILER_PLUGIN": plugin, "COLLSCOPE_RECORDER_LEVEL": levels[own]}
    pairs = [list(range(i, i + PAIR)) for i in range(0, world, PAIR)]
    groups = [dist.new_group(pair, backend="nccl") for pair in pairs]
    reduce, products = small(groups[own]), blocking(groups[own])
    jobs = {  # each with the calls after which the host waits, how often a turn has them, and turns
        "turns-small": (reduce, 1, 50, 400),
        "turns-pipelined": (reduce, 100, 1, 400),
        "turns-blocking": (products, 1, 5, 200),
    }
    for step, *_ in jobs.values():
        for _ in range(30):
            step()
    torch.cuda.synchronize()
    for name, (step, calls, repeats, rounds) in jobs.items():
        found: dict[str, list[float]] = {level: [] for level in levels}
        for number in range(rounds):
            for level in levels[number % len(levels) :] + levels[: number % len(levels)]:
                dist.barrier()  # gloo: those whose turn it is not sleep
                if level == levels[own]:
                    found[level].append(turn_ms(reduce, step, calls, repeats))
        every: list[dict[str, list[float]]] = [{}] * world
        dist.all_gather_object(every, found)
        report_cost({level: every[PAIR * i][level] for i, level in enumerate(levels)}, rounds, name)


def turn_ms(reduce: Step, step: Step, calls: int, repeats: int) -> float:
    """Mean time of a step in one turn."""
    for _ in range(5):
        reduce()
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3 / (repeats * calls)


if case == "turns":
    turns()
    dist.barrier()
    sys.stdout.flush()
elif case in ("cost", "small"):
    measured()
elif case == "kernels":
    kernels()
else:
    recorded()
dist.destroy_process_group()
