"""Reading foreign SQLite files: names, columns and rows, whatever state the file is in."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from collscope.model import Diagnostic, Severity
from collscope.parsers.reader import Fit, Reader, is_sqlite, one_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from collscope.model import Profile, ProfileSet
    from collscope.parsers._rows import Rows
    from collscope.parsers.hints import Hints
    from collscope.parsers.reader import Database, Source


def select(connection: Database, sql: str) -> Iterator[tuple[Any, ...]]:
    """Rows of a query; text that is not UTF-8 comes with replacement characters."""
    before = connection.text_factory
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        yield from connection.execute(sql)
    finally:
        connection.text_factory = before


def base_tables(connection: Database) -> set[str]:
    """Tables whose rows are stored, not computed.

    Views, virtual tables and tables with generated columns run code from the file, for any time.
    """
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
    tables = {str(name) for (name,) in select(connection, sql)}
    return {table for table in tables if not _generated(connection, table)}


def _generated(connection: Database, table: str) -> bool:
    # cid, name, type, notnull, dflt_value, pk, hidden: 2 and 3 of generated columns
    rows = select(connection, f"PRAGMA table_xinfo({quoted(table)})")
    return any(row[6] in (2, 3) for row in rows)


def quoted(name: str) -> str:
    """Name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def columns(connection: Database, table: str) -> dict[str, str]:
    """Columns of a table: lower-case name to the name as declared."""
    rows = select(connection, f"PRAGMA table_xinfo({quoted(table)})")
    return {str(row[1]).lower(): str(row[1]) for row in rows}


def first_of(known: dict[str, str], alias: str, *names: str) -> str:
    """SQL for the first of the columns that exists, ``NULL`` when none does.

    known   what `columns` gave
    alias   table alias to put before the column
    """
    for name in names:
        if name.lower() in known:
            return f"{alias}.{quoted(known[name.lower()])}"
    return "NULL"


@contextmanager
def damage_noted(connection: Database, rows: Rows) -> Iterator[None]:
    """Turn an error of the file into a diagnostic; rows read before it stay."""
    try:
        yield
    except (connection.DatabaseError, UnicodeDecodeError, MemoryError) as error:
        # UnicodeDecodeError: names of a damaged schema, or SQLite's message that quotes them.
        # MemoryError: a damaged page may give a size that SQLite cannot allocate.
        # "interrupted": by the one who opened it, since reading it would not end.
        why = "it is far longer than its file" if str(error) == "interrupted" else error
        message = f"The database cannot be read to its end ({why}). Copy or export it again."
        rows.note(Diagnostic(Severity.ERROR, "corrupt_database", message))


def sqlite_reader(
    name: str,
    sniff_tables: Callable[[set[str]], bool],
    parse: Callable[[Database], Profile],
) -> Reader:
    """Reader of a profile that is an SQLite file, recognised by the names of its base tables."""

    def read(source: Source, _hints: Hints) -> ProfileSet | None:
        with source.database() as connection:
            if connection is None:
                return None
            try:
                known = sniff_tables(base_tables(connection))
                return one_profile(parse(connection)) if known else None
            except (connection.DatabaseError, UnicodeDecodeError, MemoryError):
                return None

    return Reader(name, "profile", lambda h: Fit.WHOLE if is_sqlite(h) else Fit.NONE, read)
