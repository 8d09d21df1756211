"""`collscope bench backends`: AllReduce by NCCL and by others, inside CUDA graphs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from collscope.cli import replay_options
from collscope.cli.answers import targets, write_answer
from collscope.cli.options import DEFAULT_DB, Db, Format, FormatOption, Output, Run, write
from collscope.cli.run_argument import RunArgument, named_run
from collscope.gpu_vendors import Backend


def _call_size(text: str) -> int:
    from collscope.units import parse_size

    return parse_size(text)


def backends(
    context: typer.Context,
    name: RunArgument = None,
    ranks: Annotated[
        int | None,
        typer.Option("-n", "--ranks", help="Ranks (GPUs). Default: those of the run.", min=2),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", help="Sizes: 8K..32M, 64K,1M. Default: the run's.")
    ] = None,
    datatype: Annotated[str, typer.Option("--datatype", help="Datatype of --sizes.")] = "bfloat16",
    call_size: Annotated[
        int | None,
        typer.Option(
            "--call-size",
            help="Size of the run's AllReduces without a known size.",
            parser=_call_size,
            metavar="SIZE",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", help="Number of launches of the ranks.", min=1)
    ] = 3,
    multimem: Annotated[
        bool, typer.Option("--multimem", help="Measure multimem too, which uses NVLink multicast.")
    ] = False,
    backend: replay_options.BackendOption = Backend.AUTO,
    results: Annotated[
        Path | None, typer.Option("--from", help="CSV of rows measured on another machine.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the measuring commands, for another machine.")
    ] = False,
    python: Annotated[
        str | None, typer.Option("--python", help="Interpreter that has PyTorch.", metavar="FILE")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds until a hung backend is skipped.")
    ] = 120.0,
    env: replay_options.Environment = None,
    label: replay_options.ResultsLabel = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    csv: replay_options.ResultsCsv = None,
    format: FormatOption = None,
    output: Output = None,
) -> None:
    """Compare NCCL with other AllReduce backends.

    Shows which backend is fastest at which size in CUDA graphs, and what a step of the run
    would save. Needs PyTorch.
    """
    from collscope.bench.backends import (
        BackendsRequest,
        measure_backends,
        read_backends,
        remote_commands,
    )
    from collscope.replay.session import Target
    from collscope.replay.variants import parse_assignment
    from collscope.reports.backends.answer import build_backends
    from collscope.reports.backends.text import render_backends

    places = targets(format, output, Format)
    run = named_run(context, db, name, run)

    request = BackendsRequest(
        nranks=ranks,
        sizes=sizes,
        datatype=datatype,
        call_bytes=call_size,
        rounds=rounds,
        multimem=multimem,
        backend=backend.value,
        python=python,
        timeout_s=timeout,
        environment=tuple(parse_assignment(text) for text in env or ()),
    )
    target = Target(db, run, csv, label=label)
    if dry_run:
        write("\n".join(map(shlex.join, remote_commands(request, target))), None)
        return
    done = (
        measure_backends(request, target)
        if results is None
        else read_backends(results, request, target)
    )
    found = build_backends(done.measurements, done.demand)
    write_answer(places, lambda fmt: render_backends(found, fmt))
    if done.error is not None:
        raise done.error
