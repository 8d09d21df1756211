"""Transfers of the point-to-point shapes: complete where logs show a part (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from collscope.model import Op, transfers_size_bytes
from collscope.replay.plan import PlanTransfer

_MOST_TRANSFERS = 1 << 20  # that a plan lists, as of an all-to-all of 1024 ranks
REGULAR = ("alltoall", "gather", "scatter", "shift")  # the shape and one count say it all


def pattern(
    shape: str, nranks: int, count: int, *, root: int = 0, distance: int = 1, own: bool = True
) -> tuple[PlanTransfer, ...]:
    """All transfers of a regular shape on `nranks` ranks, `count` elements each.

    root      of gather and scatter
    distance  of a shift: rank r sends to r + distance around the ring
    own       a rank's part for itself is a transfer too; never in a shift

    >>> pattern("shift", 3, 7)[0]
    PlanTransfer(src_rank=0, dst_rank=1, elements=7)
    """
    ranks = range(nranks)
    pairs: Iterable[tuple[int, int]]
    if shape == "shift":
        pairs = [(r, (r + distance) % nranks) for r in ranks]
    elif shape == "gather":
        pairs = [(r, root) for r in ranks]
    elif shape == "scatter":
        pairs = [(root, r) for r in ranks]
    else:
        pairs = [(s, d) for s in ranks for d in ranks]
    return tuple(PlanTransfer(s, d, count) for s, d in pairs if own or s != d)


def completed(
    shape: str, nranks: int, seen: Sequence[PlanTransfer]
) -> tuple[PlanTransfer, ...] | None:
    """All transfers of a shape, given the logged ones (`seen`); None where they are unknown."""
    counts = {t.elements for t in seen}
    others = [t for t in seen if t.src_rank != t.dst_rank]
    # Those of an all-to-all are as many as the square of the ranks.
    many = shape == "alltoall" and nranks * nranks > _MOST_TRANSFERS
    if shape not in REGULAR or len(counts) != 1 or not others or many:
        return None
    first = others[0]
    return pattern(
        shape,
        nranks,
        counts.pop(),
        root=first.dst_rank if shape == "gather" else first.src_rank,
        distance=(first.dst_rank - first.src_rank) % nranks,
        own=len(others) < len(seen),
    )


def resized(
    shape: str, full: int, nranks: int, items: Sequence[PlanTransfer]
) -> tuple[PlanTransfer, ...]:
    """Transfers of a communicator of `full` ranks that shrinks to `nranks`.

    Regular shapes are made anew; of others the transfers among the first ranks are kept, and where
    there are none the largest one goes from the first rank to the last.
    """
    counts = {t.elements for t in items}
    kept = tuple(t for t in items if t.src_rank < nranks and t.dst_rank < nranks)
    if shape in REGULAR and len(counts) == 1:
        others = [t for t in items if t.src_rank != t.dst_rank] or list(items)
        first = others[0]
        root = first.dst_rank if shape == "gather" else first.src_rank
        kept = pattern(
            shape,
            nranks,
            max(counts),
            root=root % nranks,
            distance=(first.dst_rank - first.src_rank) % full % nranks or 1,
            own=len(others) < len(items),
        )
    return kept or (PlanTransfer(0, nranks - 1, max(counts)),)


def transfer_bytes(op: Op, nranks: int, items: Sequence[PlanTransfer], itemsize: int) -> int:
    """Size S of nccl-tests of transfers."""
    return transfers_size_bytes(op, nranks, ((s, d, n * itemsize) for s, d, n in items))


def amounts(items: Sequence[PlanTransfer]) -> tuple[Counter[int], Counter[int]]:
    """Elements that each rank sends and receives."""
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for src, dst, count in items:
        sent[src] += count
        received[dst] += count
    return sent, received
