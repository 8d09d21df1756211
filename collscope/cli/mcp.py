"""`collscope mcp`: answers for assistants."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collscope.cli.options import DEFAULT_DB, Db
from collscope.errors import MissingToolError, UsageError


def mcp(
    db: Db = DEFAULT_DB,
    allow: Annotated[
        list[Path] | None,
        typer.Option(
            "--allow",
            help="Folder for inputs and stores; repeatable. Default: the current folder.",
        ),
    ] = None,
) -> None:
    """Serve an assistant over the Model Context Protocol.

    On standard input and output, until the input ends. Needs 'pip install collscope[mcp]'.
    """
    from collscope.mcp.allowed import Allowed
    from collscope.mcp.tools import Scope

    try:
        from collscope.mcp.server import serve
    except ImportError as error:
        raise MissingToolError(
            f"mcp: not installed ({error.name}). Run 'pip install collscope[mcp]'."
        ) from error
    folders = tuple(folder.resolve() for folder in allow or [Path()])
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--allow {folder}: no such folder. Check the path.")
    scope = Scope(db, Allowed(folders))
    scope.store(None)  # outside the folders: better known now
    serve(scope)
