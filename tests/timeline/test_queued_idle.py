"""Rows that are too short leave a GPU idle that has work."""

import gzip
import json
from pathlib import Path

import pytest
from command import collscope, rows
from inputs import ROOT

TRACES = sorted((ROOT / "samples/traces/default").glob("rank*.json.gz"))


def _halve(text: bytes, category: str, name: str) -> bytes:
    """Half the length of each kernel of some names; starts and launches stay."""
    trace = json.loads(text)
    for event in trace["traceEvents"]:
        if event.get("cat") == category and event["name"].startswith("nccl") == (name == "nccl"):
            event["dur"] /= 2
    return json.dumps(trace).encode()


@pytest.mark.parametrize("which", ["nccl", "compute"])
def test_short_kernels_make_idle_time_doubtful(which: str, tmp_path: Path) -> None:
    """In the samples no GPU waits longer than 4 us for work that was launched."""
    for number, path in enumerate(TRACES):
        text = gzip.decompress(path.read_bytes())
        # The ends of one rank's collectives alone would contradict those of the others.
        damaged = _halve(text, "kernel", which) if which == "nccl" or number == 2 else text
        (tmp_path / path.stem).write_bytes(damaged)
    db = tmp_path / "a.db"
    assert collscope("ingest", "trace", tmp_path, "--db", db, "--run", "short").code == 0
    assert collscope("ingest", "trace", *TRACES, "--db", db, "--run", "whole").code == 0
    query = "SELECT DISTINCT run FROM diagnostics WHERE code = 'idle_while_queued'"
    assert rows(db, query) == [("short",)]
    short, whole = (collscope("report", "--db", db, "--run", r).out for r in ("short", "whole"))
    assert "These shares are uncertain: the GPU of rank " in " ".join(short.split())
    assert "NOTHING STANDS OUT" not in short
    assert "NOTHING STANDS OUT" in whole
    assert "not sure" not in whole
