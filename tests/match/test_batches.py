"""A run larger than what is held at once is matched by communicator, to the same store."""

from __future__ import annotations

import gzip
import importlib.util
import sqlite3
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from command import collscope, rows

from collscope.ingest.match import match_stored
from collscope.match import run_rows
from collscope.match.observations import COLUMNS
from collscope.store.connection import open_store

_MAKE_RUN = Path(__file__).parents[2] / "benchmarks" / "make_run.py"


def _mixed(samples: Path, folder: Path) -> list[Path]:
    del folder
    return [samples / "nccl" / "mixed"]


def _groups_and_kernels(samples: Path, folder: Path) -> list[Path]:
    del folder
    return [samples / "rccl"]


def _copied(samples: Path, folder: Path) -> list[Path]:
    """One log is there twice, another has each line twice."""
    first, second, *others = sorted((samples / "nccl" / "mixed").glob("*.log"))
    (folder / "copy.log.gz").write_bytes(gzip.compress(first.read_bytes()))
    lines = second.read_bytes().splitlines(keepends=True)
    (folder / "doubled.log").write_bytes(b"".join(line for line in lines for _ in "ab"))
    return [folder, first, *others]


def _rotated(samples: Path, folder: Path) -> list[Path]:
    for log in (samples / "nccl" / "mixed").glob("*.log"):
        lines = log.read_bytes().splitlines(keepends=True)
        (folder / f"{log.name}.1").write_bytes(b"".join(lines[: len(lines) * 3 // 5]))
        (folder / log.name).write_bytes(b"".join(lines[len(lines) * 3 // 5 :]))
    return [folder]


def _disagreeing(samples: Path, folder: Path) -> list[Path]:
    """Ranks of which each lacks some calls, and one made others."""
    for number, log in enumerate(sorted((samples / "nccl" / "ddp").glob("*.log"))):
        lines = log.read_bytes().splitlines(keepends=True)
        calls = [line for line in lines if b"opCount" in line]
        gone = set(calls[number + 5 :: 31])
        kept = b"".join(line for line in lines if line not in gone)
        (folder / log.name).write_bytes(kept.replace(b"datatype 7", b"datatype 8", number == 2))
    return [folder]


def _stored(paths: Sequence[Path], db: Path) -> list[str]:
    """Rows of all views, numbers of calls and all."""
    assert collscope("ingest", "log", *paths, "--db", db).code == 0
    with closing(sqlite3.connect(db)) as connection:
        views = connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
        return [
            f"{view} {row}"
            for (view,) in views
            for row in connection.execute(f"SELECT * FROM {view}")
        ]


@pytest.mark.parametrize("at_once", [1, 150])
@pytest.mark.parametrize("made", [_mixed, _groups_and_kernels, _copied, _rotated, _disagreeing])
def test_the_store_is_the_same(
    made: Callable[[Path, Path], list[Path]],
    at_once: int,
    samples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    paths = made(samples, folder)
    expected = _stored(paths, tmp_path / "whole.db")
    assert any(line.startswith("calls ") for line in expected)
    monkeypatch.setattr(run_rows, "ROWS_AT_ONCE", at_once)
    assert _stored(paths, tmp_path / "parts.db") == expected


def test_memory_is_less_than_the_rows_take(
    tmp_path: Path, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held together, the columns alone would take more; the calls are an eighth of the rows."""
    spec = importlib.util.spec_from_file_location("make_run", _MAKE_RUN)
    assert spec is not None
    assert spec.loader is not None
    make_run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_run)
    make_run.write_run(tmp_path / "logs", 64, 2000)
    assert collscope("ingest", "log", tmp_path / "logs", "--db", db_path).code == 0
    ((lines,),) = rows(db_path, "SELECT SUM(calls * ranks_seen) FROM call_totals")
    monkeypatch.setattr(run_rows, "ROWS_AT_ONCE", 8192)
    with closing(open_store(db_path)) as connection:
        connection.execute("UPDATE _run SET matched = 0")
        connection.commit()
        tracemalloc.start()
        match_stored(connection, db_path, "main")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert lines == 64 * (2000 - 10)
    assert peak < lines * sum(np_type(0).itemsize for np_type in COLUMNS.values())
