"""`collscope merge`: stores of parts are the store of the whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from command import collscope
from older_store import age

from collscope.store.connection import schema_version

VIEWS = (
    "SELECT name FROM sqlite_master WHERE type = 'view' AND name NOT LIKE '\\_%' ESCAPE '\\'"
    " ORDER BY name"
)


def views(db: Path) -> dict[str, list[str]]:
    """Rows of every public view, in one order."""
    with closing(sqlite3.connect(db)) as connection:
        names = [name for (name,) in connection.execute(VIEWS)]
        return {
            name: sorted(map(repr, connection.execute(f"SELECT * FROM {name}"))) for name in names
        }


def ingest(db: Path, files: Sequence[Path], *options: str) -> Path:
    outcome = collscope("ingest", "auto", *files, "--db", db, *options)
    assert outcome.code == 0, outcome.err
    return db


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _cut(source: Path, folder: Path) -> Path:
    """A copy that ends within a line."""
    folder.mkdir(exist_ok=True)
    content = source.read_bytes()
    target = folder / source.name
    target.write_bytes(content[: len(content) * 2 // 3])
    return target


@pytest.mark.parametrize("kind", ["logs", "traces", "periods", "damaged", "mixed"])
def test_stores_of_parts_are_the_store_of_all(samples: Path, tmp_path: Path, kind: str) -> None:
    logs, traces = _files(samples / "nccl" / "mixed"), _files(samples / "traces" / "default")
    later = _files(samples / "traces" / "ringll")
    parts = {
        "logs": [[log] for log in logs],
        "traces": [traces[:1], traces[1:]],
        "periods": [traces[:2] + later[:2], traces[2:] + later[2:]],
        "damaged": [[_cut(logs[0], tmp_path / "cut")], logs[1:3], logs[3:]],
        "mixed": [logs, traces, _files(samples / "replay"), _files(samples / "profiles"),
                  _files(samples / "recorders")],
    }[kind]  # fmt: skip
    whole = ingest(tmp_path / "all.db", [file for part in parts for file in part])
    stores = [ingest(tmp_path / f"{k}.db", part) for k, part in enumerate(parts)]
    before = [store.read_bytes() for store in stores]
    outcome = collscope("merge", *stores, "--db", tmp_path / "merged.db")
    assert outcome.code == 0, outcome.err
    assert views(tmp_path / "merged.db") == views(whole)
    assert [store.read_bytes() for store in stores] == before
    assert not list(tmp_path.glob(".collscope-*"))


def test_a_file_of_two_stores_counts_once(samples: Path, tmp_path: Path) -> None:
    logs = _files(samples / "nccl" / "mixed")
    first, second = ingest(tmp_path / "1.db", logs[:3]), ingest(tmp_path / "2.db", logs[1:])
    outcome = collscope("merge", first, second, "--db", tmp_path / "m.db")
    assert (
        "2 stores, 4 sources, 1 run (main), 2 sources in several stores counted once" in outcome.out
    )
    assert views(tmp_path / "m.db") == views(ingest(tmp_path / "all.db", logs))


def test_runs_of_one_name_are_one_job_unless_renamed(samples: Path, tmp_path: Path) -> None:
    traces, later = _files(samples / "traces" / "default"), _files(samples / "traces" / "ringll")
    first, second = ingest(tmp_path / "a.db", traces), ingest(tmp_path / "b.x.db", later)
    third = ingest(tmp_path / "c.db", traces, "--run", "b.main")
    outcome = collscope("merge", first, third, second, "--rename", "--db", tmp_path / "m.db")
    assert outcome.out.startswith(
        f"{tmp_path / 'm.db'}: 3 stores, 12 sources, 3 runs (main, b.main, "
    )
    assert "b.main.2)" in outcome.out
    steps = "SELECT rank, begin_ns, duration_ns FROM steps WHERE run = ? ORDER BY 1, 2"
    with (
        closing(sqlite3.connect(second)) as alone,
        closing(sqlite3.connect(tmp_path / "m.db")) as merged,
    ):
        expected = alone.execute(steps, ("main",)).fetchall()
        assert expected
        assert merged.execute(steps, ("b.main.2",)).fetchall() == expected


def test_what_is_there_is_not_replaced(samples: Path, tmp_path: Path) -> None:
    store = ingest(tmp_path / "a.db", _files(samples / "nccl" / "mixed"))
    before = store.read_bytes()
    for target in (store, tmp_path / "nowhere" / "m.db"):
        assert collscope("merge", store, "--db", target).code in (2, 3)
    twice = collscope("merge", store, tmp_path / "." / "a.db", "--db", tmp_path / "m.db")
    assert (twice.code, twice.err.strip()) == (
        2, f"collscope: {tmp_path / 'a.db'}: named twice. Name each store once."
    )  # fmt: skip
    assert store.read_bytes() == before
    assert not (tmp_path / "m.db").exists()


@pytest.mark.parametrize("content", [b"", b"no store", None])
def test_what_is_no_store_leaves_nothing(
    samples: Path, tmp_path: Path, content: bytes | None
) -> None:
    store = ingest(tmp_path / "a.db", _files(samples / "nccl" / "mixed"))
    other = tmp_path / "b.db"
    if content is not None:
        other.write_bytes(content)
    outcome = collscope("merge", store, other, "--db", tmp_path / "m.db")
    assert outcome.code == 3
    assert str(other) in outcome.err
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a.db"} | ({"b.db"} if content is not None else set())


def test_an_older_store_is_read_and_not_migrated(samples: Path, tmp_path: Path) -> None:
    store = ingest(tmp_path / "a.db", _files(samples / "nccl" / "mixed"))
    age(store, schema_version() - 1)
    before = store.read_bytes()
    assert collscope("merge", store, "--db", tmp_path / "m.db").code == 0
    assert store.read_bytes() == before
    calls = "SELECT COUNT(*) FROM calls"
    with closing(sqlite3.connect(tmp_path / "m.db")) as connection:
        assert connection.execute(calls).fetchone() == (208,)


def test_a_file_read_as_profile_and_as_trace_counts_once(samples: Path, tmp_path: Path) -> None:
    """One ingest takes an SQLite profile once, whichever command reads it: so does a merge."""
    stores = [tmp_path / "profile.db", tmp_path / "trace.db"]
    for store in stores:
        words = (store.stem, samples / "profiles" / "synthetic.rpd", "--db", store)
        assert collscope("ingest", *words).code == 0
    assert collscope("merge", *stores, "--db", tmp_path / "all.db").code == 0
    assert views(tmp_path / "all.db") == views(stores[0])
