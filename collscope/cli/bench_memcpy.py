"""`collscope bench memcpy`: plain copies, without a collective library."""

from __future__ import annotations

from typing import Annotated

import typer

from collscope.cli import replay_options
from collscope.cli.answers import targets, write_answer
from collscope.cli.options import DEFAULT_DB, Db, Format, FormatOption, Output, Run
from collscope.gpu_vendors import Backend


def memcpy(
    sizes: Annotated[str, typer.Option("--sizes", help="Sizes of a copy: 64K,1M..1G*4.")] = (
        "4K..1G*4"
    ),
    pairs: Annotated[str, typer.Option("--pairs", help="Pairs of GPUs: all, or 0:1,1:0.")] = "all",
    only: Annotated[
        str | None, typer.Option("--only", help="Some of peer,within,host,ipc. Default: all.")
    ] = None,
    backend: replay_options.BackendOption = Backend.AUTO,
    runtime: replay_options.Runtime = None,
    budget: Annotated[
        float, typer.Option("--budget", help="Seconds to spend on each row.", min=0)
    ] = 0.1,
    timeout: replay_options.RunTimeout = None,
    rounds: Annotated[
        int, typer.Option("--rounds", help="Number of rounds over everything.", min=1)
    ] = 1,
    env: replay_options.Environment = None,
    label: replay_options.ResultsLabel = None,
    mpiexec: replay_options.Mpiexec = None,
    microbench: replay_options.Microbench = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    csv: replay_options.ResultsCsv = None,
    format: FormatOption = None,
    output: Output = None,
) -> None:
    """Measure copies between and in GPUs, and to the host.

    Also measures IPC handles: copies, and the time to open a handle.
    """
    from collscope.bench.memcpy import CopyRequest, measure_copies
    from collscope.replay.session import Target
    from collscope.replay.variants import parse_assignment
    from collscope.reports.memcpy.answer import build_copies
    from collscope.reports.memcpy.text import render_copies

    places = targets(format, output, Format)

    request = CopyRequest(
        sizes,
        pairs,
        only,
        backend.value,
        runtime,
        budget,
        timeout,
        rounds,
        tuple(parse_assignment(text) for text in env or ()),
        microbench,
        mpiexec,
    )
    done = measure_copies(request, Target(db, run, csv, label=label))
    copies = build_copies(done.found.copies)
    write_answer(places, lambda fmt: render_copies(copies, fmt))
    if done.error is not None:
        raise done.error
