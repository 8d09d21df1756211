"""Ranks that record the same calls with different datatypes."""

import gzip
import json
from pathlib import Path

from command import collscope, rows
from inputs import ROOT

TRACES = sorted((ROOT / "samples/traces/ringll").glob("rank*.json.gz"))


def test_calls_that_ranks_record_with_another_datatype_are_joined(tmp_path: Path) -> None:
    """Two of four ranks record each call as Float: 18 calls, whose first is the warm-up of all."""
    for path in TRACES:
        trace = json.loads(gzip.decompress(path.read_bytes()))
        if path.name[:5] in ("rank0", "rank1"):
            for event in trace["traceEvents"]:
                if "dtype" in event.get("args", {}):
                    event["args"]["dtype"] = "Float"
        (tmp_path / path.stem).write_text(json.dumps(trace))
    db = tmp_path / "a.db"
    assert collscope("ingest", "trace", tmp_path, "--db", db, "--run", "differ").code == 0
    assert collscope("ingest", "trace", *TRACES, "--db", db, "--run", "whole").code == 0
    assert rows(db, "SELECT run, COUNT(*) FROM calls GROUP BY run") == [
        ("differ", 18),
        ("whole", 18),
    ]
    query = "SELECT rank, exposed_ns, idle_ns FROM rank_times WHERE run = '{}' ORDER BY rank"
    assert rows(db, query.format("differ")) == rows(db, query.format("whole"))
    query = "SELECT COUNT(*) FROM disagreements WHERE run = '{}' AND kind = 'different'"
    assert rows(db, query.format("whole")) == [(0,)]
    assert rows(db, query.format("differ")) != [(0,)]
