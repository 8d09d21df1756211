"""Causes of slowness switched on and off inside running jobs, recorded for `benchmarks/causes.py`.

    python benchmarks/gpu/job_causes_paired.py OUT [--set first|p|..] [--only JOB,JOB] [--seconds N]

The jobs are others than those of job_causes.py: other models, sizes, amounts and guilty ranks. A
start of a job is one process a GPU, each on cores of its own; a cause of the environment has
processes of its own beside them. They take turns: those that wait do nothing.

A start first fits the amounts (`SCALED`): three times at most, until a cause costs 10 to 40 % of a
step. Then it times every cause, `ROUNDS` times `TIMED` steps, between as many steps without a cause
before and after. Then it records light traces of all cases (CUDA activities alone), then full ones
(the CPU's as well) of every second case: the profiler's remains slow what follows.

OUT gets truth.jsonl, and NAME.1.tar for each case with the traces and NCCL's logs of both ranks.
job_causes_paired.sh packs them.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import signal
import statistics
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NamedTuple

import job_causes
import job_causes_large  # noqa: F401 - registers its jobs
import job_causes_loops  # noqa: F401 - registers its jobs
import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.nn.functional as F
import torch.profiler
from job_causes import CAUSES, Cause, burn_cores, burn_gpu, child, record
from job_causes_models import OWN_MODEL, Step, build
from torch import nn

WORLD = job_causes.WORLD
ROUNDS, TIMED, WARM = 7, 6, 2
_EVERY = 3  # steps, for what happens now and then
_ANSWER = 45  # seconds
_CORES = sorted(os.sched_getaffinity(0))
_REST = _CORES[-max(1, len(_CORES) // 4) :]  # for all that is no rank
BUSY_CORES = _REST[-2:]
LATE = ("late_host",)
NEW_CAUSES = {
    "sleep_layers": Cause(codes=LATE),  # a short stall in every layer
    "spin_one": Cause(codes=LATE),  # Python code instead of sleep
    "loader": Cause(codes=(*LATE, "host_bound")),  # batches come late
    "loader_some": Cause(codes=(*LATE, "host_bound", "periodic")),  # one batch of three
    "uneven": Cause(codes=("uneven_work",)),  # longer sequences or more pictures
    "anomaly": Cause(codes=("blocking_sync", "host_bound")),  # set_detect_anomaly
    "synced": Cause(codes=("blocking_sync", "host_bound")),  # waits for the GPU before each layer
    "sleep_one_layer": Cause(codes=LATE),
    "sleep_backward": Cause(codes=LATE),
    "sleep_after": Cause(codes=LATE),  # between the optimizer and zero_grad
    "work_backward": Cause(codes=("extra_work",)),
    "uneven_some": Cause(codes=("uneven_work", "periodic")),  # one batch of three
    "evaluation_one": Cause(codes=("extra_work", "periodic")),  # one rank, every third step
    "item_layers": Cause(codes=("blocking_sync", "host_bound")),  # a mean is read in every layer
    "barriers": Cause(codes=("blocking_sync", "small_calls", "host_bound")),  # in every layer
    "per_parameter": Cause(codes=("small_calls", "no_overlap")),  # an AllReduce a gradient
    "sleep_some": Cause(codes=(*LATE, "periodic")),  # every third step
    "saved": Cause(codes=("slow_transfer", "blocking_sync")),  # activations wait on the host
    "fetched": Cause(codes=("slow_transfer", "blocking_sync")),  # outputs go to pageable memory
    "sleep_in_turns": Cause(codes=LATE),  # one rank, then the other
    "gil": Cause(codes=(*LATE, "host_bound")),  # a thread of the same process runs Python code
    "metrics_cpu": Cause(codes=("blocking_sync", *LATE)),  # scores are read and sorted on the host
    "augment": Cause(codes=("extra_work",)),  # pictures are blurred on the GPU
    "side_work": Cause(codes=("extra_work", "slow_gpu")),  # on another stream, beside the training
    "objects": Cause(codes=("small_calls", "blocking_sync", "host_bound")),  # all_gather_object
    "timed_step": Cause(codes=("blocking_sync", "host_bound")),  # each step ends when its GPU does
    # Healthy:
    "coalesced": Cause(),  # the gradients that its optimizer would reduce one by one, in one call
    "clipped": Cause(),  # gradients are clipped, and the loss is read
    "norm_read": Cause(),  # gradients are clipped, and their norm is read
    "long_sometimes": Cause(),  # one batch of three is half as long again, on all ranks
    "evaluation": Cause(),  # a forward pass more after every third step
    "logged": Cause(),  # the loss is read in every third step
    "metrics": Cause(),  # one small AllReduce a step, which nobody waits for
    "average": Cause(),  # an average of the parameters is kept
    "pinned": Cause(),  # a copy from pinned memory, which nobody waits for
    "prefetched": Cause(),  # batches of a loader that is fast enough
}
# Causes of the environment: (what stands in truth.jsonl, variables).
ENV: dict[str, tuple[Cause, dict[str, str]]] = {
    "ll": (CAUSES["ll"], {"NCCL_PROTO": "LL"}),
    "one_channel": (CAUSES["one_channel"], {"NCCL_MAX_CTAS": "1"}),
    "two_channels": (CAUSES["one_channel"], {"NCCL_MAX_CTAS": "2"}),
    "shm": (CAUSES["shm"], {"NCCL_P2P_DISABLE": "1"}),
    "launch_blocking": (CAUSES["launch_blocking"], {"CUDA_LAUNCH_BLOCKING": "1"}),
    "blocking_wait": (CAUSES["blocking_wait"], {"TORCH_NCCL_BLOCKING_WAIT": "1"}),
    "tree": (CAUSES["tree"], CAUSES["tree"].env),
    "few_threads": (CAUSES["one_channel"], {"NCCL_NTHREADS": "64"}),
    "cross_nic": (CAUSES["none"], {"NCCL_CROSS_NIC": "0"}),  # harmless: there is one node
    "no_peers": (CAUSES["shm"], {"NCCL_P2P_LEVEL": "LOC"}),
    "small_buffer": (CAUSES["one_channel"], {"NCCL_BUFFSIZE": "65536"}),
    "detail": (
        CAUSES["debug"], {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "ERROR"},
    ),
}  # fmt: skip
# JOB: CAUSE[:guilty rank, or *[:amount]]. Amounts are milliseconds, matrices, calls, MB, steps,
# percent of a batch, thousands of objects, or how much a router prefers.
SETS = {
    "first": {
        "bert": "none sleep_one:0:9 loader:1:70 more_work:0:8 norms_all allocator:0"
        " slow_kernels:1:6",
        "tp": "none long_batch sleep_one:0:7 scalars:*:80 slow_kernels:1:10 pageable:*:48 ll shm",
        "llama": "none sleep_middle:0:25 busy_cores:0 more_work:0:16 neighbour:0"
        " uneven_in_turns:*:25 scalars:*:24 two_channels",
        "tiny": "none sleep_one:0:6 busy_cores:1 norms_all small_buckets:*:0.05 unused spin_one:1:4"
        " launch_blocking",
        "gpipe": "none bubble sleep_one:1:20",
        "moe": "none experts:1:0.7 spin_one:0:10",
        "gpt": "none clipped sleep_layers:1:0.9 sleep_all:*:6 long_sequences:0:25"
        " small_buckets:*:2 checkpoint:0:3 norms_one:1 one_bucket ll",
        "ulysses": "none sleep_middle:1:8 more_work:1:6 allocator:1 ll",
        "resnet": "none long_sequences:0:25 garbage:0:60 neighbour:1 sleep_all:*:12",
    },
    "p": {
        "vit": "none sleep_one:1:25 uneven:0:25 more_work:1:24 ll",
        "dlrm": "none loader_some:0:90 pageable:0:36 scalars:*:40 neighbour:0 shm blocking_wait",
        "convnext": "none sleep_layers:0:1 garbage:1:60 anomaly long_sometimes",
        "t5": "none sleep_middle:1:20 norms_one:0 one_bucket checkpoint:1:3 evaluation ll",
        "effnet": "none spin_one:0:8 busy_cores:1:2 unused norms_all launch_blocking",
        "accum": "none more_work:0:30 sleep_all:*:20 norm_read one_channel",
        "interleaved": "none bubble sleep_one:0:20",
    },
    "q": {
        "graph": "none sleep_one:1:12 more_work:0:28 loader_some:1:100 neighbour:0",
        "mistral": "none sleep_layers:1:6 pageable:1:64 uneven_in_turns:*:20 norm_read ll",
        "whisper": "none spin_one:0:20 slow_kernels:1:16 scalars:*:56 evaluation blocking_wait"
        " two_channels",
        "unet": "none checkpoint:0:2 uneven:0:20 small_buckets:*:0.2 more_work:1:20 allocator:1",
        "localsgd": "none neighbour:1 loader:0:55 synced ll shm",
        "mixture": "none experts:0:0.5 sleep_middle:1:15 garbage:1:80",
        "mamba": "none sleep_all:*:9 norms_one:1 unused detail",
    },
    # Jobs of the sets before, with other causes.
    "r": {
        "graph": "none spin_one:0:10 scalars:*:40 garbage:1:60 pageable:0:36 ll",
        "mistral": "none sleep_one:0:15 more_work:1:30 norms_one:0 uneven:1:20 one_channel",
        "whisper": "none loader:0:80 neighbour:0 sleep_middle:1:12 norms_all shm",
        "unet": "none sleep_all:*:15 spin_one:1:12 scalars:*:48 loader_some:0:120 ll",
        "localsgd": "none more_work:0:30 sleep_one:1:10 two_channels launch_blocking",
        "mixture": "none scalars:*:32 uneven:1:20 sleep_one:0:8 evaluation",
        "dlrm": "none more_work:1:16 sleep_middle:1:6 norms_one:0 checkpoint:1:3 one_channel",
    },
    "s": {
        "clip": "none sleep_backward:1:12 work_backward:0:24 prefetched ll",
        "gan": "none sleep_after:0:10 uneven:1:25 fetched:*:48 pinned launch_blocking",
        "distill": "none evaluation_one:1 sleep_one_layer:0:12 per_parameter average one_channel",
        "diffusion": "none neighbour:1 pageable:0:36 garbage:0:60 long_sometimes blocking_wait",
        "context": "none sleep_layers:0:2 slow_kernels:1:10 barriers norm_read no_peers",
        "fsdp1": "none sleep_middle:1:15 uneven_some:0:60 norms_one:1 evaluation small_buffer",
        "gru": "none sleep_one:1:4 norms_all logged busy_cores:0:2",
    },
    "t": {
        "messages": "none uneven:1:25 sleep_backward:0:8 scalars:*:40 long_batch",
        "rollout": "none sleep_some:0:60 slow_kernels:1:10 saved:0:2 norms_one:1 metrics tree",
        "sequence": "none sleep_one_layer:1:10 work_backward:0:24 neighbour:0 prefetched ll",
        "qwen": "none sleep_all:*:20 loader_some:1:90 small_buckets:*:0.1 evaluation detail",
        "onef1b": "none bubble sleep_after:1:12 fetched:1:48 blocking_wait",
        "muon": "none uneven_some:1:60 checkpoint:0:3 one_bucket average allocator:1 no_peers",
        "swin": "none spin_one:1:10 item_layers per_parameter pinned",
    },
    # Jobs of S and T, with other causes.
    "u": {
        "clip": "none sleep_layers:0:4 scalars:*:60 shm",
        "gan": "none uneven_some:0:75 pageable:1:24 tree",
        "diffusion": "none sleep_after:1:10 uneven:0:25 allocator:0 launch_blocking",
        "context": "none garbage:1:60 anomaly blocking_wait",
        "fsdp1": "none loader:0:50 fetched:1:48 ll",
        "messages": "none neighbour:0 sleep_some:1:100 metrics no_peers",
        "rollout": "none sleep_one_layer:1:1.5 more_work:0:24 logged one_channel",
        "qwen": "none slow_kernels:0:30 uneven_in_turns:*:20 long_batch small_buffer",
        "muon": "none work_backward:1:25 evaluation_one:0 sleep_all:*:16 two_channels",
        "swin": "none sleep_one:0:10 checkpoint:1:3 unused clipped",
    },
    # Large kernels: the GPUs are the limit.
    "v": {
        "segment": "none sleep_layers:0:5 uneven:1:25 augment:0:12 checkpoint:1:3 no_peers",
        "recommend": "none metrics_cpu:0:150 neighbour:1 loader_some:0:90 timed_step ll",
        "lora": "none gil:1:20 norms_one:0 slow_kernels:1:10 evaluation launch_blocking",
        "megatron": "none work_backward:0:24 sleep_one_layer:1:30 item_layers:0 long_batch"
        " few_threads",
        "video": "none uneven_some:1:75 fetched:0:64 spin_one:0:25 side_work:1:16 logged",
        "zero2": "none sleep_in_turns:*:50 objects:*:4 norm_read cross_nic",
        "distopt": "none allocator evaluation_one:1 sleep_after:0:25 scalars:*:40 one_channel",
    },
    # What 48 small AllReduces a step cost `sequence`.
    "coalesced": {"sequence": "none coalesced"},
}
# Causes whose amount is fitted.
SCALED = (
    "sleep_one", "sleep_all", "sleep_middle", "sleep_layers", "spin_one", "loader", "loader_some",
    "more_work", "slow_kernels", "pageable", "scalars", "uneven", "uneven_in_turns", "garbage",
    "experts", "sleep_one_layer", "sleep_backward", "sleep_after", "work_backward", "uneven_some",
    "fetched", "sleep_some", "saved", "sleep_in_turns", "gil", "metrics_cpu", "augment",
    "side_work", "objects",
)  # fmt: skip


class Case(NamedTuple):
    """A cause that is planted in one job."""

    name: str
    rank: int | None  # None: all
    amount: float

    @property
    def cause(self) -> Cause:
        if self.name in ENV:
            return ENV[self.name][0]
        known = NEW_CAUSES.get(self.name) or CAUSES[self.name]
        return known._replace(ranks=() if self.rank is None else (self.rank,))

    @property
    def env(self) -> dict[str, str]:
        return ENV[self.name][1] if self.name in ENV else {}


NOTHING = Case("none", None, 0)


def cases(text: str) -> list[Case]:
    """The cases of a job."""

    def read(word: str) -> Case:
        parts = word.split(":")
        name, rank, amount = (*parts, *("", "*", "1")[len(parts) :])
        return Case(name, None if rank == "*" else int(rank), float(amount))

    return [read(word) for word in text.split()]


def cores_of(rank: int) -> set[int]:
    """The cores of a rank."""
    share = max(1, len(_CORES) * 3 // 4 // WORLD)
    return set(_CORES[rank * share : (rank + 1) * share])


class Slow(torch.utils.data.IterableDataset):
    """Batches that take a worker process some milliseconds each, or one of `every`."""

    def __init__(self, ms: float, every: int) -> None:
        self.ms, self.every = ms, every

    def __iter__(self):
        number = 0
        while True:
            number += 1
            if number % self.every == 1 % self.every:
                time.sleep(self.ms / 1e3)
            yield torch.zeros(64)


def local(tensor: Any) -> torch.Tensor:
    """The part of a sharded tensor that this rank has."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def spin(ms: float) -> None:
    """Run Python code for some milliseconds."""
    end = time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pass


def gradients(parameters: list[nn.Parameter]) -> list[torch.Tensor]:
    """The gradients that there are."""
    return [p.grad for p in parameters if p.grad is not None]


def reduce_once(parameters: list[nn.Parameter]) -> None:
    """Add up in one call what each rank has a summand of (DTensor: `Partial`).

    Otherwise AdamW reduces each of these gradients three times, once for each use: under
    `SequenceParallel`, the weights and biases of all norms have such gradients.
    """
    from torch.distributed.tensor import DTensor, Replicate

    parts = [p for p in parameters if p.grad.placements[0].is_partial()]
    flat = torch.cat([p.grad.to_local().flatten() for p in parts])
    dist.all_reduce(flat)
    for p, piece in zip(parts, flat.split([p.numel() for p in parts]), strict=True):
        p.grad = DTensor.from_local(piece.view(p.shape), p.grad.device_mesh, [Replicate()])


class Planted:
    """What a rank does in a step besides training, by the present case."""

    def __init__(self, rank: int, device: torch.device) -> None:
        self.rank, self.device, self.case, self.step = rank, device, NOTHING, 0
        size = 4096 if device.type == "cuda" else 64
        self.matrix = torch.randn(size, size, device=device, dtype=torch.bfloat16)
        self.single = self.matrix[: size // 2, : size // 2].float().contiguous()
        self.small = torch.zeros(1, device=device)
        self.metrics = torch.zeros(16, device=device)
        self.scores = self.pictures = self.small
        self.side: torch.cuda.Stream | None = None
        self.is_cuda = device.type == "cuda"
        self.pageable = torch.empty(0, dtype=torch.uint8)
        self.average: list[torch.Tensor] = []
        self.garbage: list[Any] = []
        self.batches: Any = None
        self.cores = os.sched_getaffinity(0)
        self.neighbour = int(os.environ.get("NEIGHBOUR", "0"))

    def is_on(self, *names: str) -> bool:
        """Whether this rank has one of some causes."""
        return self.case.name in names and self.case.rank in (None, self.rank)

    def switch(self, case: Case) -> None:
        """Plant another case."""
        if self.is_on("neighbour"):
            os.kill(self.neighbour, signal.SIGSTOP)
        if self.is_on("busy_cores"):
            self._run_on(self.cores)
        self.batches, self.garbage, self.average = None, [], []
        self.case, self.step = case, 0
        torch.autograd.set_detect_anomaly(self.is_on("anomaly"))
        if self.is_on("garbage"):
            self.garbage = [{"k": [i]} for i in range(int(case.amount * 1000))]
        if self.is_on("loader", "loader_some", "prefetched"):
            slow = Slow(case.amount, _EVERY if case.name == "loader_some" else 1)
            self.batches = iter(
                torch.utils.data.DataLoader(slow, batch_size=None, num_workers=1, prefetch_factor=1)
            )
        self._make_tensors()
        if self.is_on("busy_cores"):
            self._run_on(set(BUSY_CORES[-int(case.amount) :]))
        if self.is_on("neighbour"):
            os.kill(self.neighbour, signal.SIGCONT)

    def _make_tensors(self) -> None:
        """What a case copies or computes on."""
        if self.is_on("pageable"):
            self.pageable = torch.zeros(int(self.case.amount * 2**20), dtype=torch.uint8)
        if self.is_on("pinned"):
            self.pageable = torch.zeros(24 << 20, dtype=torch.uint8)
            self.pageable = self.pageable.pin_memory() if self.is_cuda else self.pageable
        if self.is_on("fetched"):
            self.pageable = torch.zeros(
                int(self.case.amount * 2**20), dtype=torch.uint8, device=self.device
            )
        if self.is_on("metrics_cpu"):
            self.scores = torch.sin(torch.arange(self.case.amount * 1000, device=self.device))
        if self.is_on("augment"):
            shape = (24, 3, 512, 512) if self.is_cuda else (2, 3, 8, 8)
            self.pictures = torch.ones(shape, device=self.device)
        if self.is_on("side_work") and self.is_cuda and self.side is None:
            self.side = torch.cuda.Stream()

    def _run_on(self, cores: set[int]) -> None:
        for task in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cores)

    def now(self, every: int) -> bool:
        """Whether this step is one of those with something more: the second of three traced."""
        return self.step % every == 1 % every

    def share(self, count: int) -> int:
        """How much of something this rank has in this step."""
        more = round(count * self.case.amount / 100)
        if self.is_on("long_batch"):
            return count + count // 2
        if self.is_on("long_sometimes"):
            return count + (count // 2 if self.now(_EVERY) else 0)
        if self.is_on("long_sequences", "uneven") or (
            self.is_on("uneven_some") and self.now(_EVERY)
        ):
            return count + more
        if self.case.name == "uneven_in_turns":
            return count + more * (1 if (self.step + self.rank) % 2 else -1)
        return count

    def evaluates(self) -> bool:
        """Whether an evaluation follows this step."""
        return self.is_on("evaluation", "evaluation_one") and self.now(_EVERY)

    def reads_loss(self) -> bool:
        """Whether the host reads the loss of this step."""
        return self.is_on("clipped") or (self.is_on("logged") and self.now(_EVERY))

    def route(self, _module: object, _inputs: object, found: torch.Tensor) -> torch.Tensor | None:
        """Let a router prefer the experts of one rank."""
        if self.case.name != "experts" or self.case.rank is None:
            return None
        each = found.shape[-1] // WORLD
        more = torch.zeros(found.shape[-1], device=found.device, dtype=found.dtype)
        more[self.case.rank * each : (self.case.rank + 1) * each] = self.case.amount
        return found + more

    def begin(self) -> None:
        """What comes before the forward pass."""
        self.step += 1
        if self.is_on("sleep_one", "sleep_all") or (self.is_on("sleep_some") and self.now(_EVERY)):
            time.sleep(self.case.amount / 1e3)
        if self.case.name == "sleep_in_turns" and (self.step + self.rank) % 2:
            time.sleep(self.case.amount / 1e3)
        if self.is_on("spin_one"):
            spin(self.case.amount)
        if self.is_on("gil"):
            threading.Thread(target=spin, args=(self.case.amount,)).start()
        if self.is_on("garbage"):
            gc.collect()
        if self.is_on("loader", "loader_some", "prefetched"):
            next(self.batches)
        if self.is_on("more_work", "slow_kernels"):
            factor = self.matrix if self.case.name == "more_work" else self.single
            for _ in range(int(self.case.amount)):
                torch.mm(factor, factor)
        self._beside()
        if self.is_on("pageable", "pinned"):
            self.pageable.to(self.device, non_blocking=self.case.name == "pinned")

    def _beside(self) -> None:
        """Work of one GPU that is no training."""
        if self.is_on("augment"):
            for _ in range(int(self.case.amount)):
                blurred = F.avg_pool2d(self.pictures, 5, 1, 2)
                blurred.mul_(1.1).clamp_(0, 1)
        if self.is_on("side_work"):
            if self.side:  # it begins with the step, and nobody waits for it
                self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side) if self.side else nullcontext():
                for _ in range(int(self.case.amount)):
                    torch.mm(self.matrix, self.matrix)

    def layer(self, _module: object, inputs: tuple[Any, ...]) -> None:
        """What comes before each layer."""
        if self.is_on("item_layers"):
            inputs[0].detach().mean().item()
        if self.is_on("barriers"):
            dist.barrier()
        if self.is_on("sleep_layers"):
            time.sleep(self.case.amount / 1e3)
        if self.is_on("synced") and self.is_cuda:
            torch.cuda.synchronize()

    def one_layer(self, *_: object) -> None:
        """What comes before one particular layer."""
        if self.is_on("sleep_one_layer"):
            time.sleep(self.case.amount / 1e3)

    def backward(self, _gradient: torch.Tensor) -> None:
        """What comes in the middle of the backward pass."""
        if self.is_on("sleep_backward"):
            time.sleep(self.case.amount / 1e3)
        if self.is_on("work_backward"):
            for _ in range(int(self.case.amount)):
                torch.mm(self.matrix, self.matrix)

    def saving(self) -> AbstractContextManager[object]:
        """Keeps so many large activations of a forward pass in pageable memory."""
        if not self.is_on("saved"):
            return nullcontext()
        left = math.ceil(self.case.amount)

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal left
            if not left or tensor.dim() != 3 or not 2**20 <= tensor.numel() < 2**23:
                return tensor
            left -= 1
            return tensor.cpu()

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.to(self.device))

    def middle(self) -> None:
        """What comes between the forward and the backward pass."""
        if self.is_on("sleep_middle"):
            time.sleep(self.case.amount / 1e3)
        if self.is_on("allocator"):
            torch.cuda.empty_cache()

    def end(self, parameters: list[nn.Parameter]) -> None:
        """What comes after the backward pass, before the optimizer."""

        if self.is_on("norms_one", "norms_all"):
            for gradient in gradients(parameters):
                local(gradient).float().norm().item()
        self._reduce(parameters)
        if self.is_on("coalesced"):
            reduce_once(parameters)
        if self.is_on("clipped", "norm_read"):
            norm = nn.utils.clip_grad_norm_(parameters, 1.0)
            if self.is_on("norm_read"):
                (norm.full_tensor() if hasattr(norm, "full_tensor") else norm).item()
        if self.case.name == "checkpoint" and self.now(int(self.case.amount)):
            if self.is_on("checkpoint"):
                for parameter in parameters:
                    local(parameter.data).cpu()
            dist.barrier()

    def _reduce(self, parameters: list[nn.Parameter]) -> None:
        if self.is_on("scalars"):
            for _ in range(int(self.case.amount)):
                dist.all_reduce(self.small)
                self.small.item()
        if self.is_on("per_parameter"):
            for gradient in gradients(parameters):
                dist.all_reduce(gradient)

    def after(self, parameters: list[nn.Parameter]) -> None:
        """What comes between the optimizer and `zero_grad`."""
        if self.is_on("sleep_after"):
            time.sleep(self.case.amount / 1e3)
        if self.is_on("fetched"):
            self.pageable.cpu()
        if self.is_on("metrics_cpu"):
            self.scores.cpu().sort()
        if self.is_on("objects"):
            found: list[Any] = [None] * WORLD
            for _ in range(int(self.case.amount)):
                dist.all_gather_object(found, {"rank": self.rank, "step": self.step})
        if self.is_on("metrics"):
            dist.all_reduce(self.metrics)
        if self.is_on("average"):
            present = [p.detach() for p in parameters]
            if not self.average:
                self.average = [p.clone() for p in present]
            torch._foreach_lerp_(self.average, present, 0.001)
        if self.is_on("timed_step") and self.is_cuda:
            torch.cuda.synchronize()


class Running:
    """A job in one process, whose cause can be changed."""

    def __init__(self, job: str, rank: int, folder: Path) -> None:
        import job_models as models

        self.on_gpu, self.job, self.rank, self.folder = models.GPU, job, rank, folder
        self.planted = Planted(rank, models.DEVICE)
        self.models: dict[Case, Step] = {}

    def switch(self, case: Case) -> Step:
        """The step of a case, warm."""
        key = case if case.name in OWN_MODEL else NOTHING
        if key not in self.models:
            torch.manual_seed(0)
            self.models[key] = build(self.job, self.planted, key)
            for _ in range(4):
                self.models[key]()
            gc.collect()
            gc.freeze()  # collections look only at what follows
        if case != self.planted.case:
            self.planted.switch(case)
        for _ in range(WARM):
            self.models[key]()
        return self.models[key]

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def timed(self, case: Case) -> float:
        """Milliseconds a step of a case, without the profiler."""
        step = self.switch(case)
        self.synchronize()
        begin = time.perf_counter()
        for _ in range(TIMED):
            step()
        self.synchronize()
        return (time.perf_counter() - begin) * 1e3 / TIMED

    def traced(self, case: Case, style: str) -> None:
        """A trace of a case."""
        path = self.folder / f"{case.name}.{style}.rank{self.rank}.json"
        record(self.switch(case), path, cpu=style == "full" or not self.on_gpu)


class FailedError(Exception):
    """A process ended or did not answer."""


class Team:
    """The processes of one job in one environment; they do what they are asked to."""

    def __init__(self, job: str, name: str, folder: Path, port: int, env: dict[str, str]) -> None:
        self.name, self.log = name, folder / f"log.{name}.txt"
        shared = {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORLD),
            # Without COLL, whose lines would slow the host.
            "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,P2P,SHM,NET",
            "NCCL_DEBUG_FILE": str(folder / f"nccl.{name}.%h.%p.log"), **env,
        }  # fmt: skip
        self.pids: list[int] = []
        self.pipes: list[Any] = []
        for rank in range(WORLD):
            ours, theirs = Pipe()
            own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            self.pids.append(
                child(lambda r=rank, pipe=theirs: _serve(job, r, folder, pipe), own, self.log)
            )
            self.pipes.append(ours)

    def ask(self, what: str, *arguments: object) -> list[Any]:
        """What each rank answers."""
        give_up = time.monotonic() + _ANSWER
        answers = []
        try:
            for pipe in self.pipes:
                pipe.send((what, *arguments))
            for pipe in self.pipes:
                while not pipe.poll(0.2):
                    if self._has_ended() or time.monotonic() > give_up:
                        raise FailedError
                answers.append(pipe.recv())
        except (OSError, EOFError, FailedError):
            raise FailedError(f"{self.name} {what} {arguments}") from None
        return answers

    def _has_ended(self) -> bool:
        ended = [pid for pid in self.pids if os.waitpid(pid, os.WNOHANG)[0]]
        self.pids = [pid for pid in self.pids if pid not in ended]
        return bool(ended)

    def timed(self, case: Case) -> float:
        """Milliseconds a step: the mean of the ranks."""
        return statistics.mean(self.ask("timed", case))

    def kill(self) -> None:
        """End all processes."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.pids = []


def _serve(job: str, rank: int, folder: Path, pipe: Any) -> None:
    """One process of a team."""
    os.sched_setaffinity(0, cores_of(rank))
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    else:
        dist.init_process_group("gloo")
    running = Running(job, rank, folder)
    while True:
        what, *arguments = pipe.recv()
        pipe.send(getattr(running, what)(*arguments))


class Measured(NamedTuple):
    """What was measured of a case: its amount may be another than the one asked for."""

    case: Case
    usual: list[float]
    steps: list[float]
    styles: list[str]


class Start:
    """One start of a job: its processes, and what was measured so far."""

    def __init__(self, job: str, given: Sequence[Case], folder: Path, port: int) -> None:
        self.job, self.folder = job, folder
        folder.mkdir(parents=True)
        self.others = []
        for case in given:
            if case.name == "busy_cores":
                log = folder / "log.busy.txt"
                self.others += [child(lambda c=c: burn_cores({c}), {}, log) for c in BUSY_CORES]
            if case.name == "neighbour":
                log = folder / "log.neighbour.txt"
                pid = child(lambda gpu=case.rank: burn_gpu(gpu), {}, log)
                time.sleep(5)  # until it has its own context
                os.kill(pid, signal.SIGSTOP)
                os.environ["NEIGHBOUR"] = str(pid)
                self.others.append(pid)
        names = ["base", *(case.name for case in given if case.env)]
        envs = [{}, *(case.env for case in given if case.env)]
        self.teams = {
            name: Team(job, name, folder, port + number, env)
            for number, (name, env) in enumerate(zip(names, envs, strict=True))
        }
        self.measured = {case.name: Measured(case, [], [], []) for case in given}

    def each(self, do: Callable[[Team, Measured], None], what: str) -> None:
        """Do something for each case; a case whose processes failed is left out from then on."""
        for name, measured in list(self.measured.items()):
            team = self.teams.get(name, self.teams["base"])
            try:
                do(team, measured)
            except FailedError as failed:
                print(self.job, "FAILED while", what, failed, flush=True)
                print(team.log.read_text(errors="replace")[-2500:], flush=True)
                team.kill()
                if team is self.teams["base"]:
                    raise
                del self.measured[name], self.teams[name]

    def fit(self, team: Team, measured: Measured) -> None:
        """Warm a case up, with an amount that costs 10 to 40 % of a step."""
        case = measured.case
        if case.name not in SCALED:
            team.ask("timed", case)
            return
        usual = team.timed(NOTHING)
        for _ in range(3):
            cost = team.timed(case) / usual - 1
            if 0.1 <= cost <= 0.4:
                break
            factor = min(2.5, max(0.4, 0.22 / max(cost, 0.01)))
            amount = case.amount * factor
            if case.name == "uneven_in_turns":
                amount = min(amount, 80)  # the other rank has so much less
            case = case._replace(amount=float(f"{amount:.2g}" if amount < 10 else round(amount)))
        self.measured[case.name] = measured._replace(case=case)

    def turn(self) -> None:
        """Time each case once, between steps without a cause."""
        usual = [self.teams["base"].timed(NOTHING)]

        def once(team: Team, measured: Measured) -> None:
            step = team.timed(measured.case)
            usual.append(self.teams["base"].timed(NOTHING))
            measured.steps.append(round(step, 3))
            measured.usual.append(round(statistics.mean(usual[-2:]), 3))

        self.each(once, "timing")

    def trace(self, style: str, numbers: Callable[[str], int], end: float) -> None:
        """Record each case, or every second."""

        def once(team: Team, measured: Measured) -> None:
            if time.monotonic() > end:
                print(f"{self.job}-{measured.case.name}: no time, not {style}", flush=True)
            elif style == "light" or numbers(measured.case.name) % 2 == 0:
                if measured.case.env:  # what the base had last may go on while it waits
                    self.teams["base"].timed(NOTHING)
                team.ask("traced", measured.case, style)
                measured.styles.append(style)

        self.each(once, f"tracing, {style}")

    def run(self, numbers: Callable[[str], int], give_up: float, end: float) -> str | None:
        """Measure and trace; the case that ended it, if any.

        numbers  of the cases in their set
        give_up  when no more is timed
        end      when nothing more is traced
        """
        try:
            begin = time.monotonic()
            self.each(self.fit, "warming up")
            fitted = time.monotonic()
            for number in range(ROUNDS):
                if number >= 5 and time.monotonic() > give_up:
                    print(self.job, "timed", number, "times only", flush=True)
                    break
                self.turn()
            timed = time.monotonic()
            self.trace("light", numbers, end)
            self.trace("full", numbers, end)
            parts = fitted - begin, timed - fitted, time.monotonic() - timed
            print(self.job, "fitted, timed, traced in", *(f"{p:.1f} s" for p in parts), flush=True)
        except FailedError as failed:
            return str(failed)
        finally:
            for team in self.teams.values():
                team.kill()
            for pid in self.others:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return None

    def keep(self, out: Path) -> list[str]:
        """Write an archive and a line of truth for each case that has a trace; their names."""
        kept = []
        for name, (case, usual, steps, styles) in self.measured.items():
            if not styles or not steps:
                continue
            row = {
                "case": f"{self.job}-{name}", "start": 1, "job": self.job, "planted": name,
                "codes": case.cause.codes, "ranks": case.cause.ranks, "env": case.env,
                "amount": case.amount, "step_ms": steps, "usual_ms": usual,
            }  # fmt: skip
            team = name if case.env else "base"
            with tarfile.open(out / f"{self.job}-{name}.1.tar", "w") as archive:
                for path in sorted(self.folder.glob(f"{name}.*.json")):
                    if path.name.split(".")[1] in styles:
                        archive.add(path, path.name.removeprefix(f"{name}."))
                for path in sorted(self.folder.glob(f"nccl.{team}.*")):
                    archive.add(path, path.name.replace(f"{team}.", "", 1))
            with (out / "truth.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            cost, error = median_and_error([s - u for s, u in zip(steps, usual, strict=True)])
            step = statistics.median(usual)
            print(
                f"{row['case']}: {cost:+.2f} ms +- {error:.2f} of {step:.1f}"
                f" ({100 * cost / step:+.1f} %), amount {case.amount:g}, {styles}", flush=True,
            )  # fmt: skip
            kept.append(name)
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()
        return kept


def median_and_error(values: list[float]) -> tuple[float, float]:
    """The median, and its standard error from the median distance to it."""
    middle = statistics.median(values)
    spread = statistics.median(abs(v - middle) for v in values)
    return middle, 1.2533 * 1.4826 * spread / math.sqrt(len(values))


def main() -> None:
    """Record what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--set", choices=SETS, default="first")
    parser.add_argument("--only", default="", help="jobs, with commas between")
    parser.add_argument("--seconds", type=float, default=420, help="to end about then")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, _REST)
    began = time.monotonic()
    with suppress(ImportError):  # once for all processes; jobs that need them fail without
        importlib.import_module("torchvision.models")
        for model in ("bert", "llama", "mistral", "qwen2", "t5"):
            importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    jobs = {
        job: cases(text)
        for job, text in SETS[given.set].items()
        if not given.only or job in given.only.split(",")
    }
    order = [f"{job}-{case.name}" for job, every in jobs.items() for case in every]
    left = len(order)
    port = 29500
    for job, every in jobs.items():
        begin = time.monotonic()
        share = (given.seconds - (begin - began)) * len(every) / left
        left -= len(every)
        todo = list(every)
        for attempt in range(2):
            if not todo or time.monotonic() - began > given.seconds - 20 * (attempt + 1):
                break
            port += 20
            start = Start(job, todo, given.out / f"{job}.{port}", port)
            # A third of a job's time is for its traces; a quarter more may be taken from the rest.
            failed = start.run(
                lambda name, job=job: order.index(f"{job}-{name}"),
                begin + 0.62 * share,
                min(begin + 1.25 * share, began + given.seconds),
            )
            kept = start.keep(given.out)
            if failed is None:
                todo = []
                break
            # Once more with what is left, without the cause that failed.
            todo = [
                c for c in todo
                if c.name not in kept and (c.name == "none" or f"name='{c.name}'" not in failed)
            ]  # fmt: skip
        for case in todo:
            print("NOT RECORDED", f"{job}-{case.name}", flush=True)
        print(f"{job}: {len(every)} cases, {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
