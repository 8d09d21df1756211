"""The classes of a replay plan, timed through torch.distributed: the peer of the replayer.

    mpirun -np 4 python benchmarks/gpu/torch_peer.py PLAN OUT.csv [SECONDS_PER_CLASS]

Same method as the replayer's `batch`: warm-up, then batches of back-to-back calls between two CUDA
events, a barrier before each batch, mean time per call of the slowest rank, median over batches.
Classes on all ranks only; SendRecv is a shift by one through batch_isend_irecv. AllReduce and
Broadcast have no out-of-place form in torch, so these classes are left out.
"""

from __future__ import annotations

import csv
import os
import statistics
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

DTYPES = {
    "Bfloat16": torch.bfloat16,
    "Float16": torch.float16,
    "Float32": torch.float32,
    "Uint8": torch.uint8,
}


def classes(path: str) -> list[dict[str, str]]:
    """The `class` statements of a plan as key=value pairs."""
    found = []
    with open(path) as plan:  # noqa: PTH123 - runs without the project's settings
        for line in plan:
            words = line.split("#")[0].split()
            if words and words[0] == "class":
                found.append({"id": words[1], **dict(w.split("=", 1) for w in words[2:])})
    return found


def call_of(cls: dict[str, str], memory: tuple[torch.Tensor, torch.Tensor]) -> Callable[[], object]:
    """A function that enqueues one call; `memory` is (send, recv) as bytes."""
    dtype = DTYPES[cls["datatype"]]
    world, rank = dist.get_world_size(), dist.get_rank()
    in_place = cls.get("in_place") == "1"
    item = torch.empty(0, dtype=dtype).element_size()
    count = int(cls["size_bytes"]) // item if cls["op"] == "SendRecv" else int(cls["count"])

    def part(which: int, n: int, offset: int = 0) -> torch.Tensor:
        return memory[which][offset * item : (offset + n) * item].view(dtype)

    gathered = part(1, count * world) if cls["op"] in ("AllGather", "AllToAll") else None
    if cls["op"] == "AllReduce":  # torch has it in place only
        data = part(0, count)
        return lambda: dist.all_reduce(data)
    if cls["op"] == "Broadcast":
        data = part(0, count)
        return lambda: dist.broadcast(data, int(cls["root"]))
    if cls["op"] == "AllGather":
        shard = part(1, count, rank * count) if in_place else part(0, count)
        return lambda: dist.all_gather_into_tensor(gathered, shard)
    if cls["op"] == "ReduceScatter":
        full = part(0, count * world)
        shard = part(0, count, rank * count) if in_place else part(1, count)
        return lambda: dist.reduce_scatter_tensor(shard, full)
    if cls["op"] == "AllToAll":
        blocks = part(0, count * world)
        return lambda: dist.all_to_all_single(gathered, blocks)
    send, recv = part(0, count), part(1, count)
    ops = [
        dist.P2POp(dist.isend, send, (rank + 1) % world),
        dist.P2POp(dist.irecv, recv, (rank - 1) % world),
    ]

    def shift() -> None:
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    return shift


def timed(call: Callable[[], object], iterations: int) -> float:
    """Microseconds per call of `iterations` back-to-back calls, slowest rank."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.barrier(device_ids=[torch.cuda.current_device()])
    torch.cuda.synchronize()
    start.record()
    for _ in range(iterations):
        call()
    stop.record()
    torch.cuda.synchronize()
    us = torch.tensor([start.elapsed_time(stop) * 1e3 / iterations], device="cuda")
    dist.all_reduce(us, op=dist.ReduceOp.MAX)
    return float(us.item())


def measure(call: Callable[[], object], budget: float) -> list[float]:
    """Samples of one class: microseconds per call."""
    timed(call, 3)
    estimate = timed(call, 5)
    # As the replayer: a batch lasts 5 ms or more, at most 21 batches, at least 5.
    per_batch = max(1, min(2000, int(5000 / estimate) + 1))
    batches = max(5, min(21, int(budget * 1e6 / (estimate * per_batch))))
    return [timed(call, per_batch) for _ in range(batches)]


def main() -> None:
    plan, out = sys.argv[1:3]
    budget = float(sys.argv[3]) if len(sys.argv) > 3 else 0.2
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", "0")))
    world = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=device)
    todo = classes(plan)
    largest = max(
        int(c["size_bytes"]) if "size_bytes" in c else
        int(c["count"]) * torch.empty(0, dtype=DTYPES[c["datatype"]]).element_size()
        * (1 if c["op"] in ("AllReduce", "Broadcast") else world)
        for c in todo
    )  # fmt: skip
    # Random bytes: links and memory are faster with zeros than with data.
    memory = (
        torch.randint(256, (largest,), dtype=torch.uint8, device=device),
        torch.randint(256, (largest,), dtype=torch.uint8, device=device),
    )
    rows = []
    for cls in todo:
        if cls["op"] in ("AllReduce", "Broadcast") and cls.get("in_place") != "1":
            continue
        samples = measure(call_of(cls, memory), budget)
        rows.append([cls["id"], cls["op"], statistics.median(samples), min(samples), len(samples)])
    if rank == 0:
        with open(out, "w", newline="") as file:  # noqa: PTH123
            writer = csv.writer(file)
            writer.writerow(["class_id", "op", "time_us_median", "time_us_min", "samples"])
            writer.writerows(rows)
        print("nccl", torch.cuda.nccl.version(), "torch", torch.__version__)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
