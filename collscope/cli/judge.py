"""`collscope compare`, `check` and `roofline`: judgement of what was measured."""

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
    CheckFormat,
    CheckFormatOption,
    Db,
    Format,
    FormatOption,
    Output,
    checked_label,
    require_writable,
    write,
    write_figures,
)
from collscope.cli.values import (
    complete_label,
    complete_run,
    complete_side,
    complete_system,
)
from collscope.errors import UsageError

MeasuredRun = Annotated[
    str | None,
    typer.Option(
        "--run",
        autocompletion=complete_run,
        help="Use only measurements of this run.",
        callback=checked_label,
    ),
]
WeightsRun = Annotated[
    str | None,
    typer.Option(
        "--weights",
        autocompletion=complete_run,
        help="Weight the classes by the calls of this run.",
        callback=checked_label,
    ),
]

LimitSystem = Annotated[
    str | None,
    typer.Option(
        "--system",
        autocompletion=complete_system,
        envvar=SYSTEM_VARIABLE,
        help=f"Machine to compare the values with: {SYSTEM}.",
    ),
]


def compare(
    labels: Annotated[
        list[str],
        typer.Argument(
            autocompletion=complete_side,
            help="Labels, traced runs or replay CSVs; the first is the reference.",
        ),
    ],
    db: Db = DEFAULT_DB,
    run: MeasuredRun = None,
    weights: WeightsRun = None,
    format: FormatOption = None,
    system: LimitSystem = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Plot busbw over size: .png, .svg, .pdf.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help=("Explain why the second traced run's step takes longer.")),
    ] = False,
    output: Output = None,
) -> None:
    """Compare labels or traced runs: speed-ups and crossovers."""
    places = targets(format, output, Format, summary=True)
    if explain:
        from collscope.reports.explain.answer import explain_runs
        from collscope.reports.explain.text import render_explained

        if system == os.environ.get(SYSTEM_VARIABLE):
            system = None
        if any(given is not None for given in (run, weights, system, plot)):
            raise UsageError(
                "compare --explain: takes no --run, --weights, --system or --plot. Leave them out."
            )
        explained = explain_runs(db, labels)
        write_answer(places, lambda fmt: render_explained(explained, fmt))
        return
    from collscope.reports.compare.from_names import compare_labels
    from collscope.reports.compare.sides import Runs
    from collscope.reports.compare.text import render_compare

    if plot is not None:
        from collscope.reports.rendering.plot import check_plot

        check_plot(plot)
    found = compare_labels(db, labels, Runs(run, weights), system)
    roofs = None
    if system is not None and (plot is not None or any(p.format == "html" for p in places)):
        from collscope.roofline.catalogue import load_system
        from collscope.roofline.roof import Roofs

        roofs = Roofs(load_system(system))
    if plot is not None:
        from collscope.reports.compare.page import compare_extras

        write_figures(
            compare_extras(found, roofs).figures(), plot, "no common class has a size and a time"
        )
    write_answer(places, lambda fmt: render_compare(found, fmt, roofs))


def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BASELINE CURRENT",
            autocompletion=complete_side,
            help="The same as --baseline and --current.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            autocompletion=complete_side,
            help="Label or replay CSV of the reference build.",
            callback=checked_label,
        ),
    ] = None,
    current: Annotated[
        str | None,
        typer.Option(
            "--current",
            autocompletion=complete_side,
            help="Label or replay CSV of the build to judge.",
            callback=checked_label,
        ),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(
            "--control",
            autocompletion=complete_side,
            help="Label or replay CSV: the baseline, measured again.",
            callback=checked_label,
        ),
    ] = None,
    db: Db = DEFAULT_DB,
    run: MeasuredRun = None,
    weights: WeightsRun = None,
    threshold: Annotated[
        float,
        typer.Option("--threshold", help="Smallest change of a class that counts, in %.", min=0),
    ] = 5.0,
    total_threshold: Annotated[
        float,
        typer.Option(
            "--total-threshold",
            help="Smallest change of the total, and of a traced step, that counts, in %.",
            min=0,
        ),
    ] = 2.0,
    resolution: Annotated[
        float,
        typer.Option(
            "--resolution",
            help="Largest noise at which a class is judged, and a traced step passes, in %.",
            min=0,
        ),
    ] = 10.0,
    system: LimitSystem = None,
    format: CheckFormatOption = None,
    output: Output = None,
) -> None:
    """Did a build regress? Exit code 0: no, 1: yes, 4: no verdict.

    An improvement is a pass. No verdict: too little was measured, or it is too noisy.
    """
    from collscope.reports.check.answer import Rules
    from collscope.reports.check.from_names import Names, check_labels
    from collscope.reports.check.text import render_check, verdict_line
    from collscope.reports.compare.sides import Runs

    places = targets(format, output, CheckFormat, summary=True)

    given = [*(names or ()), *(name for name in (baseline, current) if name is not None)]
    if len(given) != 2 or (names and len(names) != 2):
        raise UsageError(
            "check: takes a baseline and a current label. Give 'check --baseline A --current B', or"
            " 'check A B'."
        )
    rules = Rules(threshold / 100, resolution / 100, total_threshold / 100)
    found = check_labels(db, Names(given[0], given[1], control), Runs(run, weights), system, rules)
    write_answer(places, lambda fmt: render_check(found, fmt), lambda: verdict_line(found))
    raise typer.Exit(found.verdict.exit_code)


def roofline(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="SYSTEM", autocompletion=complete_system, help="The same as --system."
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the shipped systems.")] = False,
    system: Annotated[
        str | None,
        typer.Option(
            "--system", autocompletion=complete_system, help=f"{SYSTEM[:1].upper()}{SYSTEM[1:]}."
        ),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option("-n", "--ranks", help="Ranks. Default: every GPU of the nodes.", min=1),
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes.", min=1)] = 1,
    op: Annotated[
        str | None, typer.Option("--op", help="One operation, such as AllReduce.")
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            "--fit",
            autocompletion=complete_label,
            help="Also fit a curve to the measurements of this label.",
            callback=checked_label,
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", help="Write the fit as a system, for --system: mine.toml."),
    ] = None,
    db: Db = DEFAULT_DB,
    format: FormatOption = None,
    output: Output = None,
) -> None:
    """Show the speed limits of a fabric by operation and size."""
    from collscope.reports.roofline.answer import fitted_system, listed, roofline_of_store
    from collscope.reports.roofline.text import render_roofline

    places = targets(format, output, Format)

    if (name, system, listing or None).count(None) == 3:
        system = os.environ.get(SYSTEM_VARIABLE) or None
    if (name, system, listing or None).count(None) != 2:
        raise UsageError("roofline: give --list, or one system, as 'roofline h200 --ranks 4'.")
    system = system or name
    if save is not None:
        if fit is None or system is None:
            raise UsageError("roofline --save: give a system, and measurements with --fit LABEL.")
        require_writable(save, "--save")
        write(fitted_system(db, system, fit, nodes, save), save, option="--save")
        write(f"{save}: what was measured on {system}. Give it as --system {save}.", None)
        return
    found = listed() if system is None else roofline_of_store(db, system, (ranks, nodes), op, fit)
    write_answer(places, lambda fmt: render_roofline(found, fmt))
