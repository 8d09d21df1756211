"""`collscope merge`: stores made apart, as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collscope.cli.options import Db, summarise, write


def merge(
    stores: Annotated[list[Path], typer.Argument(help="Stores to merge; they do not change.")],
    db: Db,
    rename: Annotated[
        bool,
        typer.Option(
            "--rename", help=("Runs of one name are different jobs: rename to STORE.NAME.")
        ),
    ] = False,
) -> None:
    """Merge several stores into one and match its runs again.

    --db names the new store. Runs of one name count as one job; a file in two stores counts once.
    """
    from collscope.ingest.merge import merge_stores
    from collscope.ingest.result import Ingested
    from collscope.units import count

    found = merge_stores(stores, db, rename=rename)
    sources = sum(one.sources for one in found.stores)
    known = sum(one.known for one in found.stores)
    twice = f", {count(known, 'source')} in several stores counted once" if known else ""
    write(
        f"{db}: {count(len(stores), 'store')}, {count(sources, 'source')}, "
        f"{count(len(found.runs), 'run')} ({', '.join(found.runs)}){twice}",
        None,
    )
    matched = [Ingested(f"run '{r}'", "matched", diagnostics=d) for r, d in found.diagnostics]
    summarise(lambda: matched, strict=False)
