"""Small training jobs with one planted cause of slowness each, recorded for `benchmarks/causes.py`.

    python benchmarks/gpu/job_causes.py OUT [--only CASE,CASE] [--starts 1]

A case is a job and a cause, as in `CASES`. Every case is a start of its own: one process a GPU,
forked from this one, which has imported torch and has not touched the GPU. A start warms up, times
three times `TIMED` steps without the profiler, then records `ACTIVE` steps with CUDA activities
alone (light) and as many with the CPU's as well (full). Cases whose name has an even CRC-32 are
looked at while rules are made; the others are the exam.

OUT gets NAME.START.tar with the traces and NCCL's logs of both ranks, and truth.jsonl: what was
planted, on which ranks, and the steps' milliseconds. `xz -9e` packs the archives afterwards.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tarfile
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.profiler

WORLD = 2
WARM, TIMED, ACTIVE = 6, 20, 3
LAYERS = 6
_SECONDS = 90  # a case that takes longer is given up


class Cause(NamedTuple):
    """What is planted.

    codes   causes that name it rightly; empty for a healthy control
    ranks   those that have it; empty where it is every rank's
    env     of the processes
    """

    codes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    env: dict[str, str] = {}  # noqa: RUF012 - never written to


CAUSES = {
    "none": Cause(),
    "long_batch": Cause(),  # healthy: more work on every rank
    "sleep_one": Cause(codes=("late_host",), ranks=(1,)),
    "sleep_middle": Cause(codes=("late_host",), ranks=(0,)),
    "sleep_all": Cause(codes=("late_host", "host_bound")),
    "garbage": Cause(codes=("late_host",), ranks=(1,)),
    "busy_cores": Cause(codes=("late_host", "host_bound"), ranks=(1,)),
    "more_work": Cause(codes=("extra_work",), ranks=(1,)),
    "slow_kernels": Cause(codes=("slow_gpu", "extra_work"), ranks=(0,)),
    "neighbour": Cause(codes=("slow_gpu",), ranks=(1,)),
    "long_sequences": Cause(codes=("uneven_work",), ranks=(1,)),
    "uneven_in_turns": Cause(codes=("uneven_work",)),
    "norms_one": Cause(codes=("extra_work", "blocking_sync"), ranks=(0,)),
    "norms_all": Cause(codes=("blocking_sync", "host_bound")),
    "scalars": Cause(codes=("small_calls", "blocking_sync")),
    "small_buckets": Cause(codes=("small_calls",)),
    "blocking_wait": Cause(codes=("blocking_sync",), env={"TORCH_NCCL_BLOCKING_WAIT": "1"}),
    "launch_blocking": Cause(
        codes=("blocking_sync", "host_bound"), env={"CUDA_LAUNCH_BLOCKING": "1"}
    ),
    "pageable": Cause(codes=("slow_transfer", "blocking_sync")),
    "allocator": Cause(codes=("blocking_sync", "late_host"), ranks=(1,)),
    "unused": Cause(codes=("host_bound", "blocking_sync")),
    "one_bucket": Cause(codes=("no_overlap",)),
    "ll": Cause(codes=("slow_setting",), env={"NCCL_PROTO": "LL"}),
    "one_channel": Cause(codes=("slow_setting",), env={"NCCL_MAX_CTAS": "1"}),
    "tree": Cause(codes=("slow_setting",), env={"NCCL_ALGO": "allreduce:tree"}),
    "shm": Cause(codes=("slow_transport", "slow_setting"), env={"NCCL_P2P_DISABLE": "1"}),
    "debug": Cause(
        codes=("host_bound", "blocking_sync", "small_calls"),
        env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "ERROR"},
    ),
    "checkpoint": Cause(codes=("periodic",), ranks=(0,)),
    "bubble": Cause(codes=("pipeline_bubble",)),
    "experts": Cause(codes=("uneven_work",), ranks=(0,)),
}
CASES = {
    job: tuple(causes.split())
    for job, causes in {
        "ddp": "none long_batch sleep_one sleep_middle sleep_all garbage busy_cores more_work"
        " slow_kernels neighbour long_sequences uneven_in_turns norms_one norms_all scalars"
        " small_buckets blocking_wait launch_blocking pageable allocator unused one_bucket ll"
        " one_channel tree shm debug checkpoint",
        "fsdp": "none long_batch sleep_one sleep_all garbage more_work slow_kernels neighbour"
        " long_sequences uneven_in_turns norms_one scalars blocking_wait pageable allocator ll"
        " one_channel shm checkpoint",
        "tp": "none long_batch sleep_middle busy_cores more_work neighbour scalars launch_blocking"
        " allocator ll one_channel tree shm",
        "host": "none sleep_one busy_cores norms_all small_buckets unused launch_blocking debug",
        "pipeline": "none bubble more_work",
        "moe": "none experts",
    }.items()
}
Step = Callable[[], None]


class Planted:
    """Hooks of a job that a cause fills: what a rank does in a step besides training."""

    def __init__(self, name: str, rank: int) -> None:
        """The planted cause of one rank."""
        self.name, self.rank, self.step = name, rank, 0
        self.has_cause = not CAUSES[name].ranks or rank in CAUSES[name].ranks
        self.matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self.small = torch.zeros(1, device="cuda")
        self.pageable = torch.empty(48 << 20, dtype=torch.uint8) if name == "pageable" else None
        self.garbage: list[Any] = []
        if name == "garbage" and self.has_cause:
            self.garbage = [{"k": [i]} for i in range(30_000)]

    def tokens(self, batch: int, vocabulary: int, length: int) -> torch.Tensor:
        """A batch, longer if the cause requires it."""
        if self.name == "long_batch":
            batch += batch // 2
        if self.name == "long_sequences" and self.has_cause:
            length += length // 2
        if self.name == "uneven_in_turns":
            length += (length // 2) * (1 if (self.step + self.rank) % 2 else -1)
        return torch.randint(0, vocabulary, (batch, length), device="cuda")

    def begin(self) -> None:
        """What comes before the forward pass."""
        self.step += 1
        if self.name in ("sleep_one", "sleep_all") and self.has_cause:
            time.sleep(0.015)
        if self.name == "garbage" and self.has_cause:
            gc.collect()
        if self.name == "more_work" and self.has_cause:
            for _ in range(24):
                torch.mm(self.matrix, self.matrix)
        if self.name == "slow_kernels" and self.has_cause:  # vector units, no matrix units
            single = self.matrix[:2048, :2048].float()
            for _ in range(12):
                torch.mm(single, single)
        if self.pageable is not None:
            self.pageable.to("cuda")

    def middle(self) -> None:
        """What comes between the forward and the backward pass."""
        if self.name == "sleep_middle" and self.has_cause:
            time.sleep(0.015)
        if self.name == "allocator" and self.has_cause:
            torch.cuda.empty_cache()

    def end(self, parameters: list[torch.nn.Parameter]) -> None:
        """What comes after the backward pass, before the optimizer."""
        if self.name in ("norms_one", "norms_all") and self.has_cause:
            for parameter in parameters:
                if parameter.grad is not None:
                    gradient = parameter.grad
                    local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
                    local.float().norm().item()
        if self.name == "scalars":
            for _ in range(48):
                dist.all_reduce(self.small)
                self.small.item()
        if self.name == "checkpoint" and self.step % 4 == 0:
            if self.has_cause:
                for parameter in parameters:
                    held = parameter.data
                    (held.to_local() if hasattr(held, "to_local") else held).cpu()
            dist.barrier()


def build(job: str, planted: Planted) -> Step:
    """The step of a job."""
    import job_models as models
    import torch.nn.functional as F

    width, batch, length = 2048, 4, 1024
    if job == "host":
        width, batch, length = 512, 1, 128

    def training(run: torch.nn.Module) -> Step:
        parameters = list(run.parameters())
        opt = models.optimizer(parameters)

        def step() -> None:
            planted.begin()
            x = planted.tokens(batch, models.VOCABULARY, length)
            loss = F.cross_entropy(run(x).flatten(0, 1).float(), x.flatten())
            planted.middle()
            loss.backward()
            planted.end(parameters)
            opt.step()
            opt.zero_grad()

        return step

    if job == "pipeline":
        return _pipeline(models, planted)
    if job == "moe":
        return training(_experts(models, planted))
    if job == "tp":
        group = dist.group.WORLD
        blocks = [models.Block(width, 16, WORLD, group) for _ in range(LAYERS)]
        return training(models.language_model(blocks))
    if job == "fsdp":
        return training(_sharded(models, width))
    layers = 3 * LAYERS if job == "host" else LAYERS
    blocks = [models.Block(width, 16) for _ in range(layers)]
    options = {
        "small_buckets": {"bucket_cap_mb": 1 if job == "ddp" else 0.1},
        "one_bucket": {"bucket_cap_mb": 100_000},
        "unused": {"find_unused_parameters": True},
    }
    model = models.language_model(blocks, width)
    return training(models.data_parallel(model, **options.get(planted.name, {})))


def _sharded(models: Any, width: int) -> torch.nn.Module:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = models.language_model([models.Block(width, 16) for _ in range(LAYERS)]).float()
    for block in model[1:-1]:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model


def _experts(models: Any, planted: Planted) -> torch.nn.Module:
    """One expert a rank; the cause sends most tokens to the first."""
    experts = [models.Experts(2048) for _ in range(LAYERS // 2)]
    model = models.language_model(experts)
    if planted.name == "experts":
        for expert in experts:
            with torch.no_grad():
                expert.router.weight[1].zero_()
                expert.router.weight[0].fill_(0.02)
    local = {
        f"{n}.{p}"
        for n, _ in model.named_modules()
        for p in ("up.weight", "up.bias", "down.weight", "down.bias")
    }
    parallel = torch.nn.parallel.DistributedDataParallel
    parallel._set_params_and_buffers_to_ignore_for_model(model, local)
    return models.data_parallel(model)


def _pipeline(models: Any, planted: Planted) -> Step:
    """Two stages; the cause leaves two microbatches of eight."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank = planted.rank
    parts: list[torch.nn.Module] = [models.Block(2048, 16) for _ in range(LAYERS // 2)]
    if rank == 0:
        parts.insert(0, torch.nn.Embedding(models.VOCABULARY, 2048))
    if rank == WORLD - 1:
        parts.append(torch.nn.Linear(2048, models.VOCABULARY, bias=False))
    model = torch.nn.Sequential(*parts).to("cuda").to(models.TYPE)
    stage = PipelineStage(model, rank, WORLD, torch.device("cuda", rank))
    microbatches = 2 if planted.name == "bubble" else 8
    plan = Schedule1F1B(stage, n_microbatches=microbatches, loss_fn=models.loss_of)
    parameters = list(model.parameters())
    opt = models.optimizer(parameters)

    def step() -> None:
        planted.begin()
        x = planted.tokens(8, models.VOCABULARY, 1024)
        plan.step(*([x] if rank == 0 else []), **({"target": x} if rank == WORLD - 1 else {}))
        planted.end(parameters)
        opt.step()
        opt.zero_grad()

    return step


def timed(step: Step) -> float:
    """Milliseconds a step, without the profiler."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(TIMED):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3 / TIMED


def record(step: Step, path: Path, *, cpu: bool) -> None:
    """A trace of `ACTIVE` steps."""
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CUDA] + ([ProfilerActivity.CPU] if cpu else [])
    with profile(
        activities=activities,
        schedule=schedule(wait=1, warmup=2, active=ACTIVE),
        on_trace_ready=lambda p: p.export_chrome_trace(str(path)),
    ) as recorded:
        for _ in range(3 + ACTIVE):
            step()
            recorded.step()


def run_rank(job: str, name: str, rank: int, folder: Path) -> None:
    """One process of a start."""
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    torch.manual_seed(0)
    planted = Planted(name, rank)
    torch.autograd.set_detect_anomaly(name == "debug")
    step = build(job, planted)
    for _ in range(WARM):
        step()
    steps = [round(timed(step), 3) for _ in range(3)]
    record(step, folder / f"light.rank{rank}.json", cpu=False)
    for _ in range(2):
        step()
    record(step, folder / f"full.rank{rank}.json", cpu=True)
    torch.cuda.synchronize()
    (folder / f"steps.rank{rank}.json").write_text(json.dumps(steps))
    dist.barrier()


def child(work: Callable[[], None], env: dict[str, str], log: Path) -> int:
    """A forked process that does `work`; its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        out = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.environ.update(env)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def burn_cores(cores: set[int]) -> None:
    """Keep cores busy until killed."""
    os.sched_setaffinity(0, cores)
    while True:
        sum(range(10_000))


def burn_gpu(device: int) -> None:
    """Another job's work on a GPU, until killed."""
    torch.cuda.set_device(device)
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    while True:
        for _ in range(8):
            torch.mm(x, x)
        torch.cuda.synchronize()
        time.sleep(0.004)


def wait(ranks: dict[int, int], others: list[int], seconds: float = _SECONDS) -> dict[int, int]:
    """Exit status of each rank that ended; the rest, and the other processes, are killed.

    ranks    the rank of each process id
    seconds  after which they are given up
    """
    ended: dict[int, int] = {}
    give_up = time.monotonic() + seconds
    while len(ended) < len(ranks) and not any(ended.values()) and time.monotonic() < give_up:
        for pid, rank in ranks.items():
            if rank not in ended:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    ended[rank] = status
        time.sleep(0.02)
    for pid in [p for p, rank in ranks.items() if rank not in ended] + others:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return ended


def start(job: str, name: str, number: int, out: Path, port: int) -> dict[str, Any]:
    """One start of a case: what is known of it afterwards."""
    cause = CAUSES[name]
    folder = out / f"{job}-{name}.{number}"
    folder.mkdir(parents=True)
    log = folder / "log.txt"
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(WORLD),
        # Without COLL, whose lines would slow the host.
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,P2P,SHM,NET",
        "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log"),
    }
    ranks = {}
    others = []
    for rank in range(WORLD):
        env = {**shared, **cause.env, "RANK": str(rank), "LOCAL_RANK": str(rank)}

        def work(rank: int = rank) -> None:
            if name == "busy_cores" and rank in cause.ranks:
                os.sched_setaffinity(0, {2})
            run_rank(job, name, rank, folder)

        ranks[child(work, env, log)] = rank
    if name == "busy_cores":
        others = [child(lambda: burn_cores({2}), {}, log) for _ in range(4)]
    if name == "neighbour":
        others = [child(lambda: burn_gpu(cause.ranks[0]), {}, log)]
    ended = wait(ranks, others)
    ok = len(ended) == WORLD and not any(ended.values())
    truth = {
        "case": f"{job}-{name}", "start": number, "job": job, "planted": name,
        "codes": cause.codes, "ranks": cause.ranks, "env": cause.env, "ok": ok,
        "exam": zlib.crc32(f"{job}-{name}".encode()) % 2 == 1,
    }  # fmt: skip
    if ok:
        truth["step_ms"] = json.loads((folder / "steps.rank0.json").read_text())
        with tarfile.open(out / f"{job}-{name}.{number}.tar", "w") as archive:
            for path in sorted(folder.iterdir()):
                if path.name.startswith(("light", "full", "nccl")):
                    archive.add(path, path.name)
    else:
        truth["log"] = log.read_text(errors="replace")[-1500:]
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return truth


def main() -> None:
    """Record what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--only", default="", help="jobs, or cases (JOB-CAUSE), with commas between"
    )
    parser.add_argument("--start", type=int, default=1, help="2: a third of them, once more")
    parser.add_argument("--seconds", type=float, default=540, help="no case begins after that")
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    given.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.seconds
    every = [(job, name) for job, names in CASES.items() for name in names]
    wanted = set(given.only.split(",")) if given.only else None
    with (given.out / "truth.jsonl").open("a") as file:
        for number, (job, name) in enumerate(every):
            case = f"{job}-{name}"
            if wanted is not None and not {job, case} & wanted:
                continue
            if given.start == 2 and zlib.crc32(case.encode()) % 3:
                continue
            if time.monotonic() > end:
                print("NOT RECORDED", case, flush=True)
                continue
            truth = start(job, name, given.start, given.out, 29500 + number)
            file.write(json.dumps(truth) + "\n")
            file.flush()
            print(case, given.start, truth.get("step_ms") or truth.get("log"), flush=True)


if __name__ == "__main__":
    main()
