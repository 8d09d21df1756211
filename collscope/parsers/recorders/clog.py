"""torchcomms' clog: every collective of a rank as a line, version 1.

Lines: ClogHook.cpp, SignatureBuilder.cpp and AI_TOOL_INSTRUCTIONS_V1.md of meta-pytorch/torchcomms
(comms/torchcomms/hooks, August 2026). Times are the host's, in milliseconds, when the hook saw the
event: no duration follows from them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from collscope.model import Datatype, Op, Severity, parse_datatype, parse_redop
from collscope.model.limits import LIMIT
from collscope.model.trace import RecordedCall, RecordedCalls, TraceCollective
from collscope.parsers._gaps import count_missing
from collscope.parsers._notes import Notes, ended_lines
from collscope.parsers._sides import CODE, CONTRADICT_TEXT, counts_contradict
from collscope.parsers.reader import recorder_reader
from collscope.parsers.recorders._numbering import note_again, note_missing
from collscope.parsers.recorders._values import parse_int, text
from collscope.parsers.traces.kineto_names import parse_collective

if TYPE_CHECKING:
    from collections.abc import Mapping

DIALECT = "clog"
# V|1|base_timestamp=1714234567.890
_VERSION = re.compile(r"V\|(\d{1,4})\|base_timestamp=(\d{1,12}\.\d{3})")
# C1|sig|all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f|comm=world
_SIGNATURE = re.compile(r"C(\d{1,18})\|sig\|(.*)")
# C1|Q|work_id=1|+0.001 / C1|S|+0.002 / G42|C1|E|+1.005 / G42|R1|C1|S|+2.001
_EVENT = re.compile(
    r"(?:G(?P<graph>\d{1,20})\|(?:R(?P<replay>\d{1,18})\|)?)?C(?P<id>\d{1,18})\|"
    r"(?P<what>Q\|work_id=(?P<work>\d{1,18})|S|E|W)\|\+(?P<at>-?\d{1,12}\.\d{3})"
)
# new_comm|comm=world|rank=0|world_size=8
_NEW = re.compile(r"new_comm\|comm=(.{1,512})\|rank=(\d{1,9})\|world_size=(\d{1,9})")
# split|parent=world|child=dp|ranks=0,2,4,6
_SPLIT = re.compile(r"split\|parent=(.{1,512})\|child=(.{1,512})\|ranks=([\d,]*)")
_TYPES = {
    "f32": Datatype.FLOAT32, "f64": Datatype.FLOAT64, "f16": Datatype.FLOAT16,
    "bf16": Datatype.BFLOAT16, "i32": Datatype.INT32, "i64": Datatype.INT64,
    "i8": Datatype.INT8, "u8": Datatype.UINT8, "bool": Datatype.UINT8,
    "fp8e4m3": Datatype.FLOAT8E4M3, "fp8e5m2": Datatype.FLOAT8E5M2,
}  # fmt: skip
_IN_PLACE = (Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE)  # one tensor is both sides
_MOST_RANKS = 1 << 20

_VERSION_TEXT = "The log is of another version than 1: it was read by that version's rules."
_TORN_TEXT = "Lines that are cut or damaged were skipped."
_LOST_TEXT = "Events whose signature is not in the log were skipped."
_BATCH_TEXT = "Batches of sends and receives: their contents are not recorded."
_WARNED_TEXT = "The hook itself reported events that do not match."


def sniff(head: bytes) -> bool:
    """True for the beginning of such a log."""
    return _VERSION.match(head[:64].decode("utf-8", errors="replace")) is not None


def parse(data: bytes, name: str) -> RecordedCalls:
    """Collectives of one rank in the order in which they were enqueued, graph replays behind them.

    name   unused: the log names rank and communicators
    """
    reader = _Reader()
    for number, line, ended in ended_lines(data.decode("utf-8", errors="replace")):
        if line.strip():
            reader.read(number, line, ended=ended)
    return reader.recorded()


class _Call(msgspec.Struct):
    """A call as far as its events were read."""

    collective: TraceCollective
    state: str
    start_ns: int
    end_ns: int | None = None


_Key: TypeAlias = tuple[str | None, str | None, str]  # graph, replay of it, signature


class _Reader:
    """Lines read so far."""

    def __init__(self) -> None:
        self.notes = Notes()
        self._base_ns = 0
        self._rank: int | None = None
        self._world: int | None = None
        self._groups: dict[str, tuple[int, ...]] = {}
        self._room = _MOST_RANKS  # of all groups together
        self._sizes: dict[str, int] = {}
        self._signatures: dict[str, TraceCollective] = {}
        self._calls: list[_Call] = []
        # Calls of a signature whose start, or end, is still to come: they run in their order.
        self._to_start: dict[_Key, deque[_Call]] = defaultdict(deque)
        self._to_end: dict[_Key, deque[_Call]] = defaultdict(deque)
        self._lifecycle = False
        self._works: set[int] = set()  # every enqueued call has a number of its own
        self._in_graph: Counter[tuple[str, str]] = Counter()  # calls of a signature captured
        self._in_replay: Counter[_Key] = Counter()  # and launched again

    def read(self, number: int, line: str, *, ended: bool) -> None:
        """Take one line."""
        if not ended:
            self.notes.add(Severity.DATA_LOSS, "torn_record", _TORN_TEXT, number, line)
        elif event := _EVENT.fullmatch(line):
            self._event(event, number)
        elif signature := _SIGNATURE.fullmatch(line):
            self._sign(signature[1], signature[2], number)
        elif new := _NEW.fullmatch(line):
            self._communicator(new, number)
        elif split := _SPLIT.fullmatch(line):
            self._split(split)
        elif version := _VERSION.fullmatch(line):
            self._base_ns = round(float(version[2]) * 1000) * 1_000_000
            if version[1] != "1":
                self.notes.add(Severity.NOTICE, "other_version", _VERSION_TEXT, number, line)
        elif line.startswith("WARN|"):
            self.notes.add(Severity.NOTICE, "recorder_warned", _WARNED_TEXT, number, line)
        else:
            self.notes.add(Severity.DATA_LOSS, "torn_record", _TORN_TEXT, number, line)

    def _communicator(self, new: re.Match[str], number: int) -> None:
        name, size = new[1], int(new[3])
        rank: int | None = int(new[2])
        if rank is not None and rank >= size:
            self.notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, number, new[0])
            rank = None
        self._sizes[name] = size
        # The largest counts as all ranks of the job.
        if size > (self._world or 0):
            self._rank, self._world = rank, size
            self._room -= size  # a file that names many large ones lists none of them
            if self._room >= 0:
                self._groups[name] = tuple(range(size))

    def _split(self, split: re.Match[str]) -> None:
        places = [int(place) for place in split[3].split(",") if place and len(place) < 10]
        parent = self._groups.get(split[1])
        if parent is not None and all(place < len(parent) for place in places):
            self._groups[split[2]] = tuple(parent[place] for place in places)
        self._sizes[split[2]] = len(places)

    def _sign(self, key: str, body: str, number: int) -> None:
        name, *parts = body.split("|")
        fields = dict(part.partition("=")[::2] for part in parts)
        group = text(fields.get("comm"))
        redop = parse_redop(fields.get("red_op", ""))
        datatype = fields.get("dtype")
        known = None if datatype is None else _TYPES.get(datatype) or parse_datatype(datatype)
        op = Op.UNKNOWN if name == "batch_op_issue" else parse_collective(name)
        into, out = (_count(fields, side) for side in ("in", "out"))
        if counts_contradict(op, (into, out), self._sizes.get(group or "")):
            self.notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, number, body)
            into = out = None
        self._signatures[key] = TraceCollective(
            op=op,
            datatype=known,
            in_count=into,
            out_count=out,
            group=group,
            group_size=self._sizes.get(group or ""),
            group_ranks=self._groups.get(group or ""),
            redop=None if redop is None else redop.value,
            root=parse_int(fields.get("root")),
            peer=parse_int(fields.get("peer")),
            in_split=_numbers(fields.get("in_splits")),
            out_split=_numbers(fields.get("out_splits")),
            description=group,
        )

    def _event(self, event: re.Match[str], number: int) -> None:
        if self._is_repeat(event):
            note_again(self.notes, line=number)
            return
        collective = self._signatures.get(event["id"])
        if collective is None:
            self.notes.add(Severity.DATA_LOSS, "lost_signature", _LOST_TEXT, number, event[0])
            return
        at_ns = self._base_ns + round(float(event["at"]) * 1000) * 1_000_000
        what, key = event["what"][0], (event["graph"], event["replay"], event["id"])
        if what == "Q" or (what == "S" and event["replay"]):
            self._begin(key, collective, at_ns, number)
        if what == "S" and self._to_start[key]:
            call = self._to_start[key].popleft()
            call.state = "started"
            self._to_end[key].append(call)
        elif what == "E" and self._to_end[key]:
            call = self._to_end[key].popleft()
            call.state, call.end_ns = "completed", at_ns
        self._lifecycle |= what in "SE"

    def _is_repeat(self, event: re.Match[str]) -> bool:
        """Whether the log has this call already: its number, or all that its graph holds."""
        graph, signature, work = event["graph"], event["id"], event["work"]
        if work is not None:
            known = int(work) in self._works
            self._works.add(int(work))
            if graph is not None and not known:
                self._in_graph[graph, signature] += 1
            return known
        if event["replay"] is None or event["what"] != "S":
            return False
        key = (graph, event["replay"], signature)
        self._in_replay[key] += 1
        return 0 < self._in_graph[graph, signature] < self._in_replay[key]

    def _begin(self, key: _Key, collective: TraceCollective, at_ns: int, number: int) -> None:
        graph, replay, _ = key
        if collective.op is Op.UNKNOWN and collective.in_count is None:
            self.notes.add(Severity.NOTICE, "batch_not_told", _BATCH_TEXT, number)
        captured = graph is not None and replay is None
        call = _Call(collective, "captured" if captured else "scheduled", at_ns)
        self._calls.append(call)
        if not captured:  # what a graph captures runs when it is replayed
            self._to_start[key].append(call)

    def recorded(self) -> RecordedCalls:
        """Everything read."""
        note_missing(self.notes, count_missing(self._works, first=1))
        if not self._calls:
            message = "The recording holds no collectives."
            self.notes.add(Severity.NOTICE, "no_calls", message, 1)
        return RecordedCalls(
            dialect=DIALECT,
            calls=tuple(self._call(call) for call in self._calls),
            rank=self._rank,
            world_size=self._world,
            groups=tuple(self._groups.items()),
            coverage="whole",
            diagnostics=self.notes.diagnostics,
        )

    def _call(self, call: _Call) -> RecordedCall:
        members = call.collective.group_ranks or ()
        state_known = self._lifecycle or call.state == "captured"
        return RecordedCall(
            collective=call.collective,
            seq=None,
            start_ns=call.start_ns,
            end_ns=call.end_ns,
            state=call.state if state_known else None,
            group_rank=members.index(self._rank) if self._rank in members else None,
            in_place=True if call.collective.op in _IN_PLACE else None,
        )


def _count(fields: Mapping[str, str], side: str) -> int | None:
    """Elements of one side: of one tensor, of all of a list, or of all parts."""
    one = parse_int(fields.get(f"{side}_count"))
    if one is not None:
        return one
    listed = _numbers(fields.get(f"{side}_counts") or fields.get(f"{side}_splits"))
    return min(sum(listed), LIMIT - 1) if listed else None


def _numbers(listed: str | None) -> tuple[int, ...]:
    found = [parse_int(part) for part in (listed or "").split(",") if part]
    known = tuple(number for number in found if number is not None)
    return known if len(known) == len(found) <= _MOST_RANKS else ()


READER = recorder_reader(DIALECT, sniff, parse)
