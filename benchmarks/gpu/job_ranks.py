"""Ranks of torchrun that run small jobs one after the other: set-up, recordings, NCCL's log, truth.

For job_decode.py and job_sizes.py. OUT and SECONDS are the arguments of both: where files go, and
when no further job begins. Multicast stays off, in NCCL and in PyTorch's symmetric memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

Job = TypeVar("Job")


class Ranks:
    """What the jobs share."""

    def __init__(self, torch: Any, out: Path) -> None:
        self.torch, self.dist, self.out = torch, torch.distributed, out
        self.rank = self.dist.get_rank()
        self.host = self.dist.new_group(backend="gloo", timeout=timedelta(seconds=120))
        self.kept: list[Any] = []  # memory of graphs, and memory that other ranks know
        self.log = out / f"nccl.{os.getpid()}.log"

    def together(self) -> None:
        """All ranks come here, with nothing left to do."""
        self.torch.cuda.synchronize()
        self.dist.barrier(group=self.host)

    def logged(self) -> int:
        """Bytes of NCCL's log so far."""
        return self.log.stat().st_size if self.log.exists() else 0

    def keep_log(self, folder: Path, begin: int, end: int, *, without: bytes | None = None) -> None:
        """A part of NCCL's log as the job's own, without the lines that hold some bytes."""
        lines = self.log.read_bytes()[begin:end].split(b"\n")
        if without is not None:
            lines = [line for line in lines if without not in line]
        (folder / f"nccl.rank{self.rank}.log").write_bytes(b"\n".join(lines))

    def record(self, folder: Path, style: str, work: Callable[[], None]) -> float:
        """A trace of some work, and its time by the host's clock in ms.

        style  light: CUDA activities alone; others: the CPU's, too, with shapes
        """
        from torch.profiler import ProfilerActivity, profile

        kinds = [ProfilerActivity.CUDA] + [ProfilerActivity.CPU] * (style != "light")
        self.together()
        with profile(activities=kinds, record_shapes=style != "light") as recorded:
            self.together()
            begin = time.perf_counter()
            work()
            self.torch.cuda.synchronize()
            took = (time.perf_counter() - begin) * 1e3
        recorded.export_chrome_trace(str(folder / f"{style}.rank{self.rank}.json"))
        return took


def run_jobs(
    jobs: Iterable[Job], runner: Callable[[Ranks], Callable[[Job], dict[str, Any]]]
) -> None:
    """All jobs, as long as there is time; ends the process.

    runner  given the ranks, it returns what runs a job and returns its truth
    """
    begin = time.monotonic()
    out, seconds = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    out.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        NCCL_NVLS_ENABLE="0",
        TORCH_SYMM_MEM_DISABLE_MULTICAST="1",
        NCCL_DEBUG="INFO",
        NCCL_DEBUG_SUBSYS="INIT,ENV,COLL,TUNING",
        NCCL_DEBUG_FILE=str(out / "nccl.%p.log"),
    )
    import torch

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl")
    torch.manual_seed(torch.distributed.get_rank())
    ranks = Ranks(torch, out)
    run = runner(ranks)
    for job in jobs:
        box = [time.monotonic() - begin < seconds]
        torch.distributed.broadcast_object_list(box, src=0, group=ranks.host)
        if not box[0]:
            break
        began = time.monotonic()
        truth = run(job)
        if ranks.rank == 0:
            with (out / "truth.jsonl").open("a") as file:
                file.write(json.dumps(truth) + "\n")
            took = f"{time.monotonic() - began:.1f} s"
            print(truth["job"], truth.get("step_ms", ""), took, flush=True)
    ranks.together()
    ranks.log.unlink(missing_ok=True)
    sys.stdout.flush()
    os._exit(0)
