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


class Mode(str, Enum):
    """What a replay runs."""

    UNIQUE = "unique"
    SEQUENCE = "sequence"


class Backend(str, Enum):
    """What a replay runs on."""

    AUTO = "auto"
    CUDA = "cuda"
    HIP = "hip"
    HOST = "host"


class InPlace(str, Enum):
    """Buffers of a sweep."""

    NO = "no"
    YES = "yes"
    BOTH = "both"


class Threads(str, Enum):
    """Host threads of a process with several GPUs."""

    PER_GPU = "per-gpu"
    ONE = "one"


class Layout(str, Enum):
    """Columns of a replay's CSV."""

    COLLSCOPE = "collscope"
    RCCL_REPLAYER = "rccl_replayer"


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


@ingest_app.command("csv")
def ingest_csv(
    paths: Paths,
    db: Db = _DEFAULT_DB,
    run: Run = "main",
    nranks: Annotated[
        int | None, typer.Option("--nranks", help="Ranks of an rccl_replayer CSV.", min=1)
    ] = None,
    label: Annotated[str | None, typer.Option("--label", help="Name for every row.")] = None,
    strict: Strict = False,
) -> None:
    """CSVs of `collscope replay` and of ROCm's old rccl_replayer."""
    from collscope.ingest import commands

    _summarise(commands.ingest_csvs(paths, db, run, nranks, label), strict)


@ingest_app.command("table")
def ingest_table(
    paths: Paths,
    db: Db = _DEFAULT_DB,
    run: Run = "main",
    op: Annotated[
        str | None, typer.Option("--op", help="Operation, as AllReduce or all_reduce.")
    ] = None,
    nranks: Annotated[int | None, typer.Option("--nranks", help="Ranks.", min=1)] = None,
    nnodes: Annotated[int | None, typer.Option("--nnodes", help="Hosts.", min=1)] = None,
    datatype: Annotated[
        str | None, typer.Option("--datatype", help="Element type, as float or bfloat16.")
    ] = None,
    label: Annotated[str | None, typer.Option("--label", help="Name for the table.")] = None,
    strict: Strict = False,
) -> None:
    """Tables of nccl-tests and rccl-tests (text, JSON, CSV), latency tables, summaries.

    The options say what a table does not say itself, and count more than what it says.
    """
    from collscope.ingest import commands
    from collscope.parsers.tables import hints

    said = hints(op, nranks, nnodes, datatype, label)
    _summarise(commands.ingest_tables(paths, db, run, said), strict)


@ingest_app.command("metric")
def ingest_metric(
    paths: Paths,
    db: Db = _DEFAULT_DB,
    run: Run = "main",
    name: Annotated[str | None, typer.Option("--name", help="What was measured.")] = None,
    unit: Annotated[str | None, typer.Option("--unit", help="Unit, as ms or samples/s.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="Setting that ran.")] = None,
    strict: Strict = False,
) -> None:
    """An application's step times or throughput: numbers, CSV, Hugging Face Trainer's lines."""
    from collscope.ingest import commands
    from collscope.parsers.metrics import MetricHints

    _summarise(commands.ingest_metrics(paths, db, run, MetricHints(name, unit, label)), strict)


@ingest_app.command("auto")
def ingest_auto(
    paths: Paths, db: Db = _DEFAULT_DB, run: Run = "main", strict: Strict = False
) -> None:
    """Tell logs, profiles, replay CSVs and tables by their content, and ingest each."""
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
def replay(
    logs: Annotated[list[str] | None, typer.Argument(help="Logs; none: use the store.")] = None,
    db: Db = _DEFAULT_DB,
    run: Run = "main",
    plan: Annotated[Path | None, typer.Option("--plan", help="A plan file.")] = None,
    sweep: Annotated[
        str | None, typer.Option("--sweep", help="Without a log: allreduce,allgather:1K..4G*2.")
    ] = None,
    datatype: Annotated[str, typer.Option("--datatype", help="Of the sweep.")] = "float32",
    redop: Annotated[str, typer.Option("--redop", help="Of the sweep.")] = "sum",
    in_place: Annotated[InPlace, typer.Option("--in-place", help="Of the sweep.")] = InPlace.NO,
    ranks: Annotated[
        int | None, typer.Option("-n", "--ranks", help="Ranks (GPUs) at hand.", min=1)
    ] = None,
    mode: Annotated[Mode | None, typer.Option("--mode", help="Classes or every call.")] = None,
    repeat: Annotated[int | None, typer.Option("--repeat", help="Passes of a sequence.")] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="Classes: allreduce,12,alltoall:64K.")
    ] = None,
    min_share: Annotated[float | None, typer.Option("--min-share", help="Least share.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Most classes.", min=1)] = None,
    scale_ranks: Annotated[
        int | None, typer.Option("--scale-ranks", help="Remap to so many ranks.", min=1)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan only.")] = False,
    csv: Annotated[Path | None, typer.Option("--csv", help="Where results go as well.")] = None,
    csv_layout: Annotated[
        Layout, typer.Option("--csv-layout", help="Columns of the CSV.")
    ] = Layout.COLLSCOPE,
    backend: Annotated[Backend, typer.Option("--backend", help="What to run on.")] = Backend.AUTO,
    library: Annotated[str | None, typer.Option("--library", help="NCCL or RCCL.")] = None,
    runtime: Annotated[str | None, typer.Option("--runtime", help="CUDA or HIP runtime.")] = None,
    gpus_per_process: Annotated[
        int, typer.Option("--gpus-per-process", help="GPUs of each process.", min=1)
    ] = 1,
    threads: Annotated[Threads | None, typer.Option("--threads", help="Of a process.")] = None,
    budget: Annotated[float | None, typer.Option("--budget", help="Seconds per class.")] = None,
    graph: Annotated[bool, typer.Option("--graph", help="Time graph launches.")] = False,
    isolated: Annotated[bool, typer.Option("--isolated", help="Time single calls.")] = False,
    verify: Annotated[int | None, typer.Option("--verify", help="Calls checked.", min=0)] = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Check no result.")] = False,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Seconds per class.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the CSV.")] = False,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE.")] = None,
    variant: Annotated[
        list[str] | None, typer.Option("--variant", help="LABEL:NAME=VALUE,library=PATH,...")
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Of all variants.", min=1)] = None,
    label: Annotated[str | None, typer.Option("--label", help="Name of what is measured.")] = None,
    replayer: Annotated[Path | None, typer.Option("--replayer", help="The executable.")] = None,
    mpiexec: Annotated[Path | None, typer.Option("--mpiexec", help="The launcher.")] = None,
) -> None:
    """Measure the recorded collectives on this machine: a run, logs, a plan, or a sweep."""
    from collscope.replay import command
    from collscope.replay.estimate import describe
    from collscope.replay.measure import measure
    from collscope.replay.session import Method, Target, Words, make_session, one_voice
    from collscope.replay.text import plan_text
    from collscope.reports.measured import render_measured
    from collscope.reports.planned import render_planned

    with one_voice():
        if graph and isolated:
            raise UsageError("replay: --graph and --isolated exclude each other. Choose one.")
        method = Method(
            backend=backend.value,
            library=library,
            runtime=runtime,
            gpus_per_process=gpus_per_process,
            threads=threads.value if threads else None,
            budget_s=budget,
            timing="graph" if graph else "isolated" if isolated else "batch",
            verify=0 if no_verify else verify,
            repeat=repeat,
            timeout_s=timeout,
        )
        words = Words(tuple(variant or ()), tuple(env or ()), rounds, ranks, replayer, mpiexec)
        session = make_session(method, words)
        source = command.Source(
            db,
            run,
            tuple(logs or ()),
            plan,
            sweep,
            datatype,
            redop,
            in_place.value,
            session.ranks,
            mode.value if mode else None,
        )
        choice = command.Choice(only, min_share, limit, scale_ranks)
        planned = command.choose(command.make_plan(source, _progress()), choice)
        if dry_run:
            rows, needs = describe(planned), command.needs(planned, method)
            text = render_planned(rows, needs, planned.notices, plan_text(planned.plan))
            typer.echo(text, nl=False)
            return
        for notice in planned.notices:
            typer.echo(f"replay: {notice}")
        target = Target(db, run, csv, csv_layout.value, label, resume)
        outcome = measure(planned.plan, session, target)
        typer.echo(render_measured(outcome.measurements), nl=False)
        if outcome.error is not None:
            raise outcome.error


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
