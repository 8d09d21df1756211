"""Traces of the PyTorch profiler: recordings, public files, all places of arguments, damage."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from readers import parse, sniff
from trace_fuzz import damaged, retyped

from collscope.model import Datatype, Op, Severity
from collscope.model.trace import Kind, TraceCollective, TraceFile
from collscope.parsers.traces import _array, kineto
from collscope.parsers.traces.kineto_calls import whole_list
from collscope.parsers.traces.kineto_names import parse_collective, parse_dtype

BASE = 1790857026000000000
GROUP = {"Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2}
ALL_REDUCE = {
    **GROUP,
    "Collective name": "allreduce",
    "dtype": "BFloat16",
    "In msg nelems": 4096,
    "Out msg nelems": 4096,
}
KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def one(text: bytes | str) -> TraceFile:
    (file,) = parse([text.encode() if isinstance(text, str) else text], "t.json")
    return file


def x(
    cat: str, name: str, ts: float, dur: float, tid: object = 7, **args: object
) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def kernel(ts: float = 100, dur: float = 5, correlation: int = 9, **args: object) -> dict[str, Any]:
    args = {"device": 0, "stream": 20, "correlation": correlation, **args}
    return x("kernel", KERNEL, ts, dur, **args)


def launch(ts: float, correlation: int, tid: int = 963) -> dict[str, Any]:
    return x("cuda_runtime", "cudaLaunchKernelExC", ts, 3, tid, correlation=correlation)


def document(*events: object, **members: object) -> str:
    return json.dumps({"schemaVersion": 1, **members, "traceEvents": list(events)}, indent=1)


def collective(file: TraceFile, row: int = 0) -> TraceCollective:
    place = file.columns.collective[row]
    assert place >= 0
    return file.collectives[place]


def codes(file: TraceFile) -> dict[str, int]:
    return {d.code: d.count for d in file.diagnostics}


@pytest.mark.parametrize(("case", "expected_ms"), [("default", 0.63), ("ringll", 1.26)])
def test_transfer_per_step_of_the_blocking_recording(
    samples: Path, case: str, expected_ms: float
) -> None:
    durations = []
    for rank in range(4):
        file = one(read(samples / "traces" / case / f"rank{rank}.json.gz"))
        assert (file.rank, file.world_size, file.device) == (rank, 4, str(rank))
        assert file.library_version == "2.28.9"
        assert file.diagnostics == ()
        assert file.streams == ("7",)
        c = file.columns
        assert np.bincount(c.kind).tolist() == [177, 0, 72]
        assert (c.launch_ns > BASE).all()
        assert (c.launch_ns < c.start_ns).all()
        mine = c.collective >= 0
        ops = [file.collectives[i].op for i in c.collective[mine]]
        assert ops == ([Op.ALL_REDUCE] * 4 + [Op.ALL_GATHER, Op.REDUCE_SCATTER]) * 3
        durations.append((c.end_ns - c.start_ns)[mine])
    # Three steps of six calls; a call's transfer is its time on the rank that came last.
    per_step = np.min(durations, axis=0).reshape(3, 6).sum(axis=1)
    assert per_step.mean() / 1e6 == pytest.approx(expected_ms, abs=0.005)


def test_times_are_exact_to_the_nanosecond(samples: Path) -> None:
    c = one(read(samples / "traces" / "default" / "rank0.json.gz")).columns
    # "ts": 4320677119753.052, "dur": 318.175, correlation 828, launched at 4320677114628.14
    row = np.flatnonzero(c.collective >= 0)[3]
    assert c.start_ns[row] == BASE + 4320677119753052
    assert c.end_ns[row] - c.start_ns[row] == 318175
    assert c.launch_ns[row] == BASE + 4320677114628140


def test_sample_and_recording_give_the_same(samples: Path, recordings: Path) -> None:
    sample = one(read(samples / "traces" / "ringll" / "rank2.json.gz"))
    whole = one(read(recordings / "blocking" / "ringll" / "rank2.json.gz"))
    assert sample.collectives == whole.collectives
    assert (sample.columns.start_ns == whole.columns.start_ns).all()
    assert (sample.columns.launch_ns == whole.columns.launch_ns).all()


def test_arguments_on_kernels_of_a_public_trace(corpus: Path) -> None:
    file = one(read(corpus / "kineto" / "hta-nccl_data.json.gz"))
    assert (file.rank, file.world_size, file.library_version) == (0, 2, "2.17.1")
    calls = [file.collectives[i] for i in file.columns.collective if i >= 0]
    assert [c.op for c in calls].count(Op.ALL_REDUCE) == 15
    assert [c.op for c in calls].count(Op.BROADCAST) == 6
    assert {c.group_ranks for c in calls} == {(0, 1)}
    sizes = {2431040, 6637568, 2049000, 7875584, 6563840}
    assert {c.in_count for c in calls if c.op is Op.ALL_REDUCE} == sizes
    assert len(file.steps) == 3
    assert file.diagnostics == ()


def test_public_trace_without_arguments(corpus: Path) -> None:
    file = one(read(corpus / "kineto" / "hta-sampled_rank-0.json.gz"))
    c = file.columns
    assert (file.rank, file.world_size) == (0, 128)
    assert np.bincount(c.kind).tolist() == [1154, 40, 10]
    nccl = np.array(["nccl" in name for name in file.names])[c.name]
    assert ((c.collective >= 0) == nccl).all()
    took, kernels = c.end_ns - c.start_ns, c.kind == Kind.KERNEL
    assert took[nccl].sum() / took[kernels].sum() == pytest.approx(0.653, abs=0.001)
    # "Input Dims": [[19618307]] of the annotation "nccl:all_reduce" around the launch.
    calls = [file.collectives[i] for i in c.collective if i >= 0]
    expected = TraceCollective(Op.ALL_REDUCE, Datatype.FLOAT32, in_count=19618307)
    assert expected in [replace(c, blocks=None) for c in calls]
    assert {c.blocks for c in calls} == {16}


@pytest.mark.parametrize("how", ["External id", "launch", "flow"])
def test_arguments_on_record_param_comms(how: str) -> None:
    record = x("cpu_op", "record_param_comms", 50, 30, 963, **{"External id": 20}, Seq=4, Rank=1,
               **ALL_REDUCE)  # fmt: skip
    # In 2023 a kernel's External id was its correlation id, which some operator has as well.
    other = {**ALL_REDUCE, "In msg nelems": 1, "External id": 9}
    second = x("cpu_op", "record_param_comms", 90, 30, 963, **other)
    flow = {"ph": "s", "id": 9, "tid": 963, "ts": 60, "cat": "ac2g", "name": "ac2g"}
    extra = {"External id": 20} if how == "External id" else {"External id": 9}
    events = [kernel(**extra), second, record]
    if how == "launch":
        events += [launch(60, 9), launch(60, 8, tid=5)]
    if how == "flow":
        events.append(flow)
    file = one(document(*events))
    call = collective(file)
    assert (call.op, call.in_count, call.group, call.group_ranks) == (
        Op.ALL_REDUCE,
        4096,
        "0",
        (0, 1),
    )
    assert file.columns.seq.tolist() == [4]
    assert file.rank == 1  # the group's second
    assert file.columns.launch_ns.tolist() == [-1 if how == "External id" else 60_000]


def test_name_alone() -> None:
    file = one(document(kernel(), x("kernel", "checkForNaN", 1, 1, **ALL_REDUCE)))
    # PyTorch's checks run inside the collective's call and get its arguments.
    assert collective(file, 1) == TraceCollective(Op.ALL_REDUCE, Datatype.BFLOAT16)
    assert codes(file) == {"no_collective_arguments": 1}
    assert file.columns.collective.tolist()[0] == -1


def test_why_a_kernel_has_no_arguments() -> None:
    """No cpu_op at all; cpu_ops that tell other kernels; cpu_ops that tell none."""
    told = kernel(ts=200, correlation=8, **ALL_REDUCE)
    operator = x("cpu_op", "aten::add", 50, 1)
    for events, why in (
        ([kernel()], "ProfilerActivity.CPU"),
        ([kernel(), told, operator], "before the profiler began"),
        ([kernel(), operator], "PyTorch 2.4"),
    ):
        (note,) = one(document(*events)).diagnostics
        assert why in note.message


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_kernels_of_a_graph_are_not_the_fault_of_an_old_pytorch(call: str) -> None:
    """One launch, two kernels; beside them one that a plain launch started."""
    graph = x("cuda_runtime", call, 50, 3, 963, correlation=9)
    first, second = kernel(), kernel(ts=110)
    operator = x("cpu_op", "aten::add", 50, 1)
    file = one(
        document(graph, first, second, launch(60, 8), kernel(ts=200, correlation=8), operator)
    )
    assert codes(file) == {"graph_collectives": 2, "no_collective_arguments": 1}
    (note,) = [d for d in file.diagnostics if d.code == "graph_collectives"]
    assert "PyTorch 2.4" not in note.message
    assert "NCCL's log" in note.message


@pytest.mark.parametrize(("description", "known"), [("mesh_tp", "mesh_tp"), ("undefined", None)])
def test_names_of_groups_and_gpus(description: str, known: str | None) -> None:
    config = [{"pg_name": "0", "pg_desc": description, "pg_size": 2, "ranks": [0, 1]}]
    devices = [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "another"}]
    info = {"rank": 0, "world_size": 4, "pg_config": config}
    told = kernel(**{**ALL_REDUCE, "Process Group Name": "0"})
    file = one(document(told, distributedInfo=info, deviceProperties=devices))
    assert (collective(file).description, file.gpu, file.world_size) == (known, "NVIDIA H200", 4)


def test_groups_that_the_rank_is_in() -> None:
    """Of the header alone, as of traces of CUDA activities; a group of one rank waits for none."""
    config = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]},
        {"pg_name": "a", "pg_desc": "mesh_tp", "pg_size": 2, "ranks": [2, 3]},
        {"pg_name": "b", "pg_desc": "self", "pg_size": 1, "ranks": [2]},
        {"pg_name": "c", "pg_desc": "elsewhere", "pg_size": 2, "ranks": [0, 1]},
    ]
    info = {"rank": 2, "world_size": 4, "pg_config": config}
    file = one(document(kernel(), distributedInfo=info))
    assert file.groups == ((0, 1, 2, 3), (2, 3))


def test_process_group_of_early_2024() -> None:
    args = {**ALL_REDUCE, "Process Group ID": 3}
    del args["Process Group Name"]
    assert collective(one(document(kernel(**args)))).group == "3"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"Process Group Ranks": "[0, 1, ..., 3]", "Process Group Name": "tp"}, (4, 5, 6, 7)),
        ({"Process Group Ranks": "[0, 1, ...]", "Global rank start": 2, "Global rank stride": 2},
         (2, 4, 6, 8)),
        ({"Process Group Ranks": "[0, 1, ...]", "Global rank start": 2, "Global rank stride": -1},
         None),
        ({"Process Group Ranks": ""}, None),
        ({"Process Group Ranks": [0, 2, 4, 6]}, (0, 2, 4, 6)),
    ],
)  # fmt: skip
def test_ranks_of_the_group(given: dict[str, Any], expected: tuple[int, ...] | None) -> None:
    info = {"rank": 4, "world_size": 8, "pg_config": [{"pg_name": "tp", "ranks": "[4, 5, 6, 7]"}]}
    args = {**ALL_REDUCE, "Group size": 4, **given}
    call = collective(one(document(kernel(**args), distributedInfo=info)))
    assert call.group_ranks == expected


def test_uneven_all_to_all_and_peers() -> None:
    split = {"In split size": "[1, 3]", "Out split size": "[2, 2]", "dtype": "ComplexFloat"}
    uneven = {**ALL_REDUCE, **split, "Collective name": "all_to_allv", "In msg nelems": 4}
    send = {**ALL_REDUCE, "Collective name": "send", "Dst Rank": 5, "Seq": 2}
    recv = {**ALL_REDUCE, "Collective name": "recv", "Src Rank": 6}
    file = one(document(kernel(1, **uneven), kernel(2, **send), kernel(3, **recv)))
    first, second, third = (collective(file, row) for row in range(3))
    assert (first.op, first.in_split, first.out_split) == (Op.ALL_TO_ALLV, (2, 6), (4, 4))
    assert (first.datatype, first.in_count) == (Datatype.FLOAT32, 8)
    assert (second.op, second.peer, third.op, third.peer) == (Op.SEND, 5, Op.RECV, 6)
    assert file.columns.seq.tolist() == [-1, 2, -1]


@pytest.mark.parametrize(
    ("name", "parts", "op"),
    [
        ("all_to_allv", "[]", Op.ALL_TO_ALL),  # all_to_all_single without sizes, PyTorch 2.11
        ("all_to_allv", "[5, 5]", Op.ALL_TO_ALLV),  # other ranks may send other sizes
        ("all_to_allv", "[1, 2, ...]", Op.ALL_TO_ALLV),
        ("all_to_all", "[4, 6]", Op.ALL_TO_ALLV),  # of lists
        ("all_to_all", "[]", Op.ALL_TO_ALL),
    ],
)
def test_the_parts_tell_even_from_uneven(name: str, parts: str, op: Op) -> None:
    args = {**ALL_REDUCE, "Collective name": name, "In msg nelems": 10, "Out msg nelems": 10}
    file = one(document(kernel(**args, **{"In split size": parts, "Out split size": parts})))
    assert collective(file).op is op


def test_hip_trace_copies_steps_and_annotations() -> None:
    generic = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
    file = one(
        document(
            x("kernel", generic, 30, 5, device=1, stream=3, correlation=4, **ALL_REDUCE),
            x("cuda_runtime", "hipExtLaunchKernel", 21, 2, 5, correlation=4),
            x("gpu_memcpy", "CopyDeviceToDevice", 10.5, 1, device=1, stream=0, correlation=3),
            x("gpu_memset", "Memset (Device)", 12, 1, device=1, stream=0),
            x("gpu_user_annotation", "nccl:all_reduce", 30, 5),
            x("user_annotation", "ProfilerStep#7", 5, 100, 5),
            x("gpu_user_annotation", "ProfilerStep#7", 7, 100, 5),
            distributedInfo={"rank": "1", "world_size": 2},
        )
    )
    c = file.columns
    assert c.kind.tolist() == [Kind.COPY, Kind.MEMSET, Kind.KERNEL]
    assert c.start_ns.tolist() == [10_500, 12_000, 30_000]
    assert c.launch_ns.tolist() == [-1, -1, 21_000]
    assert [file.streams[s] for s in c.stream] == ["0", "0", "3"]
    assert collective(file, 2).op is Op.ALL_REDUCE
    assert file.steps == ((5_000, 105_000),)
    assert (file.rank, file.device) == (1, "1")


@pytest.mark.parametrize(
    ("prompts", "tokens"),
    [
        ("execute_context_1(512)_generation_31(31)", "execute_context_0(0)_generation_32(32)"),
        ("step[EXTEND bs=2 toks=8192]", "step[DECODE bs=32]"),
    ],
)
def test_marks_of_an_engine_are_steps_of_one_kind(prompts: str, tokens: str) -> None:
    """One step reads a prompt, between two and five that generate."""
    names = 2 * [tokens] + [prompts] + 5 * [tokens]
    marks = [x("user_annotation", name, 100 * k, 90, 5) for k, name in enumerate(names)]
    file = one(document(*marks, kernel(20)))
    assert file.steps == tuple((100_000 * k, 100_000 * k + 90_000) for k in range(3, 8))
    assert codes(file)["steps_of_another_kind"] == 3
    both = one(document(*marks, x("user_annotation", "ProfilerStep#7", 5, 700, 5), kernel(20)))
    assert both.steps == ((5_000, 705_000),)


def test_a_process_with_several_devices() -> None:
    events = [kernel(ts=t, device=d, stream=7) for t, d in ((5, 1), (1, 0), (3, 1))]
    first, second = parse([document(*events).encode()], "t")
    assert (first.device, second.device) == ("0", "1")
    assert second.columns.start_ns.tolist() == [3000, 5000]
    # With a rank it is one trace, whose streams name their device.
    file = one(document(*events, distributedInfo={"rank": 0}))
    assert {file.streams[s] for s in file.columns.stream} == {"0/7", "1/7"}


def test_absolute_times_with_a_fraction_keep_it() -> None:
    events = json.dumps([kernel(), launch(2, 9)]).replace('"ts": 100', '"ts": 1682725898236567.123')
    file = one(events.replace('"ts": 2,', '"ts": 1682725898236560.007,'))
    assert file.columns.start_ns.tolist() == [1682725898236567123]
    assert file.columns.launch_ns.tolist() == [1682725898236560007]


BARE = [kernel(ts=100 * t, correlation=t, **ALL_REDUCE) for t in range(1, 6)]


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("end", ["]", "", ",", ",\n]"])
def test_bare_array(indent: int | None, end: str) -> None:
    text = json.dumps(BARE, indent=indent).rstrip("]\n") + end
    file = one(text)
    assert len(file.columns) == 5
    assert codes(file) == ({} if "]" in end else {"truncated_trace": 1})


def test_cut_anywhere_keeps_what_stood_before(samples: Path) -> None:
    whole = read(samples / "traces" / "default" / "rank1.json.gz")
    expected = one(whole)
    starts = [m.start() for m in re.finditer(rb'"ph": "X", "cat": "kernel"', whole)]
    pick = random.Random(5)
    for cut in sorted(pick.sample(range(len(whole)), 150)):
        found = parse([whole[:cut]], "t")
        for file in found:
            kernels = int((file.columns.kind == Kind.KERNEL).sum())
            begun = sum(start < cut for start in starts)
            assert kernels in (begun, begun - 1)
            assert set(file.columns.start_ns) <= set(expected.columns.start_ns)
            in_events = whole.find(b'"traceEvents"') < cut < whole.rfind(b"  ],")
            assert not in_events or codes(file)["truncated_trace"] == 1
            assert file.rank == 1 or not in_events


@pytest.mark.parametrize("size", [300, 1000, 5000])
def test_slices_of_any_size_give_the_same(
    samples: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    whole = read(samples / "traces" / "default" / "rank3.json.gz")
    expected = one(whole)
    monkeypatch.setattr(_array, "_SLICE", size)
    for text in (whole, json.dumps(json.loads(whole)).encode()):
        (file,) = parse([text[i : i + 777] for i in range(0, len(text), 777)], "t")
        assert (file.columns.start_ns == expected.columns.start_ns).all()
        assert (file.columns.launch_ns == expected.columns.launch_ns).all()
        assert file.collectives == expected.collectives
        assert file.diagnostics == ()


def test_many_broken_events_are_skipped_one_by_one() -> None:
    """Each is looked at once: with a copy of all that follow it took a second per 100 kB."""
    broken = b'{"traceEvents": [' + b"},{" * 60_000
    file = one(broken)
    assert codes(file)["malformed_event"] > 59_000
    assert codes(file)["truncated_trace"] == 1


def test_malformed_events_are_counted_and_the_rest_is_kept() -> None:
    good = [kernel(ts=10 * t, note=[{"a": 1}, {"b": [{"c": "}]"}, {"d": 2}]}]) for t in range(1, 9)]
    bad: list[object] = [
        {**good[0], "ts": [1]},
        {**good[0], "args": "none"},
        {"no": "phase", "list": [{"x": 1}, {"y": 2}]},
        {**good[0], "args": {"stream": {"a": 1}, "note": [{"a": 1}, {"b": 2}]}},
    ]
    text = document(*good[:4], *bad, *good[4:], bad[0], baseTimeNanoseconds=5, after=[{"a": 1}])
    file = one(text)
    assert file.columns.start_ns.tolist() == [10_000 * t + 5 for t in range(1, 9)]
    assert codes(file) == {"malformed_event": 5, "no_collective_arguments": 8}
    broken = text.replace('"dur": 5', '"dur": NaN', 1)
    assert len(one(broken).columns) == 7
    assert codes(one(broken))["malformed_event"] >= 6
    assert all(d.severity in (Severity.DATA_LOSS, Severity.NOTICE) for d in file.diagnostics)


def test_launches_without_a_kernel_are_counted() -> None:
    """Not those into a graph, nor those behind the last kernel while the GPU was still at work."""
    kernels = [kernel(ts=100.0 + 10 * n, correlation=n) for n in (1, 2, 5)]
    launches = [launch(50.0 + n, n) for n in range(1, 9)]
    assert codes(one(document(*kernels, *launches)))["many_kernels_lost"] == 2 + 3
    assert "many_kernels_lost" not in codes(one(document(*kernels, *launches[:2])))
    until = launch(150.0, 99)  # the host goes on until the profiler stops: the GPU had not come to
    stopped = document(*kernels, *launches, until)  # the last launches then
    assert codes(one(stopped))["many_kernels_lost"] == 2
    waited = x("cuda_runtime", "cudaDeviceSynchronize", 60, 90, 963, correlation=21)
    assert codes(one(document(*kernels, *launches, waited)))["many_kernels_lost"] == 2 + 3
    capture = x("cuda_runtime", "cudaStreamBeginCapture", 49, 1, 963, correlation=20)
    assert "many_kernels_lost" not in codes(one(document(*kernels, capture, *launches)))


def test_one_launch_in_a_hundred_may_lack_its_kernel() -> None:
    kernels = [kernel(ts=1000.0 + 10 * n, correlation=n) for n in range(1, 201) if n % 100 != 50]
    launches = [launch(50.0 + n, n) for n in range(1, 201)]
    assert codes(one(document(*kernels, *launches)))["kernels_lost"] == 2


def test_activities_without_time_are_counted() -> None:
    events = [kernel(), kernel(ts=-5), kernel(dur=-1), kernel(ts=1e300), {**kernel(), "dur": None}]
    file = one(document(*events))
    assert len(file.columns) == 1
    assert codes(file)["untimed_activity"] == 4


@pytest.mark.parametrize("text", ["", "{", "[", '{"traceEvents": []}', '{"traceEvents": [', "[]"])
def test_nothing_to_read(text: str) -> None:
    for file in parse([text.encode()], "t"):
        assert len(file.columns) == 0
        assert "no_gpu_activity" in codes(file)


def test_sniffing(samples: Path) -> None:
    assert sniff(read(samples / "traces" / "default" / "rank0.json.gz")[:4096]) == "kineto"
    assert sniff(json.dumps(BARE).encode()) == "kineto"
    for other in (
        b"",
        b"NCCL version 2.28",
        b'[{"name": "x", "cat": "COLL_API", "ph": "b"}',
        b"\0",
    ):
        assert sniff(other) in (None, "profiler_plugin")
        assert parse([other], "t") == []


def test_names() -> None:
    assert parse_collective("nccl:_reduce_scatter_base") is Op.REDUCE_SCATTER
    assert parse_collective("allgather_into_tensor_coalesced") is Op.ALL_GATHER
    assert parse_collective("nccl:recv 1<-0") is Op.RECV
    assert parse_collective("wait") is Op.UNKNOWN
    assert parse_dtype("Float8_e4m3fn") == (Datatype.FLOAT8E4M3, 1)
    assert parse_dtype("c10::BFloat16") == (Datatype.BFLOAT16, 1)
    assert parse_dtype("Long") == (Datatype.INT64, 1)
    assert whole_list("[]") == ()
    assert whole_list("0,1") == (0, 1)
    assert whole_list(["0"]) is None


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_wrong_types_never_raise(seed: int) -> None:
    pick = random.Random(seed)
    record = x("cpu_op", "record_param_comms", 50, 30, 963, **ALL_REDUCE, Rank=1)
    note = x("user_annotation", "nccl:all_reduce", 50, 30, 963, **{"Input Dims": [[5]]})
    events = [kernel(**ALL_REDUCE), launch(60, 9), record, note, kernel(correlation=9)]
    info = {"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
    whole = {"distributedInfo": info, "baseTimeNanoseconds": BASE, "traceEvents": events}
    parse([json.dumps(retyped(whole, pick)).encode()], "t")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_bytes_never_raise(seed: int) -> None:
    pick = random.Random(seed)
    text = document(kernel(**ALL_REDUCE), launch(60, 9), kernel(), distributedInfo={"rank": 0})
    parse([damaged(text.encode(), pick)], "t")


_KERNEL = (
    b'{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2,'
    b' "args": {"stream": 7, "device": 0, "correlation": 1%s}}'
)
_DEEP_LIST = b', "x": ' + b"[" * 100_000 + b"]" * 100_000
_DEEP_TABLE = b', "x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000
_LONG = b', "x": "' + b"a" * (70 << 20) + b'"'


@pytest.mark.parametrize(
    ("text", "codes", "kernels"),
    [
        (b'{"traceEvents": [%s, %s]}' % (_KERNEL % b"", _KERNEL % _DEEP_LIST), {"deep_event"}, 1),
        (b'{"traceEvents": [%s, %s]}' % (_KERNEL % _DEEP_TABLE, _KERNEL % b""), {"deep_event"}, 1),
        (
            b'{"x": "%s", "traceEvents": [%s]}' % (b"a" * (70 << 20), _KERNEL % b""),
            {"large_value"},
            0,
        ),
        (b'{"traceEvents": [%s, %s]}' % (_KERNEL % b"", _KERNEL % _LONG), {"large_value"}, 1),
        (b'{"traceEvents": [%s, %s' % (_KERNEL % b"", _KERNEL % b""), {"truncated_trace"}, 2),
    ],
    ids=["lists", "tables", "header", "string", "cut"],
)
def test_a_limit_is_not_called_a_cut(text: bytes, codes: set[str], kernels: int) -> None:
    """Valid JSON beyond what a reader takes, beside a document that is cut."""
    chunks = (text[at : at + (1 << 20)] for at in range(0, len(text), 1 << 20))
    found = kineto.parse(chunks, "a.json")
    told = {d.code for file in found for d in file.diagnostics}
    assert told - {"malformed_event"} >= codes
    assert ("truncated_trace" in told) == ("truncated_trace" in codes)
    assert sum(len(file.columns.start_ns) for file in found) == kernels
