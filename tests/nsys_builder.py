"""Writes SQLite exports of Nsight Systems: the tables and columns of its schema reference."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Sequence

import msgspec

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device');
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER NOT NULL,
    gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    bytes INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
    eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
    returnValue INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    syncType INTEGER NOT NULL, eventId INTEGER NOT NULL, eventSyncId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (timestamp INTEGER, deviceId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, eventId INTEGER NOT NULL,
    eventSyncId INTEGER);
"""
NVTX = """
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
    rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,
    endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER,
    doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER,
    jsonText TEXT, binaryData TEXT);
CREATE TABLE NVTX_PAYLOAD_SCHEMAS (domainId INTEGER, schemaId INTEGER, name TEXT, type INTEGER,
    flags INTEGER, numEntries INTEGER, payloadSize INTEGER, alignTo INTEGER);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL,
    idx INTEGER NOT NULL, flags INTEGER, type INTEGER, name TEXT, description TEXT,
    arrayOrUnionDetail INTEGER, offset INTEGER);
CREATE TABLE NVTX_PAYLOAD_ENUMS (domainId INTEGER, schemaId INTEGER, name TEXT, numEntries INTEGER,
    size INTEGER);
CREATE TABLE NVTX_PAYLOAD_ENUM_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL,
    idx INTEGER NOT NULL, name TEXT, value INTEGER, isFlag INTEGER);
"""
PUSH_POP = 59  # eventType NvtxPushPopRange
STATIC = 1 << 24  # NVTX_PAYLOAD_ENTRY_TYPE_SCHEMA_ID_STATIC_START
REDOP = STATIC + 16  # NVTX_PAYLOAD_ENTRY_NCCL_REDOP of NCCL 2.27
INT, UINT64, SIZE = 5, 18, 22  # NVTX_PAYLOAD_ENTRY_TYPE_*
_COMM = ("NCCL communicator ID", UINT64, "Q")
_SIZE = ("Message size [bytes]", SIZE, "Q")
_REDOP = ("Reduction operation", REDOP, "I")
_ROOT, _PEER = ("Root", INT, "i"), ("Peer rank", INT, "i")
_MEMBER = (_COMM, ("No. of ranks", INT, "i"), ("Rank", INT, "i"), ("CUDA device", INT, "i"))
# NVTX_SID_* and the structs of src/include/nvtx_payload_schemas.h, NCCL 2.27
SCHEMAS = {
    "ncclCommInitRankConfig": (11, _MEMBER),
    "ncclAllGather": (4, (_COMM, _SIZE)),
    "ncclAllReduce": (5, (_COMM, _SIZE, _REDOP)),
    "ncclBroadcast": (6, (_COMM, _SIZE, _ROOT)),
    "ncclReduceScatter": (7, (_COMM, _SIZE, _REDOP)),
    "ncclSend": (9, (_COMM, _SIZE, _PEER)),
    "ncclRecv": (10, (_COMM, _SIZE, _PEER)),
}
_REDOPS = ("Sum", "Product", "Max", "Min", "Avg")


def global_pid(pid: int) -> int:
    return pid << 24


def global_tid(pid: int, tid: int) -> int:
    return (pid << 24) | tid


def payload(function: str, values: Sequence[int]) -> bytes:
    """The struct that NCCL hands over, laid out as C does."""
    _, entries = SCHEMAS[function]
    return struct.pack("@" + "".join(form for *_, form in entries) + "0Q", *values)


def blob(function: str, values: Sequence[int], domain: int = 1) -> bytes:
    """What stands in `binaryData`."""
    own = payload(function, values)
    return struct.pack("<4Q", domain, STATIC + SCHEMAS[function][0], len(own), 32) + own


class Export(msgspec.Struct):
    """One export; rows go into it one by one."""

    connection: sqlite3.Connection
    nvtx: bool = False
    made: bool = False  # has its tables already
    _strings: dict[str, int] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.made:
            self.connection.executescript(SCHEMA + (NVTX if self.nvtx else ""))

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            row = (self._strings[text], text)
            self.connection.execute("INSERT INTO StringIds VALUES (?, ?)", row)
        return self._strings[text]

    def insert(self, table: str, *values: object) -> None:
        marks = ", ".join("?" * len(values))
        self.connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)

    def kernel(
        self, name: str, times: tuple[int, int], at: tuple[int, int, int], correlation: int | None,
        grid: int = 1,
    ) -> None:  # fmt: skip
        """`at` is process, device and stream."""
        pid, device, stream = at
        place = self.string(name)
        self.insert(
            "CUPTI_ACTIVITY_KIND_KERNEL", *times, device, stream, correlation, global_pid(pid),
            place, place, grid, 1, 1, None,
        )  # fmt: skip

    def copy(
        self, times: tuple[int, int], at: tuple[int, int, int], correlation: int | None
    ) -> None:
        pid, device, stream = at
        self.insert(
            "CUPTI_ACTIVITY_KIND_MEMCPY", *times, device, stream, correlation, global_pid(pid), 64,
            1,
        )  # fmt: skip

    def call(
        self, name: str, times: tuple[int, int], at: tuple[int, int], correlation: int
    ) -> None:
        """`at` is process and thread."""
        row = (*times, 0, global_tid(*at), correlation, self.string(name), 0)
        self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", *row)

    def sync(
        self, kind: int, times: tuple[int, int], at: tuple[int, int, int], correlation: int,
        event: int = -1, link: int = 0,
    ) -> None:  # fmt: skip
        """`kind` of ENUM_CUPTI_SYNC_TYPE: 1 event, 2 wait, 3 stream, 4 context."""
        pid, device, stream = at
        self.insert(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", *times, device, stream, correlation,
            global_pid(pid), kind, event & 0xFFFFFFFF, link,
        )  # fmt: skip

    def record(self, at: tuple[int, int, int], correlation: int, event: int, link: int = 0) -> None:
        pid, device, stream = at
        self.insert(
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT", 0, device, stream, correlation, global_pid(pid),
            event, link,
        )  # fmt: skip

    def range(
        self, name: str, times: tuple[int, int], at: tuple[int, int], binary: bytes | None = None,
        domain: int = 1,
    ) -> None:  # fmt: skip
        self.connection.execute(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, textId, domainId,"
            " binaryData) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*times, PUSH_POP, global_tid(*at), self.string(name), domain, binary),
        )

    def schemas(self, functions: Iterable[str], domain: int = 1) -> None:
        """Register schemas, as NCCL does when a function is first called."""
        for function in functions:
            number, entries = SCHEMAS[function]
            size = len(payload(function, [0] * len(entries)))
            schema = STATIC + number
            self.insert(
                "NVTX_PAYLOAD_SCHEMAS", domain, schema, None, 1, None, len(entries), size, None
            )
            offset = 0
            for place, (label, kind, form) in enumerate(entries):
                width = struct.calcsize(form)
                offset = -(-offset // width) * width
                # The first entry's offset of 0 is exported as NULL.
                self.insert(
                    "NVTX_PAYLOAD_SCHEMA_ENTRIES", domain, schema, place, None, kind, label, None,
                    None, offset or None,
                )  # fmt: skip
                offset += width

    def reductions(self, domain: int = 1) -> None:
        self.insert("NVTX_PAYLOAD_ENUMS", domain, REDOP, None, len(_REDOPS), 4)
        for value, name in enumerate(_REDOPS):
            self.insert("NVTX_PAYLOAD_ENUM_ENTRIES", domain, REDOP, value, name, value, None)
