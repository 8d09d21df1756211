"""The records of one process of a rocprofv3 JSON trace."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.kernel_names import classify
from collscope.model import Diagnostic, Op, Severity, parse_op
from collscope.model.trace import Ints, Kind, TraceCollective, TraceColumns, TraceFile
from collscope.parsers._calls import CallRows, end_and_longest, host_calls, missing_numbers
from collscope.parsers._columns import Index, as_numpy, launches
from collscope.parsers.traces._named import from_name
from collscope.parsers.traces.rocprof_records import Correlation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collscope.parsers.traces.rocprof_records import (
        Buffers,
        Call,
        Copy,
        Dispatch,
        DispatchInfo,
        Process,
    )

_LIMIT = 2**63
_MEMORY_COPY = "MEMORY_COPY"
_GPU = 2


class _Builder:
    """Rows of all agents of one process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.names: Index[str] = Index()
        self.streams: Index[str] = Index()
        self.collectives: Index[TraceCollective] = Index()
        # kind, name, stream, start, end, correlation, ancestor, agent, blocks
        self.rows = array("q")
        self.bad = 0
        self.nameless = 0
        self.kernels = {
            symbol.kernel_id: _clean(symbol.formatted_kernel_name or symbol.kernel_name or "")
            for symbol in process.kernel_symbols
        }
        self.gpus = {agent.id.handle: agent for agent in process.agents if agent.type == _GPU}

    def kernel(self, record: Dispatch) -> None:
        """Take a kernel's execution."""
        info = record.dispatch_info
        name = self.kernels.get(info.kernel_id)
        if not name:
            name, self.nameless = f"kernel {info.kernel_id}", self.nameless + 1
        stream = record.stream_id
        queue = "" if info.queue_id is None else f"queue {info.queue_id.handle}"
        label = queue if stream is None else str(stream.handle)
        self._row(Kind.KERNEL, name, label, record, info.agent_id.handle, _blocks(info))

    def copy(self, record: Copy) -> None:
        """Take a copy; it belongs to the GPU among its ends, the destination first."""
        ends = record.dst_agent_id.handle, record.src_agent_id.handle
        agent = next((end for end in ends if end in self.gpus), ends[0])
        # MEMORY_COPY_HOST_TO_DEVICE
        name = self.operation(record.kind, record.operation) or _MEMORY_COPY
        stream = "copy" if record.stream_id is None else str(record.stream_id.handle)
        self._row(Kind.COPY, name, stream, record, agent)

    def operation(self, kind: int, number: int) -> str | None:
        """Name of a record's operation."""
        kinds = self.process.strings.buffer_records
        names = kinds[kind].operations if 0 <= kind < len(kinds) else []
        return names[number] if 0 <= number < len(names) else None

    def _row(
        self,
        kind: Kind,
        name: str,
        stream: str,
        record: Dispatch | Copy,
        agent: int,
        blocks: int = -1,
    ) -> None:
        start, end = record.start_timestamp, record.end_timestamp
        if not 0 <= start <= end < _LIMIT:
            self.bad += 1
            return
        call = record.correlation_id or Correlation()
        row = (kind, self.names[name], self.streams[stream], start, end)
        numbers = call.internal, call.ancestor, agent, blocks
        self.rows.extend((*row, *(_small(number) for number in numbers)))


def trace_files(process: Process, problems: list[Diagnostic]) -> list[TraceFile]:
    """One trace per agent that executed something; one without rows when none did."""
    builder = _Builder(process)
    buffers = process.buffer_records
    for dispatch in buffers.kernel_dispatch:
        builder.kernel(dispatch)
    for copy in buffers.memory_copy:
        builder.copy(copy)
    rows = as_numpy(builder.rows, np.int64).reshape(-1, 9)
    rows = rows[np.argsort(rows[:, 3], kind="stable")]
    calls = [*buffers.hip_api, *buffers.rccl_api]
    launch = _launches(rows, calls)
    collective = _collectives(builder, rows)
    host = _runtime(builder, rows)
    runtime = host.columns()
    lost = [*host.lost(end_and_longest(rows[:, 3], rows[:, 4] - rows[:, 3])), *_skipped(buffers)]
    # Both count the same kernels by other evidence.
    gone = sorted(lost, key=lambda note: note.count)[-1:]
    notes = (*problems, *_notes(builder), *gone)
    node = process.metadata.node
    parts = [
        (agent, own, host_calls(runtime, rows[own, 5], rows[~own, 5], builder.streams)[1])
        for agent, own in _by_agent(rows)
    ]
    return [
        TraceFile(
            dialect="rocprof_json",
            names=builder.names.values,
            streams=builder.streams.values,
            collectives=builder.collectives.values,
            columns=_columns(rows[own], launch[own], collective[own]),
            host=None if node is None else node.hostname,
            device=_device(builder, agent),
            calls=calls,
            gpu=builder.gpus[agent].product_name if agent in builder.gpus else None,
            diagnostics=notes,
        )
        for agent, own, calls in parts
    ]


def _skipped(buffers: Buffers) -> Iterator[Diagnostic]:
    """Dispatches whose numbers are skipped between the first and the last."""
    numbers = {record.dispatch_info.dispatch_id for record in buffers.kernel_dispatch} - {None}
    known = [number for number in numbers if number is not None and 0 <= number < _LIMIT]
    between = max(known) - min(known) + 1 if known else 0
    if between > len(known):
        yield missing_numbers(between - len(known), between)


def _runtime(builder: _Builder, rows: Ints) -> CallRows:
    """Calls of the HIP runtime."""
    found = CallRows(set(rows[:, 5].tolist()))
    for call in builder.process.buffer_records.hip_api:
        number = 0 if call.correlation_id is None else call.correlation_id.internal
        count, times = len(found), (call.start_timestamp, call.end_timestamp)
        found.add(builder.operation(call.kind, call.operation), number, (0, call.thread_id), times)
        if len(found) > count and call.stream_id is not None and call.stream_id.handle:
            found.set_stream(count, str(call.stream_id.handle), None)
    return found


def _by_agent(rows: Ints) -> list[tuple[int, npt.NDArray[np.bool_]]]:
    agents = np.unique(rows[:, 7]).tolist() or [-1]
    return [(agent, rows[:, 7] == agent) for agent in agents]


def _columns(rows: Ints, launch_ns: Ints, collective: Ints) -> TraceColumns:
    return TraceColumns(
        kind=rows[:, 0].astype(np.int8),
        name=rows[:, 1].astype(np.int32),
        stream=rows[:, 2].astype(np.int32),
        start_ns=rows[:, 3].copy(),
        end_ns=rows[:, 4].copy(),
        launch_ns=launch_ns,
        collective=collective.astype(np.int32),
        seq=np.full(len(rows), -1, dtype=np.int64),
    )


def _launches(rows: Ints, calls: list[Call]) -> Ints:
    """Start of the HIP or RCCL call with the row's correlation id, else -1."""
    known = [
        (call.correlation_id.internal, call.start_timestamp)
        for call in calls
        if call.correlation_id is not None
        and 0 < call.correlation_id.internal < _LIMIT
        and 0 <= call.start_timestamp < _LIMIT
    ]
    host = np.array(known, dtype=np.int64).reshape(-1, 2)
    place = launches(rows[:, 5], host[:, 0], host[:, 1])
    return np.where(place < 0, -1, host[place, 1]) if len(host) else place


def _collectives(builder: _Builder, rows: Ints) -> Ints:
    """Place of each row's collective, or -1: from the RCCL call behind it, else from its name."""
    ops = {
        call.correlation_id.internal: parse_op(builder.operation(call.kind, call.operation) or "")
        for call in builder.process.buffer_records.rccl_api
        if call.correlation_id is not None
    }
    hints = [classify(name) for name in builder.names.values]
    found = np.full(len(rows), -1, dtype=np.int64)
    for row, (kind, name, *_, internal, ancestor, _, blocks) in enumerate(rows.tolist()):
        hint = hints[name]
        if kind != Kind.KERNEL or hint is None:
            continue
        op = ops.get(internal) or ops.get(ancestor) or Op.UNKNOWN
        # ncclGroupEnd launches for the calls before it: their operations cannot be separated.
        call = from_name(hint) if op is Op.UNKNOWN else TraceCollective(op)
        found[row] = builder.collectives[replace(call, blocks=blocks if blocks > 0 else None)]
    return found


def _blocks(info: DispatchInfo) -> int:
    """Thread blocks of a dispatch, whose grid counts threads; -1 where unknown."""
    grid, group = info.grid_size, info.workgroup_size
    if grid is None or group is None or not group.x * group.y * group.z > 0:
        return -1
    return grid.x * grid.y * grid.z // (group.x * group.y * group.z)


def _device(builder: _Builder, agent: int) -> str | None:
    """Index of a GPU among the GPUs; the agent's handle where the agent is not listed."""
    if agent < 0:
        return None
    gpu = builder.gpus.get(agent)
    if gpu is None:
        return f"agent {agent}"
    index = gpu.logical_node_type_id if gpu.gpu_index is None else gpu.gpu_index
    return f"agent {agent}" if index is None else str(index)


def _notes(builder: _Builder) -> list[Diagnostic]:
    found = []
    if builder.bad:
        message = "Records without a usable start and end were skipped."
        count = builder.bad
        found.append(Diagnostic(Severity.DATA_LOSS, "untimed_activity", message, count=count))
    if builder.nameless:
        message = "Kernels without an entry in the symbol table have their number as name."
        count = builder.nameless
        found.append(Diagnostic(Severity.NOTICE, "nameless_kernel", message, count=count))
    if not builder.rows:
        message = "The trace holds no kernels and no copies. Record with --kernel-trace."
        found.append(Diagnostic(Severity.NOTICE, "no_gpu_activity", message))
    return found


def _clean(name: str) -> str:
    # "__amd_rocclr_copyBuffer.kd"
    return name.strip().removesuffix(".kd").strip()


def _small(value: int) -> int:
    """The value where it fits a column, else -1."""
    return value if 0 <= value < _LIMIT else -1
