"""Host calls of ROCm's profiles: RPD, rocpd and rocprofv3's JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from msgspec.structs import replace
from readers import parse
from trace_converter import HostCall, Recording, Row, rocpd, rocprof_json, rpd

from collscope.model import Datatype, Op
from collscope.model.trace import Call, Kind, TraceFile
from collscope.model.trace_collective import TraceCollective
from collscope.parsers import rocpd as rocpd_parser
from collscope.parsers import rpd as rpd_parser
from collscope.parsers.traces.of_profile import profile_traces


@pytest.fixture
def memory() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield connection


def example() -> Recording:
    """A kernel on stream 7, a copy and a graph on stream 13, and calls that order them."""
    rows = (
        Row(Kind.KERNEL, "gemm", 7, 20, 30, 1, 4),
        Row(Kind.COPY, "Memcpy", 13, 40, 50, 2, 0),
        Row(Kind.KERNEL, "a", 13, 60, 70, 3, 1),
        Row(Kind.KERNEL, "b", 13, 75, 80, 3, 1),
        Row(Kind.KERNEL, "before", 7, 5, 10, 0, 1),  # launched before the trace
    )
    calls = (
        HostCall(1, "LaunchKernel", Call.LAUNCH, 101, 1, 2, None, None),
        HostCall(2, "MemcpyAsync", Call.LAUNCH, 101, 3, 4, None, None),
        HostCall(3, "GraphLaunch", Call.LAUNCH, 101, 5, 6, None, None),
        HostCall(4, "EventRecord", Call.RECORD, 101, 7, 8, 7, 5),
        HostCall(5, "StreamWaitEvent", Call.WAIT, 101, 9, 10, 13, 5),
        HostCall(6, "StreamSynchronize", Call.STREAM_SYNC, 102, 11, 90, 13, None),
    )
    return Recording(3, 4, rows, calls)


def calls_of(trace: TraceFile) -> list[tuple[Call, str | None, int]]:
    calls, label = trace.calls, [*trace.streams, None]
    assert calls is not None
    streams = [label[k] for k in calls.stream.tolist()]
    kinds = [Call(kind) for kind in calls.kind.tolist()]
    return list(zip(kinds, streams, calls.event.tolist(), strict=True))


LAUNCHES = [(Call.LAUNCH, None, -1)] * 3


def test_rocpd_streams_are_known_by_what_was_launched_on_them(memory: sqlite3.Connection) -> None:
    rocpd(memory, example())
    memory.execute("INSERT INTO rocpd_region_1f SELECT 99, 'g', 1, pid, tid, 1, 2, 1, 77 FROM"
                   " rocpd_region_1f LIMIT 1")  # fmt: skip
    (trace,) = profile_traces(rocpd_parser.parse(memory))
    assert (trace.rank, trace.world_size, trace.host) == (3, 4, "n3")
    assert calls_of(trace)[3:] == [
        (Call.RECORD, "7", 0),
        (Call.WAIT, "13", 0),
        (Call.STREAM_SYNC, "13", -1),
    ]
    assert trace.calls is not None
    assert trace.calls.of_row.tolist() == [-1, 0, 1, 2, 2]
    assert trace.calls.thread.tolist() == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("function", "op"), [("ncclAllGather", Op.ALL_GATHER), ("ncclGroupEnd", Op.UNKNOWN)]
)
def test_rocpd_the_rccl_call_around_a_launch_tells_the_operation(
    memory: sqlite3.Connection, function: str, op: Op
) -> None:
    kernel = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
    rows = tuple(
        Row(Kind.KERNEL, name, 7, 20 + k, 30 + k, 1 + k, 4) for k, name in enumerate((kernel, "k"))
    )
    own = Recording(0, 1, rows, example().calls[:2])
    rocpd(memory, own)
    # The call's own event is 900; that of the launch of each kernel has it for its parent.
    memory.executescript(
        f"""
        INSERT INTO rocpd_string_1f VALUES (90, 'g', '{function}');
        INSERT INTO rocpd_event_1f VALUES (900, 'g', 1, 500, 0, 0);
        INSERT INTO rocpd_region_1f VALUES (500, 'g', 1, 4711, 101, 0, 4, 90, 900);
        UPDATE rocpd_event_1f SET parent_stack_id = 500 WHERE stack_id IN (1, 2);
        """
    )
    (trace,) = profile_traces(rocpd_parser.parse(memory))
    assert [(c.op, c.blocks) for c in trace.collectives] == [(op, 4)]
    assert trace.columns.collective.tolist() == [0, -1]


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (
            "ncclAllReduce",
            {"count": "4096", "datatype": "7", "op": "0", "comm": "0x5581", "stream": "0x7f"},
            TraceCollective(Op.ALL_REDUCE, Datatype.FLOAT32, redop="Sum", count_bytes=16384),
        ),
        (
            "ncclAllGather",
            {"sendcount": "10", "datatype": "ncclBfloat16"},
            TraceCollective(Op.ALL_GATHER, Datatype.BFLOAT16, count_bytes=20),
        ),
        (
            "ncclReduceScatter",
            {"recvcount": "8", "datatype": "6", "op": "ncclAvg"},
            TraceCollective(Op.REDUCE_SCATTER, Datatype.FLOAT16, redop="Avg", count_bytes=16),
        ),
        (
            "ncclBroadcast",
            {"count": "3", "datatype": "1", "root": "2"},
            TraceCollective(Op.BROADCAST, Datatype.UINT8, root=2, count_bytes=3),
        ),
        (
            "ncclAllReduce",
            {"count": "x", "datatype": "99", "op": ""},
            TraceCollective(Op.ALL_REDUCE),
        ),
    ],
)
def test_rocpd_the_arguments_of_an_rccl_call_tell_its_size(
    memory: sqlite3.Connection,
    function: str,
    arguments: dict[str, str],
    expected: TraceCollective,
) -> None:
    kernel = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
    own = Recording(0, 1, (Row(Kind.KERNEL, kernel, 7, 20, 30, 1, 4),), example().calls[:1])
    rocpd(memory, own)
    memory.executescript(
        f"""
        INSERT INTO rocpd_string_1f VALUES (90, 'g', '{function}');
        INSERT INTO rocpd_event_1f VALUES (900, 'g', 1, 500, 0, 0);
        INSERT INTO rocpd_region_1f VALUES (500, 'g', 1, 4711, 101, 0, 4, 90, 900);
        UPDATE rocpd_event_1f SET parent_stack_id = 500 WHERE stack_id = 1;
        """
    )
    for name, value in arguments.items():
        row = (name, value)
        memory.execute("INSERT INTO rocpd_arg_1f VALUES (NULL, 'g', 900, 0, 'size_t', ?, ?)", row)
    (trace,) = profile_traces(rocpd_parser.parse(memory))
    assert [replace(c, blocks=None) for c in trace.collectives] == [expected]


def test_a_pointer_of_two_streams_tells_none(memory: sqlite3.Connection) -> None:
    """Stream 13 was destroyed, and its address given to another."""
    rocpd(memory, example())
    memory.execute("UPDATE rocpd_kernel_dispatch_1f SET stream_id = 14 WHERE start = 60")
    (trace,) = profile_traces(rocpd_parser.parse(memory))
    # The graph now ran on two streams and tells neither; the copy still tells.
    assert {s for kind, s, _ in calls_of(trace) if kind is Call.STREAM_SYNC} == {"13"}
    memory.execute("UPDATE rocpd_kernel_dispatch_1f SET stream_id = 14 WHERE start = 75")
    (trace,) = profile_traces(rocpd_parser.parse(memory))
    assert {s for kind, s, _ in calls_of(trace) if kind is Call.STREAM_SYNC} == {None}


@pytest.mark.parametrize(
    "environment",
    [
        "{",
        "[1]",
        '{"RANK": "3"}',
        '{"RANK": "4", "WORLD_SIZE": "4"}',
        '{"RANK": 3, "WORLD_SIZE": 4}',
    ],
)
def test_an_environment_without_a_rank(memory: sqlite3.Connection, environment: str) -> None:
    rocpd(memory, example())
    memory.execute("UPDATE rocpd_info_process_1f SET environment = ?", (environment,))
    (trace,) = profile_traces(rocpd_parser.parse(memory))
    assert (trace.rank, trace.world_size) == (None, None)


@pytest.mark.parametrize("arguments", [True, False])
def test_rpd_streams_are_those_of_the_calls(memory: sqlite3.Connection, arguments: bool) -> None:
    """Pointers 0x7f0000000000 + 64 * stream; what no call launched is by its queue's others."""
    rpd(memory, example(), arguments=arguments)
    (trace,) = profile_traces(rpd_parser.parse(memory))
    assert [trace.streams[s] for s in trace.columns.stream] == [
        "0x7f00000001c0", "0x7f00000001c0", "0x7f0000000340", "0x7f0000000340", "0x7f0000000340",
    ]  # fmt: skip
    wait, sync = (Call.WAIT, "0x7f0000000340", 0), (Call.STREAM_SYNC, "0x7f0000000340", -1)
    record = (Call.RECORD, "0x7f00000001c0", 0)
    untold = [(Call.WAIT, None, -1), (Call.STREAM_SYNC, None, -1)]
    assert calls_of(trace) == [*LAUNCHES, *([record, wait, sync] if arguments else untold)]


def test_rpd_queues_of_several_streams_stay_queues(memory: sqlite3.Connection) -> None:
    rpd(memory, example(), arguments=True)
    memory.execute("UPDATE rocpd_op SET queueId = 2")
    (trace,) = profile_traces(rpd_parser.parse(memory))
    assert trace.streams[int(trace.columns.stream[0])] == "2"


def test_rpd_of_one_call_in_two_rows(memory: sqlite3.Connection) -> None:
    """An operation that two calls claim, as nested ones do, is one operation still."""
    rpd(memory, example(), arguments=True)
    memory.execute("INSERT INTO rocpd_api_ops SELECT NULL, api_id + 1, op_id FROM rocpd_api_ops")
    (trace,) = profile_traces(rpd_parser.parse(memory))
    assert len(trace.columns) == 5
    assert trace.columns.launch_ns.tolist() == [-1, 1, 3, 5, 5]


def test_rocprof_json_names_the_streams_of_calls() -> None:
    (trace,) = parse([rocprof_json(example())], "t")
    assert calls_of(trace) == [
        *LAUNCHES,
        (Call.RECORD, "7", -1),
        (Call.WAIT, "13", -1),
        (Call.STREAM_SYNC, "13", -1),
    ]
    # Stream 0 is the default one, or none: it tells nothing.
    document = json.loads(rocprof_json(example()))
    for call in document["rocprofiler-sdk-tool"][0]["buffer_records"]["hip_api"]:
        call["stream_id"] = {"handle": 0}
    (trace,) = parse([json.dumps(document).encode()], "t")
    assert {stream for _, stream, _ in calls_of(trace)} == {None}


def test_thread_blocks_of_collectives() -> None:
    """A HIP grid counts threads: 24 blocks of 256."""
    kernel = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
    own = Recording(0, 1, (Row(Kind.KERNEL, kernel, 7, 20, 30, 1, 24),), example().calls[:1])
    (trace,) = parse([rocprof_json(own)], "t")
    assert [c.blocks for c in trace.collectives] == [24]
    with closing(sqlite3.connect(":memory:")) as connection:
        rocpd(connection, own)
        (trace,) = profile_traces(rocpd_parser.parse(connection))
    assert [c.blocks for c in trace.collectives] == [24]
