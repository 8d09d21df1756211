"""`collscope bench backends` beside an independent loop, its peer, in one process group.

    torchrun --nproc-per-node 2 benchmarks/gpu/backends_peer.py OUT.csv [POINTS [ROUNDS [SECONDS]]]
    SAME=1 torchrun …    # with the tool's compute
    python benchmarks/gpu/backends_peer.py --beside OUT.csv [OUT.csv ...]    # needs no torch

The peer times the same quantity by another method, with code, memory and compute of its own: what
an AllReduce adds behind a layer of a model (two matrix products and a sum), and behind a copy of 96
MiB with zeros. A graph of 40 calls and one of 8 are launched six times each, on the host's clock,
until all work is done: the difference over 192 calls is a call with its compute. What starts and
ends a launch cancels out. The same without the calls is taken off. Time of the slowest rank.

Tool and peer take turns: in each round every backend is timed by both, first by one, then first by
the other. The peer's samples are divided into the first and the second half of the rounds: how far
their medians differ is the peer's repeatability, below which no comparison can be. POINTS as of
backends_worker.py. Points that do not begin within SECONDS are left out. With SAME the peer has the
tool's layer as compute, and each method also times the other's memory: so it shows what a
difference comes from.

OUT.csv: bytes, datatype, backend, compute, who, round, us.
"""

from __future__ import annotations

import csv
import functools
import itertools
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "collscope" / "bench"))
import backends_worker as tool

POINTS = ",".join(f"{8192 << n}:Bfloat16" for n in (0, 3, 6, 9, 1, 4, 7, 5, 8))
ROUNDS = 12
SHORT, LONG, LAUNCHES = 8, 40, 6
WIDTH, LAYERS = 4096, 12
KINDS = (tool.LAYER, tool.COPY)
SAME = bool(os.environ.get("SAME"))


def calls_of(torch: Any, count: int, dtype: Any) -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    """Backends by name, each with its data and its call."""
    import torch.distributed._symmetric_memory as symm
    from backends_job import in_window

    dist = torch.distributed
    group = dist.group.WORLD

    def by_nccl(data: Any) -> Callable[[], Any]:
        def call() -> Any:
            dist.all_reduce(data)
            return data

        return call

    plain = torch.zeros(count, dtype=dtype, device="cuda")
    yield "nccl", plain, by_nccl(plain)
    window = in_window(1, count, dtype).view(count)
    yield "nccl-window", window, by_nccl(window)
    one, two = (symm.empty(count, dtype=dtype, device="cuda") for _ in range(2))
    for tensor in (one, two):
        symm.rendezvous(tensor, group=group)
        tensor.zero_()
    ops = torch.ops.symm_mem
    yield "torch-one-shot", one, lambda: ops.one_shot_all_reduce(one, "sum", group.group_name)
    yield "torch-two-shot", two, lambda: ops.two_shot_all_reduce_(two, "sum", group.group_name)


class Peer:
    """The independent loop at one point with one backend and one compute."""

    def __init__(self, torch: Any, host: Any, weights: Any, work: Any) -> None:
        """`work`: data, call, and the kind of compute; without weights the compute itself."""
        self._torch, self._host = torch, host
        data, call, kind = work
        if weights is None:
            before, after = kind
        else:
            before, after = layer(torch, data, weights) if kind == tool.LAYER else copy(torch, data)

        def with_call() -> None:
            before()
            after(call())

        def without() -> None:
            before()
            after(data)

        with_call()
        torch.cuda.synchronize()
        self._memory = with_call  # of the graphs
        self._graphs = [
            [captured(torch, do, n) for n in (SHORT, LONG)] for do in (with_call, without)
        ]

    def sample_us(self) -> float:
        """What a call adds on the slowest rank."""
        torch = self._torch
        found = [[self._seconds(graph) for graph in pair] for pair in self._graphs]
        times = torch.tensor(found, dtype=torch.float64)
        torch.distributed.all_reduce(times, op=torch.distributed.ReduceOp.MAX, group=self._host)
        with_calls, without = (times[:, 1] - times[:, 0]).tolist()
        return float(with_calls - without) * 1e6 / (LAUNCHES * (LONG - SHORT))

    def _seconds(self, graph: Any) -> float:
        """Time of all launches of a graph, from a moment at which the ranks are together."""
        graph.replay()
        self._torch.cuda.synchronize()
        self._torch.distributed.barrier(group=self._host)
        begin = time.perf_counter()
        for _ in range(LAUNCHES):
            graph.replay()
        self._torch.cuda.synchronize()
        return time.perf_counter() - begin


def layer(torch: Any, data: Any, weights: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """A layer of a model, and the sum with what the call gives."""
    width = next(n for n in (4096, 2048, 1024, 512, 256, 128) if data.numel() % n == 0)
    rows = data.view(-1, width)
    x = torch.randn_like(rows)
    turn = itertools.cycle(weights(width, data.dtype))

    def before() -> None:
        up, down = next(turn)
        torch.mm(torch.nn.functional.silu(x @ up), down, out=rows)

    return before, lambda result: x + result.view_as(x) * 0.01


def copy(torch: Any, data: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """A copy of 96 MiB, and zeros."""
    source, target = (torch.zeros(24 << 20, device="cuda") for _ in range(2))

    def before() -> None:
        target.copy_(source)
        data.zero_()

    return before, lambda _: None


def captured(torch: Any, do: Callable[[], Any], calls: int) -> Any:
    """A graph of so many."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(calls):
            do()
    return graph


def timers_at(
    job: tool.Job, host: Any, weights: Any, point: tool.Point
) -> Iterator[tuple[tuple[str, str], dict[str, Callable[[], float]]]]:
    """By backend and compute what gives a sample of the tool, and one of the peer."""
    made = tool.backends_of("nccl", multimem=False)
    for name, data, call in calls_of(job.torch, job.count(point), job.dtype(point)):
        try:
            ready = tool.prepare(job, made[name], point)
        except tool.RefusedError as error:
            print(f"{point.size_bytes} {name}: {error}", file=sys.stderr)
            continue
        if SAME and ready.launches:
            yield (name, tool.LAYER), crossed(job, host, ready, (data, call))
            continue
        for kind in [kind for kind in KINDS if kind in ready.launches]:
            launches = ready.launches[kind]
            number = tool.launches_for(tool.graph_us(job, launches[0], 1))
            peer = Peer(job.torch, host, weights, (data, call, kind))
            yield (
                (name, kind),
                {
                    "tool": functools.partial(tool.sample_us, job, launches, number),
                    "peer": peer.sample_us,
                },
            )


def crossed(
    job: tool.Job, host: Any, ready: tool.Ready, own: tuple[Any, Callable[[], Any]]
) -> dict[str, Callable[[], float]]:
    """Both methods on the memory of both, behind the tool's layer."""
    found = {}
    theirs = ready.prepared.data, ready.prepared.call
    made = job.machine.timed(ready.prepared._replace(data=own[0], call=own[1]), tool._CALLS)
    for memory, launches in (("", ready.launches), ("-peers-memory", made)):
        number = tool.launches_for(tool.graph_us(job, launches[tool.LAYER][0], 1))
        sample = functools.partial(tool.sample_us, job, launches[tool.LAYER], number)
        found[f"tool{memory}"] = sample
    for memory, (data, call) in (("", own), ("-tools-memory", theirs)):
        peer = Peer(job.torch, host, None, (data, call, job.machine._layer(data)))
        found[f"peer{memory}"] = peer.sample_us
    return found


def measure(out: str, points: Sequence[tool.Point], rounds: int, seconds: float) -> None:
    """Every point with every backend, by tool and peer in turns."""
    began = time.monotonic()
    os.environ.update(
        NCCL_NVLS_ENABLE="0",
        TORCH_SYMM_MEM_DISABLE_MULTICAST="1",
        TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES="1",
    )
    import torch

    local, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    machine = tool._Gpu(torch, local, here)
    dist = torch.distributed
    dist.init_process_group("cpu:gloo,cuda:nccl")
    host = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
    job = tool.Job(torch, tool._Ranks(torch, 60.0), machine, {})

    @functools.cache
    def weights(width: int, dtype: Any) -> list[list[Any]]:
        shapes = ((width, width // 2), (width // 2, width))
        return [
            [torch.randn(*shape, device="cuda", dtype=dtype) / 64 for shape in shapes]
            for _ in range(LAYERS)
        ]

    rows: list[list[object]] = []
    kept = []  # memory that the other rank knows
    for point in points:
        if not job.ranks.first(time.monotonic() - began < seconds):
            break
        timers = dict(timers_at(job, host, weights, point))
        kept.append(timers)
        for number in range(rounds):
            names = list(timers)
            for place in range(len(names)):
                key = names[(place + number) % len(names)]
                for who, take in list(timers[key].items())[:: 1 if number % 2 else -1]:
                    row = [point.size_bytes, point.datatype, *key, who, number, take()]
                    rows.append(row)
        if dist.get_rank() == 0:
            write(out, rows)
    sys.stdout.flush()
    os._exit(0)


COLUMNS = ("size_bytes", "datatype", "backend", "compute", "who", "round", "us")


def write(out: str, rows: Sequence[Sequence[object]]) -> None:
    """All rows so far."""
    with open(out, "w", newline="") as file:  # noqa: PTH123
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


def beside(files: Sequence[str]) -> Iterator[str]:
    """The tool's median over the peer's, and the peer's own halves, by file."""
    head = f"{'bytes':>9} {'type':9} {'backend':15} {'compute':8}"
    yield f"{head}{'tool':>8}{'peer':>8}{'ratio':>7}{'peer again':>11}"
    near = repeats = pairs = 0
    for path in files:
        with open(path) as file:  # noqa: PTH123
            taken = defaultdict(lambda: defaultdict(list))
            for row in csv.DictReader(file):
                key = int(row["size_bytes"]), row["datatype"], row["backend"], row["compute"]
                taken[key][row["who"]].append(float(row["us"]))
        for key, by in sorted(taken.items()):
            own, other = (statistics.median(by[who]) for who in ("tool", "peer"))
            half = len(by["peer"]) // 2
            repeated = statistics.median(by["peer"][half:]) / statistics.median(by["peer"][:half])
            size, datatype, backend, kind = key
            what = f"{size:>9} {datatype:9} {backend:15} {kind:8}"
            yield f"{what}{own:8.2f}{other:8.2f}{own / other:7.3f}{repeated:11.3f}"
            near += abs(own / other - 1) <= 0.03
            repeats += abs(repeated - 1) <= 0.03
            pairs += 1
    yield f"within 3 %: {near} of {pairs}; the peer's halves: {repeats} of {pairs}"


def main() -> None:
    """Measure, or compare."""
    if sys.argv[1] == "--beside":
        print("\n".join(beside(sys.argv[2:])))
        return
    given = dict(enumerate(sys.argv))
    points = tool.read_points(given.get(2) or POINTS)
    measure(sys.argv[1], points, int(given.get(3, ROUNDS)), float(given.get(4, "inf")))


if __name__ == "__main__":
    main()
