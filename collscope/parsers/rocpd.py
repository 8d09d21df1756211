"""rocpd files of rocprofiler-sdk (rocprofv3's SQLite output, ROCm 6.4 and later).

Tables carry the run's uuid as a suffix (``rocpd_kernel_dispatch_<uuid>``), one set per process.
Released schemas keep start and end in the row; drafts point to ``rocpd_timestamp`` and
``rocpd_track``. The views of the schema repeat them and are not read; where these tables are
missing, tables with the names and columns of the views ``kernels`` and ``memory_copies``, then
``top_kernels`` are (source/share/rocprofiler-sdk-rocpd of ROCm/rocprofiler-sdk).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.model import Diagnostic, Profile, Severity
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
    import sqlite3

_DISPATCH = "rocpd_kernel_dispatch"
_COPY = "rocpd_memory_copy"
_FLAT = (("kernels", "kernel"), ("memory_copies", "copy"))
# Device of a copy: the GPU side. Types are CPU and GPU.
_COPY_AGENT = "CASE WHEN dst.type = 'GPU' THEN dst.absolute_index ELSE src.absolute_index END"


def sniff_tables(tables: set[str]) -> bool:
    """True when a file with these tables is a rocpd file."""
    return "top_kernels" in tables or any(t.startswith(_DISPATCH) for t in tables)


def parse(connection: sqlite3.Connection) -> Profile:
    """Totals per kernel and agent, and one span per dispatch and copy.

    connection  open rocpd file; it is only read
    returns     times in ns; devices as ``Agent <absolute index>``, as in rocprofv3's CSV
    """
    rows = Rows()
    with damage_noted(connection, rows):
        names = base_tables(connection)
        for suffix in _suffixes(names):
            _read_dispatches(connection, rows, names, suffix)
            _read_copies(connection, rows, names, suffix)
        if rows.empty:
            for table, kind in _FLAT:
                if table in names:
                    _read_flat(connection, rows, table, kind)
        if rows.empty and "top_kernels" in names:
            _read_top(connection, rows)
    return rows.profile("rocpd")


def _suffixes(names: set[str]) -> list[str]:
    """Suffixes of the processes' table sets; the unsuffixed views of the schema repeat them."""
    return sorted(name.removeprefix(_DISPATCH) for name in names if name.startswith(_DISPATCH))


def _place(connection: sqlite3.Connection, table: str, suffix: str) -> tuple[str, str, str, str]:
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


def _read_dispatches(
    connection: sqlite3.Connection, rows: Rows, names: set[str], suffix: str
) -> None:
    needed = (_DISPATCH, "rocpd_info_kernel_symbol", "rocpd_info_agent")
    if not _complete(rows, names, suffix, needed):
        return
    start, end, at, joins = _place(connection, _DISPATCH, suffix)
    sql = (
        f"SELECT COALESCE(y.display_name, y.kernel_name), {start}, {end},"
        f" 'Agent ' || a.absolute_index, {at}.stream_id"
        f" FROM {quoted(_DISPATCH + suffix)} k{joins}"
        f" LEFT JOIN {quoted('rocpd_info_kernel_symbol' + suffix)} y ON y.id = k.kernel_id"
        f" LEFT JOIN {quoted('rocpd_info_agent' + suffix)} a ON a.id = {at}.agent_id"
    )
    for row in select(connection, sql):
        rows.add_span(row)


def _read_copies(connection: sqlite3.Connection, rows: Rows, names: set[str], suffix: str) -> None:
    if _COPY + suffix not in names:
        return
    if not _complete(rows, names, suffix, ("rocpd_string", "rocpd_info_agent")):
        return
    start, end, at, joins = _place(connection, _COPY, suffix)
    agents = quoted("rocpd_info_agent" + suffix)
    sql = (
        f"SELECT n.string, {start}, {end}, 'Agent ' || {_COPY_AGENT}, {at}.stream_id"
        f" FROM {quoted(_COPY + suffix)} k{joins}"
        f" LEFT JOIN {quoted('rocpd_string' + suffix)} n ON n.id = k.name_id"
        f" LEFT JOIN {agents} dst ON dst.id = k.dst_agent_id"
        f" LEFT JOIN {agents} src ON src.id = k.src_agent_id"
    )
    for row in select(connection, sql):
        rows.add_span(row, "copy")


def _read_flat(connection: sqlite3.Connection, rows: Rows, table: str, kind: str) -> None:
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


def _read_top(connection: sqlite3.Connection, rows: Rows) -> None:
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
