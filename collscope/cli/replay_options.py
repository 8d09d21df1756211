"""Options of every command that starts the replayer or chooses what it runs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Backend(str, Enum):
    """What a replay runs on."""

    AUTO = "auto"
    CUDA = "cuda"
    HIP = "hip"
    HOST = "host"


class Threads(str, Enum):
    """Host threads of a process with several GPUs."""

    PER_GPU = "per-gpu"
    ONE = "one"


BackendOption = Annotated[Backend, typer.Option("--backend", help="What to run on.")]
Library = Annotated[str | None, typer.Option("--library", help="NCCL or RCCL.")]
Runtime = Annotated[str | None, typer.Option("--runtime", help="CUDA or HIP runtime.")]
Mpiexec = Annotated[Path | None, typer.Option("--mpiexec", help="The launcher.")]
Environment = Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE.")]
Replayer = Annotated[Path | None, typer.Option("--replayer", help="The executable.")]
ThreadsOption = Annotated[Threads | None, typer.Option("--threads", help="Of a process.")]
GpusPerProcess = Annotated[
    int, typer.Option("--gpus-per-process", help="GPUs of each process.", min=1)
]
PlanFile = Annotated[Path | None, typer.Option("--plan", help="A plan file.")]
Ranks = Annotated[int | None, typer.Option("-n", "--ranks", help="Ranks (GPUs) at hand.", min=1)]
Only = Annotated[
    str | None, typer.Option("--only", help="Classes: allreduce,alltoall:64K, 12 as in report.")
]
MinShare = Annotated[float | None, typer.Option("--min-share", help="Least share, 0 to 1.")]
Limit = Annotated[int | None, typer.Option("--limit", help="Most classes.", min=1)]
ScaleRanks = Annotated[
    int | None, typer.Option("--scale-ranks", help="Remap to so many ranks.", min=1)
]
Logs = Annotated[list[str] | None, typer.Argument(help="Logs; none: use the store.")]
