"""Tables of DeepSpeed's communication logger: ``deepspeed.comm.log_summary()``, as text.

Columns and formulas: deepspeed/utils/comms_logging.py, releases 0.7 to 0.17. Sizes are rounded to
two digits of a power of 1024, throughputs are gigabits per second. Every logged call is waited for
(issue 2861), so the times are of isolated calls on the host, rank 0's.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import msgspec

from collscope.model import (
    Measurement,
    MeasurementSet,
    Op,
    Severity,
    algorithm_bandwidth,
    bus_bandwidth,
)
from collscope.parsers._notes import Notes
from collscope.parsers._rows import text_lines
from collscope.parsers.reader import Reader, anywhere

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collscope.parsers.hints import Hints
    from collscope.parsers.reader import Source

METHOD = "deepspeed_comms_logger"
# Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)
# tput_avg (Gbps)     busbw_avg (Gbps)
_HEADER = re.compile(r"\s*Comm\. Op\s+Message Size\s+Count\s+Total Latency\(ms\)\s+Avg Latency")
# Comm. Op            Message Size        Count               Total comm lat(ms)  …
_STRAGGLERS = re.compile(r"\s*Comm\. Op\s+Message Size\s+Count\s+Total comm lat\(ms\)")
# all_gather_base | [Caller Func: _allgather_params]
_OPERATION = re.compile(r"(?:\S.*?\s)??([a-z][a-z0-9_]{2,60})(?:\s+\|\s+\[Caller Func: .*\])?\s*")
#                     678.86 MB           40                  602.29              9.69 …
_ROW = re.compile(
    r"\s*(?P<size>\d{1,15}(?:\.\d{1,4})?)\s?(?P<unit>B|KB|MB|GB|TB|PB)\s+(?P<count>\d{1,15})"
    r"\s+(?P<total>\d{1,15}\.\d\d)\s+(?P<mean>\d{1,15}\.\d\d)"
    r"\s+(?P<tput>\d{1,15}\.\d\d)\s+(?P<busbw>\d{1,15}\.\d\d)\s*"
)
_UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB"))}
_HALF_DIGIT = 0.005
_MOST_RANKS = 1 << 17
_LIMIT = 2**63

# Names of deepspeed.comm's timed functions (deepspeed/comm/comm.py and torch.py).
_OPS = {
    Op.ALL_REDUCE: "all_reduce inference_all_reduce all_reduce_coalesced",
    Op.ALL_GATHER: "all_gather all_gather_base all_gather_into_tensor allgather_fn"
    " all_gather_into_tensor_coalesced all_gather_coalesced all_gather_object",
    Op.REDUCE_SCATTER: "reduce_scatter reduce_scatter_base reduce_scatter_tensor reduce_scatter_fn",
    Op.ALL_TO_ALL: "all_to_all all_to_all_single",
    Op.BROADCAST: "broadcast broadcast_object_list",
    Op.REDUCE: "reduce",
    Op.GATHER: "gather",
    Op.SCATTER: "scatter",
    Op.SEND: "send isend",
    Op.RECV: "recv irecv",
    Op.BARRIER: "barrier monitored_barrier log_summary_barrier",
}
_BY_NAME = {name: op for op, names in _OPS.items() for name in names.split()}
# The size is that of the argument "tensor" or "input_list" (get_msg_size_from_args): one rank's
# part of these, and the whole of every other.
_PER_RANK = (Op.ALL_GATHER, Op.GATHER, Op.SCATTER)
# Their printed bus bandwidth is (n-1)/n of the printed throughput, so the two give the ranks.
_FACTOR = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL)


class _Row(msgspec.Struct, frozen=True):
    """One size of one operation, as printed."""

    line: int
    table: int  # counted from 1
    op: Op
    size: float  # bytes
    exact: bool  # the printed size is not rounded
    count: int
    mean_ms: float
    tput: float  # Gbit/s
    busbw: float


def sniff_text(head: str) -> bool:
    """True when the header of such a table is in the text."""
    return any(_HEADER.match(line[:400]) is not None for line in text_lines(head))


def parse(text: str | Iterable[str]) -> MeasurementSet:
    """One measurement per operation and size; the breakdown with stragglers is passed over.

    The time is the printed mean, from which DeepSpeed removed the slowest and fastest tenth. The
    number of ranks is that which the printed bandwidths agree on, where their digits suffice.

    text     whole text, or its lines; text around the tables is passed over
    """
    notes = Notes()
    rows, lines = _rows(text, notes)
    # One row's digits give its ranks; the logger is of one process group in most jobs.
    row_ranks = {n for row in rows if (n := _ranks(row)) is not None}
    common = next(iter(row_ranks)) if len(row_ranks) == 1 else None
    found = tuple(_measurement(row, _ranks(row) or common) for row in rows)
    if not found:
        notes.add(Severity.NOTICE, "no_rows", "The table holds no operations.", 1)
    return MeasurementSet("deepspeed", found, lines=lines, diagnostics=notes.diagnostics)


def _rows(text: str | Iterable[str], notes: Notes) -> tuple[list[_Row], int]:
    found: list[_Row] = []
    op: Op | None = None
    inside = False
    tables = 0
    line_number = 0
    for line_number, raw in enumerate(text_lines(text), start=1):
        line = raw[:400].expandtabs()
        if _HEADER.match(line):
            inside, op = True, None
            tables += 1
        elif _STRAGGLERS.match(line) or line.startswith("```"):
            inside = False
        elif inside:
            match = _ROW.fullmatch(line)
            if match is not None and op is not None:
                found.append(_row(match, line_number, tables, op))
            elif (name := _OPERATION.fullmatch(line.strip())) is not None and name[1] in _BY_NAME:
                op = _BY_NAME[name[1]]
            elif line.strip() and line[0] == " ":
                message = "Rows with too few or too many fields were skipped."
                notes.add(Severity.DATA_LOSS, "torn_row", message, line_number, line)
            elif line.strip():
                # Another operation: its rows must not be those of the one above.
                op = Op.UNKNOWN if name is not None else None
    return found, line_number


def _row(match: re.Match[str], line: int, table: int, op: Op) -> _Row:
    size = float(match["size"]) * _UNITS[match["unit"]]
    # 2.0 KB is 2048 bytes or up to five more; a size in bytes is what it is.
    return _Row(
        line=line,
        table=table,
        op=op,
        size=size,
        exact=match["unit"] == "B" and size == int(size),
        count=int(match["count"]),
        mean_ms=float(match["mean"]),
        tput=float(match["tput"]),
        busbw=float(match["busbw"]),
    )


def _ranks(row: _Row) -> int | None:
    """The one number of ranks for which both printed bandwidths round as they did, or None."""
    # busbw / tput = (n - 1) / n, so n = tput / (tput - busbw)
    gap = row.tput - row.busbw
    if row.op not in _FACTOR or gap <= 2 * _HALF_DIGIT:
        return None
    least = math.ceil((row.tput - _HALF_DIGIT) / (gap + 2 * _HALF_DIGIT))
    most = math.floor((row.tput + _HALF_DIGIT) / (gap - 2 * _HALF_DIGIT))
    return least if least == most and 2 <= least <= _MOST_RANKS else None


def _measurement(row: _Row, nranks: int | None) -> Measurement:
    parts = nranks if row.op in _PER_RANK else 1
    # A summary contains what an earlier one did, or is of another run: their median is of none.
    label = None if row.table == 1 else f"DeepSpeed summary {row.table}"
    size = None if parts is None or row.size * parts >= _LIMIT else round(row.size * parts)
    # 0.00 ms only means less than 5 µs.
    time_us = row.mean_ms * 1000 if row.mean_ms > 0 else None
    time_s = None if time_us is None else time_us / 1e6
    return Measurement(
        op=row.op,
        size_bytes=size,
        nranks=nranks,
        calls=row.count,
        time_us_median=time_us,
        iterations=row.count,
        algbw_gbps=algorithm_bandwidth(size, time_s),
        busbw_gbps=bus_bandwidth(row.op, size=size, time_s=time_s, nranks=nranks),
        reported_busbw_gbps=row.busbw / 8,
        method=METHOD,
        label=label,
        message=None if row.exact else "size rounded by DeepSpeed",
        line=row.line,
    )


def _read(source: Source, _hints: Hints) -> MeasurementSet | None:
    text = source.text()
    return parse(text) if sniff_text(text) else None


READER = Reader("deepspeed", "table", anywhere, _read)
