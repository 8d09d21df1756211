"""The calls of a run: its classes (calls that cost the same), their sizes, its communicators."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import msgspec

from collscope.model import CollectiveClass, Datatype, Op, Redop, parse_op


class ClassRow(msgspec.Struct, frozen=True):
    """Calls that cost the same."""

    class_id: int
    op: Op
    datatype: Datatype | None
    redop: Redop | None
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
    kernel_calls: int | None  # calls whose kernels separate transfer and waiting
    kernel_observations: int | None  # kernels of those calls: one per rank and call
    # mean per call: from its last rank's arrival to its last end; without comparable clocks its
    # shortest kernel
    transfer_ns: float | None
    wait_ns: float | None  # mean per call and rank: kernel minus transfer
    split_ns: int | None  # summed duration of those kernels
    # calls with a kernel of known duration, even on one rank only, warm-up left out
    seen_calls: int | None
    seen_kernels: int | None  # those kernels, warm-up left out
    kernel_ns: int | None  # their summed duration

    @property
    def collective_class(self) -> CollectiveClass:
        """What a measurement must be of to serve these calls."""
        return CollectiveClass.of(self.op, self.datatype, self.redop, self)


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
    op, datatype, redop, in_place = map(record.pop, ("op", "datatype", "redop", "in_place"))
    transfer, wait = record.pop("transfer_ns"), record.pop("wait_ns")
    total_bytes = record["total_bytes"]
    return ClassRow(
        **record,
        op=parse_op(op),
        datatype=Datatype.of_label(datatype),
        redop=Redop.of_label(redop),
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


def _ratio(part: int | None, total: int | None) -> float | None:
    return part / total if part is not None and total else None


# Up to so many, ranks that are missing at equal distances are written as a range.
_FEW_RANKS = 1 << 17  # the largest machines have fewer GPUs
_COMMUNICATORS = """
SELECT comm_id, nranks, nnodes, parent_id, matched_by, ranks_seen, name
FROM communicators WHERE run = ? ORDER BY nranks DESC, comm_id
"""

_MEMBERS = """
SELECT comm_id, rank, world_rank, source_id IS NOT NULL FROM members WHERE run = ?
"""


class OpCalls(msgspec.Struct, frozen=True):
    """Number of calls of one operation."""

    op: Op
    calls: int


class CommunicatorRow(msgspec.Struct, frozen=True):
    """One communicator and what went over it."""

    comm_id: int
    nranks: int | None
    nnodes: int | None
    parent_id: int | None
    matched_by: str  # commId, parent/color, globalrank, inferred
    name: str | None  # what the program calls it
    ranks_seen: int
    missing_ranks: str | None  # compact: ranks without a line, None when all were seen
    world_ranks: str | None  # compact: 0-3 or 0,2 or 0-56:8 (first-last:step)
    calls: int
    total_bytes: int
    ops: tuple[OpCalls, ...]


class _Usage:
    """Calls and bytes of one communicator, summed over its classes."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self.ops: Counter[Op] = Counter()


def communicator_rows(
    connection: sqlite3.Connection,
    run: str,
    totals: Iterable[CallTotal],
    classes: Iterable[ClassRow],
) -> tuple[CommunicatorRow, ...]:
    """Every communicator of the run, the largest first."""
    usage = _usage(totals, classes)
    seen: dict[int, set[int]] = defaultdict(set)
    world: dict[int, set[int]] = defaultdict(set)
    members: dict[int, set[int]] = defaultdict(set)
    for comm_id, rank, world_rank, logged in connection.execute(_MEMBERS, (run,)):
        members[comm_id].add(rank)
        if logged:
            seen[comm_id].add(rank)
        if world_rank is not None:
            world[comm_id].add(world_rank)
    rows = []
    for comm_id, nranks, nnodes, parent, matched, ranks_seen, name in connection.execute(
        _COMMUNICATORS, (run,)
    ):
        used = usage[comm_id]
        # A recorder that knows the rank in the communicator alone is the source of no world rank.
        if ranks_seen == len(members[comm_id]):
            seen[comm_id] = members[comm_id]
        rows.append(
            CommunicatorRow(
                comm_id=comm_id,
                nranks=nranks,
                nnodes=nnodes,
                parent_id=parent,
                matched_by=matched,
                name=name,
                ranks_seen=ranks_seen,
                missing_ranks=_compact_missing(nranks or 0, seen[comm_id]),
                world_ranks=compact_ranges(world[comm_id]),
                calls=used.ops.total(),
                total_bytes=used.total_bytes,
                ops=count_ops(used.ops),
            )
        )
    return tuple(rows)


def _compact_missing(nranks: int, seen: set[int]) -> str | None:
    """Ranks below a number that were not seen, as `compact_ranges` has them; None for none.

    Only the ranks seen are counted through: a file may claim any number of ranks.
    """
    if nranks <= _FEW_RANKS:
        return compact_ranges(set(range(nranks)) - seen)
    bounds = [-1, *sorted(r for r in seen if 0 <= r < nranks), nranks]
    gaps = [(a + 1, b - 1) for a, b in pairwise(bounds) if b - a > 1]
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in gaps) or None


def _usage(totals: Iterable[CallTotal], classes: Iterable[ClassRow]) -> dict[int, _Usage]:
    by_id = {row.class_id: row for row in classes}
    usage: dict[int, _Usage] = defaultdict(_Usage)
    for total in totals:
        of_class, used = by_id[total.class_id], usage[total.comm_id]
        used.ops[of_class.op] += total.calls
        used.total_bytes += total.calls * (of_class.size_bytes or 0)
    return usage


def count_ops(ops: Counter[Op]) -> tuple[OpCalls, ...]:
    """Operations with their calls, the most frequent first, then by name."""
    ordered = sorted(ops.items(), key=lambda item: (-item[1], item[0].value))
    return tuple(OpCalls(op, n) for op, n in ordered)


def compact_ranges(ranks: Iterable[int]) -> str | None:
    """Ranks as text: runs as first-last, three or more with a step as first-last:step.

    >>> compact_ranges([0, 1, 2, 3, 8, 10]), compact_ranges([0, 8, 16]), compact_ranges([])
    ('0-3,8,10', '0-16:8', None)
    """
    ordered = sorted(set(ranks))
    parts = []
    start = 0
    while start < len(ordered):
        end = _run_end(ordered, start)
        first, last = ordered[start], ordered[end - 1]
        if end - start == 1:
            parts.append(f"{first}")
        else:
            step = ordered[start + 1] - first
            parts.append(f"{first}-{last}" if step == 1 else f"{first}-{last}:{step}")
        start = end
    return ",".join(parts) or None


def _run_end(ordered: Sequence[int], start: int) -> int:
    """Index after the arithmetic run that begins at `start`; two ranks with a gap are no run."""
    end = start + 1
    if end == len(ordered):
        return end
    step = ordered[end] - ordered[start]
    while end < len(ordered) and ordered[end] - ordered[end - 1] == step:
        end += 1
    return end if step == 1 or end - start > 2 else start + 1


KIB, MIB = 1024, 1024**2

# Lower edges of the bins of HPE/Cray Perftools ("<16", "16<=", "256<=", "4KiB<=", "64KiB<=",
# "1MiB<=", "16MiB<=" in the columns of pat_report): the form that HPC users know.
PERFTOOLS_EDGES = (0, 16, 256, 4 * KIB, 64 * KIB, MIB, 16 * MIB)


class Bin(msgspec.Struct, frozen=True):
    """Calls with low_bytes <= size < high_bytes."""

    low_bytes: int
    high_bytes: int | None  # None: no upper limit
    calls: int
    total_bytes: int
    ops: tuple[OpCalls, ...]


class Histogram(msgspec.Struct, frozen=True):
    """Message sizes (nccl-tests size of one call) in bins."""

    name: Annotated[str, ("perftools", "powers_of_two")]
    bins: tuple[Bin, ...]


def histograms(classes: Iterable[ClassRow]) -> tuple[Histogram, ...]:
    """Sizes of the calls in the Perftools bins and in powers of two.

    Size is the S of nccl-tests: total bytes of one call. Calls of unknown size are left out.
    """
    sized = [row for row in classes if row.size_bytes is not None]
    if not sized:
        return ()
    return (
        Histogram("perftools", _fill(sized, PERFTOOLS_EDGES)),
        Histogram("powers_of_two", _fill(sized, _powers_of_two(sized))),
    )


def _powers_of_two(classes: Iterable[ClassRow]) -> tuple[int, ...]:
    """Edges from the smallest to the largest size: 0 for empty messages, then 1, 2, 4, …."""
    sizes = [row.size_bytes or 0 for row in classes]
    positive = [size for size in sizes if size > 0]
    edges = [0] if 0 in sizes else []
    if positive:
        exponents = range(min(positive).bit_length() - 1, max(positive).bit_length())
        edges += [2**exponent for exponent in exponents]
    return tuple(edges)


def _fill(classes: Sequence[ClassRow], edges: tuple[int, ...]) -> tuple[Bin, ...]:
    calls: list[Counter[Op]] = [Counter() for _ in edges]
    total_bytes = [0 for _ in edges]
    for row in classes:
        size = row.size_bytes or 0
        index = sum(edge <= size for edge in edges) - 1
        calls[index][row.op] += row.calls
        total_bytes[index] += row.calls * size
    highs = _upper_edges(edges)
    return tuple(
        Bin(low, high, ops.total(), total, count_ops(ops))
        for low, high, ops, total in zip(edges, highs, calls, total_bytes, strict=True)
    )


def _upper_edges(edges: tuple[int, ...]) -> tuple[int | None, ...]:
    # the bins of powers of two end, those of Perftools are open: its last one has no upper edge
    last = None if edges == PERFTOOLS_EDGES else max(2 * edges[-1], 1)
    return (*edges[1:], last)
