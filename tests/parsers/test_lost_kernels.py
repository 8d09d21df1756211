"""Launches without their kernel, in every format that tells launches."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command import collscope
from inputs import ROOT
from readers import parse
from trace_converter import write


def _lose(path: Path, part: float) -> None:
    """Take out the kernels that start in the last part of the time."""
    if path.suffix == ".rocprof_json":
        trace = json.loads(path.read_bytes())
        for process in trace["rocprofiler-sdk-tool"]:
            records = process["buffer_records"]
            starts = [row["start_timestamp"] for row in records["kernel_dispatch"]]
            until = max(starts) - part * (max(starts) - min(starts))
            records["kernel_dispatch"] = [
                row for row in records["kernel_dispatch"] if row["start_timestamp"] <= until
            ]
        path.write_text(json.dumps(trace))
        return
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        kernels = ("CUPTI_ACTIVITY_KIND_KERNEL", "rocpd_kernel_dispatch", "rocpd_op")
        tables = [name for (name,) in connection.execute(query)]
        table = next(name for name in tables if name.startswith(kernels) and name != "rocpd_ops")
        connection.execute(
            f'DELETE FROM "{table}" WHERE start >'
            f' (SELECT MAX(start) - {part} * (MAX(start) - MIN(start)) FROM "{table}")'
        )
        connection.commit()


@pytest.mark.parametrize("form", ["nsys", "rocpd", "rpd", "rocprof_json"])
def test_launches_without_a_kernel_make_times_unknown(
    form: str, tmp_path: Path, samples: Path
) -> None:
    recorded = samples / "traces/ringll/rank0.json.gz"
    (path,) = write(parse([gzip.decompress(recorded.read_bytes())], "t"), form, tmp_path)
    db = tmp_path / "a.db"
    assert collscope("ingest", "trace", path, "--db", db, "--run", "whole").code == 0
    _lose(path, 0.2)
    assert collscope("ingest", "trace", path, "--db", db, "--run", "lost").code == 0
    counts = "SELECT run, SUM(count) FROM diagnostics WHERE code LIKE '%kernels_lost' GROUP BY run"
    with closing(sqlite3.connect(db)) as connection:
        ((run, count),) = connection.execute(counts)
        assert run == "lost"
        assert count > 50
        query = "SELECT COUNT(idle_ns), COUNT(*) FROM rank_times WHERE run = ?"
        assert connection.execute(query, ("lost",)).fetchone() == (0, 1)
        assert connection.execute(query, ("whole",)).fetchone() == (1, 1)


@pytest.mark.parametrize(("lost", "code"), [(1, "kernels_lost"), (3, "many_kernels_lost")])
def test_more_than_one_launch_in_a_hundred(
    lost: int, code: str, tmp_path: Path, samples: Path
) -> None:
    """Of 177 launches of one kernel each, one is 0.6 % and three are 1.7 %."""
    recorded = samples / "traces/ringll/rank0.json.gz"
    (path,) = write(parse([gzip.decompress(recorded.read_bytes())], "t"), "nsys", tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        table = "CUPTI_ACTIVITY_KIND_KERNEL"
        connection.execute(
            f"DELETE FROM {table} WHERE rowid IN"
            f" (SELECT rowid FROM {table} ORDER BY start LIMIT {lost} OFFSET 100)"
        )
        connection.commit()
    db = tmp_path / "a.db"
    assert collscope("ingest", "trace", path, "--db", db).code == 0
    with closing(sqlite3.connect(db)) as connection:
        query = "SELECT code, count FROM diagnostics WHERE code LIKE '%kernels_lost'"
        assert connection.execute(query).fetchall() == [(code, lost)]


def test_recorded_calls_whose_kernel_and_launch_are_gone() -> None:
    """Two AllReduces in the middle: record_param_comms alone is left of them."""
    text = gzip.decompress((ROOT / "samples/traces/default/rank0.json.gz").read_bytes())
    trace = json.loads(text)
    events = trace["traceEvents"]
    reduces = [e for e in events if e["name"].startswith("ncclDevKernel_AllReduce")]
    gone = {e["args"]["correlation"] for e in reduces[3:5]}
    trace["traceEvents"] = [
        e
        for e in events
        if e.get("args", {}).get("correlation") not in gone
        and not (e.get("cat") == "ac2g" and e.get("id") in gone)
    ]
    (undamaged,) = parse([text], "rank0.json")
    (damaged,) = parse([json.dumps(trace).encode()], "rank0.json")
    assert [d.code for d in undamaged.diagnostics] == []
    assert [(d.code, d.count) for d in damaged.diagnostics] == [("many_kernels_lost", 2)]


def test_coalesced_calls_whose_kernels_are_launched_later_lost_none() -> None:
    """The kernel of torch's coalesced calls is launched behind them, and names none of them."""
    text = gzip.decompress((ROOT / "samples/traces/default/rank0.json.gz").read_bytes())
    trace = json.loads(text)
    reduces = [e for e in trace["traceEvents"] if e["name"].startswith("ncclDevKernel_AllReduce")]
    later = {e["args"]["correlation"] for e in reduces[3:5]}
    for event in trace["traceEvents"]:
        if event.get("args", {}).get("correlation") in later:
            known = ("correlation", "stream", "device", "grid", "block")
            event["args"] = {name: event["args"][name] for name in known if name in event["args"]}
            for call in trace["traceEvents"] if event["cat"] == "cuda_driver" else ():
                if 0 < event["ts"] - call["ts"] < call.get("dur", 0):
                    call["dur"] = (event["ts"] - call["ts"]) / 2
    (found,) = parse([json.dumps(trace).encode()], "rank0.json")
    assert [(d.code, d.count) for d in found.diagnostics] == [("no_collective_arguments", 2)]
