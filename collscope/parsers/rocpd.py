"""rocpd files of rocprofiler-sdk (rocprofv3's SQLite output, ROCm 6.4 and later).

Tables carry the run's uuid as a suffix (``rocpd_kernel_dispatch_<uuid>``), one set per process.
Released schemas keep start and end in the row; drafts point to ``rocpd_timestamp`` and
``rocpd_track``. The views of the schema repeat them and are not read; where these tables are
missing, tables with the names and columns of the views ``kernels`` and ``memory_copies``, then
``top_kernels`` are (source/share/rocprofiler-sdk-rocpd of ROCm/rocprofiler-sdk).

Calls are regions; an event's ``stack_id`` is the correlation id that a call shares with what it
launched. Streams are numbers in dispatches and pointers in the arguments of calls: which number a
pointer has is seen in the launches (source/lib/output/generateRocpd.cpp of the same project).
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.kernel_names import classify
from collscope.model import (
    Diagnostic,
    Op,
    Profile,
    Severity,
    datatype_of,
    parse_datatype,
    parse_op,
    parse_redop,
    redop_of,
)
from collscope.model.profile import ProfiledDevice
from collscope.model.trace import TraceCollective
from collscope.parsers._calls import CallRows, pointer
from collscope.parsers._rows import Rows, top_columns
from collscope.parsers._sqlite import (
    base_tables,
    columns,
    damage_noted,
    first_of,
    quoted,
    select,
    sqlite_reader,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from collscope.model import KernelSpan
    from collscope.parsers.reader import Database

_DISPATCH = "rocpd_kernel_dispatch"
_COPY = "rocpd_memory_copy"
_FLAT = (("kernels", "kernel"), ("memory_copies", "copy"))
# A call's number: the process' place among the table sets, and its correlation id below.
_PROCESS = 1 << 40
# Variables of rank and number of ranks that each process has of its own: torchrun, Open MPI.
_RANKS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
# Arguments of RCCL's calls: source/lib/rocprofiler-sdk/rccl/rccl.def.cpp of the same project.
_COUNTS = ("count", "sendcount", "recvcount")
_ARGUMENTS = (*_COUNTS, "datatype", "op", "root", "peer")
_DIGITS = 17
# Device of a copy: the GPU side. Types are CPU and GPU.
_COPY_AGENT = "CASE WHEN dst.type = 'GPU' THEN dst.absolute_index ELSE src.absolute_index END"


def sniff_tables(tables: set[str]) -> bool:
    """True when a file with these tables is a rocpd file."""
    return "top_kernels" in tables or any(t.startswith(_DISPATCH) for t in tables)


def parse(connection: Database) -> Profile:
    """Totals per kernel and agent, and one span per dispatch and copy.

    connection  open rocpd file; it is only read
    returns     times in ns; devices as ``Agent <absolute index>``, as in rocprofv3's CSV
    """
    rows = Rows()
    processes: list[_Process] = []
    calls = CallRows(())
    devices: tuple[ProfiledDevice, ...] = ()
    with damage_noted(connection, rows):
        names = base_tables(connection)
        for place, suffix in enumerate(_suffixes(names)):
            processes.append(_Process(suffix, place * _PROCESS))
            _read_dispatches(connection, rows, names, processes[-1])
            _read_copies(connection, rows, names, processes[-1])
        calls = CallRows(rows.launched)
        for process in processes:
            _read_calls(connection, calls, names, process)
        rows.look_for_lost(calls)
        if rows.empty:
            for table, kind in _FLAT:
                if table in names:
                    _read_flat(connection, rows, table, kind)
        if rows.empty and "top_kernels" in names:
            _read_top(connection, rows)
        devices = _devices(connection, names, processes)
    profile = rows.profile("rocpd", calls.columns(), devices)
    launched = {call: c for process in processes for call, c in process.collectives.items()}
    return replace(profile, spans=tuple(_with_collective(span, launched) for span in profile.spans))


def _with_collective(span: KernelSpan, launched: Mapping[int, TraceCollective]) -> KernelSpan:
    """A collective's kernel with what the RCCL call that launched it is, where that is known."""
    collective = launched.get(span.call or 0)
    if collective is None or span.kind != "kernel" or classify(span.name) is None:
        return span
    return replace(span, collective=collective)


class _Process(msgspec.Struct):
    """One process' tables."""

    suffix: str
    first: int  # number below its calls
    devices: set[str] = msgspec.field(default_factory=set)
    # Streams by the call that launched on them; several of a graph's.
    streams_of: dict[int, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    # Of RCCL's calls, by the call that launched.
    collectives: dict[int, TraceCollective] = msgspec.field(default_factory=dict)


def _suffixes(names: set[str]) -> list[str]:
    """Suffixes of the processes' table sets; the unsuffixed views of the schema repeat them."""
    return sorted(name.removeprefix(_DISPATCH) for name in names if name.startswith(_DISPATCH))


def _place(connection: Database, table: str, suffix: str) -> tuple[str, str, str, str]:
    """SQL for start, end, the row with agent and stream, and the joins they need."""
    known = columns(connection, table + suffix)
    if "start_id" not in known:
        return 'k."start"', 'k."end"', "k", ""
    joins = (
        f" LEFT JOIN {quoted('rocpd_timestamp' + suffix)} s ON s.id = k.start_id"
        f" LEFT JOIN {quoted('rocpd_timestamp' + suffix)} e ON e.id = k.end_id"
        f" LEFT JOIN {quoted('rocpd_track' + suffix)} t ON t.id = k.track_id"
    )
    return "s.value", "e.value", "t", joins


def _complete(rows: Rows, names: set[str], suffix: str, needed: tuple[str, ...]) -> bool:
    missing = [table + suffix for table in needed if table + suffix not in names]
    if missing:
        message = f"Table {', '.join(missing)} is missing. Export the profile again."
        rows.note(Diagnostic(Severity.NOTICE, "unknown_schema", message))
    return not missing


def _call(connection: Database, names: set[str], table: str, process: _Process) -> tuple[str, str]:
    """SQL for the number of the call behind an execution, and the join it needs."""
    event = "rocpd_event" + process.suffix
    known = columns(connection, table + process.suffix)
    if "event_id" not in known or not _has(connection, names, event, {"id", "stack_id"}):
        return "NULL", ""
    number = f"CASE WHEN c.stack_id > 0 THEN c.stack_id + {process.first} END"
    return number, f" LEFT JOIN {quoted(event)} c ON c.id = k.event_id"


def _read_dispatches(connection: Database, rows: Rows, names: set[str], process: _Process) -> None:
    suffix = process.suffix
    needed = (_DISPATCH, "rocpd_info_kernel_symbol", "rocpd_info_agent")
    if not _complete(rows, names, suffix, needed):
        return
    start, end, at, joins = _place(connection, _DISPATCH, suffix)
    number, event = _call(connection, names, _DISPATCH, process)
    known = columns(connection, _DISPATCH + suffix)
    blocks = _blocks(known)
    own = first_of(known, "k", "dispatch_id", "id")  # both count up by one
    sql = (
        f"SELECT COALESCE(y.display_name, y.kernel_name), {start}, {end},"
        f" 'Agent ' || a.absolute_index, {at}.stream_id, {number}, {blocks}, {own}"
        f" FROM {quoted(_DISPATCH + suffix)} k{joins}{event}"
        f" LEFT JOIN {quoted('rocpd_info_kernel_symbol' + suffix)} y ON y.id = k.kernel_id"
        f" LEFT JOIN {quoted('rocpd_info_agent' + suffix)} a ON a.id = {at}.agent_id"
    )
    for *row, dispatch in select(connection, sql):
        _take(process, row)
        rows.add_span(row, process=process.first)
        rows.add_number(process.first, dispatch)


def _blocks(known: Mapping[str, str]) -> str:
    """SQL for a dispatch's thread blocks: a grid counts threads."""
    sides = [(f"grid_size_{axis}", f"workgroup_size_{axis}") for axis in "xyz"]
    if not {name for side in sides for name in side} <= known.keys():
        return "NULL"
    grid, group = (" * ".join(f"k.{name}" for name in names) for names in zip(*sides, strict=True))
    return f"({grid}) / ({group})"


def _take(process: _Process, row: Sequence[object]) -> None:
    """Remember the device of an execution, and on which stream its call launched."""
    _, _, _, device, stream, call, *_ = row
    if isinstance(device, str):
        process.devices.add(device)
    if isinstance(call, int) and stream is not None:
        process.streams_of[call].add(str(stream))


def _read_copies(connection: Database, rows: Rows, names: set[str], process: _Process) -> None:
    suffix = process.suffix
    if _COPY + suffix not in names:
        return
    if not _complete(rows, names, suffix, ("rocpd_string", "rocpd_info_agent")):
        return
    start, end, at, joins = _place(connection, _COPY, suffix)
    number, event = _call(connection, names, _COPY, process)
    agents = quoted("rocpd_info_agent" + suffix)
    sql = (
        f"SELECT n.string, {start}, {end}, 'Agent ' || {_COPY_AGENT}, {at}.stream_id, {number}"
        f" FROM {quoted(_COPY + suffix)} k{joins}{event}"
        f" LEFT JOIN {quoted('rocpd_string' + suffix)} n ON n.id = k.name_id"
        f" LEFT JOIN {agents} dst ON dst.id = k.dst_agent_id"
        f" LEFT JOIN {agents} src ON src.id = k.src_agent_id"
    )
    for row in select(connection, sql):
        _take(process, row)
        rows.add_span(row, "copy", process=process.first)


def _read_calls(connection: Database, found: CallRows, names: set[str], process: _Process) -> None:
    region, event, string = (
        table + process.suffix for table in ("rocpd_region", "rocpd_event", "rocpd_string")
    )
    of_region = {"name_id", "tid", "start", "end", "event_id"}
    if (
        string not in names
        or not _has(connection, names, region, of_region)
        or not _has(connection, names, event, {"id", "stack_id"})
    ):
        return
    parent = first_of(columns(connection, event), "e", "parent_stack_id")
    number, above = (
        f"CASE WHEN {column} > 0 THEN {column} + {process.first} END"
        for column in ("e.stack_id", parent)
    )
    parents: dict[int, int] = {}
    place: dict[object, tuple[int, int]] = {}  # of a call by its event: and its number
    ops: dict[object, tuple[int, Op]] = {}  # of RCCL's calls by their events: number, operation
    sql = (
        f'SELECT n.string, {number}, {above}, r.tid, r.start, r."end", r.event_id'
        f" FROM {quoted(region)} r LEFT JOIN {quoted(event)} e ON e.id = r.event_id"
        f" LEFT JOIN {quoted(string)} n ON n.id = r.name_id"
    )
    for name, own, of, tid, start, end, event_id in select(connection, sql):
        count = len(found)
        op = parse_op(name) if isinstance(name, str) and name.startswith("nccl") else Op.UNKNOWN
        if own is not None and op is not Op.UNKNOWN:
            ops[event_id] = own, op
        found.add(name, own, (process.suffix, tid), (start, end))
        if len(found) > count:
            place[event_id] = count, own or 0
            parents[own or 0] = of or 0
    given = _arguments(connection, names, process, ops)
    for event_id, (own, op) in ops.items():
        process.collectives[own] = _collective(op, given.get(event_id, {}))
    # ncclGroupEnd launches for the calls before it: their operations cannot be separated.
    for own, of in parents.items():
        if of in process.collectives:
            process.collectives.setdefault(own, process.collectives[of])
    _set_streams(connection, found, names, process, place)


def _arguments(
    connection: Database, names: set[str], process: _Process, ops: Mapping[object, object]
) -> dict[object, dict[str, str]]:
    """What RCCL's calls were given, by their events; none where arguments were not recorded."""
    arguments = "rocpd_arg" + process.suffix
    found: dict[object, dict[str, str]] = defaultdict(dict)
    if ops and _has(connection, names, arguments, {"event_id", "name", "value"}):
        listed = ", ".join(f"'{name}'" for name in _ARGUMENTS)
        for event_id, name, value in select(
            connection,
            f"SELECT event_id, name, value FROM {quoted(arguments)} WHERE name IN ({listed})",
        ):
            if event_id in ops and isinstance(value, str):
                found[event_id][name] = value
    return found


def _collective(op: Op, given: Mapping[str, str]) -> TraceCollective:
    """A call of RCCL by its arguments."""
    code, reduction = _parse_whole(given.get("datatype")), _parse_whole(given.get("op"))
    datatype = parse_datatype(given.get("datatype", "")) if code is None else datatype_of(code)
    redop = parse_redop(given.get("op", "").removeprefix("nccl"))
    if reduction is not None:
        redop = redop_of(reduction)
    elements = next(
        (n for name in _COUNTS if (n := _parse_whole(given.get(name))) is not None), None
    )
    known = datatype.itemsize is not None
    return TraceCollective(
        op,
        datatype if known else None,
        redop=redop.value if redop is not None and op.reduces else None,
        root=_parse_whole(given.get("root")),
        peer=_parse_whole(given.get("peer")),
        count_bytes=elements * (datatype.itemsize or 0) if known and elements else None,
    )


def _parse_whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < _DIGITS else None


def _set_streams(
    connection: Database,
    found: CallRows,
    names: set[str],
    process: _Process,
    place: Mapping[object, tuple[int, int]],
) -> None:
    """Set the streams and events of calls, by their events, from their arguments."""
    arguments = "rocpd_arg" + process.suffix
    if not place or not _has(connection, names, arguments, {"event_id", "name", "value"}):
        return
    pointers: dict[object, dict[str, str]] = defaultdict(dict)
    for event_id, name, value in select(
        connection,
        f"SELECT event_id, name, value FROM {quoted(arguments)}"
        " WHERE name = 'stream' OR name = 'event'",
    ):
        own_pointer = pointer(value)
        if event_id in place and own_pointer is not None:
            pointers[event_id][name] = own_pointer
    number_of: dict[str, set[str]] = defaultdict(set)
    for event_id, values in pointers.items():
        labels = process.streams_of.get(place[event_id][1], set())
        if len(labels) == 1 and "stream" in values:
            number_of[values["stream"]] |= labels
    for event_id, values in pointers.items():
        # A pointer that was given to several streams, one after the other, identifies none.
        labels = number_of.get(values.get("stream", ""), set())
        label = next(iter(labels)) if len(labels) == 1 else None
        found.set_stream(place[event_id][0], label, values.get("event"))


def _has(connection: Database, names: set[str], table: str, needed: set[str]) -> bool:
    return table in names and needed <= columns(connection, table).keys()


def _devices(
    connection: Database, names: set[str], processes: list[_Process]
) -> tuple[ProfiledDevice, ...]:
    """What the processes' tables say of their devices."""
    found = []
    for process in processes:
        others = {d for p in processes if p is not process for d in p.devices}
        alone = len(process.devices) == 1
        rank, size = _rank(connection, names, process.suffix) if alone else (None, None)
        host = _only(connection, names, "rocpd_info_node" + process.suffix, "hostname")
        own_devices = process.devices - others
        found += [ProfiledDevice(device, rank, size, host) for device in sorted(own_devices)]
    return tuple(found)


def _rank(connection: Database, names: set[str], suffix: str) -> tuple[int | None, int | None]:
    """Rank and world size by the process' environment."""
    text = _only(connection, names, "rocpd_info_process" + suffix, "environment")
    try:
        variables = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None, None
    for names_of in _RANKS:
        values = [variables.get(name) for name in names_of] if isinstance(variables, dict) else []
        numbers = [int(v) for v in values if isinstance(v, str) and v.isdecimal() and len(v) < 10]
        if len(numbers) == len(names_of) and numbers[0] < numbers[1]:
            return numbers[0], numbers[1]
    return None, None


def _only(connection: Database, names: set[str], table: str, column: str) -> str | None:
    """The text of a column in a table of one row."""
    if table not in names or column not in columns(connection, table):
        return None
    found = list(select(connection, f"SELECT {column} FROM {quoted(table)}"))
    return found[0][0] if len(found) == 1 and isinstance(found[0][0], str) else None


def _read_flat(connection: Database, rows: Rows, table: str, kind: str) -> None:
    known = columns(connection, table)
    if not {"name", "start", "end"} <= known.keys():
        message = f"Table {table} has no columns name, start and end."
        rows.note(Diagnostic(Severity.NOTICE, "unknown_schema", message))
        return
    index = first_of(
        known, "v", "agent_absolute_index", "agent_abs_index", "dst_agent_absolute_index",
        "dst_agent_abs_index",
    )  # fmt: skip
    stream = first_of(known, "v", "stream_id", "queue_id")
    sql = f"SELECT v.name, v.start, v.\"end\", 'Agent ' || {index}, {stream} FROM {table} v"
    for row in select(connection, sql):
        rows.add_span(row, kind)


def _read_top(connection: Database, rows: Rows) -> None:
    # name, total_calls, total_duration, average, percentage; durations in microseconds
    places = top_columns(list(columns(connection, "top_kernels").values()))
    if places is None:
        message = "Table top_kernels does not have the columns of a rocpd file."
        rows.note(Diagnostic(Severity.ERROR, "unknown_schema", message))
        return
    for row in select(connection, "SELECT * FROM top_kernels"):
        rows.add_top(places, row, None)
    message = "The file holds only top_kernels: no times, no copies, all devices together."
    rows.note(Diagnostic(Severity.NOTICE, "totals_only", message))
    rows.check_percentages()


READER = sqlite_reader("rocpd", sniff_tables, parse)
