"""RPD files of ROCm/rocmProfileData (SQLite).

Totals are recomputed from ``rocpd_op``. The file's own ``top`` view is built with UNION, so it
counts equal rows once, and it cuts durations to whole microseconds. Only a table of that name, in a
file without ``rocpd_op``, is read (schema: rocpd_python/rocpd/schema_data of ROCm/rocmProfileData).

An operation has its hardware queue; the stream is that of the call that launched it. Of the two
tracers RoctracerDataSource.cpp leaves hipEventRecord out, and the arguments of all calls but a few;
RocprofDataSource.cpp writes them as JSON.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from collscope.model import Diagnostic, Profile, Severity
from collscope.parsers._calls import UNKNOWN, CallRows, call_kind, pointer, stream_and_event
from collscope.parsers._rows import Rows, kind_of, top_columns
from collscope.parsers._sqlite import base_tables, columns, damage_noted, select, sqlite_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collscope.model.profile import ProfiledCalls
    from collscope.parsers.reader import Database

# One row per operation: the kernel's name, or an empty description and the type of a copy. An id
# without its string is no name: NULL.
_OPERATIONS = """
SELECT CASE WHEN d.string = '' OR o.description_id IS NULL THEN t.string ELSE d.string END,
       o.start, o."end", o.gpuId, o.queueId, t.string, o.id
FROM rocpd_op o
LEFT JOIN rocpd_string d ON d.id = o.description_id
LEFT JOIN rocpd_string t ON t.id = o.opType_id
"""
# The tracer counts the operations of a session below this, and adds the session's number times this
# (rpd_tracer/OpTable.cpp and Logger.cpp).
_SESSION_BITS = 32
_NEEDED = {"id", "start", "end", "gpuid", "queueid", "description_id", "optype_id"}
_CALLS = """
SELECT n.string, a.id, a.pid, a.tid, a.start, a."end", u.string
FROM rocpd_api a
LEFT JOIN rocpd_string n ON n.id = a.apiName_id
LEFT JOIN {strings} u ON u.id = a.args_id
"""
_OF_CALLS = {"id", "pid", "tid", "start", "end", "apiname_id", "args_id"}
# Launches whose stream stands among their arguments only.
_GRAPHS = ("hipGraphLaunch", "hipGraphLaunch_spt", "cudaGraphLaunch")


def sniff_tables(tables: set[str]) -> bool:
    """True when a file with these tables is an RPD file.

    rocprofiler-sdk's rocpd files also have a ``top`` view, but no ``rocpd_op``.
    """
    if "rocpd_op" in tables:
        return True
    return "top" in tables and not any(t.startswith("rocpd_kernel_dispatch") for t in tables)


def parse(connection: Database) -> Profile:
    """Totals per kernel and device, and one span per operation.

    connection  open RPD file; it is only read
    returns     totals in ns; without spans when the file holds only ``top``
    """
    rows = Rows()
    calls: ProfiledCalls | None = None
    with damage_noted(connection, rows):
        names = base_tables(connection)
        if {"rocpd_op", "rocpd_string"} <= names:
            _read_operations(connection, rows, _Streams(connection, names))
            calls = _read_calls(connection, rows, names)
        if rows.empty and "top" in names:
            _read_top(connection, rows)
    return rows.profile("rpd", calls)


class _Streams:
    """Call and stream of each operation.

    An operation whose call is not there, since it was launched before the trace, ran on the stream
    that the rest of its queue ran on, where there is one.
    """

    def __init__(self, connection: Database, names: set[str]) -> None:
        self._call: dict[object, int] = {}
        if _has(connection, names, "rocpd_api_ops", {"api_id", "op_id"}):
            for call, operation in select(connection, "SELECT api_id, op_id FROM rocpd_api_ops"):
                if isinstance(call, int) and call > 0:
                    self._call[operation] = min(call, self._call.get(operation, call))
        self._stream = dict(_streams(connection, names))
        self._of_queue: dict[tuple[object, object], set[str]] = defaultdict(set)
        if columns(connection, "rocpd_op").keys() >= _NEEDED and self._stream:
            sql = "SELECT id, gpuId, queueId FROM rocpd_op"
            for operation, gpu, queue in select(connection, sql):
                stream = self._stream.get(self._call.get(operation, 0))
                if stream is not None:
                    self._of_queue[gpu, queue].add(stream)

    def of(self, operation: object, gpu: object, queue: object) -> tuple[object, int | None]:
        """Stream of an operation, else its queue; and the number of its call."""
        call = self._call.get(operation)
        shared = self._of_queue.get((gpu, queue), set())
        stream = self._stream.get(call or 0) or (next(iter(shared)) if len(shared) == 1 else queue)
        return stream, call


def _streams(connection: Database, names: set[str]) -> Iterator[tuple[int, str]]:
    """Calls that name a stream."""
    for table in ("rocpd_copyapi", "rocpd_kernelapi"):
        if _has(connection, names, table, {"api_ptr_id", "stream"}):
            for call, text in select(connection, f"SELECT api_ptr_id, stream FROM {table}"):
                stream = pointer(text)
                if stream is not None:
                    yield call, stream
    if _has(connection, names, "rocpd_api", _OF_CALLS):
        graphs = " OR ".join(f"n.string = '{name}'" for name in _GRAPHS)
        for _, call, *_, text in select(connection, f"{_calls(names)} WHERE {graphs}"):
            stream, _ = stream_and_event(text)
            if stream is not None:
                yield call, stream


def _has(connection: Database, names: set[str], table: str, needed: set[str]) -> bool:
    return table in names and needed <= columns(connection, table).keys()


def _calls(names: set[str]) -> str:
    """SQL for calls; arguments have a table of their own from schema version 3 on."""
    return _CALLS.format(strings="rocpd_ustring" if "rocpd_ustring" in names else "rocpd_string")


def _read_calls(connection: Database, rows: Rows, names: set[str]) -> ProfiledCalls | None:
    if not _has(connection, names, "rocpd_api", _OF_CALLS):
        return None
    found = CallRows(rows.launched)
    for name, number, process, thread, start, end, text in select(connection, _calls(names)):
        count = len(found)
        found.add(name, number, (process, thread), (start, end))
        if len(found) > count and call_kind(str(name)) != UNKNOWN:
            found.set_stream(count, *stream_and_event(text))
    rows.look_for_lost(found)
    return found.columns()


def _read_operations(connection: Database, rows: Rows, streams: _Streams) -> None:
    missing = _NEEDED - columns(connection, "rocpd_op").keys()
    if missing:
        message = f"Table rocpd_op has no column {', '.join(sorted(missing))}: not an RPD file."
        rows.note(Diagnostic(Severity.ERROR, "unknown_schema", message))
        return
    for *row, queue, op_type, operation in select(connection, _OPERATIONS):
        stream, call = streams.of(operation, row[-1], queue)
        kind = kind_of(op_type) if isinstance(op_type, str) else "kernel"
        session = operation >> _SESSION_BITS if isinstance(operation, int) else 0
        rows.add_span((*row, stream, call), kind, process=session)
        rows.add_number(session, operation)


def _read_top(connection: Database, rows: Rows) -> None:
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
