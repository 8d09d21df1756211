"""`collscope predict` and `collscope export`: what the traces of all ranks allow."""

from __future__ import annotations

import os
from pathlib import Path
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
    Run,
    checked_label,
    require_writable,
    write,
)
from collscope.cli.run_argument import RunArgument, named_run
from collscope.cli.values import complete_side, complete_system
from collscope.errors import UsageError
from collscope.units import require_step_ms

export_app = typer.Typer(no_args_is_help=True, help="Export a run to the formats of other tools.")


With = Annotated[
    str | None,
    typer.Option(
        "--with",
        autocompletion=complete_side,
        help="New times: a label of measurements, or a traced run.",
        callback=checked_label,
    ),
]


NewSystem = Annotated[
    str | None,
    typer.Option(
        "--system",
        autocompletion=complete_system,
        help=f"Machine whose reachable speeds give the new times: {SYSTEM}.",
    ),
]
StepMs = Annotated[
    float | None,
    typer.Option(
        "--step-ms", help="Step time without the profiler, in ms.", callback=require_step_ms
    ),
]


def predict(
    context: typer.Context,
    name: RunArgument = None,
    label: With = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Measurements of the recorded setting, made like those of --with.",
            callback=checked_label,
        ),
    ] = None,
    system: NewSystem = None,
    step_ms: StepMs = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show what bounds the step before and after.")
    ] = False,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    format: FormatOption = None,
    output: Output = None,
) -> None:
    """Simulate the step time of a traced run after a change.

    Without --with and --system, COLLSCOPE_SYSTEM names the machine.
    """
    from collscope.reports.predict.answer import PredictionRequest, predict_run
    from collscope.reports.predict.text import render_prediction

    places = targets(format, output, Format)

    run = named_run(context, db, name, run)
    if label is None and system is None:
        system = os.environ.get(SYSTEM_VARIABLE) or None
    found = predict_run(db, PredictionRequest(run, label, before, system, step_ms))
    write_answer(places, lambda fmt: render_prediction(found, fmt, explain=explain))


@export_app.command("perfetto")
def export_perfetto(
    context: typer.Context,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="File, .json or .json.gz; - is standard output."),
    ],
    name: RunArgument = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", help="Write at most this many kernels, of the longest calls.", min=1
        ),
    ] = None,
    label: With = None,
    system: NewSystem = None,
    step_ms: StepMs = None,
    opened: Annotated[
        bool, typer.Option("--open", help="Open it in ui.perfetto.dev, served from this machine.")
    ] = False,
) -> None:
    """Write all ranks' collectives on one clock for ui.perfetto.dev.

    With --with or --system, the file also holds the predicted timeline. For a run without traces,
    it holds the recorder's calls on the clocks of their hosts.
    """
    from collscope.reports.rendering.trace_file import require_trace_name

    if label is not None and system is not None:
        raise UsageError("export perfetto: give --with LABEL or --system NAME, not both.")
    if opened and str(output) == "-":
        raise UsageError("export perfetto: --open serves a file. Name one with -o.")
    require_writable(output, "-o")
    if step_ms is not None and label is None and system is None:
        raise UsageError("export perfetto: --step-ms goes with --with or --system.")
    require_trace_name(output)
    run = named_run(context, db, name, run)
    from collscope.reports.recorded.answer import has_recordings_alone, recorded_processes

    if label is None and system is None and has_recordings_alone(db, run):
        from collscope.reports.recorded.perfetto import export_recorded

        words = export_recorded(recorded_processes(db, run), output, limit)
    else:
        from collscope.reports.predict.answer import PredictionRequest, run_timelines
        from collscope.reports.predict.perfetto import export_trace

        request = PredictionRequest(run, label, None, system, step_ms) if label or system else None
        words = export_trace(run_timelines(db, run, request), output, limit)
    if words:
        write(words, None)
    if opened:
        import webbrowser

        from collscope.reports.predict.serve import serve_once

        def show(address: str) -> None:
            write(f"Open {address} (Ctrl-C ends the server)", None)
            webbrowser.open(address)

        serve_once(output, show)


@export_app.command("inspector")
def export_inspector(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--out", help="Folder for a file of each process.")],
    name: RunArgument = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
) -> None:
    """Write the recorder's calls in the JSON of NCCL's Inspector."""
    from collscope.reports.recorded.inspector import export_inspector as export

    run = named_run(context, db, name, run)
    write(export(db, run, output), None)
