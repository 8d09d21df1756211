"""`collscope report` and `collscope sql`: what the store holds."""

from __future__ import annotations

import os
import shlex
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from collscope.cli.answers import targets, write_answer
from collscope.cli.hints import is_sqlite
from collscope.cli.options import (
    DEFAULT_DB,
    SYSTEM,
    SYSTEM_VARIABLE,
    Db,
    Format,
    FormatOption,
    Output,
    RowsFormat,
    RowsFormatOption,
    Run,
    checked_label,
    print_stderr,
    write_figures,
)
from collscope.cli.run_argument import RunArgument, named_run
from collscope.cli.values import complete_label, complete_system
from collscope.errors import UsageError
from collscope.units import require_step_ms
from collscope.writing import as_utf8, folded


def report(
    context: typer.Context,
    name: RunArgument = None,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    format: FormatOption = None,
    top: Annotated[int, typer.Option("--top", help="Rows per table; 0 shows all.", min=0)] = 20,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            envvar=SYSTEM_VARIABLE,
            autocompletion=complete_system,
            help=f"Machine to compare with: {SYSTEM}; or 'fit': the measurements. Default: that of "
            "the traced GPUs.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            autocompletion=complete_label,
            help="Label of the measurements to judge. Default: the latest.",
            callback=checked_label,
        ),
    ] = None,
    step_ms: Annotated[
        float | None,
        typer.Option(
            "--step-ms", help="Step time without the profiler, in ms.", callback=require_step_ms
        ),
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Print only the verdict.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Plot classes, bandwidths and gains: .png, .svg, .pdf."),
    ] = None,
    wide: Annotated[bool, typer.Option("--wide", help="Do not shorten names in tables.")] = False,
    output: Output = None,
) -> None:
    """Show what collectives cost a run and what faster ones save."""
    from collscope.ingest.match import reading, require_run
    from collscope.reports.report.build import build_report, shorten
    from collscope.reports.report.formats import render
    from collscope.reports.verdict.text import brief as verdict_alone

    places = targets(format, output, Format, summary=True)
    if brief and any(place.format not in ("text", "md") for place in places):
        raise UsageError("report: --brief is text or md. Leave it out, or choose one of these.")
    run = named_run(context, db, name, run)
    if plot is not None:
        from collscope.reports.rendering.plot import check_plot

        check_plot(plot)
    with reading(db) as connection:  # to the end: what a damaged store holds may show late
        require_run(connection, db, run)
        built = build_report(connection, run, top=None, system=system, label=label, step_ms=step_ms)
        shown = shorten(built, top) if top else built
        extras = None
        if any(place.format == "html" for place in places):
            from collscope.reports.report.page import report_extras

            extras = report_extras(shown, connection)
        if plot is not None:
            from collscope.reports.report.page import report_extras

            write_figures(
                report_extras(built, connection).figures(), plot,
                f"run {run} has no measurements and no calls of known size",
            )  # fmt: skip

        def rendered(fmt: str) -> str:
            if brief:
                return verdict_alone(run, built.verdict, built.step, fmt)
            return render(shown, fmt, extras, wide=wide)

        write_answer(places, rendered)


def sql(
    query: Annotated[
        str | None,
        typer.Argument(
            help=("The query; - is standard input. Default: piped input, else list the views.")
        ),
    ] = None,
    db: Db = DEFAULT_DB,
    format: RowsFormatOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Give up after this many seconds; 0: never.", min=0)
    ] = 0,
    wide: Annotated[
        bool, typer.Option("--wide", help="Do not shorten texts on a terminal.")
    ] = False,
    output: Output = None,
) -> None:
    """Query the store in SQL (read-only), or list its views.

    json is an object with the rows (jq '.rows[]'), jsonl a row a line. csv has ' before a text that
    a spreadsheet would run, such as =1.
    """
    from collscope.ingest.match import unmatched_text
    from collscope.library import Store
    from collscope.reports.rendering.rows import render_rows
    from collscope.store.query import VIEWS

    places = targets(format, output, RowsFormat)

    if query == "-" or (query is None and _is_piped(sys.stdin)):
        given = sys.stdin.read().strip()
        if query == "-" and not given:
            raise UsageError("sql -: standard input is empty. Write a query there.")
    else:
        given = (query or "").strip()
        if query is not None and not given:
            raise UsageError("sql: an empty query. Leave it out to list the views.")
        if is_sqlite(given):
            raise UsageError(f"sql {given}: a file, not a query. Write --db {shlex.quote(given)}.")
        path = given.removeprefix("@")
        if os.path.isfile(path):  # noqa: PTH113 - any text
            raise UsageError(f"sql {given}: a file, not a query. Write < {shlex.quote(path)}.")
    query = as_utf8(given)
    with _ended_after(timeout):
        store = Store(db)
        found = store.sql(query or VIEWS, timeout_s=timeout or None)
        unmatched = store.unmatched()
    for run, why in unmatched.items():
        print_stderr(f"collscope: {db}: {unmatched_text(run, why)}")

    def rendered(fmt: str) -> str | bytes:
        if not query and fmt == "text":
            return _folded(found.rows)
        return render_rows(found.columns, found.rows, fmt, wide=wide)

    write_answer(places, rendered)


def _is_piped(stream: TextIO) -> bool:
    """True for a file or a pipe on standard input, false for a terminal and for /dev/null."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):  # closed, or no file at all
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


@contextmanager
def _ended_after(timeout_s: float) -> Iterator[None]:
    """End the process where SQLite does not heed `timeout_s`: in the midst of one function's call.

    timeout_s  0: no limit
    """
    from collscope.store.query import not_done

    def end() -> None:
        print_stderr(f"collscope: query: {not_done(timeout_s)}")
        os._exit(UsageError.exit_code)  # nothing was written, and the store is only read

    watch = threading.Timer(min(timeout_s + _GRACE_S, threading.TIMEOUT_MAX), end)
    watch.daemon = True
    if timeout_s:
        watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _folded(views: Iterable[tuple[Any, ...]]) -> str:
    """Each view with its columns below it, within the width of a report."""
    from collscope.reports.rendering.text import text_width

    width = text_width()
    lines: list[str] = []
    for view, columns in views:
        lines += [view, *folded(columns, width, _INDENT, _INDENT)]
    return "\n".join(lines)


_GRACE_S = 0.5  # in which SQLite gives up by itself, which it does between rows
_INDENT = " " * 4
