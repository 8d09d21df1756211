"""`collscope merge`: stores that were made apart become one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collscope.cli.options import DEFAULT_DB, Db, Quiet, summarise


def merge(
    stores: Annotated[
        list[Path], typer.Argument(metavar="STORE...", help="Stores, in the order of their ranks.")
    ],
    db: Db = DEFAULT_DB,
    rename: Annotated[
        bool, typer.Option("--rename", help="Keep runs of one name apart: NAME-STORE.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Make one new store of several.

    Each node can ingest its own files. Runs of one name become one job, matched across all
    stores. The stores do not change.
    """
    from collscope.ingest.merge import merge_stores

    summarise(lambda: merge_stores(stores, db, rename=rename), strict=False, quiet=quiet)
