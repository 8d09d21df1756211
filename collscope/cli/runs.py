"""`collscope runs`: what the store holds, run by run, and how to be rid of one."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from collscope.cli.answers import targets, write_answer
from collscope.cli.options import (
    DEFAULT_DB,
    Db,
    Output,
    RowsFormat,
    RowsFormatOption,
    checked_label,
    summarise,
    write,
)
from collscope.cli.values import complete_run
from collscope.errors import UsageError


class Action(str, Enum):
    """What is done with a run."""

    RM = "rm"
    REMATCH = "rematch"


def _action(text: str) -> Action:
    try:
        return Action(text)
    except ValueError:
        raise typer.BadParameter(
            f"'{text}' is neither rm nor rematch. 'collscope runs' alone lists the runs, and"
            " 'collscope report RUN' shows one"
        ) from None


def _complete_action(incomplete: str) -> list[str]:
    return [choice.value for choice in Action if choice.value.startswith(incomplete)]


def runs(
    action: Annotated[
        Action | None,
        typer.Argument(
            help="Remove a run, or match its calls again. Default: list the runs.",
            parser=_action,
            metavar="rm|rematch",
            autocompletion=_complete_action,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="The run.", callback=checked_label, autocompletion=complete_run),
    ] = None,
    db: Db = DEFAULT_DB,
    format: RowsFormatOption = None,
    output: Output = None,
) -> None:
    """List the runs of the store; 'runs rm NAME' removes one.

    The source files of a run do not change. 'runs rematch NAME' matches the calls of a run again,
    for instance after an interrupted ingest. json is an object with the rows (jq '.rows[]').
    """
    from collscope.ingest.match import reading, require_known
    from collscope.reports.rendering.rows import render_rows
    from collscope.store.runs import COLUMNS, list_runs, remove_run

    places = targets(format, output, RowsFormat)

    if (action is None) != (name is None):
        raise UsageError(
            "runs: rm and rematch need the name of a run, as in 'collscope runs rm NAME'."
        )
    with reading(db) as connection:
        if name is not None:
            require_known(connection, db, name)
        found = list_runs(connection)
    if name is None:
        title = "collscope runs"
        write_answer(places, lambda fmt: render_rows(COLUMNS, found, fmt, title=title))
    elif action is Action.REMATCH:
        _rematch(db, name)
    else:
        sources = remove_run(db, name)
        noun = "source" if sources == 1 else "sources"
        write(f"{db}: run '{name}' removed, with {sources} {noun}", None)


def _rematch(db: Path, run: str) -> None:
    """Match a run again, and print what an ingest would."""
    from collscope.ingest.match import rematch
    from collscope.ingest.result import Ingested

    def rematch_run() -> list[Ingested]:
        found = rematch(db, run)
        return [Ingested(f"run '{run}'", "matched", diagnostics=tuple(found))]

    summarise(rematch_run, strict=False)
    write(f"{db}: run '{run}' matched", None)
