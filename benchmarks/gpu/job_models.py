"""The training jobs of jobs.py: each function builds a model and gives its step.

tpdp (tensor x data parallel), sp (sequence parallel) and zero (flat buffers) block on their
collectives. acc (accumulated gradients), wide, fsdp_small and hsdp overlap them with compute. moe
has uneven all-to-alls, whose split sizes the host reads. pp and gpipe are pipelines of one stage a
rank. graph replays one CUDA graph.

In wide, fsdp_small, hsdp, zero and graph SLOW=compute multiplies four matrices more in every block,
and SLOW=host keeps the host of rank 2 busy for 300 us there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

GPU = torch.cuda.is_available()
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", RANK) if GPU else torch.device("cpu")
WIDTH, TOKENS, LAYERS, VOCABULARY = (2048, 1024, 12, 32000) if GPU else (64, 16, 4, 100)
TYPE = torch.bfloat16 if GPU else torch.float32
SLOW = os.environ.get("SLOW", "")
Step = Callable[[], None]


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
        own_rows = Exchange.apply(rows[order], got, sent)
        own_rows = self.down(F.gelu(self.up(own_rows)))
        back = Exchange.apply(own_rows, sent, got)
        out = torch.zeros_like(rows).index_copy(0, order, back) * weight[:, None]
        return x + out.view_as(x)


class Gather(torch.autograd.Function):
    """All-gather of rows; backward a reduce-scatter."""

    @staticmethod
    def forward(ctx, x):
        return gathered(x)

    @staticmethod
    def backward(ctx, gradient):
        return scattered(gradient)


class Scatter(torch.autograd.Function):
    """Reduce-scatter of rows; backward an all-gather."""

    @staticmethod
    def forward(ctx, x):
        return scattered(x)

    @staticmethod
    def backward(ctx, gradient):
        return gathered(gradient)


def gathered(x):
    out = x.new_empty((x.shape[0] * WORLD, *x.shape[1:]))
    dist.all_gather_into_tensor(out, x.contiguous())
    return out


def scattered(x):
    out = x.new_empty((x.shape[0] // WORLD, *x.shape[1:]))
    dist.reduce_scatter_tensor(out, x.contiguous())
    return out


class SequenceBlock(nn.Module):
    """Two sequence-parallel MLPs: rows are gathered before and scattered after each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.ups = nn.ModuleList(nn.Linear(width, 4 * width // WORLD, bias=False) for _ in range(2))
        self.downs = nn.ModuleList(
            nn.Linear(4 * width // WORLD, width, bias=False) for _ in range(2)
        )

    def forward(self, x):
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            x = x + Scatter.apply(down(F.gelu(up(Gather.apply(norm(x))))))
        return x


class Slowed(nn.Module):
    """A block, with the work that SLOW asks for before it."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x):
        if SLOW == "host" and RANK == 2:
            end = time.perf_counter() + 300e-6
            while time.perf_counter() < end:
                pass
        if SLOW == "compute":
            unit = torch.eye(x.shape[-1], device=x.device, dtype=x.dtype)
            for _ in range(4):
                x = x @ unit
        return self.block(x)


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


def language_model(blocks: list[nn.Module], width: int = WIDTH) -> nn.Sequential:
    ends = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY, bias=False)
    return nn.Sequential(ends[0], *blocks, ends[1]).to(DEVICE).to(TYPE)


def blocks(count: int, width: int, heads: int = 16) -> list[nn.Module]:
    return [Slowed(Block(width, heads)) for _ in range(count)]


def training(run: nn.Module, batch: int, quiet_batches: int = 0) -> Step:
    """A step of one batch; before it `quiet_batches` whose gradients are only added up."""
    opt = optimizer(run.parameters())

    def backward() -> None:
        x = tokens(batch)
        loss_of(run(x), x).backward()

    def step() -> None:
        if quiet_batches:
            with run.no_sync():
                for _ in range(quiet_batches):
                    backward()
        backward()
        opt.step()
        opt.zero_grad()

    return step


def tpdp() -> Step:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(DEVICE.type, (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    tp, dp = mesh["tp"].get_group(), mesh["dp"].get_group()
    model = language_model([Block(WIDTH, 16, 2, tp) for _ in range(LAYERS)])
    return training(data_parallel(model, process_group=dp), 4)


def moe() -> Step:
    model = language_model([Experts(WIDTH) for _ in range(LAYERS // 2)])
    local = {f"{n}.{p}" for n, _ in model.named_modules() for p in ("up.weight", "up.bias",
             "down.weight", "down.bias")}  # fmt: skip
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, local)
    return training(data_parallel(model), 4)


def acc() -> Step:
    model = language_model([Block(WIDTH, 16) for _ in range(LAYERS)])
    return training(data_parallel(model), 1, quiet_batches=2)


def wide() -> Step:
    """Wide layers and a small batch: the gradients outlast the backward pass."""
    model = language_model(blocks(6, 2 * WIDTH, 32), 2 * WIDTH)
    return training(data_parallel(model, bucket_cap_mb=100), 2)


def sharded(count: int, width: int, batch: int, **options) -> Step:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    options["mp_policy"] = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32
    )
    model = language_model(blocks(count, width), width).float()
    for block in model[1:-1]:
        fully_shard(block, **options)
    fully_shard(model, **options)
    return training(model, batch)


def fsdp_small() -> Step:
    """Many small layers: the host is the limit."""
    return sharded(LAYERS + 4, WIDTH // 2, 2)


def hsdp() -> Step:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(DEVICE.type, (2, WORLD // 2), mesh_dim_names=("replicate", "shard"))
    return sharded(8, WIDTH, 4, mesh=mesh)


def sp() -> Step:
    model = nn.Sequential(*[SequenceBlock(2 * WIDTH) for _ in range(LAYERS)]).to(DEVICE).to(TYPE)
    opt = optimizer(model.parameters())

    def step() -> None:
        x = torch.randn(2 * TOKENS, 2 * WIDTH, device=DEVICE, dtype=TYPE)
        model(x).float().pow(2).mean().backward()
        opt.step()
        opt.zero_grad()

    return step


def zero() -> Step:
    """One flat buffer of gradients is reduced, one of updates gathered; the host reads the norm."""
    model = language_model(blocks(LAYERS // 2, WIDTH))
    parameters = list(model.parameters())
    count = sum(p.numel() for p in parameters)
    flat = torch.zeros(count + -count % WORLD, device=DEVICE, dtype=TYPE)
    update = torch.zeros(len(flat) // WORLD, device=DEVICE, dtype=TYPE)

    def pieces():
        return zip(parameters, flat[:count].split([p.numel() for p in parameters]), strict=True)

    def step() -> None:
        x = tokens(4)
        loss_of(model(x), x).backward()
        for parameter, piece in pieces():
            piece.copy_(parameter.grad.flatten())
        part = scattered(flat)
        norm = part.float().pow(2).sum()
        dist.all_reduce(norm)
        update.add_(part, alpha=-1e-5 * min(1.0, 1 / (norm.item() ** 0.5 + 1e-6)))
        dist.all_gather_into_tensor(flat, update)
        with torch.no_grad():
            for parameter, piece in pieces():
                parameter.add_(piece.view_as(parameter), alpha=1e-6)
                parameter.grad = None

    return step


def captured(body: Step) -> Step:
    """A step as one CUDA graph, collectives and all."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(11):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        body()
    return graph.replay


def graph() -> Step:
    """A data-parallel step captured as one CUDA graph, collectives and all."""
    model = language_model(blocks(LAYERS, WIDTH // 2), WIDTH // 2)
    x = tokens(4)

    def body() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        loss_of(model(x), x).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.add_(parameter.grad, alpha=-1e-5)

    if not GPU:
        return body
    replay = captured(body)

    def step() -> None:
        x.copy_(tokens(4))
        replay()

    return step


def pipeline(layers: int, schedule, microbatches: int) -> Step:
    from torch.distributed.pipelining import PipelineStage

    parts: list[nn.Module] = [Block(WIDTH, 16) for _ in range(layers)]
    if RANK == 0:
        parts.insert(0, nn.Embedding(VOCABULARY, WIDTH))
    if RANK == WORLD - 1:
        parts.append(nn.Linear(WIDTH, VOCABULARY, bias=False))
    model = nn.Sequential(*parts).to(DEVICE).to(TYPE)
    stage = PipelineStage(model, RANK, WORLD, DEVICE)
    plan = schedule(stage, n_microbatches=microbatches, loss_fn=loss_of)
    opt = optimizer(model.parameters())

    def step() -> None:
        x = tokens(8)
        plan.step(*([x] if RANK == 0 else []), **({"target": x} if RANK == WORLD - 1 else {}))
        opt.step()
        opt.zero_grad()

    return step


def pp() -> Step:
    from torch.distributed.pipelining import Schedule1F1B

    return pipeline(max(1, 2 * LAYERS // WORLD), Schedule1F1B, 8)


def gpipe() -> Step:
    from torch.distributed.pipelining import ScheduleGPipe

    return pipeline(4, ScheduleGPipe, 4)


JOBS = {
    job.__name__: job
    for job in (tpdp, pp, moe, acc, wide, fsdp_small, hsdp, sp, zero, gpipe, graph)
}
