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
    from collscope.parsers.metrics import MetricHints
    from collscope.parsers.tables import TableHints

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


def ingest_traces(paths: list[str], db: Path, run: str) -> list[Ingested]:
    """Put traces, recordings and tables of totals into a run, and match its calls.

    raises  InputError when none of the paths holds a usable one
    """
    from collscope.ingest.traces import ingest_trace

    return _ingest(expand(paths), db, run, lambda c, path: ingest_trace(c, db, run, path))


def ingest_csvs(
    paths: list[str], db: Path, run: str, nranks: int | None = None, label: str | None = None
) -> list[Ingested]:
    """Put replay CSVs into a run; `nranks` and `label` as `collscope.ingest.replays` has them.

    raises  InputError when none of the paths holds a usable CSV
    """
    from collscope.ingest.replays import ingest_csv

    files = expand(paths)
    return _ingest(files, db, run, lambda c, path: ingest_csv(c, db, run, path, nranks, label))


def ingest_tables(paths: list[str], db: Path, run: str, hints: TableHints) -> list[Ingested]:
    """Put benchmark tables into a run; `hints` hold for every file.

    raises  InputError when none of the paths holds a usable table
    """
    from collscope.ingest.tables import ingest_table

    return _ingest(expand(paths), db, run, lambda c, path: ingest_table(c, db, run, path, hints))


def ingest_metrics(paths: list[str], db: Path, run: str, hints: MetricHints) -> list[Ingested]:
    """Put an application's figures into a run; `hints` hold for every file.

    raises  InputError when none of the paths holds a figure
    """
    from collscope.ingest.tables import ingest_metric

    return _ingest(expand(paths), db, run, lambda c, path: ingest_metric(c, db, run, path, hints))


def ingest_auto(paths: list[str], db: Path, run: str, progress: Progress) -> list[Ingested]:
    """Put each path into a run as what it is: profile, trace, replay CSV, log, else a table.

    raises  InputError when none of the paths is usable
    """
    from collscope.ingest.logs import ingest_log
    from collscope.ingest.profiles import ingest_profile
    from collscope.ingest.replays import ingest_csv
    from collscope.ingest.result import Ingested
    from collscope.ingest.tables import ingest_table
    from collscope.ingest.traces import ingest_trace
    from collscope.parsers.tables import TableHints

    def either(connection: sqlite3.Connection, path: str) -> Ingested:
        result = ingest_profile(connection, db, run, path)
        if result.status != "unusable":
            return result
        trace = ingest_trace(connection, db, run, path)
        if trace.status != "unusable":
            return trace
        csv = ingest_csv(connection, db, run, path, None, None)
        if csv.status != "unusable":
            return csv
        log = ingest_log(connection, db, run, path, progress)
        if log.status != "unusable":
            return log
        table = ingest_table(connection, db, run, path, TableHints())
        if table.status != "unusable":
            return table
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
