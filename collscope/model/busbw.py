"""Message size, algorithm bandwidth and bus bandwidth, by the table of `collscope.model.op`.

GB = 1e9 bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

from collscope.model.datatype import Datatype
from collscope.model.limits import LIMIT
from collscope.model.op import Bus, Extent, Op


def size_bytes(op: Op, *, count: int, datatype: Datatype, nranks: int | None) -> int | None:
    """Size S of nccl-tests: the total bytes of one call.

    count   elements, as the API takes it (per rank for AllGather, ReduceScatter, Gather, Scatter;
            per peer for AllToAll)
    nranks  ranks of the communicator, or None when unknown
    returns bytes, or None where S is undefined: unknown nranks or datatype, AllToAllv (the sum of
            its transfers is its size) and operations without data; and where 64 bits do not hold
            it, as of a number of ranks from another source
    """
    itemsize = datatype.itemsize
    if itemsize is None:
        return None
    if op.count_is_part:
        return _held(count * itemsize * nranks) if nranks else None
    return _held(count * itemsize) if Extent.COUNT in (op.sends, op.receives) else None


def _held(size: int) -> int | None:
    return size if size < LIMIT else None


def transfers_size_bytes(
    op: Op, nranks: int | None, transfers: Iterable[tuple[int, int, int]]
) -> int:
    """Size S of nccl-tests of a group of transfers, each (source, destination, bytes).

    Of an all-to-all-v the most that any rank sends or receives; of gather, scatter and all-to-all
    the largest transfer times the ranks, also where a rank's own part was not sent.

    source  NVIDIA/nccl-tests src/{alltoall,alltoallv,gather,scatter,sendrecv}.cu (2.19)
    """
    items = list(transfers)
    largest = max((size for _, _, size in items), default=0)
    if op.count_is_part and nranks:
        return largest * nranks
    if op is Op.SEND_RECV:
        return largest
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for source, destination, size in items:
        sent[source] += size
        received[destination] += size
    return max([0, *sent.values(), *received.values()])


@cache
def bus_factor(op: Op, nranks: int | None) -> float | None:
    """busbw / algbw of an operation on `nranks` ranks; None when nranks is 1 or unknown.

    >>> bus_factor(Op.ALL_REDUCE, 8)
    1.75
    """
    if nranks is None or nranks < 2 or op.bus is None:
        return None
    if op.bus is Bus.TWICE_OTHERS:
        return 2 * (nranks - 1) / nranks
    return 1.0 if op.bus is Bus.ONE else (nranks - 1) / nranks


def algorithm_bandwidth(size: int | None, time_s: float | None) -> float | None:
    """Algorithm bandwidth in GB/s: `size` bytes in `time_s` seconds; None if either is missing."""
    if size is None or time_s is None or time_s <= 0:
        return None
    return size / time_s / 1e9


def bus_bandwidth(
    op: Op, *, size: int | None, time_s: float | None, nranks: int | None
) -> float | None:
    """Bus bandwidth in GB/s of one collective, comparable with a link's unidirectional peak.

    size    bytes, the S of `size_bytes`
    time_s  seconds of one call
    returns None when a quantity is missing or nranks is 1

    >>> round(bus_bandwidth(Op.ALL_REDUCE, size=536870912, time_s=3.25299e-3, nranks=8), 2)
    288.82
    """
    algbw = algorithm_bandwidth(size, time_s)
    factor = bus_factor(op, nranks)
    return None if algbw is None or factor is None else algbw * factor
