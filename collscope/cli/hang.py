"""`collscope hang`: who holds up a job."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collscope.cli.answers import targets, write_answer
from collscope.cli.options import (
    DEFAULT_DB,
    FORMAT_HELP,
    Db,
    Output,
    checked_label,
    write,
)
from collscope.cli.run_argument import paths_or_run
from collscope.cli.values import complete_run
from collscope.errors import InputError, UsageError
from collscope.outputs import require_output

if TYPE_CHECKING:
    from collscope.hang.records import Evidence


class HangFormat(str, Enum):
    """Output formats of the verdict of a hang."""

    TEXT = "text"
    MD = "md"
    JSON = "json"
    HTML = "html"


def hang(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Dumps, logs, stderr and RAS answers, their folder, or a run."),
    ] = None,
    ras: Annotated[
        str | None,
        typer.Option("--ras", help="HOST[:PORT] of a live job's RAS service, queried twice."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="Folder for the service's answers, as ras.0.txt, ras.1.txt."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            help="Read the dumps of this stored run.",
            autocompletion=complete_run,
            callback=checked_label,
        ),
    ] = None,
    db: Db = DEFAULT_DB,
    format: Annotated[HangFormat | None, typer.Option("--format", help=FORMAT_HELP)] = None,
    output: Output = None,
) -> None:
    """Find the rank that holds up a hung job.

    Exit code 0: a verdict, 4: none, 3: nothing readable.
    """
    from collscope.hang.judge import judge
    from collscope.hang.service import ask_twice
    from collscope.reports.hang.text import render_hang, verdict_line

    sources, run = paths_or_run(context, db, paths, run)
    if not sources and ras is None and run is None:
        raise UsageError(
            "no input. Name files or a folder, a stored run with --run NAME, or a service with"
            " --ras HOST[:PORT]."
        )
    if run is not None and (sources or ras is not None):
        raise UsageError("--run: give either a stored run, or files and a service.")
    if keep is not None and ras is None:
        raise UsageError("--keep: there is no answer to keep. Also give --ras HOST[:PORT].")
    places = targets(format, output, HangFormat)
    kept = [] if keep is None else [keep / f"ras.{number}.txt" for number in range(2)]
    for path in kept:
        require_output(path, "--keep")
    answers = () if ras is None else ask_twice(ras)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    for path, answer in zip(kept, answers, strict=False):
        write(answer, path)
    verdict = judge(_evidence(list(sources), [(f"{ras}", answer) for answer in answers], run, db))
    write_answer(places, lambda fmt: render_hang(verdict, fmt), lambda: verdict_line(verdict))
    if not verdict.decided:
        raise typer.Exit(4)


def _evidence(
    paths: list[str], answers: list[tuple[str, str]], run: str | None, db: Path
) -> tuple[Evidence, ...]:
    if run is None:
        from collscope.hang.collect import evidence_of

        return evidence_of(paths, answers, len(os.sched_getaffinity(0)))
    from collscope.hang.dumps import recorded_evidence
    from collscope.ingest.match import reading, require_run
    from collscope.ingest.stored_dumps import read_dumps

    with reading(db) as connection:
        require_run(connection, db, run)
        evidence = recorded_evidence(read_dumps(connection, run))
    if evidence is None:
        raise InputError(
            f"run '{run}': it has no dumps of the flight recorder. Name the files:"
            " collscope hang dumps/ logs/ stderr/"
        )
    return (evidence,)
