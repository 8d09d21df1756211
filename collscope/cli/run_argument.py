"""The run that a command reads: named as its argument, or with --run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from collscope.cli.hints import is_sqlite
from collscope.cli.options import checked_label
from collscope.cli.values import complete_run
from collscope.errors import CollscopeError, UsageError

_Run = TypeVar("_Run", bound=str | None)

RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        autocompletion=complete_run,
        callback=checked_label,
        help="The same as --run.",
    ),
]


def named_run(context: typer.Context, db: Path, name: str | None, run: _Run) -> _Run | str:
    """The run that the argument names, else that of --run, of its variable, or its default.

    raises  UsageError where both name one, and for a file or folder in place of a run
    """
    found = _named_once(context, name, run)
    # os.path does not raise where a name is no possible path.
    if found is not None and os.path.exists(found) and not _is_stored(db, found):  # noqa: PTH110
        what = f"{_command(context)} {found}: a"
        if is_sqlite(found):
            raise UsageError(f"{what} file, not a run. Write --db {shlex.quote(found)}.")
        kind = "folder" if os.path.isdir(found) else "file"  # noqa: PTH112
        raise UsageError(
            f"{what} {kind}, not a run. Read it first with"
            f" 'collscope ingest {shlex.quote(found)} --run NAME', then name the run."
        )
    return found


def paths_or_run(
    context: typer.Context, db: Path, paths: Sequence[str] | None, run: _Run
) -> tuple[tuple[str, ...], _Run | str]:
    """Paths, and the run: an argument alone that names no file, but a run of the store, is one.

    raises  UsageError where --run names another run
    """
    given = tuple(paths or ())
    if len(given) == 1 and not os.path.exists(given[0]) and _is_stored(db, given[0]):  # noqa: PTH110
        return (), _named_once(context, given[0], run)
    return given, run


def _named_once(context: typer.Context, name: str | None, run: _Run) -> _Run | str:
    if name is None:
        return run
    source = context.get_parameter_source("run")
    if source is not None and source.name == "COMMANDLINE" and run != name:
        raise UsageError(f"{_command(context)}: the run is {name} and --run {run}. Name it once.")
    return name


def _command(context: typer.Context) -> str:
    """The command's words, without the program's."""
    return context.command_path.partition(" ")[2]


def _is_stored(db: Path, run: str) -> bool:
    """Whether a store holds a run; a store that is not there, or cannot be read, does not."""
    from collscope.ingest.match import reading
    from collscope.store.runs import has_sources

    if not db.exists():
        return False
    try:
        with reading(db) as connection:
            return has_sources(connection, run)
    except CollscopeError:
        return False
