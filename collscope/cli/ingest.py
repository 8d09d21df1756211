"""`collscope ingest`: read sources into the store."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

from collscope.cli.hints import is_path, is_sqlite
from collscope.cli.options import (
    DB_VARIABLE,
    DEFAULT_DB,
    RUN_VARIABLE,
    Db,
    MaxSize,
    Quiet,
    Run,
    Strict,
    checked_label,
    print_stderr,
    summarise,
)
from collscope.cli.progress import progress
from collscope.cli.values import HELP
from collscope.errors import InputError, UnreadableError, UsageError
from collscope.ingest.progress import Reading

if TYPE_CHECKING:
    from collscope.ingest.result import Ingested


def _no_stores(paths: list[str]) -> list[str]:
    """Refuse a store in place of an input, as of tools that take the database first."""
    from collscope.store.connection import is_store

    for path in paths:
        if is_sqlite(path) and is_store(Path(path)):
            raise InputError(
                f"{path}: a store, not an input. Write --db {shlex.quote(path)} to read files into"
                " it; collscope merge joins stores."
            )
    return paths


Paths = Annotated[
    list[str],
    typer.Argument(
        help="Files, folders, archives, globs; - is standard input.", callback=_no_stores
    ),
]


class _Kinds(TyperGroup):
    """Kinds of files; without one, `auto`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as in the base
        """Put `auto` before paths and options that follow no kind."""
        first = args[0] if args else ""
        is_typo = bool(get_close_matches(first, self.commands)) and not is_path(first)
        if first and first not in self.commands and first not in HELP and not is_typo:
            args = ["auto", *args]
        return super().parse_args(ctx, args)


ingest_app = typer.Typer(
    cls=_Kinds, no_args_is_help=True, help="Read logs, profiles and traces into the store."
)


Collective = Annotated[
    list[str] | None,
    typer.Option(
        "--collective",
        metavar="REGEX=OPERATION",
        help="Count kernels of these names as collectives; @FILE: one a line.",
    ),
]


@contextmanager
def _named(collectives: list[str] | None) -> Iterator[None]:
    """Names that `--collective` gives, in force while the sources are read."""
    from collscope.kernel_names import counting_as_collectives, parse_name_patterns

    given: list[str] = []
    for one in collectives or ():
        given += _lines(Path(one[1:])) if one.startswith("@") else [one]
    try:
        patterns = parse_name_patterns(given)
    except ValueError as error:
        raise UsageError(
            f"--collective: {error}. Name an operation as reports do, such as AllReduce."
        ) from None
    with counting_as_collectives(patterns):
        yield


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(str(path), str(error), "Give a text file") from None
    return [line for line in map(str.strip, text.splitlines()) if line and line[0] != "#"]


Jobs = Annotated[
    int | None,
    typer.Option("-j", "--jobs", metavar="N", min=1, help="Number of processes that read files."),
]
Dask = Annotated[
    str | None,
    typer.Option("--dask", metavar="ADDRESS", help="Dask scheduler whose workers read files."),
]


def _reading(max_size: int | None) -> Reading:
    return Reading(progress(), max_size)


class _Store(msgspec.Struct, frozen=True):
    """Where the files are read into."""

    db: Path
    run: str


class _ReadOptions(msgspec.Struct, frozen=True):
    """Options of how files are read, and what is printed of them."""

    max_size: int | None
    jobs: int | None
    dask: str | None
    strict: bool
    quiet: bool


def _summarise(ingest: Callable[[], list[Ingested]], store: _Store, how: _ReadOptions) -> None:
    """Ingest, print what became of the inputs, and on a terminal the command to run next."""
    summarise(ingest, how.strict, quiet=how.quiet)
    at_terminal = all(s is not None and s.isatty() for s in (sys.stdout, sys.stderr))
    if at_terminal and not how.quiet:
        print_stderr(f"next: {_report_command(store)}")


def _report_command(store: _Store) -> str:
    words = ["report"]
    if store.run != _default(RUN_VARIABLE, "main"):
        words += ["--run", store.run] if store.run.startswith("-") else [store.run]
    if str(store.db) != _default(DB_VARIABLE, str(DEFAULT_DB)):
        words += ["--db", str(store.db)]
    return f"collscope {shlex.join(words)}"


def _default(variable: str, otherwise: str) -> str:
    return os.environ.get(variable) or otherwise


def _ingest(ingest: Callable[[Reading], list[Ingested]], store: _Store, how: _ReadOptions) -> None:
    """Ingest with the workers that were asked for; a rank that serves as one prints nothing."""
    from collscope.ingest.workers import workers
    from collscope.replay.mpi import launched

    if how.jobs is not None and how.dask is not None:
        raise UsageError("--jobs and --dask exclude each other. Choose one.")
    several = launched(os.environ) is not None
    with workers(how.jobs, how.dask, launched=several) as found:
        if found is not None:
            reading = Reading(progress(), how.max_size, found)
            _summarise(lambda: ingest(reading), store, how)


@ingest_app.command("log")
def ingest_log(
    paths: Paths,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    jobs: Jobs = None,
    dask: Dask = None,
    max_size: MaxSize = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """NCCL and RCCL text logs (NCCL_DEBUG=INFO), of any version."""
    # numpy would start a thread per core, which spins for a while; nothing here uses its BLAS.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from collscope.ingest import commands

    how = _ReadOptions(max_size, jobs, dask, strict, quiet)
    _ingest(lambda reading: commands.ingest_logs(paths, db, run, reading), _Store(db, run), how)


@ingest_app.command("profile")
def ingest_profile(
    paths: Paths,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    collective: Collective = None,
    max_size: MaxSize = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Profiles: RPD, rocpd, Nsight Systems, rocprof, pasted tables.

    SQLite of RPD, rocpd and Nsight Systems; rocprof CSV; a pasted "select * from top".
    """
    from collscope.ingest import commands

    with _named(collective):
        _summarise(
            lambda: commands.ingest_profiles(paths, db, run, _reading(max_size)),
            _Store(db, run),
            _ReadOptions(max_size, None, None, strict, quiet),
        )


@ingest_app.command("trace")
def ingest_trace(
    paths: Paths,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    steps: Annotated[
        int | None, typer.Option("--steps", help="Cut each trace into this many steps.", min=1)
    ] = None,
    collective: Collective = None,
    jobs: Jobs = None,
    dask: Dask = None,
    max_size: MaxSize = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Traces of all ranks, call recorders, tables of a profiler.

    PyTorch profiler and rocprofv3 JSON, RPD, rocpd and Nsight Systems SQLite; flight recorder, NCCL
    Inspector and profiler plugin, RCCL recorder; key_averages, DeepSpeed and perftools tables.
    """
    # numpy would start a thread per core, which spins for a while; nothing here needs them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from collscope.ingest import commands

    with _named(collective):
        how = _ReadOptions(max_size, jobs, dask, strict, quiet)
        _ingest(
            lambda reading: commands.ingest_traces(paths, db, run, reading, steps),
            _Store(db, run),
            how,
        )


@ingest_app.command("csv")
def ingest_csv(
    paths: Paths,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    nranks: Annotated[
        int | None, typer.Option("-n", "--ranks", help="Ranks of an rccl_replayer CSV.", min=1)
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", help="Label for every row.", callback=checked_label)
    ] = None,
    max_size: MaxSize = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """CSVs of `collscope replay` and `bench`, and of rccl_replayer.

    With an option, a file that the run already holds is read again.
    """
    from collscope.ingest import commands

    _summarise(
        lambda: commands.ingest_csvs(paths, db, run, nranks, label, _reading(max_size)),
        _Store(db, run),
        _ReadOptions(max_size, None, None, strict, quiet),
    )


@ingest_app.command("table")
def ingest_table(
    paths: Paths,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    op: Annotated[
        str | None, typer.Option("--op", help="Operation, such as AllReduce or all_reduce.")
    ] = None,
    nranks: Annotated[int | None, typer.Option("-n", "--ranks", help="Ranks.", min=1)] = None,
    nnodes: Annotated[int | None, typer.Option("--nodes", help="Nodes.", min=1)] = None,
    datatype: Annotated[
        str | None, typer.Option("--datatype", help="Element type, such as float or bfloat16.")
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", help="Label for the table.", callback=checked_label)
    ] = None,
    max_size: MaxSize = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Benchmark tables: nccl-tests, rccl-tests, OSU and others.

    Text, JSON and CSV. The options override what a table states. With an option, a file that the
    run already holds is read again.
    """
    from collscope.ingest import commands
    from collscope.parsers.hints import table_hints

    hints = table_hints(op, nranks, nnodes, datatype, label)
    _summarise(
        lambda: commands.ingest_tables(paths, db, run, hints, _reading(max_size)),
        _Store(db, run),
        _ReadOptions(max_size, None, None, strict, quiet),
    )


@ingest_app.command("metric")
def ingest_metric(
    paths: Paths,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    name: Annotated[str | None, typer.Option("--name", help="What was measured.")] = None,
    unit: Annotated[
        str | None, typer.Option("--unit", help="Unit, such as ms or samples/s.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", help=("Setting that was measured."), callback=checked_label),
    ] = None,
    max_size: MaxSize = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """An application's step times or throughput.

    One figure per line, CSV with units in its column names, JSON lines, Hugging Face Trainer's
    lines, or a table with a column per setting whose text contains "per second".
    """
    from collscope.ingest import commands
    from collscope.parsers.hints import MetricHints

    _summarise(
        lambda: commands.ingest_metrics(
            paths, db, run, MetricHints(name, unit, label), _reading(max_size)
        ),
        _Store(db, run),
        _ReadOptions(max_size, None, None, strict, quiet),
    )


@ingest_app.command("auto")
def ingest_auto(
    paths: Paths,
    db: Db = DEFAULT_DB,
    run: Run = "main",
    collective: Collective = None,
    jobs: Jobs = None,
    dask: Dask = None,
    max_size: MaxSize = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Files of any kind, recognised by their content.

    A document may hold several kinds. Texts above 8 MiB are read as logs, or as the profile they
    begin with.
    """
    from collscope.ingest import commands

    with _named(collective):
        how = _ReadOptions(max_size, jobs, dask, strict, quiet)
        _ingest(lambda reading: commands.ingest_auto(paths, db, run, reading), _Store(db, run), how)
