"""`collscope bench`: microbenchmarks of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from collscope.cli import replay_options
from collscope.cli.answers import targets, write_answer
from collscope.cli.bench_backends import backends
from collscope.cli.bench_ceilings import ceilings
from collscope.cli.bench_interference import interference
from collscope.cli.bench_memcpy import memcpy
from collscope.cli.bench_p2p import p2p
from collscope.cli.options import DEFAULT_DB, Db, Format, FormatOption, Output, Run
from collscope.gpu_vendors import Backend

bench_app = typer.Typer(no_args_is_help=True, help="Run microbenchmarks on this machine.")


@bench_app.command("allreduce-wrapper")
def allreduce_wrapper(
    ranks: Annotated[int, typer.Option("-n", "--ranks", help="Ranks (GPUs).", min=2)],
    gpus_per_process: Annotated[
        int | None,
        typer.Option("--gpus-per-process", help="GPUs of each process. Default: all.", min=1),
    ] = None,
    backend: replay_options.BackendOption = Backend.AUTO,
    library: replay_options.Library = None,
    runtime: replay_options.Runtime = None,
    budget: Annotated[float, typer.Option("--budget", help="Seconds per size.", min=0)] = 0.2,
    timeout: replay_options.LaunchTimeout = None,
    env: replay_options.Environment = None,
    mpiexec: replay_options.Mpiexec = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    format: FormatOption = None,
    output: Output = None,
) -> None:
    """Test an all-reduce wrapper: values, times, fusion.

    Each with one thread for all GPUs, and with a thread for each GPU. The fusion test uses
    ResNet50's gradients.
    """
    from collscope.replay.session import Method, Options, Target, make_session
    from collscope.reports.whatif.wrapper_text import render_wrapper
    from collscope.whatif.wrapper import modes, run_wrapper

    places = targets(format, output, Format)

    method = Method(
        backend=backend.value,
        library=library,
        runtime=runtime,
        budget_s=budget,
        timeout_s=timeout,
    )
    session = make_session(method, Options(environment=tuple(env or ()), launcher=mpiexec))
    spread = modes(session, ranks, gpus_per_process)
    found, error = run_wrapper(ranks, spread, session, Target(db, run))
    write_answer(places, lambda fmt: render_wrapper(found, fmt))
    if error is not None:
        raise error


bench_app.command()(p2p)
bench_app.command()(interference)
bench_app.command()(memcpy)
bench_app.command()(ceilings)
bench_app.command()(backends)
