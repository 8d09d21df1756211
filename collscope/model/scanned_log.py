"""What the native scanner makes of a text log: a record of columns for each table.

Rows are in the order of the log. A column has shape (rows,); indices are uint32 with 0xFFFFFFFF for
none, and `line` is the 1-based physical line. native/logscan declares the same names, and
`LogScan.of` refuses others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import astuple

if TYPE_CHECKING:
    import numpy.typing as npt

    Column = npt.NDArray[Any]

# Counters of the lines with content.
PARSED = ("coll", "call", "kernel", "tuning", "messages")

_Table = TypeVar("_Table", bound=msgspec.Struct)


class LogProcesses(msgspec.Struct, frozen=True):
    """Processes that wrote lines. Without a host in its lines one has host "" and pid 0."""

    host: list[str]
    pid: list[int]
    prefix: list[str]  # what a launcher put before its first line; distinguishes such processes
    first_line: list[int]


class LogThreads(msgspec.Struct, frozen=True):
    """Threads that wrote lines."""

    process: Column  # u32
    tid: Column  # i64


class LogComms(msgspec.Struct, frozen=True):
    """Communicator pointers of the calls."""

    process: Column  # u32
    ptr: Column  # u64
    nranks: Column  # i32, -1 not known
    global_rank: Column  # i32, -1 absent
    generation: Column  # u32, rises when nranks or global_rank change for one process and pointer


class LogSignatures(msgspec.Struct, frozen=True):
    """What calls have in common, each once."""

    op: Column  # u32, into `ops`
    count: Column  # u64, elements
    datatype: Column  # i32, ncclDataType_t
    redop: Column  # i32, ncclRedOp_t; 5 custom
    root: Column  # i32
    nranks: Column  # i32, -1 not known
    flags: Column  # u32: 1 count printed modulo 2^32, 2 accumulator given, 4 no counts


class LogCalls(msgspec.Struct, frozen=True):
    """COLL lines, and lines of the CALL trace."""

    comm: Column  # u32, into `comms`
    sig: Column  # u32, into `signatures`
    op_count: Column  # u64
    slot: Column  # i32, rank for which the buffers are in place; -1 none, -2 not known
    task: Column  # i32, RCCL's task; -1 absent
    thread: Column  # u32, into `threads`
    line: Column  # u32
    source: Column  # u8: 0 COLL, 1 CALL


class LogGroups(msgspec.Struct, frozen=True):
    """Beginnings and ends of groups in a CALL trace."""

    process: Column  # u32
    thread: Column  # u32
    line: Column  # u32
    delta: Column  # i8: +1 ncclGroupStart, -1 ncclGroupEnd


class LogKernels(msgspec.Struct, frozen=True):
    """Lines of RCCL's kernel trace."""

    process: Column  # u32
    kind: Column  # u8: 0 KL, 1 CL, 2 CE, 3 PE, 4 KE, 5 KA or Abort
    time_ns: Column  # i64, clock of the device
    rank: Column  # i32
    block: Column  # i32, as channel and thread -1 where absent
    channel: Column  # i32
    thread: Column  # i32, of the device
    op_count: Column  # u64
    op_count2: Column  # u64, of the Send, then op_count is that of the Recv; 2^64-1 absent
    name: Column  # u32, into `kernel_names`
    bus_id: Column  # i64, -1 absent
    nranks: Column  # i32, -1 absent
    comm_ptr: Column  # u64, 0 absent
    root: Column  # i32, -1 absent
    nc: Column  # i32, -1 absent
    line: Column  # u32


class LogTunings(msgspec.Struct, frozen=True):
    """TUNING lines."""

    process: Column  # u32
    thread: Column  # u32
    line: Column  # u32
    kind: Column  # u8: 0 numeric, 1 named, 2 symmetric, 3 copy engine, 4 hierarchical copy engine
    op: Column  # u32, into `ops`
    bytes: Column  # u64
    algorithm: Column  # u32, as protocol and kernel into `tuning_names`
    protocol: Column  # u32
    kernel: Column  # u32
    channels: Column  # i32, -1 absent
    time_us: Column  # f64, NaN absent
    comm_ptr: Column  # u64, 0 absent


class LogMessages(msgspec.Struct, frozen=True):
    """Lines of other kinds; `collscope.parsers.nccl_log` reads them."""

    process: Column  # u32
    thread: Column  # u32
    line: Column  # u32
    kind: Column  # u8, `collscope.parsers.nccl_log.MessageKind`
    text: list[str]


class LogScan(msgspec.Struct, frozen=True):
    """All that the scanner found in a log."""

    processes: LogProcesses
    threads: LogThreads
    ops: list[str]  # names as logged
    comms: LogComms
    signatures: LogSignatures
    coll: LogCalls
    groups: LogGroups
    kernel: LogKernels
    kernel_names: list[str]
    tuning: LogTunings
    tuning_names: list[str]
    messages: LogMessages
    unknown_samples: list[
        tuple[int, str]
    ]  # line and text of the first 20 messages of no known kind
    counters: dict[str, int]
    damage: list[tuple[int, str, str]]  # line, counter, excerpt; the first 50 of each
    unended: str = ""  # the end of a last line without a line end

    @classmethod
    def of(cls, tables: Mapping[str, Any], unended: str = "") -> LogScan:
        """The record of what `collscope._logscan.Scanner.finish` returned."""
        records = {name: record(**tables[name]) for name, record in _TABLES.items()}
        return cls(**{**tables, **records}, unended=unended)

    @property
    def is_log(self) -> bool:
        """True where a line of the library has content."""
        return any(self.counters[name] for name in PARSED)


_TABLES: dict[str, type[msgspec.Struct]] = {
    "processes": LogProcesses,
    "threads": LogThreads,
    "comms": LogComms,
    "signatures": LogSignatures,
    "coll": LogCalls,
    "groups": LogGroups,
    "kernel": LogKernels,
    "tuning": LogTunings,
    "messages": LogMessages,
}


def rows_of(table: _Table, rows: Column) -> _Table:
    """The table with some of its rows; `rows` are indices or a mask."""
    return type(table)(*(column[rows] for column in astuple(table)))
