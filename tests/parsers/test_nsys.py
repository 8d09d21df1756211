"""Exports of Nsight Systems: host calls, and what NCCL's NVTX payloads tell of the kernels."""

from __future__ import annotations

import math
import random
import sqlite3
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import make_profiles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_builder import SCHEMA, SCHEMAS, STATIC, Export, blob, global_pid, global_tid

from collscope.model import Datatype, Op, Profile
from collscope.model.trace import Call, TraceCollective, TraceFile
from collscope.parsers import nsys
from collscope.parsers.nvtx_payload import Entry, Enum, decode, fields_of, payload_of
from collscope.parsers.traces.of_profile import profile_traces

SAMPLE = Path(make_profiles.SAMPLES) / "synthetic.nccl.nsys.sqlite"
GROUP = "0xc0ffee00ddba11"


@pytest.fixture
def memory() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield connection


def told(trace: TraceFile) -> list[TraceCollective | None]:
    """Collectives in the order of their start; None for a row that is none."""
    table = [*trace.collectives, None]
    return [table[k] for k in trace.columns.collective.tolist()]


def codes(profile: Profile) -> dict[str, int]:
    return {d.code: d.count for d in profile.diagnostics}


def test_the_sample_tells_what_each_kernel_carries_out() -> None:
    """Written down from the comment in make_profiles.nsys_nccl, not from what the reader gives."""
    with closing(sqlite3.connect(SAMPLE)) as connection:
        profile = nsys.parse(connection)
    traces = profile_traces(profile)
    assert [(t.rank, t.world_size, t.device, t.gpu) for t in traces] == [
        (0, 2, "4711:0", "NVIDIA H200"),
        (1, 2, "4712:1", "NVIDIA H200"),
    ]
    for trace in traces:
        peer = 1 - (trace.rank or 0)

        def call(op: Op, size: int, trace: TraceFile = trace, **more: object) -> TraceCollective:
            whole = {"group": GROUP, "group_size": 2, "blocks": 24, "count_bytes": size, **more}
            return TraceCollective(op, **whole)  # type: ignore[arg-type]

        bf16 = {"datatype": Datatype.BFLOAT16}
        named = TraceCollective(Op.ALL_REDUCE, Datatype.BFLOAT16, blocks=24)
        assert told(trace) == [
            TraceCollective(Op.ALL_REDUCE, Datatype.BFLOAT16, blocks=1),
            None,
            call(Op.ALL_REDUCE, 4096, redop="Sum", **bf16),
            call(Op.ALL_REDUCE, 8192, redop="Avg", **bf16),
            call(Op.ALL_GATHER, 1000),
            call(Op.BROADCAST, 256, root=1),
            call(Op.RECV if trace.rank else Op.SEND, 512, peer=peer),
            TraceCollective(Op.SEND_RECV, group=GROUP, group_size=2, blocks=24),
            TraceCollective(Op.REDUCE_SCATTER, Datatype.BFLOAT16, blocks=24),
            named,
            named,
        ]
    assert codes(profile) == {"unknown_nccl_payload": 4, "no_collective_arguments": 4}


def test_ranges_without_payloads_tell_the_operation(memory: sqlite3.Connection) -> None:
    make_profiles.nsys_nccl(memory)
    memory.execute("UPDATE NVTX_EVENTS SET binaryData = NULL")
    profile = nsys.parse(memory)
    entries = [e for trace in profile_traces(profile) for e in told(trace) if e is not None]
    assert {e.count_bytes for e in entries} == {e.group for e in entries} == {None}
    assert Op.SEND in {e.op for e in entries}
    # 6 calls alone and 5 in groups a rank
    assert codes(profile) == {"no_nccl_payload": 22, "no_collective_arguments": 4}
    assert {trace.rank for trace in profile_traces(profile)} == {None}


def test_a_file_without_ranges_says_how_to_get_them(memory: sqlite3.Connection) -> None:
    make_profiles.nsys_nccl(memory)
    memory.execute("DROP TABLE NVTX_EVENTS")
    profile = nsys.parse(memory)
    assert codes(profile) == {"no_collective_arguments": 20}
    assert "--trace=cuda,nvtx" in profile.diagnostics[0].message


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES",
        "ALTER TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES DROP COLUMN offset",
        # Two processes register one schema in two ways: which is meant is not told.
        "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES SELECT domainId, schemaId, idx, flags, type,"
        " 'Else', description, arrayOrUnionDetail, offset FROM NVTX_PAYLOAD_SCHEMA_ENTRIES",
    ],
)
def test_without_a_schema_nothing_is_guessed(memory: sqlite3.Connection, change: str) -> None:
    make_profiles.nsys_nccl(memory)
    memory.execute(change)
    profile = nsys.parse(memory)
    entries = [e for trace in profile_traces(profile) for e in told(trace) if e is not None]
    assert {e.count_bytes for e in entries} == {e.group for e in entries} == {None}
    assert codes(profile) == {"unknown_nccl_payload": 22, "no_collective_arguments": 4}


def test_an_offset_of_zero_behind_the_first_entry_is_the_next_place(
    memory: sqlite3.Connection,
) -> None:
    """NVTX fills in what a program leaves 0; so the sample without offsets reads the same."""
    make_profiles.nsys_nccl(memory)
    before = profile_traces(nsys.parse(memory))
    memory.execute("UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET offset = NULL")
    after = profile_traces(nsys.parse(memory))
    assert [told(t) for t in after] == [told(t) for t in before]


def test_a_communicator_made_out_of_another_does_not_hide_the_world(
    memory: sqlite3.Connection,
) -> None:
    """A split leaves the rank known; a second communicator that was made alone does not."""
    make_profiles.nsys_nccl(memory)
    export = Export(memory, made=True)
    export._strings.update(memory.execute("SELECT value, id FROM StringIds").fetchall())
    split, other = (blob("ncclCommInitRankConfig", [name, 2, 1, 0]) for name in (77, 78))
    export.range("ncclCommSplit", (5, 6), (4711, 4811), split)
    assert [t.rank for t in profile_traces(nsys.parse(memory))] == [0, 1]
    export.range("ncclCommInitRankConfig", (7, 8), (4711, 4811), other)
    assert [t.rank for t in profile_traces(nsys.parse(memory))] == [None, 1]


def test_the_older_layout_without_a_communicator(memory: sqlite3.Connection) -> None:
    """NCCL 2.16 to 2.24: {size_t bytes; int root;}, called "Bytes"; the schema tells no size."""
    export = Export(memory, nvtx=True)
    schema = STATIC + 6
    export.insert("NVTX_PAYLOAD_SCHEMAS", 1, schema, "Broadcast", 1, None, 2, None, None)
    for place, row in enumerate(((22, "Bytes", None), (5, "Root", 8))):
        export.insert(
            "NVTX_PAYLOAD_SCHEMA_ENTRIES", 1, schema, place, None, row[0], row[1], None, None,
            row[2],
        )  # fmt: skip
    own = struct.pack("<Qi4x", 4096, 3)
    raw = struct.pack("<4Q", 1, schema, 16, 48) + own  # the other reading of the last word
    export.range("ncclBroadcast", (10, 90), (5, 6), raw)
    export.call("cudaLaunchKernel_v7000", (20, 30), (5, 6), 44)
    export.kernel("ncclDevKernel_Broadcast_RING_LL()", (100, 200), (5, 0, 7), 44)
    (trace,) = profile_traces(nsys.parse(memory))
    assert told(trace) == [TraceCollective(Op.BROADCAST, root=3, count_bytes=4096, blocks=1)]
    assert trace.rank is None


def test_host_calls_with_their_streams_and_events(memory: sqlite3.Connection) -> None:
    """One launch, a record and a wait for it, a stream's synchronisation; others are not kept."""
    export = Export(memory)
    at, thread = (5, 0, 7), (5, 6)
    export.call("cudaMalloc_v3020", (1, 2), thread, 1)
    export.call("cudaLaunchKernel_v7000", (3, 4), thread, 2)
    export.call("cudaEventRecord_v3020", (5, 6), thread, 3)
    export.call("cudaStreamWaitEvent_v3020", (7, 8), thread, 4)
    export.call("cudaGraphLaunch_v10000", (9, 10), thread, 5)
    export.call("cudaStreamSynchronize_v3020", (11, 900), thread, 6)
    export.record(at, 3, 99)
    export.sync(2, (7, 8), (5, 0, 13), 4, 99)
    export.sync(3, (11, 900), (5, 0, 13), 6)
    export.kernel("gemm", (20, 30), at, 2)
    export.kernel("a", (40, 50), (5, 0, 13), 5)
    export.kernel("b", (60, 70), (5, 0, 13), 5)
    (trace,) = profile_traces(nsys.parse(memory))
    calls = trace.calls
    assert calls is not None
    label = [*trace.streams, None]
    kinds = [Call(kind) for kind in calls.kind.tolist()]
    assert kinds == [Call.LAUNCH, Call.RECORD, Call.WAIT, Call.LAUNCH, Call.STREAM_SYNC]
    assert [label[k] for k in calls.stream.tolist()] == [None, "7", "13", None, "13"]
    assert calls.event.tolist() == [-1, 0, 0, -1, -1]
    # One launch of a graph, two kernels.
    assert calls.of_row.tolist() == [0, 3, 3]
    assert trace.columns.launch_ns.tolist() == [3, 9, 9]


def test_an_event_that_is_recorded_twice(memory: sqlite3.Connection) -> None:
    """eventSyncId tells which record a wait is for, where the event's own id comes back."""
    export = Export(memory)
    export.call("cudaLaunchKernel_v7000", (3, 4), (5, 6), 2)
    export.kernel("gemm", (20, 30), (5, 0, 7), 2)
    for number, link in ((3, 1001), (4, 1002)):
        export.call("cudaEventRecord_v3020", (number * 10, number * 10 + 1), (5, 6), number)
        export.record((5, 0, 7), number, 99, link)
    export.call("cudaStreamWaitEvent_v3020", (50, 51), (5, 6), 5)
    export.sync(2, (50, 51), (5, 0, 13), 5, 99, 1001)
    (trace,) = profile_traces(nsys.parse(memory))
    assert trace.calls is not None
    assert trace.calls.event.tolist() == [-1, 0, 1, 0]


def test_a_process_with_two_devices_keeps_its_launch_times_only(
    memory: sqlite3.Connection,
) -> None:
    export = Export(memory)
    for device in (0, 1):
        export.call("cudaLaunchKernel_v7000", (3 + device, 9), (5, 6), 2 + device)
        export.kernel("gemm", (20, 30), (5, device, 7), 2 + device)
    traces = profile_traces(nsys.parse(memory))
    assert [t.calls for t in traces] == [None, None]
    assert [t.columns.launch_ns.tolist() for t in traces] == [[3], [4]]


_TYPES = {5: "i", 6: "I", 11: "b", 12: "B", 13: "h", 14: "H", 17: "q", 18: "Q", 19: "f", 22: "Q"}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(sorted(_TYPES)), min_size=1, max_size=9), st.integers(0, 2**32))
def test_any_struct_is_decoded_as_c_lays_it_out(kinds: list[int], seed: int) -> None:
    pick = random.Random(seed)
    form = "".join(_TYPES[kind] for kind in kinds)
    values = []
    for letter in form:
        raw = pick.randbytes(struct.calcsize(letter))
        (value,) = struct.unpack(letter, raw)
        values.append(0.5 if math.isnan(value) else value)  # which is not equal to itself
    packed = struct.pack("@" + form, *values)
    offsets = [
        struct.calcsize("@" + form[: k + 1]) - struct.calcsize(form[k]) for k in range(len(form))
    ]
    for told_offsets in (offsets, [None] * len(form)):
        entries = [Entry(k, None, kind, f"f{k}", told_offsets[k]) for k, kind in enumerate(kinds)]
        pick.shuffle(entries)
        found = decode(packed, fields_of(entries, {}))
        assert found == {f"f{k}": value for k, value in enumerate(values)}
        assert decode(packed[: len(packed) - 1], fields_of(entries, {})) is None


def test_fields_that_are_no_numbers_are_left_out() -> None:
    """A string of unknown length, then a number without an offset, then one with."""
    entries = [Entry(0, None, 75, "s", None), Entry(1, None, 5, "n", None), Entry(2, 0, 5, "m", 16)]
    assert [(f.name, f.offset) for f in fields_of(entries, {})] == [("m", 16)]
    assert fields_of([Entry(0, 1 << 4, 5, "array", None)], {}) == ()
    color = Enum(4, {2: "red"})
    fields = fields_of([Entry(0, None, 900, "c", None)], {900: color})
    assert decode(b"\2\0\0\0", fields) == {"c": "red"}
    assert decode(b"\7\0\0\0", fields) == {"c": 7}


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_blobs_are_counted_and_never_raise(seed: int) -> None:
    pick = random.Random(seed)
    whole = blob("ncclAllReduce", [1, 2048, 0])
    raw = bytearray(whole[: pick.randrange(len(whole) + 1)])
    for _ in range(pick.randrange(4)):
        if raw:
            raw[pick.randrange(len(raw))] = pick.randrange(256)
    found = payload_of(bytes(raw))
    if len(raw) < len(whole):
        assert found is None
    with closing(sqlite3.connect(":memory:")) as connection:
        export = Export(connection, nvtx=True)
        export.schemas(SCHEMAS)
        export.reductions()
        export.range("ncclAllReduce", (10, 90), (5, 6), bytes(raw))
        export.call("cudaLaunchKernel_v7000", (20, 30), (5, 6), 44)
        export.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", (100, 200), (5, 0, 7), 44)
        profile = nsys.parse(connection)
    (entry,) = [e for trace in profile_traces(profile) for e in told(trace)]
    assert entry is not None
    assert entry.op is Op.ALL_REDUCE
    if entry.count_bytes is None:
        assert sum(codes(profile).values()) == 1


def test_calls_that_no_range_tells_of_are_kept_as_columns_only(memory: sqlite3.Connection) -> None:
    """Thread and start of a launch are needed where NCCL's ranges are to find their kernels."""
    n = 10_000
    memory.executescript(SCHEMA)
    memory.execute("INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000')")
    kernel = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,0,7,?,?,1,1,1,1,1,NULL)"
    call = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,0,?,?,2,0)"
    pid, tid = global_pid(5), global_tid(5, 9)
    times = [(k, k * 1000) for k in range(1, n + 1)]
    memory.executemany(kernel, [(t, t + 500, k, pid) for k, t in times])
    memory.executemany(call, [(t - 900, t - 800, tid, k) for k, t in times])
    del times
    tracemalloc.start()
    profile = nsys.parse(memory)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert profile.calls is not None
    assert len(profile.calls.number) == len(profile.spans) == n
    assert peak / n < 520  # with thread and start of every launch it takes 595 bytes a kernel
