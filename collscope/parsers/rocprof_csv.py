"""CSV files of rocprof v1, rocprofv2 and rocprofv3: kernel statistics, kernel and copy traces.

The header decides. Lines are read one by one, so a torn line (an open quote) costs only itself.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import msgspec

from collscope.model import Diagnostic, Profile, Severity
from collscope.parsers._rows import Rows, TopColumns, column_key, text_lines, top_columns
from collscope.parsers.reader import one_profile, text_profile_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_STARTS = ("beginns", "starttimestamp")
_ENDS = ("endns", "endtimestamp", "stoptimestamp")
_HEAD_LINES = 5

_WITHOUT_TIMES = {
    "no_gpu_times": "The file lists host calls, without kernel times and sizes. Ingest the kernel "
    "trace or the kernel statistics of the same run.",
    "counter_rows": "The file lists hardware counters, one row per counter, so its times are "
    "repeated. Ingest the kernel trace of a run without counters.",
    "no_timestamps": "The file lists kernels without times. Record with --timestamp on, or "
    "--stats.",
}


class _Layout(msgspec.Struct, frozen=True):
    """What a header defines for the rows below it."""

    dialect: str
    width: int
    top: TopColumns | None = None  # statistics
    places: tuple[int, ...] = ()  # name, start, end of a trace
    device: int | None = None
    source: int | None = None  # agent a copy reads from
    stream: int | None = None
    number: int | None = None  # of a dispatch in its process
    kind: str = "kernel"
    refused: str | None = None  # key of _WITHOUT_TIMES


def sniff_text(head: str) -> bool:
    """True when one of the first lines is the header of a rocprof CSV file."""
    lines = head.split("\n")[:_HEAD_LINES]
    return any(_layout(cells) is not None for line in lines if (cells := _cells(line)))


def parse(text: str | Iterable[str]) -> Profile:
    """Totals of a statistics file; totals and spans of a trace.

    text     whole text, or its lines
    returns  times in ns; no totals for host-call files (diagnostic ``host_api_stats`` for
             statistics, ``no_gpu_times`` for traces)
    """
    rows = Rows()
    layout: _Layout | None = None
    title: str | None = None
    headers = 0
    for number, line in enumerate(text_lines(text), start=1):
        cells = _cells(line)
        if not cells and not line.strip():
            continue
        # Files are also read one behind the other: a second header may follow.
        if layout is None or len(cells) != layout.width or cells[0] == title:
            found = _layout(cells)
            if found is not None:
                layout, title, headers = found, cells[0], headers + 1
                continue
        if layout is None:
            message = "There is no header of a rocprof CSV file before this line."
            rows.note(Diagnostic(Severity.ERROR, "unknown_header", message, number, line))
        elif len(cells) != layout.width:
            rows.skip("torn_row", line, number)
        else:
            _add_row(rows, layout, cells, number, headers)
    rows.check_percentages()
    return rows.profile("rocprof_csv" if layout is None else layout.dialect)


def _cells(line: str) -> list[str]:
    """Fields of one line; none when it is not CSV."""
    try:
        return next(csv.reader([line.strip("\ufeff\r\n")]), [])
    except csv.Error:
        return []


def _layout(cells: list[str]) -> _Layout | None:
    keys = {column_key(title): place for place, title in reversed(list(enumerate(cells)))}
    top = top_columns(cells)
    if top is not None:
        if "totaldurationns" not in keys:
            return None
        # "Name","Calls","TotalDurationNs","AverageNs","Percentage"       v1; v3 adds "MinNs", …
        version = "rocprofv3_stats" if "minns" in keys else "rocprof_v1_stats"
        return _Layout(version, len(cells), top=top)
    return _trace_layout(keys, len(cells))


def _trace_layout(keys: Mapping[str, int], width: int) -> _Layout | None:
    start = next((keys[key] for key in _STARTS if key in keys), None)
    end = next((keys[key] for key in _ENDS if key in keys), None)
    # "Index","KernelName","gpu-id","queue-id",…,"BeginNs","EndNs",…   rocprof v1
    # "Kind","Agent_Id","Queue_Id",…,"Kernel_Name",…,"Start_Timestamp","End_Timestamp",…   v3
    # "Kind","Direction","Source_Agent_Id","Destination_Agent_Id",…    v3, copies
    dialect = "rocprof_v1_trace" if "gpuid" in keys else "rocprofv3_trace"
    name = keys.get("kernelname", keys.get("direction"))
    if name is None:
        # "Domain","Function","Process_Id",…,"Start_Timestamp","End_Timestamp"   v3, host calls
        host = "function" in keys and start is not None
        return _Layout(dialect, width, refused="no_gpu_times") if host else None
    if "countername" in keys:
        return _Layout(dialect, width, refused="counter_rows")
    if start is None or end is None:
        return _Layout(dialect, width, refused="no_timestamps")
    return _Layout(
        dialect,
        width,
        places=(name, start, end),
        device=_first(keys, "agentid", "gpuid", "destinationagentid"),
        source=keys.get("sourceagentid"),
        stream=_first(keys, "streamid", "queueid"),
        number=_first(keys, "dispatchid", "index"),
        kind="kernel" if "kernelname" in keys else "copy",
    )


def _first(keys: Mapping[str, int], *names: str) -> int | None:
    return next((keys[name] for name in names if name in keys), None)


def _add_row(rows: Rows, layout: _Layout, cells: list[str], line: int, process: int) -> None:
    if layout.refused is not None:
        message = _WITHOUT_TIMES[layout.refused]
        rows.note(Diagnostic(Severity.NOTICE, layout.refused, message, line))
    elif layout.top is not None:
        rows.add_top(layout.top, cells, line)
    else:
        name, start, end = (cells[place] for place in layout.places)
        device = layout.device
        if layout.source is not None and "TO_HOST" in name:
            device = layout.source  # the GPU side of a copy to the host
        agent = None if device is None else cells[device]
        stream = None if layout.stream is None else cells[layout.stream]
        rows.add_span((name, start, end, agent, stream), layout.kind, line, process)
        if layout.number is not None:
            rows.add_number(process, cells[layout.number])


READER = text_profile_reader(
    "rocprof_csv", sniff_text, lambda text: one_profile(parse(text)), alone=True
)
