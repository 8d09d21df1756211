"""`collscope export perfetto`: what a reader of the Trace Event Format finds in the file."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from command import collscope
from trace_builder import steady_job

from collscope.timeline.analyse import analyse
from collscope.timeline.perfetto import trace_events

RINGLL = "predicted with the collectives of run ringll"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    path = tmp_path_factory.mktemp("perfetto") / "t.db"
    for case in ("default", "ringll"):
        done = collscope("ingest", "trace", samples / "traces" / case, "--db", path, "--run", case)
        assert done.code == 0, done.err
    return path


@pytest.fixture(scope="module")
def beside(db: Path) -> list[dict[str, Any]]:
    """Events of `default` with the prediction of `ringll` beside it."""
    path = db.with_name("beside.json")
    arguments = ("--db", db, "--run", "default", "--with", "ringll", "-o", path)
    done = collscope("export", "perfetto", *arguments)
    assert done.code == 0, done.err
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["traceEvents"]
    return found


def slices(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [e for e in events if e["ph"] == "X" and e["cat"] == category]


def test_slices_of_a_thread_lie_one_in_the_other_or_apart(beside: list[dict[str, Any]]) -> None:
    """Else viewers draw them wrongly: the format has no partial overlap."""
    threads = defaultdict(list)
    for e in beside:
        if e["ph"] == "X":
            threads[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    assert len(threads) == 16  # a stream and the steps of 4 ranks, recorded and predicted
    for found in threads.values():
        open_until: list[float] = []
        for begin, end in sorted(found, key=lambda pair: (pair[0], -pair[1])):
            while open_until and open_until[-1] <= begin + 0.002:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 0.002
            open_until.append(end)


def test_arrows_begin_and_end_in_slices(beside: list[dict[str, Any]]) -> None:
    spans = defaultdict(list)
    for e in beside:
        if e["ph"] == "X":
            spans[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    arrows = [e for e in beside if e["ph"] in "sf"]
    assert len(arrows) > 20
    for e in arrows:
        assert any(a - 0.002 <= e["ts"] <= b + 0.002 for a, b in spans[e["pid"], e["tid"]])


def test_names_of_groups_and_ranks(beside: list[dict[str, Any]]) -> None:
    processes = {e["pid"]: e["args"]["name"] for e in beside if e["name"] == "process_name"}
    assert list(processes.values()) == [
        *(f"rank {r}" for r in range(4)), *(f"rank {r}, {RINGLL}" for r in range(4)),
    ]  # fmt: skip
    order = {e["pid"]: e["args"]["sort_index"] for e in beside if e["name"] == "process_sort_index"}
    assert sorted(order, key=lambda pid: order[pid]) == [0, 4, 1, 5, 2, 6, 3, 7]
    threads = {e["args"]["name"] for e in beside if e["name"] == "thread_name"}
    assert threads == {"stream 7: default_pg (0,1,2,3)", "steps"}


def test_steps_are_those_of_the_store(db: Path, beside: list[dict[str, Any]]) -> None:
    with sqlite3.connect(db) as connection:
        told = connection.execute(
            "SELECT rank, duration_ns / 1000.0 FROM steps WHERE run = 'default' ORDER BY rank, step"
        ).fetchall()
    shown = [(e["pid"], e["dur"]) for e in slices(beside, "step") if e["pid"] < 4]
    # Clocks drift by some ns a step.
    assert [rank for rank, _ in shown] == [rank for rank, _ in told]
    assert [us for _, us in shown] == pytest.approx([us for _, us in told], rel=1e-3)


def test_the_predicted_timeline_is_longer_by_its_transfers(beside: list[dict[str, Any]]) -> None:
    """Nothing overlaps in this job: steps last 0.63 ms longer, as do the transfers of a step."""
    for rank in range(4):
        old, new = (
            [e["dur"] for e in slices(beside, "step") if e["pid"] == pid]
            for pid in (rank, rank + 4)
        )
        assert [b - a for a, b in zip(old, new, strict=True)] == pytest.approx([630, 630], abs=60)
    both = [[e["dur"] for e in slices(beside, "transfer") if e["pid"] // 4 == k] for k in (0, 1)]
    assert len(both[0]) == len(both[1]) == 72
    assert sum(both[1]) - sum(both[0]) == pytest.approx(12 * 630, rel=0.1)


def test_what_held_up_the_last_rank() -> None:
    """Rank 1 computes 1 ms longer before each tenth collective: the others wait for its kernel."""
    timeline = analyse(steady_job(3, 20, late=1).traces())
    events = list(trace_events(timeline, recorded=timeline.recorded()))
    waits = [
        e for e in events if e["ph"] == "X" and e["cat"] == "wait" and float(str(e["dur"])) > 900
    ]
    assert len(waits) == 4  # two ranks, twice
    for e in waits:
        assert e["name"] == "wait for rank 1"
        args = e["args"]
        assert isinstance(args, dict)
        assert args["held_up_by"] == "gemm"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--with", "ringll", "--system", "h200"), 2, "not both"),
        (("--step-ms", "5"), 2, "goes with --with"),
        (("--with", "nobody"), 3, "nobody"),
    ],
)
def test_refusals(
    db: Path, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    path = tmp_path / "a.json"
    done = collscope("export", "perfetto", "--db", db, "--run", "default", "-o", path, *words)
    assert (done.code, path.exists()) == (code, False)
    assert message in done.err
