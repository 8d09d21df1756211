"""Training jobs with step times as truth, and their traces: hold-out for `collscope predict`.

    torchrun --nproc_per_node 4 benchmarks/gpu/jobs.py OUT [--traces] [--only pp,moe]

Four jobs of one process each, one after the other: tpdp (tensor x data parallel, synchronous
all-reduces), pp (1F1B pipeline of one stage per rank: Send and Recv), moe (experts on all ranks:
uneven all-to-all, whose split sizes the host reads), acc (data parallel, gradients of three
micro-batches accumulated before one all-reduce). No barrier between steps.
The step times come first, since the profiler's remains slow what follows it. SETTING names the
environment that the library was started with.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

GPU = torch.cuda.is_available()
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", RANK) if GPU else torch.device("cpu")
WIDTH, TOKENS, LAYERS, VOCABULARY = (2048, 1024, 12, 32000) if GPU else (64, 16, 4, 100)
TYPE = torch.bfloat16 if GPU else torch.float32
Step = Callable[[], None]


def synchronize() -> None:
    if GPU:
        torch.cuda.synchronize()


class Enter(torch.autograd.Function):
    """Into a tensor-parallel part: the gradients of its ranks are added up."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Leave(torch.autograd.Function):
    """Out of a tensor-parallel part: the outputs of its ranks are added up."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Exchange(torch.autograd.Function):
    """Uneven all-to-all of rows; backward it goes the other way."""

    @staticmethod
    def forward(ctx, x, out_splits, in_splits):
        ctx.splits = out_splits, in_splits
        out = x.new_empty((sum(out_splits), *x.shape[1:]))
        dist.all_to_all_single(out, x.contiguous(), out_splits, in_splits)
        return out

    @staticmethod
    def backward(ctx, gradient):
        out_splits, in_splits = ctx.splits
        back = gradient.new_empty((sum(in_splits), *gradient.shape[1:]))
        dist.all_to_all_single(back, gradient.contiguous(), in_splits, out_splits)
        return back, None, None


class Block(nn.Module):
    """Attention and MLP; over `ways` ranks of a group where there are several."""

    def __init__(self, width: int, heads: int, ways: int = 1, group=None, mlp: bool = True) -> None:
        super().__init__()
        self.heads, self.group, self.mlp = heads // ways, group, mlp
        self.n1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width // ways, bias=False)
        self.o = nn.Linear(width // ways, width, bias=False)
        if mlp:
            self.n2 = nn.LayerNorm(width)
            self.up = nn.Linear(width, 4 * width // ways, bias=False)
            self.down = nn.Linear(4 * width // ways, width, bias=False)

    def _in(self, x):
        return x if self.group is None else Enter.apply(x, self.group)

    def _out(self, x):
        return x if self.group is None else Leave.apply(x, self.group)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(self._in(self.n1(x))).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self._out(self.o(a.transpose(1, 2).reshape(b, t, -1)))
        if not self.mlp:
            return x
        return x + self._out(self.down(F.gelu(self.up(self._in(self.n2(x))))))


class Experts(nn.Module):
    """Attention, then one expert a rank; every token goes to the expert its router names."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Block(width, 16, mlp=False)
        self.norm = nn.LayerNorm(width)
        self.router = nn.Linear(width, WORLD, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = self.attention(x)
        rows = self.norm(x).flatten(0, 1)
        weight, expert = self.router(rows).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=WORLD)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts)
        sent, got = counts.tolist(), arriving.tolist()  # the host waits for the GPU
        mine = Exchange.apply(rows[order], got, sent)
        mine = self.down(F.gelu(self.up(mine)))
        back = Exchange.apply(mine, sent, got)
        out = torch.zeros_like(rows).index_copy(0, order, back) * weight[:, None]
        return x + out.view_as(x)


def data_parallel(model: nn.Module, **options) -> nn.Module:
    ids = [RANK] if GPU else None
    return nn.parallel.DistributedDataParallel(
        model, device_ids=ids, gradient_as_bucket_view=True, **options
    )


def optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-5, fused=GPU)


def loss_of(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


def tokens(batch: int):
    return torch.randint(0, VOCABULARY, (batch, TOKENS), device=DEVICE)


def language_model(*blocks: nn.Module) -> nn.Module:
    ends = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
    return nn.Sequential(ends[0], *blocks, ends[1]).to(DEVICE).to(TYPE)


def tpdp() -> Step:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(DEVICE.type, (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    tp, dp = mesh["tp"].get_group(), mesh["dp"].get_group()
    model = language_model(*[Block(WIDTH, 16, 2, tp) for _ in range(LAYERS)])
    run, opt = data_parallel(model, process_group=dp), optimizer(model.parameters())

    def step() -> None:
        x = tokens(4)
        loss_of(run(x), x).backward()
        opt.step()
        opt.zero_grad()

    return step


def pp() -> Step:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    per = max(1, 2 * LAYERS // WORLD)
    blocks: list[nn.Module] = [Block(WIDTH, 16) for _ in range(per)]
    if RANK == 0:
        blocks.insert(0, nn.Embedding(VOCABULARY, WIDTH))
    if RANK == WORLD - 1:
        blocks.append(nn.Linear(WIDTH, VOCABULARY, bias=False))
    model = nn.Sequential(*blocks).to(DEVICE).to(TYPE)
    stage = PipelineStage(model, RANK, WORLD, DEVICE)
    plan = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_of)
    opt = optimizer(model.parameters())

    def step() -> None:
        x = tokens(8)
        if RANK == 0:
            plan.step(x)
        elif RANK == WORLD - 1:
            plan.step(target=x)
        else:
            plan.step()
        opt.step()
        opt.zero_grad()

    return step


def moe() -> Step:
    model = language_model(*[Experts(WIDTH) for _ in range(LAYERS // 2)])
    local = {f"{n}.{p}" for n, _ in model.named_modules() for p in ("up.weight", "up.bias",
             "down.weight", "down.bias")}  # fmt: skip
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, local)
    run, opt = data_parallel(model), optimizer(model.parameters())

    def step() -> None:
        x = tokens(4)
        loss_of(run(x), x).backward()
        opt.step()
        opt.zero_grad()

    return step


def acc() -> Step:
    model = language_model(*[Block(WIDTH, 16) for _ in range(LAYERS)])
    run, opt = data_parallel(model), optimizer(model.parameters())

    def step() -> None:
        with run.no_sync():
            for _ in range(2):
                x = tokens(1)
                loss_of(run(x), x).backward()
        x = tokens(1)
        loss_of(run(x), x).backward()
        opt.step()
        opt.zero_grad()

    return step


JOBS = {"tpdp": tpdp, "pp": pp, "moe": moe, "acc": acc}


def tell(**values: object) -> None:
    if RANK == 0:
        setting = os.environ.get("SETTING", "default")
        print("STEP " + json.dumps({"setting": setting, **values}), flush=True)


def measure(step: Step, count: int) -> float:
    """Milliseconds a step."""
    synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    synchronize()
    return (time.perf_counter() - begin) * 1e3 / count


def record(step: Step, out: Path, style: str) -> None:
    """plain and full: three steps; scheduled: wait 1, warm-up 3, active 4, with sync events."""
    from torch._C._profiler import _ExperimentalConfig

    path = str(out / f"{style}.rank{RANK}.json")
    gpu = [ProfilerActivity.CUDA] if GPU else [ProfilerActivity.CPU]
    activities = [ProfilerActivity.CPU, *gpu] if style.endswith("full") else gpu
    if style.startswith("plain"):
        with profile(activities=activities) as recorded:
            for _ in range(3):
                step()
            synchronize()
        recorded.export_chrome_trace(path)
        return
    with profile(
        activities=activities,
        schedule=schedule(wait=1, warmup=3, active=4),
        on_trace_ready=lambda p: p.export_chrome_trace(path),
        experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
    ) as recorded:
        for _ in range(8):
            step()
            recorded.step()


def calibrate() -> None:
    """Microseconds a launch of a host that nothing blocks: no profiler, CUDA, CPU and CUDA."""
    x = torch.ones(8, device=DEVICE, requires_grad=True)
    net = nn.Sequential(*[nn.LayerNorm(8) for _ in range(50)]).to(DEVICE)

    def work() -> None:
        for _ in range(4):
            y = x
            for _ in range(100):
                y = y + 1
            net(y).sum().backward()

    def pace() -> float:
        found = []
        for _ in range(5):
            synchronize()
            begin = time.perf_counter()
            work()
            found.append((time.perf_counter() - begin) * 1e6)
            synchronize()
        return sorted(found)[2]

    work()
    free = pace()
    for style, activities in (
        ("light", [ProfilerActivity.CUDA]),
        ("full", [ProfilerActivity.CPU, ProfilerActivity.CUDA]),
    ):
        with profile(activities=activities) as recorded:
            work()
            slow = pace()
        calls = [e for e in recorded.events() if "aunch" in e.name]
        tell(
            set="calibration", style=style, free_us=free, profiled_us=slow, launches=len(calls) / 6
        )


def prepared(name: str) -> Step | None:
    """A job whose step times are told; None where it failed."""
    try:
        step = JOBS[name]()
        measure(step, 8)
        tell(set="steps", case=name, pipelined_ms=[round(measure(step, 20), 3) for _ in range(3)])
    except Exception:
        print(f"FAILED {name} rank {RANK}", traceback.format_exc()[-1500:], flush=True)
        return None
    return step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--traces", default="", help="styles, with commas between")
    parser.add_argument("--only", default=",".join(JOBS))
    given = parser.parse_args()
    if GPU:
        torch.cuda.set_device(RANK)
        dist.init_process_group("nccl", device_id=DEVICE)
    else:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    steps: dict[str, Step] = {}
    for name in given.only.split(","):
        step = prepared(name)
        if step is not None:
            steps[name] = step
    if given.traces:
        for name, step in steps.items():
            folder = given.out / os.environ.get("SETTING", "default") / name
            folder.mkdir(parents=True, exist_ok=True)
            for style in given.traces.split(","):
                record(step, folder, style)
                measure(step, 2)
        if GPU:
            calibrate()
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # the jobs' groups need no orderly end


main()
