"""PyTorch flight recorder, JSON form: the last collectives of a rank and how far they got.

Fields: FlightRecorder.hpp and FlightRecorderDetail.hpp of torch/csrc/distributed/c10d (format 2.0
to 2.10), and FlightRecorder.cpp of meta-pytorch/torchcomms (August 2026), which has the same fields
and other numbers. The pickled form has the same fields; `flight_pickle` reads it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from collscope.model import Op, Severity
from collscope.model.limits import LIMIT
from collscope.model.trace import GroupStatus, RecordedCall, RecordedCalls, TraceCollective
from collscope.parsers._gaps import count_missing
from collscope.parsers._notes import Notes
from collscope.parsers._sides import CODE, CONTRADICT_TEXT, counts_contradict
from collscope.parsers.reader import recorder_reader
from collscope.parsers.recorders._numbering import note_missing, once
from collscope.parsers.recorders._values import (
    decode,
    decode_document,
    mapping,
    number,
    parse_int,
    ranks,
    sequence,
    text,
    without_deep,
)
from collscope.parsers.traces.kineto_names import described, parse_collective, parse_dtype

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from collscope.model import Datatype

_SIGNS = re.compile(
    rb'"(?:collective_seq_id|p2p_seq_id|comm_lib_version|nccl_version|pg_config)"\s*:'
)
# Kineto traces name process groups and version too, in their distributedInfo.
_TRACE = re.compile(rb'"(?:schemaVersion|deviceProperties|distributedInfo|traceEvents)"\s*:')
_ENTRIES = re.compile(r'"entries"\s*:\s*\[')
# nccl:all_reduce, ncclx:all_gather, gloo:broadcast; the arrow names the peer's rank in the group
_BACKEND = re.compile(r"[\w.-]+:")
_CLOSES_GROUP = re.compile(r"(?:\w+:)?coalesced")
_PEER = re.compile(r"(\d{1,9})\s*(?:->|<-)\s*(\d{1,9})")
# ddp.fr.rank0.json, nccl_trace_rank_3, _dump_1, 12
_SEPARATOR = re.compile(r"[_.\-]|(?<=[a-z])(?=\d)", re.IGNORECASE)
_NUMBERS_TEXT = (
    "The recorder's ring buffer overflowed, and it numbers the calls of all groups of a process "
    "together: ranks can be matched only where they made the same calls in all groups."
)
_SECOND_TEXT = (
    "The file continues after its first dump, and that part was not read. Give each dump a file "
    "of its own."
)
_ACTIVE_TEXT = (
    "The dump holds only calls that did not complete: its numbering shows at least this many "
    "other calls between them."
)
_DEEP_TEXT = "Values nested too deep to be read were left out."
_STATUS_TEXT = (
    "The dump's status of a group contradicts its entries: a call is completed that the status "
    "counts as not enqueued. The status is not used."
)
_AGAIN_TEXT = "The file holds the dump twice, equal in every field: it was counted once."
_MOST_FRAMES = 16  # of a call: the innermost show where it stands
_MOST_RANKS = 1 << 24  # of all groups together, and characters that list them


_Whole = Annotated[int, msgspec.Meta(ge=0, le=LIMIT - 1)]
_ABSENT = msgspec.Raw()


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry. Its numbers are checked; what other entries repeat is decoded once, in `_Kind`.

    The garbage collector does not count these: with them it would walk the whole dump again.
    """

    record_id: _Whole | None = None  # of the entry in its process, from 0
    pg_id: _Whole | None = None
    # of the collective in its group, from 1; a coalesced group has one
    collective_seq_id: _Whole | None = None
    # of the Send or Recv, or of its batch, in its group, from 1
    p2p_seq_id: _Whole | None = None
    op_id: _Whole | None = None  # of the operation in its group, from 1
    time_created_ns: int | None = None
    time_discovered_started_ns: _Whole | None = None
    time_discovered_completed_ns: _Whole | None = None
    duration_ms: float | None = None
    timeout_ms: float | None = None
    state: str | None = None
    is_p2p: bool | None = None
    # Of JSON these are undecoded.
    process_group: Any = _ABSENT
    profiling_name: Any = _ABSENT
    input_sizes: Any = _ABSENT
    input_dtypes: Any = _ABSENT
    output_sizes: Any = _ABSENT
    output_dtypes: Any = _ABSENT
    frames: Any = _ABSENT


class _Kind(msgspec.Struct, frozen=True):
    """What entries have in common that a loop makes again and again."""

    group: str | None
    name: str | None
    sizes: tuple[object, object]  # in, out
    types: tuple[object, object]
    one_sided: bool  # by its field is_p2p
    closes: bool  # it ends a coalesced group
    description: str | None = None  # what the program calls its group


_Row: TypeAlias = "tuple[_Entry, _Kind]"


class _Written(_Entry, frozen=True, gc=False):
    """An entry of JSON as PyTorch writes it; frames are most of a dump, and few are read."""

    process_group: msgspec.Raw = _ABSENT
    profiling_name: msgspec.Raw = _ABSENT
    input_sizes: msgspec.Raw = _ABSENT
    input_dtypes: msgspec.Raw = _ABSENT
    output_sizes: msgspec.Raw = _ABSENT
    output_dtypes: msgspec.Raw = _ABSENT
    frames: msgspec.Raw = _ABSENT


class _Dump(msgspec.Struct, frozen=True, gc=False):
    """Fields of a dump that are read."""

    entries: list[_Written]
    pg_config: Any = None
    pg_status: Any = None
    comm_lib_version: Any = None
    nccl_version: Any = None


def sniff(head: bytes) -> bool:
    """True for the beginning of a dump as JSON."""
    return head.lstrip()[:1] == b"{" and bool(_SIGNS.search(head)) and not _TRACE.search(head)


def parse(data: bytes, name: str) -> RecordedCalls:
    """Collectives of a JSON dump, in the order in which they were scheduled.

    name   the file's name: the dump does not say which rank wrote it
    """
    notes = Notes()
    if (rows := as_written(data)) is not None:
        return recording(*rows, name, "flight_recorder", notes)
    source = data.decode("utf-8", errors="replace")
    begin = max(source.find("{"), 0)
    found = decode_document(source, begin)
    if found is None:
        shallow, deep = without_deep(source)
        found = decode(shallow, begin) if deep else None
        if found is not None:
            source = shallow
            notes.add(Severity.DATA_LOSS, "deep_value", _DEEP_TEXT, 1, count=deep)
    if found is not None:
        _note_second(source, found, notes)
        return from_dump(found[0], name, "flight_recorder", notes)
    message = "The dump is cut or damaged: the entries before that were kept."
    notes.add(Severity.DATA_LOSS, "torn_dump", message, 1)
    return from_dump({"entries": _whole_entries(source)}, name, "flight_recorder", notes)


def as_written(data: bytes) -> tuple[Sequence[_Row], Mapping[object, object]] | None:
    """Entries and other fields of a dump whose fields are all what PyTorch makes them; else None.

    It gives what `from_dump` finds in the whole text, a few times as fast.
    """
    try:
        dump = msgspec.json.decode(data, type=_Dump)
        kinds: dict[tuple[Any, ...], _Kind] = {}
        rows: list[_Row] = []
        for entry in dump.entries:
            key = (
                entry.pg_id, entry.is_p2p, bytes(entry.process_group), bytes(entry.profiling_name),
                bytes(entry.input_sizes), bytes(entry.output_sizes), bytes(entry.input_dtypes),
                bytes(entry.output_dtypes),
            )  # fmt: skip
            kind = kinds.get(key)
            if kind is None:
                pg_id, one_sided, *fields = key
                values = (msgspec.json.decode(raw) if raw else None for raw in fields)
                kind = kinds[key] = _kind(pg_id, one_sided, *values)
            rows.append((entry, kind))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return rows, {
        "pg_config": dump.pg_config,
        "pg_status": dump.pg_status,
        "comm_lib_version": dump.comm_lib_version,
        "nccl_version": dump.nccl_version,
    }


def from_dump(dump: object, name: str, dialect: str, notes: Notes) -> RecordedCalls:
    """Records of a decoded dump, whichever form it had."""
    fields = mapping(dump)
    # One object in many places is one entry: only a hostile pickle does that.
    entries = list({id(e): mapping(e) for e in sequence(fields.get("entries"))}.values())
    return recording(_rows(entries), fields, name, dialect, notes)


def _rows(entries: Iterable[Mapping[object, object]]) -> list[_Row]:
    kinds: dict[Hashable, _Kind] = {}
    rows = []
    for entry in entries:
        read = entry.get
        pg_id, one_sided = parse_int(read("pg_id")), read("is_p2p") is True
        named, title = read("process_group"), read("profiling_name")
        sizes = read("input_sizes"), read("output_sizes")
        types = read("input_dtypes"), read("output_dtypes")
        key = (pg_id, one_sided, *map(_marked, (named, title, *sizes, *types)))
        kind = kinds.get(key)
        if kind is None:
            kind = kinds[key] = _kind(pg_id, one_sided, named, title, *sizes, *types)
        created = read("time_created_ns")
        made = _Entry(
            parse_int(read("record_id")), pg_id, parse_int(read("collective_seq_id")),
            parse_int(read("p2p_seq_id")), parse_int(read("op_id")),
            created if type(created) is int else parse_int(created),
            parse_int(read("time_discovered_started_ns")),
            parse_int(read("time_discovered_completed_ns")),
            number(read("duration_ms")), number(read("timeout_ms")), text(read("state")),
            frames=read("frames"),
        )  # fmt: skip
        rows.append((made, kind))
    return rows


def _marked(value: object) -> Hashable:
    """Equal for equal texts; else for one object."""
    return value if type(value) is str or value is None else (id(value),)


def _kind(
    pg_id: int | None, one_sided: object, named: object, title: object, *values: object
) -> _Kind:
    into, out, in_types, out_types = values
    listed = sequence(named)
    name = text(title)
    return _Kind(
        group=text(listed[0]) if listed else None if pg_id is None else str(pg_id),
        name=name,
        sizes=(into, out),
        types=(in_types, out_types),
        one_sided=one_sided is True,
        closes=bool(_CLOSES_GROUP.fullmatch(name or "")),
        # "process_group": ["36", "TENSOR_MODEL_PARALLEL_GROUP"]; "undefined" where none is given
        description=described(text(listed[1])) if len(listed) > 1 else None,
    )


def recording(
    rows: Sequence[_Row],
    fields: Mapping[object, object],
    name: str,
    dialect: str,
    notes: Notes,
) -> RecordedCalls:
    """Records of a dump's entries and other fields."""
    groups = _groups(fields.get("pg_config"))
    world = max((len(members) for members in groups.values()), default=None)
    rank = rank_of(name)
    rows = once(rows, _key, notes)
    # torchcomms counts the calls of all groups, from 0, once; PyTorch those of each, from 1.
    one_counter = bool(rows) and all(
        e.collective_seq_id == e.op_id == e.record_id and not e.p2p_seq_id for e, _ in rows
    )
    whole_buffer = bool(rows) and rows[0][0].record_id == 0
    if one_counter and not whole_buffer:
        notes.add(Severity.NOTICE, "numbers_of_process", _NUMBERS_TEXT, 1)
    status = _agreed(_status(fields.get("pg_status"), rows), rows, notes)
    missing = _lacking(rows, status, one_counter=one_counter)
    if any(entry.state == "completed" for entry, _ in rows):
        note_missing(notes, missing)
    else:  # _dump_nccl_trace(onlyActive=True) leaves the completed ones out
        notes.add(Severity.NOTICE, "only_active", _ACTIVE_TEXT, 1, count=missing)
    # Where only the operations are numbered, they number the collectives, but for those that are
    # made together.
    by_op = not any(e.collective_seq_id or e.p2p_seq_id for e, _ in rows) and (
        len({(kind.group, e.op_id) for e, kind in rows}) == len(rows)
    )
    reader = _Entries(
        groups, rank, notes, by_op=by_op, one_counter=one_counter, whole_buffer=whole_buffer
    )
    read = []
    for place, row in enumerate(rows, start=1):
        if row[1].name is None:
            message = "Entries without a name were skipped."
            notes.add(Severity.DATA_LOSS, "entry_without_name", message, place)
            continue
        read.append((row, reader.call(row, place)))
    calls = _without_closing(read)
    if not calls:
        notes.add(Severity.NOTICE, "no_calls", "The recording holds no collectives.", 1)
    version = text(fields.get("comm_lib_version")) or text(fields.get("nccl_version"))
    return RecordedCalls(
        dialect=dialect,
        calls=calls,
        rank=rank,
        world_size=world,
        groups=tuple(groups.items()),
        library_version=version,
        status=status,
        # Its first entry has record 0 until the ring buffer runs over.
        coverage="whole" if whole_buffer else "tail",
        diagnostics=notes.diagnostics,
    )


def _note_second(source: str, first: tuple[object, int], notes: Notes) -> None:
    """Note what stands behind the first dump of a text: the same dump again, or what is not read.

    first  the dump and where it ends
    """
    dump, place = first
    if "entries" not in mapping(dump):
        return
    while rest := source[place:].lstrip():
        second = decode(rest, 0)
        if second is None or second[0] != dump:
            notes.add(Severity.DATA_LOSS, "second_dump", _SECOND_TEXT, 1)
            return
        notes.add(Severity.NOTICE, "counted_once", _AGAIN_TEXT, 1)
        place = len(source) - len(rest) + second[1]


def _key(row: _Row) -> Hashable | None:
    """Equal for entries that cannot be two: a number stands once in the buffer.

    An entry that was copied under a new record_id has its operation's number and time still.
    The entry that ends a coalesced group has the number of the group's last call, and another
    name.
    """
    entry, kind = row
    if entry.op_id is None or entry.time_created_ns is None:
        return entry.record_id
    return kind.group, entry.op_id, entry.time_created_ns, kind.name


def _lacking(rows: Sequence[_Row], status: Sequence[GroupStatus], *, one_counter: bool) -> int:
    """Entries that the process made between the first and the last of the dump, and lacks.

    The numbers of an entry repeat each other, so that the largest of their gaps counts. A process
    numbers its entries over all groups, each process group its collectives and its operations.
    Entries of transfers hold the number of the last collective, too, and some versions raise it for
    a batch of them (startCoalescing of ProcessGroupNCCL.cpp).
    A group's last call is enqueued after its entry was made, so that the dump has an entry with the
    number of the last one enqueued, or a later one (workEnqueue of ProcessGroupNCCL.cpp).
    """
    missing = _gaps([e.record_id for e, _ in rows])
    groups: dict[str | None, list[_Entry]] = defaultdict(list)
    for entry, kind in rows:
        groups[kind.group].append(entry)
    if not one_counter:
        collectives = sum(_gaps([e.collective_seq_id or None for e in o]) for o in groups.values())
        operations = sum(_gaps([e.op_id or None for e in own]) for own in groups.values())
        missing = max(missing, collectives, operations)
    last = {
        group: max(*[e.collective_seq_id or 0 for e in own], *[e.p2p_seq_id or 0 for e in own])
        for group, own in groups.items()
    }
    behind = (
        s.last_enqueued - last[s.group]
        for s in status
        if s.last_enqueued is not None and last.get(s.group)
    )
    return missing + sum(max(n, 0) for n in behind)


def _gaps(numbers: Sequence[int | None]) -> int:
    """Numbers that lack; an entry whose number cannot be read may be any of those."""
    known = [n for n in numbers if n is not None]
    return max(count_missing(known) - (len(numbers) - len(known)), 0)


def _agreed(
    status: Sequence[GroupStatus], rows: Sequence[_Row], notes: Notes
) -> tuple[GroupStatus, ...]:
    """Status of groups without those that their entries contradict.

    A call is enqueued before it can be completed. Only that decides: the watchdog raises the other
    two counters some time after the fact, and in a group with transfers all three may be of theirs.
    """
    least: dict[str | None, int] = {}
    for s in status:
        if s.last_enqueued is not None:
            least[s.group] = min(s.last_enqueued, least.get(s.group, s.last_enqueued))
    later = [
        (kind.group, number)
        for entry, kind in rows
        if (number := entry.collective_seq_id)
        and number > least.get(kind.group, number)
        and entry.state == "completed"
    ]
    if not later:
        return tuple(status)
    sided = {kind.group for e, kind in rows if kind.one_sided or e.p2p_seq_id}
    done: dict[str | None, int] = {}
    for group, number in later:
        done[group] = max(done.get(group, 0), number)
    kept = tuple(
        s
        for s in status
        if s.group in sided or s.last_enqueued is None or done.get(s.group, 0) <= s.last_enqueued
    )
    code = "contradicting_status"
    notes.add(Severity.DATA_LOSS, code, _STATUS_TEXT, 1, count=len(status) - len(kept))
    return kept


def rank_of(name: str) -> int | None:
    """Rank in a file's name; None when it has none.

    >>> rank_of("ddp.fr.rank0.json"), rank_of("_dump_12"), rank_of("nccl_trace"), rank_of("h2_x3")
    (0, 12, None, 3)
    """
    base = re.split(r"[/\\]", name)[-1][-255:]
    parts = [part for part in _SEPARATOR.split(base) if part]
    for marker, value in zip(parts[-2::-1], parts[:0:-1], strict=False):
        if marker.lower() == "rank" and value.isascii() and value.isdigit():
            return parse_int(value)
    numbers = [part for part in parts if part.isascii() and part.isdigit()]
    return parse_int(numbers[-1]) if numbers else None


def _whole_entries(source: str) -> list[object]:
    opening = _ENTRIES.search(source)
    found: list[object] = []
    place = -1 if opening is None else source.find("{", opening.end())
    while place >= 0 and (entry := decode(source, place)) is not None:
        found.append(entry[0])
        place = entry[1]
        after = source[place : place + 99].lstrip()
        place = source.find("{", place) if after.startswith(",") else -1
    return found


def _groups(config: object) -> dict[str, tuple[int, ...]]:
    # "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    groups = {}
    room = _MOST_RANKS
    for key, value in mapping(config).items():
        group = mapping(value)
        listed = group.get("ranks")
        room -= len(listed) if isinstance(listed, str | list | tuple) else 0
        name = text(group.get("name")) or text(key)
        members = ranks(listed) if room > 0 else ()
        if members and name is not None:
            groups[name] = members
    return groups


def _status(status: object, rows: Iterable[_Row]) -> tuple[GroupStatus, ...]:
    # "pg_status": {"5": {"last_enqueued_collective": 39416, …}}: keys are pg_id, not names.
    # The JSON form quotes the numbers; -1 means that none was.
    names = {entry.pg_id: kind.group for entry, kind in rows}
    found = []
    for key, value in mapping(status).items():
        counters = mapping(value)
        name = names.get(parse_int(key))
        if name is not None:
            found.append(
                GroupStatus(
                    name,
                    last_enqueued=parse_int(counters.get("last_enqueued_collective")),
                    last_started=parse_int(counters.get("last_started_collective")),
                    last_completed=parse_int(counters.get("last_completed_collective")),
                )
            )
    return tuple(found)


def _without_closing(read: Sequence[tuple[_Row, RecordedCall]]) -> tuple[RecordedCall, ...]:
    """Calls without the entries that end a coalesced group, whose state and times are the group's.

    source  startCoalescing, endCoalescing and pointToPoint of ProcessGroupNCCL.cpp: the calls of a
            group are recorded without events, so that they stay "scheduled"; then follows one
            entry "nccl:coalesced" of the same number, with events and without tensors
    """
    if not any(kind.closes for (_, kind), _ in read):
        return tuple(call for _, call in read)
    calls: list[RecordedCall] = []
    last: dict[str | None, tuple[bool, int | None, list[int]]] = {}  # per group: its last number
    for (entry, kind), call in read:
        group, one_sided = kind.group, call.together is not None
        sided, number_, places = last.get(group, (False, None, []))
        if kind.closes:
            of_places = entry.p2p_seq_id if sided else entry.collective_seq_id
            # torch up to 2.4 does not say of this entry that it is of transfers.
            known = bool(places) and number_ is not None and number_ == of_places
            if known and (sided or not one_sided):
                for place in places:
                    calls[place] = _ended(calls[place], call, entry)
                del last[group]
            elif not one_sided:
                calls.append(call)
            continue
        if (sided, number_) != (one_sided, call.seq):
            places = []
            last[group] = (one_sided, call.seq, places)
        places.append(len(calls))
        calls.append(call)
    return tuple(calls)


def _ended(call: RecordedCall, end: RecordedCall, entry: _Entry) -> RecordedCall:
    started = entry.time_discovered_started_ns or None
    return replace(
        call, state=end.state, start_ns=started or call.start_ns, end_ns=end.end_ns or call.end_ns
    )


class _Entries:
    """Entries of one dump into calls."""

    def __init__(
        self,
        groups: Mapping[str, tuple[int, ...]],
        rank: int | None,
        notes: Notes,
        *,
        by_op: bool,
        one_counter: bool,
        whole_buffer: bool,
    ) -> None:
        self._groups = groups
        self._rank = rank
        self._notes = notes
        self._by_op = by_op  # else collective_seq_id numbers collectives in their group
        self._one_counter = one_counter
        self._numbered = not (one_counter and whole_buffer)  # else the order in a group numbers it
        self._elements: dict[int, int | None] = {}
        self._timeouts: dict[float | None, int | None] = {}  # ms, ns
        # Of a kind: its collective, the rank's number in the group, whether it has one side.
        self._known: dict[int, tuple[TraceCollective, int | None, bool]] = {}

    def call(self, row: _Row, place: int) -> RecordedCall:
        """Call of one entry, which has a place in the dump."""
        entry, kind = row
        known = self._known.get(id(kind))
        if known is None:
            known = self._collective(kind, place)
        collective, group_rank, one_sided = known
        number_in_group = None
        if self._numbered:
            collectives = entry.op_id if self._by_op else entry.collective_seq_id
            sides = one_sided and not self._one_counter
            number_in_group = entry.p2p_seq_id if sides else collectives
        timeout_ms = entry.timeout_ms
        if timeout_ms not in self._timeouts:
            self._timeouts[timeout_ms] = _ns(timeout_ms) or None
        state = text(entry.state)
        return RecordedCall(
            collective=collective,
            seq=number_in_group,
            # When its start was not discovered, the call was made at time_created_ns.
            start_ns=entry.time_discovered_started_ns or parse_int(entry.time_created_ns),
            end_ns=entry.time_discovered_completed_ns or None,
            duration_ns=None if entry.duration_ms is None else _ns(entry.duration_ms),
            state=state,
            group_rank=group_rank,
            # A batch_isend_irecv has one number, a Send or Recv by itself has its own.
            together=number_in_group if one_sided and not self._one_counter else None,
            frames=() if state == "completed" else _frames(entry.frames),
            timeout_ns=self._timeouts[timeout_ms],
        )

    def _collective(self, kind: _Kind, place: int) -> tuple[TraceCollective, int | None, bool]:
        """The collective of a kind, without the sizes and the type in which its sides differ."""
        name = kind.name or ""
        op = parse_collective(_BACKEND.sub("", name, count=1))
        datatype, factor = _datatype(kind.types)
        # Of a scatter c10d records what a rank gets as the input, and the root's parts, [[0]] on
        # other ranks, as the output (scatter of ProcessGroupNCCL.cpp).
        turned = op is Op.SCATTER and not self._one_counter
        into, out = (
            self._count(shapes, factor) for shapes in (kind.sizes[::-1] if turned else kind.sizes)
        )
        types: set[str | None] = set()
        if kind.types[0] != kind.types[1]:  # they are equal in nearly all entries
            types = {text(t) for side in kind.types for t in sequence(side)}
        members, arrow = self._groups.get(kind.group or ""), _PEER.search(name)
        group_rank = members.index(self._rank) if members and self._rank in members else None
        one_sided = kind.one_sided or op.point_to_point
        found = TraceCollective(
            op=op,
            datatype=datatype,
            in_count=into,
            out_count=out,
            group=kind.group,
            group_size=None if members is None else len(members),
            group_ranks=members,
            peer=int(arrow[2]) if arrow and op.point_to_point else None,
            description=kind.description,
        )
        # c10d and torchcomms take no tensors of two types in one call.
        mixed = len(types) > 1
        if not mixed and not counts_contradict(op, (into, out), found.group_size, name):
            self._known[id(kind)] = found, group_rank, one_sided
            return found, group_rank, one_sided
        text_of = f"{name}: in {into}, out {out} of {', '.join(sorted(map(str, types)))}"
        self._notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, place, text_of)
        datatype = None if mixed else found.datatype
        return (
            replace(found, datatype=datatype, in_count=None, out_count=None),
            group_rank,
            one_sided,
        )

    def _count(self, shapes: object, factor: int) -> int | None:
        if id(shapes) not in self._elements:
            self._elements[id(shapes)] = _elements(shapes)
        found = self._elements[id(shapes)]
        return None if found is None else min(found * factor, LIMIT - 1)


def _frames(frames: object) -> tuple[str, ...]:
    found = []
    if isinstance(frames, msgspec.Raw):
        decoded = decode(bytes(frames).decode("utf-8", errors="replace"), 0)
        frames = decoded and decoded[0]
    for item in sequence(frames)[:_MOST_FRAMES]:
        frame = mapping(item)
        name, file = text(frame.get("name")), text(frame.get("filename"))
        line = frame.get("line")
        if name is not None and file is not None and isinstance(line, int):
            found.append(f"{name} {file}:{line}")
    return tuple(found)


def _ns(value_ms: float | None) -> int | None:
    known_ms = number(value_ms)
    if known_ms is None:
        return None
    value = known_ms * 1e6
    return round(value) if value < LIMIT else None


def _datatype(types: tuple[object, object]) -> tuple[Datatype | None, int]:
    names = sequence(types[0]) or sequence(types[1])
    name = text(names[0]) if names else None
    return (None, 1) if name is None else parse_dtype(name)


def _elements(shapes: object) -> int | None:
    """Elements of all tensors of a list of shapes; a shape without dimensions has one."""
    total = 0
    listed = sequence(shapes)
    for shape in listed:
        lengths = [parse_int(item) for item in sequence(shape)[:65]]
        known = [item for item in lengths if item is not None]
        if not isinstance(shape, list | tuple) or len(known) != len(lengths) or len(known) > 64:
            return None
        total += prod(known)
    return total if listed else None


READER = recorder_reader("flight_recorder", sniff, parse)
