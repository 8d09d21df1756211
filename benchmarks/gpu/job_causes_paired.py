"""Causes of slowness switched on and off inside running jobs, recorded for `benchmarks/causes.py`.

    python benchmarks/gpu/job_causes_paired.py OUT [--only JOB,JOB] [--seconds 470]

The jobs are others than those of job_causes.py: other models, sizes, amounts and guilty ranks. A
start of a job first times every one of its causes, `ROUNDS` times `TIMED` steps, each time right
after as many steps without a cause. Then it records light traces of all cases (CUDA activities
alone), then full ones (the CPU's as well) of every second case: the profiler's remains slow what
follows. Causes of the environment have a start of their own, right after that of their job.

OUT gets truth.jsonl, and NAME.1.tar for each case with the traces and NCCL's logs of both ranks.
job_causes_paired.sh packs them.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import signal
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import job_causes
import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.profiler
from job_causes import CAUSES, Cause, Step, burn_cores, burn_gpu, child, record, wait
from torch import nn

WORLD = job_causes.WORLD
ROUNDS, TIMED = 3, 8
_SECONDS = 170  # a start that takes longer is given up
BUSY_CORE = 2
LATE = ("late_host",)
NEW_CAUSES = {
    "sleep_layers": Cause(codes=LATE),  # a short stall in every layer
    "spin_one": Cause(codes=LATE),  # Python code instead of sleep
    "loader": Cause(codes=(*LATE, "host_bound")),  # batches come late
    "clipped": Cause(),  # healthy: gradients are clipped, and the loss is read
}
ENV = {
    "ll": {"NCCL_PROTO": "LL"},
    "two_channels": {"NCCL_MAX_CTAS": "2"},
    "shm": {"NCCL_P2P_DISABLE": "1"},
    "launch_blocking": {"CUDA_LAUNCH_BLOCKING": "1"},
}
# JOB: CAUSE[:guilty rank, or *[:amount]]; milliseconds, matrices, calls, MB or steps.
CASES = {
    "bert": "none sleep_one:0:9 loader:1:70 more_work:0:8 norms_all allocator:0 slow_kernels:1:6",
    "tp": "none long_batch sleep_one:0:7 scalars:*:80 slow_kernels:1:10 pageable / ll shm",
    "llama": "none sleep_middle:0:25 busy_cores:0 more_work:0:16 neighbour:0 uneven_in_turns"
    " scalars:*:24 / two_channels",
    "tiny": "none sleep_one:0:6 busy_cores:1 norms_all small_buckets:*:0.05 unused spin_one:1:4"
    " / launch_blocking",
    "gpipe": "none bubble sleep_one:1:20",
    "moe": "none experts:1 spin_one:0:10",
    "gpt": "none clipped sleep_layers:1:0.9 sleep_all:*:6 long_sequences:0 small_buckets:*:2"
    " checkpoint:0:3 norms_one:1 one_bucket / ll",
    "ulysses": "none sleep_middle:1:8 more_work:1:6 allocator:1 / ll",
    "resnet": "none long_sequences:0 garbage:0 neighbour:1 sleep_all:*:12",
}


class Case(NamedTuple):
    """A cause that is planted in one job."""

    name: str
    rank: int | None  # None: all
    amount: float

    @property
    def cause(self) -> Cause:
        known = NEW_CAUSES.get(self.name) or CAUSES.get(self.name)
        if self.name == "two_channels":
            known = CAUSES["one_channel"]
        assert known is not None
        return known._replace(ranks=() if self.rank is None else (self.rank,))


NOTHING = Case("none", None, 0)


def cases(text: str) -> tuple[list[Case], list[Case]]:
    """Cases that a start switches on and off, and those of the environment."""

    def read(word: str) -> Case:
        parts = word.split(":")
        name, rank, amount = (*parts, *("", "*", "1")[len(parts) :])
        return Case(name, None if rank == "*" else int(rank), float(amount))

    inside, _, outside = text.partition("/")
    return [read(w) for w in inside.split()], [read(w) for w in outside.split()]


class Slow(torch.utils.data.IterableDataset):
    """A batch that takes a worker process some milliseconds."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __iter__(self):
        while True:
            time.sleep(self.ms / 1e3)
            yield torch.zeros(64)


def local(tensor: Any) -> torch.Tensor:
    """The part of a sharded tensor that this rank has."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Planted:
    """What a rank does in a step besides training, by the present case."""

    def __init__(self, rank: int, device: torch.device) -> None:
        self.rank, self.device, self.case, self.step = rank, device, NOTHING, 0
        size = 4096 if device.type == "cuda" else 64
        self.matrix = torch.randn(size, size, device=device, dtype=torch.bfloat16)
        self.single = self.matrix[: size // 2, : size // 2].float().contiguous()
        self.small = torch.zeros(1, device=device)
        self.pageable = torch.empty(12 * size * 1024, dtype=torch.uint8)
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
        self.batches, self.garbage = None, []
        gc.collect()
        self.case, self.step = case, 0
        if self.is_on("garbage"):
            self.garbage = [{"k": [i]} for i in range(60_000)]
        if self.is_on("loader"):
            loader = torch.utils.data.DataLoader(
                Slow(case.amount), batch_size=None, num_workers=1, prefetch_factor=2
            )
            self.batches = iter(loader)
        if self.is_on("busy_cores"):
            self._run_on({BUSY_CORE})
        if self.is_on("neighbour"):
            os.kill(self.neighbour, signal.SIGCONT)

    def _run_on(self, cores: set[int]) -> None:
        for task in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cores)

    def share(self, count: int) -> int:
        """How much of something this rank has in this step."""
        if self.is_on("long_batch"):
            return count + count // 2
        if self.is_on("long_sequences"):
            return count + count // 4
        if self.case.name == "uneven_in_turns":
            return count + (count // 4) * (1 if (self.step + self.rank) % 2 else -1)
        return count

    def begin(self) -> None:
        """What comes before the forward pass."""
        self.step += 1
        if self.is_on("sleep_one", "sleep_all"):
            time.sleep(self.case.amount / 1e3)
        if self.is_on("spin_one"):
            end = time.perf_counter() + self.case.amount / 1e3
            while time.perf_counter() < end:
                pass
        if self.is_on("garbage"):
            gc.collect()
        if self.is_on("loader"):
            next(self.batches)
        if self.is_on("more_work", "slow_kernels"):
            factor = self.matrix if self.case.name == "more_work" else self.single
            for _ in range(int(self.case.amount)):
                torch.mm(factor, factor)
        if self.is_on("pageable"):
            self.pageable.to(self.device)

    def layer(self, *_: object) -> None:
        """What comes before each layer."""
        if self.is_on("sleep_layers"):
            time.sleep(self.case.amount / 1e3)

    def middle(self) -> None:
        """What comes between the forward and the backward pass."""
        if self.is_on("sleep_middle"):
            time.sleep(self.case.amount / 1e3)
        if self.is_on("allocator"):
            torch.cuda.empty_cache()

    def end(self, parameters: list[nn.Parameter]) -> None:
        """What comes after the backward pass, before the optimizer."""

        if self.is_on("norms_one", "norms_all"):
            for gradient in [p.grad for p in parameters if p.grad is not None]:
                local(gradient).float().norm().item()
        if self.is_on("scalars"):
            for _ in range(int(self.case.amount)):
                dist.all_reduce(self.small)
                self.small.item()
        if self.is_on("clipped"):
            nn.utils.clip_grad_norm_(parameters, 1.0)
        if self.case.name == "checkpoint" and self.step % int(self.case.amount) == 0:
            if self.is_on("checkpoint"):
                for parameter in parameters:
                    local(parameter.data).cpu()
            dist.barrier()


def build(job: str, planted: Planted, case: Case) -> Step:
    """The step of a job, with what a case changes in its model."""
    import job_models as models

    if job == "gpipe":
        return _pipeline(models, planted, case)
    makers = {
        "gpt": _gpt, "tiny": _tiny, "tp": _tensor_parallel, "moe": _experts, "ulysses": _ulysses,
        "resnet": _pictures, "bert": _bert, "llama": _llama,
    }  # fmt: skip
    run, loss = makers[job](models, planted, case)
    parameters = [p for p in run.parameters() if p.requires_grad]
    opt = models.optimizer(parameters)

    def step() -> None:
        planted.begin()
        found = loss()
        planted.middle()
        found.backward()
        planted.end(parameters)
        opt.step()
        opt.zero_grad()
        if planted.is_on("clipped"):
            found.item()

    return step


Made = tuple[nn.Module, Callable[[], torch.Tensor]]


def replicas(models: Any, model: nn.Module, case: Case) -> nn.Module:
    """A data-parallel model, with what a case changes in its buckets."""
    if case.name == "small_buckets":
        return models.data_parallel(model, bucket_cap_mb=case.amount)
    if case.name == "one_bucket":
        return models.data_parallel(model, bucket_cap_mb=100_000)
    return models.data_parallel(model, find_unused_parameters=case.name == "unused")


def _text(models: Any, planted: Planted, run: nn.Module, batch: int, length: int) -> Made:
    def loss() -> torch.Tensor:
        shape = (batch, planted.share(length if models.GPU else 16))
        x = torch.randint(0, models.VOCABULARY, shape, device=models.DEVICE)
        return models.loss_of(run(x), x)

    return run, loss


def _gpt(models: Any, planted: Planted, case: Case) -> Made:
    width, heads = (1536, 12) if models.GPU else (64, 4)
    blocks = [models.Block(width, heads) for _ in range(10)]
    for block in blocks:
        block.register_forward_pre_hook(planted.layer)
    model = models.language_model(blocks, width)
    return _text(models, planted, replicas(models, model, case), 6, 768)


def _tiny(models: Any, planted: Planted, case: Case) -> Made:
    width = 384 if models.GPU else 32
    model = models.language_model([models.Block(width, 4) for _ in range(20)], width)
    return _text(models, planted, replicas(models, model, case), 1, 96)


def _tensor_parallel(models: Any, planted: Planted, case: Case) -> Made:
    width, heads = (3072, 24) if models.GPU else (64, 4)
    blocks = [models.Block(width, heads, WORLD, dist.group.WORLD) for _ in range(8)]
    return _text(models, planted, models.language_model(blocks, width), 2, 1024)


def _ulysses(models: Any, planted: Planted, case: Case) -> Made:
    library = importlib.import_module("job_library_models")
    width, heads, count, length = (1536, 12, 8, 6144) if models.GPU else (32, 4, 2, 8)
    model = nn.Sequential(*(library.Ulysses(width, heads) for _ in range(count)))
    run = replicas(models, model.to(models.DEVICE).to(models.TYPE), case)

    def loss() -> torch.Tensor:
        x = torch.randn(length, width, device=models.DEVICE, dtype=models.TYPE)
        return run(x).float().square().mean()

    return run, loss


def _bert(models: Any, planted: Planted, case: Case) -> Made:
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

    return run, loss


def _llama(models: Any, planted: Planted, case: Case) -> Made:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import LlamaConfig, LlamaForCausalLM

    width, heads, layers = (2560, 20, 8) if models.GPU else (64, 4, 2)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32000, hidden_size=width, intermediate_size=3 * width,
            num_hidden_layers=layers, num_attention_heads=heads, use_cache=False,
        )
    )  # fmt: skip
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        layer.register_forward_pre_hook(planted.layer)
        fully_shard(layer.to(models.DEVICE), mp_policy=mixed)
    fully_shard(model.to(models.DEVICE), mp_policy=mixed)

    def loss() -> torch.Tensor:
        shape = (3, planted.share(1024 if models.GPU else 16))
        x = torch.randint(0, 32000, shape, device=models.DEVICE)
        return model(input_ids=x, labels=x).loss

    return model, loss


def _pictures(models: Any, planted: Planted, case: Case) -> Made:
    from torchvision.models import resnet50

    model = resnet50().to(models.DEVICE).to(memory_format=torch.channels_last)
    run = replicas(models, model, case)

    def loss() -> torch.Tensor:
        count, size = planted.share(48 if models.GPU else 2), 224 if models.GPU else 32
        x = torch.randn(count, 3, size, size, device=models.DEVICE)
        y = torch.randint(0, 1000, (count,), device=models.DEVICE)
        with torch.autocast(models.DEVICE.type, torch.bfloat16):
            found = run(x.to(memory_format=torch.channels_last))
        return nn.functional.cross_entropy(found.float(), y)

    return run, loss


def _experts(models: Any, planted: Planted, case: Case) -> Made:
    """One expert a rank; the cause sends four of five tokens to the second."""
    width = models.WIDTH
    experts = [models.Experts(width) for _ in range(4)]
    model = models.language_model(experts)
    if case.name == "experts":
        for expert in experts:
            with torch.no_grad():
                expert.norm.bias.fill_(0.1)
                expert.router.weight[1].add_(0.7 / (0.1 * width))
    ignored = {
        f"{n}.{p}"
        for n, _ in model.named_modules()
        for p in ("up.weight", "up.bias", "down.weight", "down.bias")
    }
    parallel = nn.parallel.DistributedDataParallel
    parallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    return _text(models, planted, replicas(models, model, case), 6, 768)


def _pipeline(models: Any, planted: Planted, case: Case) -> Step:
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
    parameters = list(model.parameters())
    opt = models.optimizer(parameters)

    def step() -> None:
        planted.begin()
        x = torch.randint(
            0, models.VOCABULARY, (16, 512 if models.GPU else 16), device=models.DEVICE
        )
        plan.step(*([x] if rank == 0 else []), **({"target": x} if rank == WORLD - 1 else {}))
        planted.end(parameters)
        opt.step()
        opt.zero_grad()

    return step


class Running:
    """A job in one process, whose cause can be changed."""

    def __init__(self, job: str, rank: int) -> None:
        import job_models as models

        self.on_gpu, self.job = models.GPU, job
        self.planted = Planted(rank, models.DEVICE)
        self.models: dict[Case, Step] = {}

    def switch(self, case: Case) -> Step:
        """The step of a case, warm."""
        changes_model = case.name in ("small_buckets", "one_bucket", "unused", "bubble", "experts")
        key = case if changes_model else NOTHING
        if key not in self.models:
            torch.manual_seed(0)
            self.models[key] = build(self.job, self.planted, key)
            for _ in range(5):
                self.models[key]()
        self.planted.switch(case)
        for _ in range(3):
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
        return round((time.perf_counter() - begin) * 1e3 / TIMED, 3)


def run_rank(job: str, given: list[Case], rank: int, folder: Path) -> None:
    """One process of a start: the times of all cases, then their traces."""
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    else:
        dist.init_process_group("gloo")
    running = Running(job, rank)
    for case in given:
        running.switch(case)
    times: dict[str, list[list[float]]] = {case.name: [] for case in given}
    for _ in range(ROUNDS):
        for case in given:
            usual = running.timed(NOTHING)
            times[case.name].append([usual, running.timed(case)])
    (folder / f"steps.rank{rank}.json").write_text(json.dumps(times))
    for style in ("light", "full"):
        for case in given[:: 1 if style == "light" else 2]:
            step = running.switch(case)
            path = folder / f"{case.name}.{style}.rank{rank}.json"
            record(step, path, cpu=style == "full" or not running.on_gpu)
    running.switch(NOTHING)
    running.synchronize()
    dist.barrier()


def start(job: str, given: list[Case], env: dict[str, str], out: Path, port: int) -> bool:
    """One start of a job with some cases; whether it ended well."""
    folder = out / f"{job}.{port}"
    folder.mkdir(parents=True)
    log = folder / "log.txt"
    shared = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORLD),
        # Without COLL, whose lines would slow the host.
        "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,P2P,SHM,NET",
        "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log"),
    }  # fmt: skip
    others = []
    for case in given:
        if case.name == "busy_cores":
            others += [child(lambda: burn_cores({BUSY_CORE}), {}, log) for _ in range(4)]
        if case.name == "neighbour":
            pid = child(lambda gpu=case.rank: burn_gpu(gpu), {}, log)
            time.sleep(5)  # until it has its own context
            os.kill(pid, signal.SIGSTOP)
            shared["NEIGHBOUR"] = str(pid)
            others.append(pid)
    ranks = {}
    for rank in range(WORLD):
        own = {**shared, **env, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        ranks[child(lambda rank=rank: run_rank(job, given, rank, folder), own, log)] = rank
    ended = wait(ranks, others, _SECONDS)
    ok = len(ended) == WORLD and not any(ended.values())
    if not ok:
        print(job, "FAILED", log.read_text(errors="replace")[-3000:], flush=True)
    _keep(job, given, env, folder, out)
    return ok


def _keep(job: str, given: list[Case], env: dict[str, str], folder: Path, out: Path) -> None:
    """Write what a start left behind: an archive and a line of truth for each case."""
    times = folder / "steps.rank0.json"
    known = json.loads(times.read_text()) if times.exists() else {}
    for case in given:
        traces = sorted(folder.glob(f"{case.name}.*.json"))
        if not traces or case.name not in known:
            continue
        usual, steps = zip(*known[case.name], strict=True)
        row = {
            "case": f"{job}-{case.name}", "start": 1, "job": job, "planted": case.name,
            "codes": case.cause.codes, "ranks": case.cause.ranks, "env": env,
            "amount": case.amount, "step_ms": steps,
        }  # fmt: skip
        if not env:
            row["usual_ms"] = usual
        with tarfile.open(out / f"{job}-{case.name}.1.tar", "w") as archive:
            for path in traces:
                archive.add(path, path.name.removeprefix(f"{case.name}."))
            for path in sorted(folder.glob("nccl.*")):
                archive.add(path, path.name)
        with (out / "truth.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row["case"], list(zip(usual, steps, strict=True)), flush=True)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def main() -> None:
    """Record what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(CASES), help="jobs, with commas between")
    parser.add_argument("--seconds", type=float, default=470, help="no start begins after that")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with suppress(ImportError):  # once for all processes; jobs that need them fail without
        importlib.import_module("torchvision.models")
        importlib.import_module("transformers.models.bert.modeling_bert")
        importlib.import_module("transformers.models.llama.modeling_llama")
    port = 29500
    for job in given.only.split(","):
        inside, outside = cases(CASES[job])
        for names, env in ((inside, {}), *(([c], ENV[c.name]) for c in outside)):
            port += 1
            if time.monotonic() - began > given.seconds:
                print("NOT RECORDED", job, [c.name for c in names], flush=True)
                continue
            begin = time.monotonic()
            start(job, names, env, given.out, port)
            print(f"{job}: {len(names)} cases, {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
