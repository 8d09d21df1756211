"""Files of collscope's own recorder, `HOST.PID.TOKEN.N.collrec`: format 1 (docs/recorder.md).

The layouts are those of native/recorder/format.h. A file ends anywhere: what ended the process did
not ask. Every record has a size, a number and a check, so that what is lost is counted.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from collscope.model import BufferPlace, Op, Severity, parse_datatype, parse_op
from collscope.model.limits import LIMIT
from collscope.model.trace import KERNEL_GPU, RecordedCall, RecordedCalls, TraceCollective
from collscope.parsers._notes import Notes
from collscope.parsers._sides import CODE, CONTRADICT_TEXT
from collscope.parsers.reader import recorder_reader
from collscope.parsers.recorders._gpu_clock import GpuClock
from collscope.parsers.recorders._numbering import note_missing
from collscope.parsers.recorders._values import parse_int

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAGIC = b"COLLREC"
_VERSION = 1
_FILE, _NAME, _COMM, _API, _CALL, _KERNEL, _COST, _LEVEL, _END = 1, 2, 3, 5, 6, 7, 10, 11, 12

# check, size, kind, small, ordinal, communicator
_HEADER = struct.Struct("<IHBBII")
_FILE_BODY = struct.Struct("<4Q4I")
_COMM_BODY = struct.Struct("<2Q4i")
_API_BODY = struct.Struct("<6Qi2BH")
_CALL_BODY = struct.Struct("<8Qi6BHI")
_SPAN = struct.Struct("<5Q")
_COST_BODY = struct.Struct("<8Q")
_ID = struct.Struct("<Q")
_LEVEL_BODY = struct.Struct("<Q")
# Where in a body numbers stand that name something: the process and its boot, the communicator, the
# stream and the buffers.
_NUMBERS = {_FILE: (24,), _COMM: (0,), _API: (32,), _CALL: (40, 48)}
_LEAST = {_FILE: 48, _COMM: 32, _API: 56, _CALL: 80, _KERNEL: 40, _COST: 64, _LEVEL: 8}

# Where a record may begin: the size of each kind with its header, of texts up to their limit.
_BEGINS = re.compile(
    rb"(?=.{4}(?:.[\x00-\x04][\x01-\x03]|\x18\x00[\x04\x0b\x0c]|\x48\x00\x05|\x60\x00\x06"
    rb"|\x38\x00\x07|\x40\x00\x08|\x48\x00\x09|\x50\x00\x0a))",
    re.DOTALL,
)
_POINT_TO_POINT, _CAPTURED = 1, 2
_NO_SEQ = 2**64 - 1
# From this release on stamps are of other calls once a call had no kernel events: the library
# counts calls that have them, the GPU all (NVIDIA/nccl#2369; recorded with 2.32.3 on two H100).
_TIMES_NEED_ALL_FROM = 23100
_UNTIMED_LEVELS = ("off", "calls")
# What two kernels of a communicator may overlap by where the second is launched early.
_SETTLED_NS = 10_000
# Calls that a growing recording holds: so many kernels wait on a stream before a launch blocks.
_HELD = 1024
_LONGEST = 2**16  # bytes of a record, by its size's width
# wall_clock64 of AMD's GPUs counts at 100 MHz (hipDeviceAttributeWallClockRate of CDNA and RDNA).
_AMD_TICK_NS = 10

_VERSION_TEXT = (
    "The file is of a newer format of the recorder. Read it with the collscope that recorded it."
)
_TORN_TEXT = "Bytes that are cut or damaged were skipped."
_DROPPED_TEXT = (
    "The recorder itself lost records: its ring was full, or the disk could not be written. "
    "Record fewer events: collscope record --level calls."
)
_OPEN_TEXT = (
    "The file has no end: the process was killed or still runs, and its last moment is missing."
)
_STRAY_TEXT = "Records whose call or communicator is not in the file were left out."
_NO_EVENT_TEXT = (
    "Calls of the application have no event from the library: they count, but their GPU time is "
    "not known."
)
_FOREIGN_TEXT = (
    "GPU times were left out: on these communicators the library reported times of other kernels. "
    "They begin before their call, or while the previous call runs. NCCL 2.30 and 2.32 do this "
    "after a Broadcast, unless NCCL_ALLGATHERV_ENABLE=0 is set. NCCL 2.28 and 2.30 do this after "
    "a rank's Send to itself. NCCL 2.31 and later do this once a call had no kernel events: record "
    "with --level all or sampled from the start."
)
_UNLAUNCHED_TEXT = "Calls of the application that the library had not launched were left out."
_NONE_TEXT = "The recording holds no collectives."


class Record(msgspec.Struct, frozen=True):
    """A record that its check proves."""

    kind: int
    small: int
    ordinal: int
    comm: int
    body: bytes


class _Process(msgspec.Struct, frozen=True):
    """The process, by the first record."""

    name: str
    real_ns: int
    monotonic_ns: int
    pid: int
    segment: int
    library_version: int
    world_size: int
    amd: bool
    interface: int  # of the profiler plugin
    host: str
    level: str  # at the beginning of the file
    rank: str


class _Comm(msgspec.Struct, frozen=True):
    """A communicator of the process."""

    group: str
    rank: int
    nranks: int | None
    opened_ns: int


class _Api(msgspec.Struct, frozen=True):
    """A call as the application made it."""

    group: int
    monotonic_ns: int
    count: int
    root: int  # or peer
    func: str
    datatype: str
    captured: bool
    comm: int


class RecorderCost(msgspec.Struct, frozen=True):
    """What the recorder itself took of a process, up to the last record of it in a file."""

    seconds: float  # since the file was begun
    callbacks: int
    callback_ns: int  # on the threads of the job
    writer_ns: int  # CPU time of the writer's thread
    lost: int  # records
    written_bytes: int


def sniff(head: bytes) -> bool:
    """True for the beginning of such a file."""
    return head.startswith(MAGIC)


def is_current(data: bytes) -> bool:
    """Whether a recording is of the format that is read here."""
    return data[len(MAGIC) : len(MAGIC) + 1] == bytes([_VERSION])


def parse(data: bytes, _name: str) -> RecordedCalls:
    """Calls of one process, in the order in which the library launched them, groups as made.

    The GPU time of a call is from the first start of its channels to the last end; None where the
    file lacks one of them.
    """
    notes = Notes()
    reader = _Reader(notes)
    if is_current(data):
        for record in _records(data, notes):
            reader.read(record)
    elif len(data) > len(MAGIC):
        notes.add(Severity.DATA_LOSS, "unknown_version", _VERSION_TEXT, 1)
        return RecordedCalls(dialect="own_recorder", calls=(), diagnostics=notes.diagnostics)
    return reader.recorded()


def cost_of(data: bytes) -> RecorderCost | None:
    """What the recorder took of the process of a file; None where the file lacks it."""
    reader = _Reader(Notes())
    for record in _records(data, reader.notes):
        if record.kind in (_FILE, _COST):
            reader.read(record)
    return reader.cost


def _records(data: bytes, notes: Notes) -> Iterator[Record]:
    """Records of a file; after damage from the next on that its check proves."""
    for found in records_and_gaps(data):
        if isinstance(found, int):
            notes.add(Severity.DATA_LOSS, "torn_record", _TORN_TEXT, None, count=found)
        else:
            yield found


def records_and_gaps(data: bytes) -> Iterator[Record | int]:
    """Records of a file in turn, and how many bytes between them are none."""
    place = len(MAGIC) + 1
    while place < len(data):
        found = _record(data, place)
        if found is None:
            begun = place
            for match in _BEGINS.finditer(data, place + 1):
                place = match.start()
                if (found := _record(data, place)) is not None:
                    break
            else:
                place = len(data)
            yield place - begun
        if found is not None:
            record, size = found
            yield record
            place += size


class Renamed(Protocol):
    """What names of a recording become."""

    def host(self, host: str, /) -> str:
        """The host."""

    def text(self, text: str, /) -> str:
        """Any other text."""

    def hash(self, value: int, /) -> int:
        """A communicator, a stream, or the process's token."""

    def buffer(self, value: int, /) -> int:
        """The address of a buffer."""


def with_other_names(data: bytes, renamed: Renamed) -> bytes:
    """The same recording with other names; bytes that are no record are zero then."""
    parts = [data[: len(MAGIC) + 1]]
    for found in records_and_gaps(data):
        if isinstance(found, int):
            parts.append(bytes(found))
            continue
        body = found.body
        fixed = {_FILE: _FILE_BODY.size, _NAME: 0, _COMM: _COMM_BODY.size}.get(found.kind)
        if fixed is not None:
            first, *others = _texts(body[fixed:])
            new = [renamed.host(first) if found.kind == _FILE else renamed.text(first)]
            texts = [one.encode() for one in (*new, *map(renamed.text, others))]
            body = body[:fixed] + b"\0".join(texts)
        for at in _NUMBERS.get(found.kind, ()):
            value = int.from_bytes(body[at : at + 8], "little")
            other = renamed.buffer(value) if found.kind == _CALL else renamed.hash(value)
            body = body[:at] + other.to_bytes(8, "little") + body[at + 8 :]
        parts.append(_packed(found, body + bytes(-len(body) % 8)))
    return b"".join(parts)


def _packed(record: Record, body: bytes) -> bytes:
    """A record with another body."""
    size = _HEADER.size + len(body)
    head = _HEADER.pack(0, size, record.kind, record.small, record.ordinal, record.comm)[4:]
    return zlib.crc32(head + body).to_bytes(4, "little") + head + body


def _record(data: bytes, place: int) -> tuple[Record, int] | None:
    """The record at a place and its size; None where none is whole."""
    if place + _HEADER.size > len(data):
        return None
    check, size, kind, small, ordinal, comm = _HEADER.unpack_from(data, place)
    if size < _HEADER.size + _LEAST.get(kind, 0) or place + size > len(data):
        return None
    if zlib.crc32(data[place + 4 : place + size]) != check:
        return None
    body = data[place + _HEADER.size : place + size]
    return Record(kind, small, ordinal, comm, body), size


def _texts(body: bytes) -> list[str]:
    """Texts that each end in a zero byte."""
    return [part.decode("utf-8", errors="replace") for part in body.split(b"\0")]


class _Reader:
    """What was read so far."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.cost: RecorderCost | None = None
        self._process: _Process | None = None
        self._names: dict[int, str] = {}
        self._comms: dict[int, _Comm] = {}
        self._apis: dict[int, _Api] = {}
        self._launched: set[int] = set()
        self._calls: dict[int, tuple[Record, tuple[int, ...]]] = {}
        # By call, channel and start: of one that lasts, the last record has the end.
        self._kernels: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
        self._clock = GpuClock()
        self._unsound: frozenset[int] = frozenset()
        self._disarmed_ns = -1  # when kernel events ended last
        self._foreign = 0  # calls whose stamps are of other kernels
        self._first_lost: int | None = None
        self._next: int | None = None
        self._gaps = 0
        self._end: int | None = None

    def read(self, record: Record) -> None:
        """Take one record."""
        if self._next is not None and record.ordinal > self._next:
            self._gaps += record.ordinal - self._next
        self._next = record.ordinal + 1
        body = record.body
        if record.kind == _FILE:
            self._begin(record)
        elif record.kind == _NAME:
            self._names[record.small] = _texts(body)[0]
        elif record.kind == _COMM:
            hash_, opened, rank, nranks, _, _ = _COMM_BODY.unpack_from(body)
            known = nranks if nranks > 0 else None
            self._comms[record.comm] = _Comm(f"0x{hash_:x}", rank, known, opened)
        elif record.kind == _API:
            id_, group, at, count, _, _, root, func, datatype, _ = _API_BODY.unpack_from(body)
            self._apis[id_] = _Api(
                group, at, count, root, self._name(func), self._name(datatype),
                bool(record.small & _CAPTURED), record.comm,
            )  # fmt: skip
        elif record.kind == _CALL:
            fields = _CALL_BODY.unpack_from(body)
            self._calls[fields[0]] = record, fields
            self._launched.add(fields[1])
        elif record.kind == _KERNEL:
            self._take_span(record)
        elif record.kind == _COST:
            self._take_cost(body)
        else:
            self._take_course(record)

    def recorded(self) -> RecordedCalls:
        """Everything read."""
        self._unsound = self._with_foreign_stamps()
        numbered = []
        without = self._without_event()
        for record, fields in self._calls.values():
            comm = self._comms.get(record.comm)
            # The launches of a graph repeat the call that was captured.
            before = without.get(record.comm, [])
            while before and before[0][0] < fields[1]:
                id_, api = before.pop(0)
                numbered.append((id_, self._call_without_event(api)))
            if comm is None or not self._name(fields[9]):
                self.notes.add(Severity.DATA_LOSS, "stray_record", _STRAY_TEXT, None)
            else:
                numbered.append((fields[1], self._call(record, fields, comm)))
        for apis in without.values():
            numbered += [(id_, self._call_without_event(api)) for id_, api in apis]
        calls = _as_made(numbered)
        self._note(bool(calls))
        process = self._process
        entire = process is not None and process.segment == 0 and self._end == 0
        return RecordedCalls(
            dialect="own_recorder",
            calls=tuple(calls),
            rank=self.rank(),
            world_size=process.world_size or None if process else None,
            host=process.host or None if process else None,
            pid=parse_int(process.pid) if process else None,
            library_version=_version(process.library_version) if process else None,
            # ncclComm.seqNumber has one counter per function (comm.h since NCCL 2.23).
            seq_per_op=True,
            coverage="whole" if entire and not self.notes.diagnostics else "sample",
            callback_ns=None if self.cost is None else parse_int(self.cost.callback_ns),
            process=process.name if process else None,
            part=process.segment if process else 0,
            diagnostics=self.notes.diagnostics,
        )

    def rank(self) -> int | None:
        """World rank of the process; None where it drives several, or its environment has none."""
        process = self._process
        groups = [comm.group for comm in self._comms.values()]
        alone = len(set(groups)) == len(groups)
        return int(process.rank) if process and alone and process.rank.isdecimal() else None

    def _begin(self, record: Record) -> None:
        body = record.body
        real, monotonic, pid, token, segment, version, size, hip = _FILE_BODY.unpack_from(body)
        host, level, _, rank, *_ = [*_texts(body[_FILE_BODY.size :]), "", "", "", ""]
        name = f"{host}.{pid}.{token:x}"
        self._process = _Process(
            name, real, monotonic, pid, segment, version, size, bool(hip), record.small, host,
            level, rank[:9],
        )  # fmt: skip

    def _take_course(self, record: Record) -> None:
        """What the process does from here on."""
        if record.kind == _LEVEL and not record.small:
            (self._disarmed_ns,) = _LEVEL_BODY.unpack_from(record.body)
        elif record.kind == _END:
            self._end = record.small

    def _take_span(self, record: Record) -> None:
        call, start, stop, _, host_stop = _SPAN.unpack_from(record.body)
        self._kernels[call][record.small, start] = stop
        if stop:
            self._clock.pair(stop * self._tick, host_stop)

    def _take_cost(self, body: bytes) -> None:
        _, at, callbacks, callback_ns, writer_ns, dropped, unwritten, written = (
            _COST_BODY.unpack_from(body)
        )
        # Totals of the process: of a later file what came since its first.
        total, before = dropped + unwritten, self._first_lost
        if before is None:
            first = self._process is None or self._process.segment == 0
            before = self._first_lost = 0 if first else total
        begun = self._process.monotonic_ns if self._process else at
        seconds = max(at - begun, 0) / 1e9
        lost = min(max(total - before, 0), LIMIT // 2)
        self.cost = RecorderCost(seconds, callbacks, callback_ns, writer_ns, lost, written)

    def _name(self, number: int) -> str:
        return self._names.get(number, "")

    def _without_event(self) -> dict[int, list[tuple[int, _Api]]]:
        """Calls of each communicator with their numbers that were launched without an event.

        They were launched where a later call was, or the process ended in order. NCCL 2.30 and 2.32
        have no event for Broadcast (recorded on H200).
        """
        last: dict[int, int] = defaultdict(int)
        for id_ in self._launched & self._apis.keys():
            last[self._apis[id_].comm] = max(last[self._apis[id_].comm], id_)
        found: dict[int, list[tuple[int, _Api]]] = defaultdict(list)
        for id_, api in sorted(self._apis.items()):
            ran = id_ < last[api.comm] or self._end == 0
            if id_ not in self._launched and self._launches(api) and ran:
                found[api.comm].append((id_, api))
        count = sum(map(len, found.values()))
        self._launched.update(id_ for apis in found.values() for id_, _ in apis)
        self.notes.add(Severity.NOTICE, "no_profiler_event", _NO_EVENT_TEXT, None, count=count)
        return found

    def _call_without_event(self, api: _Api) -> RecordedCall:
        comm = self._comms[api.comm]
        return RecordedCall(
            collective=_collective(api.func, api.datatype, parse_int(api.count), api.root, comm),
            seq=None,
            start_ns=self._host_time(api.monotonic_ns),
            group_rank=comm.rank if comm.rank >= 0 else None,
            together=api.group or None,
        )

    def _host_time(self, monotonic_ns: int) -> int | None:
        process = self._process
        if process is None:
            return None
        return parse_int(process.real_ns + monotonic_ns - process.monotonic_ns)

    def _call(self, record: Record, fields: tuple[int, ...], comm: _Comm) -> RecordedCall:
        id_, api_id, at, seq, count, send, recv, _, root, *names = fields
        func, datatype, algorithm, protocol, channels = names[:5]
        name, type_name = self._name(func), self._name(datatype)
        op = parse_op(name)
        api = self._apis.get(api_id)
        elements = parse_int(count)
        if api is not None and api.func == name:
            # The library counts some operations in bytes, whatever the type of the call.
            size, wanted = _bytes(count, type_name), _bytes(api.count, api.datatype)
            if wanted is None:
                # NCCL has names for all types but one, of a byte.
                elements, type_name = parse_int(api.count), "ncclUint8" if size == api.count else ""
            elif size != wanted:
                self.notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, None)
                elements, type_name = None, ""
            else:
                elements, type_name = parse_int(api.count), api.datatype
        captured = api is not None and api.captured
        # The application made a captured call once, before all launches of its graph.
        made = at if api is None or captured else api.monotonic_ns
        start, duration, stop, state = self._times(id_, record.comm, made, channels)
        return RecordedCall(
            collective=replace(
                _collective(name, type_name, elements, root, comm),
                algorithm=self._name(algorithm).upper() or None,
                protocol=self._name(protocol).upper() or None,
            ),
            # A graph was captured once: its launches repeat the number of the call.
            seq=None if seq == _NO_SEQ or captured or record.small & _POINT_TO_POINT else seq,
            start_ns=start,
            duration_ns=duration,
            state=state,
            group_rank=comm.rank if comm.rank >= 0 else None,
            in_place=_in_place(op, (send, recv), comm.rank, _bytes(elements, type_name)),
            timing_source=None if duration is None else KERNEL_GPU,
            together=api.group if api is not None and api.group else None,
            kernel_end_ns=stop,
            channels=channels or None,
        )

    def _with_foreign_stamps(self) -> frozenset[int]:
        """Communicators with a kernel that began before its call, or while the call before it ran.

        The kernels of one communicator follow each other; calls of a group share one.
        """
        found = self._not_always_armed()
        ended: dict[int, tuple[int, int]] = {}  # of each communicator: group, last stop
        for record, fields in self._calls.values():
            spans = self._kernels.get(fields[0])
            if not spans or record.comm in found or 0 in spans.values():
                continue
            api = self._apis.get(fields[1])
            group = api.group if api is not None else 0
            first = min(begun for _, begun in spans) * self._tick
            last = max(spans.values()) * self._tick
            before, stop = ended.get(record.comm, (0, 0))
            together = group != 0 and group == before
            # The event of a launch comes behind it, sometimes by milliseconds: only the call of
            # the application is surely before the kernel.
            made = 0 if api is None or api.captured else api.monotonic_ns
            if (not together and first + _SETTLED_NS < stop) or self._clock.precedes(first, made):
                found.add(record.comm)
            ended[record.comm] = group, max(last, stop) if together else last
        return frozenset(found)

    def _not_always_armed(self) -> set[int]:
        """Communicators with calls without kernel events, where the library then miscounts."""
        process = self._process
        if process is None or process.library_version < _TIMES_NEED_ALL_FROM:
            return set()
        never = process.level in _UNTIMED_LEVELS
        return {n for n, comm in self._comms.items() if never or comm.opened_ns < self._disarmed_ns}

    @property
    def _tick(self) -> int:
        """Nanoseconds of a stamp's unit."""
        return _AMD_TICK_NS if self._process is not None and self._process.amd else 1

    def _times(
        self, call: int, comm: int, monotonic_ns: int, channels: int
    ) -> tuple[int | None, int | None, int | None, str | None]:
        """Host time of a call, GPU time of its kernels and their end, and its state."""
        spans = self._kernels.get(call, {})
        start = self._host_time(monotonic_ns)
        if spans and comm in self._unsound:
            self._foreign += 1
            return start, None, None, None
        each_once = len(spans) == len({channel for channel, _ in spans})
        if not spans or not each_once or (channels and len(spans) != channels):
            return start, None, None, None
        if any(stop == 0 for stop in spans.values()):
            # Of a process that ended in order, the library may keep the last ends to itself.
            return start, None, None, "started" if self._end is None else None
        first, last = min(begun for _, begun in spans), max(spans.values())
        lasted, stop = (last - first) * self._tick, last * self._tick
        if not 0 < lasted <= stop < LIMIT:
            return start, None, None, "completed"
        return start, lasted, stop, "completed"

    def _note(self, any_calls: bool) -> None:
        """Count what the file lacks."""
        lost = self.cost.lost if self.cost is not None else 0
        self.notes.add(Severity.DATA_LOSS, "recorder_dropped", _DROPPED_TEXT, None, count=lost)
        # What the file did not take has numbers, too.
        note_missing(self.notes, max(self._gaps - lost, 0))
        stray = len(self._kernels.keys() - self._calls.keys())
        self.notes.add(Severity.NOTICE, "stray_record", _STRAY_TEXT, None, count=stray)
        left = sum(
            1
            for id_, api in self._apis.items()
            if id_ not in self._launched and self._launches(api)
        )
        self.notes.add(Severity.NOTICE, "foreign_stamps", _FOREIGN_TEXT, None, count=self._foreign)
        self.notes.add(Severity.NOTICE, "not_launched", _UNLAUNCHED_TEXT, None, count=left)
        if self._end is None:
            self.notes.add(Severity.NOTICE, "no_end", _OPEN_TEXT, None)
        if not any_calls:
            self.notes.add(Severity.NOTICE, "no_calls", _NONE_TEXT, None)

    def _launches(self, api: _Api) -> bool:
        """Whether a call launches something by itself: one rank alone, and no data, do not."""
        comm = self._comms.get(api.comm)
        return bool(api.count and not api.captured and comm is not None and comm.nranks != 1)


class GrowingProcess(msgspec.Struct, frozen=True):
    """What the files of a process show of it so far; None: not known."""

    host: str | None
    pid: int | None
    rank: int | None  # world rank
    world_size: int | None
    level: str | None  # when it began its last file
    interface: int | None  # of the profiler plugin
    library_version: str | None
    amd: bool
    unsound: frozenset[str]  # communicators whose GPU times are of other kernels
    ended: bool
    lost: int  # records: dropped by the recorder, or missing in the files
    from_start: bool  # its files are read from the first on
    newer: bool  # a file is of a newer format, and nothing of it is read


class NewRecords(msgspec.Struct, frozen=True):
    """What new bytes of a recording brought: each call once in each."""

    launched: tuple[RecordedCall, ...]
    timed: tuple[RecordedCall, ...]  # whose GPU time is known from now on


class GrowingRecording(_Reader):
    """The files of one process while it writes them: bytes in, calls out.

    It holds the last `_HELD` calls: of one whose kernels end later the GPU time stays unknown.
    """

    def __init__(self) -> None:
        """Start without a byte."""
        super().__init__(Notes())
        self._rest = b""
        self._begun = False
        self._newer = False
        self._timed: set[int] = set()
        self._first_segment: int | None = None

    def begin_file(self) -> None:
        """What comes next is of the process's next file."""
        self._rest, self._begun = b"", False

    def feed(self, data: bytes) -> NewRecords:
        """Take the next bytes of the file; a record that is not whole waits for more."""
        data = self._rest + data
        place = 0
        if not self._begun:
            if len(data) <= len(MAGIC):
                self._rest = data
                return NewRecords((), ())
            place, self._begun = len(MAGIC) + 1, True
            self._newer |= data[:place] != MAGIC + bytes([_VERSION])
        launched: list[int] = []
        touched: dict[int, None] = {}
        while (found := self._next_whole(data, place)) is not None:
            record, place = found
            self.read(record)
            if record.kind == _CALL:
                launched.append(_ID.unpack_from(record.body)[0])
            if record.kind in (_CALL, _KERNEL):
                touched[_ID.unpack_from(record.body)[0]] = None
        self._rest = data[max(place, len(data) - _LONGEST) :]
        if self._first_segment is None and self._process is not None:
            self._first_segment = self._process.segment
        self._unsound |= self._with_foreign_stamps()
        fresh = NewRecords(
            (*self._made_of(launched), *self._passed_over()),
            tuple(call for call in self._made_of(self._complete(touched)) if call.duration_ns),
        )
        self._forget()
        return fresh

    def process(self) -> GrowingProcess:
        """What is known of the process."""
        process = self._process
        lost = self.cost.lost if self.cost is not None else 0
        return GrowingProcess(
            host=process.host or None if process else None,
            pid=parse_int(process.pid) if process else None,
            rank=self.rank(),
            world_size=process.world_size or None if process else None,
            level=process.level or None if process else None,
            interface=process.interface if process else None,
            library_version=_version(process.library_version) if process else None,
            amd=process.amd if process else False,
            unsound=frozenset(self._comms[c].group for c in self._unsound if c in self._comms),
            ended=self._end == 0,
            lost=max(lost, self._gaps),
            from_start=self._first_segment == 0,
            newer=self._newer,
        )

    def _next_whole(self, data: bytes, place: int) -> tuple[Record, int] | None:
        """The next record that its check proves, and the place behind it."""
        found = _record(data, place)
        if found is None and not _is_cut(data, place):
            for match in _BEGINS.finditer(data, place + 1):
                place = match.start()
                if (found := _record(data, place)) is not None:
                    break
        return None if found is None else (found[0], place + found[1])

    def _made_of(self, ids: Iterable[int]) -> Iterator[RecordedCall]:
        for id_ in ids:
            record, fields = self._calls[id_]
            comm = self._comms.get(record.comm)
            if comm is not None and self._name(fields[9]):
                yield self._call(record, fields, comm)

    def _complete(self, ids: Iterable[int]) -> Iterator[int]:
        """Calls whose last channel ended now."""
        for id_ in ids:
            spans, known = self._kernels.get(id_), self._calls.get(id_)
            if not spans or known is None or id_ in self._timed or 0 in spans.values():
                continue
            if len(spans) == known[1][13]:
                self._timed.add(id_)
                yield id_

    def _passed_over(self) -> Iterator[RecordedCall]:
        """Calls without an event of the library, once one of a later group was launched."""
        last: dict[int, int] = {}
        for id_ in self._launched & self._apis.keys():
            last[self._apis[id_].comm] = max(last.get(self._apis[id_].comm, 0), id_)
        for id_, api in self._apis.items():
            later = last.get(api.comm, 0)
            if id_ in self._launched or id_ > later or not self._launches(api):
                continue
            if api.group != self._apis[later].group:
                self._launched.add(id_)
                yield self._call_without_event(api)

    def _forget(self) -> None:
        """Drop all but the last calls; what is captured is launched again."""
        while len(self._calls) > _HELD:
            id_ = next(iter(self._calls))
            self._timed.discard(id_)
            del self._calls[id_]
        if len(self._apis) > 2 * _HELD:
            kept = sorted(self._apis)[-_HELD:]
            self._apis = {i: a for i, a in self._apis.items() if a.captured or i >= kept[0]}
            self._launched &= self._apis.keys()
        if len(self._kernels) > 2 * _HELD:
            oldest = next(iter(self._calls))
            self._kernels = defaultdict(
                dict, {i: spans for i, spans in self._kernels.items() if i >= oldest}
            )
        self._clock.forget()


def _is_cut(data: bytes, place: int) -> bool:
    """Whether a record may begin at a place and end behind the data."""
    if place + _HEADER.size > len(data):
        return True
    size: int = _HEADER.unpack_from(data, place)[1]
    return size >= _HEADER.size and place + size > len(data)


def _as_made(numbered: list[tuple[int, RecordedCall]]) -> list[RecordedCall]:
    """Calls of a group, which the library launches by size, in the application's order."""
    groups = groupby(numbered, lambda call: (call[1].collective.group, call[1].together))
    return [
        call
        for (_, together), members in groups
        for _, call in (sorted(members, key=itemgetter(0)) if together else members)
    ]


def _collective(
    name: str,
    datatype: str,
    elements: int | None,
    root: int,
    comm: _Comm,
) -> TraceCollective:
    """What was called, on `elements` of a type."""
    op = parse_op(name)
    gets = op in (Op.REDUCE_SCATTER, Op.RECV)
    return TraceCollective(
        op=op,
        datatype=parse_datatype(datatype) if datatype else None,
        in_count=None if gets else elements,
        out_count=elements if gets else None,
        group=comm.group,
        group_size=comm.nranks,
        root=root if op.rooted and root >= 0 else None,
        peer=root if op.point_to_point and root >= 0 else None,
    )


def _in_place(op: Op, buffers: tuple[int, int], rank: int, part_bytes: int | None) -> bool | None:
    """Whether a rank's call is in place; None where its buffers or its part are not known.

    buffers     addresses: sent from, received in
    part_bytes  what one rank gives or gets
    """
    send, recv = buffers
    if not send or not recv or not op.has_in_place:
        return None
    if op.place is BufferPlace.SAME:
        return send == recv
    if part_bytes is None or rank < 0:
        return None
    whole_buffer, part = (recv, send) if op.place is BufferPlace.PART_OF_RECV else (send, recv)
    return part == whole_buffer + rank * part_bytes


def _bytes(count: int | None, datatype: str) -> int | None:
    """Bytes of so many elements; None where they or the type's width are not known."""
    width = parse_datatype(datatype).itemsize if datatype else None
    return None if width is None or count is None else count * width


def _version(code: int) -> str | None:
    """Release of a number of ncclGetVersion.

    >>> _version(22809), _version(2708)
    ('2.28.9', '2.7.8')
    """
    if code <= 0:
        return None
    step = 10_000 if code >= 10_000 else 1000  # until 2.8
    return f"{code // step}.{code % step // 100}.{code % 100}"


READER = recorder_reader("own_recorder", sniff, parse)
