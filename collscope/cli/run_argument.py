"""The run that a command reads: named as its argument, or with --run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from collscope.cli.hints import STORES, is_path, is_sqlite
from collscope.cli.options import checked_label
from collscope.cli.values import complete_run
from collscope.errors import CollscopeError, InputError, UsageError

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
    if found == "-":
        raise UsageError(
            f"{_command(context)} -: it does not read standard input. Read it first with"
            " 'collscope ingest auto - --run NAME', then name the run."
        )
    # os.path does not raise where a name is no possible path.
    exists = found is not None and os.path.exists(found)  # noqa: PTH110
    if found is None or not (exists or found.endswith(STORES)) or found in _runs(db):
        return found
    where = f"{_command(context)} {found}"
    if not exists:
        raise UsageError(f"{where}: no such run or file. Name a store with --db.")
    if is_sqlite(found):
        raise UsageError(f"{where}: a file, not a run. Write --db {shlex.quote(found)}.")
    kind = "folder" if os.path.isdir(found) else "file"  # noqa: PTH112
    raise UsageError(
        f"{where}: a {kind}, not a run. Read it first with"
        f" 'collscope ingest {shlex.quote(found)} --run NAME', then name the run."
    )


def paths_or_run(
    context: typer.Context, db: Path, paths: Sequence[str] | None, run: _Run
) -> tuple[tuple[str, ...], _Run | str]:
    """Paths, and the run: an argument alone that names no file, but a run of the store, is one.

    raises  UsageError where --run names another run; InputError for what is no name of either
    """
    from glob import has_magic

    given = tuple(paths or ())
    alone = given[0] if len(given) == 1 else None
    if not alone or is_path(alone) or has_magic(alone):
        return given, run
    found = _runs(db)
    if alone not in found:
        known = f", and no run of {db} (runs: {', '.join(map(repr, found))})" if found else ""
        raise InputError(f"{alone}: no such file or folder{known}. Check the name.")
    return (), _named_once(context, alone, run)


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


def _runs(db: Path) -> list[str]:
    """Runs of a store; none of one that is not there, or cannot be read."""
    from collscope.library import Store

    try:
        return list(Store(db).runs())
    except CollscopeError:
        return []
