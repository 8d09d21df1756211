"""Message sizes of a run: calls and bytes over size, in two sets of bins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from collscope.analysis.classes import ClassRow
from collscope.analysis.communicators import OpCalls, count_ops

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
    calls: list[Counter[str]] = [Counter() for _ in edges]
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
