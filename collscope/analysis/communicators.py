"""The communicators of a run: who talks to whom, how that is known, and what went over it."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from collscope.analysis.classes import CallTotal, ClassRow

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

    op: str
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
        self.ops: Counter[str] = Counter()


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
    for comm_id, rank, world_rank, logged in connection.execute(_MEMBERS, (run,)):
        if logged:
            seen[comm_id].add(rank)
        if world_rank is not None:
            world[comm_id].add(world_rank)
    rows = []
    for comm_id, nranks, nnodes, parent, matched, ranks_seen, name in connection.execute(
        _COMMUNICATORS, (run,)
    ):
        used = usage[comm_id]
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


def count_ops(ops: Counter[str]) -> tuple[OpCalls, ...]:
    """Operations with their calls, the most frequent first, then by name."""
    return tuple(OpCalls(op, n) for op, n in sorted(ops.items(), key=lambda item: (-item[1], item)))


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
