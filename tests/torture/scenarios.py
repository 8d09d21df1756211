"""What is disturbed: commands, each with the folder that it works in."""

from __future__ import annotations

import shutil
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
from command import collscope
from inputs import ROOT

from collscope.store.connection import SCHEMAS

DB = "t.db"
BEFORE = (
    "before"  # the run that a store holds, which no command but `runs rm` and an ingest changes
)
_SAMPLES = ROOT / "samples"
_MIXED = _SAMPLES / "nccl" / "mixed"


class Scenario(msgspec.Struct, frozen=True):
    """A command, and what it finds.

    prepare  fills the folder
    outputs  files it writes beside the store
    kept     the run that it leaves as it is; None: there is none, or it is the one it changes
    exact    two runs print and write the same bytes; measured times are never the same
    weight   how often it is drawn, beside others
    """

    name: str
    command: tuple[str, ...]
    prepare: Callable[[Path], None]
    outputs: tuple[str, ...] = ()
    kept: str | None = BEFORE
    exact: bool = True
    weight: int = 4


def _ok(*arguments: str | Path) -> None:
    done = collscope(*arguments)
    if done.code:
        raise SystemExit(f"torture: {arguments} ended with {done.code}: {done.err}")


def _store(folder: Path) -> None:
    """A run of every kind of source; a file of measurements under two labels, to compare."""
    db, replay = folder / DB, _SAMPLES / "replay" / "h200x4-mixed.csv"
    _ok("ingest", "log", _SAMPLES / "nccl" / "ddp", "--db", db, "--run", BEFORE)
    _ok("ingest", "trace", _SAMPLES / "traces" / "ringll", "--db", db, "--run", BEFORE)
    _ok("ingest", "csv", replay, "--db", db, "--run", BEFORE, "--label", "old")
    slower = folder / "slower.csv"
    slower.write_text(replay.read_text() + "\n")
    _ok("ingest", "csv", slower, "--db", db, "--run", BEFORE, "--label", "new")
    slower.unlink()


def _copy(folder: Path, *samples: str) -> None:
    inputs = folder / "inputs"
    inputs.mkdir()
    for sample in samples:
        source = _SAMPLES / sample
        if source.is_dir():
            shutil.copytree(source, inputs / source.name)
        else:
            shutil.copy(source, inputs)


def _new_log(folder: Path) -> None:
    _copy(folder, "nccl/mixed")


def _log(folder: Path) -> None:
    _store(folder)
    _copy(folder, "nccl/mixed")


def two_runs(folder: Path) -> None:
    """A run that is kept, and `main`, to be removed."""
    _store(folder)
    _ok("ingest", "log", _MIXED, "--db", folder / DB, "--run", "main")
    _ok("ingest", "trace", _SAMPLES / "traces" / "default", "--db", folder / DB, "--run", "main")


def log_and_traces(folder: Path) -> None:
    """Two runs, and inputs for others."""
    two_runs(folder)
    _copy(folder, "nccl/mixed", "traces/default")


def _one_more_log(folder: Path) -> None:
    _copy(folder, "nccl/mixed/rank3.log")
    for rank in range(3):
        _ok("ingest", "log", _MIXED / f"rank{rank}.log", "--db", folder / DB, "--run", "main")


def _trace(folder: Path) -> None:
    _store(folder)
    _copy(folder, "traces/default")


def _every_kind(folder: Path) -> None:
    _store(folder)
    _copy(
        folder,
        *("rccl/guide-coll-klke.log", "replay/h200x4-mixed.csv", "profiles/guide-top.txt"),
        *("profiles/synthetic.rpd", "tables/synthetic.nccl-tests.txt"),
        "recorders/ddp.fr.rank0.json",
        "recorders/ddp.fr.rank1.json",
    )


def _archives(folder: Path) -> None:
    _store(folder)
    _copy(folder)
    with tarfile.open(folder / "inputs" / "logs.tar.gz", "w:gz") as tar:
        tar.add(_MIXED, "logs")
    with zipfile.ZipFile(folder / "inputs" / "more.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(_SAMPLES / "profiles" / "guide-top.txt", "guide-top.txt")
        packed.write(_SAMPLES / "replay" / "h200x4-mixed.csv", "h200x4-mixed.csv")


def _csv(folder: Path) -> None:
    _store(folder)
    _copy(folder, "replay/h200x4-sweep.csv")


def _read(folder: Path) -> None:
    """A store, and results of an earlier command that would be lost with a half-written file."""
    _store(folder)
    for name in ("out.md", "out.html", "out.xml", "out.json"):
        (folder / name).write_text("what an earlier command wrote\n")


def _rows_beside(folder: Path) -> None:
    """A store as a killed process leaves it: rows stand in the -wal file, and there is no -shm."""
    made = folder / "made"
    made.mkdir()
    _store(made)
    with closing(sqlite3.connect(made / DB, isolation_level=None)) as open_one:
        open_one.execute("UPDATE _run SET label = label || ''")
        for name in (DB, f"{DB}-wal"):
            shutil.copy(made / name, folder)
    shutil.rmtree(made)


def older(version: int) -> Callable[[Path], None]:
    """A store of an older schema, made by the first migrations and of rows that it can hold."""

    def prepare(folder: Path) -> None:
        _copy(folder, "nccl/mixed/rank0.log")
        made = folder / "made"
        made.mkdir()
        _store(made)
        with closing(sqlite3.connect(folder / DB, isolation_level=None)) as db:
            for number in range(1, version + 1):
                (script,) = SCHEMAS.glob(f"{number:03d}_*.sql")
                db.executescript(script.read_text())
            db.execute("ATTACH ? AS now", (str(made / DB),))
            tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                _take_over(db, table)
            db.execute(f"PRAGMA user_version = {version}")
            db.execute("PRAGMA journal_mode = WAL")
        shutil.rmtree(made)

    return prepare


# Names of schema 8 and before, and those of now.
_RENAMED = {"_stream": "_comm_handle", "stream_id": "handle_id"}


def _take_over(db: sqlite3.Connection, table: str) -> None:
    """Rows of a table of now into the same one of then, as far as that has its columns."""
    now = _RENAMED.get(table, table)
    of_now = {row[1] for row in db.execute(f"PRAGMA now.table_info({now})")}
    of_then = [row[1] for row in db.execute(f"PRAGMA main.table_info({table})")]
    both = [name for name in of_then if _RENAMED.get(name, name) in of_now]
    if both:  # else a table that was dropped since
        taken = ", ".join(_RENAMED.get(name, name) for name in both)
        db.execute(f"INSERT INTO main.{table} ({', '.join(both)}) SELECT {taken} FROM now.{now}")


_SWEEP = ("replay", "--sweep", "allreduce,broadcast,allgather:1K..16K*2", "--ranks", "2")
_FAST = ("--backend", "host", "--budget", "0.002", "--db", DB, "--run", "main")


def _no_more(folder: Path) -> None:
    """The store alone."""
    _store(folder)


_STORE = ("--db", DB)
_OF_BEFORE = (*_STORE, "--run", BEFORE)
SCENARIOS = (
    Scenario("new-store", ("ingest", "log", "inputs", *_STORE, "--strict"), _new_log, kept=None),
    Scenario("log", ("ingest", "log", "inputs", *_STORE, "--strict"), _log),
    Scenario(
        "one-more-log", ("ingest", "log", "inputs", *_STORE, "--strict"), _one_more_log, kept=None
    ),
    Scenario("trace", ("ingest", "trace", "inputs", *_STORE, "--strict"), _trace),
    Scenario("auto", ("ingest", "auto", "inputs", *_STORE, "--strict"), _every_kind),
    Scenario("archives", ("ingest", "auto", "inputs", *_STORE, "--strict"), _archives),
    Scenario("csv", ("ingest", "csv", "inputs", *_STORE, "--strict"), _csv),
    Scenario("report", ("report", *_OF_BEFORE), _read),
    Scenario(
        "report-md", ("report", *_OF_BEFORE, "--format", "md", "-o", "out.md"), _read, ("out.md",)
    ),
    Scenario(
        "report-html",
        ("report", *_OF_BEFORE, "--format", "html", "-o", "out.html"),
        _read,
        ("out.html",),
        weight=2,
    ),
    Scenario("rows-beside", ("report", *_OF_BEFORE), _rows_beside),
    Scenario("rm", ("runs", "rm", "main", *_STORE), two_runs),
    Scenario(
        "check",
        ("check", "old", "new", *_STORE, "--format", "junit", "-o", "out.xml"),
        _read,
        ("out.xml",),
    ),
    Scenario("export", ("export", "perfetto", *_OF_BEFORE, "-o", "out.json"), _read, ("out.json",)),
    Scenario("sql", ("sql", *_STORE, "--format", "csv", "SELECT * FROM calls"), _no_more),
    Scenario("upgrade-6", ("runs", *_STORE), older(6)),
    Scenario("upgrade-12", ("ingest", "log", "inputs", *_STORE, "--strict"), older(12)),
    Scenario(
        "replay",
        (*_SWEEP, *_FAST, "--csv", "r.csv", "--resume"),
        _no_more,
        ("r.csv",),
        exact=False,
        weight=1,
    ),
)
