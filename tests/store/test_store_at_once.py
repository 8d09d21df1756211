"""Several processes and one store: made, filled and removed at once."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest
from command import collscope, rows
from ingests_at_once import problems

from collscope.store import connection as store


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.parametrize(("count", "tries"), [(2, 3), (4, 1), (8, 1)])
def test_first_ingests_at_once(count: int, tries: int) -> None:
    assert [problem for _ in range(tries) for problem in problems(count)] == []


def test_the_last_matching_is_of_all_sources(samples: Path, db_path: Path) -> None:
    """A process that has read the run before another added to it must not undo what that did."""
    from collscope.ingest import match
    from collscope.ingest.stored_calls import is_superseded, load_run, store_matching
    from collscope.match.run import match_run

    first, second = (samples / "nccl" / "mixed" / f"rank{k}.log" for k in range(2))
    assert collscope("ingest", "log", first, "--db", db_path).code == 0
    with closing(store.open_store(db_path)) as slow:
        before = load_run(slow, 1)
        matched = match_run(before.logged, before.processes, before.kernels)
        assert not is_superseded(slow, 1, before)
        assert collscope("ingest", "log", second, "--db", db_path).code == 0
        both = rows(db_path, "SELECT ranks_seen FROM communicators")
        assert is_superseded(slow, 1, before)
        # Were the other not ready yet, what is read now would be stored, and it would go on.
        slow.execute("UPDATE _run SET matched = 0")
        assert not is_superseded(slow, 1, before)
        store_matching(slow, 1, before, matched, None)
        assert rows(db_path, "SELECT ranks_seen FROM communicators") != both
        assert rows(db_path, "SELECT matched FROM _run") == [(0,)]
        match.match_stored(slow, db_path, "main")
    assert rows(db_path, "SELECT ranks_seen FROM communicators") == both


def test_a_store_that_another_process_takes_away_while_it_is_opened(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ingest that found nothing removes the store that it made: another must not write there."""
    switch, opened = store._switch_to_wal, []

    def removed_meanwhile(connection: store.sqlite3.Connection) -> None:
        if not opened:
            os.unlink(db_path)  # noqa: PTH108 - as another process does
        opened.append(connection)
        switch(connection)

    monkeypatch.setattr(store, "_switch_to_wal", removed_meanwhile)
    with closing(store.open_store(db_path)) as connection:
        connection.execute("INSERT INTO _run (label) VALUES ('kept')")
    assert len(opened) == 2
    assert rows(db_path, "SELECT label FROM _run") == [("kept",)]


def test_a_store_that_another_process_opens_before_it_is_removed(db_path: Path) -> None:
    with closing(store.open_store(db_path)) as mine:

        def other_comes(statement: str) -> None:
            if statement == "BEGIN EXCLUSIVE":
                with closing(store.sqlite3.connect(db_path)) as other:
                    other.execute("PRAGMA journal_mode = WAL")

        mine.set_trace_callback(other_comes)
        store.remove_empty(mine, db_path)
    assert db_path.exists()
