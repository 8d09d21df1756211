"""One path into a store, by the command of its kind: the file, or each member of an archive.

Every reader is imported where it is used: the first log is being scanned meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from collscope.errors import UnreadableError
from collscope.ingest.archives import Skipped, open_all
from collscope.ingest.files import ArchiveError, Input, open_input
from collscope.ingest.scan import Report, scan_log

if TYPE_CHECKING:
    from collscope.ingest.result import Ingested

# Store, its path, run, path of the file, what it may become in bytes, progress.
ReadPath = Callable[[sqlite3.Connection, Path, str, str, int | None, Report], "list[Ingested]"]


def read_members(
    path: str, most_bytes: int | None, one: Callable[[Input], list[Ingested]]
) -> list[Ingested]:
    """What becomes of a file, or of every member of an archive.

    raises  UnreadableError when it cannot be opened
    """
    from collscope.ingest.result import Ingested

    found: list[Ingested] = []
    with open_all(path, most_bytes) as members:
        for member in members:
            if isinstance(member, Skipped):
                found.append(Ingested(member.path, "unusable", reason=member.reason))
                continue
            try:
                found += one(member)
            except UnreadableError as error:
                if member.path == path:
                    raise
                found.append(Ingested(member.path, "unusable", reason=error.reason))
    return found or [Ingested(path, "unusable", reason="an archive without files")]


def _read_log(
    connection: sqlite3.Connection,
    store: Path,
    run: str,
    path: str,
    most_bytes: int | None,
    report: Report,
) -> list[Ingested]:
    from collscope.ingest.logs import store_log

    try:
        with open_input(path, most_bytes, once=True) as file:
            return [store_log(connection, store, run, scan_log(file, report))]
    except ArchiveError:

        def one(file: Input) -> list[Ingested]:
            return [store_log(connection, store, run, scan_log(file, report))]

        return read_members(path, most_bytes, one)


def _read_trace(
    connection: sqlite3.Connection,
    store: Path,
    run: str,
    path: str,
    most_bytes: int | None,
    _report: Report,
) -> list[Ingested]:
    from collscope.ingest.traces import ingest_trace

    return read_members(path, most_bytes, lambda file: [ingest_trace(connection, store, run, file)])


def _read_any(
    connection: sqlite3.Connection,
    store: Path,
    run: str,
    path: str,
    most_bytes: int | None,
    report: Report,
) -> list[Ingested]:
    from collscope.ingest.auto import ingest_any

    return read_members(
        path, most_bytes, lambda file: ingest_any(connection, store, run, file, report)
    )


READERS: Mapping[str, ReadPath] = {"log": _read_log, "trace": _read_trace, "auto": _read_any}
