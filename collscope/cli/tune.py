"""`collscope tune`: better settings for a job's collectives on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collscope.cli import replay_options
from collscope.cli.answers import targets, write_answer
from collscope.cli.options import (
    DEFAULT_DB,
    SYSTEM,
    SYSTEM_VARIABLE,
    Db,
    Output,
    Run,
    TuneFormat,
    TuneFormatOption,
    checked_label,
)
from collscope.cli.progress import progress
from collscope.cli.run_argument import paths_or_run
from collscope.cli.values import complete_system
from collscope.errors import CollscopeError
from collscope.gpu_vendors import Backend
from collscope.units import require_step_ms


def tune(
    context: typer.Context,
    logs: replay_options.Logs = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    plan: replay_options.PlanFile = None,
    ranks: replay_options.Ranks = None,
    only: replay_options.Only = None,
    min_share: replay_options.MinShare = None,
    limit: replay_options.Limit = None,
    scale_ranks: replay_options.ScaleRanks = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="A variable that the job sets, NAME=VALUE.")
    ] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option("--candidate", help="One more setting to try: NAME:VAR=VALUE,..."),
    ] = None,
    named: Annotated[
        str | None, typer.Option("--try", help="Try only these: ring/ll128,nvls/simple,channels.")
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            autocompletion=complete_system,
            envvar=SYSTEM_VARIABLE,
            help=f"Machine; settings that are slow on it are skipped: {SYSTEM}.",
        ),
    ] = None,
    step_ms: Annotated[
        float | None,
        typer.Option("--step-ms", help="Step time of the job, in ms.", callback=require_step_ms),
    ] = None,
    steps: Annotated[
        int,
        typer.Option("--steps", help="Number of steps that the recorded calls cover.", min=1),
    ] = 1,
    time_limit: Annotated[
        float, typer.Option("--time-limit", help="Seconds for the whole command.", min=1)
    ] = 300.0,
    budget: Annotated[
        float, typer.Option("--budget", help="Seconds per class and launch.", min=0)
    ] = 0.05,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", help="End a launch after this many seconds without progress.", min=0
        ),
    ] = 20.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed for the order of launches.")] = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder of the results.")] = Path("tune"),
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            help="Prefix of the labels 'present', 'default' and 'tuned'.",
            callback=checked_label,
        ),
    ] = None,
    backend: replay_options.BackendOption = Backend.AUTO,
    library: replay_options.Library = None,
    runtime: replay_options.Runtime = None,
    gpus_per_process: replay_options.GpusPerProcess = 1,
    threads: replay_options.ThreadsOption = None,
    graph: replay_options.Graph = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what would be tried and how long it takes; stop."),
    ] = False,
    replayer: replay_options.Replayer = None,
    mpiexec: replay_options.Mpiexec = None,
    format: TuneFormatOption = None,
    output: Output = None,
) -> None:
    """Find faster settings for a job's collectives and confirm them."""
    from collscope.cli.tune_inputs import TuneOptions, make_request
    from collscope.replay.command import Choice, Source
    from collscope.replay.session import Method, Options, make_session
    from collscope.reports.tune.text import render_tuning
    from collscope.tuning.command import dry_tune, run_tune

    places = targets(format, output, TuneFormat)
    sources, run = paths_or_run(context, db, logs, run)

    method = Method(
        backend=backend.value,
        library=library,
        runtime=runtime,
        gpus_per_process=gpus_per_process,
        threads=threads.value if threads else None,
        budget_s=budget,
        timing="graph" if graph else "batch",
        timeout_s=timeout,
    )
    options = Options((), tuple(env or ()), None, ranks, replayer, mpiexec)
    tune_options = TuneOptions(
        source=Source(db, run, sources, plan),
        choice=Choice(only, min_share, limit, scale_ranks),
        session=make_session(method, options),
        candidates=tuple(candidate or ()),
        named=named,
        system=system,
        step_ms=step_ms,
        steps=steps,
        out=out,
        label=label,
        time_limit_s=time_limit,
        seed=seed,
    )
    request, notices = make_request(tune_options, progress())
    try:
        if dry_run:
            found, error = dry_tune(request, notices), None
        else:
            found, error = run_tune(request, notices)
    except CollscopeError:
        # Without an answer that has them: a setting that is missing may be why.
        for notice in notices:
            typer.echo(f"collscope: tune: {notice.text}.", err=True)
        raise
    write_answer(places, lambda fmt: render_tuning(found, fmt, out))
    if error is not None:
        raise error
