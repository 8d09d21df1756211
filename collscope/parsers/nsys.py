"""SQLite exports of Nsight Systems (``nsys export --type sqlite``).

Schema: "SQLite Schema Reference" of the Nsight Systems user guide. Tables exist only where the
capture had such events, and columns vary by release. `nsys_nccl` reads NCCL's ranges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.model import Diagnostic, Profile, Severity
from collscope.model.profile import ProfiledDevice
from collscope.parsers import nsys_nccl, nvtx_payload
from collscope.parsers._calls import CallRows, is_relevant_call
from collscope.parsers._rows import Rows
from collscope.parsers._sqlite import (
    base_tables,
    columns,
    damage_noted,
    first_of,
    select,
    sqlite_reader,
)
from collscope.parsers.nsys_nccl import Communicator, Range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collscope.model.profile import ProfiledCalls
    from collscope.parsers.reader import Database

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_NVTX = "NVTX_EVENTS"
_SCHEMAS = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
_ENUMS = "NVTX_PAYLOAD_ENUMS"
_ENUM_ENTRIES = "NVTX_PAYLOAD_ENUM_ENTRIES"
_GPUS = "TARGET_INFO_GPU"
_DIRECTIONS = "ENUM_CUDA_MEMCPY_OPER"
# A serialized GlobalId holds the process id in bits 24 to 47, and a thread's in those below.
_PROCESS = "(({id} >> 24) & 16777215)"
# Calls are numbered by process, and within it by CUPTI's correlation id of 32 bits.
_NUMBER = "({process} * 4294967296 + {correlation})"
# What makes a communicator, and what makes one out of another. Others only name one.
_MADE = ("ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable")
_DERIVED = ("ncclCommSplit", "ncclCommShrink", "ncclCommGrow")
# CUpti_ActivityMemcpyKind, for exports without ENUM_CUDA_MEMCPY_OPER.
_COPY_KINDS = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 10: "Peer-to-Peer"}


def sniff_tables(tables: set[str]) -> bool:
    """True when a file with these tables is an export of Nsight Systems with GPU events."""
    return bool({_KERNEL, _MEMCPY, _MEMSET, _GRAPH} & tables)


def parse(connection: Database) -> Profile:
    """Totals per kernel and device, and one span per kernel, copy and fill.

    connection  open export; it is only read
    returns     times in ns since the capture's start; devices as ``<ordinal>``, or
                ``<pid>:<ordinal>`` where several processes have events
    """
    rows = Rows()
    ranges: list[Range] = []
    launched: dict[int, tuple[int, int]] = {}
    calls: ProfiledCalls | None = None
    devices: tuple[ProfiledDevice, ...] = ()
    with damage_noted(connection, rows):
        names = base_tables(connection)
        several = _processes(connection, names) > 1
        if _KERNEL in names:
            _read_kernels(connection, rows, names, several)
        if _MEMCPY in names:
            _read_copies(connection, rows, names, several)
        if _MEMSET in names:
            _read_events(connection, rows, _MEMSET, ("'[CUDA memset]'", ""), several)
        if _GRAPH in names:
            _note_graphs(connection, rows)
        ranges = list(_nccl_ranges(connection, names))
        if _RUNTIME in names:
            launches = rows.launched_named(nsys_nccl.hint_of) if ranges else set()
            calls, launched = _read_calls(connection, rows, names, launches)
        devices = _devices(connection, names, several, ranges)
    return _with_calls_of_nccl(rows.profile("nsys", calls, devices), ranges, launched)


def _processes(connection: Database, names: set[str]) -> int:
    """Number of processes with events; 0 where the tables do not show it."""
    tables = (t for t in (_KERNEL, _MEMCPY, _MEMSET) if t in names)
    tables_with_pid = [t for t in tables if "globalpid" in columns(connection, t)]
    union = " UNION ".join(f"SELECT globalPid FROM {t}" for t in tables_with_pid)
    return next(select(connection, f"SELECT COUNT(*) FROM ({union})"))[0] if tables_with_pid else 0


def _read_kernels(connection: Database, rows: Rows, names: set[str], several: bool) -> None:
    if "StringIds" not in names:
        message = "Table StringIds is missing, so kernels have no names. Export the report again."
        rows.note(Diagnostic(Severity.ERROR, "unknown_schema", message))
        return
    known = columns(connection, _KERNEL)
    long = first_of(known, "k", "demangledName")
    short = first_of(known, "k", "shortName", "mangledName")
    joins = f" LEFT JOIN StringIds d ON d.id = {long} LEFT JOIN StringIds n ON n.id = {short}"
    _read_events(connection, rows, _KERNEL, ("COALESCE(d.value, n.value)", joins), several)


def _read_copies(connection: Database, rows: Rows, names: set[str], several: bool) -> None:
    known = columns(connection, _MEMCPY)
    copy_kind = first_of(known, "k", "copyKind")
    cases = " ".join(f"WHEN {code} THEN '{label}'" for code, label in _COPY_KINDS.items())
    label = f"CASE {copy_kind} {cases} ELSE 'unknown direction' END"
    joins = ""
    if _DIRECTIONS in names and "label" in columns(connection, _DIRECTIONS):
        joins = f" LEFT JOIN {_DIRECTIONS} x ON x.id = {copy_kind}"
        label = f"COALESCE(x.label, {label})"
    name = f"'[CUDA memcpy ' || {label} || ']'"
    _read_events(connection, rows, _MEMCPY, (name, joins), several)


def _read_events(
    connection: Database, rows: Rows, table: str, named: tuple[str, str], several: bool
) -> None:
    """Events of a table.

    named    SQL for the name, and the joins it needs
    several  several processes have events, see `_device`
    """
    name, joins = named
    known = columns(connection, table)
    start, end = first_of(known, "k", "start"), first_of(known, "k", "end")
    stream = first_of(known, "k", "streamId")
    blocks = (
        "k.gridX * k.gridY * k.gridZ" if {"gridx", "gridy", "gridz"} <= known.keys() else "NULL"
    )
    sql = (
        f"SELECT {name}, {start}, {end}, {_device(known, several)}, {stream}, {_number(known)},"
        f" {blocks} FROM {table} k{joins}"
    )
    kind = "kernel" if table == _KERNEL else "copy"
    for row in select(connection, sql):
        if row[1] == row[2] == 0:
            rows.skip("bad_number", row)  # CUPTI writes 0 for both when it could not take the time
        else:
            rows.add_span(row, kind)


def _device(known: dict[str, str], several: bool) -> str:
    """SQL for the device; ordinals are per process, so two processes' device 0 may differ."""
    device, process = first_of(known, "k", "deviceId"), first_of(known, "k", "globalPid")
    named = several and process != "NULL"
    return f"{_PROCESS.format(id=process)} || ':' || {device}" if named else device


def _number(known: dict[str, str]) -> str:
    """SQL for the number of the call behind an event; NULL where the export lacks it."""
    process, correlation = first_of(known, "k", "globalPid"), first_of(known, "k", "correlationId")
    return _NUMBER.format(process=_PROCESS.format(id=process), correlation=correlation)


def _read_calls(
    connection: Database, rows: Rows, names: set[str], launches: set[int]
) -> tuple[ProfiledCalls | None, dict[int, tuple[int, int]]]:
    """Calls of the runtime and the driver; and thread and start of the first one of some.

    launches  numbers of those: of launches that ranges of NCCL may describe
    """
    known = columns(connection, _RUNTIME)
    if "StringIds" not in names or not {"globaltid", "correlationid", "nameid"} <= known.keys():
        return None, {}
    used = f"SELECT id, value FROM StringIds WHERE id IN (SELECT nameId FROM {_RUNTIME})"
    functions = dict(select(connection, used))
    ordering = {k for k, name in functions.items() if is_relevant_call(str(name))}
    launched = rows.launched
    found = CallRows(launched)
    first: dict[int, tuple[int, int]] = {}
    place: dict[int, int] = {}
    process = _PROCESS.format(id="r.globalTid")
    number = _NUMBER.format(process=process, correlation="r.correlationId")
    sql = f'SELECT r.nameId, {number}, {process}, r.globalTid, r.start, r."end" FROM {_RUNTIME} r'
    for name, own, pid, thread, start, end in select(connection, sql):
        if own not in launched and name not in ordering:
            continue
        count = len(found)
        found.add(functions.get(name), own, (pid, thread), (start, end))
        if len(found) == count:
            continue
        place.setdefault(own, count)
        if own in launches and (own not in first or start < first[own][1]):
            first[own] = thread, start
    for table in (_SYNC, _EVENT):
        if table in names:
            _set_streams(connection, table, found, place)
    rows.look_for_lost(found)
    return found.columns(), first


def _set_streams(connection: Database, table: str, found: CallRows, place: dict[int, int]) -> None:
    """Streams and events of synchronising calls, or of recorded events.

    eventSyncId, where present, names the record that a wait is for; an event's own id comes back.
    """
    known = columns(connection, table)
    stream, event = first_of(known, "k", "streamId"), first_of(known, "k", "eventId")
    link = first_of(known, "k", "eventSyncId")
    sql = f"SELECT {_number(known)}, {stream}, {event}, {link} FROM {table} k"
    for number, on, own, linked in select(connection, sql):
        if number in place:
            # CUPTI_SYNCHRONIZATION_INVALID_VALUE: the call names no stream, or no event.
            label = None if on is None or on in (-1, 0xFFFFFFFF) else str(on)
            named = None if own is None or own in (-1, 0xFFFFFFFF) else ("event", own)
            found.set_stream(place[number], label, ("record", linked) if linked else named)


def _nccl_ranges(connection: Database, names: set[str]) -> Iterable[Range]:
    """Ranges of NCCL's functions with their payloads, as far as these can be read."""
    known = columns(connection, _NVTX) if _NVTX in names else {}
    if not {"globaltid", "end"} <= known.keys() or "StringIds" not in names:
        return
    schemas = _payload_schemas(connection, names)
    text, identity = first_of(known, "e", "text"), first_of(known, "e", "textId")
    blob, domain = first_of(known, "e", "binaryData"), first_of(known, "e", "domainId")
    # Bytes are in a column of text in some exports.
    sql = (
        f"SELECT COALESCE({text}, s.value), {_PROCESS.format(id='e.globalTid')}, e.globalTid,"
        f' e.start, e."end", {domain}, CAST({blob} AS BLOB)'
        f" FROM {_NVTX} e LEFT JOIN StringIds s ON s.id = {identity}"
        f" WHERE COALESCE({text}, s.value) >= 'nccl' AND COALESCE({text}, s.value) < 'nccm'"
    )
    for name, process, thread, start, end, number, raw in select(connection, sql):
        values: dict[str, nvtx_payload.Value] | None = {}
        if raw:
            found = nvtx_payload.payload_of(raw)
            fields = None if found is None else schemas.get((number, found[0]))
            values = None
            if found is not None and fields is not None:
                values = nvtx_payload.decode(found[1], fields)
        if all(isinstance(n, int) for n in (process, thread, start, end)) and start <= end:
            yield Range(name, process, thread, start, end, values)


def _payload_schemas(
    connection: Database, names: set[str]
) -> dict[tuple[object, object], tuple[nvtx_payload.Field, ...]]:
    """Fields by domain and schema; those that two processes register in two ways are left out."""
    if not _has(connection, names, _SCHEMAS, "flags", "type", "name", "offset"):
        return {}
    enums: dict[object, dict[object, nvtx_payload.Enum]] = defaultdict(dict)
    if _has(connection, names, _ENUMS, "size") and _has(
        connection, names, _ENUM_ENTRIES, "name", "value"
    ):
        labels: dict[tuple[object, object], dict[int, str]] = defaultdict(dict)
        sql = f"SELECT domainId, schemaId, name, value FROM {_ENUM_ENTRIES}"
        for domain, schema, name, value in select(connection, sql):
            if isinstance(name, str) and isinstance(value, int):
                labels[domain, schema][value] = name
        for domain, schema, size in select(
            connection, f"SELECT domainId, schemaId, size FROM {_ENUMS}"
        ):
            if isinstance(size, int):
                enums[domain][schema] = nvtx_payload.Enum(size, labels[domain, schema])
    entries: dict[tuple[object, object], set[nvtx_payload.Entry]] = defaultdict(set)
    sql = f'SELECT domainId, schemaId, idx, flags, type, name, "offset" FROM {_SCHEMAS}'
    for domain, schema, *entry in select(connection, sql):
        entries[domain, schema].add(nvtx_payload.Entry(*entry))
    return {
        key: nvtx_payload.fields_of(own, enums[key[0]])
        for key, own in entries.items()
        if len({entry.index for entry in own}) == len(own)
    }


def _has(connection: Database, names: set[str], table: str, *needed: str) -> bool:
    """Whether a table of payload schemas is there, with its keys and these columns."""
    keys = {"domainid", "schemaid", *needed} | ({"idx"} if table == _SCHEMAS else set())
    return table in names and keys <= columns(connection, table).keys()


def _devices(
    connection: Database, names: set[str], several: bool, ranges: Iterable[Range]
) -> tuple[ProfiledDevice, ...]:
    """Rank and kind of the devices.

    A process' rank is that in its one communicator that was not made out of another.
    """
    if _KERNEL not in names:
        return ()
    gpus = set()
    if _GPUS in names and "name" in columns(connection, _GPUS):
        gpus = {name for (name,) in select(connection, f"SELECT name FROM {_GPUS}")}
    gpu = gpus.pop() if len(gpus) == 1 else None
    known = columns(connection, _KERNEL)
    process = _PROCESS.format(id=first_of(known, "k", "globalPid"))
    pairs = set(
        select(connection, f"SELECT DISTINCT {process}, {_device(known, several)} FROM {_KERNEL} k")
    )
    world = _worlds(ranges)
    found = []
    for label in {label for _, label in pairs}:
        own_pids = {pid for pid, own in pairs if own == label}
        own = next(iter(own_pids))
        alone = len(own_pids) == 1 and sum(pid == own for pid, _ in pairs) == 1
        member = world.get(own) if alone else None
        found.append(
            ProfiledDevice(
                None if label is None else str(label),
                None if member is None else member.rank,
                None if member is None else member.nranks,
                gpu=gpu,
            )
        )
    return tuple(found)


def _worlds(ranges: Iterable[Range]) -> dict[int, Communicator]:
    """By process the communicator of all ranks, where the ranges show which it is."""
    ranges = list(ranges)
    made = nsys_nccl.communicators([r for r in ranges if r.name in _MADE])
    derived = nsys_nccl.communicators([r for r in ranges if r.name in _DERIVED])
    every = nsys_nccl.communicators(ranges)
    found = {}
    for process in {process for process, _ in made}:
        own = {name for pid, name in every if pid == process}
        first = {name: made[process, name] for name in own if (process, name) in made}
        rest = own - first.keys() - {name for pid, name in derived if pid == process}
        member = next(iter(first.values()))
        if len(first) == 1 and not rest and member is not None:
            found[process] = member
    return found


def _with_calls_of_nccl(
    profile: Profile, ranges: list[Range], launched: dict[int, tuple[int, int]]
) -> Profile:
    """The profile with the facts of NCCL's ranges about its collective kernels."""
    collectives = [
        k for k, s in enumerate(profile.spans) if s.kind == "kernel" and nsys_nccl.hint_of(s.name)
    ]
    if not collectives:
        return profile
    spans = list(profile.spans)
    by_window: dict[tuple[int, int], list[int]] = defaultdict(list)
    windows = nsys_nccl.windows(ranges)
    starts = {thread: [w.start_ns for w in own] for thread, own in windows.items()}
    for k in collectives:
        thread, time = launched.get(spans[k].call or 0, (-1, 0))
        place = bisect_right(starts.get(thread, []), time) - 1
        if place >= 0 and windows[thread][place].end_ns >= time:
            by_window[thread, place].append(k)
    members = nsys_nccl.communicators(ranges)
    for (thread, place), numbers in by_window.items():
        window = windows[thread][place]
        entries = nsys_nccl.described(window, [spans[k] for k in numbers], members)
        for k, entry in zip(numbers, entries, strict=True):
            spans[k] = replace(spans[k], collective=entry)
    calls = [call for own in windows.values() for window in own for call in window.calls]
    alone = sum(spans[k].collective is None for k in collectives)
    notes = nsys_nccl.diagnostics(calls, alone, len(collectives))
    return replace(profile, spans=tuple(spans), diagnostics=(*profile.diagnostics, *notes))


def _note_graphs(connection: Database, rows: Rows) -> None:
    count = next(select(connection, f"SELECT COUNT(*) FROM {_GRAPH}"))[0]
    if count:
        message = (
            "CUDA graphs were recorded as a whole, so their kernels are missing from every total. "
            "Record with --cuda-graph-trace=node."
        )
        rows.note(Diagnostic(Severity.NOTICE, "graphs_without_kernels", message, count=count))


READER = sqlite_reader("nsys", sniff_tables, parse)
