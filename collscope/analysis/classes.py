"""The classes of a run: calls that cost the same, with their bytes, time and tuning."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from collscope.model import CollectiveClass, Datatype, Redop, parse_op


class ClassRow(msgspec.Struct, frozen=True):
    """Calls that cost the same."""

    class_id: int
    op: str
    datatype: str | None
    redop: str | None
    root: int | None
    count: int | None  # elements as the API takes it
    size_bytes: int | None  # nccl-tests size of one call
    in_place: bool | None
    nranks: int | None
    nnodes: int | None
    shape: str | None
    backend: str
    calls: int
    total_bytes: int | None  # calls times size_bytes
    share_of_bytes: float | None  # ratio to the run's total_bytes
    algorithm: str | None  # of the most calls that a TUNING line describes
    protocol: str | None
    channels: int | None
    tuned_calls: int  # calls that a TUNING line describes
    kernel_calls: int | None  # calls whose kernels tell transfer from waiting
    kernel_observations: int | None  # kernels of those calls: one per rank and call
    # mean per call: from its last rank's arrival to its last end; without comparable clocks its
    # shortest kernel
    transfer_ns: float | None
    wait_ns: float | None  # mean per call and rank: kernel minus transfer
    split_ns: int | None  # summed duration of those kernels
    seen_calls: int | None  # calls with a kernel of known duration, be it on one rank only
    seen_kernels: int | None  # those kernels, warm-up left out
    kernel_ns: int | None  # their summed duration

    @property
    def collective_class(self) -> CollectiveClass:
        """What a measurement must be of to serve these calls."""
        datatype, redop = Datatype.of_label(self.datatype), Redop.of_label(self.redop)
        return CollectiveClass.of(parse_op(self.op), datatype, redop, self)


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
