"""Writes a recorded trace as other profilers would have written it: what each tells, and no more.

Nothing is invented: calls, streams and events that the recording does not tell are not written.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
from nsys_builder import Export

from collscope.model.trace import Call, Kind, TraceFile

_NAMES = {
    Call.RECORD: "EventRecord", Call.WAIT: "StreamWaitEvent", Call.STREAM_SYNC: "StreamSynchronize",
    Call.DEVICE_SYNC: "DeviceSynchronize", Call.EVENT_SYNC: "EventSynchronize",
}  # fmt: skip
_LAUNCHES = {Kind.KERNEL: "LaunchKernel", Kind.COPY: "MemcpyAsync", Kind.MEMSET: "MemsetAsync"}
_SYNC_TYPES = {Call.EVENT_SYNC: 1, Call.WAIT: 2, Call.STREAM_SYNC: 3, Call.DEVICE_SYNC: 4}


class Row(msgspec.Struct, frozen=True):
    """An execution; times in ns since the trace's own first moment."""

    kind: Kind
    name: str
    stream: int
    start: int
    end: int
    call: int  # number of the call behind it; 0: not told
    blocks: int  # thread blocks; 0: not told


class HostCall(msgspec.Struct, frozen=True):
    number: int
    name: str  # without "cuda" or "hip"
    kind: Call
    thread: int
    start: int
    end: int
    stream: int | None
    event: int | None


class Recording(msgspec.Struct, frozen=True):
    """One rank."""

    rank: int
    world: int
    rows: tuple[Row, ...]
    calls: tuple[HostCall, ...]


def recording(trace: TraceFile) -> Recording:
    """The rows and calls of a trace; its clock begins at its first moment."""
    c, host = trace.columns, trace.calls
    assert host is not None
    base = int(min(c.start_ns.min(), host.start_ns.min())) - 1_000
    labels = [int(label) for label in trace.streams]
    blocks = np.array([*(e.blocks or 0 for e in trace.collectives), 0])[c.collective]
    columns = (c.start_ns - base, c.end_ns - base, host.of_row + 1, blocks)
    rows = tuple(
        Row(Kind(kind), trace.names[name], labels[stream], *numbers)
        for kind, name, stream, *numbers in zip(
            *(v.tolist() for v in (c.kind, c.name, c.stream, *columns)), strict=True
        )
    )
    count = np.bincount(host.of_row[host.of_row >= 0], minlength=len(host))
    first = {row.call: row.kind for row in reversed(rows)}
    calls = []
    for k in range(len(host)):
        kind = Call(int(host.kind[k]))
        name = _NAMES.get(kind) or _LAUNCHES[first[k + 1]]
        stream, event = int(host.stream[k]), int(host.event[k])
        calls.append(
            HostCall(
                k + 1, "GraphLaunch" if count[k] > 1 else name, kind, 100 + int(host.thread[k]),
                int(host.start_ns[k]) - base, int(host.end_ns[k]) - base,
                labels[stream] if stream >= 0 else None, event if event >= 0 else None,
            )
        )  # fmt: skip
    return Recording(trace.rank or 0, trace.world_size or 1, rows, tuple(calls))


def nsys(connection: sqlite3.Connection, own: Recording) -> None:
    """Calls of the runtime, and CUPTI's table of synchronisation where streams are told."""
    export, pid = Export(connection), 4711 + own.rank
    for call in own.calls:
        times = call.start, call.end
        export.call(f"cuda{call.name}_v3020", times, (pid, call.thread), call.number)
        if call.stream is not None or call.event is not None:
            at = pid, own.rank, 0xFFFFFFFF if call.stream is None else call.stream
            export.sync(_SYNC_TYPES[call.kind], times, at, call.number, call.event or -1)
    for row in own.rows:
        times, at = (row.start, row.end), (pid, own.rank, row.stream)
        if row.kind is Kind.COPY:
            export.copy(times, at, row.call or None)
        elif row.kind is Kind.MEMSET:
            place = (row.call or None, pid << 24, 64)
            export.insert("CUPTI_ACTIVITY_KIND_MEMSET", *times, own.rank, row.stream, *place)
        else:
            export.kernel(row.name, times, at, row.call or None, row.blocks)


def rocprof_json(own: Recording) -> bytes:
    """HIP calls with threads and correlation ids, and the stream of calls that name one."""
    names = sorted({f"hip{call.name}" for call in own.calls})
    symbols = sorted({row.name for row in own.rows if row.kind is not Kind.COPY})
    gpu = {"handle": 20}

    def execution(row: Row) -> dict[str, object]:
        return {
            "start_timestamp": row.start,
            "end_timestamp": row.end,
            "correlation_id": {"internal": row.call, "external": 0},
            "stream_id": {"handle": row.stream},
        }

    dispatches = [
        {
            **execution(row),
            "dispatch_info": {
                "agent_id": gpu,
                "queue_id": {"handle": 1},
                "kernel_id": symbols.index(row.name) + 1,
                "workgroup_size": {"x": 256, "y": 1, "z": 1},
                "grid_size": {"x": 256 * row.blocks, "y": 1, "z": 1},
            },
        }
        for row in own.rows
        if row.kind is not Kind.COPY
    ]
    copies = [
        {**execution(row), "kind": 1, "operation": 0, "dst_agent_id": gpu, "src_agent_id": gpu}
        for row in own.rows
        if row.kind is Kind.COPY
    ]
    calls = [
        {
            "kind": 2,
            "operation": names.index(f"hip{call.name}"),
            "thread_id": call.thread,
            "correlation_id": {"internal": call.number, "external": 0},
            "start_timestamp": call.start,
            "end_timestamp": call.end,
            "stream_id": {"handle": call.stream or 0},
        }
        for call in own.calls
    ]
    strings = [
        {"kind": "NONE", "operations": []},
        {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_HOST_TO_DEVICE"]},
        {"kind": "HIP_RUNTIME_API_EXT", "operations": names},
    ]
    process = {
        "metadata": {"pid": 4711 + own.rank},
        "agents": [{"id": gpu, "type": 2, "logical_node_type_id": own.rank}],
        "strings": {"buffer_records": strings},
        "kernel_symbols": [
            {"kernel_id": k, "formatted_kernel_name": name} for k, name in enumerate(symbols, 1)
        ],
        "buffer_records": {"kernel_dispatch": dispatches, "memory_copy": copies, "hip_api": calls},
    }
    return json.dumps({"rocprofiler-sdk-tool": [process]}).encode()


_ROCPD = """
CREATE TABLE rocpd_string_1f (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
CREATE TABLE rocpd_info_node_1f (id INTEGER PRIMARY KEY, guid TEXT, hostname TEXT);
CREATE TABLE rocpd_info_process_1f (id INTEGER PRIMARY KEY, guid TEXT, pid INTEGER,
    environment TEXT);
CREATE TABLE rocpd_info_agent_1f (id INTEGER PRIMARY KEY, guid TEXT, type TEXT,
    absolute_index INTEGER);
CREATE TABLE rocpd_info_kernel_symbol_1f (id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT,
    display_name TEXT);
CREATE TABLE rocpd_event_1f (id INTEGER PRIMARY KEY, guid TEXT, category_id INTEGER,
    stack_id INTEGER, parent_stack_id INTEGER, correlation_id INTEGER);
CREATE TABLE rocpd_arg_1f (id INTEGER PRIMARY KEY, guid TEXT, event_id INTEGER, position INTEGER,
    type TEXT, name TEXT, value TEXT);
CREATE TABLE rocpd_region_1f (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER,
    tid INTEGER, start BIGINT, "end" BIGINT, name_id INTEGER, event_id INTEGER);
CREATE TABLE rocpd_kernel_dispatch_1f (id INTEGER PRIMARY KEY, guid TEXT, agent_id INTEGER,
    kernel_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT, "end" BIGINT,
    workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER,
    grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, event_id INTEGER);
CREATE TABLE rocpd_memory_copy_1f (id INTEGER PRIMARY KEY, guid TEXT, start BIGINT, "end" BIGINT,
    name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, queue_id INTEGER,
    stream_id INTEGER, event_id INTEGER);
INSERT INTO rocpd_info_agent_1f VALUES (1, 'g', 'CPU', 0), (2, 'g', 'GPU', 4);
"""


def rocpd(connection: sqlite3.Connection, own: Recording) -> None:
    """As rocprofv3 --sys-trace writes it: regions with their arguments, and the environment."""
    connection.executescript(_ROCPD)
    ids = _Strings(connection, "INSERT INTO rocpd_string_1f VALUES (?, 'g', ?)")
    symbols = _Strings(
        connection, "INSERT INTO rocpd_info_kernel_symbol_1f VALUES (?, 'g', ?2, ?2)"
    )
    environment = json.dumps({"RANK": str(own.rank), "WORLD_SIZE": str(own.world), "HOME": "/root"})
    connection.execute(
        "INSERT INTO rocpd_info_process_1f VALUES (1, 'g', ?, ?)", (4711 + own.rank, environment)
    )
    connection.execute("INSERT INTO rocpd_info_node_1f VALUES (1, 'g', ?)", (f"n{own.rank}",))
    events = iter(range(1, 1 << 30))

    def event(stack: int) -> int:
        number = next(events)
        row = number, stack, stack
        connection.execute("INSERT INTO rocpd_event_1f VALUES (?, 'g', 1, ?, ?, 0)", row)
        return number

    def argument(of: int, place: int, name: str, value: int) -> None:
        row = of, place, f"hip{name.title()}_t", name, f"0x{value:x}"
        connection.execute("INSERT INTO rocpd_arg_1f VALUES (NULL, 'g', ?, ?, ?, ?, ?)", row)

    launched_on = {row.call: row.stream for row in reversed(own.rows)}
    for call in own.calls:
        of = event(call.number)
        stream = launched_on.get(call.number) if call.kind is Call.LAUNCH else call.stream
        for place, (name, value) in enumerate((("stream", stream), ("event", call.event))):
            if value is not None:
                argument(of, place, name, _address(value))
        row = (call.number, 4711 + own.rank, call.thread, call.start, call.end)
        connection.execute(
            "INSERT INTO rocpd_region_1f VALUES (?, 'g', 1, ?, ?, ?, ?, ?, ?)",
            (*row, ids[f"hip{call.name}"], of),
        )
    for row in own.rows:
        at = row.stream, row.start, row.end
        if row.kind is Kind.COPY:
            connection.execute(
                "INSERT INTO rocpd_memory_copy_1f VALUES (NULL, 'g', ?2, ?3, ?4, 2, 1, 64, 1, ?1,"
                " ?5)",
                (*at, ids["MEMORY_COPY_HOST_TO_DEVICE"], event(row.call)),
            )
        else:
            connection.execute(
                "INSERT INTO rocpd_kernel_dispatch_1f VALUES (NULL, 'g', 2, ?4, 1, ?1, ?2, ?3, 256,"
                " 1, 1, ?6, 1, 1, ?5)",
                (*at, symbols[row.name], event(row.call), 256 * row.blocks),
            )


_RPD = """
CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT NOT NULL);
CREATE TABLE rocpd_ustring (id INTEGER PRIMARY KEY, string TEXT NOT NULL);
CREATE TABLE rocpd_api (id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, tid INTEGER NOT NULL,
    start INTEGER NOT NULL, "end" INTEGER NOT NULL, apiName_id BIGINT NOT NULL,
    category_id BIGINT NOT NULL, domain_id BIGINT NOT NULL, args_id BIGINT NOT NULL);
CREATE TABLE rocpd_kernelapi (api_ptr_id BIGINT NOT NULL PRIMARY KEY, stream VARCHAR(18) NOT NULL);
CREATE TABLE rocpd_copyapi (api_ptr_id BIGINT NOT NULL PRIMARY KEY, stream VARCHAR(18) NOT NULL);
CREATE TABLE rocpd_op (id INTEGER PRIMARY KEY, gpuId INTEGER NOT NULL, queueId INTEGER NOT NULL,
    sequenceId INTEGER NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL,
    description_id BIGINT NOT NULL, opType_id BIGINT NOT NULL);
CREATE TABLE rocpd_api_ops (id INTEGER PRIMARY KEY, api_id BIGINT NOT NULL, op_id BIGINT NOT NULL);
"""


def rpd(connection: sqlite3.Connection, own: Recording, *, arguments: bool) -> None:
    """As RocprofDataSource writes it, with arguments; or as RoctracerDataSource does.

    The latter leaves hipEventRecord out, and the arguments of all calls but those of graphs.
    """
    connection.executescript(_RPD)
    ids = _Strings(connection, "INSERT INTO rocpd_string VALUES (?, ?)")
    texts = _Strings(connection, "INSERT INTO rocpd_ustring VALUES (?, ?)")
    api = 1 << 32
    launched = {row.call: row for row in reversed(own.rows)}
    for call in own.calls:
        if call.name == "EventRecord" and not arguments:
            continue
        text = ""
        if call.kind is Call.LAUNCH:
            row = launched[call.number]
            stream = f"0x{_address(row.stream):x}"
            if call.name == "GraphLaunch":
                text = f"graphExec = 0x24922d90 | stream = {stream}"
            else:
                table = "rocpd_copyapi" if row.kind is Kind.COPY else "rocpd_kernelapi"
                entry = (api + call.number, stream)
                connection.execute(f"INSERT INTO {table} VALUES (?, ?)", entry)
        elif arguments:
            values = {"event": call.event, "stream": call.stream}
            told = {k: f"0x{_address(v):x}" for k, v in values.items() if v is not None}
            text = json.dumps(told)
        connection.execute(
            "INSERT INTO rocpd_api VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                api + call.number, 4711 + own.rank, call.thread, call.start, call.end,
                ids[f"hip{call.name}"], ids[""], ids["hip"], texts[text],
            ),
        )  # fmt: skip
    for number, row in enumerate(own.rows, 1):
        copy = row.kind is Kind.COPY
        name, kind = ("", "CopyHostToDevice") if copy else (row.name, "KernelExecution")
        connection.execute(
            "INSERT INTO rocpd_op VALUES (?, ?, ?, 0, ?, ?, ?, ?)",
            (number, own.rank, row.stream, row.start, row.end, ids[name], ids[kind]),
        )
        if row.call:
            pair = (api + row.call, number)
            connection.execute("INSERT INTO rocpd_api_ops VALUES (NULL, ?, ?)", pair)


def _address(value: int) -> int:
    """A pointer for a stream or an event; stream 0 is the null stream."""
    return 0x7F0000000000 + 64 * value if value else 0


class _Strings:
    """Numbers of texts; a new one is inserted."""

    def __init__(self, connection: sqlite3.Connection, sql: str) -> None:
        self.connection, self.sql, self.known = connection, sql, dict[str, int]()

    def __getitem__(self, text: str) -> int:
        if text not in self.known:
            self.known[text] = len(self.known) + 1
            self.connection.execute(self.sql, (self.known[text], text))
        return self.known[text]


SQLITE: dict[str, Callable[[sqlite3.Connection, Recording], None]] = {
    "nsys": nsys,
    "rocpd": rocpd,
    "rpd": lambda connection, own: rpd(connection, own, arguments=True),
    "rpd_roctracer": lambda connection, own: rpd(connection, own, arguments=False),
}
FORMATS = (*SQLITE, "rocprof_json")


def write(traces: list[TraceFile], form: str, folder: Path) -> Iterator[Path]:
    """One file per rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for trace in traces:
        own = recording(trace)
        path = folder / f"rank{own.rank}.{form}"
        if form == "rocprof_json":
            path.write_bytes(rocprof_json(own))
        else:
            path.unlink(missing_ok=True)
            with closing(sqlite3.connect(path)) as connection:
                SQLITE[form](connection, own)
                connection.commit()
        yield path


def converted(traces: list[TraceFile], form: str) -> list[TraceFile]:
    """The traces as their readers give them out of another format."""
    from readers import parse

    from collscope.parsers import nsys as nsys_parser
    from collscope.parsers import rocpd as rocpd_parser
    from collscope.parsers import rpd as rpd_parser
    from collscope.parsers.traces.of_profile import profile_traces

    parsers = {"nsys": nsys_parser.parse, "rocpd": rocpd_parser.parse}
    found: list[TraceFile] = []
    for trace in traces:
        own = recording(trace)
        if form == "rocprof_json":
            found += parse([rocprof_json(own)], "results.json")
            continue
        with closing(sqlite3.connect(":memory:")) as connection:
            SQLITE[form](connection, own)
            profile = parsers.get(form, rpd_parser.parse)(connection)
            found += profile_traces(profile)
    return found
