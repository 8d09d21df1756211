"""Stores that were made apart, each where its files lie, become one."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

from collscope.errors import InputError
from collscope.ingest.match import match_stored
from collscope.ingest.paths import printable
from collscope.ingest.result import Ingested
from collscope.store.absorb import Absorbed, absorb
from collscope.store.connection import attached, open_store, remove_store, transaction


def merge_stores(paths: list[Path], out: Path, *, rename: bool = False) -> list[Ingested]:
    """Put the sources of stores into a new one, and match its runs again.

    The stores stay as they are. Runs of one name become one run.

    rename   a run whose name an earlier store has gets the name of its store's file behind its own
    returns  one result per store, and one per run whose matching has notices
    raises   InputError when `out` exists, or a store cannot be read; then there is no `out`
    """
    if out.exists():
        raise InputError(f"{out}: the file exists. Name a new file with --db.")
    with ExitStack() as unless_done:
        unless_done.callback(remove_store, out)
        with closing(open_store(out)) as connection:
            results = [_put(connection, out, path, rename=rename) for path in paths]
            if not any(dict(result.counts)["sources"] for result in results):
                raise InputError(f"{paths[0]}: no store holds a source. Nothing was merged.")
            runs = "SELECT label FROM _run WHERE period_of IS NULL ORDER BY run_id"
            for (run,) in connection.execute(runs).fetchall():
                if found := match_stored(connection, out, run):
                    note = Ingested(f"run '{run}'", "matched", diagnostics=tuple(found))
                    results.append(note)
        unless_done.pop_all()
    return results


def _put(connection: sqlite3.Connection, out: Path, path: Path, *, rename: bool) -> Ingested:
    """One store, in one transaction."""
    taken = {label for (label,) in connection.execute("SELECT label FROM _run")}
    with attached(connection, path), transaction(connection, out):
        found = absorb(
            connection, lambda run: _free(run, path, taken) if rename else run, str(path)
        )
    return _result(path, found)


def _free(run: str, path: Path, taken: set[str]) -> str:
    """Name of a run that no earlier store has.

    >>> _free("main", Path("node1.db"), {"main"}), _free("main", Path("node1.db"), set())
    ('main-node1', 'main')
    """
    name, number = run, 1
    while name in taken:
        name = f"{run}-{printable(path.stem)}" + (f"-{number}" if number > 1 else "")
        number += 1
    return name


def _result(path: Path, found: Absorbed) -> Ingested:
    counts = (
        ("sources", found.added),
        ("sources known already", len(found.known)),
        ("runs", len(found.runs)),
    )
    return Ingested(str(path), "added", "store", counts)
