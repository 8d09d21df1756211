"""`collscope runs`: what the store holds, and how to be rid of it; and where to begin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import collscope, dump, rows

from collscope.cli import COMMANDS

# Shared by all runs: names of kernels and of settings stay when a run goes.
VOCABULARY = ("_kernel_name", "_tuning")


@pytest.fixture
def db(samples: Path, tmp_path: Path) -> Path:
    """A store with logs and measurements in one run, and traces in another."""
    db = tmp_path / "t.db"
    for words in (
        ("log", samples / "nccl" / "mixed"),
        ("csv", samples / "replay" / "h200x4-mixed.csv", "--label", "a"),
        ("trace", samples / "traces" / "default", "--run", "traced"),
    ):
        assert collscope("ingest", *words, "--db", db).code == 0
    return db


def test_runs_are_listed_with_what_they_hold(db: Path) -> None:
    # 208 calls and 14 measurements: samples/README.md; a step of 6 calls was traced three times
    done = collscope("runs", "--db", db)
    assert [line.split() for line in done.out.splitlines()[2:]] == [
        ["main", "5", "208", "14", "yes"],
        ["traced", "4", "18", "0", "yes"],
    ]
    page = collscope("runs", "--db", db, "--format", "html")
    assert "<title>collscope runs</title>" in page.out


@pytest.mark.parametrize(("gone", "kept"), [("main", "traced"), ("traced", "main")])
def test_a_run_removed_leaves_nothing_but_the_others(db: Path, gone: str, kept: str) -> None:
    before = collscope("report", "--run", kept, "--db", db).out
    done = collscope("runs", "rm", gone, "--db", db)
    assert (done.code, done.err) == (0, "")
    assert f"run '{gone}' removed, with {5 if gone == 'main' else 4} sources" in done.out
    assert collscope("report", "--run", kept, "--db", db).out == before
    assert collscope("report", "--run", gone, "--db", db).code == 3
    assert rows(db, "PRAGMA foreign_key_check") == []
    assert collscope("runs", "rm", kept, "--db", db).code == 0
    left = [line for line in dump(db) if line.startswith("INSERT") and "sqlite_" not in line]
    assert [line for line in left if not any(f'"{name}"' in line for name in VOCABULARY)] == []


def test_a_run_that_is_not_there_is_an_error_and_removes_nothing(db: Path) -> None:
    before = dump(db)
    done = collscope("runs", "rm", "other", "--db", db)
    assert done.code == 3
    assert "no run 'other' (runs: 'main', 'traced')" in done.err
    assert dump(db) == before


def test_no_store_is_made_to_list_or_remove(tmp_path: Path) -> None:
    assert collscope("runs", "--db", tmp_path / "t.db").code == 3
    assert collscope("runs", "rm", "main", "--db", tmp_path / "t.db").code == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("rm",), ("rm", ""), ("main",)])
def test_runs_refuses_half_a_request(words: tuple[str, ...], db: Path) -> None:
    assert collscope("runs", *words, "--db", db).code == 2


def test_a_bare_collscope_says_where_to_begin_in_ten_lines() -> None:
    done = collscope()
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert len(lines) == 10
    assert max(map(len, lines)) <= 90
    named = re.findall(r"^  collscope (\w+)", done.out, re.MULTILINE)
    assert len(named) == 6
    assert set(named) <= {command.name for command in COMMANDS}


def test_a_system_may_stand_without_its_option() -> None:
    spelt = collscope("roofline", "--system", "h200", "--ranks", "4", "--op", "AllReduce")
    assert spelt.code == 0
    assert collscope("roofline", "h200", "--ranks", "4", "--op", "AllReduce").out == spelt.out
    for words in ((), ("h200", "--list"), ("h200", "--system", "h100")):
        done = collscope("roofline", *words)
        assert done.code == 2
        assert "give --list, or one system" in done.err
