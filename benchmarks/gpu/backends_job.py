"""Decode steps with AllReduce by several backends: what a job wins beside what was predicted.

    torchrun --nproc-per-node 2 benchmarks/gpu/backends_job.py OUT [MODELS [SECONDS]]
    python benchmarks/gpu/backends_job.py --points [MODELS]    # what backends_worker.py measures

MODELS: KIND:HIDDEN_SIZE:LAYERS:DATATYPE:BATCHES, with spaces between. A layer of an `mlp` is two
matrix products and an AllReduce; one of a `llama` has also norm, attention over cached keys and a
second AllReduce. One CUDA graph a step; the backends take turns.
OUT/steps.csv: model, hidden size, layers, datatype, batch, bytes of an AllReduce, AllReduces a
step, backend, round, us a step on the slowest rank. `exam`, the half that is looked at last: odd
CRC-32 of MODEL.HIDDEN.BATCH.BACKEND.
OUT/MODEL.HIDDEN.BATCH.rankN.json: a trace of steps with NCCL (CUDA activities).
Jobs that do not begin within SECONDS are left out.
"""

from __future__ import annotations

import csv
import ctypes
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

MODELS = "mlp:4096:24:Bfloat16:1,8,32,64,128,256 mlp:8192:24:Bfloat16:1,8,32,64,128,256"
ROUNDS, LAUNCHES, HEAD = 15, 20, 128
ITEMSIZES = {"Bfloat16": 2, "Float16": 2, "Float32": 4}


class Model(NamedTuple):
    """What decodes."""

    kind: str
    hidden: int
    layers: int
    datatype: str

    @property
    def calls(self) -> int:
        """AllReduces a step."""
        return self.layers * (2 if self.kind == "llama" else 1)


def jobs_of(text: str) -> Iterator[tuple[Model, int, int]]:
    """Model, batch, bytes of an AllReduce."""
    for part in text.split():
        kind, hidden, layers, datatype, batches = part.split(":")
        model = Model(kind, int(hidden), int(layers), datatype)
        for batch in map(int, batches.split(",")):
            yield model, batch, batch * model.hidden * ITEMSIZES[datatype]


class Layers:
    """This rank's half of the layers."""

    def __init__(self, model: Model) -> None:
        """Random weights."""
        import torch

        self._model, self._torch = model, torch
        self.dtype = getattr(torch, model.datatype.lower())
        hidden, half = model.hidden, model.hidden // 2

        def weights(*shape: int) -> list[Any]:
            return [
                torch.randn(*shape, device="cuda", dtype=self.dtype) / 64
                for _ in range(model.layers)
            ]

        self._up, self._down = weights(hidden, half), weights(half, hidden)
        if model.kind == "llama":
            self._query, self._out = weights(hidden, half), weights(half, hidden)

    def tensor(self, *shape: int) -> Any:
        """Random values."""
        return self._torch.randn(*shape, device="cuda", dtype=self.dtype)

    def step(self, batch: int, data: Any, call: Callable[[], Any]) -> Callable[[], Any]:
        """A step of so many tokens; `call` gives the sum of `data` over the ranks."""
        torch, hidden = self._torch, self._model.hidden
        heads = hidden // 2 // HEAD
        x = self.tensor(batch, hidden)
        keys = max(64, min(512, 16384 // batch))
        cached = self.tensor(batch, heads, keys, HEAD) if self._model.kind == "llama" else None

        def run() -> Any:
            y = x
            for layer in range(self._model.layers):
                if cached is not None:
                    mixed = torch.nn.functional.rms_norm(y, (hidden,)) @ self._query[layer]
                    query = mixed.view(batch, heads, 1, HEAD)
                    mixed = torch.nn.functional.scaled_dot_product_attention(query, cached, cached)
                    torch.mm(mixed.reshape(batch, hidden // 2), self._out[layer], out=data)
                    y = y + call() * 0.01
                torch.mm(torch.nn.functional.silu(y @ self._up[layer]), self._down[layer], out=data)
                y = x + call() * 0.01
            return y

        return run


class Memory:
    """Bytes on the GPU that torch takes without a copy."""

    def __init__(self, address: int, size: int) -> None:
        """At an address."""
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "typestr": "|u1", "version": 2,
        }  # fmt: skip


def in_window(batch: int, hidden: int, dtype: Any) -> Any:
    """Memory in a symmetric window of NCCL's, without multicast."""
    import torch
    import torch.distributed as dist

    nccl = ctypes.CDLL("libnccl.so.2")
    size = batch * hidden * torch.empty(0, dtype=dtype).element_size()
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
    return data.view(dtype).view(batch, hidden)


def reducers(batch: int, hidden: int, dtype: Any) -> dict[str, tuple[Any, Callable[[], Any]]]:
    """By backend the tensor that is reduced, and the call, whose value is the result."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm

    group = dist.group.WORLD
    plain = torch.empty(batch, hidden, dtype=dtype, device="cuda")
    one, two = (symm.empty(batch, hidden, dtype=dtype, device="cuda") for _ in range(2))
    for tensor in (one, two):
        symm.rendezvous(tensor, group=group)
    window = in_window(batch, hidden, dtype)

    def by_nccl(data: Any) -> Callable[[], Any]:
        def call() -> Any:
            dist.all_reduce(data)
            return data

        return call

    name, ops = group.group_name, torch.ops.symm_mem
    return {
        "nccl": (plain, by_nccl(plain)),
        "nccl-window": (window, by_nccl(window)),
        "torch-one-shot": (one, lambda: ops.one_shot_all_reduce(one, "sum", name)),
        "torch-two-shot": (two, lambda: ops.two_shot_all_reduce_(two, "sum", name)),
    }


def graph_of(step: Callable[[], Any]) -> Any:
    """A step as a graph."""
    import torch

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


def step_us(graph: Any, host: Any) -> float:
    """Time of a step on the slowest rank."""
    import torch
    import torch.distributed as dist

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
    if sys.argv[1] == "--points":
        models = sys.argv[2] if len(sys.argv) > 2 else MODELS
        points = {(size, model.datatype) for model, _, size in jobs_of(models)}
        print(",".join(f"{size}:{datatype}" for size, datatype in sorted(points)))
        return
    out, began = Path(sys.argv[1]), time.monotonic()
    models = sys.argv[2] if len(sys.argv) > 2 else MODELS
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else float("inf")
    out.mkdir(parents=True, exist_ok=True)
    os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1")
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank = dist.get_rank()
    host = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
    dist.all_reduce(torch.ones(1, device="cuda"))  # NCCL connects
    rows: list[list[object]] = []
    kept: list[Any] = []  # memory of graphs, and memory that the other rank knows
    layers: dict[Model, Layers] = {}
    for model, batch, size in jobs_of(models):
        box = [time.monotonic() - began < seconds]
        dist.broadcast_object_list(box, src=0, group=host)
        if not box[0]:
            break
        if model not in layers:
            layers = {model: Layers(model)}
        how = reducers(batch, model.hidden, layers[model].dtype)
        steps = {name: layers[model].step(batch, *one) for name, one in how.items()}
        kept += [how, steps]
        graphs = {}
        for name, step in steps.items():
            try:
                graphs[name] = graph_of(step)
            except NotImplementedError as error:  # PyTorch's one-shot kernel has no float16
                print(f"{model} {name}: {error}", file=sys.stderr)
        rows += in_turns(graphs, host, [*model, batch, size, model.calls])
        with profile(activities=[ProfilerActivity.CUDA]) as recorded:
            for _ in range(8):
                graphs["nccl"].replay()
            torch.cuda.synchronize()
        name = f"{model.kind}.{model.hidden}.{batch}.rank{rank}.json"
        recorded.export_chrome_trace(str(out / name))
        if rank == 0:
            write(out / "steps.csv", rows)
    sys.stdout.flush()
    os._exit(0)


def in_turns(graphs: dict[str, Any], host: Any, head: list[Any]) -> list[list[object]]:
    """A row of each backend and round; each round begins with another backend."""
    names, rows = list(graphs), []
    for turn in range(ROUNDS):
        for place in range(len(names)):
            name = names[(place + turn) % len(names)]
            key = f"{head[0]}.{head[1]}.{head[4]}.{name}"
            exam = zlib.crc32(key.encode()) & 1
            rows.append([*head, name, exam, turn, step_us(graphs[name], host)])
    return rows


COLUMNS = (
    "model", "hidden", "layers", "datatype", "batch", "size_bytes", "calls", "backend", "exam",
    "round", "us",
)  # fmt: skip


def write(path: Path, rows: list[list[object]]) -> None:
    """All rows so far."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
