"""RCCL's recorder, binary form (``RCCL_REPLAY_FILE=NAME``): records without magic and version.

``struct rcclApiCall`` of src/include/recorder.h, ROCm/rccl pull request 1603 and later (ROCm 7.0),
as the compiler lays it out on x86-64: 152 bytes, or 160 since ``acc`` was added. Which of them a
file has follows from which one makes sense.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.model import Op, Severity
from collscope.model.trace import RecordedCall, RecordedCalls
from collscope.parsers._notes import Notes
from collscope.parsers._sides import CODE, CONTRADICT_TEXT
from collscope.parsers.reader import recorder_reader
from collscope.parsers.recorders._numbering import note_again
from collscope.parsers.recorders._rccl_calls import OPS, Communicators, RawCall, process_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = [
    "Broadcast",
    "Reduce",
    "AllGather",
    "ReduceScatter",
    "AllReduce",
    "Send",
    "Recv",
    "AllToAll",
    "AllToAllv",
    "Gather",
    "Scatter",
    "Bcast",
    "GroupStart",
    "GroupEnd",
    "GroupSimulatedEnd",
    "GetUniqueId",
    "CommInitDev",
    "CommInitRank",
    "CommInitAll",
    "CommInitRankConfig",
    "CommSplit",
    "CommFinalize",
    "CommDestroy",
    "CommAbort",
    "CommRegister",
    "CommDeregister",
    "MemAlloc",
    "MemFree",
    "RedOpCreatePreMulSum",
    "RedOpDestroy",
    "OtherCall",
]
_WITH_BIAS = [*_NAMES[:5], "AllReduceWithBias", *_NAMES[5:]]
_EARLIEST_MS, _LATEST_MS = 1.0e12, 4.1e12  # 2001 and 2099
_MOST_RANKS = 1 << 20
_MOST_DEVICES = 1 << 10
_MOST_DATATYPES = 16  # nccl.h has 12
_SNIFFED = 64  # records that decide which layout a file has


class _Layout(msgspec.Struct, frozen=True):
    """One form of the record."""

    record: struct.Struct
    names: list[str]  # of `type`
    acc: int  # 1 where the accumulator's pointer stands behind recvbuff


# pid tid hipDev groupDepth, timestamp, graphID, graphCaptured type, opCount sendbuff recvbuff [acc]
# sendPtrBase recvPtrBase sendPtrExtent recvPtrExtent count, datatype op root nRanks, comm stream,
# nTasks globalRank, commId
_LAYOUTS = (
    _Layout(struct.Struct("<4idQ2i9Q4i2Q2iQ"), _WITH_BIAS, 1),
    _Layout(struct.Struct("<4idQ2i8Q4i2Q2iQ"), _NAMES, 0),
)
_SMALLEST = 152


class _Record(msgspec.Struct, frozen=True):
    """One record: whose it is, and the call, whose fields mean other things where no data moves."""

    pid: int
    name: str
    comm_id: int
    call: RawCall


def sniff(head: bytes) -> bool:
    """True for bytes that make sense as records of one of the layouts."""
    return _layout(head) is not None


def parse(data: bytes, name: str) -> RecordedCalls:
    """Calls of one process, in the order of the file.

    name   the file's name, which holds process id and host: ``NAME.PID.HOST``
    """
    notes = Notes()
    pid, host = process_of(name)
    layout = _layout(data)
    communicators = Communicators(f"{host}.{pid}")
    calls: list[RecordedCall] = []
    if layout is not None:
        for record, tail in _records(data, layout, notes):
            pid = record.pid
            _read(record, tail, communicators, calls)
    count = communicators.contradicting
    notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, 1, count=count)
    if not calls:
        notes.add(Severity.NOTICE, "no_calls", "The recording holds no collectives.", 1)
    return RecordedCalls(
        dialect="rccl_recorder_binary",
        calls=tuple(calls),
        host=host,
        pid=pid,
        coverage="whole",
        diagnostics=notes.diagnostics,
    )


def _layout(head: bytes) -> _Layout | None:
    """The layout under which more records in a row make sense; None when the first does not."""
    best, most = None, 0
    for layout in _LAYOUTS:
        place, seen, pid = 0, 0, None
        while seen < _SNIFFED and (record := _record(head, place, layout, pid)) is not None:
            seen, pid = seen + 1, record.pid
            place += layout.record.size + _tail_size(record)
        # Where the bytes end there is nothing to be wrong: the rest is no record at all.
        if seen > most:
            best, most = layout, seen
    return best


def _record(data: bytes, place: int, layout: _Layout, pid: int | None) -> _Record | None:
    """The record at a place, or None when it makes no sense there.

    pid   process of the records before, which is the same in the whole file
    """
    if place + layout.record.size > len(data):
        return None
    fields = layout.record.unpack_from(data, place)
    own, time_ms, kind = fields[0], fields[4], fields[7]
    if own <= 0 or (pid is not None and own != pid) or not 0 <= kind < len(layout.names):
        return None
    if not _EARLIEST_MS < time_ms < _LATEST_MS:
        return None
    rest = fields[11 + layout.acc :]
    record = _Record(
        pid=own,
        name=layout.names[kind],
        comm_id=rest[13],
        call=RawCall(
            op=OPS.get(layout.names[kind], Op.UNKNOWN),
            sendbuff=fields[9],
            recvbuff=fields[10],
            count=rest[4],
            datatype=rest[5],
            redop=rest[6],
            root=rest[7],
            comm=rest[9],
            nranks=rest[8],
            rank=rest[12],
            time_ms=time_ms,
            captured=fields[6],
        ),
    )
    return record if _sensible(record) else None


def _sensible(record: _Record) -> bool:
    call = record.call
    if call.captured not in (-1, 0, 1):
        return False
    if record.name not in OPS:  # the other calls leave the data type as the memory was
        return record.name != "CommInitAll" or 0 < call.root <= _MOST_DEVICES
    return (
        0 <= call.datatype < _MOST_DATATYPES
        and 0 < call.nranks <= _MOST_RANKS
        and call.count < 2**60
        and call.comm != 0
    )


def _tail_size(record: _Record) -> int:
    """Bytes behind a record: four lists of size_t, or the devices of ncclCommInitAll."""
    if record.name == "AllToAllv":
        return 4 * record.call.nranks * 8
    if record.name == "CommInitAll" and record.call.sendbuff:
        return record.call.root * 4
    return 0


def _records(data: bytes, layout: _Layout, notes: Notes) -> Iterator[tuple[_Record, bytes]]:
    """All records, each with the bytes behind it; damaged places are passed over."""
    place, number, pid = 0, 0, None
    seen: set[bytes] = set()
    while place < len(data):
        record = _record(data, place, layout, pid)
        if record is None:
            message = "Bytes that are not records were skipped: the file is cut or damaged."
            notes.add(Severity.DATA_LOSS, "torn_record", message, number + 1)
            place = _next(data, place + 1, layout, pid)
            continue
        number, pid = number + 1, record.pid
        end = place + layout.record.size
        begin, place = place, end + _tail_size(record)
        # Stamped to the microsecond: an equal record is this one again.
        if data[begin:end] in seen:
            note_again(notes, line=number)
            continue
        seen.add(data[begin:end])
        yield record, data[end:place]


def _next(data: bytes, place: int, layout: _Layout, pid: int | None) -> int:
    """Where the next record of the process begins; the end of the data if there is none."""
    if pid is None:
        return len(data)
    mark = struct.pack("<i", pid)
    while (place := data.find(mark, place)) >= 0:
        if _record(data, place, layout, pid) is not None:
            return place
        place += 1
    return len(data)


def _read(
    record: _Record, tail: bytes, communicators: Communicators, calls: list[RecordedCall]
) -> None:
    call = record.call
    if record.name in OPS:
        calls.append(
            communicators.call(_with_lists(call, tail) if record.name == "AllToAllv" else call)
        )
    elif record.name == "GroupStart":
        communicators.group_start()
    elif record.name in ("GroupEnd", "GroupSimulatedEnd"):
        communicators.group_end()
    elif record.name == "CommInitDev":
        communicators.start(call.comm, record.comm_id, call.nranks)
    elif record.name == "CommSplit":
        # commId holds the parent's pointer, nRanks the colour, globalRank the key.
        communicators.split(record.comm_id, call.nranks, call.comm)
    elif record.name in ("CommDestroy", "CommAbort"):
        communicators.end(call.comm)


def _with_lists(call: RawCall, tail: bytes) -> RawCall:
    """The call with its counts out of sendcounts, sdispls, recvcounts, rdispls; none when cut."""
    ranks = call.nranks
    if len(tail) < 4 * ranks * 8:
        return call
    values = struct.unpack_from(f"<{4 * ranks}Q", tail)
    if any(value >= 2**60 for value in values):
        return call
    return replace(call, sendcounts=values[:ranks], recvcounts=values[2 * ranks : 3 * ranks])


READER = recorder_reader("rccl_recorder_binary", sniff, parse)
