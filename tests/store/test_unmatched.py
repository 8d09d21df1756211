"""A run whose calls could not be matched is named as such, and keeps nobody from the others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command import CALLS, Outcome, collscope, rows
from msgspec.structs import replace
from older_store import age

import collscope as library
from collscope.errors import InputError
from collscope.model.trace import RecordedCalls
from collscope.store import connection as store
from collscope.store.trace_columns import decode_recording, encode_recording

_LOGS = "nccl/mixed"
_RECORDING = "recorders/ddp.fr.rank0.json"
# A pointer that is no number: the matching raises, as it did for numbers beyond 64 bits.
_DAMAGE = "UPDATE _comm_handle SET comm_ptr = 'damaged'"


def _sql(db: Path, *statements: str) -> None:
    with closing(sqlite3.connect(db)) as plain, plain:
        for statement in statements:
            plain.execute(statement)


def _words(done: Outcome) -> str:
    return " ".join((done.out + done.err).split())


@pytest.fixture
def both(samples: Path, db_path: Path) -> Path:
    """A store with a healthy run, and one whose stored lines cannot be matched."""
    assert collscope("ingest", "log", samples / _LOGS, "--db", db_path, "--run", "bad").code == 0
    _sql(db_path, _DAMAGE)
    done = collscope("ingest", "log", samples / _LOGS, "--db", db_path, "--run", "good")
    assert done.code == 0
    return db_path


@pytest.fixture
def broken(both: Path) -> Path:
    """The same store after the run was matched again, in vain."""
    done = collscope("runs", "rematch", "bad", "--db", both)
    assert done.code == 3
    assert "error: 1 x match_failed: run 'bad': its calls are not matched" in done.out
    assert "run 'bad': its calls are not matched" in done.err
    return both


def test_a_failed_matching_is_told_and_marked(broken: Path) -> None:
    ((matched, why),) = rows(broken, "SELECT matched, match_error FROM _run WHERE label = 'bad'")
    assert (matched, "damaged" in why) == (0, True)
    report = collscope("report", "--db", broken, "--run", "bad")
    assert (report.code, report.out) == (3, "")
    assert report.err.count("\n") == 1
    assert "run 'bad': its calls are not matched" in report.err
    assert "collscope runs rematch bad" in report.err
    assert "collscope runs rm bad" in report.err


def test_others_are_read_beside_it(broken: Path) -> None:
    before = broken.read_bytes()
    assert collscope("report", "--db", broken, "--run", "good").code == 0
    listed = collscope("runs", "--db", broken, "--format", "csv").out.split()
    assert listed == ["run,sources,calls,measurements,matched", *listed[1:]]
    assert [(row.split(",")[0], row.split(",")[-1]) for row in listed[1:]] == [
        ("bad", "no"),
        ("good", "yes"),
    ]
    query = collscope("sql", "--db", broken, "SELECT COUNT(*) FROM sources WHERE run = 'bad'")
    assert (query.code, query.out.split()[-1]) == (0, "4")
    assert "run 'bad': its calls are not matched" in query.err
    assert broken.read_bytes() == before  # to read is not to match


def test_the_library_says_it_too(broken: Path) -> None:
    opened = library.open(broken)
    assert list(opened.unmatched()) == ["bad"]
    assert opened.report("good").header.run == "good"
    for question in (opened.report, opened.calls):
        with pytest.raises(InputError, match="not matched"):
            question("bad")


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "--run", "bad", "--system", "h200"),
        ("export", "perfetto", "-o", "x.json", "--run", "bad"),
        ("replay", "--dry-run", "--run", "bad"),
        ("compare", "bad", "good"),
    ],
)
def test_commands_that_need_it_name_it(command: tuple[str, ...], broken: Path) -> None:
    done = collscope(*command, "--db", broken)
    assert done.code == 3
    assert "run 'bad': its calls are not matched" in done.err


def test_it_can_be_removed(broken: Path) -> None:
    assert collscope("runs", "rm", "bad", "--db", broken).code == 0
    done = collscope("sql", "--db", broken, "SELECT DISTINCT run FROM sources")
    assert (done.out.split()[-1], done.err) == ("good", "")


def test_it_can_be_mended_and_matched(broken: Path) -> None:
    calls = "SELECT COUNT(*) FROM calls WHERE run = '{}'"
    _sql(
        broken,
        "UPDATE _comm_handle SET comm_ptr = (SELECT g.comm_ptr FROM _comm_handle g"
        " WHERE g.handle_id = _comm_handle.handle_id + (SELECT COUNT(*) / 2 FROM _comm_handle))"
        " WHERE comm_ptr = 'damaged'",
    )
    assert collscope("runs", "rematch", "bad", "--db", broken).code == 0
    assert collscope("report", "--db", broken, "--run", "bad").code == 0
    assert rows(broken, "SELECT COUNT(*) FROM diagnostics WHERE code = 'match_failed'") == [(0,)]
    assert rows(broken, calls.format("bad")) == rows(broken, calls.format("good"))


def test_an_ingest_into_it_says_so(samples: Path, broken: Path) -> None:
    log = samples / "nccl" / "ddp" / "rank0.log"
    done = collscope("ingest", "log", log, "--db", broken, "--run", "bad")
    assert done.code == 3
    assert "1 x match_failed" in done.out
    assert rows(broken, "SELECT COUNT(*) FROM sources WHERE run = 'bad'") == [(5,)]


def test_what_an_interrupted_ingest_left_is_matched_by_the_next(
    samples: Path, db_path: Path
) -> None:
    log = samples / "nccl" / "ddp" / "rank0.log"
    assert collscope("ingest", "log", log, "--db", db_path).code == 0
    whole = rows(db_path, CALLS)
    with closing(store.open_store(db_path)) as connection:
        from collscope.store.runs import clear_matching

        clear_matching(connection, 1)
        connection.execute("UPDATE _run SET matched = 0")
    done = collscope("report", "--db", db_path)
    assert (done.code, "its ingest was interrupted" in done.err) == (3, True)
    assert rows(db_path, CALLS) == []
    assert collscope("ingest", "log", log, "--db", db_path).code == 0
    assert rows(db_path, CALLS) == whole


def _poisoned(recorded: RecordedCalls) -> RecordedCalls:
    """Every call of 2^62 elements, as an earlier release stored them."""
    return replace(
        recorded,
        calls=tuple(
            replace(c, collective=replace(c.collective, in_count=1 << 62, out_count=1 << 62))
            for c in recorded.calls
        ),
    )


def test_a_store_that_an_earlier_version_poisoned(samples: Path, db_path: Path) -> None:
    """Its source was committed, the matching of it raised, and so did whatever opened the store."""
    recording = samples / _RECORDING
    for run, path in (("good", samples / _LOGS), ("bad", recording)):
        assert collscope("ingest", "auto", path, "--db", db_path, "--run", run).code == 0
    with closing(store.open_store(db_path)) as connection:
        ((blob,),) = connection.execute("SELECT calls FROM _recording").fetchall()
        poison = encode_recording(_poisoned(decode_recording(blob)))
        connection.execute("UPDATE _recording SET calls = ?", (poison,))
        connection.execute("UPDATE _run SET matched = 0 WHERE label = 'bad'")
    age(db_path, 14)
    done = collscope("report", "--db", db_path, "--run", "good")
    assert done.code == 0
    told = f"collscope: {db_path}: upgraded from schema version 14 to {store.schema_version()}"
    assert done.err == f"{told}; 1 run to match again.\n"
    # This release matches it, without the sizes that cannot be: 2^62 elements of more than a byte.
    query = "SELECT datatype, size_bytes FROM classes WHERE run = 'bad' AND count = 1 << 62"
    assert {size for datatype, size in rows(db_path, query) if datatype != "Uint8"} == {None}
    assert collscope("report", "--db", db_path, "--run", "bad").code == 0
    assert collscope("runs", "rm", "bad", "--db", db_path).code == 0


def test_a_migration_marks_the_run_that_it_cannot_match(both: Path) -> None:
    _sql(both, "UPDATE _run SET matched = 0")
    age(both, 14)
    done = collscope("report", "--db", both, "--run", "good")
    assert done.code == 0
    assert done.err.endswith("; 2 runs to match again.\n")
    again = collscope("report", "--db", both, "--run", "bad")
    assert (again.code, "not matched" in again.err) == (3, True)
    assert collscope("runs", "rm", "bad", "--db", both).code == 0
