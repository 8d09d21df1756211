"""Training jobs on models of transformers and torchvision: each function gives the step of one.

bert      DistributedDataParallel, autocast, gradients clipped, the host reads the loss every step
llama     FSDP2 by layer, activations computed again, gradients clipped
fsdp1     the first FSDP, with its own prefetching
resnet    DistributedDataParallel with SyncBatchNorm: some hundred small collectives that block
vit       batches that worker processes make and a copy brings to the GPU; gradients sent as fp16
dlrm      embeddings of all ranks by all-to-all, the rest data parallel
ulysses   attention over all tokens: heads against sequence by all-to-all
dtensor   tensor parallel by parallelize_module
redundant ZeroRedundancyOptimizer: parameters are broadcast by their owners
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from job_models import DEVICE, GPU, RANK, WORLD, Step, data_parallel, optimizer
from torch import nn

CONTEXT, BATCH = (512, 8) if GPU else (16, 2)


def words(batch: int = BATCH, context: int = CONTEXT):
    return torch.randint(0, 30000 if GPU else 100, (batch, context), device=DEVICE)


def stepper(model: nn.Module, loss: Callable[[], torch.Tensor], clip: bool = False) -> Step:
    opt = optimizer(model.parameters())

    def step() -> None:
        loss().backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()

    return step


def bert() -> Step:
    from transformers import BertConfig, BertForMaskedLM

    layers, width = (24, 1024) if GPU else (2, 48)
    config = BertConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
        num_attention_heads=16 if GPU else 4,
    )  # fmt: skip
    model = data_parallel(BertForMaskedLM(config).to(DEVICE))
    opt = optimizer(model.parameters())
    seen = []

    def step() -> None:
        x = words()
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = model(input_ids=x, labels=x).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        seen.append(loss.item())

    return step


def _llama(layers: int, width: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    size = (width, 3 * width, layers, width // 128) if GPU else (32, 64, 2, 4)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32000 if GPU else 128, hidden_size=size[0], intermediate_size=size[1],
            num_hidden_layers=size[2], num_attention_heads=size[3], use_cache=False,
        )
    )  # fmt: skip


def llama() -> Step:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = _llama(16, 2048)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer.to(DEVICE), mp_policy=mixed)
    fully_shard(model.to(DEVICE), mp_policy=mixed)

    def loss() -> torch.Tensor:
        x = words(4, 2 * CONTEXT)
        return model(input_ids=x, labels=x).loss

    return stepper(model, loss, clip=True)


def fsdp1() -> Step:
    import functools

    from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    wrap = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}
    )
    model = FullyShardedDataParallel(
        _llama(8, 3072).to(DEVICE),
        auto_wrap_policy=wrap,
        mixed_precision=MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16),
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        device_id=DEVICE if GPU else None,
        use_orig_params=True,
    )

    def loss() -> torch.Tensor:
        x = words(2, 2 * CONTEXT)
        return model(input_ids=x, labels=x).loss

    return stepper(model, loss)


def resnet() -> Step:
    from torchvision.models import resnet50

    model = nn.SyncBatchNorm.convert_sync_batchnorm(resnet50()).to(DEVICE)
    model = data_parallel(model.to(memory_format=torch.channels_last))

    def loss() -> torch.Tensor:
        x = torch.randn(64 if GPU else 2, 3, 224, 224, device=DEVICE)
        y = torch.randint(0, 1000, (len(x),), device=DEVICE)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return F.cross_entropy(model(x.to(memory_format=torch.channels_last)), y)

    return stepper(model, loss)


class Pictures(torch.utils.data.IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(RANK)
        while True:
            yield torch.rand(3, 224, 224, generator=generator), 7


def vit() -> Step:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torchvision.models import vit_b_16

    model = data_parallel(vit_b_16().to(DEVICE))
    model.register_comm_hook(None, fp16_compress_hook)
    loader = torch.utils.data.DataLoader(
        Pictures(), batch_size=32 if GPU else 2, num_workers=4, pin_memory=GPU, prefetch_factor=4
    )
    batches = iter(loader)

    def loss() -> torch.Tensor:
        x, y = next(batches)
        x, y = x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return F.cross_entropy(model(x), y)

    return stepper(model, loss)


class AllToAll(torch.autograd.Function):
    """Rows against ranks; the gradient goes back the same way."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        return out

    @staticmethod
    def backward(ctx, grad):
        return AllToAll.forward(ctx, grad)


def dlrm() -> Step:
    rows, width, tables, batch = (1_000_000, 128, 8, 16384) if GPU else (100, 8, 2, 8)
    own = nn.ModuleList(
        nn.EmbeddingBag(rows, width, mode="sum", device=DEVICE) for _ in range(tables)
    )
    top = nn.Sequential(
        nn.Linear(width * tables * WORLD, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1),
    ).to(DEVICE)  # fmt: skip
    top = data_parallel(top)
    opt = optimizer(top.parameters())
    sparse = torch.optim.SGD(own.parameters(), lr=1e-3)

    def step() -> None:
        index = torch.randint(0, rows, (WORLD * batch, 4), device=DEVICE)
        found = torch.stack([bag(index) for bag in own], 1)  # (WORLD * batch, tables, width)
        mixed = AllToAll.apply(found.view(WORLD, batch, -1))
        flat = mixed.transpose(0, 1).reshape(batch, -1)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            top(flat).square().mean().backward()
        opt.step()
        sparse.step()
        opt.zero_grad()
        sparse.zero_grad()

    return step


class Ulysses(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):  # (tokens of this rank, width)
        t, width = x.shape
        qkv = self.qkv(self.norm(x)).view(t, WORLD, 3 * self.heads // WORLD, -1).transpose(0, 1)
        tokens = AllToAll.apply(qkv).flatten(0, 1)  # all tokens, some heads
        q, k, v = tokens.view(len(tokens), 3, self.heads // WORLD, -1).permute(1, 2, 0, 3)
        a = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        a = a.transpose(0, 1).reshape(WORLD, t, -1)
        x = x + self.out(AllToAll.apply(a).transpose(0, 1).reshape(t, width))
        return x + self.mlp(self.norm2(x))


def ulysses() -> Step:
    width, heads, count = (2048, 16, 12) if GPU else (32, 4, 2)
    dtype = torch.bfloat16 if GPU else torch.float32
    layers = [Ulysses(width, heads) for _ in range(count)]
    model = data_parallel(nn.Sequential(*layers).to(DEVICE).to(dtype))

    def loss() -> torch.Tensor:
        x = torch.randn(
            4096 if GPU else 8, width, device=DEVICE, dtype=next(model.parameters()).dtype
        )
        return model(x).float().square().mean()

    return stepper(model, loss)


def dtensor() -> Step:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh(DEVICE.type, (WORLD,))
    width, count = (4096, 8) if GPU else (32, 2)
    model = nn.Sequential(
        *[
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(count)
        ]
    ).to(DEVICE)
    model = model.to(torch.bfloat16) if GPU else model
    for layer in model:
        parallelize_module(layer, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    def loss() -> torch.Tensor:
        x = torch.randn(8 * CONTEXT, width, device=DEVICE, dtype=torch.bfloat16 if GPU else None)
        return model(x).float().square().mean()

    return stepper(model, loss)


def redundant() -> Step:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = data_parallel(_llama(8, 2048).to(DEVICE))
    opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-5)

    def step() -> None:
        x = words()
        with torch.autocast(DEVICE.type, torch.bfloat16):
            model(input_ids=x, labels=x).loss.backward()
        opt.step()
        opt.zero_grad()

    return step


JOBS = {
    job.__name__: job
    for job in (bert, llama, fsdp1, resnet, vit, dlrm, ulysses, dtensor, redundant)
}
