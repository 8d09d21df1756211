"""`collscope record`: run a job with its collectives logged, then report."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from collscope.cli.options import DEFAULT_DB, Db, Run, checked_output, summarise, tell, write
from collscope.cli.progress import progress
from collscope.ingest.progress import Reading

_NO_LOG = (
    "Does it use NCCL or RCCL, and do its processes get NCCL_DEBUG_FILE? While NCCL_LOG_PLUGIN "
    "names a plugin, NCCL writes no log file."
)


def record(
    command: Annotated[list[str], typer.Argument(help="The job's command, after --.")],
    folder: Annotated[
        Path | None, typer.Option("--out", help="New folder for the job's files.")
    ] = None,
    kernel_trace: Annotated[
        bool,
        typer.Option(
            "--kernel-trace", help="Also log GPU times of collectives (RCCL before 2.30)."
        ),
    ] = False,
    inspector: Annotated[
        bool, typer.Option("--inspector", help="Also load NCCL's Inspector plugin.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Also write the report as one HTML file.", callback=checked_output
        ),
    ] = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
) -> None:
    """Run a job with its collectives logged, and print the report.

    Every process writes a log of its own. The exit code is the job's. A launcher that starts
    processes on other hosts must pass NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE on (srun
    does; mpirun -x), and the hosts must share the folder.
    """
    from collscope.errors import InputError
    from collscope.ingest import commands
    from collscope.ingest.record import RecordOptions, cost_notes, discard, new_folder, run_recorded
    from collscope.outputs import note_input, require_output

    for word in command:
        if Path(word).is_file():
            note_input(word)  # the job's program and what it is given
    held = _held(db, run)
    if html is not None:  # once more, before the job runs, now that it and the store are known
        require_output(html)
    chosen = new_folder(folder)
    recorded = run_recorded(command, chosen, RecordOptions(kernel_trace, inspector))
    if not recorded.files:
        discard(chosen)
        tell(f"collscope: the job wrote no log. {_NO_LOG}")
        raise typer.Exit(recorded.exit_code)
    for note in cost_notes(recorded, chosen):
        tell(f"collscope: {note}")
    try:
        results = summarise(
            lambda: commands.ingest_auto([str(chosen)], db, run, Reading(progress())), strict=False
        )
        if held and any(result.status == "added" for result in results):
            tell(
                f"collscope: run '{run}' of {db} held other files before: this job was added to "
                f"them. To keep it apart: collscope ingest auto {chosen} --run NAME."
            )
        _report(db, run, html)
    except InputError as error:
        # The job's own outcome counts: what it wrote may be too little for a report.
        tell(f"collscope: {error}")
        tell(f"collscope: {_NO_LOG}")
    raise typer.Exit(recorded.exit_code)


def _held(db: Path, run: str) -> bool:
    """Whether a run has sources already.

    raises  InputError when the store cannot be used, which is better known before the job runs
    """
    from collscope.store.connection import explained, open_readonly
    from collscope.store.runs import has_sources

    if not db.exists():
        return False
    with closing(open_readonly(db)) as connection, explained(db):
        return has_sources(connection, run)


def _report(db: Path, run: str, html: Path | None) -> None:
    """Print the report of a run, and write its page where one is asked for."""
    from collscope.ingest.match import reading, require_matched
    from collscope.reports.report.build import build_report
    from collscope.reports.report.formats import render

    with reading(db) as connection:
        require_matched(connection, db, run)
        built = build_report(connection, run)
        if html is not None:
            from collscope.reports.report.page import report_extras

            write(render(built, "html", report_extras(built, connection)), html)
    write(render(built, "text"), None)
