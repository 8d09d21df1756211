"""The classes section: calls that cost the same, with their bytes, time and tuning."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from collscope.reports.model import ClassRow
from collscope.units import count, format_size


class CallTotal(NamedTuple):
    """Calls of one class on one communicator with the same tuning and coverage."""

    comm_id: int
    class_id: int
    algorithm: str | None
    protocol: str | None
    channels: int | None
    ranks_seen: int
    calls: int


_TOTALS = """
SELECT comm_id, class_id, algorithm, protocol, channels, ranks_seen, calls
FROM call_totals WHERE run = ?
"""

_CLASSES = """
SELECT class_id, op, datatype, redop, root, count, size_bytes, in_place, nranks, nnodes, shape,
       backend, calls, total_bytes, kernel_calls, kernel_observations, transfer_ns, wait_ns,
       split_ns, seen_calls, seen_kernels, kernel_ns
FROM classes WHERE run = ?
"""

_Tuning = tuple[str | None, str | None, int | None]


def read_call_totals(connection: sqlite3.Connection, run: str) -> tuple[CallTotal, ...]:
    """Calls of the run, counted in SQL: rows grow with classes and communicators, not calls."""
    return tuple(CallTotal(*row) for row in connection.execute(_TOTALS, (run,)))


def class_rows(
    connection: sqlite3.Connection, run: str, totals: Iterable[CallTotal]
) -> tuple[ClassRow, ...]:
    """Every class of the run: those with kernel times first by their time, the rest by bytes."""
    tunings = _tunings(totals)
    cursor = connection.execute(_CLASSES, (run,))
    names = [column[0] for column in cursor.description]
    records = [dict(zip(names, row, strict=True)) for row in cursor]
    run_bytes = sum(record["total_bytes"] or 0 for record in records)
    rows = [_row(record, run_bytes, tunings[record["class_id"]]) for record in records]
    # kernels of a few classes on some ranks do not make these the largest
    seen = all(row.kernel_ns for row in rows)
    return tuple(sorted(rows, key=lambda row: _order(row, row.kernel_ns if seen else row.split_ns)))


def _order(row: ClassRow, time_ns: int | None) -> tuple[int, int, int, int]:
    return (-(time_ns or 0), -(row.total_bytes or 0), -row.calls, row.class_id)


def _tunings(totals: Iterable[CallTotal]) -> dict[int, Counter[_Tuning]]:
    tunings: dict[int, Counter[_Tuning]] = defaultdict(Counter)
    for total in totals:
        tuning = (total.algorithm, total.protocol, total.channels)
        if tuning != (None, None, None):
            tunings[total.class_id][tuning] += total.calls
    return tunings


def _row(record: dict[str, Any], run_bytes: int, tunings: Counter[_Tuning]) -> ClassRow:
    algorithm, protocol, channels = _most_common(tunings)
    in_place = record.pop("in_place")
    transfer, wait = record.pop("transfer_ns"), record.pop("wait_ns")
    total_bytes = record["total_bytes"]
    return ClassRow(
        **record,
        in_place=None if in_place is None else bool(in_place),
        share_of_bytes=None if total_bytes is None else _ratio(total_bytes, run_bytes),
        algorithm=algorithm,
        protocol=protocol,
        channels=channels,
        tuned_calls=tunings.total(),
        transfer_ns=_ratio(transfer, record["kernel_calls"]),
        wait_ns=_ratio(wait, record["kernel_observations"]),
    )


def _most_common(tunings: Counter[_Tuning]) -> _Tuning:
    if not tunings:
        return (None, None, None)
    # equal counts: the first in the order of their names, so that a report is reproducible
    return min(tunings, key=lambda tuning: (-tunings[tuning], repr(tuning)))


def _ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None


def class_words(row: ClassRow) -> str:
    """A class in a sentence."""
    what = row.op
    if row.count is not None and row.datatype is not None:
        what += f" of {row.count} {row.datatype} ({format_size(row.size_bytes)})"
    elif row.size_bytes is not None:
        what += f" of {format_size(row.size_bytes)}"
    else:
        what += ", size not known,"
    return f"{what} on {count(row.nranks, 'rank')}"
