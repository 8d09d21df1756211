"""Traces of several starts of a job are told from those of hosts whose clocks differ."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from command import collscope, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from trace_builder import US, Job

from collscope.match.job_starts import find_job_starts
from collscope.model.trace import TraceFile

FAR = 146_000_000_000  # ns


def start(seed: int, nranks: int = 4, calls: int = 24) -> Job:
    """Steps of two calls; what the host takes for them differs from start to start."""
    job, chance = Job(nranks, seed=seed), random.Random(seed)
    for _ in range(calls // 2):
        for transfer in (400 * US, 80 * US):
            for rank in range(nranks):
                job.compute(rank, 2_000 * US + chance.randint(0, 600 * US))
            job.collective(tuple(range(nranks)), transfer)
    return job


def mixed(first: list[TraceFile], second: list[TraceFile]) -> list[TraceFile]:
    """Ranks 0 and 1 of one start, and 2 and 3 of another."""
    return [*first[:2], *second[2:]]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 20), st.integers(20, 10**6), st.floats(-1e-4, 1e-4))
def test_ranks_of_hosts_with_clocks_apart_are_of_one_start(
    seed: int, seconds: int, drift: float
) -> None:
    """Whatever constant the clocks differ by, and whatever crystals drift by."""
    ahead = seconds * 1_000_000_000
    traces = start(seed).traces({2: ahead, 3: ahead}, {2: drift, 3: drift})
    assert find_job_starts(traces).start == (0, 0, 0, 0)
    assert find_job_starts(traces).unsure_ns is None


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 20), st.integers(20, 10**6))
def test_ranks_of_two_starts_are_apart(seed: int, seconds: int) -> None:
    ahead = dict.fromkeys(range(4), seconds * 1_000_000_000)
    found = find_job_starts(mixed(start(seed).traces(), start(seed + 1).traces(ahead)))
    assert found.start == (0, 0, 1, 1) or found.unsure_ns


def test_periods_of_one_start_are_told_apart_on_clocks_that_differ() -> None:
    """Two hosts whose clocks differ, each with two periods: period by period they meet."""
    hosts = {2: FAR, 3: FAR}
    later = {rank: 20_000_000_000 + hosts.get(rank, 0) for rank in range(4)}
    traces = [*start(1, calls=60).traces(hosts), *start(2, calls=60).traces(later)]
    assert find_job_starts(traces).start == (0, 0, 0, 0, 1, 1, 1, 1)


def test_one_host_has_one_clock() -> None:
    """On one host not even calls that end alike are the same, once their traces lie far apart."""
    far, hosts = {2: FAR, 3: FAR}, dict.fromkeys(range(4), "n1")
    few = start(1, calls=4)
    assert find_job_starts(few.traces(far, hosts=hosts)).start == (0, 0, 1, 1)
    found = find_job_starts(few.traces(far))
    assert found.start == (0, 0, 0, 0)
    assert found.unsure_ns == pytest.approx(FAR, rel=0.01)


def test_traces_that_overlap_or_follow_each_other_closely_are_left_as_they_are() -> None:
    traces = mixed(start(1).traces(), start(2).traces())
    assert find_job_starts(traces).start == (0, 0, 0, 0)
    near = dict.fromkeys(range(4), 1_000_000_000)
    assert find_job_starts(mixed(start(1).traces(), start(2).traces(near))).start == (0, 0, 0, 0)


def test_a_trace_without_collectives_is_of_the_first_start() -> None:
    first, second = start(1).traces(), start(2).traces(dict.fromkeys(range(4), FAR))
    none = first[0].columns.collective * 0 - 1
    idle = replace(first[0], columns=replace(first[0].columns, collective=none))
    assert find_job_starts([idle, *second[1:]]).start == (0, 0, 0, 0)
    assert find_job_starts([second[3], idle, first[1]]).start == (0, 1, 1)


def test_a_folder_with_ranks_of_two_starts(samples: Path, tmp_path: Path) -> None:
    """Rank 0 of one start and rank 1 of another, 88 s apart, become two runs."""
    for rank, case in ((0, "default"), (1, "ringll")):
        shutil.copy(samples / "traces" / case / f"rank{rank}.json.gz", tmp_path)
    db = ("--db", tmp_path / "t.db")
    said = collscope("ingest", "trace", tmp_path, *db).out
    assert "1 x several_periods" in said
    assert "became runs of their own (main.2). main: " in said
    for run in ("main", "main.2"):
        report = collscope("report", "--run", run, *db).out
        assert "1 of 4 ranks" in report
        assert "1 other period, start or job in addition to this one" in report
        assert "do not agree" not in report
        assert "a rank lacks" not in report
    again = collscope("ingest", "trace", tmp_path, *db).out
    assert again.count("already in this run") == 2


def test_starts_are_told_apart_in_whatever_order_their_files_are_read(
    samples: Path, tmp_path: Path
) -> None:
    """Rank 1 of the second start comes before its rank 0, which rank 0 of the first stands for."""
    db = ("--db", tmp_path / "t.db")
    for case, rank in (("default", 0), ("ringll", 1), ("ringll", 0), ("default", 2)):
        path = samples / "traces" / case / f"rank{rank}.json.gz"
        assert collscope("ingest", "trace", path, *db).code == 0
    query = "SELECT DISTINCT run, rank, instr(path, 'ringll') > 0 FROM traces JOIN sources"
    query += " USING (run, source_id) ORDER BY 1, 2"
    found = rows(tmp_path / "t.db", query)
    assert found == [("main", 0, 0), ("main", 2, 0), ("main.2", 0, 1), ("main.2", 1, 1)]


def test_far_apart_traces_that_tell_nothing_are_remarked(tmp_path: Path, samples: Path) -> None:
    import gzip
    import json

    for rank in range(2):
        trace = json.loads(
            gzip.decompress((samples / f"traces/default/rank{rank}.json.gz").read_bytes())
        )
        calls = [e for e in trace["traceEvents"] if "nccl" in e.get("name", "") and e["ph"] == "X"]
        calls = sorted((e for e in calls if e["cat"] == "kernel"), key=lambda e: e["ts"])[:4]
        for event in calls:
            event["ts"] += rank * 146e6
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace | {"traceEvents": calls}))
    db = ("--db", tmp_path / "t.db")
    said = collscope("ingest", "trace", tmp_path, *db).out
    assert "traces_apart: traces 146 s or more apart in time" in said
    report = collscope("report", *db).out
    assert (
        "[warning] the traces are far apart in time: are they from two starts of the job?" in report
    )
