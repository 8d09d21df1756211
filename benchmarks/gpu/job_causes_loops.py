"""More training jobs of job_causes_paired.py, whose steps differ from one loss and one optimizer.

Two towers and gathered outputs, two optimizers in turns, a teacher, scaled losses, keys and values
of another rank, the first FSDP, a recurrence; answers that the model gives first, batches added up,
a pipeline, an optimizer that is split over the ranks.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from job_causes_models import (
    Made,
    Step,
    encoder,
    in_one_place,
    job,
    late_before,
    piped,
    replicas,
    text,
)
from torch import nn


class Towers(nn.Module):
    """A tower for pictures and one for captions, both to vectors of length one."""

    def __init__(self, pictures: nn.Module, captions: nn.Module, widths: tuple[int, int]) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, widths[0], 16, 16)
        self.words = nn.Embedding(32000, widths[1])
        self.towers = nn.ModuleList([pictures, captions])
        self.ends = nn.ModuleList(nn.Linear(width, 512) for width in widths)

    def forward(self, x, y):
        both = self.patches(x).flatten(2).transpose(1, 2), self.words(y)
        return [
            F.normalize(end(tower(part).mean(1)), dim=-1)
            for tower, end, part in zip(self.towers, self.ends, both, strict=True)
        ]


@job
def clip(models: Any, planted: Any, case: Any) -> Made:
    """Contrastive: the vectors of both ranks are gathered."""
    wide, small = ((2048, 16, 3), (1280, 10, 2)) if models.GPU else ((32, 4, 2), (16, 4, 2))
    pictures = encoder(models, planted, *wide)
    in_one_place(planted, pictures[1])
    towers = Towers(pictures, encoder(models, planted, *small), (wide[0], small[0]))
    run = replicas(models, towers.to(models.DEVICE).to(models.TYPE), case)
    count, size, length = (64, 224, 76) if models.GPU else (4, 32, 8)

    def loss() -> torch.Tensor:
        x = torch.randn(count, 3, size, size, device=models.DEVICE, dtype=models.TYPE)
        y = torch.randint(0, 32000, (count, length), device=models.DEVICE)
        seen, read = (models.Gather.apply(part) for part in run(x, y))
        found = 20 * seen.float() @ read.float().T
        right = torch.arange(len(found), device=models.DEVICE)
        return (F.cross_entropy(found, right) + F.cross_entropy(found.T, right)) / 2

    return Made(run, loss)


def _generator(width: int) -> nn.Module:
    parts: list[nn.Module] = [nn.ConvTranspose2d(128, 8 * width, 4), nn.ReLU()]
    for factor in (8, 4, 2):
        into, out = factor * width, factor * width // 2
        parts += [nn.ConvTranspose2d(into, out, 4, 2, 1), nn.GroupNorm(8, out), nn.ReLU()]
    return nn.Sequential(*parts, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())


def _critic(width: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for factor in (1, 2, 4):
        into, out = factor * width, 2 * factor * width
        parts += [nn.Conv2d(into, out, 4, 2, 1), nn.GroupNorm(8, out), nn.LeakyReLU(0.2)]
    return nn.Sequential(*parts, nn.Conv2d(8 * width, 1, 4))


@job
def gan(models: Any, planted: Any, case: Any) -> Step:
    """Two models with an optimizer each: the critic learns first, then the generator."""
    width, batch = (192, 160) if models.GPU else (8, 4)
    generator, critic = (
        make(width).to(models.DEVICE).to(memory_format=torch.channels_last)
        for make in (_generator, _critic)
    )
    late_before(planted, [m for m in critic if isinstance(m, nn.Conv2d)])
    makes, judges = replicas(models, generator, case), replicas(models, critic, case)
    sides = list(generator.parameters()), list(critic.parameters())
    opts = [models.optimizer(side) for side in sides]

    def step() -> None:
        planted.begin()
        number = planted.share(batch)
        real = torch.randn(number, 3, 64, 64, device=models.DEVICE)
        noise = torch.randn(number, 128, 1, 1, device=models.DEVICE)
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            made = makes(noise)
            found = judges(torch.cat([real, made.detach().float()]))
            loss = F.softplus(found[number:]).mean() + F.softplus(-found[:number]).mean()
        loss.backward()
        opts[1].step()
        opts[1].zero_grad()
        planted.middle()
        critic.requires_grad_(False)
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            F.softplus(-critic(made)).mean().backward()
        critic.requires_grad_(True)
        planted.end(sides[0])
        opts[0].step()
        planted.after(sides[0])
        opts[0].zero_grad()

    return step


@job
def distill(models: Any, planted: Any, case: Any) -> Made:
    """A teacher without gradients; those of the student are sent as bf16, its graph is static."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    (wide, many), (width, few), heads = ((3072, 3), (2048, 3), 16) if models.GPU else (
        (48, 2), (32, 2), 4,
    )  # fmt: skip
    teacher = models.language_model([models.Block(wide, heads) for _ in range(many)], wide)
    teacher.requires_grad_(False)
    blocks = [models.Block(width, heads) for _ in range(few)]
    late_before(planted, blocks)
    in_one_place(planted, blocks[1])
    student = models.language_model(blocks, width).float()
    run = replicas(models, student, case, static_graph=True)
    if run is not student:
        run.register_comm_hook(None, bf16_compress_hook)

    def loss() -> torch.Tensor:
        shape = (6, planted.share(768 if models.GPU else 16))
        x = torch.randint(0, models.VOCABULARY, shape, device=models.DEVICE)
        with torch.no_grad():
            target = teacher(x).flatten(0, 1).log_softmax(-1)
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            found = run(x)
        found = found.flatten(0, 1).float().log_softmax(-1)
        return F.kl_div(found, target.float(), reduction="batchmean", log_target=True)

    return Made(run, loss)


class Modulated(nn.Module):
    """A transformer layer, shifted and scaled by a condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.condition = nn.Linear(width, 4 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, condition):
        b, t, width = x.shape
        shift, scale, gate, gate2 = self.condition(F.silu(condition))[:, None].chunk(4, -1)
        qkv = self.qkv(torch.addcmul(shift, self.norm(x), 1 + scale))
        q, k, v = qkv.view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, width)
        x = torch.addcmul(x, gate, self.out(a))
        return torch.addcmul(x, gate2, self.mlp(self.norm(x)))


@job
def diffusion(models: Any, planted: Any, case: Any) -> Step:
    """A diffusion transformer in fp16: the host reads whether a gradient is infinite; an average of
    the parameters is kept."""
    width, heads, count, batch, tokens = (1792, 14, 4, 32, 256) if models.GPU else (32, 4, 2, 4, 8)
    layers = nn.ModuleList(Modulated(width, heads) for _ in range(count)).to(models.DEVICE)
    late_before(planted, layers)

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x, condition):
            for layer in self.layers:
                x = layer(x, condition)
            return x

    run = replicas(models, Denoiser(), case)
    parameters = list(run.parameters())
    opt = torch.optim.AdamW(parameters, lr=1e-5, foreach=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, enabled=models.GPU)
    averages = [p.detach().clone() for p in parameters]

    def step() -> None:
        planted.begin()
        shape = (planted.share(batch), tokens, width)
        noise = torch.randn(shape, device=models.DEVICE)
        level = torch.rand(shape[0], 1, device=models.DEVICE)
        condition = torch.cos(level * torch.arange(width, device=models.DEVICE))
        kind = torch.float16 if models.GPU else torch.bfloat16
        with torch.autocast(models.DEVICE.type, kind):
            found = run(noise * level[..., None], condition)
        loss = F.mse_loss(found.float(), noise)
        planted.middle()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        planted.end(parameters)
        scaler.step(opt)
        scaler.update()
        planted.after(parameters)
        opt.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(averages, parameters, 0.001)

    return step


class Swap(torch.autograd.Function):
    """The other rank's tensor by Send and Recv; its gradient goes back the same way."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        other = 1 - dist.get_rank()
        calls = [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, out, other)]
        for request in dist.batch_isend_irecv(calls):
            request.wait()
        return out

    @staticmethod
    def backward(ctx, gradient):
        return Swap.forward(ctx, gradient)


class Half(nn.Module):
    """A layer that has half of the sequence; keys and values of the other half arrive."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.query, self.pair = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        t, width = x.shape
        normal = self.norms[0](x)
        own = self.pair(normal)
        k, v = torch.cat([own, Swap.apply(own)]).view(2 * t, 2, self.heads, -1).permute(1, 2, 0, 3)
        q = self.query(normal).view(t, self.heads, -1).transpose(0, 1)
        a = F.scaled_dot_product_attention(q[None], k[None], v[None])[0]
        x = x + self.out(a.transpose(0, 1).reshape(t, width))
        return x + self.mlp(self.norms[1](x))


@job
def context(models: Any, planted: Any, case: Any) -> Made:
    """Each rank has half of a long sequence."""
    width, heads, count, length = (2048, 16, 5, 4096) if models.GPU else (32, 4, 2, 8)
    layers = [Half(width, heads) for _ in range(count)]
    late_before(planted, layers)
    run = replicas(models, nn.Sequential(*layers).to(models.DEVICE).to(models.TYPE), case)

    def loss() -> torch.Tensor:
        x = torch.randn(length, width, device=models.DEVICE, dtype=models.TYPE)
        return run(x).float().square().mean()

    return Made(run, loss)


@job
def fsdp1(models: Any, planted: Any, case: Any) -> Made:
    """The first FSDP, a unit a layer."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

    width, heads, count = (3072, 24, 4) if models.GPU else (32, 4, 2)
    blocks = [models.Block(width, heads) for _ in range(count)]
    late_before(planted, blocks)
    options = {
        "mixed_precision": MixedPrecision(*(torch.bfloat16,) * 3), "use_orig_params": True,
        "device_id": models.DEVICE, "limit_all_gathers": True,
    }  # fmt: skip
    parts = models.language_model(blocks, width).float()
    units = [FullyShardedDataParallel(part, **options) for part in parts]
    run = FullyShardedDataParallel(nn.Sequential(*units), **options)
    return text(models, planted, run, 4, 1024)


class Recurrent(nn.Module):
    """A recurrent layer, moment after moment."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, width)

    def forward(self, x):
        states, state = [], torch.zeros_like(x[:, 0])
        for moment in x.unbind(1):
            state = self.cell(moment, state)
            states.append(state)
        return x + torch.stack(states, 1)


@job
def gru(models: Any, planted: Any, case: Any) -> Made:
    """Recurrent layers: the hosts are the limit."""
    width, batch, length = (768, 64, 24) if models.GPU else (16, 2, 4)
    layers = [Recurrent(width) for _ in range(2)]
    late_before(planted, layers)
    model = nn.Sequential(nn.Embedding(models.VOCABULARY, width), *layers, nn.Linear(width, 1000))
    run = replicas(models, model.to(models.DEVICE), case)

    def loss() -> torch.Tensor:
        shape = (planted.share(batch), length)
        x = torch.randint(0, models.VOCABULARY, shape, device=models.DEVICE)
        return models.loss_of(run(x), x % 1000)

    return Made(run, loss)


@job
def rollout(models: Any, planted: Any, case: Any) -> Step:
    """The model writes an answer, token after token; then it learns by the reward of it."""
    width, heads, count, length = (1536, 12, 4, 384) if models.GPU else (32, 4, 2, 8)
    blocks = [models.Block(width, heads) for _ in range(count)]
    in_one_place(planted, blocks[1])
    late_before(planted, blocks)
    model = models.language_model(blocks, width)
    run = replicas(models, model, case)
    parameters = list(model.parameters())
    opt = models.optimizer(parameters)

    def step() -> None:
        planted.begin()
        x = torch.randint(0, models.VOCABULARY, (8, length), device=models.DEVICE)
        with torch.no_grad():
            for _ in range(planted.share(6)):
                x = torch.cat([x[:, 1:], model(x)[:, -1:].argmax(-1)], 1)
            old = F.cross_entropy(model(x).flatten(0, 1).float(), x.flatten(), reduction="none")
            reward = (x % 7).float().mean(1)
            both = torch.stack([reward.mean(), reward.square().mean()])
            dist.all_reduce(both, op=dist.ReduceOp.SUM)
            mean, square = (both / 2).tolist()  # the host waits for the GPU
            better = (reward - mean) / (max(square - mean**2, 0.0) ** 0.5 + 1e-3)
        planted.middle()
        with planted.saving():
            found = run(x)
        new = F.cross_entropy(found.flatten(0, 1).float(), x.flatten(), reduction="none")
        ratio = (old - new).exp().view_as(x)
        clipped = ratio.clamp(0.8, 1.2)
        loss = -torch.minimum(ratio * better[:, None], clipped * better[:, None]).mean()
        loss.backward()
        planted.end(parameters)
        opt.step()
        planted.after(parameters)
        opt.zero_grad()
        if planted.reads_loss():
            loss.item()

    return step


@job
def qwen(models: Any, planted: Any, case: Any) -> Step:
    """Two batches are added up; activations are computed again, gradients are clipped."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    width, heads, layers, length = (2560, 20, 3, 1024) if models.GPU else (64, 4, 2, 8)
    with models.DEVICE:
        model = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=32000, hidden_size=width, intermediate_size=3 * width,
                num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads // 4,
                use_cache=False,
            )
        )  # fmt: skip
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    late_before(planted, model.model.layers)
    run = replicas(models, model.to(models.TYPE), case)
    parameters = list(model.parameters())
    opt = models.optimizer(parameters)

    def loss() -> torch.Tensor:
        x = torch.randint(0, 32000, (3, planted.share(length)), device=models.DEVICE)
        return run(input_ids=x, labels=x).loss

    def step() -> None:
        planted.begin()
        with run.no_sync():
            loss().backward()
        planted.middle()
        last = loss()
        last.backward()
        planted.end(parameters)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        opt.step()
        planted.after(parameters)
        opt.zero_grad()
        if planted.reads_loss():
            last.item()
        if planted.evaluates():
            with torch.no_grad():
                loss()

    return step


@job
def onef1b(models: Any, planted: Any, case: Any) -> Step:
    """Two stages, forward and backward passes by turns; the cause leaves two microbatches."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    width, heads, count, length = (2560, 20, 3, 768) if models.GPU else (32, 4, 2, 8)
    model = encoder(models, planted, width, heads, count)
    in_one_place(planted, model[1])
    stage = PipelineStage(model, planted.rank, 2, models.DEVICE)
    plan = Schedule1F1B(
        stage, 2 if case.name == "bubble" else 8, lambda y, x: F.mse_loss(y.float(), x.float())
    )

    def batch() -> torch.Tensor:
        return torch.randn(16, length, width, device=models.DEVICE, dtype=models.TYPE)

    return piped(models, planted, plan, model, batch)


class Orthogonal(torch.optim.Optimizer):
    """Momentum, made orthogonal; each rank does it for half of the matrices and broadcasts them."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-5})
        self.moments = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self, closure=None):
        calls = []
        for number, (parameter, moment) in enumerate(
            zip(self.param_groups[0]["params"], self.moments, strict=True)
        ):
            owner = (number + number // 4) % 2  # as much work for each
            moment.lerp_(parameter.grad, 0.05)
            if owner == dist.get_rank():
                parameter.add_(_orthogonal(moment), alpha=-1e-5)
            calls.append(dist.broadcast(parameter, owner, async_op=True))
        for call in calls:
            call.wait()


def _orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Newton and Schulz: five steps towards the nearest orthogonal matrix."""
    tall = len(matrix) > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = torch.addmm(x, torch.addmm(a, a, a, beta=-4.8, alpha=2.0), x, beta=3.4)
    return x.T if tall else x


@job
def muon(models: Any, planted: Any, case: Any) -> Made:
    """The optimizer computes: half of the matrices on each rank."""
    width, heads, count = (2048, 16, 4) if models.GPU else (32, 4, 2)
    blocks = [models.Block(width, heads) for _ in range(count)]
    late_before(planted, blocks)
    in_one_place(planted, blocks[1])
    model = models.language_model(blocks, width)
    for module in model.modules():  # matrices of the layers alone are trained
        if isinstance(module, nn.Embedding | nn.LayerNorm):
            module.requires_grad_(False)
    model[-1].requires_grad_(False)
    run = replicas(models, model, case)
    opt = Orthogonal([p for p in model.parameters() if p.requires_grad])
    return text(models, planted, run, 6, 768)._replace(optimizer=opt)
