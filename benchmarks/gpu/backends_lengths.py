"""Why `collscope bench backends` and its peer differ at small sizes: one thing changed at a time.

    torchrun --nproc-per-node 2 benchmarks/gpu/backends_lengths.py OUT.csv [SECONDS [ROUNDS]]
    python benchmarks/gpu/backends_lengths.py --table OUT.csv    # needs no torch

What a call adds, in one process group and in turns, by graphs that differ in their length (10, 20,
40, 80 calls), the clock (events; the host's), the memory (one, or four in rotation; the tool's, the
peer's) and the compute (the tool's layer and copy, the peer's layer and copy). With them run the
tool's own sample and the peer's (`backends_peer.py`). Points that do not begin within SECONDS are
left out.

OUT.csv: bytes, backend, memory, compute, clock, length, part, round, us. `us` is the time of a
launch of the graph on the slowest rank, with the calls or without; length 0: a sample of the tool
or the peer, us a call.
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
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "collscope" / "bench"))
import backends_peer as peer
import backends_worker as tool

POINTS = ",".join(f"{kib << 10}:Bfloat16" for kib in (12, 128, 32, 256, 512, 64))
BACKENDS = ("nccl", "nccl-window", "torch-one-shot", "torch-two-shot")
MEMORIES = 4  # in rotation
LENGTHS, TWO = (10, 20, 40, 80), (8, 40)
SECONDS, ROUNDS = 58.0, 5
COLUMNS = (
    "size_bytes", "backend", "memory", "compute", "clock", "length", "part", "round", "us",
)  # fmt: skip


class Setting(NamedTuple):
    """What a graph is made of."""

    memory: str
    compute: str


class Turning(tool._Gpu):
    """The tool's machine, whose layers take their weights in one turn, whatever memory they use."""

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        found = super()._once(key, make)
        if key[0] != "layer":
            return found
        return super()._once(("turn", key), lambda: itertools.cycle(found))


class Bench(NamedTuple):
    """What everything is made with."""

    torch: Any
    host: Any
    job: tool.Job
    weights: Callable[[int, Any], Any]

    def compute(self, name: str, data: Any) -> Any:
        """What runs before a call, and on its result."""
        machine: Any = self.job.machine
        if name == "peer-layer":
            return peer.layer(self.torch, data, self.weights)
        if name == "peer-copy":
            return peer.copy(self.torch, data)
        return machine._layer(data) if name == "tool-layer" else machine._copy(data)


class Graphs:
    """Graphs of several lengths of one setting, with the calls and without."""

    def __init__(
        self, bench: Bench, setting: Setting, works: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """`works`: data and call of each memory."""
        self._bench, torch = bench, bench.torch
        self._made = [(bench.compute(setting.compute, data), data, call) for data, call in works]
        for place in range(len(works)):  # libraries connect outside a capture
            self._one(place, "with")
            self._one(place, "without")
        torch.cuda.synchronize()
        self._graphs = {
            (part, length): peer.captured(torch, self._turn(part), length)
            for part in ("with", "without")
            for length in lengths
        }
        torch.cuda.synchronize()
        self._numbers: dict[int, int] = {}

    def samples(self, clock: str) -> Iterator[tuple[int, str, float]]:
        """Length, part, and time of a launch on the slowest rank."""
        take = self._by_events if clock == "events" else self._by_host
        for (part, length), graph in self._graphs.items():
            yield length, part, self._bench.job.ranks.slowest(take(length, graph))

    def _turn(self, part: str) -> Callable[[], None]:
        places = itertools.cycle(range(len(self._made)))
        return lambda: self._one(next(places), part)

    def _one(self, place: int, part: str) -> None:
        (before, after), data, call = self._made[place]
        before()
        after(call() if part == "with" else data)

    def _by_events(self, length: int, graph: Any) -> float:
        job = self._bench.job
        if length not in self._numbers:
            job.machine.synchronize()
            job.ranks.barrier()
            first = job.machine.elapsed_us(self._graphs["with", length].replay, 1)
            self._numbers[length] = max(1, min(20, int(5000 // job.ranks.slowest(first))))
        number = self._numbers[length]
        job.machine.synchronize()
        job.ranks.barrier()
        return job.machine.elapsed_us(graph.replay, number) / number

    def _by_host(self, _: int, graph: Any) -> float:
        torch = self._bench.torch
        graph.replay()
        torch.cuda.synchronize()
        torch.distributed.barrier(group=self._bench.host)
        begin = time.perf_counter()
        for _ in range(peer.LAUNCHES):
            graph.replay()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e6 / peer.LAUNCHES


Timer = tuple[Setting, str, Callable[[], Iterator[tuple[int, str, float]]]]


def own_sample(take: Callable[[], float]) -> Iterator[tuple[int, str, float]]:
    """A sample of the tool or the peer."""
    yield 0, "call", take()


def timers_of(bench: Bench, prepared: Sequence[Any], own: Sequence[Any]) -> Iterator[Timer]:
    """Setting, clock, and what gives samples, for one backend at one point."""
    job, works = bench.job, [(one.data, one.call) for one in prepared]
    launches = job.machine.timed(prepared[0], tool._CALLS)[tool.LAYER]
    number = tool.launches_for(tool.graph_us(job, launches[0], 1))
    take = functools.partial(tool.sample_us, job, launches, number)
    yield Setting("tool-1", "tool-layer"), "events", functools.partial(own_sample, take)
    sets: list[tuple[Setting, Sequence[Any], Sequence[int], tuple[str, ...]]] = [
        (Setting("tool-1", "tool-layer"), works[:1], LENGTHS, ("events",))
    ]
    sets += [
        (Setting("tool-4", compute), works, TWO, ("events", "host"))
        for compute in ("tool-layer", "tool-copy", "peer-layer", "peer-copy")
    ]
    sets += [
        (Setting("peer-4", compute), own, TWO, ("host",))
        for compute in ("tool-layer", "peer-layer", "peer-copy")
    ]
    for setting, memories, lengths, clocks in sets:
        graphs = Graphs(bench, setting, memories, lengths)
        for clock in clocks:
            yield setting, clock, functools.partial(graphs.samples, clock)
    for kind in peer.KINDS:
        one = peer.Peer(bench.torch, bench.host, bench.weights, (*own[0], kind))
        found = functools.partial(own_sample, one.sample_us)
        yield Setting("peer-1", f"peer-{kind}"), "host", found


def timers_at(bench: Bench, point: tool.Point) -> Iterator[tuple[str, Timer]]:
    """By backend the timers of a point."""
    job, made = bench.job, tool.backends_of("nccl", multimem=False)
    own = defaultdict(list)
    for _ in range(MEMORIES):
        for name, data, call in peer.calls_of(bench.torch, job.count(point), job.dtype(point)):
            own[name].append((data, call))
    for name in BACKENDS:
        prepared = [made[name](job, point) for _ in range(MEMORIES)]
        for one in prepared:
            one.data.zero_()
        for timer in timers_of(bench, prepared, own[name]):
            yield name, timer


def measure(out: str, seconds: float, rounds: int) -> None:
    """Every point."""
    began = time.monotonic()
    os.environ.update(
        NCCL_NVLS_ENABLE="0",
        TORCH_SYMM_MEM_DISABLE_MULTICAST="1",
        TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES="1",
    )
    import torch

    machine = Turning(torch, int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]))
    dist = torch.distributed
    dist.init_process_group("cpu:gloo,cuda:nccl")
    dist.all_reduce(torch.ones(1, device="cuda"))  # a window needs the communicator
    torch.cuda.synchronize()
    host = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
    job = tool.Job(torch, tool._Ranks(torch, 60.0), machine, {})

    @functools.cache
    def weights(width: int, dtype: Any) -> Any:
        shapes = ((width, width // 2), (width // 2, width))
        return itertools.cycle(
            [
                [torch.randn(*shape, device="cuda", dtype=dtype) / 64 for shape in shapes]
                for _ in range(peer.LAYERS)
            ]
        )

    bench = Bench(torch, host, job, weights)
    rows: list[list[object]] = []
    kept = []  # memory that the other rank knows
    for point in tool.read_points(POINTS):
        if not job.ranks.first(time.monotonic() - began < seconds):
            break
        timers = list(timers_at(bench, point))
        kept.append(timers)
        for turn in range(rounds):
            for place in range(len(timers)):
                name, (setting, clock, samples) = timers[(place + turn * 12) % len(timers)]
                for length, part, us in samples():
                    row = [point.size_bytes, name, *setting, clock, length, part, turn, f"{us:.4f}"]
                    rows.append(row)
        if dist.get_rank() == 0:
            with open(out, "w", newline="") as file:  # noqa: PTH123
                csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    dist.barrier(group=host)
    sys.stdout.flush()
    os._exit(0)


# Two settings: memory, compute, clock, and lengths (0: the own sample; two: their difference).
Way = tuple[str, str, str, int | tuple[int, int]]
COMPARED: tuple[tuple[str, Way, Way], ...] = (
    ("own samples, layers", ("tool-1", "tool-layer", "events", 0),
     ("peer-1", "peer-layer", "host", 0)),
    ("clock", ("tool-4", "tool-layer", "events", TWO), ("tool-4", "tool-layer", "host", TWO)),
    ("clock and memory", ("tool-4", "tool-layer", "events", TWO),
     ("peer-4", "tool-layer", "host", TWO)),
    ("compute, layers", ("tool-4", "tool-layer", "events", TWO),
     ("tool-4", "peer-layer", "events", TWO)),
    ("compute, copies", ("tool-4", "tool-copy", "events", TWO),
     ("tool-4", "peer-copy", "events", TWO)),
    ("all, layers", ("tool-4", "tool-layer", "events", TWO), ("peer-4", "peer-layer", "host", TWO)),
    ("all, copies", ("tool-4", "tool-copy", "events", TWO), ("peer-4", "peer-copy", "host", TWO)),
)  # fmt: skip


def table(path: str) -> Iterator[str]:
    """Times by length, and ratios of what differs in one thing."""
    taken: dict[tuple[object, ...], dict[tuple[int, str, str], float]] = defaultdict(dict)
    with open(path) as file:  # noqa: PTH123
        for row in csv.DictReader(file):
            setting = row["memory"], row["compute"], row["clock"]
            found = int(row["length"]), row["part"], row["round"]
            taken[row["backend"], int(row["size_bytes"]), setting][found] = float(row["us"])

    def call_us(backend: str, size: int, way: Way) -> float:
        lengths, of = way[3], taken[backend, size, way[:3]]
        turns = sorted({turn for _, _, turn in of})
        if lengths == 0:
            return statistics.median(of[0, "call", turn] for turn in turns)
        ends = (0, lengths) if isinstance(lengths, int) else lengths

        def added(length: int, turn: str) -> float:
            return of[length, "with", turn] - of[length, "without", turn] if length else 0.0

        return statistics.median(
            (added(ends[1], turn) - added(ends[0], turn)) / (ends[1] - ends[0]) for turn in turns
        )

    pairs = sorted({(str(key[0]), int(str(key[1]))) for key in taken})
    yield f"{'backend':15}{'bytes':>8}" + "".join(f"{n:>8}" for n in LENGTHS)
    for backend, size in pairs:
        times = [call_us(backend, size, ("tool-1", "tool-layer", "events", n)) for n in LENGTHS]
        yield f"{backend:15}{size:>8}" + "".join(f"{us:8.2f}" for us in times)
    for what, first, second in COMPARED:
        ratios = [call_us(*pair, first) / call_us(*pair, second) for pair in pairs]
        near = sum(abs(ratio - 1) <= 0.03 for ratio in ratios)
        yield f"{what}: {near} of {len(pairs)}, {min(ratios):.3f} to {max(ratios):.3f}"


def main() -> None:
    """Measure, or compare."""
    if sys.argv[1] == "--table":
        print("\n".join(table(sys.argv[2])))
        return
    given = dict(enumerate(sys.argv))
    measure(sys.argv[1], float(given.get(2, SECONDS)), int(given.get(3, ROUNDS)))


if __name__ == "__main__":
    main()
