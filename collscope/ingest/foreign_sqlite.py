"""SQLite files of other programs, opened so that nothing of them runs and reading them ends.

A view, a generated column or a virtual table is a program of the file: an endless recursion, or a
text of gigabytes, in a few bytes. The parsers read base tables (`collscope.parsers._sqlite`); what
stands here holds should one of them be something else after all. See "Untrusted SQLite Database
Files" in sqlite.org/security.html.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from collscope.interrupts import ctrl_c_kept

# What the parsers' own queries use.
_FUNCTIONS = {"coalesce", "count"}
_PRAGMAS = {"table_xinfo"}
# Instructions of SQLite's virtual machine. A row of a profile takes 30 bytes or more, and less than
# 100 instructions; a damaged tree may hold the same page without end.
_STEPS, _STEPS_PER_BYTE = 10_000_000, 8
_STEPS_AT_ONCE = 100_000
_VALUE_BYTES = 64 << 20  # no name of a kernel is longer


@contextmanager
def open_foreign(path: Path) -> Iterator[sqlite3.Connection]:
    """An SQLite file of another program, for reading its base tables.

    path    a file that nobody writes meanwhile; a WAL next to it is not read
    raises  what `sqlite3` raises for a file that it cannot open; KeyboardInterrupt at the end, for
            Ctrl-C that came meanwhile and that SQLite reported as an error
    """
    uri = f"file:{quote(str(path))}?mode=ro&immutable=1"
    with ctrl_c_kept() as signals, closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        if hasattr(connection, "setlimit"):  # of Python 3.11
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
        connection.set_authorizer(_authorized)
        steps = _STEPS + _STEPS_PER_BYTE * path.stat().st_size
        bound = _bound(steps // _STEPS_AT_ONCE, signals)
        connection.set_progress_handler(bound, _STEPS_AT_ONCE)
        yield connection


def database_bytes(header: bytes) -> int:
    """Bytes of an SQLite file by its header; 0 where it does not give them.

    Source: sqlite.org/fileformat.html, 1.3 "The Database Header": the number of pages holds where
    the change counter is that of the version which wrote it.
    """
    if len(header) < 100 or header[24:28] != header[92:96]:
        return 0
    page = int.from_bytes(header[16:18], "big")
    return int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)


def _authorized(
    action: int, first: str | None, second: str | None, _database: str | None, inside: str | None
) -> int:
    """Allow what the parsers ask for, and nothing on behalf of a view or a trigger."""
    allowed = inside is None and (
        action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
        or (action == sqlite3.SQLITE_FUNCTION and str(second).lower() in _FUNCTIONS)
        or (action == sqlite3.SQLITE_PRAGMA and str(first).lower() in _PRAGMAS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _bound(times: int, signals: Collection[int]) -> Callable[[], bool]:
    """A progress handler that stops what is called more often than `times`, and after a signal."""
    left = times

    def step() -> bool:
        nonlocal left
        left -= 1
        return left < 0 or bool(signals)

    return step
