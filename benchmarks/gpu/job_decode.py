"""Inference jobs with tensor parallelism: traces, NCCL's log, and steps timed without the profiler.

    torchrun --nproc-per-node 2 benchmarks/gpu/job_decode.py OUT [SECONDS]

Two models of 24 layers: `mlp` (hidden size 8192, an AllReduce a layer) and `llama` (4096, attention
over cached keys, two AllReduces a layer). AllReduce by NCCL, or by one-shot and two-shot kernels of
PyTorch's symmetric memory. A job decodes in a CUDA graph a step (`graph`), without one (`eager`),
or alternates prompts without and decoding steps with a graph, marked as vLLM marks them (`serve`).
`late`: rank 1 does one more matrix product in each layer. Jobs that do not begin within SECONDS are
left out.

OUT/JOB/light.rankN.json: CUDA activities. full: the CPU's too, with shapes. capture: a recording
that holds the capture of the graph. nccl.rankN.log: what NCCL's log has of this job.
OUT/truth.jsonl, a line a job: step_ms, three means by the host's clock without the profiler;
between_ms, the median from launch to launch by events; profiled_ms, of the recorded steps by the
host's clock; prompt_ms; extra_ms, what is planted a step; size_bytes of each AllReduce.
`exam`: the half (odd CRC-32 of the name) that is looked at only to judge.
"""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from job_ranks import Ranks, run_jobs

LAYERS, CACHED, PROMPT = 24, 1024, 2048
STEPS = 8  # recorded
HIDDEN = {"mlp": 8192, "llama": 4096}


class Job(NamedTuple):
    """What runs."""

    model: str
    mode: str
    backend: str
    batch: int
    late: bool = False

    @property
    def name(self) -> str:
        """As folders are called."""
        late = "-late" if self.late else ""
        return f"{self.model}-{self.mode}-{self.backend}-b{self.batch}{late}"


def jobs() -> list[Job]:
    """All of them; the first ones are of every kind."""
    models, backends = ("mlp", "llama"), ("nccl", "oneshot", "twoshot")
    found = []
    for batch in (32, 256, 1):
        found += [Job(m, "graph", b, batch) for m in models for b in backends]
    found += [Job(m, "graph", b, 64, late=True) for m in models for b in backends]
    found += [Job(m, "eager", b, 64) for m in models for b in ("nccl", "twoshot")]
    found += [Job(m, "serve", b, 128) for m in models for b in ("nccl", "oneshot")]
    for batch in (8, 64, 128):
        found += [Job(m, "graph", b, batch) for m in models for b in backends]
    found += [Job(m, "graph", b, 8, late=True) for m in models for b in backends]
    found += [Job(m, "serve", b, 16) for m in models for b in ("nccl", "oneshot")]
    return found + [
        Job(m, "eager", b, batch) for batch in (1, 256) for m in models for b in ("nccl", "twoshot")
    ]


class Model:
    """One rank's half of the layers."""

    def __init__(self, torch: Any, kind: str) -> None:
        self._torch, self._kind = torch, kind
        self._cache: dict[int, Any] = {}
        width = HIDDEN[kind]
        half = width // 2

        def weight(rows: int, columns: int) -> Any:
            made = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
            return made / rows**0.5

        self._up = [weight(width, half) for _ in range(LAYERS)]
        self._down = [weight(half, width) for _ in range(LAYERS)]
        self._extra = weight(2048, 2048)
        if kind == "llama":
            self._query = [weight(width, half) for _ in range(LAYERS)]
            self._out = [weight(half, width) for _ in range(LAYERS)]

    def step(self, x: Any, reduce: Any, *, late: bool) -> Any:
        """A step on `x`: tokens by hidden size. reduce(make): the sum of what make(out) writes."""
        torch = self._torch
        for layer in range(LAYERS):
            if self._kind == "llama":
                mixed = self._attention(torch.nn.functional.rms_norm(x, x.shape[-1:]), layer)
                x = x + reduce(mixed, self._out[layer])
            y = torch.nn.functional.silu(x @ self._up[layer])
            if late:
                torch.mm(self._extra, self._extra)
            x = x + reduce(y, self._down[layer]) * 0.01
        return x

    def extra(self) -> None:
        """What a late rank does a layer."""
        self._torch.mm(self._extra, self._extra)

    def _attention(self, x: Any, layer: int) -> Any:
        torch, tokens = self._torch, x.shape[0]
        query = (x @ self._query[layer]).view(tokens, 16, 1, 128)
        if tokens not in self._cache:
            keys = min(CACHED, 64 * 1024 // tokens)
            self._cache[tokens] = torch.randn(tokens, 16, keys, 128, device="cuda", dtype=x.dtype)
        cache = self._cache[tokens]
        made = torch.nn.functional.scaled_dot_product_attention(query, cache, cache)
        return made.reshape(tokens, 2048)


def reducer(ranks: Ranks, job: Job, tokens: int) -> Callable[[Any, Any], Any]:
    """What multiplies and sums over the ranks, for so many tokens."""
    torch, dist, width = ranks.torch, ranks.dist, HIDDEN[job.model]
    if job.backend == "nccl":
        group = dist.new_group(backend="nccl")  # each its own communicator: its part of the log
        data = torch.empty(tokens, width, device="cuda", dtype=torch.bfloat16)

        def nccl(x: Any, weight: Any) -> Any:
            torch.mm(x, weight, out=data)
            dist.all_reduce(data, group=group)
            return data

        return nccl
    import torch.distributed._symmetric_memory as symm

    name, ops = dist.group.WORLD.group_name, torch.ops.symm_mem
    data = symm.empty(tokens, width, device="cuda", dtype=torch.bfloat16)
    ranks.kept.append(data)
    symm.rendezvous(data, group=dist.group.WORLD)

    def symmetric(x: Any, weight: Any) -> Any:
        torch.mm(x, weight, out=data)
        if job.backend == "oneshot":
            return ops.one_shot_all_reduce(data, "sum", name)
        ops.two_shot_all_reduce_(data, "sum", name)
        return data

    return symmetric


class Running(NamedTuple):
    """What one step is."""

    decode: Callable[[], None]
    prompt: Callable[[], None] | None
    capture: Callable[[], Callable[[], None]]  # a graph of a step, made anew


def prepare(ranks: Ranks, model: Model, job: Job) -> Running:
    """Everything up to the first step."""
    torch = ranks.torch
    width, late = HIDDEN[job.model], job.late and ranks.rank == 1
    x = torch.randn(job.batch, width, device="cuda", dtype=torch.bfloat16)
    reduce = reducer(ranks, job, job.batch)

    def eager() -> None:
        model.step(x, reduce, late=late)

    def capture() -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            eager()
        return graph.replay

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            eager()
    torch.cuda.current_stream().wait_stream(side)
    ranks.together()
    if job.mode == "eager":
        return Running(eager, None, capture)
    if job.mode == "graph":
        return Running(capture(), None, capture)
    long = torch.randn(PROMPT, width, device="cuda", dtype=torch.bfloat16)
    of_prompt = reducer(ranks, job, PROMPT)

    def prompt() -> None:
        model.step(long, of_prompt, late=late)

    return Running(capture(), prompt, capture)


def mean_ms(ranks: Ranks, step: Callable[[], None], steps: int) -> float:
    """Mean of so many steps by the host's clock."""
    ranks.together()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    ranks.torch.cuda.synchronize()
    return round((time.perf_counter() - begin) * 1e3 / steps, 5)


def between_ms(ranks: Ranks, step: Callable[[], None], steps: int) -> float:
    """Median from launch to launch by events."""
    events = [ranks.torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    ranks.together()
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    ranks.torch.cuda.synchronize()
    spans = [a.elapsed_time(b) for a, b in pairwise(events[2:])]
    return round(statistics.median(spans), 5)


def served(ranks: Ranks, job: Job, running: Running) -> None:
    """Prompts and decoding steps, each marked."""
    mark = ranks.torch.profiler.record_function
    for _ in range(2):
        with mark(f"execute_context_1({PROMPT})_generation_0(0)"):
            running.prompt and running.prompt()
        for _ in range(STEPS):
            with mark(f"execute_context_0(0)_generation_{job.batch}({job.batch})"):
                running.decode()


def run(ranks: Ranks, model: Model, job: Job) -> dict[str, Any]:
    """One job, with its truth."""
    folder = ranks.out / job.name
    folder.mkdir(parents=True, exist_ok=True)
    before = ranks.logged()
    running = prepare(ranks, model, job)
    captured = ranks.logged()
    steps = 12 if job.mode == "eager" else 50
    for _ in range(5):
        running.decode()
    truth: dict[str, Any] = {
        "job": job.name,
        **job._asdict(),
        "hidden": HIDDEN[job.model],
        "layers": LAYERS,
        "size_bytes": job.batch * HIDDEN[job.model] * 2,
        "allreduces": LAYERS * (2 if job.model == "llama" else 1),
        "exam": bool(zlib.crc32(job.name.encode()) & 1),
        "steps": STEPS,
        "step_ms": [mean_ms(ranks, running.decode, steps) for _ in range(3)],
        "between_ms": between_ms(ranks, running.decode, steps),
        "gpu": ranks.torch.cuda.get_device_name(),
    }
    if job.late:
        truth["extra_ms"] = round(mean_ms(ranks, model.extra, 100) * LAYERS, 5)
    work = lambda: [running.decode() for _ in range(STEPS)] and None  # noqa: E731
    if running.prompt:
        running.prompt()
        truth["prompt_ms"] = [mean_ms(ranks, running.prompt, 5) for _ in range(3)]
        work = lambda: served(ranks, job, running)  # noqa: E731
    took = {style: ranks.record(folder, style, work) for style in ("light", "full")}
    if job.mode != "serve":
        truth["profiled_ms"] = {style: round(ms / STEPS, 5) for style, ms in took.items()}
    if job.mode == "graph" and job.batch == 32:

        def captured_too() -> None:
            replay = running.capture()
            for _ in range(STEPS):
                replay()

        ranks.record(folder, "capture", captured_too)
    end = ranks.logged() if job.mode == "eager" else captured
    if job.backend == "nccl":
        ranks.keep_log(folder, before, end)
    ranks.together()
    return truth


def runner(ranks: Ranks) -> Callable[[Job], dict[str, Any]]:
    """What runs a job on these ranks; the models are made once."""
    models = {kind: Model(ranks.torch, kind) for kind in HIDDEN}
    return lambda job: run(ranks, models[job.model], job)


if __name__ == "__main__":
    run_jobs(jobs(), runner)
