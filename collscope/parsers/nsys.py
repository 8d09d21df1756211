"""SQLite exports of Nsight Systems (``nsys export --type sqlite``).

Schema: "SQLite Schema Reference" of the Nsight Systems user guide. Tables exist only where the
capture had such events, and columns vary by release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.model import Diagnostic, Profile, Severity
from collscope.parsers._rows import Rows
from collscope.parsers._sqlite import (
    base_tables,
    columns,
    damage_noted,
    first_of,
    select,
    sqlite_reader,
)

if TYPE_CHECKING:
    import sqlite3

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_DIRECTIONS = "ENUM_CUDA_MEMCPY_OPER"
# CUpti_ActivityMemcpyKind, for exports without ENUM_CUDA_MEMCPY_OPER.
_COPY_KINDS = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 10: "Peer-to-Peer"}


def sniff_tables(tables: set[str]) -> bool:
    """True when a file with these tables is an export of Nsight Systems with GPU events."""
    return bool({_KERNEL, _MEMCPY, _MEMSET, _GRAPH} & tables)


def parse(connection: sqlite3.Connection) -> Profile:
    """Totals per kernel and device, and one span per kernel, copy and fill.

    connection  open export; it is only read
    returns     times in ns since the capture's start; devices as ``<ordinal>``, or
                ``<pid>:<ordinal>`` where several processes have events
    """
    rows = Rows()
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
    return rows.profile("nsys")


def _processes(connection: sqlite3.Connection, names: set[str]) -> int:
    """Number of processes with events; 0 where the tables do not tell."""
    tables = (t for t in (_KERNEL, _MEMCPY, _MEMSET) if t in names)
    told = [t for t in tables if "globalpid" in columns(connection, t)]
    union = " UNION ".join(f"SELECT globalPid FROM {t}" for t in told)
    return next(select(connection, f"SELECT COUNT(*) FROM ({union})"))[0] if told else 0


def _read_kernels(
    connection: sqlite3.Connection, rows: Rows, names: set[str], several: bool
) -> None:
    if "StringIds" not in names:
        message = "Table StringIds is missing, so kernels have no names. Export the report again."
        rows.note(Diagnostic(Severity.ERROR, "unknown_schema", message))
        return
    known = columns(connection, _KERNEL)
    long = first_of(known, "k", "demangledName")
    short = first_of(known, "k", "shortName", "mangledName")
    joins = f" LEFT JOIN StringIds d ON d.id = {long} LEFT JOIN StringIds n ON n.id = {short}"
    _read_events(connection, rows, _KERNEL, ("COALESCE(d.value, n.value)", joins), several)


def _read_copies(
    connection: sqlite3.Connection, rows: Rows, names: set[str], several: bool
) -> None:
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
    connection: sqlite3.Connection, rows: Rows, table: str, named: tuple[str, str], several: bool
) -> None:
    """Events of a table.

    named    SQL for the name, and the joins it needs
    several  several processes have events, see `_device`
    """
    name, joins = named
    known = columns(connection, table)
    start, end = first_of(known, "k", "start"), first_of(known, "k", "end")
    stream = first_of(known, "k", "streamId")
    sql = (
        f"SELECT {name}, {start}, {end}, {_device(known, several)}, {stream} FROM {table} k{joins}"
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
    # globalPid holds the process id in bits 24 to 47.
    named = several and process != "NULL"
    return f"(({process} >> 24) & 16777215) || ':' || {device}" if named else device


def _note_graphs(connection: sqlite3.Connection, rows: Rows) -> None:
    count = next(select(connection, f"SELECT COUNT(*) FROM {_GRAPH}"))[0]
    if count:
        message = (
            "CUDA graphs were recorded as a whole, so their kernels are missing in every total. "
            "Record with --cuda-graph-trace=node."
        )
        rows.note(Diagnostic(Severity.NOTICE, "graphs_without_kernels", message, count=count))


READER = sqlite_reader("nsys", sniff_tables, parse)
