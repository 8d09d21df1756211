"""`collscope bench interference`: compute and collectives at the same time."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from collscope.cli import replay_options
from collscope.cli.answers import targets, write_answer
from collscope.cli.options import DEFAULT_DB, Db, Format, FormatOption, Output, Run, write_figures
from collscope.gpu_vendors import Backend


class Computation(str, Enum):
    """What runs at the same time as the collectives."""

    AUTO = "auto"
    GEMM = "gemm"
    KERNEL = "kernel"


class Priority(str, Enum):
    """Priority of the collectives' stream."""

    HIGH = "high"
    NORMAL = "normal"


def interference(
    ranks: Annotated[
        int | None,
        typer.Option("-n", "--ranks", help="Ranks (GPUs). Default: those of the run.", min=2),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", help="Operations and sizes: allreduce,allgather:1M..256M*4."),
    ] = None,
    datatype: Annotated[
        str, typer.Option("--datatype", help="Datatype of the sweep.")
    ] = "bfloat16",
    overlapped: Annotated[
        bool,
        typer.Option("--overlapped", help="Measure the run's classes that overlap with compute."),
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", help="With --overlapped: at most this many classes.", min=1)
    ] = 5,
    channels: Annotated[
        str | None,
        typer.Option("--channels", help="One launch for each number of channels: 1,2,4."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", help="Number of repetitions of every launch.", min=1)
    ] = None,
    compute: Annotated[
        Computation,
        typer.Option("--compute", help="What to compute: a matrix product or a kernel."),
    ] = Computation.AUTO,
    blas: Annotated[
        str | None, typer.Option("--blas", help=("Library file of cuBLAS or rocBLAS."))
    ] = None,
    compiler: Annotated[
        str | None, typer.Option("--compiler", help="Library file of NVRTC or hipRTC.")
    ] = None,
    priority: Annotated[
        Priority, typer.Option("--priority", help="Priority of the collectives' stream.")
    ] = Priority.HIGH,
    backend: replay_options.BackendOption = Backend.AUTO,
    library: replay_options.Library = None,
    runtime: replay_options.Runtime = None,
    budget: Annotated[
        float, typer.Option("--budget", help="Seconds per class and launch.", min=0)
    ] = 1.0,
    timeout: replay_options.RunTimeout = None,
    env: replay_options.Environment = None,
    label: replay_options.ResultsLabel = None,
    microbench: replay_options.Microbench = None,
    mpiexec: replay_options.Mpiexec = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    csv: replay_options.ResultsCsv = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Plot over size and channels: .png, .svg, .pdf.")
    ] = None,
    format: FormatOption = None,
    output: Output = None,
) -> None:
    """Measure how compute and collectives slow each other."""
    from collscope.bench.interference import InterferenceRequest, measure_interference
    from collscope.replay.session import Target
    from collscope.replay.variants import parse_assignment
    from collscope.reports.interference.answer import build_interference
    from collscope.reports.interference.text import render_interference

    places = targets(format, output, Format)

    request = InterferenceRequest(
        nranks=ranks,
        sweep=sweep,
        datatypes=datatype,
        overlapped=overlapped,
        limit=limit,
        channels=channels,
        rounds=rounds,
        compute=compute.value,
        blas=blas,
        compiler=compiler,
        priority=priority.value,
        backend=backend.value,
        library=library,
        runtime=runtime,
        budget_s=budget,
        timeout_s=timeout,
        environment=tuple(parse_assignment(text) for text in env or ()),
        program=microbench,
        launcher=mpiexec,
    )
    if plot is not None:
        from collscope.reports.rendering.plot import check_plot

        check_plot(plot)
    done = measure_interference(request, Target(db, run, csv, label=label))
    found = build_interference(done.rows)
    write_answer(places, lambda fmt: render_interference(found, fmt))
    # An error is what the command ends with, rather than that there is nothing to draw.
    if plot is not None and (found.rows or done.error is None):
        from collscope.reports.interference.page import interference_extras

        write_figures(interference_extras(found).figures(), plot, "nothing was measured")
    if done.error is not None:
        raise done.error
