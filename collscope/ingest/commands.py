"""What the ingest commands do: every input in turn, then the matching.

Modules that need numpy are imported where they are used: the first log is being scanned meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from collscope.errors import InputError
from collscope.ingest.files import expand, printable
from collscope.ingest.scan import Progress, ScansAhead
from collscope.store.connection import explained, open_store

if TYPE_CHECKING:
    from collscope.ingest.result import Ingested

    _Ingest = Callable[[sqlite3.Connection, str], Ingested]


def ingest_logs(paths: list[str], db: Path, run: str, progress: Progress) -> list[Ingested]:
    """Put logs into a run and match its calls.

    raises  InputError when none of the paths holds a usable log
    """
    files = expand(paths)
    with ScansAhead(files, progress) as scans:
        from collscope.ingest.logs import store_log

        return _ingest(files, db, run, lambda c, path: store_log(c, db, run, scans.take(path)))


def ingest_profiles(paths: list[str], db: Path, run: str) -> list[Ingested]:
    """Put profiles into a run.

    raises  InputError when none of the paths holds a usable profile
    """
    from collscope.ingest.profiles import ingest_profile

    return _ingest(expand(paths), db, run, lambda c, path: ingest_profile(c, db, run, path))


def ingest_auto(paths: list[str], db: Path, run: str, progress: Progress) -> list[Ingested]:
    """Put each path into a run as what it is: a profile if a dialect knows it, else a log.

    raises  InputError when none of the paths is usable
    """
    from collscope.ingest.logs import ingest_log
    from collscope.ingest.profiles import ingest_profile
    from collscope.ingest.result import Ingested

    def either(connection: sqlite3.Connection, path: str) -> Ingested:
        result = ingest_profile(connection, db, run, path)
        if result.status != "unusable":
            return result
        log = ingest_log(connection, db, run, path, progress)
        if log.status != "unusable":
            return log
        return Ingested(path, "unusable", reason=f"no profile ({result.reason}); {log.reason}")

    return _ingest(expand(paths), db, run, either)


def _ingest(files: list[str], db: Path, run: str, one: _Ingest) -> list[Ingested]:
    from collscope.ingest.match import match_stored

    with _store(db) as connection:
        results = [_tolerant(one, connection, path, alone=len(files) == 1) for path in files]
        match_stored(connection, db, run)
    if results and all(r.status == "unusable" for r in results):
        more = f" (and {len(results) - 1} more)" if len(results) > 1 else ""
        raise InputError(f"{results[0].path}{more}: {results[0].reason}. Nothing was stored.")
    return results


def _tolerant(one: _Ingest, connection: sqlite3.Connection, path: str, *, alone: bool) -> Ingested:
    """One input of many must not keep the others out: what cannot be read is unusable."""
    from collscope.ingest.result import Ingested

    readable = path == "-" or Path(path).is_file()
    try:
        if readable and path != "-":
            with Path(path).open("rb"):
                pass
    except OSError as error:
        if not alone:
            return Ingested(printable(path), "unusable", reason=f"{error.strerror}")
        raise InputError(f"{path}: {error.strerror}. Check the file's permissions.") from error
    return replace(one(connection, path), path=printable(path))


@contextmanager
def _store(db: Path) -> Iterator[sqlite3.Connection]:
    connection = open_store(db)
    try:
        with explained(db):
            yield connection
    finally:
        connection.close()
