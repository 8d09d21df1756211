"""A query of a person or a script: it reads the store and nothing else, and it can be given up."""

from __future__ import annotations

import math
import re
import sqlite3
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from collscope.errors import UsageError
from collscope.interrupts import ctrl_c_kept
from collscope.store.near_names import near_columns, near_views

# Beyond what a connection that may only read refuses. ATTACH would make a file.
_DENIED = {
    sqlite3.SQLITE_ATTACH,
    sqlite3.SQLITE_DETACH,
    sqlite3.SQLITE_TRANSACTION,
    sqlite3.SQLITE_CREATE_TEMP_TABLE,
    sqlite3.SQLITE_CREATE_TEMP_VIEW,
}
_PRAGMAS = {
    "collation_list", "compile_options", "database_list", "foreign_key_list", "function_list",
    "index_info", "index_list", "index_xinfo", "pragma_list", "table_info", "table_list",
    "table_xinfo", "user_version",
}  # fmt: skip
# Some of these SQLite refuses for another reason: "use DROP VIEW to delete view calls".
_WRITING = re.compile(
    r"\s*(?:ALTER|ANALYZE|ATTACH|BEGIN|COMMIT|CREATE|DELETE|DETACH|DROP|INSERT|REINDEX|REPLACE|"
    r"ROLLBACK|SAVEPOINT|UPDATE|VACUUM)\b",
    re.IGNORECASE,
)
Parameters = Sequence[Any] | Mapping[str, Any]
"""Values for the `?` or the `:name` of a query."""
# Every view with its columns, those of the store itself left out.
VIEWS = (
    "SELECT m.name AS view, group_concat(c.name, ', ') AS columns FROM sqlite_master m"
    " JOIN pragma_table_info(m.name) c WHERE m.type = 'view' AND substr(m.name, 1, 1) <> '_'"
    " GROUP BY m.name ORDER BY m.name"
)
_NO_NAME = re.compile(r"no such (?P<what>table|column): (?:\w+\.)?(?P<name>\w+)")
_STEPS_AT_ONCE = 10_000  # of SQLite's virtual machine; some 100 us
# No view holds a value of 1 MiB; a function of SQL makes one of 1 GB from a few characters, and
# cannot be interrupted meanwhile.
_VALUE_MIB = 64


def select(
    connection: sqlite3.Connection,
    query: str,
    parameters: Parameters = (),
    timeout_s: float | None = None,
) -> tuple[list[str], Generator[tuple[Any, ...]]]:
    """Columns of a query, and its rows one by one; the connection only reads from then on.

    parameters  for `?` or `:name` in the query
    timeout_s   seconds after which it is given up, between calls of functions; None: never
    raises      UsageError, here or between rows, for a query that is wrong, that would do more than
                read, that has a value of more than 64 MiB, or that takes longer;
                sqlite3.DatabaseError for a damaged store
    """
    connection.set_authorizer(_authorized)
    if hasattr(connection, "setlimit"):  # of Python 3.11
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_MIB << 20)
    limit = _Limit(timeout_s, time.monotonic() + timeout_s if timeout_s is not None else math.inf)
    # Also without a limit: Python sees Ctrl-C only where SQLite calls it.
    connection.set_progress_handler(limit.is_over, _STEPS_AT_ONCE)
    with ctrl_c_kept(), _as_usage_errors(limit, query, connection):
        cursor = connection.execute(query, parameters)
    return [column[0] for column in cursor.description or ()], _rows(cursor, limit)


class _Limit(NamedTuple):
    timeout_s: float | None
    until: float  # of time.monotonic()

    def is_over(self) -> bool:
        return time.monotonic() > self.until


def _rows(cursor: sqlite3.Cursor, limit: _Limit) -> Generator[tuple[Any, ...]]:
    with _as_usage_errors(limit):
        yield from cursor


@contextmanager
def _as_usage_errors(
    limit: _Limit, query: str = "", connection: sqlite3.Connection | None = None
) -> Iterator[None]:
    """Say what is wrong with the query where SQLite refuses it.

    raises  KeyboardInterrupt for Ctrl-C during a query, which SQLite reports as an error
    """
    try:
        yield
    except UnicodeEncodeError as error:
        raise UsageError("query: bytes that are no UTF-8. Write it in UTF-8.") from error
    except (sqlite3.DatabaseError, sqlite3.Warning) as error:
        text = str(error).removesuffix(".")
        if text == "interrupted":
            if not limit.is_over():
                raise KeyboardInterrupt from error
            what = not_done(limit.timeout_s or 0)
        elif isinstance(error, sqlite3.DataError):
            what = f"a value of more than {_VALUE_MIB} MiB. Ask for a part of it, with substr()."
        elif _forbidden(text) or _WRITING.match(query):
            what = "it would do more than read the store. Use SELECT."
        elif isinstance(
            error, sqlite3.OperationalError | sqlite3.ProgrammingError | sqlite3.Warning
        ):
            what = f"{text}. {_remedy(text, query, connection)}"
        else:
            raise
        raise UsageError(f"query: {what}") from error


_LISTED = "'collscope sql' alone lists views and columns."


def _remedy(text: str, query: str, connection: sqlite3.Connection | None) -> str:
    """What to do about an error of SQLite: the nearest name, where one lacks."""
    if "one statement at a time" in text:
        return "Run 'collscope sql' for each, or 'sqlite3 -readonly' for all."
    found = _NO_NAME.fullmatch(text)
    if found is not None and connection is not None:
        if found["what"] == "table" and found["name"].lower() in ("run", "runs"):
            return "'collscope runs' lists the runs; in SQL: SELECT DISTINCT run FROM sources."
        names = _names(connection, found["what"], query)
        nearest = near_views if found["what"] == "table" else near_columns
        if near := nearest(found["name"], names):
            return f"Did you mean {' or '.join(near)}? {_LISTED}"
    return _LISTED


def _names(connection: sqlite3.Connection, what: str, query: str) -> list[str]:
    """Names of the public views ("table"), or of the columns of those in a query ("column")."""
    rows = connection.execute(VIEWS).fetchall()
    if what == "table":
        return [view for view, _ in rows]
    words = set(re.findall(r"\w+", query.lower()))
    return sorted({c for view, columns in rows if view in words for c in columns.split(", ")})


def not_done(timeout_s: float) -> str:
    """The message of a query that was given up."""
    return f"not finished after {timeout_s:g} s. Ask for less, or raise --timeout."


def _forbidden(text: str) -> bool:
    # "cannot modify calls because it is a view", "attempt to write a readonly database",
    # "cannot VACUUM from within a transaction", "not authorized"
    starts = ("cannot modify", "attempt to write", "cannot VACUUM", "not authorized")
    return text.startswith(starts)


def _authorized(
    action: int, first: str | None, second: str | None, _database: str | None, _inside: str | None
) -> int:
    if action == sqlite3.SQLITE_PRAGMA:
        name = str(first).lower()
        denied = name not in _PRAGMAS or (name == "user_version" and second is not None)
    else:
        denied = action in _DENIED
    return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK
