"""Trace of NCCL's example profiler plugin (``NCCL_PROFILE_DUMP_FILE``), API v1 to v6.

Events: print_event.cc of NVIDIA/nccl 2.23 to 2.30 (ext-profiler/example, later
plugins/profiler/example) and ROCm/rccl. It is an array that the process closes when it ends, and
no JSON: data types and streams of the API events are not quoted (until rocm-systems 3216).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from collscope.model import Op, Severity, parse_datatype, parse_op
from collscope.model.trace import RecordedCall, RecordedCalls, TraceCollective
from collscope.parsers._notes import Notes
from collscope.parsers._sides import CODE, CONTRADICT_TEXT
from collscope.parsers.reader import recorder_reader
from collscope.parsers.recorders._numbering import (
    lacking_calls,
    note_again,
    note_missing,
    note_open,
)
from collscope.parsers.recorders._values import (
    communicator,
    decode,
    mapping,
    name_of,
    number,
    parse_int,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIGNS = re.compile(
    rb'"cat"\s*:\s*"(?:GROUP|GROUP_API|COLL|COLL_API|P2P|P2P_API|KERNEL_LAUNCH|PROXY)"'
)
# "datatype": ncclFloat32, "Stream": 0x4142e90
_BARE = re.compile(r"(:\s*)(nccl\w+|0x[0-9a-fA-F]+|\(nil\))(?=\s*[,}])")
_CALLS = ("COLL", "P2P")
# Events of a group of calls stand between its "b" and its "e"; API v5 on has both.
_GROUPS = ("GROUP", "GROUP_API")
_APIS = ("COLL_API", "P2P_API")
_LIMIT = 2**63
_NO_NAME = "Events without an operation or communicator were skipped."


def sniff(head: bytes) -> bool:
    """True for the beginning of such a trace."""
    return head.lstrip()[:1] in (b"[", b"{") and _SIGNS.search(head) is not None


def parse(data: bytes, name: str) -> RecordedCalls:
    """Collectives and point-to-point calls of one process, in the order of their start.

    name   the file's name, which ends in host and thread: ``trace-HOST-TID.txt``
    """
    reader = _Reader()
    source = data.decode("utf-8", errors="replace")
    for number_, line in enumerate(source.split("\n"), start=1):
        reader.read(number_, line.strip())
    if not source.rstrip().endswith("]"):
        note_open(reader.notes, source.count("\n") + 1)
    return reader.recorded(_host(name))


class _Open(msgspec.Struct):
    """A call whose end has not been read."""

    collective: TraceCollective
    seq: int | None
    rank: int | None
    start_ns: int | None
    together: int | None  # group of calls
    end_ns: int | None = None


class _Reader:
    """Calls read so far."""

    def __init__(self) -> None:
        self.notes = Notes()
        self._calls: list[_Open] = []
        self._open: dict[tuple[object, ...], _Open] = {}
        self._pid: int | None = None
        self._group: tuple[object, ...] | None = None  # that is open
        self._groups = 0
        # Calls of the API that a thread has open: operation and bytes of its tensor.
        self._api: dict[tuple[object, ...], tuple[str | None, int | None]] = {}
        self._begun: set[str] = set()  # lines of beginnings, which a thread numbers and stamps

    def read(self, line: int, source: str) -> None:
        """Take one line, which holds one event or none."""
        place = source.find("{")
        if place < 0:
            return
        found = decode(source, place) or decode(_BARE.sub(r'\1"\2"', source[place:]), 0)
        if found is None:
            message = "Events that are cut or damaged were skipped."
            self.notes.add(Severity.DATA_LOSS, "torn_record", message, line, source)
            return
        event = mapping(found[0])
        category, phase = text(event.get("cat")), text(event.get("ph"))
        if category not in (*_CALLS, *_GROUPS, *_APIS):
            return
        self._pid = self._pid or parse_int(event.get("pid"))
        # Each thread counts its own events, and begins to write when its communicator ends.
        key = (
            category,
            parse_int(event.get("pid")),
            parse_int(event.get("tid")),
            parse_int(event.get("id")),
        )
        if phase == "b":
            if source in self._begun:
                note_again(self.notes, line=line)
                return
            self._begun.add(source)
        if category in _APIS:
            self._in_api(key, phase, event)
        elif category in _GROUPS:
            self._in_group(key, phase)
        elif phase == "b":
            self._begin(line, key, event, mapping(event.get("args")))
        elif phase == "e" and key in self._open:
            self._open.pop(key).end_ns = _ns(event.get("ts"))

    def _in_api(
        self, key: tuple[object, ...], phase: str | None, event: Mapping[object, object]
    ) -> None:
        # {"name": "AllReduce", "cat": "COLL_API", "ph": "b", "id": 0, …, "args": {"count": 32768,
        #  "datatype": ncclFloat32, …}}
        if phase == "b":
            args = mapping(event.get("args"))
            self._api[key] = text(event.get("name")), _bytes(args, "count", "datatype")
        else:
            self._api.pop(key, None)

    def _in_group(self, key: tuple[object, ...], phase: str | None) -> None:
        # {"name": "Group", "cat": "GROUP", "ph": "b", "id": 3, …, "args": {"groupId": 3}}
        # Some files lack the end: then the next of its kind begins another.
        if phase == "b" and (self._group is None or self._group[0] == key[0]):
            self._group = key
            self._groups += 1
        elif phase == "e" and key == self._group:
            self._group = None

    def recorded(self, host: str | None) -> RecordedCalls:
        """Everything read."""
        calls = tuple(
            RecordedCall(
                collective=call.collective,
                seq=call.seq,
                start_ns=call.start_ns,
                end_ns=call.end_ns,
                group_rank=call.rank,
                together=call.together,
            )
            for call in self._calls
        )
        if not self._calls:
            message = "The recording holds no collectives."
            self.notes.add(Severity.NOTICE, "no_calls", message, 1)
        note_missing(self.notes, lacking_calls(calls))
        return RecordedCalls(
            dialect="profiler_plugin",
            calls=calls,
            host=host,
            pid=self._pid,
            # ncclComm.seqNumber has one counter per function (comm.h since NCCL 2.23).
            seq_per_op=True,
            diagnostics=self.notes.diagnostics,
        )

    def _begin(
        self,
        line: int,
        key: tuple[object, ...],
        event: Mapping[object, object],
        args: Mapping[object, object],
    ) -> None:
        # {"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "pid": 225798, "tid": 1,
        #  "ts": 1433.29, "args": {"SeqNum": 0, "CommHash": 673864846479792718, "Rank": 1,
        #  "Count": 32768, "Datatype": "ncclFloat32", "Algorithm": "RING", "Protocol": "LL", …}}
        name, group = text(event.get("name")), communicator(args.get("CommHash"))
        if name is None or group is None:
            self.notes.add(Severity.DATA_LOSS, "record_without_communicator", _NO_NAME, line)
            return
        name_of_type, op = text(args.get("Datatype")), parse_op(name)
        # The count of the API: of a ReduceScatter what each rank gets, else what it puts.
        count, gets = parse_int(args.get("Count")), op in (Op.REDUCE_SCATTER, Op.RECV)
        if self._contradicts(key, name, _bytes(args, "Count", "Datatype")):
            self.notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, line)
            count = name_of_type = None
        call = _Open(
            TraceCollective(
                op=op,
                datatype=None if name_of_type is None else parse_datatype(name_of_type),
                in_count=None if gets else count,
                out_count=count if gets else None,
                group=group,
                root=parse_int(args.get("Root")),
                peer=parse_int(args.get("Peer")),
                algorithm=name_of(args.get("Algorithm")),
                protocol=name_of(args.get("Protocol")),
            ),
            seq=parse_int(args.get("SeqNum")),
            rank=parse_int(args.get("Rank")),
            start_ns=_ns(event.get("ts")),
            together=None if self._group is None else self._groups,
        )
        self._calls.append(call)
        self._open[key] = call

    def _contradicts(self, key: tuple[object, ...], name: str, size: int | None) -> bool:
        """Whether a call has other bytes than the call of the API that it is in.

        The library counts some operations in bytes, whatever the type that the API was given.
        """
        thread = key[1:3]
        around = [own for api, own in self._api.items() if api[1:3] == thread and own[0] == name]
        return (
            bool(around)
            and size is not None
            and {own[1] for own in around}.isdisjoint((size, None))
        )


def _bytes(args: Mapping[object, object], count: str, datatype: str) -> int | None:
    """Bytes of so many elements of a type; None where one of them is not known."""
    elements, name = parse_int(args.get(count)), text(args.get(datatype))
    width = None if name is None else parse_datatype(name).itemsize
    return None if elements is None or width is None else elements * width


def _ns(time_us: object) -> int | None:
    """Time in ns; None for 0.000000, which means that the event was never stamped."""
    value = number(time_us)
    return round(value * 1000) if value and value * 1000 < _LIMIT else None


def _host(name: str) -> str | None:
    # ncclprof-node-12-225798.txt: host names may have dashes themselves
    base = re.split(r"[/\\]", name)[-1]
    match = re.fullmatch(r"[^-]*-(.{1,255})-\d+\.txt(?:\.\w+)?", base)
    return match[1] if match else None


READER = recorder_reader("profiler_plugin", sniff, parse)
