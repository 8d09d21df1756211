"""`collscope replay`: measure the recorded collectives on this machine."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from collscope.cli import replay_options
from collscope.cli.options import DEFAULT_DB, Db, Run, write
from collscope.cli.progress import progress
from collscope.cli.run_argument import paths_or_run
from collscope.errors import UsageError
from collscope.gpu_vendors import Backend


class Mode(str, Enum):
    """What a replay runs."""

    UNIQUE = "unique"
    SEQUENCE = "sequence"


class InPlace(str, Enum):
    """Buffers of a sweep."""

    NO = "no"
    YES = "yes"
    BOTH = "both"


class Layout(str, Enum):
    """Columns of a replay's CSV."""

    COLLSCOPE = "collscope"
    RCCL_REPLAYER = "rccl_replayer"


def replay(
    context: typer.Context,
    logs: replay_options.Logs = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    plan: replay_options.PlanFile = None,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", help="Operations and sizes, instead of logs: allreduce:1K..4G*2."),
    ] = None,
    datatype: Annotated[str, typer.Option("--datatype", help="Datatype of the sweep.")] = "float32",
    redop: Annotated[
        str, typer.Option("--redop", help="Reduction of the sweep: sum, prod, max, min or avg.")
    ] = "sum",
    in_place: Annotated[
        InPlace, typer.Option("--in-place", help="Whether the sweep runs in place.")
    ] = InPlace.NO,
    ranks: replay_options.Ranks = None,
    mode: Annotated[
        Mode | None,
        typer.Option("--mode", help="Run each class by itself, or every call in order."),
    ] = None,
    repeat: Annotated[
        int | None, typer.Option("--repeat", help="Number of runs of a sequence.")
    ] = None,
    only: replay_options.Only = None,
    min_share: replay_options.MinShare = None,
    limit: replay_options.Limit = None,
    scale_ranks: replay_options.ScaleRanks = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    csv: replay_options.ResultsCsv = None,
    csv_layout: Annotated[
        Layout, typer.Option("--csv-layout", help="Columns of the CSV.")
    ] = Layout.COLLSCOPE,
    backend: replay_options.BackendOption = Backend.AUTO,
    library: replay_options.Library = None,
    runtime: replay_options.Runtime = None,
    gpus_per_process: replay_options.GpusPerProcess = 1,
    threads: replay_options.ThreadsOption = None,
    budget: Annotated[
        float | None, typer.Option("--budget", help="Seconds to spend on each class.")
    ] = None,
    graph: replay_options.Graph = False,
    isolated: Annotated[
        bool,
        typer.Option("--isolated", help="Time each call alone, as a blocking program sees it."),
    ] = False,
    verify: Annotated[
        int | None,
        typer.Option("--verify", help="How many calls of each class to check.", min=0),
    ] = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not check results.")] = False,
    timeout: replay_options.RunTimeout = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure only what is missing in the file of --csv.")
    ] = False,
    env: replay_options.Environment = None,
    variant: replay_options.Variants = None,
    rounds: replay_options.Rounds = None,
    label: replay_options.ResultsLabel = None,
    replayer: replay_options.Replayer = None,
    mpiexec: replay_options.Mpiexec = None,
    oversubscribe: replay_options.Oversubscribe = False,
) -> None:
    """Measure the collectives of a run, a plan or a sweep.

    Reads a run of the store, unless logs, --plan or --sweep are given. Results go into the store.
    """
    from collscope.replay import command
    from collscope.replay.estimate import describe
    from collscope.replay.measure import measure
    from collscope.replay.session import Method, Options, Target, first_rank_speaks, make_session
    from collscope.replay.text import plan_text
    from collscope.reports.replayed.plan_text import render_planned
    from collscope.reports.replayed.text import render_measured

    with first_rank_speaks():
        sources, run = paths_or_run(context, db, logs, run)
        if graph and isolated:
            raise UsageError("replay: --graph and --isolated exclude each other. Choose one.")
        method = Method(
            backend=backend.value,
            library=library,
            runtime=runtime,
            gpus_per_process=gpus_per_process,
            threads=threads.value if threads else None,
            budget_s=budget,
            timing="graph" if graph else "isolated" if isolated else "batch",
            verify=0 if no_verify else verify,
            repeat=repeat,
            timeout_s=timeout,
        )
        options = Options(
            tuple(variant or ()), tuple(env or ()), rounds, ranks, replayer, mpiexec, oversubscribe
        )
        session = make_session(method, options)
        source = command.Source(
            db,
            run,
            sources,
            plan,
            sweep,
            datatype,
            redop,
            in_place.value,
            session.ranks,
            mode.value if mode else None,
        )
        choice = command.Choice(only, min_share, limit, scale_ranks)
        planned = command.choose(command.make_plan(source, progress()), choice)
        if dry_run:
            rows, needs = describe(planned), command.needs(planned, method)
            text = render_planned(rows, needs, planned.notices, plan_text(planned.plan))
            write(text, None)
            return
        for notice in planned.notices:
            write(f"replay: {notice}", None)
        if resume and csv is None:
            write(
                "replay: --resume without --csv: there are no earlier results, so every class is"
                " measured",
                None,
            )
        target = Target(db, run, csv, csv_layout.value, label, resume)
        outcome = measure(planned.plan, session, target)
        if outcome.measurements:
            write(render_measured(outcome.measurements), None)
        if outcome.notice is not None:
            write(f"\nreplay: {outcome.notice.text}", None)
        if outcome.error is not None:
            raise outcome.error
