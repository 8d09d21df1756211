"""Training jobs with step times as truth, and their traces: hold-out for `collscope predict`.

    torchrun --nproc_per_node 4 benchmarks/gpu/jobs.py OUT [--traces STYLES] [--only pp,moe]

The jobs of job_models.py and job_library_models.py, one process a rank, one after the other. No
barrier between steps. The step times come first, since the profiler's remains slow what follows
it. SETTING names the environment that the library was started with; jobs.sh runs several.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path

import job_library_models
import job_models
import torch
import torch.distributed as dist
from job_models import DEVICE, GPU, RANK, Step
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

JOBS = job_models.JOBS | job_library_models.JOBS


def synchronize() -> None:
    if GPU:
        torch.cuda.synchronize()


def print_row(**values: object) -> None:
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
    """plain...: three steps; others: wait 1, warm-up 3, active 4, with sync events.

    ...full records the CPU too, ...light the GPU alone.
    """
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
        print_row(
            set="calibration", style=style, free_us=free, profiled_us=slow, launches=len(calls) / 6
        )


def prepared(name: str) -> Step | None:
    """A job with its step times; None where it failed."""
    try:
        step = JOBS[name]()
        measure(step, 8)
        print_row(
            set="steps", case=name, pipelined_ms=[round(measure(step, 20), 3) for _ in range(3)]
        )
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
