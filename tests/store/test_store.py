"""The store under bad conditions: what cannot be done is said, and the rows stay as they were."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from command import CALLS, CLASSES, collscope, dump, rows

from collscope.errors import InputError
from collscope.ingest.commands import ingest_logs
from collscope.ingest.files import open_input
from collscope.ingest.logs import store_log
from collscope.ingest.scan import scan_log
from collscope.store import connection as store

_COMMANDS = (("report",), ("sql", "SELECT * FROM calls"))


@pytest.fixture(scope="module")
def whole(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the four ranks of one job."""
    db = tmp_path_factory.mktemp("whole") / "t.db"
    ingest_logs([str(samples / "nccl" / "mixed")], db, "main")
    return db


def _store_log(connection: sqlite3.Connection, db: Path, log: str) -> None:
    """Put a log into the run main, without matching it."""
    with open_input(log) as file:
        store_log(connection, db, "main", scan_log(file))


@pytest.fixture
def db(whole: Path, tmp_path: Path) -> Path:
    """A copy of that store."""
    return Path(shutil.copy(whole, tmp_path / "t.db"))


@pytest.fixture
def log(samples: Path) -> Path:
    """A log that the store does not hold."""
    return samples / "rccl" / "guide-coll-klke.log"


def _all_refused(db: Path, log: Path, said: str) -> None:
    for command in (*_COMMANDS, ("ingest", "log", log)):
        done = collscope(*command, "--db", db)
        assert (done.code, done.out) == (3, ""), (command, done)
        assert done.err.startswith(f"collscope: {db}: ")
        assert said in done.err
        assert done.err.count("\n") == 1


def test_a_store_of_a_newer_schema(db: Path, log: Path) -> None:
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("PRAGMA user_version = 999")
    before = db.read_bytes()
    _all_refused(db, log, "written by a newer release (schema version 999")
    assert db.read_bytes() == before


def test_a_file_that_is_no_store(db: Path, log: Path) -> None:
    db.write_text("a shopping list\n")
    _all_refused(db, log, "not a collscope store. Name another file with --db.")
    assert db.read_text() == "a shopping list\n"


def test_a_store_of_another_program(tmp_path: Path, log: Path) -> None:
    db = tmp_path / "other.db"
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("CREATE TABLE songs (title)")
    before = db.read_bytes()
    _all_refused(db, log, "not a collscope store. Name another file with --db.")
    assert db.read_bytes() == before


def test_a_store_that_cannot_be_there(tmp_path: Path, log: Path) -> None:
    (tmp_path / "file").write_text("x")
    for db in (tmp_path, tmp_path / "file" / "t.db", tmp_path / "none" / "t.db"):
        done = collscope("ingest", "log", log, "--db", db)
        assert (done.code, done.err.count("\n")) == (3, 1)
        assert done.err.startswith(f"collscope: {db}: ")
    assert collscope("ingest", "log", log, "--db", "x" * 5000).code == 3
    assert collscope("report", "--db", "x" * 5000).code == 3


def test_an_empty_file_becomes_a_store(db_path: Path, log: Path) -> None:
    db_path.touch()
    assert collscope("ingest", "log", log, "--db", db_path).code == 0


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_store_overwritten_in_the_middle(db: Path, log: Path, share: float) -> None:
    data = bytearray(db.read_bytes())
    at = int(len(data) * share)
    data[at : at + 9000] = b"\xa5" * len(data[at : at + 9000])
    db.write_bytes(data)
    for command in (*_COMMANDS, ("ingest", "log", log)):
        done = collscope(*command, "--db", db)
        assert done.code in (0, 3), (command, done)
        assert done.code == 0 or done.err.startswith(f"collscope: {db}: "), done.err


def test_observations_that_are_damaged(db: Path, log: Path) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        ((blob,),) = connection.execute("SELECT columns FROM _segment LIMIT 1").fetchall()
        at = len(blob) * 3 // 4
        damaged = blob[:at] + bytes([blob[at] ^ 0xFF]) + blob[at + 1 :]
        connection.execute("UPDATE _segment SET columns = ? WHERE source_id = 1", (damaged,))
    done = collscope("ingest", "log", log, "--db", db)
    assert done.code == 3
    assert "observations" in done.err
    assert "damaged" in done.err
    assert done.err.count("\n") == 1


def test_a_value_of_another_type_is_damage_and_a_mistake_of_ours_is_not(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("collscope.reports.report.formats.render", lambda *_, **__: int("x"))
        done = collscope("report", "--db", db)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("collscope: internal error: ValueError: ")
    assert done.err.endswith(". Run 'collscope --debug COMMAND ...' and report it.\n")
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE _class SET size_bytes = 'x'")  # as a flipped serial type reads
    done = collscope("report", "--db", db)
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        f"collscope: {db}: text in column size_bytes of table _class: the store is damaged. "
        "Restore it from a copy, or ingest into a new file.\n"
    )
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE _class SET size_bytes = 8, class_id = class_id + 1000")
    done = collscope("report", "--db", db)
    assert done.code == 3
    assert "a row of table _call_total without its row of _class: the store is" in done.err


# Runs a command without root's power to write where the permissions do not allow it.
_BARRED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()


def _barred(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if _BARRED and shutil.which(_BARRED[0]) is None:
        pytest.skip("no setpriv: root may write everywhere")
    command = [*_BARRED, sys.executable, "-m", "collscope", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="no such permissions")
def test_a_store_in_a_read_only_folder(db: Path, log: Path) -> None:
    before = collscope("report", "--db", db).out
    folder = db.parent
    folder.chmod(0o555)
    try:
        done = _barred("report", "--db", db)
        assert (done.returncode, done.stdout, done.stderr) == (0, before, "")
        refused = _barred("ingest", "log", log, "--db", db)
        assert (refused.returncode, refused.stdout) == (3, "")
        assert refused.stderr == (
            f"collscope: {db}: the store or its folder cannot be written. "
            "Check the permissions, or copy it.\n"
        )
        with closing(sqlite3.connect(db, isolation_level=None)) as writer:
            folder.chmod(0o755)
            writer.execute("UPDATE _run SET label = 'other'")
            folder.chmod(0o555)
            Path(f"{db}-shm").unlink()
            refused = _barred("report", "--db", db)
            assert (refused.returncode, refused.stdout) == (3, "")
            assert (
                "t.db-wal holds some of its rows, but its folder cannot be written, or its disk "
                "is full." in refused.stderr
            )
    finally:
        folder.chmod(0o755)


def test_a_store_that_changes_while_it_is_read_without_locks(db: Path) -> None:
    connection = store._connected_reader(db, "mode=ro&immutable=1")
    connection.unlocked = db.stat()
    os.utime(db, ns=(0, 0))
    with pytest.raises(InputError, match="it changed while it was read"):
        connection.close()


def test_a_store_cut_short(db: Path, log: Path) -> None:
    data = db.read_bytes()
    for share in (0.001, 0.2, 0.6):
        db.write_bytes(data[: int(len(data) * share)])
        for command in (*_COMMANDS, ("ingest", "log", log)):
            done = collscope(*command, "--db", db)
            assert done.code == 3, (share, command, done)
            assert done.err.count("\n") == 1


def test_a_locked_store(db: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.01)
    before = dump(db)
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        done = collscope("ingest", "log", log, "--db", db)
        assert (done.code, done.out) == (3, "")
        assert done.err == (
            f"collscope: {db}: the store is locked by another process. "
            "Wait for it to finish, then try again.\n"
        )
        assert collscope("report", "--db", db).code == 0  # readers need not wait
        other.execute("ROLLBACK")
    assert dump(db) == before
    assert collscope("ingest", "log", log, "--db", db).code == 0


def test_a_full_disk_leaves_the_store_as_it_was(db: Path, log: Path, samples: Path) -> None:
    before = dump(db)
    with closing(store.open_store(db)) as connection:
        connection.execute("VACUUM")  # no free pages left over from the matching
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        big = str(samples / "nccl" / "ddp" / "rank0.log")
        with pytest.raises(InputError, match="the disk is full"):
            _store_log(connection, db, big)
        assert store.wrong_values(connection) is None
    assert dump(db) == before
    assert collscope("ingest", "log", log, "--db", db).code == 0


def test_a_file_size_limit_leaves_the_store_as_it_was(db: Path, samples: Path) -> None:
    pytest.importorskip("resource")
    before = dump(db)
    script = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "from collscope.cli import main\n"
        "main()"
    )
    big = samples / "nccl" / "mixed-coll-only.log"
    done = subprocess.run(
        [sys.executable, "-c", script, "ingest", "log", big, "--db", db],
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"collscope: {db}: the disk ")
    assert done.stderr.count("\n") == 1
    assert dump(db) == before


def test_a_store_for_which_there_is_no_room_does_not_stay(log: Path, db_path: Path) -> None:
    resource = pytest.importorskip("resource")

    def no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    command = [sys.executable, "-m", "collscope", "ingest", "log", log, "--db", db_path]
    done = subprocess.run(command, capture_output=True, check=False, text=True, preexec_fn=no_room)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith(f"collscope: {db_path}: the disk ")
    assert list(db_path.parent.iterdir()) == []


# Forks one ingest per argument; each kills itself before its n-th SQL statement, as a power cut
# would, so that the kill falls between any two steps of any transaction.
_KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from collscope.ingest.commands import ingest_logs
from collscope.store import connection
folder, logs, *points = sys.argv[1:]
for point in map(int, points):
    child = os.fork()
    if child == 0:
        left = point
        def step(statement):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        plain = sqlite3.connect
        def connect(*given, **named):
            opened = plain(*given, **named)
            opened.set_trace_callback(step)
            return opened
        sqlite3.connect = connect
        ingest_logs([logs], Path(folder) / f"{point}.db", "main")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(point, os.WIFSIGNALED(status))
"""

_ROWS_OF_SOURCE = (
    "SELECT sha256, lines, parsed, (SELECT COUNT(*) FROM _process p WHERE p.source_id ="
    " s.source_id), (SELECT COUNT(*) FROM _comm_handle JOIN _process p USING (process_id) WHERE"
    " p.source_id = s.source_id), (SELECT COUNT(*) FROM _link l WHERE l.source_id = s.source_id),"
    " (SELECT COUNT(*) FROM _setting t WHERE t.source_id = s.source_id), (SELECT columns FROM"
    " _segment g WHERE g.source_id = s.source_id), (SELECT COUNT(*) FROM _diagnostic d WHERE"
    " d.source_id = s.source_id) FROM _source s ORDER BY path"
)


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_killed_ingest_loses_only_what_it_was_reading(
    samples: Path, whole: Path, tmp_path: Path
) -> None:
    points = [*range(1, 120, 30), *range(130, 260, 15), 400, 1000, 2000]
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, tmp_path, samples / "nccl" / "mixed", *map(str, points)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.count("True") > 10
    complete = rows(whole, _ROWS_OF_SOURCE)
    held = set()
    for point in points:
        db = tmp_path / f"{point}.db"
        with closing(store.open_store(db)):
            pass
        sources = rows(db, _ROWS_OF_SOURCE)
        held.add(len(sources))
        assert sources == complete[: len(sources)], point  # each is whole
        waiting = rows(db, "SELECT COUNT(*) FROM _run WHERE matched = 0")
        if sources:  # a reader matches nothing, but says so
            assert collscope("report", "--db", db).code == (3 if waiting == [(1,)] else 0)
        assert rows(db, "SELECT COUNT(*) FROM _run WHERE matched = 0") == waiting
        again = collscope("ingest", "log", samples / "nccl" / "mixed", "--db", db)
        assert again.code == 0
        assert again.out.count("already in this run") == len(sources)
        for query in (CALLS, CLASSES):
            assert rows(db, query) == rows(whole, query)
    assert len(held) > 3  # kills before, between and after the sources


def test_an_interrupted_matching_is_finished_by_runs_rematch(
    samples: Path, whole: Path, db_path: Path
) -> None:
    with closing(store.open_store(db_path)) as connection:
        for log in sorted((samples / "nccl" / "mixed").iterdir()):
            _store_log(connection, db_path, str(log))
    assert collscope("report", "--db", db_path).code == 3
    assert rows(db_path, CALLS) == []
    assert collscope("runs", "rematch", "main", "--db", db_path).code == 0
    assert collscope("report", "--db", db_path).code == 0
    assert rows(db_path, CALLS) == rows(whole, CALLS)


def test_a_failed_transaction_leaves_nothing(db: Path) -> None:
    def work(connection: sqlite3.Connection) -> None:
        with store.transaction(connection, db):
            connection.execute("DELETE FROM _source")
            connection.execute("SELECT * FROM no_such_table")

    before = dump(db)
    with closing(store.open_store(db)) as connection, pytest.raises(InputError):
        work(connection)
    assert dump(db) == before


def test_reading_leaves_no_files_beside_the_store_unless_others_have_it_open(db: Path) -> None:
    before = db.read_bytes()
    with closing(store.open_readonly(db)):
        pass
    assert collscope("report", "--db", db).code == 0
    assert (list(db.parent.iterdir()), db.read_bytes()) == ([db], before)
    with closing(store.open_store(db)) as writer, store.transaction(writer, db):
        writer.execute("UPDATE _run SET label = 'other'")
        # A reader comes and goes in the middle of a transaction.
        assert collscope("report", "--db", db).code == 0
    assert rows(db, "SELECT label FROM _run") == [("other",)]
    assert collscope("report", "--db", db, "--run", "other").code == 0
    assert list(db.parent.iterdir()) == [db]
