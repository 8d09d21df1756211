"""`collscope runs`: what the store holds, run by run, and how to be rid of one."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from collscope.cli.options import DEFAULT_DB, Db, Format, Output, checked_label, write
from collscope.errors import UsageError


class Action(str, Enum):
    """What is done with a run."""

    RM = "rm"


def runs(
    action: Annotated[Action | None, typer.Argument(help="Remove a run.")] = None,
    name: Annotated[
        str | None, typer.Argument(help="The run to remove.", callback=checked_label)
    ] = None,
    db: Db = DEFAULT_DB,
    format: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TEXT,
    output: Output = None,
) -> None:
    """The runs of the store; 'runs rm NAME' removes one.

    The files that a run was read from stay as they are.
    """
    from collscope.ingest.match import reading, require_run
    from collscope.reports.query import render_rows
    from collscope.store.runs import COLUMNS, list_runs, remove_run

    if (action is None) != (name is None):
        raise UsageError("runs: rm needs the name of a run, as in 'collscope runs rm NAME'.")
    with reading(db) as connection:
        if name is not None:
            require_run(connection, db, name)
        found = list_runs(connection)
    if name is None:
        write(render_rows(COLUMNS, found, format.value, title="collscope runs"), output)
    else:
        sources = remove_run(db, name)
        noun = "source" if sources == 1 else "sources"
        write(f"{db}: run '{name}' removed, with {sources} {noun}", output)
