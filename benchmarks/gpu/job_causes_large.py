"""Training jobs of job_causes_paired.py with large kernels: their GPUs are the limit.

Statistics of a norm, rows of a table, matrices, a vocabulary or an optimizer are split over the
ranks; most parameters are frozen; clips of pictures; batches added up in shards.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from job_causes_models import WORLD, Made, Step, in_one_place, job, late_before, replicas, text
from torch import nn
from torch.utils.checkpoint import checkpoint


class Summed(torch.autograd.Function):
    """The sum over the ranks; the gradients of all of them are added up as well."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return Summed.forward(ctx, gradient)


class JointNorm(nn.Module):
    """A batch norm whose statistics are those of all ranks; its host waits for nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        var, mean = (part.float() for part in torch.var_mean(x, (0, 2, 3), correction=0))
        mean, square = (Summed.apply(torch.stack([mean, var + mean.square()])) / WORLD).unbind()
        scale = self.weight * (square - mean.square() + 1e-3).rsqrt()
        shape = 1, -1, 1, 1
        shift = (self.bias - mean * scale).view(shape).to(x.dtype)
        return torch.addcmul(shift, x, scale.view(shape).to(x.dtype))


class Residual(nn.Module):
    """Two convolutions with joint norms; the picture may become smaller."""

    def __init__(self, into: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(source, width, 3, by, padding=1, bias=False)
            for source, by in ((into, stride), (width, 1))
        )
        self.norms = nn.ModuleList(JointNorm(width) for _ in range(2))
        self.short = nn.Conv2d(into, width, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norms[0](self.convs[0](x)))
        return F.relu(self.norms[1](self.convs[1](y)) + self.short(x))


@job
def segment(models: Any, planted: Any, case: Any) -> Made:
    """A class for each pixel; batch norms over all ranks."""
    widths, size, batch = ((64, 256, 768), 512, 12) if models.GPU else ((4, 8, 8), 32, 4)
    blocks: list[nn.Module] = []
    for into, width in pairwise(widths):
        blocks += [Residual(into, width, 2), *(Residual(width, width) for _ in range(2))]
    late_before(planted, blocks)
    ends = nn.Conv2d(3, widths[0], 7, 2, padding=3), nn.Conv2d(widths[-1], 19, 1)
    model = nn.Sequential(ends[0], *blocks, ends[1])
    model = model.to(models.DEVICE).to(memory_format=torch.channels_last)
    run = replicas(models, model, case)

    def loss() -> torch.Tensor:
        number = planted.share(batch)
        x = torch.randn(number, 3, size, size, device=models.DEVICE)
        y = torch.randint(0, 19, (number, size // 2, size // 2), device=models.DEVICE)
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            found = run(x.to(memory_format=torch.channels_last))
        return F.cross_entropy(F.interpolate(found.float(), scale_factor=4.0), y)

    return Made(run, loss)


class Crossed(nn.Module):
    """Products of features with themselves, layer after layer; then an MLP."""

    def __init__(self, width: int, widths: list[int]) -> None:
        super().__init__()
        self.crosses = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise([width, *widths]))
        self.end = nn.Linear(widths[-1], 1)

    def forward(self, x):
        first = x
        for cross in self.crosses:
            x = torch.addcmul(x, first, cross(x).to(x.dtype))
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.end(x)


@job
def recommend(models: Any, planted: Any, case: Any) -> Step:
    """Each rank has half of the rows of a table: numbers are gathered, sums of rows scattered."""
    rows, width, features, each, batch = (
        (1_000_000, 128, 26, 2, 16384) if models.GPU else (100, 4, 3, 2, 8)
    )
    table = nn.Parameter(torch.randn(rows, width, device=models.DEVICE))
    dense = Crossed(features * width, [8192, 8192, 6144] if models.GPU else [16, 8])
    run = replicas(models, dense.to(models.DEVICE), case)
    parameters = [*run.parameters(), table]
    opts = models.optimizer(run.parameters()), torch.optim.SGD([table], lr=1e-3)

    def loss() -> torch.Tensor:
        indices = torch.randint(0, WORLD * rows, (batch, features * each), device=models.DEVICE)
        own = models.gathered(indices).flatten() - planted.rank * rows
        has = (own >= 0) & (own < rows)
        found = table.index_select(0, own.clamp(0, rows - 1)) * has[:, None]
        sums = found.view(WORLD * batch, features, each, width).sum(2).flatten(1)
        x = models.Scatter.apply(sums)
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            return F.softplus(run(x).float()).mean()

    def step() -> None:
        planted.begin()
        last = loss()
        planted.middle()
        last.backward()
        planted.end(parameters)
        for opt in opts:
            opt.step()
        planted.after(parameters)
        for opt in opts:
            opt.zero_grad()

    return step


class Gated(nn.Module):
    """A layer of a language model: rotated heads, a gated MLP."""

    def __init__(self, width: int, heads: int, repeats: bool = False) -> None:
        super().__init__()
        self.heads, self.repeats = heads, repeats
        self.turns = torch.empty(2, 0, 0)  # no buffer: DistributedDataParallel would send it
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 6 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        if self.repeats and torch.is_grad_enabled():
            return checkpoint(self._layer, x, use_reentrant=False)
        return self._layer(x)

    def _layer(self, x):
        b, t, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.turns.shape[1] != t:
            self.turns = self._turns(t, q)
        q, k = (self._turned(part) for part in (q, k))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, width))
        gate, value = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)

    @staticmethod
    def _turns(length, x):
        """Cosine and sine of the angles of each place."""
        size = x.shape[-1]
        rate = 1e-4 ** (torch.arange(0, size, 2, device=x.device) / size)
        angle = torch.arange(length, device=x.device)[:, None] * rate.repeat(2)
        return torch.stack([angle.cos(), angle.sin()]).to(x.dtype)

    def _turned(self, x):
        left, right = x.chunk(2, -1)
        return torch.addcmul(x * self.turns[0], torch.cat([-right, left], -1), self.turns[1])


class Adapted(nn.Module):
    """A frozen matrix, with a narrow way beside it that learns."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        kind = {"device": base.weight.device, "dtype": base.weight.dtype, "bias": False}
        self.base = base.requires_grad_(False)
        self.narrow = nn.Linear(base.in_features, rank, **kind)
        self.wide = nn.Linear(rank, base.out_features, **kind)

    def forward(self, x):
        return self.base(x) + self.wide(self.narrow(x))


@job
def lora(models: Any, planted: Any, case: Any) -> Made:
    """Adapters of a frozen model learn: small gradients; activations are computed again, the host
    reads the loss."""
    width, heads, count = (4096, 32, 4) if models.GPU else (32, 4, 2)
    blocks = [Gated(width, heads, repeats=True) for _ in range(count)]
    late_before(planted, blocks)
    model = models.language_model(blocks, width).requires_grad_(False)
    for block in blocks:
        for name in ("qkv", "out", "up", "down"):
            setattr(block, name, Adapted(getattr(block, name), 16))
    made = text(models, planted, replicas(models, model, case), 4, 1024)
    return made._replace(reads_loss=True)


class Columns(torch.autograd.Function):
    """Rows of all ranks times some columns. Backward, the rows arrive again while the gradient is
    computed, which leaves while that of the columns is computed."""

    @staticmethod
    def forward(ctx, x, weight):
        import job_models as models

        ctx.save_for_backward(x, weight)
        return models.gathered(x) @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        gathered_x, part = x.new_empty((x.shape[0] * WORLD, x.shape[1])), torch.empty_like(x)
        arrives = dist.all_gather_into_tensor(gathered_x, x.contiguous(), async_op=True)
        both = gradient @ weight
        arrives.wait()
        leaves = dist.reduce_scatter_tensor(part, both, async_op=True)
        own = gradient.T @ gathered_x
        leaves.wait()
        return part, own


class SplitLoss(torch.autograd.Function):
    """Cross entropy where each rank has the scores of a part of the vocabulary."""

    @staticmethod
    def forward(ctx, scores, target):
        count, ctx.kind = scores.shape[1], scores.dtype
        scores = scores.float()
        high = scores.amax(1)
        dist.all_reduce(high, op=dist.ReduceOp.MAX)
        scores = scores - high[:, None]
        own = target - dist.get_rank() * count
        other = (own < 0) | (own >= count)
        own = own.masked_fill(other, 0)
        right = scores.gather(1, own[:, None])[:, 0].masked_fill(other, 0)
        likely = scores.exp_()
        both = torch.stack([right, likely.sum(1)])
        dist.all_reduce(both)
        ctx.save_for_backward(likely.div_(both[1][:, None]), own, other)
        return (both[1].log() - both[0]).mean()

    @staticmethod
    def backward(ctx, gradient):
        likely, own, other = ctx.saved_tensors
        found = likely.scatter_add(1, own[:, None], other[:, None].float() - 1)
        return (found * (gradient / len(own))).to(ctx.kind), None


class SplitLayer(nn.Module):
    """Half of the heads and of the MLP. Each rank has half of the rows."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads // WORLD
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        shapes = (3 * width // WORLD, width), (width, width // WORLD)
        shapes += (4 * width // WORLD, width), (width, 4 * width // WORLD)
        self.parts = nn.ParameterList(torch.randn(shape) / shape[1] ** 0.5 for shape in shapes)

    def forward(self, x, batch):
        import job_models as models

        qkv, out, up, down = self.parts
        every = Columns.apply(self.norms[0](x), qkv)
        t = len(every) // batch  # moments come first, so that each rank has half of each text
        q, k, v = every.view(t, batch, self.heads, 3, -1).permute(3, 1, 2, 0, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).permute(2, 0, 1, 3)
        x = x + models.Scatter.apply(F.linear(a.reshape(t * batch, -1), out))
        return x + models.Scatter.apply(F.linear(F.gelu(Columns.apply(self.norms[1](x), up)), down))


class SplitModel(nn.Module):
    """Layers between a split table of tokens and a split head."""

    def __init__(self, vocabulary: int, width: int, layers: list[nn.Module]) -> None:
        super().__init__()
        self.count = vocabulary // WORLD
        self.layers, self.norm = nn.ModuleList(layers), nn.LayerNorm(width)
        self.table, self.head = (
            nn.Parameter(torch.randn(self.count, width) / width**0.5) for _ in range(2)
        )

    def forward(self, tokens):
        import job_models as models

        own = tokens.flatten() - dist.get_rank() * self.count
        other = (own < 0) | (own >= self.count)
        found = F.embedding(own.masked_fill(other, 0), self.table)
        x = models.Scatter.apply(found.masked_fill(other[:, None], 0))
        for layer in self.layers:
            x = layer(x, tokens.shape[1])
        return SplitLoss.apply(Columns.apply(self.norm(x), self.head), tokens.flatten())


@job
def megatron(models: Any, planted: Any, case: Any) -> Step:
    """Matrices, sequence and vocabulary are split; rows travel while matrices are multiplied. The
    gradients of all norms are added up in one call."""
    width, heads, count, length, batch = (4096, 32, 6, 1024, 4) if models.GPU else (32, 4, 2, 8, 2)
    layers: list[nn.Module] = [SplitLayer(width, heads) for _ in range(count)]
    late_before(planted, layers)
    in_one_place(planted, layers[1])
    model = SplitModel(models.VOCABULARY, width, layers).to(models.DEVICE).to(models.TYPE)
    parameters = list(model.parameters())
    norms = [p for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()]
    opt = models.optimizer(parameters)

    def step() -> None:
        planted.begin()
        shape = (length, planted.share(batch))
        loss = model(torch.randint(0, models.VOCABULARY, shape, device=models.DEVICE))
        planted.middle()
        loss.backward()
        flat = torch.cat([p.grad for p in norms])
        dist.all_reduce(flat)
        torch._foreach_copy_([p.grad for p in norms], flat.split([len(p) for p in norms]))
        planted.end(parameters)
        opt.step()
        planted.after(parameters)
        opt.zero_grad()

    return step


class ChannelNorm(nn.Module):
    """Each place of a clip has channels of the same size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        size = (x.square().mean(1, keepdim=True) + 1e-4).rsqrt()
        return x * size * self.weight.view(-1, 1, 1, 1)


class Clip(nn.Module):
    """Two convolutions over time and space."""

    def __init__(self, width: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for _ in range(2):
            parts += [ChannelNorm(width), nn.SiLU(), nn.Conv3d(width, width, 3, padding=1)]
        self.parts = nn.Sequential(*parts)

    def forward(self, x):
        return x + self.parts(x)


class Coder(nn.Module):
    """Clips to a normal distribution and back."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        small = {"kernel_size": 3, "padding": 1}
        down: list[nn.Module] = [nn.Conv3d(3, widths[0], **small), Clip(widths[0])]
        up: list[nn.Module] = [Clip(widths[0]), nn.Conv3d(widths[0], 3, **small)]
        for wide, deep in pairwise(widths):
            down += [nn.Conv3d(wide, deep, stride=(1, 2, 2), **small), Clip(deep)]
            up = [Clip(deep), nn.ConvTranspose3d(deep, wide, (1, 2, 2), (1, 2, 2)), *up]
        self.down = nn.Sequential(*down, nn.Conv3d(widths[-1], 32, 1))
        self.up = nn.Sequential(nn.Conv3d(16, widths[-1], 1), *up)

    def forward(self, x):
        mean, spread = self.down(x).chunk(2, 1)
        found = self.up(mean + torch.randn_like(mean) * (spread / 2).exp())
        other = (mean.float().square() + spread.float().exp() - 1 - spread.float()).mean()
        return F.mse_loss(found.float(), x.float()) + 1e-4 * other


@job
def video(models: Any, planted: Any, case: Any) -> Made:
    """Clips are coded and written again by convolutions in three dimensions."""
    widths, shape, batch = ([64, 128, 256], (8, 128, 128), 4) if models.GPU else (
        [4, 8], (2, 8, 8), 4,
    )  # fmt: skip
    kind = {"device": models.DEVICE, "dtype": models.TYPE}
    model = Coder(widths).to(**kind, memory_format=torch.channels_last_3d)
    late_before(planted, [m for m in model.modules() if isinstance(m, Clip)])
    run = replicas(models, model, case)

    def loss() -> torch.Tensor:
        x = torch.randn(planted.share(batch), 3, *shape, **kind)
        return run(x.to(memory_format=torch.channels_last_3d))

    return Made(run, loss)


@job
def zero2(models: Any, planted: Any, case: Any) -> Step:
    """FSDP2 whose parameters stay whole for a step: the gradients of three batches are added up,
    and scattered with the last."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    width, heads, count, length, batch = (2560, 20, 4, 1024, 3) if models.GPU else (32, 4, 2, 8, 2)
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options = {"mp_policy": mixed, "reshard_after_forward": False}
    blocks = [Gated(width, heads) for _ in range(count)]
    late_before(planted, blocks)
    model = models.language_model(blocks, width).float()
    for block in blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    parameters = list(model.parameters())
    opt = models.optimizer(parameters)

    def step() -> None:
        planted.begin()
        for turn in range(3):
            is_last = turn == 2
            model.set_is_last_backward(is_last)
            model.set_reshard_after_backward(is_last)
            model.set_requires_gradient_sync(is_last)
            shape = (planted.share(batch), length)
            x = torch.randint(0, models.VOCABULARY, shape, device=models.DEVICE)
            loss = models.loss_of(model(x), x)
            if is_last:
                planted.middle()
            loss.backward()
        planted.end(parameters)
        opt.step()
        planted.after(parameters)
        opt.zero_grad()

    return step


class Flat:
    """The parameters of a part and their gradients in one buffer each. A rank updates its share;
    gradients leave during the backward pass, parameters arrive during the forward pass."""

    def __init__(self, part: nn.Module, rank: int) -> None:
        parameters = list(part.parameters())
        sizes = [p.numel() for p in parameters]
        total = sum(sizes) + -sum(sizes) % WORLD
        buffer, self.gradient = (parameters[0].new_zeros(total) for _ in range(2))
        for p, held, gradient in zip(
            parameters,
            buffer[: sum(sizes)].split(sizes),
            self.gradient[: sum(sizes)].split(sizes),
            strict=True,
        ):
            held.copy_(p.detach().flatten())
            p.data, p.grad = held.view_as(p), gradient.view_as(p)
            p.register_post_accumulate_grad_hook(self._has_gradient)
        self.buffer, self.count, self.left = buffer, len(parameters), len(parameters)
        self.own = nn.Parameter(buffer.view(WORLD, -1)[rank])
        self.own.grad = torch.zeros_like(self.own)
        self.call: Any = None
        part.register_forward_pre_hook(lambda *_: self.wait())

    def _has_gradient(self, _parameter: nn.Parameter) -> None:
        self.left -= 1
        if not self.left:
            self.left = self.count
            self.call = dist.reduce_scatter_tensor(self.own.grad, self.gradient, async_op=True)

    def send(self) -> None:
        """Let the other ranks have what this one updated."""
        self.call = dist.all_gather_into_tensor(self.buffer, self.own.detach(), async_op=True)

    def wait(self) -> None:
        """Let the GPU wait for what is on its way."""
        if self.call is not None:
            self.call.wait()
            self.call = None


@job
def distopt(models: Any, planted: Any, case: Any) -> Step:
    """A distributed optimizer: flat buffers, whose calls overlap both passes."""
    width, heads, count, length, batch = (2560, 20, 5, 768, 6) if models.GPU else (32, 4, 2, 8, 2)
    blocks = [models.Block(width, heads) for _ in range(count)]
    late_before(planted, blocks)
    model = models.language_model(blocks, width)
    flats = [Flat(part, planted.rank) for part in model]
    shares = [flat.own for flat in flats]
    opt = models.optimizer(shares)

    def loss() -> torch.Tensor:
        shape = (batch, planted.share(length))
        x = torch.randint(0, models.VOCABULARY, shape, device=models.DEVICE)
        return models.loss_of(model(x), x)

    def step() -> None:
        planted.begin()
        for flat in flats:
            flat.send()
        if planted.evaluates():  # here, because all parameters are on their way
            with torch.no_grad():
                loss()
        last = loss()
        planted.middle()
        last.backward()
        for flat in reversed(flats):
            flat.wait()
        planted.end(shares)
        opt.step()
        planted.after(shares)
        torch._foreach_zero_([flat.gradient for flat in flats])

    return step
