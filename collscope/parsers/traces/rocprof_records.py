"""The fields of rocprofv3's JSON records that are read; msgspec skips all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import field

if TYPE_CHECKING:
    from collections.abc import Callable


class Handle(msgspec.Struct, gc=False):
    """An opaque identifier."""

    handle: int


class Correlation(msgspec.Struct, gc=False):
    """Which call a record belongs to; newer releases also name the call around that."""

    internal: int = 0
    ancestor: int = 0


class Agent(msgspec.Struct, gc=False):
    """A processor."""

    id: Handle
    type: int = 0  # 1: CPU, 2: GPU
    gpu_index: int | None = None
    logical_node_type_id: int | None = None
    product_name: str | None = None


class Symbol(msgspec.Struct, gc=False):
    """A kernel's names."""

    kernel_id: int
    kernel_name: str | None = None
    formatted_kernel_name: str | None = None


class Sides(msgspec.Struct, gc=False):
    """Three dimensions."""

    x: int = 1
    y: int = 1
    z: int = 1


class DispatchInfo(msgspec.Struct, gc=False):
    """Where a kernel ran."""

    agent_id: Handle
    kernel_id: int
    dispatch_id: int | None = None  # counted by the process
    queue_id: Handle | None = None
    workgroup_size: Sides | None = None
    grid_size: Sides | None = None  # threads


class Dispatch(msgspec.Struct, gc=False):
    """One execution of a kernel; times are ns."""

    start_timestamp: int
    end_timestamp: int
    dispatch_info: DispatchInfo
    correlation_id: Correlation | None = None
    stream_id: Handle | None = None


class Copy(msgspec.Struct, gc=False):
    """One copy between agents."""

    start_timestamp: int
    end_timestamp: int
    dst_agent_id: Handle
    src_agent_id: Handle
    kind: int = -1
    operation: int = -1
    correlation_id: Correlation | None = None
    stream_id: Handle | None = None


class Call(msgspec.Struct, gc=False):
    """One call of a runtime or of RCCL."""

    start_timestamp: int
    end_timestamp: int
    kind: int = -1
    operation: int = -1
    thread_id: int = 0
    correlation_id: Correlation | None = None
    stream_id: Handle | None = None  # of calls that name a stream; 0: the default one, or none


class Kinds(msgspec.Struct, gc=False):
    """Names of one kind's operations."""

    kind: str = ""
    operations: list[str] = []


class Strings(msgspec.Struct):
    """Names by number."""

    buffer_records: list[Kinds] = []


class Node(msgspec.Struct, gc=False):
    """The machine."""

    hostname: str | None = None


class Metadata(msgspec.Struct):
    """Where the trace comes from."""

    node: Node | None = None


class Buffers(msgspec.Struct):
    """The records proper."""

    kernel_dispatch: list[Dispatch] = []
    memory_copy: list[Copy] = []
    hip_api: list[Call] = []
    rccl_api: list[Call] = []


class Process(msgspec.Struct):
    """One process."""

    metadata: Metadata = field(default_factory=Metadata)
    agents: list[Agent] = []
    strings: Strings = field(default_factory=Strings)
    kernel_symbols: list[Symbol] = []
    buffer_records: Buffers = field(default_factory=Buffers)


class Document(msgspec.Struct):
    """The file."""

    tool: list[Process] = field(name="rocprofiler-sdk-tool")


# Arrays that are read one by one from a damaged file: key, element, where it goes. "strings" has a
# "buffer_records" that is an array; the records' is an object.
SECTIONS: tuple[tuple[bytes, type, Callable[[Process], list[Any]]], ...] = (
    (b"agents", Agent, lambda process: process.agents),
    (b"buffer_records", Kinds, lambda process: process.strings.buffer_records),
    (b"kernel_symbols", Symbol, lambda process: process.kernel_symbols),
    (b"kernel_dispatch", Dispatch, lambda process: process.buffer_records.kernel_dispatch),
    (b"memory_copy", Copy, lambda process: process.buffer_records.memory_copy),
    (b"hip_api", Call, lambda process: process.buffer_records.hip_api),
    (b"rccl_api", Call, lambda process: process.buffer_records.rccl_api),
)
