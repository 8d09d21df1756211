"""The analysis that is kept with a run equals a fresh one; damaged, it is one sentence."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from command import collscope
from hypothesis import given, settings
from hypothesis import strategies as st
from older_store import age
from trace_builder import nested_job, steady_job

from collscope.errors import InputError
from collscope.ingest.match import reading
from collscope.ingest.stored_analysis import StoredAnalysis, decode_analysis, encode_analysis
from collscope.ingest.stored_traces import load_traced_run
from collscope.match.rows import gather_host, gather_rows
from collscope.model.trace import TraceFile
from collscope.reports.calls.answer import class_rows, read_call_totals
from collscope.reports.waiting.traced_run import read_traced_run
from collscope.store.connection import SCHEMAS, schema_version
from collscope.timeline.analyse import RankedTimeline, analyse

MS = 1_000_000


def assert_equal(mine: object, theirs: object, place: str = "") -> None:
    """Structs, tuples and arrays with the same types and values, everywhere."""
    if isinstance(mine, np.ndarray):
        assert isinstance(theirs, np.ndarray), place
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), place
        assert np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f"), place
    elif isinstance(mine, msgspec.Struct):
        assert isinstance(theirs, msgspec.Struct), place
        for name in mine.__struct_fields__:
            assert_equal(getattr(mine, name), getattr(theirs, name), f"{place}.{name}")
    elif isinstance(mine, tuple):
        assert isinstance(theirs, tuple), place
        assert len(mine) == len(theirs), place
        for k, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            assert_equal(one, other, f"{place}[{k}]")
    else:
        assert mine == theirs, place


def fresh(traces: list[TraceFile]) -> tuple[RankedTimeline, bytes]:
    """An analysis, and its bytes."""
    timeline = analyse(traces)
    class_ids = timeline.calls.class_.astype(np.int64) + 7
    return timeline, encode_analysis(StoredAnalysis(timeline, class_ids))


def assert_survives(traces: list[TraceFile]) -> None:
    """The analysis of traces equals what comes back from its bytes."""
    timeline, data = fresh(traces)
    found = decode_analysis(data, gather_rows(traces), gather_host(traces))
    assert_equal(found.timeline, timeline)
    assert_equal(found.class_ids, timeline.calls.class_.astype(np.int64) + 7)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 40), st.integers(-5 * MS, 5 * MS), st.integers(0, 1 << 16))
def test_an_analysis_survives_its_bytes(ranks: int, calls: int, ahead: int, seed: int) -> None:
    assert_survives(steady_job(ranks, calls).traces({ranks - 1: ahead}))
    assert_survives(nested_job(seed).traces({1: ahead}, {0: 1e-5}))


def test_an_analysis_of_no_trace_survives() -> None:
    assert_survives([])


def stored(db: Path, run: str) -> None:
    """The stored analysis of a run equals that of its traces, its classes those of the views."""
    with reading(db) as connection:
        traces = load_traced_run(connection, run)[0].traces
        found = read_traced_run(connection, db, run)
        timeline = analyse(traces)
        assert_equal(found.timeline, timeline)
        query = (
            "SELECT rank, start_ns, class_id FROM kernels k JOIN calls c USING (call_id)"
            " WHERE k.run = ? AND c.run = k.run"
        )
        of_kernel = {row[:2]: row[2] for row in connection.execute(query, (run,))}
        totals = read_call_totals(connection, run)
        class_of = {c.class_id: c.collective_class for c in class_rows(connection, run, totals)}
    rows, calls = timeline.rows, timeline.calls
    for key, part in zip(found.keys, calls.offsets[:-1].tolist(), strict=True):
        rank = rows.ranks[calls.trace[part]]
        start = int(rows.start[calls.row[part]]) + rows.base_ns
        assert key == class_of.get(of_kernel.get((rank, start)))


@pytest.mark.parametrize("case", ["default", "ringll"])
def test_a_run_keeps_its_analysis(db_path: Path, samples: Path, case: str) -> None:
    assert collscope("ingest", "trace", samples / "traces" / case, "--db", db_path).code == 0
    stored(db_path, "main")


@pytest.mark.parametrize("case", ["fsdp/light", "ddp/full"])
def test_a_job_with_log_and_traces_keeps_its_analysis(
    db_path: Path, recorded_jobs: Path, case: str
) -> None:
    """Classes of its calls are those of the log, and host calls come with the traces."""
    job, _ = case.split("/")
    traces = sorted(recorded_jobs.glob(f"scheduled/default/{case}*"))
    assert len(traces) == 4
    assert collscope("ingest", "log", recorded_jobs / "logs" / job, "--db", db_path).code == 0
    assert collscope("ingest", "trace", *traces, "--db", db_path).code == 0
    stored(db_path, "main")


def test_every_damaged_byte_is_one_error() -> None:
    traces = steady_job(2, 6).traces()
    _, data = fresh(traces)
    rows, host = gather_rows(traces), gather_host(traces)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        with pytest.raises(InputError):
            decode_analysis(bytes(damaged), rows, host)
    for length in range(0, len(data), 7):
        with pytest.raises(InputError):
            decode_analysis(data[:length], rows, host)
    with pytest.raises(InputError, match="other traces"):
        decode_analysis(data, gather_rows(steady_job(2, 7).traces()), ())


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE _analysis SET found = x'0128'",
        "UPDATE _analysis SET found = CAST(x'02' || SUBSTR(found, 2) AS BLOB)",
        "UPDATE _analysis SET found = 'text'",
        "UPDATE _analysis SET found = x''",
        "DELETE FROM _analysis",
    ],
)
def test_rematch_renews_what_is_damaged(db_path: Path, samples: Path, damage: str) -> None:
    assert collscope("ingest", "trace", samples / "traces" / "default", "--db", db_path).code == 0
    predict = ("predict", "--system", "h200", "--db", db_path)
    before = collscope(*predict)
    assert before.code == 0
    with closing(sqlite3.connect(db_path)) as db, db:
        db.execute(damage)
    damaged = collscope(*predict)
    assert damaged.code == 3
    assert "the analysis of run 'main' cannot be read" in damaged.err
    assert "Run 'collscope runs rematch main'." in damaged.err
    assert collscope("runs", "rematch", "main", "--db", db_path).code == 0
    assert collscope(*predict).out == before.out


def test_a_run_that_is_removed_takes_its_analysis(db_path: Path, samples: Path) -> None:
    for run in ("one", "two"):
        source = samples / "traces" / "default"
        assert collscope("ingest", "trace", source, "--db", db_path, "--run", run).code == 0
    assert collscope("runs", "rm", "one", "--db", db_path).code == 0
    with closing(sqlite3.connect(db_path)) as db:
        query = "SELECT label FROM _analysis LEFT JOIN _run USING (run_id)"
        assert db.execute(query).fetchall() == [("two",)]


def test_an_older_store_is_analysed_when_it_is_opened(
    db_path: Path, samples: Path, tmp_path: Path
) -> None:
    assert collscope("ingest", "trace", samples / "traces" / "default", "--db", db_path).code == 0
    older = tmp_path / "older.sqlite"
    shutil.copy(db_path, older)
    (added,) = SCHEMAS.glob("018_*.sql")
    assert "_analysis" in added.read_text()
    age(older, 17)
    now, then = (collscope("predict", "--system", "h200", "--db", db) for db in (db_path, older))
    brought = f"upgraded from schema version 17 to {schema_version()}; 1 run to match again."
    assert (then.code, then.out) == (0, now.out)
    assert brought in then.err
    stored(older, "main")
