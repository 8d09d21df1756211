"""A query of a person or a script: it reads the store and nothing else, and it can be given up."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from collscope.errors import UsageError

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
_STEPS_AT_ONCE = 10_000  # of SQLite's virtual machine; some 100 us
# No view holds a value of 1 MiB; a function of SQL makes one of 1 GB from a few characters, and
# cannot be interrupted meanwhile.
_VALUE_MIB = 64


def select(
    connection: sqlite3.Connection, query: str, timeout_s: float | None = None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and rows of a query; the connection can do nothing but read from then on.

    timeout_s  seconds after which it is given up, between calls of functions; None: never
    raises     UsageError for a query that is wrong, that would do more than read, that has a value
               of more than 64 MiB, or that takes longer; sqlite3.DatabaseError for a damaged store
    """
    connection.set_authorizer(_authorized)
    if hasattr(connection, "setlimit"):  # of Python 3.11
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_MIB << 20)
    if timeout_s is not None:
        give_up = time.monotonic() + timeout_s
        connection.set_progress_handler(lambda: time.monotonic() > give_up, _STEPS_AT_ONCE)
    try:
        cursor = connection.execute(query)
        rows = cursor.fetchall()
    except (sqlite3.DatabaseError, sqlite3.Warning) as error:
        text = str(error).removesuffix(".")
        if text == "interrupted":
            what = not_done(timeout_s or 0)
        elif isinstance(error, sqlite3.DataError):
            what = f"a value of more than {_VALUE_MIB} MiB. Ask for a part of it, with substr()."
        elif _forbidden(text):
            what = "it would do more than read the store. Use SELECT."
        elif isinstance(
            error, sqlite3.OperationalError | sqlite3.ProgrammingError | sqlite3.Warning
        ):
            what = f"{text}. 'collscope sql' alone lists views and columns."
        else:
            raise
        raise UsageError(f"query: {what}") from error
    return [column[0] for column in cursor.description or ()], rows


def not_done(timeout_s: float) -> str:
    """What is said of a query that was given up."""
    return f"not done after {timeout_s:g} s. Ask for less, or raise --timeout."


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
