"""RPD files of ROCm/rocmProfileData (SQLite).

Totals are recomputed from ``rocpd_op``. The file's own ``top`` view is built with UNION, so it
counts equal rows once, and it cuts durations to whole microseconds. Only a table of that name, in a
file without ``rocpd_op``, is read (schema: rocpd_python/rocpd/schema_data of ROCm/rocmProfileData).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.model import Diagnostic, Profile, Severity
from collscope.parsers._rows import Rows, kind_of, top_columns
from collscope.parsers._sqlite import base_tables, columns, damage_noted, select, sqlite_reader

if TYPE_CHECKING:
    import sqlite3

# One row per operation: the kernel's name, or an empty description and the type of a copy.
_OPERATIONS = """
SELECT CASE WHEN d.string IS NULL OR d.string = '' THEN t.string ELSE d.string END,
       o.start, o."end", o.gpuId, o.queueId, t.string
FROM rocpd_op o
LEFT JOIN rocpd_string d ON d.id = o.description_id
LEFT JOIN rocpd_string t ON t.id = o.opType_id
"""
_NEEDED = {"start", "end", "gpuid", "queueid", "description_id", "optype_id"}


def sniff_tables(tables: set[str]) -> bool:
    """True when a file with these tables is an RPD file.

    rocprofiler-sdk's rocpd files also have a ``top`` view, but no ``rocpd_op``.
    """
    if "rocpd_op" in tables:
        return True
    return "top" in tables and not any(t.startswith("rocpd_kernel_dispatch") for t in tables)


def parse(connection: sqlite3.Connection) -> Profile:
    """Totals per kernel and device, and one span per operation.

    connection  open RPD file; it is only read
    returns     totals in ns; without spans when the file holds nothing but ``top``
    """
    rows = Rows()
    with damage_noted(connection, rows):
        names = base_tables(connection)
        if {"rocpd_op", "rocpd_string"} <= names:
            _read_operations(connection, rows)
        if rows.empty and "top" in names:
            _read_top(connection, rows)
    return rows.profile("rpd")


def _read_operations(connection: sqlite3.Connection, rows: Rows) -> None:
    missing = _NEEDED - columns(connection, "rocpd_op").keys()
    if missing:
        message = f"Table rocpd_op has no column {', '.join(sorted(missing))}: not an RPD file."
        rows.note(Diagnostic(Severity.ERROR, "unknown_schema", message))
        return
    for *row, op_type in select(connection, _OPERATIONS):
        rows.add_span(row, kind_of(op_type) if isinstance(op_type, str) else "kernel")


def _read_top(connection: sqlite3.Connection, rows: Rows) -> None:
    # Name, TotalCalls, TotalDuration, Ave, Percentage; later TotalDuration_us, Ave_us
    titles = list(columns(connection, "top").values())
    places = top_columns(titles)
    if places is None:
        message = f"Table top has the columns {', '.join(titles)}, not those of an RPD file."
        rows.note(Diagnostic(Severity.ERROR, "unknown_schema", message))
        return
    for row in select(connection, "SELECT * FROM top"):
        rows.add_top(places, row, None)
    message = "The file holds only the table top: no times, all devices together."
    rows.note(Diagnostic(Severity.NOTICE, "totals_only", message))
    rows.check_percentages()


READER = sqlite_reader("rpd", sniff_tables, parse)
