"""The commands. Thin: parse arguments, call one function, print, and set the exit code."""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collscope import __version__
from collscope.errors import CollscopeError, InputError, MissingToolError, UsageError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from collscope.ingest.result import Ingested

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    help="What collectives cost a distributed GPU job, and what could be gained.",
)
ingest_app = typer.Typer(no_args_is_help=True, help="Read logs and profiles into the store.")
app.add_typer(ingest_app, name="ingest")


class Format(str, Enum):
    """Output formats."""

    TEXT = "text"
    MD = "md"
    CSV = "csv"
    JSON = "json"


def _utf8(label: str) -> str:
    """Refuse what the store cannot hold: bytes of the command line that are no UTF-8."""
    if not label.isprintable():
        raise typer.BadParameter("a run's label is printable UTF-8 text")
    return label


Db = Annotated[Path, typer.Option("--db", envvar="COLLSCOPE_DB", help="The store, an SQLite file.")]
Run = Annotated[
    str,
    typer.Option("--run", help="Label of the run, to tell several apart.", callback=_utf8),
]
Paths = Annotated[
    list[str], typer.Argument(help="Files, folders, globs, .gz or .zst, or - for standard input.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Lost or damaged data is an error.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Write to a file.")]
_DEFAULT_DB = Path("collscope.db")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"collscope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version_wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    global _debug  # noqa: PLW0603 - the one switch that main() must see after parsing
    _debug = debug


_debug = False


@ingest_app.command("log")
def ingest_log(
    paths: Paths, db: Db = _DEFAULT_DB, run: Run = "main", strict: Strict = False
) -> None:
    """NCCL and RCCL text logs (NCCL_DEBUG=INFO), any version, any launcher's prefix."""
    # numpy would start a thread per core, which spins for a while; nothing here uses its BLAS.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from collscope.ingest import commands

    _summarise(commands.ingest_logs(paths, db, run, _progress()), strict)


@ingest_app.command("profile")
def ingest_profile(
    paths: Paths, db: Db = _DEFAULT_DB, run: Run = "main", strict: Strict = False
) -> None:
    """Profiles: RPD, rocpd, Nsight Systems SQLite, rocprof CSV, a pasted "select * from top"."""
    from collscope.ingest import commands

    _summarise(commands.ingest_profiles(paths, db, run), strict)


@ingest_app.command("auto")
def ingest_auto(
    paths: Paths, db: Db = _DEFAULT_DB, run: Run = "main", strict: Strict = False
) -> None:
    """Tell logs from profiles by their content, and ingest each."""
    from collscope.ingest import commands

    _summarise(commands.ingest_auto(paths, db, run, _progress()), strict)


@app.command()
def report(
    db: Db = _DEFAULT_DB,
    run: Run = "main",
    format: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.TEXT,
    top: Annotated[int, typer.Option("--top", help="Rows per table; 0 for all.", min=0)] = 20,
    output: Output = None,
) -> None:
    """Share of GPU time, classes, communicators, sizes, transports and findings of a run."""
    from collscope.ingest.match import reading
    from collscope.reports import build_report, render

    with reading(db) as connection:
        _require_run(connection, db, run)
        built = build_report(connection, run, top=top or None)
    _write(render(built, format.value), output)


@app.command()
def sql(
    query: Annotated[str | None, typer.Argument(help="A query; none lists the views.")] = None,
    db: Db = _DEFAULT_DB,
    format: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.TEXT,
    output: Output = None,
) -> None:
    """Ask the store in SQL, read-only; without a query, list its views and their columns."""
    import sqlite3

    from collscope.ingest.match import reading
    from collscope.reports.rows import render_rows

    with reading(db) as connection:
        try:
            cursor = connection.execute(query or _VIEWS)
            rows = cursor.fetchall()
        except (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.Warning) as error:
            raise UsageError(
                f"query: {error}. 'collscope sql' alone lists views and columns."
            ) from error
    names = [column[0] for column in cursor.description or ()]
    _write(render_rows(names, rows, format.value), output)


_VIEWS = (
    "SELECT m.name AS view, group_concat(c.name, ', ') AS columns FROM sqlite_master m"
    " JOIN pragma_table_info(m.name) c WHERE m.type = 'view' AND substr(m.name, 1, 1) <> '_'"
    " GROUP BY m.name ORDER BY m.name"
)


@app.command()
def doctor() -> None:
    """What is installed, what was found, and the command that mends what is missing."""
    from collscope.doctor import diagnose, render

    checks = diagnose()
    typer.echo(render(checks), nl=False)
    if any(c.found is False and c.required for c in checks):
        raise MissingToolError("doctor: a needed part is missing. Run the commands named above.")


def _require_run(connection: sqlite3.Connection, db: Path, run: str) -> None:
    """Raise InputError when the store does not hold the run, naming those it does."""
    runs = [r[0] for r in connection.execute("SELECT DISTINCT run FROM sources ORDER BY run")]
    if run not in runs:
        known = ", ".join(f"'{r}'" for r in runs) or "none"
        raise InputError(f"{db}: no run '{run}' (runs: {known}). Choose one with --run.")


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}. Name another file with -o.") from error


def _progress() -> Callable[[str, int], None]:
    """Bytes read so far on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        return lambda _path, _done: None

    def show(path: str, done: int) -> None:
        sys.stderr.write(f"\r\x1b[K{path}: {done >> 20} MiB read")
        sys.stderr.flush()

    return show


def _summarise(results: list[Ingested], strict: bool) -> None:
    from collscope.ingest.summary import summary_lines

    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    for line in summary_lines(results):
        typer.echo(line)
    lossy = [r.path for r in results if r.lost_data or r.status == "unusable"]
    if strict and lossy:
        raise InputError(
            f"{lossy[0]}: data was lost or skipped (--strict). Query the view diagnostics."
        )


def main() -> None:
    """Entry point: run a command; errors go to stderr as one line, with their exit code."""
    try:
        app()
    except CollscopeError as error:
        if _debug:
            raise
        sys.stderr.write(f"collscope: {error}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone, as in `| head`; nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if _debug:
            raise
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        sys.stderr.write(
            f"collscope: internal error: {what}. Run again with --debug and report it.\n"
        )
        sys.exit(3)
