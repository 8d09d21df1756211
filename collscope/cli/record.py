"""`collscope record`: run a job with its collectives logged, then report."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from collscope.cli.options import (
    DEFAULT_DB,
    Db,
    Run,
    print_stderr,
    summarise,
    write,
)
from collscope.cli.progress import progress
from collscope.ingest.progress import Reading

if TYPE_CHECKING:
    from collscope.ingest.record import RecordOptions

_NO_PLUGIN = (
    "This installation has no libcollscope-recorder.so, so the job's calls are logged. Install "
    "collscope with a C++ compiler present."
)
_NO_RECORDING = (
    "the job wrote no recording. Its library must support profiler plugins (NCCL 2.26 or later), "
    "and its processes need NCCL_PROFILER_PLUGIN. Run it with --log as well to read the log "
    "instead."
)
_OTHER_PLUGIN = (
    "A process loads one profiler plugin: the job keeps its own, and its calls are logged. For "
    "both, run the job twice: once with that variable, once without."
)
_CALLS_ALONE = "Record with --level calls."
_ALL_OR_NONE = (
    "So levels sampled and all request them for all calls, which small calls notice "
    "(docs/recorder.md). --level calls does not."
)
_DDA = (
    "its DDA kernels bypass profiler plugins, so calls and shares are lower bounds. The log is "
    "written too, unless --no-log is given. RCCL_DDA_ENABLE=0 turns these kernels off."
)
_LOGGED = "The log is written too."
_LOG_KEPT = (
    "The log was not read: the recordings hold the calls that a profiler plugin sees, with their "
    "GPU times. To read the log's calls: collscope ingest log {} --run NAME."
)
_LOG_READ = "No process wrote a recording: the log was read instead."
_NO_LOG = (
    "Does it use NCCL or RCCL, and do its processes get NCCL_DEBUG_FILE? While NCCL_LOG_PLUGIN "
    "names a plugin, NCCL writes no log file."
)
_NO_LOG_WRITTEN = f"the job wrote no log. {_NO_LOG}"


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
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            help="Load collscope's recorder: calls, sampled, all or proxy. No log is written then.",
        ),
    ] = None,
    log: Annotated[
        bool | None,
        typer.Option(
            "--log/--no-log",
            help="With --level: write the log too, in case no recording comes. Default: where the "
            "library needs it.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Also write the report as one HTML file."),
    ] = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
) -> None:
    """Log or record a job's collectives and print the report.

    Every process writes a file of its own. The exit code is the job's. A launcher that starts
    processes on other hosts must pass on NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE
    (srun does; mpirun needs -x), and the hosts must share the folder.
    """
    from collscope.errors import InputError
    from collscope.ingest import commands
    from collscope.ingest.record import RECORDINGS, cost_notes, discard, run_recorded
    from collscope.outputs import note_input, require_output

    for word in command:
        if Path(word).is_file():
            note_input(word)  # the job's program and what it is given
    if html is not None:
        require_output(html, "--html")
    held = held_by_store(db, run)
    if html is not None:  # once more, before the job runs, now that it and the store are known
        require_output(html, "--html")
    options = _options(level, log, kernel_trace, inspector)
    chosen = _new_folder(folder, html)
    recorded = run_recorded(command, chosen, options)
    if not recorded.files:
        discard(chosen)
        print_stderr(f"collscope: {_NO_RECORDING if options.recorder else _NO_LOG_WRITTEN}")
        _exit_as(recorded.exit_code)
    for note in cost_notes(recorded, chosen):
        print_stderr(f"collscope: {note}")
    read = chosen / RECORDINGS if recorded.recordings else chosen
    if options.recorder and options.log:
        print_stderr(f"collscope: {_LOG_KEPT.format(chosen) if recorded.recordings else _LOG_READ}")
    try:
        results = summarise(
            lambda: commands.ingest_auto([str(read)], db, run, Reading(progress())), strict=False
        )
        if held and any(result.status == "added" for result in results):
            print_stderr(
                f"collscope: run '{run}' of {db} already held other files; this job was added to "
                f"them. To store it separately: collscope ingest auto {read} --run NAME."
            )
        print_report(db, run, html)
    except InputError as error:
        # The job's own outcome counts: what it wrote may be too little for a report.
        print_stderr(f"collscope: {error}")
        print_stderr(f"collscope: {_NO_LOG}")
    _exit_as(recorded.exit_code)


def _exit_as(exit_code: int) -> NoReturn:
    """End as the job did; a failure is named after all that was printed of its recordings."""
    if exit_code:
        print_stderr(f"collscope: The job ended with exit code {exit_code}.")
    raise typer.Exit(exit_code)


def _new_folder(folder: Path | None, html: Path | None) -> Path:
    """The folder to record into, which may be that of the page.

    raises  InputError when it cannot be made, or the page's folder is not there
    """
    from collscope.errors import InputError
    from collscope.ingest.record import discard, new_folder
    from collscope.outputs import require_folder

    chosen = new_folder(folder)
    try:
        if html is not None:
            require_folder(html, "--html")
    except InputError:
        discard(chosen)
        raise
    return chosen


def _options(
    level: str | None, log: bool | None, kernel_trace: bool, inspector: bool
) -> RecordOptions:
    """What to record; the log where this installation has no recorder.

    raises  UsageError for another level, or with another plugin of the same kind
    """
    from collscope.errors import UsageError
    from collscope.ingest.record import LEVELS, RecordOptions
    from collscope.programs import installed_recorder

    if level is None:
        return RecordOptions(kernel_trace, inspector)
    if level not in LEVELS:
        raise UsageError(f"--level {level}: unknown level. Choose one of {', '.join(LEVELS)}.")
    if inspector:
        raise UsageError(
            "--inspector and --level: each needs a profiler plugin, and a process loads one. "
            "Choose one."
        )
    plugin = installed_recorder()
    if plugin is None:
        print_stderr(f"collscope: {_NO_PLUGIN}")
    other = os.environ.get("NCCL_PROFILER_PLUGIN")
    if plugin is not None and other not in (None, str(plugin)):
        print_stderr(f"collscope: NCCL_PROFILER_PLUGIN is {other}. {_OTHER_PLUGIN}")
        plugin = None
    needed = plugin is None or kernel_trace or _needs_log(level)
    return RecordOptions(kernel_trace, False, plugin, level, needed if log is None else log)


def _needs_log(level: str) -> bool:
    """Whether the library at hand keeps calls from the recorder; prints why, and its faults."""
    from collscope.doctor import collective_libraries
    from collscope.programs import (
        KERNEL_FAULTS,
        has_unseen_kernels,
        kernel_fault,
        profiler_interface,
    )

    found = collective_libraries()
    for library, version in found:
        fault = kernel_fault(version)
        if fault is not None and level not in ("off", "calls"):
            advice = _CALLS_ALONE if version in KERNEL_FAULTS else _ALL_OR_NONE
            print_stderr(f"collscope: {fault}. {advice}")
        if has_unseen_kernels(library, version):
            print_stderr(f"collscope: {library} {version}: {_DDA}")
    too_old = [
        f"{library} {version}" for library, version in found if profiler_interface(version) is None
    ]
    if found and len(too_old) == len(found):
        print_stderr(
            f"collscope: {', '.join(too_old)} has no profiler interface for the recorder. {_LOGGED}"
        )
    return len(too_old) == len(found) > 0 or any(has_unseen_kernels(*one) for one in found)


def held_by_store(db: Path, run: str) -> bool:
    """Whether a run has sources already.

    raises  InputError when the store cannot be used, which is better known before the job runs
    """
    from collscope.outputs import require_folder
    from collscope.store.connection import open_readonly, sqlite_errors_as_input_errors
    from collscope.store.runs import has_sources

    if not db.exists():
        require_folder(db, "--db")
        return False
    with closing(open_readonly(db)) as connection, sqlite_errors_as_input_errors(db):
        return has_sources(connection, run)


def print_report(db: Path, run: str, html: Path | None = None) -> None:
    """Print the report of a run, and write its page where one is asked for."""
    from collscope.ingest.match import reading, require_matched
    from collscope.reports.report.build import SHOWN_ROWS, build_report, shorten
    from collscope.reports.report.formats import render

    with reading(db) as connection:
        require_matched(connection, db, run)
        built = build_report(connection, run, top=None)
        shown = shorten(built, SHOWN_ROWS)
        if html is not None:
            from collscope.reports.report.page import report_extras

            page = render(built, "html", report_extras(built, connection, shown), shown=shown)
            write(page, html, option="--html")
    write(render(built, "text", shown=shown), None)
