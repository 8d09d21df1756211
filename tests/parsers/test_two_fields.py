"""Recorders of which two fields say one thing, and contradict each other."""

from __future__ import annotations

import pytest
from inputs import ROOT

from collscope.model.trace import RecordedCalls
from collscope.parsers.recorders import (
    accl_profiler,
    clog,
    inspector,
    profiler_plugin,
    rccl_recorder_text,
)

_ACCL = "accl_profiler_rank2_node-1_pid4711_0x7f8c496ae9f661.jsonl"
_READERS = {
    _ACCL: accl_profiler.parse,
    "synthetic.inspector-v4.0.log": inspector.parse,
    "synthetic.inspector-v4.3.log": inspector.parse,
    "synthetic.profiler-plugin.txt": profiler_plugin.parse,
    "replay.4711.node-1.json": rccl_recorder_text.parse,
    "synthetic.clog.txt": clog.parse,
}


def _read(name: str, old: str = "", new: str = "") -> RecordedCalls:
    text = (ROOT / "samples/recorders" / name).read_text()
    assert old in text
    return _READERS[name](text.replace(old, new, 1 if old else 0).encode(), name)


def _contradicting(found: RecordedCalls) -> int:
    return sum(d.count for d in found.diagnostics if d.code == "contradicting_fields")


@pytest.mark.parametrize("name", _READERS)
def test_a_sound_file_contradicts_nothing(name: str) -> None:
    assert _contradicting(_read(name)) == 0


def test_accl_size_beside_its_time_and_bandwidth() -> None:
    found = _read(_ACCL, '_bytes":4194304', '_bytes":8388608')
    assert _contradicting(found) == 1
    assert found.calls[0].size_bytes is None


@pytest.mark.parametrize("version", ["4.0", "4.3"])
def test_inspector_size_beside_its_time_and_bandwidth(version: str) -> None:
    name = f"synthetic.inspector-v{version}.log"
    found = _read(name, '_bytes":1073741824', '_bytes":2147483648')
    assert _contradicting(found) == 1
    assert (found.calls[0].size_bytes, found.calls[0].duration_ns) == (None, None)


def test_inspector_number_of_ranks_beside_its_bandwidths() -> None:
    found = _read("synthetic.inspector-v4.0.log", '"n_ranks":8', '"n_ranks":64')
    assert _contradicting(found) == 1
    assert found.calls[0].collective.group_size is None
    assert found.calls[0].size_bytes == 1 << 30  # an AllReduce has it of whatever ranks


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"Count": 32768', '"Count": 131072'),
        ('"Datatype": "ncclFloat32"', '"Datatype": "ncclFloat64"'),
    ],
)
def test_profiler_plugin_call_beside_that_of_the_api(old: str, new: str) -> None:
    found = _read("synthetic.profiler-plugin.txt", old, new)
    assert _contradicting(found) == 1
    what = found.calls[0].collective
    assert (what.in_count, what.datatype) == (None, None)


def test_profiler_plugin_counts_an_all_gather_in_bytes() -> None:
    name = "synthetic.profiler-plugin.txt"
    new = '"AllGather", "cat": "COLL_API", "ph": "b", "id": 1, "pid": 4711, "tid": 1, "ts": 1299.0'
    line = "{" + f'"name": {new}, "args": ' + '{"count": 2, "datatype": ncclFloat32}},\n'
    old = '{"name": "AllGather", "cat": "COLL"'
    assert _contradicting(_read(name, old, line + old)) == 0
    line = line.replace('"count": 2', '"count": 3')
    assert _contradicting(_read(name, old, line + old)) == 1


def test_rccl_recorder_ranks_of_a_call_beside_those_of_its_communicator() -> None:
    found = _read("replay.4711.node-1.json", "size : 4, uniqueID", "size : 8, uniqueID")
    made = [c for c in found.calls if c.collective.group_size is None]
    assert _contradicting(found) == len(made) > 0


def test_clog_rank_beside_the_number_of_ranks() -> None:
    found = _read("synthetic.clog.txt", "rank=", "rank=9")
    assert _contradicting(found) == 1
    assert found.rank is None
