"""`collscope merge`: several stores become what one ingest of all their files makes."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command import collscope, rows
from views import view_rows

from collscope.store.absorb import READ_TABLES, Absorbed, absorb
from collscope.store.connection import attached, open_store, schema_version

# Written by the matching, or shared by all runs.
NOT_READ = {
    "_run", "_kernel_name", "_tuning", "_comm", "_member", "_class", "_call_row", "_call_total",
    "_deviation", "_transfer", "_kernel_call", "_rank_wait", "_call_time", "_trace_rank",
    "_trace_step", "_trace_stream", "_analysis", "_progress", "_disagreement",
}  # fmt: skip


def ingest(db: Path, *paths: Path, kind: str = "auto", run: str = "main") -> None:
    assert collscope("ingest", kind, *paths, "--db", db, "--run", run).code == 0


def merged_is_one(tmp_path: Path, parts: list[list[Path]], kind: str = "auto") -> None:
    """One ingest of all files, and a store for each part, merged."""
    ingest(tmp_path / "one.db", *(path for part in parts for path in part), kind=kind)
    stores = [tmp_path / f"node{k}.db" for k in range(len(parts))]
    for store, part in zip(stores, parts, strict=True):
        ingest(store, *part, kind=kind)
    before = [hashlib.sha256(store.read_bytes()).hexdigest() for store in stores]
    done = collscope("merge", *stores, "--db", tmp_path / "all.db")
    assert (done.code, done.err) == (0, "")
    assert [hashlib.sha256(store.read_bytes()).hexdigest() for store in stores] == before
    merged, one = view_rows(tmp_path / "all.db"), view_rows(tmp_path / "one.db")
    assert [name for name in one if merged[name] != one[name]] == []
    assert rows(tmp_path / "all.db", "PRAGMA foreign_key_check") == []
    reports = [collscope("report", "--db", tmp_path / name).out for name in ("all.db", "one.db")]
    assert reports[0].replace("all.db", "one.db") == reports[1]


def test_logs_of_two_nodes(samples: Path, tmp_path: Path) -> None:
    logs = sorted((samples / "nccl" / "mixed").glob("*.log"))
    merged_is_one(tmp_path, [logs[:2], logs[2:]])


def test_traces_of_four_nodes(samples: Path, tmp_path: Path) -> None:
    traces = sorted((samples / "traces" / "default").iterdir())
    merged_is_one(tmp_path, [[trace] for trace in traces], "trace")


def test_logs_traces_profiles_tables_and_measurements(samples: Path, tmp_path: Path) -> None:
    merged_is_one(
        tmp_path,
        [
            [samples / "nccl" / "ddp" / "rank0.log", samples / "replay" / "h200x4-mixed.csv"],
            [samples / "traces" / "default", samples / "nccl" / "ddp" / "rank1.log"],
            [samples / "profiles" / "synthetic.rpd", samples / "tables" / "synthetic.osu-gpu.txt"],
            [
                samples / "recorders" / "ddp.fr.rank0.json",
                samples / "profiles" / "key_averages.txt",
            ],
        ],
    )


def test_damaged_files(samples: Path, tmp_path: Path) -> None:
    parts = []
    for rank in range(4):
        log = tmp_path / f"rank{rank}.log"
        data = (samples / "nccl" / "mixed" / log.name).read_bytes()
        log.write_bytes(data[: len(data) - 1000 * rank])
        parts.append([log])
    merged_is_one(tmp_path, parts, "log")


def test_the_same_file_in_two_stores_counts_once(samples: Path, tmp_path: Path) -> None:
    log, profile = samples / "nccl" / "mixed" / "rank0.log", samples / "profiles" / "synthetic.rpd"
    ingest(tmp_path / "a.db", log)
    ingest(tmp_path / "a.db", profile, kind="profile")
    ingest(tmp_path / "b.db", log)
    ingest(tmp_path / "b.db", profile, kind="trace")
    done = collscope("merge", tmp_path / "a.db", tmp_path / "b.db", "--db", tmp_path / "all.db")
    assert "b.db: store: 2 sources known already, 1 run" in done.out
    assert view_rows(tmp_path / "all.db") == view_rows(tmp_path / "a.db")


def test_renamed_runs_stay_apart(samples: Path, tmp_path: Path) -> None:
    logs = sorted((samples / "nccl" / "mixed").glob("*.log"))[:2]
    stores = [tmp_path / f"node{k}.db" for k in range(2)]
    for store, log in zip(stores, logs, strict=True):
        ingest(store, log)
    out = tmp_path / "all.db"
    assert collscope("merge", *stores, "--db", out, "--rename").code == 0
    assert rows(out, "SELECT label, matched FROM _run") == [("main", 1), ("main-node1", 1)]


def test_another_number_of_steps_is_refused_and_leaves_no_store(
    samples: Path, tmp_path: Path
) -> None:
    traces = sorted((samples / "traces" / "default").iterdir())[:2]
    stores = [tmp_path / "a.db", tmp_path / "b.db"]
    for steps, (store, trace) in enumerate(zip(stores, traces, strict=True), start=2):
        words = ("trace", trace, "--db", store, "--steps", str(steps))
        assert collscope("ingest", *words).code == 0
    done = collscope("merge", *stores, "--db", tmp_path / "all.db")
    assert done.code == 3
    assert "b.db: run 'main': read with --steps 3, and with --steps 2" in done.err
    assert not list(tmp_path.glob("all.db*"))


@pytest.mark.parametrize("what", ["there", "text", "empty", "none"])
def test_what_cannot_be_merged(samples: Path, tmp_path: Path, what: str) -> None:
    good, other, out = tmp_path / "good.db", tmp_path / "other.db", tmp_path / "all.db"
    ingest(good, samples / "nccl" / "mixed" / "rank0.log")
    if what in ("text", "empty"):
        other.write_text("no store" * 200 if what == "text" else "")
    if what == "there":
        shutil.copy(good, other)
        out.write_text("something")
    done = collscope("merge", good, other, "--db", out)
    words = {
        "there": "all.db: the file exists. Name a new file with --db.",
        "text": "other.db: not a collscope store.",
        "empty": "other.db: an empty file.",
        "none": "other.db: no such store. Check its name.",
    }
    assert (done.code, words[what] in done.err) == (3, True)
    assert out.exists() == (what == "there")


def test_a_store_of_an_earlier_release_stays_as_it_is(samples: Path, tmp_path: Path) -> None:
    new, old, out = tmp_path / "new.db", tmp_path / "old.db", tmp_path / "all.db"
    ingest(new, samples / "nccl" / "mixed" / "rank0.log")
    shutil.copy(new, old)
    with closing(sqlite3.connect(old)) as connection:  # as version 17 had it
        connection.execute("DROP TABLE _analysis")
        connection.execute(f"PRAGMA user_version = {schema_version() - 1}")
    assert schema_version() == 18, "this test undoes the last migration: write it anew"
    before = old.read_bytes()
    assert collscope("merge", old, "--db", out).code == 0
    assert old.read_bytes() == before
    assert view_rows(out) == view_rows(new)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_store_in_a_folder_that_is_read_only(samples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ro"
    folder.mkdir()
    ingest(folder / "a.db", samples / "nccl" / "mixed" / "rank0.log")
    folder.chmod(0o555)
    done = collscope("merge", folder / "a.db", "--db", tmp_path / "all.db")
    folder.chmod(0o755)
    assert done.code == 0


def test_every_table_is_read_or_made_by_the_matching(samples: Path, tmp_path: Path) -> None:
    ingest(tmp_path / "a.db", samples / "nccl" / "mixed" / "rank0.log")
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    tables = {name for (name,) in rows(tmp_path / "a.db", query)}
    assert tables == {*READ_TABLES, *NOT_READ}
    assert not NOT_READ & set(READ_TABLES)


def test_two_jobs_in_one_run_become_the_same_periods(samples: Path, tmp_path: Path) -> None:
    """Each store has a run main.2 of its own, which holds half of the second job's ranks."""
    jobs = [sorted((samples / "traces" / name).iterdir()) for name in ("default", "ringll")]
    merged_is_one(tmp_path, [[*jobs[0][:2], *jobs[1][:2]], [*jobs[0][2:], *jobs[1][2:]]], "trace")


def test_what_was_matched_is_left_behind(samples: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.db"
    ingest(part, samples / "traces" / "default", kind="trace")
    with closing(sqlite3.connect(part)) as connection, connection:
        connection.execute("UPDATE _trace SET rank = NULL")  # the matching gave its kernels one
    with closing(open_store(tmp_path / "all.db")) as connection:
        with attached(connection, part):
            assert absorb(connection, str, "part.db") == Absorbed(4, frozenset(), ("main",))
        for table, where in (("_kernel", "rank IS NOT NULL"), ("_kernel_total", "TRUE")):
            count = f"SELECT COUNT(*) FROM {table} WHERE {where}"
            assert connection.execute(count).fetchone() == (0,)
        assert connection.execute("SELECT COUNT(*) > 0 FROM _kernel").fetchone() == (1,)
