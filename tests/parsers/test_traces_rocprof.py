"""rocprofv3's JSON: the public file, agents, copies, RCCL calls, damage."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from readers import parse, sniff
from trace_fuzz import damaged, retyped

from collscope.model import Op
from collscope.model.trace import Kind, TraceCollective, TraceFile
from collscope.parsers.traces import rocprof_json

GENERIC = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"


def _dispatch(start: int, end: int, kernel: int, agent: int = 20, call: int = 0) -> dict[str, Any]:
    info = {"agent_id": {"handle": agent}, "queue_id": {"handle": 18}, "kernel_id": kernel}
    return {
        "size": 184,
        "correlation_id": {"internal": call, "external": 0},
        "start_timestamp": start,
        "end_timestamp": end,
        "dispatch_info": info,
        "stream_id": {"handle": 5},
    }


def process() -> dict[str, Any]:
    """Two GPUs: a kernel and an AllReduce on the first, a copy and a decoy on the second."""
    copy = {
        "kind": 1,
        "operation": 1,
        "correlation_id": {"internal": 3},
        "start_timestamp": 60,
        "end_timestamp": 65,
        "dst_agent_id": {"handle": 21},
        "src_agent_id": {"handle": 10},
    }
    api = {"kind": 2, "operation": 1, "start_timestamp": 35, "end_timestamp": 39}
    return {
        "metadata": {"node": {"id": 0, "hostname": "n1"}, "pid": 908},
        "agents": [
            {"id": {"handle": 10}, "type": 1, "gpu_index": -1},
            {"id": {"handle": 20}, "type": 2, "gpu_index": 0, "caches": [{"a": 1}, {"b": 2}]},
            {"id": {"handle": 21}, "type": 2, "logical_node_type_id": 1},
        ],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
                {"kind": "RCCL_API", "operations": ["ncclAllGather", "ncclAllReduce"]},
            ]
        },
        "kernel_symbols": [
            {"kernel_id": 1, "kernel_name": "_Z1k", "formatted_kernel_name": GENERIC},
            {"kernel_id": 2, "kernel_name": "gemm.kd", "formatted_kernel_name": "gemm.kd"},
            {"kernel_id": 8, "kernel_name": "__amd_rocclr_copyBuffer.kd"},
        ],
        "buffer_records": {
            "kernel_dispatch": [
                _dispatch(40, 50, 1, call=7),
                _dispatch(10, 20, 2, call=6),
                _dispatch(70, 80, 8, agent=21),
                _dispatch(90, 95, 1),
            ],
            "memory_copy": [copy],
            "hip_api": [{**api, "start_timestamp": 5, "correlation_id": {"internal": 6}}],
            "rccl_api": [{**api, "correlation_id": {"internal": 7}}],
        },
    }


def document() -> bytes:
    return json.dumps({"rocprofiler-sdk-tool": [process()]}, indent=1).encode()


def test_two_agents_copies_and_rccl_calls() -> None:
    first, second = parse([document()], "t")
    assert [(f.device, f.host, f.diagnostics) for f in (first, second)] == [
        ("0", "n1", ()),
        ("1", "n1", ()),
    ]
    c = first.columns
    assert [first.names[n] for n in c.name] == ["gemm", GENERIC, GENERIC]
    assert c.start_ns.tolist() == [10, 40, 90]
    assert c.end_ns.tolist() == [20, 50, 95]
    assert c.launch_ns.tolist() == [5, 35, -1]
    assert [first.streams[s] for s in c.stream] == ["5", "5", "5"]
    # The RCCL call tells the operation, the generic kernel's name does not.
    assert c.collective[0] == -1
    assert first.collectives[c.collective[1]] == TraceCollective(Op.ALL_REDUCE)
    assert first.collectives[c.collective[2]] == TraceCollective(Op.UNKNOWN)
    c = second.columns
    assert c.kind.tolist() == [Kind.COPY, Kind.KERNEL]
    assert second.names[c.name[0]] == "MEMORY_COPY_HOST_TO_DEVICE"
    assert c.collective.tolist() == [-1, -1]  # __amd_rocclr_copyBuffer is none


def test_a_text_is_held_once_and_not_beside_what_is_made_of_it() -> None:
    one = process()
    one["buffer_records"]["kernel_dispatch"] = [_dispatch(k, k + 1, 1) for k in range(20_000)]
    text = json.dumps({"rocprofiler-sdk-tool": [one]}, indent=1).encode()
    parts = (text[at : at + 65_536] for at in range(0, len(text), 65_536))
    tracemalloc.start()
    first, _ = rocprof_json.parse(parts, "t")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(first.columns) == 20_000
    assert peak < 2 * len(text)


def test_share_of_the_public_file(corpus: Path) -> None:
    path = corpus / "rocprof" / "tracelens-908_results.json.gz"
    (file,) = parse([gzip.decompress(path.read_bytes())], path.name)
    c = file.columns
    assert len(c) == 43915
    assert (file.host, file.device) == ("smci350-zts-gtu-c6-25", "0")
    took, mine = c.end_ns - c.start_ns, c.collective >= 0
    assert took[mine].sum() / took.sum() == pytest.approx(0.9363, abs=0.0001)
    assert {file.names[n] for n in c.name[mine]} == {GENERIC}
    assert (np.diff(c.start_ns) >= 0).all()
    assert file.diagnostics == ()


def test_cut_public_file_keeps_the_dispatches_before(corpus: Path) -> None:
    path = corpus / "rocprof" / "tracelens-908_results.json.gz"
    text = gzip.decompress(path.read_bytes())
    cut = text[: len(text) * 9 // 10]
    (file,) = parse([cut], path.name)
    assert len(file.columns) == cut.count(b'"dispatch_info"') - (not cut.endswith(b"}"))
    # Dispatches stand in the order in which they ended, so that some before the cut lack, too.
    assert [d.code for d in file.diagnostics] == ["truncated_trace", "kernels_lost"]
    assert (file.host, file.device) == ("smci350-zts-gtu-c6-25", "0")


def test_cut_anywhere() -> None:
    text = document()
    for cut in range(0, len(text), 3):
        for file in parse([text[:cut]], "t"):
            assert _rows(file) <= 3
            whole = cut > text.rindex(b"}")
            assert whole or "truncated_trace" in [d.code for d in file.diagnostics]


def test_wrong_records_are_counted() -> None:
    data = process()
    data["buffer_records"]["kernel_dispatch"][0]["start_timestamp"] = "soon"
    data["buffer_records"]["kernel_dispatch"][1]["end_timestamp"] = 1
    first, second = parse([json.dumps({"rocprofiler-sdk-tool": [data]}).encode()], "t")
    assert {d.code: d.count for d in first.diagnostics} == {
        "malformed_record": 1,
        "untimed_activity": 1,
    }
    assert (_rows(first), _rows(second)) == (1, 2)


def test_sniffing() -> None:
    assert sniff(document()) == "rocprof_json"
    assert sniff(b'{"rocprofiler": 1}') is None


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_wrong_types_never_raise(seed: int) -> None:
    pick = random.Random(seed)
    text = json.dumps({"rocprofiler-sdk-tool": [retyped(process(), pick)]}).encode()
    parse([text], "t")
    parse([damaged(text, pick)], "t")


def _rows(file: TraceFile) -> int:
    return len(file.columns)
