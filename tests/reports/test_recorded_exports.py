"""The calls of the recorder for other tools: Inspector's JSON is read back; events of Perfetto."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import collscope
from inputs import ROOT
from msgspec.structs import replace

from collscope.match.rows import class_key
from collscope.model.trace import RecordedCall
from collscope.parsers.recorders import inspector, own_recorder
from collscope.reports.recorded.answer import RecordedProcess
from collscope.reports.recorded.inspector import inspector_records
from collscope.reports.recorded.perfetto import recorded_events

SAMPLES = sorted((ROOT / "samples/recorders").glob("*.collrec"))
RECORDED = [own_recorder.parse(path.read_bytes(), path.name) for path in SAMPLES]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    db = tmp_path / "a.db"
    collscope("ingest", "auto", *SAMPLES, "--db", db)
    return db


def seen(call: RecordedCall, size: int | None) -> tuple[object, ...]:
    what = call.collective
    return (
        what.op, what.group, what.group_size, call.group_rank, call.seq, size, call.duration_ns,
        what.algorithm, what.protocol, what.peer, call.timing_source,
    )  # fmt: skip


def size_of(call: RecordedCall) -> int | None:
    return class_key(call.collective, call.collective.group_size).size_bytes


def test_inspectors_json_is_read_back_with_equal_calls(tmp_path: Path, store: Path) -> None:
    done = collscope("export", "inspector", "--out", tmp_path / "out", "--db", store)
    assert "2 files, 12 of 14 recorded calls" in done.out
    for recorded in RECORDED:
        path = tmp_path / "out" / f"{recorded.host}-pid{recorded.pid}.log"
        data = path.read_bytes()
        assert inspector.sniff(data[:512])
        found = inspector.parse(data, path.name)
        assert (found.host, found.pid, found.diagnostics) == (recorded.host, recorded.pid, ())
        timed = [call for call in recorded.calls if call.duration_ns]
        assert [seen(c, c.size_bytes) for c in found.calls] == [seen(c, size_of(c)) for c in timed]


def test_sends_and_recvs_are_numbered_together_as_inspector_does() -> None:
    transfer = RECORDED[0].calls[-1]
    untimed, timed = transfer, replace(transfer, duration_ns=2500, timing_source="kernel_gpu")
    process = RecordedProcess("node", 7, 0, (untimed, timed, timed))
    data = b"".join(json.dumps(r).encode() + b"\n" for r in inspector_records(process, {}))
    found = inspector.parse(data, "x.log")
    assert [(c.seq, c.size_bytes, c.duration_ns) for c in found.calls] == [
        (2, 512 * 2, 2500),
        (3, 512 * 2, 2500),
    ]
    assert {c.collective.peer for c in found.calls} == {1}
    assert found.diagnostics == ()


def test_perfetto_has_a_track_for_each_rank_and_communicator(tmp_path: Path, store: Path) -> None:
    path = tmp_path / "a.json"
    done = collscope("export", "perfetto", "-o", path, "--db", store)
    assert "12 calls with a GPU time as slices, 2 without as instants" in done.out
    assert "shifted so that none begins before the host's call" in done.out
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert tracks == {"0xfeedfacecafebeef, rank 0", "0xfeedfacecafebeef, rank 1"}
    for rank, recorded in enumerate(RECORDED):
        mine = [e for e in events if e["pid"] == rank and e["ph"] != "M"]
        slices = [e for e in mine if e["ph"] == "X"]
        assert [e["dur"] * 1000 for e in slices] == [c.duration_ns for c in recorded.calls[:6]]
        ends = [0.0, *(e["ts"] + e["dur"] for e in slices)]
        assert all(e["ts"] >= end for e, end in zip(slices, ends, strict=False))
        assert [e["ph"] for e in mine][-1] == "i"
        assert slices[0]["name"] == "AllReduce 4 MiB"


def test_slices_keep_the_gpus_clock_and_none_is_before_its_call() -> None:
    first = replace(RECORDED[0].calls[0], start_ns=10_000, duration_ns=500, kernel_end_ns=7_500)
    # Called 100 ns later, it begins where the first ends: 400 ns after its call.
    behind = replace(first, start_ns=10_100, kernel_end_ns=8_000)
    process = RecordedProcess("node", 7, 3, (first, behind))
    slices = [e for e in recorded_events([process]) if e["ph"] == "X"]
    assert [(e["pid"], e["ts"], e["dur"]) for e in slices] == [(3, 0.0, 0.5), (3, 0.5, 0.5)]


def test_above_the_limit_the_longest_calls_stay(tmp_path: Path, store: Path) -> None:
    path = tmp_path / "a.json"
    done = collscope("export", "perfetto", "-o", path, "--db", store, "--limit", "8")
    assert "8 calls with a GPU time as slices, 0 without" in done.out
    assert "6 calls left out" in done.out
    events = json.loads(path.read_text())["traceEvents"]
    assert {e["name"] for e in events if e["ph"] == "X"} == {"AllReduce 4 MiB"}


def test_a_run_without_recordings_says_what_to_record(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    collscope("ingest", "log", ROOT / "samples/nccl/mixed", "--db", db)
    done = collscope("export", "inspector", "--out", tmp_path / "out", "--db", db)
    assert (done.code, (tmp_path / "out").exists()) == (3, False)
    assert "collscope record --level sampled" in done.err
