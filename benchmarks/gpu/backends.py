"""AllReduce of each size by each backend, inside CUDA graphs: which one to take at which size.

    torchrun --nproc-per-node 2 benchmarks/gpu/backends.py OUT.csv [SIZES [ROUNDS]]

Backends: NCCL; NCCL on memory registered as a symmetric window; symmetric memory of PyTorch,
one-shot and two-shot. NVLink multicast is off (no multimem, no NVLS). A backend that cannot run
here says why and is left out. Each result is compared with the sum that the ranks' values have.

A sample is the mean time of the calls of one graph, on the slowest rank. Backends take turns within
a round, so that what drifts meets all of them. The table gives medians, and of each backend the
time relative to NCCL's with the interval that holds the median of the rounds' ratios in at least 95
of 100 such runs (order statistics, no assumption on their distribution). OUT.csv has all samples.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

SIZES = "8192,65536,262144,524288,1048576,2097152,4194304,8388608,16777216,67108864"  # bytes
ROUNDS = 15
CALLS = 20  # of a graph: many more than the microseconds that its launch takes
REPEATS = 10  # launches of a graph in a sample
FIRST = "nccl"

Samples = Mapping[tuple[int, str], Sequence[float]]  # us a call, by size and backend


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Values between which the median lies with this confidence; None where they are too few.

    >>> interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    (1.0, 6.0)
    """
    ordered, n = sorted(values), len(values)
    outside, found = 0.0, None
    for k in range(n // 2):
        outside += 2 * math.comb(n, k) / 2**n
        if outside > 1 - confidence:
            break
        found = ordered[k], ordered[n - 1 - k]
    return found


def choices(samples: Samples) -> Iterator[str]:
    """The table, a line per size: medians, the best backend, and what it gains on NCCL."""
    names = list(dict.fromkeys(name for _, name in samples))
    yield "".join([f"{'bytes':>10}", *(f"{name + ' us':>16}" for name in names)]) + "  best"
    for size in dict.fromkeys(size for size, _ in samples):
        of_size = {name: samples[size, name] for name in names if samples.get((size, name))}
        cells = "".join(
            f"{median(of_size[name]):16.2f}" if name in of_size else f"{'-':>16}" for name in names
        )
        yield f"{size:10}{cells}  {best_of(of_size)}"


def best_of(of_size: Mapping[str, Sequence[float]]) -> str:
    """The fastest backend, and its time relative to NCCL's; NCCL where none is surely faster."""
    first = of_size[FIRST]
    found = f"{FIRST} (no other is surely faster)"
    least = math.inf
    for name, values in of_size.items():
        ratios = [own / other for own, other in zip(values, first, strict=True)]
        between = interval(ratios)
        if between is not None and between[1] < 1 and median(values) < least:
            least = median(values)
            found = (
                f"{name}: {median(ratios):.3f} of {FIRST} ({between[0]:.3f} to {between[1]:.3f})"
            )
    return found


def backends(torch: Any, size: int) -> dict[str, tuple[Any, Callable[[], Any]]]:  # noqa: ANN401
    """By name the input and the call, whose value is the result."""
    import torch.distributed._symmetric_memory as symm  # noqa: PLC0415

    dist = torch.distributed
    group = dist.group.WORLD.group_name
    device = torch.device("cuda", torch.cuda.current_device())
    count = size // 2
    plain = torch.empty(count, dtype=torch.bfloat16, device=device)
    shared = symm.empty(count, dtype=torch.bfloat16, device=device)
    symm.rendezvous(shared, group=dist.group.WORLD)
    ops = torch.ops.symm_mem

    def by_nccl(data: Any) -> Callable[[], Any]:  # noqa: ANN401
        def call() -> Any:  # noqa: ANN401
            dist.all_reduce(data)
            return data

        return call

    found = {
        FIRST: (plain, by_nccl(plain)),
        "one-shot": (shared, lambda: ops.one_shot_all_reduce(shared, "sum", group)),
        "two-shot": (shared, lambda: ops.two_shot_all_reduce_(shared, "sum", group)),
    }
    try:
        nccl = dist.group.WORLD._get_backend(device)
        pool = torch.cuda.MemPool(nccl.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            window = torch.empty(count, dtype=torch.bfloat16, device=device)
        nccl.register_mem_pool(pool, symm=True)
        KEPT.append(pool)
        found["nccl-window"] = (window, by_nccl(window))
    except (RuntimeError, TypeError, AttributeError) as error:
        if dist.get_rank() == 0:
            print(f"nccl-window: left out: {str(error).splitlines()[0]}", file=sys.stderr)
    return found


KEPT: list[Any] = []  # memory pools, which must outlive what is allocated from them


def graph_of(torch: Any, data: Any, call: Callable[[], Any]) -> Any:  # noqa: ANN401
    """A graph of many calls; the result of one is checked first."""
    dist = torch.distributed
    data.fill_(dist.get_rank() + 1)
    torch.cuda.synchronize()
    dist.barrier()
    result = call()
    torch.cuda.synchronize()
    world = dist.get_world_size()
    right = bool((result == world * (world + 1) / 2).all())
    if not right:
        raise SystemExit("a result is not the sum of the ranks' values")
    data.zero_()  # sums of zeros stay numbers, however often they are made
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def timed(torch: Any, graph: Any) -> float:  # noqa: ANN401
    """Microseconds a call, on the slowest rank."""
    dist = torch.distributed
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    start.record()
    for _ in range(REPEATS):
        graph.replay()
    stop.record()
    torch.cuda.synchronize()
    us = torch.tensor([start.elapsed_time(stop) * 1e3 / (CALLS * REPEATS)], device="cuda")
    dist.all_reduce(us, op=dist.ReduceOp.MAX)
    return float(us.item())


def main() -> None:
    """Measure, write the samples, and print the table."""
    out = sys.argv[1]
    sizes = [int(size) for size in (sys.argv[2] if len(sys.argv) > 2 else SIZES).split(",")]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else ROUNDS
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    import torch  # noqa: PLC0415

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    samples: dict[tuple[int, str], list[float]] = {}
    for size in sizes:
        graphs = {name: graph_of(torch, *what) for name, what in backends(torch, size).items()}
        names = list(graphs)
        for turn in range(rounds):
            for k in range(len(names)):
                name = names[(k + turn) % len(names)]
                samples.setdefault((size, name), []).append(timed(torch, graphs[name]))
    if rank == 0:
        with open(out, "w", newline="") as file:  # noqa: PTH123 - runs without the project's settings
            rows = csv.writer(file)
            rows.writerow(["size_bytes", "backend", "round", "us"])
            for (size, name), values in samples.items():
                rows.writerows([size, name, k, f"{us:.4f}"] for k, us in enumerate(values))
        print("\n".join(choices(samples)))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
