"""Open, create and migrate the store; transactions that leave it whole."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import collscope._logscan as native
from collscope.errors import InputError
from collscope.model import Severity
from collscope.outputs import note_sources, note_store, require_folder, require_store
from collscope.units import count
from collscope.writing import one_line

# The build puts schemas/ next to the native modules, in a wheel as in an editable install.
SCHEMAS = Path(native.__file__).parent / "_schemas"
# How long to wait for another process that writes: storing a log of 500 MB takes some seconds, and
# of several processes that wait, SQLite lets any one go first.
LOCK_TIMEOUT_S = 60.0
_RETRY_S = 0.01
# A migration may need runs to be matched again. Each process that opens the store meanwhile tries
# it once; a run that ends so many of them, for want of memory, stands unmatched from then on.
_TRIES = 8


def _migrations() -> list[Path]:
    return sorted(SCHEMAS.glob("[0-9][0-9][0-9]_*.sql"))


def _views() -> list[Path]:
    return sorted((SCHEMAS / "views").glob("*.sql"))


def schema_version() -> int:
    """Version of the schema this release writes: the number of its migrations."""
    return len(_migrations())


def is_store(path: Path) -> bool:
    """Whether a file has the tables of a store; of a pipe nothing is read."""
    if not path.is_file():
        return False
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as found:
            query = "SELECT COUNT(*) FROM sqlite_master WHERE name IN ('_run', '_source')"
            return int(found.execute(query).fetchone()[0]) == 2
    except sqlite3.DatabaseError:
        return False


def open_store(path: Path) -> sqlite3.Connection:
    """Open a store for writing; create it or bring it to this release's schema.

    Any number of processes may open, or create, the same store at once.

    raises  InputError when the file is no store, is locked, damaged or of a newer release
    """
    require_store(path)
    note_store(path)
    while True:
        made = _create(path)
        before = _file(path)
        try:
            connection = _opened(path)
        except InputError:
            if _file(path) == before:
                if made and not path.stat().st_size:  # a full disk; whoever waits for it goes on
                    path.unlink(missing_ok=True)
                raise
            continue
        # In WAL mode nobody can take the file away any more, but `remove_empty` of another process
        # may have done so between its opening and here.
        if _file(path) == before:
            return connection
        connection.close()


def _opened(path: Path) -> sqlite3.Connection:
    with sqlite_errors_as_input_errors(path):
        connection = sqlite3.connect(path.absolute(), isolation_level=None, timeout=LOCK_TIMEOUT_S)
    try:
        with sqlite_errors_as_input_errors(path):
            _check(connection, path)
            _switch_to_wal(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            _migrate(connection, path)
            _note_sources(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _note_sources(connection: sqlite3.Connection) -> None:
    """Let no output of this command take the place of a file that the store was made of."""
    note_sources(path for (path,) in connection.execute("SELECT DISTINCT path FROM _source"))


def _file(path: Path) -> tuple[int, int] | None:
    """Device and inode of a store's file; None where there is none.

    raises  InputError when it cannot be looked at, or is no regular file
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}. Name another file with --db.") from error
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path}: not a regular file. Name another file with --db.")
    return found.st_dev, found.st_ino


def _create(path: Path) -> bool:
    """Make an empty file, if there is none; True if there was none.

    No older file is opened: to close it would release the locks that SQLite holds on it in this
    process (sqlite.org/howtocorrupt.html, 2.2).
    raises  InputError when it cannot be made
    """
    try:
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    except FileExistsError:
        return False
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            require_folder(path, "--db")
        raise InputError(f"{path}: {error.strerror}. Name another file with --db.") from error
    return True


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch the store to WAL mode, which SQLite refuses at once while another process uses it."""
    give_up = time.monotonic() + LOCK_TIMEOUT_S
    while not _in_wal_mode(connection):
        if time.monotonic() > give_up:
            raise sqlite3.OperationalError("database is locked")
        time.sleep(_RETRY_S)


def _in_wal_mode(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        return False
    return True


def remove_empty(connection: sqlite3.Connection, path: Path) -> None:
    """Remove a store that holds no source, unless another process has it open.

    A store in WAL mode leaves it only for its one connection: what another has opened stays, and
    so does all that it writes.
    """
    with contextlib.suppress(sqlite3.Error):
        if connection.execute("SELECT 1 FROM _source LIMIT 1").fetchone() is None:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN EXCLUSIVE")
            # Another process may have come before the lock, and have switched to WAL again, where
            # the lock does not keep it out.
            mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
            empty = connection.execute("SELECT 1 FROM _source LIMIT 1").fetchone() is None
            if mode == "delete" and empty:
                path.unlink(missing_ok=True)


class _Reader(sqlite3.Connection):
    """Reads only; closed, it leaves the store without files next to it."""

    store: Path
    unlocked: os.stat_result | None = None  # the file when it was opened, where no lock holds it

    def close(self) -> None:
        """Close; SQLite's -wal and -shm files go, unless others have the store open.

        The last connection removes them, but not one that may only read, and that made them.
        raises  InputError when the store was read without locks, and changed meanwhile
        """
        super().close()
        if self.unlocked is not None:
            now = self.store.stat()
            if (now.st_mtime_ns, now.st_size) != (self.unlocked.st_mtime_ns, self.unlocked.st_size):
                raise InputError(f"{self.store}: it changed while it was read. Try again.")
            return
        with contextlib.suppress(sqlite3.Error):  # a folder that is read-only keeps what it has
            last = sqlite3.connect(_uri(self.store, "mode=rw"), uri=True, timeout=0)
            with contextlib.closing(last):
                _version(last)


def open_readonly(path: Path) -> sqlite3.Connection:
    """Open an existing store for reading only; to be closed by its `close`.

    A store of an older release is brought to this one's schema first.
    Its folder may be read-only.

    raises  InputError when there is no such store, or it cannot be read by this release
    """
    note_store(path)
    if _file(path) is None:
        require_store(path)
        raise InputError(
            f"{path}: no such store. Run 'collscope ingest auto PATH' first, or name it with --db."
        )
    connection = _reader(path)
    try:
        with sqlite_errors_as_input_errors(path):
            version = _check(connection, path)
            if not version:
                raise InputError(
                    f"{path}: an empty file. Run 'collscope ingest auto PATH' first, or name "
                    "another with --db."
                )
            if version < schema_version():
                connection.close()
                open_store(path).close()  # which brings it to this release's schema
                return open_readonly(path)
            connection.execute("SELECT COUNT(*) FROM sources").fetchone()
            _note_sources(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def empty_store() -> sqlite3.Connection:
    """A new store in memory."""
    return deserialised(_empty())


@functools.cache
def _empty() -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for script in (*_migrations(), *_views()):
            _run_script(connection, script.read_text("utf-8"))
        connection.execute(f"PRAGMA user_version = {schema_version()}")
        return connection.serialize()


def deserialised(data: bytes) -> sqlite3.Connection:
    """A store in memory from its bytes."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.deserialize(data)
    return connection


# A folder that cannot be written, and a full disk.
_NOTHING_BESIDE = ("readonly", "unable to open", "disk I/O", "full")


def _reader(path: Path) -> _Reader:
    """A reader; without locks where SQLite cannot make its files next to the store.

    raises  InputError when rows of the store are in such a file only
    """
    connection = _connected_reader(path, "mode=ro")
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        if not any(text in str(error) for text in _NOTHING_BESIDE):
            return connection  # another reason, which the caller meets again
    else:
        return connection
    connection.close()
    beside = path.with_name(path.name + "-wal")
    if beside.exists() and beside.stat().st_size:
        raise InputError(
            f"{path}: {beside.name} holds some of its rows, but its folder cannot be written, or "
            "its disk is full. Copy both files to another folder, and read the store there."
        )
    before = path.stat()
    connection = _connected_reader(path, "mode=ro&immutable=1")
    connection.unlocked = before
    return connection


def _connected_reader(path: Path, mode: str) -> _Reader:
    connection = sqlite3.connect(
        _uri(path, mode), uri=True, isolation_level=None, timeout=LOCK_TIMEOUT_S, factory=_Reader
    )
    connection.store = path.absolute()
    return connection


def _uri(path: Path, parameters: str) -> str:
    return f"file:{quote(os.fsencode(path.absolute()))}?{parameters}"


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check(connection: sqlite3.Connection, path: Path) -> int:
    """Version of the store's schema; 0 for an empty file."""
    # In one statement, since another process may create the store meanwhile.
    try:
        version, tables = connection.execute(
            "SELECT user_version, (SELECT COUNT(*) FROM sqlite_master) FROM pragma_user_version"
        ).fetchone()
    except sqlite3.DatabaseError as error:
        if "not a database" not in str(error):
            raise
        what = "not a collscope store. Name another file with --db."
        raise InputError(f"{path}: {what}") from error
    if version > schema_version():
        raise InputError(
            f"{path}: written by a newer release (schema version {version}, this one knows "
            f"{schema_version()}). Upgrade collscope, or name another file with --db."
        )
    if version == 0 and tables:
        raise InputError(
            f"{path}: an SQLite file that is not a collscope store. Name another file with --db."
        )
    return int(version)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Apply missing migrations and remake the views, all in one transaction.

    An older store's migration is announced on stderr. Runs that are not matched after it are due:
    `collscope.ingest.match` matches them.
    """
    if _version(connection) == schema_version():
        return
    with transaction(connection, path):
        version = _version(connection)  # another process may have migrated since
        if version == schema_version():
            return
        for view in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'view'"
        ).fetchall():
            connection.execute(f"DROP VIEW {view[0]}")
        for script in (*_migrations()[version:], *_views()):
            _run_script(connection, script.read_text("utf-8"))
        connection.execute("UPDATE _run SET due = ? WHERE matched = 0", (_TRIES,))
        due = connection.execute("SELECT COUNT(*) FROM _run WHERE due > 0").fetchone()[0]
        connection.execute(f"PRAGMA user_version = {schema_version()}")
    if version and sys.stderr is not None:
        text = f"{path}: upgraded from schema version {version} to {schema_version()}"
        to_rematch = f"; {count(due, 'run')} to match again" if due else ""
        sys.stderr.write(one_line(f"collscope: {text}{to_rematch}.") + "\n")


def _run_script(connection: sqlite3.Connection, script: str) -> None:
    """Like executescript, which would commit the open transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All or nothing: commits at the end, rolls back on any exception.

    raises  InputError for what SQLite refuses: a locked store, a full disk, damage
    """
    with sqlite_errors_as_input_errors(path):
        connection.execute("BEGIN IMMEDIATE")
    try:
        with sqlite_errors_as_input_errors(path):
            yield
            connection.execute("COMMIT")
    except BaseException:
        # A full disk may have ended the transaction already.
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def snapshot(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Reads the state at the first query, whatever other processes write meanwhile."""
    with sqlite_errors_as_input_errors(path):
        connection.execute("BEGIN")
    try:
        with sqlite_errors_as_input_errors(path):
            yield
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


DAMAGED = "the store is damaged. Restore it from a copy, or ingest into a new file."


@contextlib.contextmanager
def sqlite_errors_as_input_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as ours, with what to do."""
    try:
        yield
    except UnicodeDecodeError as error:  # text of the store that is none any more
        raise InputError(f"{path}: {DAMAGED}") from error
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            what = "the store is locked by another process. Wait for it to finish, then try again."
        elif "full" in text:
            what = (
                "the disk is full. Free some space, then try again. What was stored before is kept."
            )
        elif "disk I/O" in text:
            what = "the disk cannot be read or written. Check its space and quota, then try again."
        elif any(t in text for t in ("malformed", "not a database", "not decode")):
            what = DAMAGED
        elif "unable to open" in text or "readonly" in text or "read-only" in text:
            what = "the store or its folder cannot be written. Check the permissions, or copy it."
        else:
            what = (
                f"SQLite reports '{text}'. Report this if it persists. What was stored before is "
                "kept."
            )
        raise InputError(f"{path}: {what}") from error


# Keys that the schema does not declare.
_UNDECLARED = (("_call_row", "total_id", "_call_total"), ("_call_total", "class_id", "_class"))


def wrong_values(connection: sqlite3.Connection) -> str | None:
    """What a damaged store holds that collscope never wrote; None where nothing of it is found.

    SQLite itself silently accepts text in an INTEGER column.
    """
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for _, column, declared, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
            query = (
                f"SELECT typeof({column}) FROM {table} WHERE typeof({column}) NOT IN (?, 'null')"
            )
            row = connection.execute(f"{query} LIMIT 1", (str(declared).lower(),)).fetchone()
            if row is not None:
                return f"{row[0]} in column {column} of table {table}"
    lost = connection.execute("PRAGMA foreign_key_check").fetchone()
    if lost is not None:
        return f"a row of table {lost[0]} without its row of {lost[2]}"
    for table, key, parent in _UNDECLARED:
        query = f"SELECT 1 FROM {table} WHERE {key} NOT IN (SELECT {key} FROM {parent}) LIMIT 1"
        if connection.execute(query).fetchone() is not None:
            return f"a row of table {table} without its row of {parent}"
    severities = [severity.value for severity in Severity]
    marks = ",".join("?" * len(severities))
    query = f"SELECT 1 FROM _diagnostic WHERE severity NOT IN ({marks}) LIMIT 1"
    found = connection.execute(query, severities).fetchone()
    return None if found is None else "an unknown word in column severity of table _diagnostic"
