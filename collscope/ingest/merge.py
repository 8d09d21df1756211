"""Stores made apart, as one: a site ingests where the files lie."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from collscope.errors import InputError, UsageError
from collscope.ingest.match import match_stored
from collscope.outputs import require_folder
from collscope.store.connection import (
    open_readonly,
    open_store,
    schema_version,
    snapshot,
    sqlite_errors_as_input_errors,
    transaction,
)
from collscope.store.copy_sources import Copied, copy_sources
from collscope.temporary import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collscope.model import Diagnostic


_VERSION_END = 64  # of a store's header, whose last four bytes there are the schema's version


class Merged(msgspec.Struct, frozen=True):
    """What a merge made."""

    stores: tuple[Copied, ...]  # of each store in turn
    runs: tuple[str, ...]
    diagnostics: tuple[tuple[str, tuple[Diagnostic, ...]], ...]  # of each run's matching


def merge_stores(stores: Sequence[Path], target: Path, *, rename: bool = False) -> Merged:
    """Make a new store of the sources of others, and match its runs; the others are not changed.

    Runs of one name are one job. A source that a run holds already counts once.

    rename  a run whose name an earlier store has gets that of its own store before it: NODE2.main
    raises  UsageError when the target exists or a store is named twice; InputError for what is no
            store, or cannot be read or written
    """
    _check(stores, target)
    with sqlite_errors_as_input_errors(target), scratch_beside(target) as folder:
        made = folder / "merged.db"
        with closing(open_store(made)) as connection:
            copied: list[Copied] = []
            for store in stores:
                taken = {run for one in copied for run in one.runs}
                with opened_as_current(store, folder) as given, transaction(connection, made):
                    copied.append(copy_sources(given, connection, _names(store, taken, rename)))
            runs = tuple(dict.fromkeys(run for one in copied for run in one.runs))
            matched = tuple((run, tuple(match_stored(connection, made, run))) for run in runs)
            connection.execute("PRAGMA journal_mode = DELETE")  # all of it in the one file
        publish(made, target)
    return Merged(tuple(copied), runs, matched)


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """A folder next to the target.

    raises  InputError when none can be made there
    """
    try:
        with temporary_folder("merge", target.absolute().parent) as folder:
            yield folder
    except OSError as error:
        raise InputError(f"{target}: {error.strerror}. Name another file with --db.") from error


def _check(stores: Sequence[Path], target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target}: exists. Name a new file with --db.")
    require_folder(target, "--db")
    seen: set[Path] = set()
    for store in stores:
        if not store.exists():
            raise InputError(f"{store}: no such store. Check the path.")
        if store.resolve() in seen:
            raise UsageError(f"{store}: named twice. Name each store once.")
        seen.add(store.resolve())


def publish(made: Path, target: Path) -> None:
    """Give a finished store its name, if nobody else took it meanwhile.

    raises  UsageError
    """
    try:
        os.link(made, target)
    except FileExistsError as error:
        raise UsageError(f"{target}: exists. Name a new file with --db.") from error
    except OSError:  # a file system without links
        made.replace(target)


@contextmanager
def opened_as_current(store: Path, scratch: Path) -> Iterator[sqlite3.Connection]:
    """A store at one moment; one of an earlier release as a migrated copy in `scratch`."""
    with sqlite_errors_as_input_errors(store):
        path = _migrated(store, scratch)
        with closing(open_readonly(path)) as connection, snapshot(connection, path):
            yield connection


def _migrated(store: Path, scratch: Path) -> Path:
    """The store, or a copy in this release's schema."""
    if not store.is_file():
        return store  # the error is that of opening it
    with store.open("rb") as file:
        head = file.read(_VERSION_END)
    # A shared folder may not let SQLite make its files next to a store that it opens.
    if not 0 < int.from_bytes(head[_VERSION_END - 4 :], "big") < schema_version():
        return store
    with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True)) as older:
        copy = scratch / "older.db"
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(copy)) as made:
            older.backup(made)
    return copy


def _names(store: Path, taken: set[str], rename: bool) -> Callable[[str], str]:
    """Label of a run in the target, by its label in a store."""

    def name(label: str) -> str:
        if not rename or label not in taken:
            return label
        new = f"{store.name.split('.')[0]}.{label}"
        number = 2
        while new in taken:
            new = f"{store.name.split('.')[0]}.{label}.{number}"
            number += 1
        return new

    return name
