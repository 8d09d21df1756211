"""`collscope whatif`: what the job would gain if it were done otherwise."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from collscope.cli.answers import targets, write_answer
from collscope.cli.options import (
    DEFAULT_DB,
    RUN_VARIABLE,
    Db,
    Format,
    FormatOption,
    Output,
    checked_label,
    write_figures,
)
from collscope.cli.replay_options import (
    Environment,
    Library,
    Mpiexec,
    Runtime,
)
from collscope.cli.run_argument import RunArgument, named_run
from collscope.cli.values import complete_run
from collscope.errors import UsageError
from collscope.gpu_vendors import Backend
from collscope.whatif.policies import Policy

whatif_app = typer.Typer(
    no_args_is_help=True, help=("Estimate AllReduce time with other gradient buckets.")
)


class Order(str, Enum):
    """Order in which a layer list is put into buckets."""

    LISTED = "listed"
    REVERSED = "reversed"


@whatif_app.callback()
def _whatif() -> None:
    """A command of its own name even while there is one only."""


@whatif_app.command("fusion")
def fusion(
    context: typer.Context,
    name: RunArgument = None,
    layers: Annotated[
        Path | None, typer.Option("--layers", help="Layers: a CSV with name,parameters.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            autocompletion=complete_run,
            help="Merge the AllReduce calls of this run. Default: COLLSCOPE_RUN, else main.",
            callback=checked_label,
        ),
    ] = None,
    policy: Annotated[
        Policy, typer.Option("--policy", help="Rule that closes a bucket.")
    ] = Policy.TORCH_DDP,
    thresholds: Annotated[
        str | None,
        typer.Option(
            "--thresholds", help="Bucket sizes: 1K..64M*2,100M; for fixed_count: numbers."
        ),
    ] = None,
    first_bucket: Annotated[
        str, typer.Option("--first-bucket", help="Size of torch_ddp's first bucket.")
    ] = "1M",
    order: Annotated[
        Order | None,
        typer.Option("--order", help="Order of the layers. Default for torch_ddp: reversed."),
    ] = None,
    datatype: Annotated[
        str | None, typer.Option("--datatype", help="Datatype of the layers. Default: float32.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("-n", "--ranks", help="Number of ranks that reduce.", min=2)
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="Number of their nodes.", min=1)
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            help="Label of the measurements to use, or to make (--measure).",
            callback=checked_label,
        ),
    ] = None,
    overlap: Annotated[
        str | None, typer.Option("--overlap", help="Overlap with compute: recorded, or uniform:MS.")
    ] = None,
    queued: Annotated[
        bool, typer.Option("--queued", help="Queue buckets on a stream, without waiting between.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Replay the buckets instead of predicting.")
    ] = False,
    backend: Annotated[Backend, typer.Option("--backend", help="Where to measure.")] = Backend.AUTO,
    library: Library = None,
    runtime: Runtime = None,
    budget: Annotated[
        float | None, typer.Option("--budget", help="--measure: seconds for each size.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="--measure: seconds without progress.")
    ] = None,
    env: Environment = None,
    mpiexec: Mpiexec = None,
    db: Db = DEFAULT_DB,
    format: FormatOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Plot time over threshold: .png, .svg, .pdf.")
    ] = None,
    output: Output = None,
) -> None:
    """Estimate a step's AllReduce time with other gradient buckets."""
    from collscope.replay.session import Method, Options, make_session
    from collscope.reports.whatif.text import render_fusion
    from collscope.units import parse_size
    from collscope.whatif.records import FusionRequest

    places = targets(format, output, Format)
    if run is None and layers is None:
        run = os.environ.get(RUN_VARIABLE) or None
    run = named_run(context, db, name, run)

    request = FusionRequest(
        db=db,
        policy=policy,
        thresholds=thresholds,
        layers=layers,
        run=run,
        datatype=datatype,
        nranks=ranks,
        nnodes=nodes,
        label=label,
        overlap=overlap,
        queued=queued,
        order=None if order is None else order.value,
        first_bytes=parse_size(first_bucket),
    )
    if plot is not None:
        from collscope.reports.rendering.plot import check_plot

        check_plot(plot)
    error = None
    if measure:
        from collscope.whatif.measure import measure_fusion

        method = Method(
            backend=backend.value,
            library=library,
            runtime=runtime,
            budget_s=budget,
            timeout_s=timeout,
        )
        options = Options(environment=tuple(env or ()), launcher=mpiexec)
        done = measure_fusion(request, make_session(method, options))
        found, error = done.fusion, done.error
    else:
        from collscope.whatif.fusion import predict_fusion

        _refuse_without_measure(
            {"--library": library, "--runtime": runtime, "--budget": budget, "--env": env}
        )
        found = predict_fusion(request)
    write_answer(places, lambda fmt: render_fusion(found, fmt))
    if plot is not None:
        from collscope.reports.whatif.page import fusion_extras

        write_figures(
            fusion_extras(found).figures(), plot, "no setting has a time; measure with --measure"
        )
    if error is not None:
        raise error


def _refuse_without_measure(options: dict[str, object]) -> None:
    given = next((name for name, value in options.items() if value), None)
    if given is not None:
        raise UsageError(f"{given}: used only with --measure. Add --measure, or leave it out.")
