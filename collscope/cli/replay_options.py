"""Options of every command that starts the replayer or chooses what it runs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from collscope.cli.options import checked_label
from collscope.gpu_vendors import Backend


class Threads(str, Enum):
    """Host threads of a process with several GPUs."""

    PER_GPU = "per-gpu"
    ONE = "one"


BackendOption = Annotated[
    Backend, typer.Option("--backend", help="GPU runtime; host: MPI on the CPU, no GPU.")
]


def _library(text: str) -> str:
    from collscope.programs import named_file

    return named_file(text)


def _program(text: str) -> Path:
    from collscope.programs import named_file

    return Path(named_file(text))


Library = Annotated[
    str | None,
    typer.Option(
        "--library", help="Library file of NCCL or RCCL to load.", metavar="FILE", parser=_library
    ),
]
Runtime = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        help="Library file of the CUDA or HIP runtime.",
        metavar="FILE",
        parser=_library,
    ),
]
Mpiexec = Annotated[
    str | None,
    typer.Option("--mpiexec", help="Program that starts the ranks; arguments may follow its name."),
]
Oversubscribe = Annotated[
    bool,
    typer.Option("--oversubscribe", help="Start more ranks than a host without GPUs can serve."),
]
Environment = Annotated[
    list[str] | None, typer.Option("--env", help="Set NAME=VALUE for the ranks.")
]
Variants = Annotated[
    list[str] | None,
    typer.Option("--variant", help="A setting: LABEL:NAME=VALUE,library=PATH,..."),
]
Rounds = Annotated[
    int | None, typer.Option("--rounds", help="Number of rounds over the variants.", min=1)
]
RunTimeout = Annotated[
    float | None,
    typer.Option("--timeout", help="End the run after this many seconds without progress."),
]
LaunchTimeout = Annotated[
    float | None,
    typer.Option("--timeout", help="End a launch after this many seconds without progress."),
]
ResultsCsv = Annotated[
    Path | None, typer.Option("--csv", help="Also write the results to this CSV.")
]
Graph = Annotated[
    bool, typer.Option("--graph", help="Time the calls captured in a CUDA or HIP graph.")
]
ResultsLabel = Annotated[
    str | None, typer.Option("--label", help="Label of the results.", callback=checked_label)
]
Replayer = Annotated[
    Path | None,
    typer.Option(
        "--replayer", help="The collscope-replayer to start.", metavar="FILE", parser=_program
    ),
]
Microbench = Annotated[
    Path | None,
    typer.Option(
        "--microbench", help="The collscope-microbench to start.", metavar="FILE", parser=_program
    ),
]
ThreadsOption = Annotated[
    Threads | None, typer.Option("--threads", help="Host threads of a process with several GPUs.")
]
GpusPerProcess = Annotated[
    int, typer.Option("--gpus-per-process", help="GPUs of each process.", min=1)
]
PlanFile = Annotated[Path | None, typer.Option("--plan", help="A plan file, in place of a run.")]
Ranks = Annotated[int | None, typer.Option("-n", "--ranks", help="Ranks (GPUs) to use.", min=1)]
Only = Annotated[
    str | None, typer.Option("--only", help="Only these classes: allreduce,alltoall:64K,12.")
]
MinShare = Annotated[
    float | None,
    typer.Option(
        "--min-share", help="Leave out classes with a smaller share of the time (0 to 1)."
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", help="Only this many of the heaviest classes.", min=1)
]
ScaleRanks = Annotated[
    int | None,
    typer.Option("--scale-ranks", help="Remap the recorded calls to this many ranks.", min=1),
]
Logs = Annotated[
    list[str] | None, typer.Argument(help="Logs to read, or a run. Default: the run of --run.")
]
