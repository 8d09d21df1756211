"""AllReduce by several backends in CUDA graphs, in turns; `collscope bench backends` starts it.

    torchrun --standalone --nproc-per-node 2 --max-restarts 8 backends_worker.py \\
        --points 8192:Bfloat16,65536:Bfloat16 --csv rows.csv

It needs PyTorch alone and imports nothing of collscope: copied to another machine it runs there.
Its rows are a replay CSV (schemas/replay-csv.md) with a label for each backend.

A sample is what a call adds on the slowest rank to a graph in which each call follows compute.
Calls that follow each other alone would show launches that a job's compute hides (3 to 5 us of
NCCL's on two H100), and data that stay in the cache. What a call adds depends on the compute, so
there are three kinds: a layer of a model, whose second matrix product writes the data and whose
next work reads the result; a matrix product and a copy, each followed by zeros for data. All of
them read more than the L2 cache holds, but for layers of short rows (2 KiB and less). The rows
behind a layer have the label's own name, the others also `behind-KIND`. The backends take turns, so
that drift meets all of them. A row holds all samples of a launch: launches differ by more than
samples, so start it several times, with --round 1 --append and so on. Before and after its samples
each backend's result is compared with the expected sum, element by element, in a graph. A backend
that cannot run leaves a row with the reason. One that hangs or ends the process is left out after
torchrun's restart, and in further launches.

NVLink multicast stays off, in NCCL too, but with --multimem.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import functools
import importlib
import io
import itertools
import json
import os
import re
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TORCH_NAMES = {"Bfloat16": "bfloat16", "Float16": "float16", "Float32": "float32"}
COLUMNS = (
    "op", "datatype", "redop", "root", "count", "size_bytes", "in_place", "nranks", "nnodes",
    "calls", "time_us_median", "time_us_min", "time_us_max", "time_us_mad", "iterations",
    "algbw_gbps", "busbw_gbps", "n_wrong", "method", "backend", "library", "device", "host",
    "status", "class_id", "shape", "comms", "checked", "label", "round", "scaled_from", "message",
    "samples_us",
)  # fmt: skip
METHOD = (
    "Graphs of {calls} calls, each behind compute, and graphs of this compute alone, between two"
    " events, launched until {target_ms:g} ms have passed or more; a sample is what a call adds on"
    " the slowest rank; backends and three kinds of compute take turns."
)
_CALLS = 20  # of a graph: many more than the microseconds that its launch takes
_TARGET_MS = 5.0  # of a sample
_MOST_LAUNCHES = 20  # of a graph in a sample
_TOKENS = 16  # rows of a matrix product that writes no data, as few as a decode step has
_HIDDEN_SIZE = 4096  # of a layer, at most; it has as many tokens as fill the data
_LEAST_HIDDEN_SIZE = 128
_CACHES = 1.25  # of the L2 cache are what a product or a copy reads
_LAYER_CACHES = 4  # are the weights of all layers
_LEAST_CACHE = 50 << 20  # bytes of it, where its size is not known
LAYER, PRODUCT, COPY = "layer", "product", "copy"  # kinds of compute; rows of the first are plain
BEHIND = "behind-"  # and a kind of compute other than a layer: a word of the label
_EXACT = 256  # whole numbers to which a bfloat16 is exact
_MULTICAST_OFF = {
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
}
_SYMMETRIC_WINDOW = 1  # NCCL_WIN_COLL_SYMMETRIC of nccl.h
_RESTART = 75  # exit status of a rank whose backend hangs: torchrun starts all ranks again
_LINE = 300  # characters of a message
_LEFT_OUT = "left out: "
_HIDDEN = "its time is less than what the compute beside it differs by"
SHARED = ", shared by ranks"  # behind the name of a GPU that several ranks share


class RefusedError(Exception):
    """A backend that cannot do this here; the text is the reason."""


class Point(NamedTuple):
    """What is reduced."""

    size_bytes: int
    datatype: str  # a key of TORCH_NAMES


class Prepared(NamedTuple):
    """A backend's call at one point."""

    data: Any  # tensor that the ranks fill
    call: Callable[[], Any]  # gives the result
    library: str
    in_place: bool = False
    capture: Callable[[], Any] = contextlib.nullcontext  # around the capture of a graph


# What runs before a call, and what runs on its result.
Compute = tuple[Callable[[], object], Callable[[Any], object]]
# By kind of compute: what launches the graph that is timed, and what of it is not the call's.
Launches = dict[str, tuple[Callable[[], None], ...]]


def _behind(compute: Compute, call: Callable[[], Any]) -> None:
    before, after = compute
    before()
    after(call())


def _launch(launch: Callable[[], None], _of: Callable[[], None]) -> None:
    """Launch a graph; `_of`, what was captured, has the memory that the graph uses."""
    launch()


def _nothing(_result: object) -> None:
    pass


def _powers_of_two(most: int) -> Iterator[int]:
    """Falling.

    >>> list(_powers_of_two(8))
    [8, 4, 2, 1]
    """
    while most:
        yield most
        most //= 2


class _Ranks:
    """What the processes agree on, through the host alone."""

    def __init__(self, torch: Any, timeout_s: float) -> None:  # noqa: ANN401
        from datetime import timedelta  # noqa: PLC0415

        self._torch, self._dist = torch, torch.distributed
        self.rank, self.world = self._dist.get_rank(), self._dist.get_world_size()
        # Longer than a backend may take: it is the deadline that ends one that hangs.
        self.group = self._dist.new_group(
            backend="gloo", timeout=timedelta(seconds=3 * timeout_s + 60)
        )

    def barrier(self) -> None:
        """All ranks come here."""
        self._dist.barrier(group=self.group)

    def slowest(self, value: float) -> float:
        """The largest of the ranks' values."""
        return self._reduce(value, self._dist.ReduceOp.MAX)

    def total(self, value: float) -> float:
        """Their sum."""
        return self._reduce(value, self._dist.ReduceOp.SUM)

    def first(self, value: Any) -> Any:  # noqa: ANN401
        """What rank 0 has."""
        box = [value]
        self._dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def agree(self, problem: str | None) -> None:
        """raises  RefusedError on all ranks when one has a problem."""
        problems: list[str | None] = [None] * self.world
        self._dist.all_gather_object(problems, problem, group=self.group)
        found = [(rank, text) for rank, text in enumerate(problems) if text]
        if found:
            rank, text = found[0]
            raise RefusedError(text if len(found) == self.world else f"rank {rank}: {text}")

    def _reduce(self, value: float, how: Any) -> float:  # noqa: ANN401
        box = self._torch.tensor([value], dtype=self._torch.float64)
        self._dist.all_reduce(box, op=how, group=self.group)
        return float(box.item())


class _Gpu:
    """Graphs and times on this rank's GPU."""

    backend = "cuda"
    method = "graph"

    def __init__(self, torch: Any, local_rank: int, local_ranks: int) -> None:  # noqa: ANN401
        self._torch, gpus = torch, torch.cuda.device_count()
        torch.cuda.set_device(local_rank % gpus)  # ranks may share a GPU, through MPS
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.name = torch.cuda.get_device_name() + (SHARED if gpus < local_ranks else "")
        self.runtime = f"cuda {torch.version.cuda}" if torch.version.cuda else "hip"
        cache = getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", 0)
        self._cache = max(int(cache), _LEAST_CACHE)
        self._kept: dict[object, Any] = {}  # operands of compute

    def synchronize(self) -> None:
        """Wait for all work, and raise what went wrong in it."""
        self._torch.cuda.synchronize()

    def timed(self, prepared: Prepared, calls: int) -> Launches:
        """What launches a graph of so many calls behind each compute, and of this compute alone."""
        found: Launches = {}
        for kind, make in ((LAYER, self._layer), (PRODUCT, self._product), (COPY, self._copy)):
            compute = make(prepared.data)
            how = (
                functools.partial(_behind, compute, prepared.call),
                functools.partial(_behind, compute, lambda: prepared.data),
            )
            for one in how:  # libraries make handles, which no capture allows
                one()
            self.synchronize()
            made = [(self.graph(prepared._replace(call=one), calls)[0], one) for one in how]
            found[kind] = tuple(functools.partial(_launch, *one) for one in made)
        return found

    def _layer(self, data: Any) -> Compute:  # noqa: ANN401
        """Two matrix products, which write the data, and a sum with the result."""
        torch, count = self._torch, data.numel()
        width = next((n for n in _powers_of_two(_HIDDEN_SIZE) if count % n == 0), 0)
        if width < _LEAST_HIDDEN_SIZE:  # no layer makes such data
            return self._product(data)
        shape, made = (count // width, width), {"dtype": data.dtype, "device": self.device}

        def weights() -> list[tuple[Any, Any]]:
            layers = -(-self._cache * _LAYER_CACHES // (width * width * data.element_size()))
            half = width // 2
            return [
                (torch.randn(width, half, **made) / 64, torch.randn(half, width, **made) / 64)
                for _ in range(layers)
            ]

        layers = itertools.cycle(self._once(("layer", width, data.dtype), weights))
        x, between = torch.randn(*shape, **made), torch.empty(shape[0], width // 2, **made)
        after = torch.empty(*shape, **made)

        def before() -> None:
            first, second = next(layers)
            torch.mm(x, first, out=between)
            torch.nn.functional.silu(between, inplace=True)
            torch.mm(between, second, out=data.view(shape))

        return before, lambda result: torch.add(x, result.view(shape), alpha=0.01, out=after)

    def _product(self, data: Any) -> Compute:  # noqa: ANN401
        """A matrix product, and zeros: sums of zeros stay numbers, however often they are made."""
        torch = self._torch

        def operands() -> tuple[Any, Any, Any]:
            width = int((self._cache * _CACHES / 2) ** 0.5) // 256 * 256 + 256
            made = {"dtype": torch.bfloat16, "device": self.device}
            return (
                torch.randn(_TOKENS, width, **made),
                torch.randn(width, width, **made),
                torch.empty(_TOKENS, width, **made),
            )

        tokens, weights, result = self._once("product", operands)

        def before() -> None:
            torch.mm(tokens, weights, out=result)
            data.zero_()

        return before, _nothing

    def _copy(self, data: Any) -> Compute:  # noqa: ANN401
        """A copy, and zeros."""
        torch, size = self._torch, int(self._cache * _CACHES)
        source, target = self._once(
            "copy",
            lambda: [torch.zeros(size, dtype=torch.uint8, device=self.device) for _ in range(2)],
        )

        def before() -> None:
            target.copy_(source)
            data.zero_()

        return before, _nothing

    def _once(self, key: object, make: Callable[[], Any]) -> Any:  # noqa: ANN401
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def graph(self, prepared: Prepared, calls: int) -> tuple[Callable[[], None], Any]:
        """What launches a graph of so many calls, and the result of its last one."""
        graph, result = self._torch.cuda.CUDAGraph(), None
        # NCCL's watchdog may ask for events meanwhile: only this thread's calls must fit a capture.
        with (
            prepared.capture(),
            self._torch.cuda.graph(graph, capture_error_mode="thread_local"),
        ):
            for _ in range(calls):
                result = prepared.call()
        return graph.replay, result

    def elapsed_us(self, launch: Callable[[], None], launches: int) -> float:
        """Time of so many launches, behind one that brings the ranks together."""
        start, stop = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        launch()
        start.record()
        for _ in range(launches):
            launch()
        stop.record()
        self.synchronize()
        return float(start.elapsed_time(stop)) * 1e3


class _Processor:
    """The same without a GPU, and so without graphs: it tests, and times nothing that matters."""

    backend = "host"
    method = "batch"
    name = "processor"
    runtime = ""

    def __init__(self, torch: Any) -> None:  # noqa: ANN401
        self.device = torch.device("cpu")

    def synchronize(self) -> None:
        """Nothing runs on."""

    def timed(self, prepared: Prepared, calls: int) -> Launches:
        """What makes so many calls: the processor has no launches to hide."""
        launch, _ = self.graph(prepared, calls)
        prepared.data.zero_()
        return {LAYER: (launch,)}

    def graph(self, prepared: Prepared, calls: int) -> tuple[Callable[[], None], Any]:
        """What makes so many calls, and a tensor that holds the result of the last one."""
        with prepared.capture():
            result = prepared.call().clone()

        def launch() -> None:
            for _ in range(calls):
                last = prepared.call()
            result.copy_(last)

        return launch, result

    def elapsed_us(self, launch: Callable[[], None], launches: int) -> float:
        """Time of so many launches, behind one that brings the ranks together."""
        launch()
        start = time.perf_counter()
        for _ in range(launches):
            launch()
        return (time.perf_counter() - start) * 1e6


class Job(NamedTuple):
    """What a backend is made with."""

    torch: Any
    ranks: _Ranks
    machine: _Gpu | _Processor
    opened: dict[str, Any]  # what backends keep from one point to the next

    def dtype(self, point: Point) -> Any:  # noqa: ANN401
        """Torch's datatype."""
        return getattr(self.torch, TORCH_NAMES[point.datatype])

    def count(self, point: Point) -> int:
        """Elements."""
        item = self.torch.empty(0, dtype=self.dtype(point)).element_size()
        return max(1, point.size_bytes // int(item))

    def empty(self, point: Point) -> Any:  # noqa: ANN401
        """A tensor of ordinary memory."""
        return self.torch.empty(
            self.count(point), dtype=self.dtype(point), device=self.machine.device
        )

    def once(self, name: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401
        """What `make` gives or raises; it is called once."""
        if name not in self.opened:
            try:
                self.opened[name] = make()
            except Exception as error:  # a backend's own: its row has it
                self.opened[name] = error
        found = self.opened[name]
        if isinstance(found, Exception):
            raise found
        return found

    def imported(self, *names: str) -> Any:  # noqa: ANN401
        """The first of these modules that is installed.

        raises  RefusedError when none is
        """
        problem = ""
        for name in names:
            try:
                return importlib.import_module(name)
            except ImportError as error:  # noqa: PERF203 - one or two modules
                problem = problem or f"not installed: {one_line(error)}"
        raise RefusedError(problem)


# Backends. Each gives its call at a point, or raises what keeps it from that.


def library_call(job: Job, point: Point) -> Prepared:
    """NCCL or RCCL (gloo without a GPU) as torch.distributed calls it."""
    data = job.empty(point)
    return Prepared(data, functools.partial(_reduced, job, data), _library(job), in_place=True)


def window(job: Job, point: Point) -> Prepared:
    """NCCL, on memory that is registered as a symmetric window.

    source  ncclMemAlloc, ncclCommWindowRegister of nccl.h (NCCL 2.27 and later). Torch's own
            allocator for this needs multicast, which NCCL does not.
    """
    library = _nccl()
    if not hasattr(library, "ncclCommWindowRegister"):
        raise RefusedError("this NCCL has no ncclCommWindowRegister: 2.27 and later have it")
    group = job.torch.distributed.group.WORLD._get_backend(job.machine.device)
    itemsize = job.torch.empty(0, dtype=job.dtype(point)).element_size()
    size = job.count(point) * int(itemsize)
    memory, found = ctypes.c_void_p(), ctypes.c_void_p()
    _require(library.ncclMemAlloc(ctypes.byref(memory), ctypes.c_size_t(size)), "ncclMemAlloc")
    status = library.ncclCommWindowRegister(
        ctypes.c_void_p(group._comm_ptr()), memory, ctypes.c_size_t(size), ctypes.byref(found),
        _SYMMETRIC_WINDOW,
    )  # fmt: skip
    _require(status, "ncclCommWindowRegister")
    if not found.value:
        raise RefusedError("NCCL registers no window here")
    data = job.torch.as_tensor(_Memory(memory.value or 0, size), device=job.machine.device)
    data = data.view(job.dtype(point))
    return Prepared(data, functools.partial(_reduced, job, data), _library(job), in_place=True)


class _Memory:
    """Bytes on the GPU that torch takes without a copy; they stay until the process ends."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "typestr": "|u1", "version": 2,
        }  # fmt: skip


def _require(status: int, function: str) -> None:
    if status:
        raise RefusedError(f"{function}: NCCL's error {status}")


def _reduced(job: Job, data: Any) -> Any:  # noqa: ANN401
    job.torch.distributed.all_reduce(data)
    return data


def _library(job: Job) -> str:
    if job.machine.backend == "host":
        return "gloo"
    name = "rccl" if job.torch.version.hip else "nccl"
    return f"{name} {'.'.join(str(n) for n in _nccl_version(job))}"


def _nccl_version(job: Job) -> tuple[int, ...]:
    """Of the library that is loaded: torch's own number is that of its build."""
    number = ctypes.c_int()
    try:
        _nccl().ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return tuple(job.torch.cuda.nccl.version())
    code = number.value  # 23007: 2.30.7
    return code // 10000, code % 10000 // 100, code % 100


def _nccl() -> ctypes.CDLL:
    """The library that this process has loaded."""
    loaded = ctypes.CDLL(None)
    return loaded if hasattr(loaded, "ncclGetVersion") else ctypes.CDLL("libnccl.so.2")


def symmetric(name: str, job: Job, point: Point) -> Prepared:
    """An AllReduce of torch's symmetric memory.

    name  one_shot_all_reduce, out of place; two_shot_all_reduce_, multimem_all_reduce_, in place
    """
    if job.machine.backend == "host":
        raise RefusedError("symmetric memory needs a GPU")
    if name.startswith("multimem") and os.environ.get("TORCH_SYMM_MEM_DISABLE_MULTICAST") == "1":
        raise RefusedError("TORCH_SYMM_MEM_DISABLE_MULTICAST is set here")
    memory = importlib.import_module("torch.distributed._symmetric_memory")
    world = job.torch.distributed.group.WORLD
    data = memory.empty(job.count(point), dtype=job.dtype(point), device=job.machine.device)
    memory.rendezvous(data, group=world)
    call = getattr(job.torch.ops.symm_mem, name)
    made = functools.partial(call, data, "sum", world.group_name)
    return Prepared(data, made, f"torch {job.torch.__version__}", in_place=name.endswith("_"))


def custom(package: str, job: Job, point: Point) -> Prepared:
    """vLLM's or SGLang's all-reduce, through the class that their engines use.

    source  vllm-project/vllm vllm/distributed/device_communicators/custom_all_reduce.py;
            sgl-project/sglang python/sglang/srt/distributed/device_communicators, files
            custom_all_reduce.py and custom_all_reduce_v2.py
    """
    made = job.once(package, functools.partial(_open_custom, package, job))
    data = job.empty(point)
    if not made.should_custom_ar(data):
        raise RefusedError(f"{package} leaves this size to another backend")
    version = getattr(job.imported(package), "__version__", "")
    call = functools.partial(made.custom_all_reduce, data)
    return Prepared(data, call, f"{package} {version}".strip(), capture=made.capture)


def _open_custom(package: str, job: Job) -> Any:  # noqa: ANN401
    if package == "vllm":
        place = "vllm.distributed.device_communicators."
        found = job.imported(f"{place}custom_all_reduce").CustomAllreduce
    else:
        place = "sglang.srt.distributed.device_communicators."
        module = job.imported(f"{place}custom_all_reduce_v2", f"{place}custom_all_reduce")
        found = getattr(module, "CustomAllReduceV2", None) or module.CustomAllreduce
    made = found(group=job.ranks.group, device=job.machine.device)
    if hasattr(made, "finalize_p2p"):  # vLLM of 2026 looks for peer access there
        made.finalize_p2p()
    if made.disabled:
        raise RefusedError(f"{package} disables it here: see its log")
    return made


def flashinfer(job: Job, point: Point) -> Prepared:
    """FlashInfer's kernels of TensorRT-LLM, all-reduce alone.

    source  flashinfer-ai/flashinfer flashinfer/comm/trtllm_ar.py. Its workspace is symmetric memory
            of torch, without multicast; the unified interface may choose a backend that needs that.
    """
    comm = job.imported("flashinfer.comm")
    data = job.empty(point)
    count = job.count(point)
    hidden = next((n for n in (8192, 4096, 2048, 1024) if count % n == 0), count)
    tokens = count // hidden
    ranks = job.ranks
    _, workspace = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(
        ranks.rank, ranks.world, tokens, hidden, group=job.torch.distributed.group.WORLD,
        use_fp32_lamport=point.datatype == "Float32",
    )  # fmt: skip
    result = job.torch.empty_like(data)
    none = dict.fromkeys((
        "residual_in", "residual_out", "norm_out", "quant_out", "scale_out", "rms_gamma", "rms_eps",
        "scale_factor", "layout_code",
    ))  # fmt: skip

    def call() -> Any:  # noqa: ANN401
        comm.trtllm_allreduce_fusion(
            allreduce_in=data, world_size=ranks.world, world_rank=ranks.rank, token_num=tokens,
            hidden_dim=hidden, workspace_ptrs=workspace, launch_with_pdl=False,
            trigger_completion_at_end=True, fp32_acc=False,
            # Two shots take more tokens than ranks.
            use_oneshot=None if tokens > ranks.world else True,
            pattern_code=comm.AllReduceFusionPattern.kAllReduce, allreduce_out=result, **none,
        )  # fmt: skip
        return result

    version = getattr(job.imported("flashinfer"), "__version__", "")
    return Prepared(data, call, f"flashinfer {version}".strip())


Backend = Callable[[Job, Point], Prepared]
_SYMMETRIC: dict[str, Backend] = {
    "torch-one-shot": functools.partial(symmetric, "one_shot_all_reduce"),
    "torch-two-shot": functools.partial(symmetric, "two_shot_all_reduce_"),
}
_MULTIMEM: dict[str, Backend] = {
    "torch-multimem": functools.partial(symmetric, "multimem_all_reduce_"),
}
_INSTALLED: dict[str, Backend] = {
    "vllm": functools.partial(custom, "vllm"),
    "sglang": functools.partial(custom, "sglang"),
    "flashinfer": flashinfer,
}


def backends_of(library: str, *, multimem: bool) -> dict[str, Backend]:
    """Backends by name; the first is what the others are compared with."""
    if library == "gloo":
        return {library: library_call, **_INSTALLED}
    found = {library: library_call, f"{library}-window": window, **_SYMMETRIC}
    return {**found, **(_MULTIMEM if multimem else {}), **_INSTALLED}


# Measuring.


class Ready(NamedTuple):
    """A backend at a point, with its graphs."""

    prepared: Prepared
    check: Callable[[], int]  # wrong elements over all ranks, of another launch
    launches: Launches


def pattern(torch: Any, rank: int, count: int, like: Any) -> Any:  # noqa: ANN401
    """Zeros and ones, which differ between ranks."""
    place = torch.arange(count, device=like.device)
    return (((place >> (rank % 7)) + rank) % 2).to(like.dtype)


def prepare(job: Job, make: Backend, point: Point) -> Ready:
    """Make and verify a backend's call at a point, in step with the other ranks.

    raises  RefusedError on all ranks when one cannot
    """
    prepared = in_step(job, lambda: make(job, point))
    in_step(job, lambda: _once(job, prepared))
    # A second call meets buffers that the first one used; of many ranks its sum would be rounded.
    chain = 2 if job.ranks.world**2 <= _EXACT else 1
    launch, result = in_step(job, lambda: job.machine.graph(prepared, chain))
    ready = Ready(prepared, functools.partial(_wrong, job, prepared, launch, result, chain), {})
    wrong = in_step(job, ready.check)
    if wrong:
        return ready._replace(check=lambda: wrong)
    return ready._replace(launches=in_step(job, lambda: job.machine.timed(prepared, _CALLS)))


def _once(job: Job, prepared: Prepared) -> None:
    """A call before any capture: libraries connect there."""
    prepared.data.zero_()
    job.machine.synchronize()
    prepared.call()
    job.machine.synchronize()


def _wrong(
    job: Job,
    prepared: Prepared,
    launch: Callable[[], None],
    result: Any,  # noqa: ANN401
    chain: int,
) -> int:
    torch, data, world = job.torch, prepared.data, job.ranks.world
    count = data.numel()
    parts = [pattern(torch, rank, count, data) for rank in range(world)]
    expected = sum(part.to(torch.float32) for part in parts)
    if prepared.in_place:  # the next call adds the sums
        expected = expected * world ** (chain - 1)
    data.copy_(parts[job.ranks.rank])
    job.machine.synchronize()
    job.ranks.barrier()
    launch()
    job.machine.synchronize()
    wrong = int((result.to(torch.float32) != expected).sum().item())
    data.zero_()
    return int(job.ranks.total(wrong))


def in_step(job: Job, do: Callable[[], Any]) -> Any:  # noqa: ANN401
    """What `do` gives, once all ranks have it.

    raises  RefusedError on all ranks when one fails
    """
    found, problem = None, None
    try:
        found = do()
    except Exception as error:  # a backend's own: its row has it
        problem = one_line(error)
    job.ranks.agree(problem)
    return found


def one_line(error: BaseException) -> str:
    """The first line of an error that has a text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    # NCCL's own words stand behind torch's: "Last error:", then the reason.
    if "Last error:" in lines[:-1]:
        text = f"{text}: {lines[lines.index('Last error:') + 1]}"
    return re.sub(r"[^ -~]", "?", text)[:_LINE]


def sample_us(job: Job, launches: Sequence[Callable[[], None]], number: int) -> float:
    """What a call adds on the slowest rank: the whole less the compute alone."""
    total, *others = (graph_us(job, launch, number) for launch in launches)
    return total - sum(others)


def graph_us(job: Job, launch: Callable[[], None], number: int) -> float:
    """A call's part of a graph on the slowest rank, over so many launches of it."""
    job.machine.synchronize()
    job.ranks.barrier()
    return job.ranks.slowest(job.machine.elapsed_us(launch, number) / (number * _CALLS))


def launches_for(call_us: float) -> int:
    """Launches of a graph that a sample takes.

    >>> launches_for(10.0), launches_for(0.0), launches_for(1e6)
    (20, 20, 1)
    """
    graph_us = max(call_us * _CALLS, 1e-3)
    return max(1, min(_MOST_LAUNCHES, -int(-_TARGET_MS * 1e3 // graph_us)))


def turns(names: Sequence[str], number: int) -> Iterator[tuple[int, str]]:
    """Turn and backend, in the order of measuring: each turn begins with another backend.

    >>> list(turns(["a", "b"], 2))
    [(0, 'a'), (0, 'b'), (1, 'b'), (1, 'a')]
    """
    for turn in range(number):
        for place in range(len(names)):
            yield turn, names[(place + turn) % len(names)]


# Rows.


class Row(NamedTuple):
    """One row of the CSV, by what is not the same in all of them."""

    place: int  # of the point
    point: Point
    backend: str
    library: str = ""
    samples_us: tuple[float, ...] = ()
    iterations: int | None = None
    n_wrong: int | None = None
    status: str = "ok"
    message: str = ""
    kind: str = LAYER  # of the compute before the call


def row_fields(row: Row, common: dict[str, object]) -> list[object]:
    """Its fields, in the order of COLUMNS."""
    size, world = row.point.size_bytes, int(str(common["nranks"]))
    behind = "" if row.kind == LAYER else f"{BEHIND}{row.kind}"
    known: dict[str, object] = {
        **common,
        "op": "AllReduce",
        "datatype": row.point.datatype,
        "redop": "Sum",
        "size_bytes": size,
        "nnodes": 1,
        "iterations": row.iterations,
        "n_wrong": row.n_wrong,
        "library": row.library,
        "status": row.status,
        "class_id": row.place,
        "checked": "" if row.n_wrong is None else "all",
        "label": " ".join(filter(None, (str(common["label"]), behind, row.backend))),
        "message": row.message,
    }
    if row.samples_us:
        known |= times_of(row.samples_us, size, world)
    return ["" if known.get(name) is None else known[name] for name in COLUMNS]


def times_of(samples_us: Sequence[float], size: int, world: int) -> dict[str, object]:
    """Columns that follow from the written samples."""
    written = [float(f"{us:.6g}") for us in samples_us]
    median = statistics.median(written)
    algbw = size / median / 1e3
    found = {
        "time_us_median": median,
        "time_us_min": min(written),
        "time_us_max": max(written),
        "time_us_mad": statistics.median(abs(us - median) for us in written),
        "algbw_gbps": algbw,
        "busbw_gbps": algbw * 2 * (world - 1) / world,
    }
    texts: dict[str, object] = {name: f"{value:.6g}" for name, value in found.items()}
    return texts | {"samples_us": ";".join(f"{us:.6g}" for us in written)}


def state_of(path: Path) -> Path:
    """The file beside a CSV with what is going on."""
    return path.with_name(path.name + ".state")


class _Journal:
    """The CSV, and beside it what was going on when a process ended."""

    def __init__(self, path: Path, common: dict[str, object]) -> None:
        self._path, self._common = path, common
        self._state = state_of(path)

    def begin(self, head: Sequence[str], *, restarted: bool, append: bool) -> dict[str, Any]:
        """What is known from before torchrun's restart: points that are done, backends left out."""
        if restarted and self._state.exists():
            return dict(json.loads(self._state.read_text()))
        before = self._path.read_text() if append and self._path.exists() else ""
        lines = "".join(f"# {line}\n" for line in head)
        columns = "" if before else ",".join(COLUMNS) + "\n"
        self._path.write_text(before + lines + columns)
        state: dict[str, Any] = {"done": [], "dead": failed_in(before), "doing": None, "rows": 0}
        self.keep(state)
        return state

    def keep(self, state: dict[str, Any]) -> None:
        """Write down what is going on."""
        part = self._state.with_name(self._state.name + ".part")
        part.write_text(json.dumps(state))
        part.replace(self._state)

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            row_fields(row, self._common) for row in rows
        )
        with self._path.open("a") as file:
            file.write(text.getvalue())

    def end(self, rows: int) -> None:
        """All is measured."""
        with self._path.open("a") as file:
            file.write(f"# end: {rows} rows\n")
        self._state.unlink(missing_ok=True)


def failed_in(text: str) -> dict[str, str]:
    """Backends that hung or ended the processes in the launches of a CSV, with the reason."""
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {
        row["label"].rpartition(" ")[2]: row["message"].removeprefix(_LEFT_OUT)
        for row in rows
        if row["status"] == "failed" and row["message"].startswith(_LEFT_OUT)
    }


class _Deadline:
    """Ends the process when a step takes too long: a backend that hangs answers to nothing."""

    def __init__(self, seconds: float, expired: Callable[[], None]) -> None:
        self._seconds, self._expired = seconds, expired

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Around what may hang."""
        timer = threading.Timer(self._seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        self._expired()
        os._exit(_RESTART)


class _Bench:
    """All points, one after the other."""

    def __init__(self, job: Job, journal: _Journal | None, options: argparse.Namespace) -> None:
        self._job, self._journal = job, journal
        self._turns, self._append = options.turns, options.append
        self._state: dict[str, Any] = {}
        self._deadline = _Deadline(options.timeout, functools.partial(self._hangs, options.timeout))

    def measure(self, points: Sequence[Point], made: dict[str, Backend], head: list[str]) -> None:
        """Every point that is not done yet."""
        state = None
        if self._journal:
            state = self._journal.begin(head, restarted=_restarted(), append=self._append)
        self._state = self._job.ranks.first(state)
        self._bury(points)
        for place, point in enumerate(points):
            if place not in self._state["done"]:
                rows = self._point(place, point, made)
                self._state["done"].append(place)
                self._write(rows)
        if self._journal:
            self._journal.end(self._state["rows"])

    def _bury(self, points: Sequence[Point]) -> None:
        """A backend that ended the processes does not run again."""
        if self._state["doing"] is None:
            return
        place, name = self._state["doing"]
        size = points[place].size_bytes
        self._state["dead"].setdefault(name, f"it ended the process at {size} bytes")

    def _hangs(self, seconds: float) -> None:
        if self._journal and self._state["doing"]:
            _, name = self._state["doing"]
            self._state["dead"][name] = f"no end after {seconds:g} s"
            self._journal.keep(self._state)

    def _doing(self, what: tuple[int, str] | None) -> None:
        self._state["doing"] = what
        if self._journal:
            self._journal.keep(self._state)

    def _write(self, rows: Sequence[Row]) -> None:
        self._state["rows"] += len(rows)
        if self._journal:
            self._journal.add(rows)
        self._doing(None)

    def _point(self, place: int, point: Point, made: dict[str, Backend]) -> list[Row]:
        ready: dict[str, Ready] = {}
        rows: list[Row] = []
        for name, make in made.items():
            if name in self._state["dead"]:
                why = self._state["dead"][name]
                rows.append(Row(place, point, name, status="failed", message=f"{_LEFT_OUT}{why}"))
                continue
            try:
                preparing = functools.partial(prepare, self._job, make, point)
                ready[name] = self._step(place, name, preparing)
            except RefusedError as error:
                rows.append(Row(place, point, name, status="skipped", message=str(error)))
                self._stop_if_broken(name, str(error))
        taken, wrong = self._samples(place, ready)
        for name, found in ready.items():
            library = found.prepared.library
            if wrong[name]:
                rows.append(Row(place, point, name, library, n_wrong=wrong[name], status="wrong"))
                continue
            for kind, (samples, launches) in taken[name].items():
                row = Row(place, point, name, library, kind=kind)
                if min(samples) <= 0:
                    rows.append(row._replace(status="failed", message=_HIDDEN))
                    continue
                calls = launches * len(samples) * _CALLS
                timed = row._replace(samples_us=tuple(samples), iterations=calls, n_wrong=0)
                rows.append(timed)
        rows.sort(key=lambda row: list(made).index(row.backend))
        self._show(point, rows)
        return rows

    def _stop_if_broken(self, name: str, why: str) -> None:
        """A GPU that reports errors from now on needs new processes."""
        try:
            in_step(self._job, self._job.machine.synchronize)
        except RefusedError:
            self._state["dead"][name] = why
            self._doing(None)
            self._job.ranks.barrier()  # what rank 0 wrote is on disk
            os._exit(_RESTART)

    def _samples(
        self, place: int, ready: dict[str, Ready]
    ) -> tuple[dict[str, dict[str, tuple[list[float], int]]], dict[str, int]]:
        """Samples and launches of a graph in each, and wrong elements, by backend and compute."""
        wrong = {name: self._step(place, name, found.check) for name, found in ready.items()}
        right = [name for name in ready if not wrong[name]]
        taken: dict[str, dict[str, tuple[list[float], int]]] = {name: {} for name in right}
        for name in right:
            for kind, (launch, *_) in ready[name].launches.items():
                first = functools.partial(graph_us, self._job, launch, 1)
                taken[name][kind] = [], launches_for(self._step(place, name, first))
        for _, name in turns(right, self._turns):
            for kind, launches in ready[name].launches.items():
                samples, number = taken[name][kind]
                take = functools.partial(sample_us, self._job, launches, number)
                samples.append(self._step(place, name, take))
        wrong |= {name: self._step(place, name, ready[name].check) for name in right}
        return taken, wrong

    def _step(self, place: int, name: str, do: Callable[[], Any]) -> Any:  # noqa: ANN401
        """What `do` gives before the deadline; the state names it, should the process end in it."""
        self._doing((place, name))
        with self._deadline.step():
            return do()

    def _show(self, point: Point, rows: Sequence[Row]) -> None:
        if self._job.ranks.rank:
            return
        words = [
            f"{row.backend} {statistics.median(row.samples_us):.2f} us"
            if row.samples_us
            else f"{row.backend}: {row.status}"
            for row in rows
            if row.kind == LAYER
        ]
        sys.stderr.write(f"{point.size_bytes} bytes: {', '.join(words)}\n")


def read_points(text: str) -> tuple[Point, ...]:
    """Points of `8192:Bfloat16,65536:Float32`.

    >>> read_points("8192:Bfloat16,4:Float32")
    (Point(size_bytes=8192, datatype='Bfloat16'), Point(size_bytes=4, datatype='Float32'))
    """
    found = []
    for part in text.split(","):
        size, _, datatype = part.partition(":")
        if datatype not in TORCH_NAMES or not size.isdecimal():
            raise SystemExit(f"--points {part}: not SIZE:DATATYPE, with {', '.join(TORCH_NAMES)}")
        found.append(Point(int(size), datatype))
    return tuple(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the rows."""
    parser = argparse.ArgumentParser(description="AllReduce by several backends, in turns.")
    parser.add_argument("--points", required=True, type=read_points)
    parser.add_argument("--csv", required=True, type=Path)
    parser.add_argument("--round", type=int, default=0, help="Number of this launch.")
    parser.add_argument("--append", action="store_true", help="Add to the rows of other launches.")
    parser.add_argument("--turns", type=int, default=7, help="Samples of each backend.")
    parser.add_argument("--timeout", type=float, default=120.0, help="Seconds of a step.")
    parser.add_argument("--label", default="backends")
    parser.add_argument("--multimem", action="store_true", help="NVLink multicast may be used.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args(arguments)
    local, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if not options.multimem:
        os.environ.update(_MULTICAST_OFF)
    _require_progress(options.csv)
    torch = importlib.import_module("torch")
    on_gpu = options.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise SystemExit("backends_worker: PyTorch sees no GPU here")
    if on_gpu and torch.cuda.device_count() < here:
        os.environ["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = "1"
    machine = _Gpu(torch, local, here) if on_gpu else _Processor(torch)
    _connect(torch.distributed, "cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    ranks = _Ranks(torch, options.timeout)
    job = Job(torch, ranks, machine, {})
    library = _library(job)
    common: dict[str, object] = {
        "label": options.label,
        "round": options.round,
        "nranks": ranks.world,
        "method": machine.method,
        "backend": machine.backend,
        "device": machine.name,
        "host": socket.gethostname(),
    }
    head = [
        "collscope-replay: 1",
        f"classes: {len(options.points)}",
        f"backend: {machine.backend}",
        f"library: {library}",
        f"runtime: {machine.runtime}, torch {torch.__version__}",
        f"devices: {machine.name}",
        f"nranks: {ranks.world}",
        f"hosts: {socket.gethostname()}",
        f"round: {options.round}",
        f"method: {METHOD.format(calls=_CALLS, target_ms=_TARGET_MS)}",
        "environment: "
        + " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()) if _noted(k) and " " not in v),
    ]
    journal = _Journal(options.csv, common) if ranks.rank == 0 else None
    made = backends_of(library.partition(" ")[0], multimem=options.multimem)
    _Bench(job, journal, options).measure(options.points, made, head)
    ranks.barrier()
    sys.stdout.flush()
    os._exit(0)  # a library that was refused half-way may not come to its end


def _require_progress(csv_path: Path) -> None:
    """End where torchrun starts the ranks again although nothing was begun."""
    state = state_of(csv_path)
    if _restarted() and not state.exists():
        raise SystemExit(0)
    if not _restarted() and os.environ["RANK"] == "0":
        state.unlink(missing_ok=True)  # of an earlier measurement


def _restarted() -> bool:
    return _starts() > 0


def _starts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _connect(dist: Any, backends: str) -> None:  # noqa: ANN401
    """Join the ranks. Without names of its own a start finds the addresses of the one before it."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    of_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*address, world, is_master=rank == 0 and not of_agent)
    store = dist.PrefixStore(f"start {_starts()}", store)
    dist.init_process_group(backends, store=store, rank=rank, world_size=world)


def _noted(name: str) -> bool:
    return name.startswith(("NCCL_", "RCCL_", "CUDA_", "HSA_", "HIP_", "TORCH_SYMM_MEM_"))


if __name__ == "__main__":
    main()
