"""`collscope bench p2p`: bandwidth and latency between pairs of ranks."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from collscope.cli import replay_options
from collscope.cli.answers import targets, write_answer
from collscope.cli.options import DEFAULT_DB, Db, Format, FormatOption, Output, Run, write_figures
from collscope.gpu_vendors import Backend


class Direction(str, Enum):
    """Who of a pair sends."""

    ONE_WAY = "one-way"
    TWO_WAY = "two-way"
    BOTH = "both"


def p2p(
    ranks: Annotated[int, typer.Option("-n", "--ranks", help="Ranks (GPUs).", min=2)],
    pairs: Annotated[str, typer.Option("--pairs", help="all, or 0:1,1:0,...")] = "all",
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes", help="Message sizes: 4K..1G*4. Default: fewer after the first pair."
        ),
    ] = None,
    direction: Annotated[
        Direction,
        typer.Option("--direction", help="Who sends; both measures one-way, then two-way."),
    ] = Direction.BOTH,
    no_latency: Annotated[
        bool, typer.Option("--no-latency", help="Do not measure latency (ping-pongs).")
    ] = False,
    backend: replay_options.BackendOption = Backend.AUTO,
    library: replay_options.Library = None,
    runtime: replay_options.Runtime = None,
    budget: Annotated[
        float, typer.Option("--budget", help="Seconds to spend on each pair and size.", min=0)
    ] = 0.1,
    timeout: replay_options.LaunchTimeout = None,
    env: replay_options.Environment = None,
    variant: replay_options.Variants = None,
    rounds: replay_options.Rounds = None,
    label: replay_options.ResultsLabel = None,
    mpiexec: replay_options.Mpiexec = None,
    oversubscribe: replay_options.Oversubscribe = False,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    csv: replay_options.ResultsCsv = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Plot over pairs and sizes: .png, .svg, .pdf.")
    ] = None,
    format: FormatOption = None,
    output: Output = None,
) -> None:
    """Measure Send/Recv between pairs of ranks, in turn."""
    from collscope.bench.p2p import P2pRequest, run_p2p
    from collscope.replay.session import Method, Options, Target, make_session
    from collscope.reports.p2p.answer import build_p2p, copies_beside
    from collscope.reports.p2p.text import render_p2p

    places = targets(format, output, Format)

    method = Method(
        backend=backend.value,
        library=library,
        runtime=runtime,
        budget_s=budget,
        timeout_s=timeout,
    )
    options = Options(
        tuple(variant or ()),
        tuple(env or ()),
        rounds,
        launcher=mpiexec,
        oversubscribe=oversubscribe,
    )
    if plot is not None:
        from collscope.reports.rendering.plot import check_plot

        check_plot(plot)
    request = P2pRequest(ranks, pairs, sizes, direction.value, not no_latency)
    done = run_p2p(request, make_session(method, options), Target(db, run, csv, label=label))
    found = build_p2p(done, copies_beside(done, db))
    write_answer(places, lambda fmt: render_p2p(found, fmt))
    # An error is what the command ends with, rather than that there is nothing to draw.
    timed = any(row.time_ns is not None for row in found.rows)
    if plot is not None and (timed or done.error is None):
        from collscope.reports.p2p.page import p2p_extras

        write_figures(
            p2p_extras(found).figures(),
            plot,
            "a plot needs two pairs, or one pair with three sizes",
        )
    if done.error is not None:
        raise done.error
