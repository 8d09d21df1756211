"""Collectives of many sizes in CUDA graphs: traces and NCCL's log, and what each launch contains.

    torchrun --nproc-per-node 2 benchmarks/gpu/job_sizes.py OUT [SECONDS]

Each job captures a graph of a step: matrix products, and collectives that differ in operation, size
and type, and launches it. By NCCL, and by the one-shot and two-shot kernels of PyTorch's symmetric
memory, at three batches; `two`: NCCL's graphs of two batches that are launched in turns.

OUT/JOB/capture.rankN.json: CPU and CUDA activities, with shapes, from before the capture. full: the
same from after it. light: CUDA activities alone, from after it. nccl.rankN.log: NCCL's log of calls
from before the capture (INIT, COLL; TUNING in jobs of the middle batch).
OUT/truth.jsonl, a line a job: collectives of a launch, in their order (operation, datatype, bytes
by nccl-tests' definition), and which graph each launch of a trace is. `exam`, the half that is
looked at last: odd CRC-32 of the name.
"""

from __future__ import annotations

import zlib

from job_ranks import run_jobs

BATCHES = (3, 40, 200)
BACKENDS = ("nccl", "oneshot", "twoshot")
LAUNCHES = 6


def jobs():
    """Name, backend, batches of the graphs."""
    for batch in BATCHES:
        for backend in BACKENDS:
            yield f"{backend}-b{batch}", backend, (batch,)
    yield "nccl-two", "nccl", (16, 48)
    yield "oneshot-two", "oneshot", (16, 48)


def plan(backend, batch):
    """Collectives of a step: operation, datatype, elements of the larger buffer."""
    one = [("AllReduce", "bfloat16", batch * 4096)] * 3
    if backend != "nccl":
        return [*one, ("AllReduce", "float32", batch * 1024), *one[:2]]
    return [
        *one,
        ("AllGather", "bfloat16", batch * 2048),
        ("ReduceScatter", "float32", batch * 1024),
        ("AllReduce", "float32", batch * 1024),
        one[0],
        ("Broadcast", "float16", batch * 512),
    ]


class Step:
    """A step that can be captured."""

    def __init__(self, torch, backend, batch, group):
        self._torch, self._group, self._backend = torch, group, backend
        self.plan = plan(backend, batch)
        self._x = torch.randn(batch, 4096, device="cuda", dtype=torch.bfloat16)
        self._w = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64
        self._data = [self._buffer(op, getattr(torch, kind), n) for op, kind, n in self.plan]

    def _buffer(self, op, dtype, count):
        torch = self._torch
        if self._backend == "nccl":
            half = torch.zeros(count // 2, device="cuda", dtype=dtype)
            return torch.zeros(count, device="cuda", dtype=dtype), half
        import torch.distributed._symmetric_memory as symm

        data = symm.empty(count, device="cuda", dtype=dtype)
        symm.rendezvous(data, group=torch.distributed.group.WORLD)
        return data.zero_(), None

    def run(self):
        torch = self._torch
        dist = torch.distributed
        for (op, _, _), (data, half) in zip(self.plan, self._data, strict=True):
            torch.mm(self._x, self._w)
            if self._backend == "oneshot":
                name = dist.group.WORLD.group_name
                torch.ops.symm_mem.one_shot_all_reduce(data, "sum", name)
            elif self._backend == "twoshot":
                name = dist.group.WORLD.group_name
                torch.ops.symm_mem.two_shot_all_reduce_(data, "sum", name)
            elif op == "AllReduce":
                dist.all_reduce(data, group=self._group)
            elif op == "AllGather":
                dist.all_gather_into_tensor(data, half, group=self._group)
            elif op == "ReduceScatter":
                dist.reduce_scatter_tensor(half, data, group=self._group)
            else:
                dist.broadcast(data, src=0, group=self._group)

    def graph(self):
        """A launch of the step."""
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.run()
        return graph


def run(ranks, name, backend, batches):
    """One job; its truth."""
    folder = ranks.out / name
    folder.mkdir(exist_ok=True)
    before = ranks.logged()
    group = ranks.dist.new_group(backend="nccl") if backend == "nccl" else None
    steps = [Step(ranks.torch, backend, batch, group) for batch in batches]
    for step in steps:
        step.run()
    ranks.together()
    graphs = []
    order = [number % len(steps) for number in range(LAUNCHES)]

    def replayed():
        for number in order:
            graphs[number].replay()

    def captured():
        graphs.extend(step.graph() for step in steps)
        replayed()

    ranks.record(folder, "capture", captured)
    after = ranks.logged()
    for style in ("full", "light"):
        ranks.record(folder, style, replayed)
    ranks.kept.append((steps, graphs))
    if backend == "nccl":
        without = None if batches == (BATCHES[1],) else b" -> Algo "
        ranks.keep_log(folder, before, after, without=without)
    return {
        "job": name,
        "exam": zlib.crc32(name.encode()) & 1,
        "graphs": [
            [(op, kind, n * (4 if kind == "float32" else 2)) for op, kind, n in step.plan]
            for step in steps
        ],
        "launches": order,
        "gpu": ranks.torch.cuda.get_device_name(),
    }


def runner(ranks):
    """What runs a job on these ranks."""
    return lambda job: run(ranks, *job)


if __name__ == "__main__":
    run_jobs(jobs(), runner)
