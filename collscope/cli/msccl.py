"""`collscope msccl`: what custom algorithms would do for a run."""

from __future__ import annotations

from typing import Annotated

import typer

from collscope.cli.answers import targets, write_answer
from collscope.cli.options import (
    DEFAULT_DB,
    SYSTEM,
    SYSTEM_VARIABLE,
    Db,
    Format,
    FormatOption,
    Output,
    Strict,
    checked_label,
)
from collscope.cli.values import complete_run, complete_system


def msccl(
    paths: Annotated[
        list[str], typer.Argument(help="MSCCL XML files or folders, in the scheduler's order.")
    ],
    db: Db = DEFAULT_DB,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            autocompletion=complete_run,
            help="Show which classes of this run they would serve.",
            callback=checked_label,
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            autocompletion=complete_system,
            envvar=SYSTEM_VARIABLE,
            help=f"Machine to compute the cost for: {SYSTEM}.",
        ),
    ] = None,
    strict: Strict = False,
    format: FormatOption = None,
    output: Output = None,
) -> None:
    """Show which classes MSCCL algorithms serve, and at what cost."""
    from collscope.reports.msccl.answer import msccl_report
    from collscope.reports.msccl.text import render_msccl

    places = targets(format, output, Format)

    found = msccl_report(paths, db, run, system, strict=strict)
    write_answer(places, lambda fmt: render_msccl(found, fmt))
