"""AllReduce in CUDA graphs by another method than `collscope bench backends`: its peer.

    torchrun --nproc-per-node 2 benchmarks/gpu/backends_peer.py OUT.csv [SIZES [PAIRS]]
    python benchmarks/gpu/backends_peer.py --beside OUT.csv ROWS.csv    # needs no torch

A graph of 60 calls, each behind a copy of 96 MiB and what writes the data, and one of 10 are
launched ten times each, on the host's clock, until all work is done: the difference over 500 calls
is a call with its copy. What starts and ends a launch cancels out. The same without the calls is
taken off. One backend after the other, no turns. Time of the slowest rank, median over the pairs of
graphs.
"""

from __future__ import annotations

import csv
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

SIZES = "8192,32768,131072,524288,2097152,8388608,33554432"  # bytes
PAIRS = 21
SHORT, LONG, LAUNCHES = 10, 60, 10


def calls_of(torch: Any, size: int) -> Iterator[tuple[str, Any, Callable[[], Any]]]:  # noqa: ANN401
    """Backends by name, each with its data and its call."""
    import torch.distributed._symmetric_memory as symm  # noqa: PLC0415
    from backends_job import in_window  # noqa: PLC0415

    dist = torch.distributed
    group = dist.group.WORLD
    plain = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda")
    yield "nccl", plain, lambda: dist.all_reduce(plain)
    window = in_window(1, size // 2)
    yield "nccl-window", window, lambda: dist.all_reduce(window)
    one, two = (symm.empty(size // 2, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    for tensor in (one, two):
        symm.rendezvous(tensor, group=group)
        tensor.zero_()
    ops = torch.ops.symm_mem
    yield "torch-one-shot", one, lambda: ops.one_shot_all_reduce(one, "sum", group.group_name)
    yield "torch-two-shot", two, lambda: ops.two_shot_all_reduce_(two, "sum", group.group_name)


def captured(torch: Any, call: Callable[[], Any], calls: int) -> Any:  # noqa: ANN401
    """A graph of so many calls."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(calls):
            call()
    return graph


def seconds(torch: Any, graph: Any, host: Any) -> float:  # noqa: ANN401
    """Time of all launches of a graph, from a moment at which the ranks are together."""
    graph.replay()
    torch.cuda.synchronize()
    torch.distributed.barrier(group=host)
    begin = time.perf_counter()
    for _ in range(LAUNCHES):
        graph.replay()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def times_us(
    torch: Any,  # noqa: ANN401
    data: Any,  # noqa: ANN401
    call: Callable[[], Any],
    pairs: int,
    host: Any,  # noqa: ANN401
) -> float:
    """Microseconds that a call adds on the slowest rank."""
    source, target = (torch.zeros(24 << 20, device="cuda") for _ in range(2))

    def before() -> None:
        target.copy_(source)
        data.zero_()

    def both() -> None:
        before()
        call()

    both()
    torch.cuda.synchronize()
    graphs = [[captured(torch, one, n) for n in (SHORT, LONG)] for one in (both, before)]
    found = []
    for _ in range(pairs):
        times = torch.tensor([[seconds(torch, g, host) for g in of_one] for of_one in graphs])
        torch.distributed.all_reduce(times, op=torch.distributed.ReduceOp.MAX, group=host)
        with_calls, without = (times[:, 1] - times[:, 0]).tolist()
        found.append((with_calls - without) * 1e6 / (LAUNCHES * (LONG - SHORT)))
    return statistics.median(found)


def measure(out: str, sizes: Sequence[int], pairs: int) -> None:
    """Every size with every backend; a backend that cannot run is named and left out."""
    os.environ.update(
        NCCL_NVLS_ENABLE="0",
        TORCH_SYMM_MEM_DISABLE_MULTICAST="1",
        TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES="1",
    )
    import torch  # noqa: PLC0415

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local % torch.cuda.device_count())
    dist = torch.distributed
    dist.init_process_group("cpu:gloo,cuda:nccl")
    host = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
    rows = []
    for size in sizes:
        for name, data, call in calls_of(torch, size):
            try:
                rows.append([size, name, times_us(torch, data, call, pairs, host)])
            except RuntimeError as error:  # noqa: PERF203 - a size and backend
                print(f"{size} {name}: {str(error).splitlines()[0]}", file=sys.stderr)
    if dist.get_rank() == 0:
        with open(out, "w", newline="") as file:  # noqa: PTH123
            csv.writer(file, lineterminator="\n").writerows(
                [["size_bytes", "backend", "us"], *rows]
            )
    os._exit(0)


def beside(peer: str, ours: str) -> Iterator[str]:
    """The peer's times beside the medians of a replay CSV of `bench backends`."""
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    with open(ours) as file:  # noqa: PTH123
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if row["time_us_median"]:
                key = row["size_bytes"], row["label"].rpartition(" ")[2]
                samples[key].append(float(row["time_us_median"]))
    with open(peer) as file:  # noqa: PTH123
        for row in csv.DictReader(file):
            times = samples.get((row["size_bytes"], row["backend"]))
            if times:
                own, other = statistics.median(times), float(row["us"])
                what = f"{row['size_bytes']:>10} {row['backend']:16}"
                yield f"{what}{own:10.2f}{other:10.2f}{own / other:8.3f}"


def main() -> None:
    """Measure, or compare."""
    if sys.argv[1] == "--beside":
        print(f"{'bytes':>10} {'backend':16}{'ours us':>10}{'peer us':>10}{'ratio':>8}")
        print("\n".join(beside(*sys.argv[2:4])))
        return
    sizes = [int(size) for size in (sys.argv[2] if len(sys.argv) > 2 else SIZES).split(",")]
    measure(sys.argv[1], sizes, int(sys.argv[3]) if len(sys.argv) > 3 else PAIRS)


if __name__ == "__main__":
    main()
