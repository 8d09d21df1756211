"""The training jobs of job_causes_paired.py: one function each, registered under its name.

A function gets the modules of job_models.py, what is planted, and the case if that changes the
model. It returns a `Made` (a model and its loss), or a whole step where that is of another form.
Without a GPU the models are tiny.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

WORLD = 2
# Cases that need a model of their own.
OWN_MODEL = ("small_buckets", "one_bucket", "unused", "bubble", "per_parameter")
Step = Callable[[], None]


class Made(NamedTuple):
    """A model, its loss, and what its step does besides.

    optimizer   AdamW where there is none
    backward    of the loss; where there is none, `backward()`
    reads_loss  the host reads the loss at the end of each step
    """

    run: nn.Module
    loss: Callable[[], torch.Tensor]
    optimizer: torch.optim.Optimizer | None = None
    reads_loss: bool = False


Maker = Callable[[Any, Any, Any], "Made | Step"]
JOBS: dict[str, Maker] = {}


def job(maker: Maker) -> Maker:
    """Register a job under the name of its function."""
    JOBS[maker.__name__] = maker
    return maker


def build(name: str, planted: Any, case: Any) -> Step:
    """The step of a job, with what a case changes in its model."""
    import job_models as models

    made = JOBS[name](models, planted, case)
    if not isinstance(made, Made):
        return made
    parameters = [p for p in made.run.parameters() if p.requires_grad]
    opt = made.optimizer or models.optimizer(parameters)

    def step() -> None:
        planted.begin()
        loss = made.loss()
        planted.middle()
        loss.backward()
        planted.end(parameters)
        opt.step()
        planted.after(parameters)
        opt.zero_grad()
        if made.reads_loss or planted.reads_loss():
            loss.item()
        if planted.evaluates():
            with torch.no_grad():
                made.loss()

    return step


def replicas(models: Any, model: nn.Module, case: Any, **options: Any) -> nn.Module:
    """A data-parallel model, with what a case changes in its buckets."""
    if case.name == "per_parameter":  # Planted reduces the gradients
        return model
    if case.name == "small_buckets":
        options["bucket_cap_mb"] = case.amount
    if case.name == "one_bucket":
        options["bucket_cap_mb"] = 100_000
    if case.name == "unused":
        options["find_unused_parameters"] = True
    return models.data_parallel(model, **options)


def sharded(models: Any, model: nn.Module, layers: Any) -> nn.Module:
    """FSDP2 by layer: bf16 compute, gradients reduced as fp32."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer.to(models.DEVICE), mp_policy=mixed)
    return fully_shard(model.to(models.DEVICE), mp_policy=mixed)


def late_before(planted: Any, layers: Any) -> None:
    """Let the host of a layer be late where that is planted."""
    for layer in layers:
        layer.register_forward_pre_hook(planted.layer)


def in_one_place(planted: Any, layer: nn.Module) -> None:
    """Let a cause stand before one layer, or in the middle of the backward pass."""

    def forwarded(_module: nn.Module, _inputs: object, out: torch.Tensor) -> None:
        if out.requires_grad:
            out.register_hook(planted.backward)

    layer.register_forward_pre_hook(planted.one_layer)
    layer.register_forward_hook(forwarded)


def text(models: Any, planted: Any, run: nn.Module, batch: int, length: int) -> Made:
    def loss() -> torch.Tensor:
        shape = (batch, planted.share(length if models.GPU else 16))
        x = torch.randint(0, models.VOCABULARY, shape, device=models.DEVICE)
        return models.loss_of(run(x), x)

    return Made(run, loss)


def pictures(models: Any, planted: Any, run: nn.Module, count: int, **options: Any) -> Made:
    """Classes of random pictures, with autocast and channels last."""

    def loss() -> torch.Tensor:
        number, size = planted.share(count if models.GPU else 4), 224 if models.GPU else 32
        x = torch.randn(number, 3, size, size, device=models.DEVICE)
        y = torch.randint(0, 1000, (number,), device=models.DEVICE)
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            found = run(x.to(memory_format=torch.channels_last))
        return F.cross_entropy(found.float(), y)

    return Made(run, loss, **options)


@job
def gpt(models: Any, planted: Any, case: Any) -> Made:
    width, heads = (1536, 12) if models.GPU else (64, 4)
    blocks = [models.Block(width, heads) for _ in range(10)]
    late_before(planted, blocks)
    model = models.language_model(blocks, width)
    return text(models, planted, replicas(models, model, case), 6, 768)


@job
def tiny(models: Any, planted: Any, case: Any) -> Made:
    width = 384 if models.GPU else 32
    model = models.language_model([models.Block(width, 4) for _ in range(20)], width)
    return text(models, planted, replicas(models, model, case), 1, 96)


@job
def tp(models: Any, planted: Any, case: Any) -> Made:
    width, heads = (3072, 24) if models.GPU else (64, 4)
    blocks = [models.Block(width, heads, WORLD, dist.group.WORLD) for _ in range(8)]
    return text(models, planted, models.language_model(blocks, width), 2, 1024)


@job
def ulysses(models: Any, planted: Any, case: Any) -> Made:
    library = importlib.import_module("job_library_models")
    width, heads, count, length = (1536, 12, 8, 6144) if models.GPU else (32, 4, 2, 8)
    model = nn.Sequential(*(library.Ulysses(width, heads) for _ in range(count)))
    run = replicas(models, model.to(models.DEVICE).to(models.TYPE), case)

    def loss() -> torch.Tensor:
        x = torch.randn(length, width, device=models.DEVICE, dtype=models.TYPE)
        return run(x).float().square().mean()

    return Made(run, loss)


@job
def bert(models: Any, planted: Any, case: Any) -> Made:
    from transformers import BertConfig, BertForMaskedLM

    width = 768 if models.GPU else 32
    config = BertConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=14 if models.GPU else 2,
        num_attention_heads=12 if models.GPU else 4,
    )  # fmt: skip
    run = replicas(models, BertForMaskedLM(config).to(models.DEVICE), case)

    def loss() -> torch.Tensor:
        shape = (16 if models.GPU else 2, planted.share(256 if models.GPU else 16))
        x = torch.randint(0, 30000, shape, device=models.DEVICE)
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            return run(input_ids=x, labels=x).loss

    return Made(run, loss)


@job
def llama(models: Any, planted: Any, case: Any) -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    width, heads, layers = (2560, 20, 8) if models.GPU else (64, 4, 2)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32000, hidden_size=width, intermediate_size=3 * width,
            num_hidden_layers=layers, num_attention_heads=heads, use_cache=False,
        )
    )  # fmt: skip
    late_before(planted, model.model.layers)
    sharded(models, model, model.model.layers)

    def loss() -> torch.Tensor:
        shape = (3, planted.share(1024 if models.GPU else 16))
        x = torch.randint(0, 32000, shape, device=models.DEVICE)
        return model(input_ids=x, labels=x).loss

    return Made(model, loss)


@job
def resnet(models: Any, planted: Any, case: Any) -> Made:
    from torchvision.models import resnet50

    model = resnet50().to(models.DEVICE).to(memory_format=torch.channels_last)
    return pictures(models, planted, replicas(models, model, case), 48)


@job
def moe(models: Any, planted: Any, case: Any) -> Made:
    """One expert a rank; the cause sends most tokens to the second."""
    width = models.WIDTH
    experts = [models.Experts(width) for _ in range(4)]
    model = models.language_model(experts)
    for expert in experts:
        expert.router.register_forward_hook(planted.route)
    _ignore_experts(model, ("up.weight", "up.bias", "down.weight", "down.bias"))
    return text(models, planted, replicas(models, model, case), 6, 768)


def _ignore_experts(model: nn.Module, names: tuple[str, ...]) -> None:
    """Let DistributedDataParallel leave out what each rank has alone."""
    ignored = {f"{n}.{p}" for n, _ in model.named_modules() for p in names}
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)


@job
def gpipe(models: Any, planted: Any, case: Any) -> Step:
    """Two stages, all forward passes first; the cause leaves two microbatches of eight."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, width = planted.rank, 1536 if models.GPU else 64
    parts: list[nn.Module] = [models.Block(width, 12 if models.GPU else 4) for _ in range(4)]
    if rank == 0:
        parts.insert(0, nn.Embedding(models.VOCABULARY, width))
    if rank == WORLD - 1:
        parts.append(nn.Linear(width, models.VOCABULARY, bias=False))
    model = nn.Sequential(*parts).to(models.DEVICE).to(models.TYPE)
    stage = PipelineStage(model, rank, WORLD, models.DEVICE)
    plan = ScheduleGPipe(
        stage, n_microbatches=2 if case.name == "bubble" else 8, loss_fn=models.loss_of
    )

    def batch() -> torch.Tensor:
        shape = (16, 512 if models.GPU else 16)
        return torch.randint(0, models.VOCABULARY, shape, device=models.DEVICE)

    return piped(models, planted, plan, model, batch)


def piped(models: Any, planted: Any, plan: Any, model: nn.Module, batch: Any) -> Step:
    parameters = list(model.parameters())
    opt = models.optimizer(parameters)
    rank = planted.rank

    def step() -> None:
        planted.begin()
        x = batch()
        plan.step(*([x] if rank == 0 else []), **({"target": x} if rank == WORLD - 1 else {}))
        planted.end(parameters)
        opt.step()
        planted.after(parameters)
        opt.zero_grad()

    return step


class Mixer(nn.Module):
    """Mixes tokens, then channels."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.tokens = nn.Sequential(
            nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens)
        )
        self.channels = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


@job
def interleaved(models: Any, planted: Any, case: Any) -> Step:
    """Four stages on two ranks in turns; the cause leaves two microbatches of eight."""
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

    tokens, width, batch = (256, 2048, 128) if models.GPU else (8, 32, 16)
    parts = [
        nn.Sequential(*(Mixer(tokens, width) for _ in range(2))).to(models.DEVICE).to(models.TYPE)
        for _ in range(2)
    ]
    stages = [
        PipelineStage(part, planted.rank + WORLD * turn, 2 * WORLD, models.DEVICE)
        for turn, part in enumerate(parts)
    ]
    plan = ScheduleInterleaved1F1B(
        stages, 2 if case.name == "bubble" else 8, lambda y, x: F.mse_loss(y.float(), x.float())
    )

    def made() -> torch.Tensor:
        return torch.randn(batch, tokens, width, device=models.DEVICE, dtype=models.TYPE)

    return piped(models, planted, plan, nn.ModuleList(parts), made)


@job
def vit(models: Any, planted: Any, case: Any) -> Made:
    """A wide vision transformer, sharded by FSDP2."""
    from torchvision.models import VisionTransformer

    size, width, heads, layers = (224, 2304, 18, 7) if models.GPU else (32, 32, 4, 2)
    with models.DEVICE:
        model = VisionTransformer(size, 16, layers, heads, width, 4 * width)
    late_before(planted, model.encoder.layers)
    sharded(models, model, model.encoder.layers)

    def loss() -> torch.Tensor:
        number = planted.share(24 if models.GPU else 4)
        x = torch.randn(number, 3, size, size, device=models.DEVICE)
        y = torch.randint(0, 1000, (number,), device=models.DEVICE)
        return F.cross_entropy(model(x).float(), y)

    return Made(model, loss)


@job
def t5(models: Any, planted: Any, case: Any) -> Made:
    """Encoder and decoder; the host reads the loss every step."""
    from transformers import T5Config, T5ForConditionalGeneration

    width, layers, heads = (2048, 4, 32) if models.GPU else (32, 1, 4)
    with models.DEVICE:
        model = T5ForConditionalGeneration(
            T5Config(
                d_model=width, d_ff=4 * width, d_kv=width // heads, num_heads=heads,
                num_layers=layers, num_decoder_layers=layers, vocab_size=32128, dropout_rate=0.0,
                decoder_start_token_id=0, use_cache=False,
            )
        )  # fmt: skip
    late_before(planted, [*model.encoder.block, *model.decoder.block])
    run = replicas(models, model.to(models.DEVICE).to(models.TYPE), case)

    def loss() -> torch.Tensor:
        batch, length = (8, 512) if models.GPU else (2, 16)
        x = torch.randint(1, 32128, (batch, planted.share(length)), device=models.DEVICE)
        y = torch.randint(1, 32128, (batch, length // 2), device=models.DEVICE)
        return run(input_ids=x, labels=y).loss

    return Made(run, loss, reads_loss=True)


@job
def dlrm(models: Any, planted: Any, case: Any) -> Step:
    """Embeddings of both ranks by all-to-all, the rest data parallel."""
    library = importlib.import_module("job_library_models")
    rows, width, tables, batch = (100_000, 128, 6, 32768) if models.GPU else (100, 8, 2, 8)
    own = nn.ModuleList(
        nn.EmbeddingBag(rows, width, mode="sum", device=models.DEVICE) for _ in range(tables)
    )
    ends = width * tables * WORLD, 4096 if models.GPU else 16
    layers: list[nn.Module] = []
    for into, out in (ends, (ends[1],) * 2, (ends[1],) * 2):
        layers += [nn.Linear(into, out), nn.ReLU()]
    top = nn.Sequential(*layers, nn.Linear(ends[1], 1)).to(models.DEVICE)
    late_before(planted, top)
    top = replicas(models, top, case)
    parameters = [*top.parameters(), *own.parameters()]
    opt = models.optimizer(top.parameters())
    rowwise = torch.optim.SGD(own.parameters(), lr=1e-3)

    def step() -> None:
        planted.begin()
        index = torch.randint(0, rows, (WORLD * batch, 4), device=models.DEVICE)
        found = torch.stack([bag(index) for bag in own], 1)
        mixed = library.AllToAll.apply(found.view(WORLD, batch, -1))
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            loss = top(mixed.transpose(0, 1).reshape(batch, -1)).float().square().mean()
        planted.middle()
        loss.backward()
        planted.end(parameters)
        opt.step()
        rowwise.step()
        opt.zero_grad()
        rowwise.zero_grad()

    return step


@job
def convnext(models: Any, planted: Any, case: Any) -> Made:
    from torchvision.models import convnext_tiny

    model = convnext_tiny().to(models.DEVICE).to(memory_format=torch.channels_last)
    late_before(planted, [m for m in model.modules() if type(m).__name__ == "CNBlock"])
    return pictures(models, planted, replicas(models, model, case), 64, reads_loss=True)


@job
def effnet(models: Any, planted: Any, case: Any) -> Made:
    """Many small kernels: the hosts are the limit."""
    from torchvision.models import efficientnet_b0

    model = efficientnet_b0().to(models.DEVICE).to(memory_format=torch.channels_last)
    return pictures(models, planted, replicas(models, model, case), 16)


def encoder(models: Any, planted: Any, width: int, heads: int, count: int) -> nn.Module:
    layers = [
        nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        for _ in range(count)
    ]
    late_before(planted, layers)
    return nn.Sequential(*layers).to(models.DEVICE).to(models.TYPE)


@job
def accum(models: Any, planted: Any, case: Any) -> Step:
    """Gradients of three batches are added up, and reduced with the last."""
    width, heads, count, length, batch = (1536, 12, 8, 512, 6) if models.GPU else (32, 4, 2, 8, 4)
    run = replicas(models, encoder(models, planted, width, heads, count), case)
    parameters = list(run.parameters())
    opt = models.optimizer(parameters)

    def backward() -> None:
        shape = (planted.share(batch), length, width)
        x = torch.randn(shape, device=models.DEVICE, dtype=models.TYPE)
        run(x).float().square().mean().backward()

    def step() -> None:
        planted.begin()
        with run.no_sync():
            backward()
            backward()
        planted.middle()
        backward()
        planted.end(parameters)
        opt.step()
        opt.zero_grad()

    return step


@job
def localsgd(models: Any, planted: Any, case: Any) -> Step:
    """Each rank trains two batches by itself; then the parameters are averaged."""
    width, heads, count, length, batch = (2560, 20, 3, 512, 8) if models.GPU else (32, 4, 2, 8, 4)
    model = encoder(models, planted, width, heads, count)
    parameters = list(model.parameters())
    opt = models.optimizer(parameters)
    flat = torch.cat([p.detach().flatten() for p in parameters])
    pieces = [
        piece.view_as(p)
        for piece, p in zip(flat.split([p.numel() for p in parameters]), parameters, strict=True)
    ]

    def step() -> None:
        planted.begin()
        for turn in range(2):
            shape = (planted.share(batch), length, width)
            x = torch.randn(shape, device=models.DEVICE, dtype=models.TYPE)
            loss = model(x).float().square().mean()
            planted.middle() if turn else None
            loss.backward()
            planted.end(parameters) if turn else None
            opt.step()
            opt.zero_grad()
        with torch.no_grad():
            torch._foreach_copy_(pieces, parameters)
            dist.all_reduce(flat)
            flat.div_(WORLD)
            torch._foreach_copy_(parameters, pieces)

    return step


@job
def mistral(models: Any, planted: Any, case: Any) -> Made:
    """FSDP2 with wide layers, whose activations are computed again; the host reads the loss."""
    from transformers import MistralConfig, MistralForCausalLM

    width, heads, layers = (4096, 32, 2) if models.GPU else (64, 4, 2)
    with models.DEVICE:
        model = MistralForCausalLM(
            MistralConfig(
                vocab_size=32000, hidden_size=width, intermediate_size=3 * width,
                num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads // 4,
                use_cache=False, sliding_window=None,
            )
        )  # fmt: skip
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    late_before(planted, model.model.layers)
    sharded(models, model, model.model.layers)

    def loss() -> torch.Tensor:
        shape = (4, planted.share(1024 if models.GPU else 16))
        x = torch.randint(0, 32000, shape, device=models.DEVICE)
        return model(input_ids=x, labels=x).loss

    return Made(model, loss, reads_loss=True)


class Level(nn.Module):
    """A level of a U-Net: two convolutions, the deeper levels, two more."""

    def __init__(self, into: int, widths: list[int]) -> None:
        super().__init__()
        width, deeper = widths[0], widths[1:]
        self.down = self._twice(into, width)
        self.inner = Level(width, deeper) if deeper else None
        self.up = self._twice(width + deeper[0], width) if deeper else None

    @staticmethod
    def _twice(into: int, width: int) -> nn.Module:
        parts: list[nn.Module] = []
        for source in (into, width):
            parts += [nn.Conv2d(source, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU()]
        return nn.Sequential(*parts)

    def forward(self, x):
        x = self.down(x)
        if self.inner is None:
            return x
        deep = F.interpolate(self.inner(F.avg_pool2d(x, 2)), scale_factor=2.0)
        return self.up(torch.cat([x, deep], 1))


@job
def unet(models: Any, planted: Any, case: Any) -> Made:
    """Each rank updates half of the parameters and broadcasts them."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    widths, size, batch = ([96, 192, 384, 768], 128, 36) if models.GPU else ([8, 16], 16, 4)
    model = nn.Sequential(Level(3, widths), nn.Conv2d(widths[0], 3, 1))
    late_before(planted, [m for m in model.modules() if isinstance(m, Level)])
    model = model.to(models.DEVICE).to(memory_format=torch.channels_last)
    run = replicas(models, model, case)
    opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-5)

    def loss() -> torch.Tensor:
        x = torch.randn(planted.share(batch), 3, size, size, device=models.DEVICE)
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            found = run(x.to(memory_format=torch.channels_last))
        return F.mse_loss(found.float(), x)

    return Made(run, loss, opt)


class Heard(nn.Module):
    """A layer of a sound encoder; the heads and the MLP can be split over ranks."""

    causal = False

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        qkv = self.qkv(self.norm(x))  # of the whole sequence, where a rank has a part of it
        b, t, _ = qkv.shape
        q, k, v = qkv.view(b, t, -1, 3, self.size).permute(3, 0, 2, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@job
def whisper(models: Any, planted: Any, case: Any) -> Made:
    """Two convolutions and an encoder, tensor parallel by parallelize_module."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    width, heads, count, frames = (3072, 24, 4, 1500) if models.GPU else (32, 4, 2, 8)
    mesh = init_device_mesh(models.DEVICE.type, (WORLD,))
    ears = nn.ModuleList(
        [nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, stride=2, padding=1)]
    )
    layers = nn.ModuleList(Heard(width, heads) for _ in range(count))
    model = nn.ModuleList([ears, layers]).to(models.DEVICE).to(models.TYPE)
    for layer in layers:
        plan = {"qkv": ColwiseParallel(), "out": RowwiseParallel(),
                "up": ColwiseParallel(), "down": RowwiseParallel()}  # fmt: skip
        parallelize_module(layer, mesh, plan)
    late_before(planted, layers)
    groups: list[list[nn.Parameter]] = [[], []]
    for parameter in model.parameters():
        groups[hasattr(parameter, "to_local")].append(parameter)
    opt = torch.optim.AdamW([{"params": g} for g in groups], lr=1e-5, fused=models.GPU)

    def loss() -> torch.Tensor:
        x = torch.randn(6, 80, 2 * frames, device=models.DEVICE, dtype=models.TYPE)
        for ear in ears:
            x = F.gelu(ear(x))
        x = x.transpose(1, 2)
        for layer in layers:
            x = layer(x)
        return x.float().square().mean()

    return Made(model, loss, opt)


class Scanned(nn.Module):
    """A gated recurrence, computed piece after piece: many small kernels."""

    def __init__(self, width: int, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)
        self.into = nn.Linear(width, 3 * width)
        self.near = nn.Conv1d(width, width, 4, padding=3, groups=width)

    def forward(self, x):
        length = x.shape[1]
        values, gate, keep = self.into(self.norm(x)).chunk(3, -1)
        values = F.silu(self.near(values.transpose(1, 2))[..., :length].transpose(1, 2))
        states, state = [], torch.zeros_like(values[:, : length // self.pieces])
        for value, kept in zip(
            values.chunk(self.pieces, 1), keep.sigmoid().chunk(self.pieces, 1), strict=True
        ):
            state = torch.lerp(value, state, kept)
            states.append(state)
        return x + self.out(torch.cat(states, 1) * F.silu(gate))


@job
def mamba(models: Any, planted: Any, case: Any) -> Made:
    """A recurrence of many small kernels: the hosts are the limit."""
    width, count, pieces = (1024, 5, 20) if models.GPU else (16, 2, 4)
    layers = [Scanned(width, pieces) for _ in range(count)]
    late_before(planted, layers)
    model = nn.Sequential(*layers).to(models.DEVICE).to(models.TYPE)
    run = replicas(models, model, case)

    def loss() -> torch.Tensor:
        shape = (planted.share(8), 16 * pieces, width)
        return run(torch.randn(shape, device=models.DEVICE, dtype=models.TYPE)).float().var()

    return Made(run, loss)


@job
def graph(models: Any, planted: Any, case: Any) -> Step:
    """A step captured as one CUDA graph, AllReduces and all."""
    tokens, width, batch = (196, 1536, 64) if models.GPU else (8, 16, 4)
    model = nn.Sequential(*(Mixer(tokens, width) for _ in range(6)))
    model = model.to(models.DEVICE).to(models.TYPE)
    parameters = list(model.parameters())
    x = torch.randn(batch, tokens, width, device=models.DEVICE, dtype=models.TYPE)

    def body() -> None:
        for parameter in parameters:
            parameter.grad = None
        model(x).float().square().mean().backward()
        with torch.no_grad():
            for parameter in parameters:
                dist.all_reduce(parameter.grad)
                parameter.add_(parameter.grad, alpha=-1e-5)

    replay = models.captured(body) if models.GPU else body

    def step() -> None:
        planted.begin()
        x.normal_()
        replay()
        planted.end(parameters)

    return step


class Chosen(nn.Module):
    """Two gated experts a rank; every token goes to the one that its router names."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, 2 * WORLD, bias=False)
        self.ups = nn.ParameterList(torch.randn(width, 6 * width) / width**0.5 for _ in range(2))
        self.downs = nn.ParameterList(torch.randn(3 * width, width) / width**0.5 for _ in range(2))

    def forward(self, x):
        import job_models as models

        rows = self.norm(x).flatten(0, 1)
        weight, expert = self.router(rows).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=2 * WORLD)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts)
        both = torch.stack([counts, arriving]).tolist()  # the host waits for the GPU
        sent, got = ([sum(each[2 * r : 2 * r + 2]) for r in range(WORLD)] for each in both)
        pieces = models.Exchange.apply(rows[order], got, sent).split(both[1])
        done: list[Any] = [None] * len(pieces)
        for which in range(2):
            numbers = range(which, len(pieces), 2)
            gate, value = (torch.cat([pieces[i] for i in numbers]) @ self.ups[which]).chunk(2, -1)
            found = (F.silu(gate) * value) @ self.downs[which]
            for i, piece in zip(numbers, found.split([both[1][i] for i in numbers]), strict=True):
                done[i] = piece
        back = models.Exchange.apply(torch.cat(done), sent, got)
        out = torch.zeros_like(rows).index_copy(0, order, back * weight[order, None])
        return x + out.view_as(x)


@job
def mixture(models: Any, planted: Any, case: Any) -> Made:
    """Attention and gated experts by turns; the cause sends more tokens to one rank's."""
    width, heads, count = (2560, 20, 2) if models.GPU else (32, 4, 1)
    layers: list[nn.Module] = []
    for _ in range(count):
        layers += [models.Block(width, heads, mlp=False), Chosen(width)]
        layers[-1].router.register_forward_hook(planted.route)
    model = nn.Sequential(*layers).to(models.DEVICE).to(models.TYPE)
    _ignore_experts(model, ("ups.0", "ups.1", "downs.0", "downs.1"))
    run = replicas(models, model, case)

    def loss() -> torch.Tensor:
        shape = (8, planted.share(1024 if models.GPU else 8), width)
        return run(torch.randn(shape, device=models.DEVICE, dtype=models.TYPE)).float().var()

    return Made(run, loss)


class Passed(nn.Module):
    """Messages along the edges of a graph; the nodes at the border arrive from the other rank."""

    def __init__(self, width: int, border: int) -> None:
        super().__init__()
        self.border = border
        self.norm, self.both = nn.LayerNorm(width), nn.Linear(2 * width, width)
        self.message = nn.Linear(width, width)

    def forward(self, x, edges):
        library = importlib.import_module("job_library_models")
        near = library.AllToAll.apply(x[: WORLD * self.border])
        x = torch.cat([x[: -len(near)], near])
        sent = F.gelu(self.message(self.norm(x))).index_select(0, edges[0])
        found = torch.zeros_like(x).index_add(0, edges[1], sent.to(x.dtype))
        return x + self.both(torch.cat([x, found], -1)).to(x.dtype)


class Messages(nn.Module):
    """Layers of messages."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, edges):
        for layer in self.layers:
            x = layer(x, edges)
        return x


@job
def messages(models: Any, planted: Any, case: Any) -> Made:
    """A graph network: few parameters, many bytes."""
    width, nodes, edges, border = (256, 160_000, 900_000, 16_000) if models.GPU else (8, 32, 64, 4)
    layers: list[nn.Module] = [Passed(width, border) for _ in range(3)]
    late_before(planted, layers)
    in_one_place(planted, layers[1])
    run = replicas(models, Messages(layers).to(models.DEVICE), case)

    def loss() -> torch.Tensor:
        pairs = torch.randint(0, nodes, (2, planted.share(edges)), device=models.DEVICE)
        x = torch.randn(nodes, width, device=models.DEVICE)
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            return run(x, pairs).float().square().mean()

    return Made(run, loss)


class Halved(Heard):
    """The same for text, with a part of the sequence between the heads and the MLP."""

    causal = True


@job
def sequence(models: Any, planted: Any, case: Any) -> Made:
    """Tensor and sequence parallel by parallelize_module."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    width, heads, count, length = (3072, 24, 4, 2048) if models.GPU else (32, 4, 2, 8)
    mesh = init_device_mesh(models.DEVICE.type, (WORLD,))
    layers = [Halved(width, heads) for _ in range(count)]
    model = nn.Sequential(*layers).to(models.DEVICE).to(models.TYPE)
    into, out = {"input_layouts": Shard(1)}, {"output_layouts": Shard(1)}
    for layer in layers:
        plan = {"norm": SequenceParallel(), "norm2": SequenceParallel(),
                "qkv": ColwiseParallel(**into), "out": RowwiseParallel(**out),
                "up": ColwiseParallel(**into), "down": RowwiseParallel(**out)}  # fmt: skip
        parallelize_module(layer, mesh, plan)
    late_before(planted, layers)
    in_one_place(planted, layers[1])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)

    def loss() -> torch.Tensor:
        shape = (6, length // WORLD, width)
        x = torch.randn(shape, device=models.DEVICE, dtype=models.TYPE)
        return model(x).float().square().mean()

    return Made(model, loss, opt)


@job
def swin(models: Any, planted: Any, case: Any) -> Made:
    """Attention in windows, whose buffers are broadcast: many small kernels."""
    from torchvision.models import SwinTransformer

    widths = {"embed_dim": 96, "depths": [2, 2, 2, 2], "num_heads": [3, 6, 12, 24]}
    model = SwinTransformer([4, 4], window_size=[7, 7], stochastic_depth_prob=0.1, **widths)
    late_before(planted, [m for m in model.modules() if "Block" in type(m).__name__])
    return pictures(models, planted, replicas(models, model.to(models.DEVICE), case), 96)
