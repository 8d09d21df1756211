"""What all kinds of files have in common on their way into the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path, PurePath

from collscope.ingest.files import Input
from collscope.ingest.paths import STDIN, printable
from collscope.ingest.result import Ingested
from collscope.model import Diagnostic, Severity
from collscope.store import sources
from collscope.store.connection import transaction
from collscope.store.measurements import remove_source_by_hash
from collscope.store.source_contents import contents

# Why a file is unusable, where it is nothing that its kind of file could have.
OTHER_KIND, EMPTY, CUT = "other_kind", "empty", "truncated_compression"

_CUT_DATABASE_TEXT = (
    "the SQLite file ends before its last page: an unknown number of rows is missing. Copy the"
    " original again."
)
CUT_TEXT = "the compressed file ends early or is damaged: what could be read is kept"
_BESIDE_TEXT = (
    "SQLite's log of this file (FILE-wal) is in the same folder: rows that only the log holds "
    "were not read. Stop the profiler, or run 'sqlite3 FILE \"PRAGMA wal_checkpoint(TRUNCATE)\"', "
    "and ingest the file again."
)
_CHANGED_TEXT = (
    "{path} is already in this run with other content (source {source}): the rows of both are "
    "kept. To separate them, name another --run, or another --label where the command takes one."
)


def identity_of(connection: sqlite3.Connection, run: str, file: Input, kind: str) -> str:
    """Identity of a file as a source of this kind: a compressed copy has that of the file.

    A store of an earlier version has that of the compressed bytes.
    raises  UnreadableError
    """
    packed = sources.identity(file.sha256, kind)
    if sources.has_source(connection, run, packed):
        return packed
    return sources.identity(file.content_sha256, kind)


def known(connection: sqlite3.Connection, run: str, path: str, identity: str) -> Ingested:
    """A file that the run has already, with what is stored of it."""
    held = contents(connection, run, identity)
    return Ingested(path, "known", held.dialect, held.counts, labels=held.labels)


def add_source(  # noqa: PLR0913 - where to, what, and whether again
    connection: sqlite3.Connection,
    db: Path,
    run: str,
    row: sources.SourceRow,
    diagnostics: list[Diagnostic],
    insert: Callable[[int, int], None],
    *,
    reread: bool = False,
) -> str:
    """Put a source with all that it holds into a run, in one transaction.

    diagnostics  stored with it; gets a notice when the path is in the run with other bytes
    insert   puts its records there; called with the keys of the run and of the source
    reread   the same source is replaced when it is there
    returns  what became of it: added, replaced, or known, with nothing stored
    raises   InputError when the store refuses
    """
    with transaction(connection, db):
        status = "added"
        if sources.has_source(connection, run, row.sha256):
            if not reread:
                return "known"
            remove_source_by_hash(connection, run, row.sha256)
            status = "replaced"
        run_key = sources.run_id(connection, run)
        older = None if row.path == STDIN else sources.same_path(connection, run_key, row)
        if older is not None:
            text = _CHANGED_TEXT.format(path=row.path, source=older)
            diagnostics.append(Diagnostic(Severity.NOTICE, "path_with_other_bytes", text))
        source = sources.insert_source(connection, run_key, row)
        insert(run_key, source)
        sources.insert_diagnostics(connection, run_key, source, diagnostics)
    return status


def unusable(path: str, code: str, reason: str, *, size: int, truncated: bool) -> Ingested:
    """A file of `size` bytes, decompressed, that holds nothing of the kind looked for.

    code    why: `OTHER_KIND`, or the code of what is wrong with a file of this kind
    """
    if truncated and not size:
        code, reason = CUT, "the compressed data ends early or is damaged: nothing could be read"
    elif truncated:
        code = CUT
        reason = (
            f"the compressed data ends early or is damaged; the part that could be read: {reason}"
        )
    elif not size:
        code, reason = EMPTY, "the file is empty"
    return Ingested(path, "unusable", reason=reason, code=code)


def cut_short(file: Input) -> list[Diagnostic]:
    """What is missing of a file: the end of a compressed one, the newest rows of an SQLite file."""
    found = []
    if file.truncated:
        found.append(Diagnostic(Severity.DATA_LOSS, "truncated_compression", CUT_TEXT))
    if file.cut_database:
        found.append(Diagnostic(Severity.DATA_LOSS, "cut_database", _CUT_DATABASE_TEXT))
    beside = Path(f"{file.path}-wal")
    if not file.inside and beside.is_file() and beside.stat().st_size:
        found.append(Diagnostic(Severity.DATA_LOSS, "rows_beside", _BESIDE_TEXT))
    return found


def stem(path: str) -> str:
    """Label of what a file holds when nothing else names it.

    >>> stem("runs/h200.csv.gz"), stem("-")
    ('h200', 'stdin')
    """
    return "stdin" if path == STDIN else PurePath(printable(path)).name.split(".")[0] or "file"
