"""Message size, algorithm bandwidth and bus bandwidth: the only place with factors.

Source of every factor: NVIDIA/nccl-tests doc/PERFORMANCE.md and src/<collective>.cu
(Gather, Scatter and SendRecv stand only in the latter). GB = 1e9 bytes.
"""

from __future__ import annotations

from collscope.model.datatype import Datatype
from collscope.model.op import Op

_PER_RANK_COUNT = {Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER}
_WHOLE_VECTOR = {Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE, Op.SEND_RECV, Op.SEND, Op.RECV}


def size_bytes(op: Op, *, count: int, datatype: Datatype, nranks: int | None) -> int | None:
    """Size S of nccl-tests: the total bytes of one call.

    count   elements, as the API takes it (per rank for AllGather, ReduceScatter, Gather, Scatter;
            per peer for AllToAll)
    nranks  ranks of the communicator, or None when unknown
    returns bytes, or None where S is undefined: unknown nranks or datatype, AllToAllv (the sum of
            its transfers is its size) and operations without data
    """
    itemsize = datatype.itemsize
    if itemsize is None:
        return None
    if op in _WHOLE_VECTOR:
        return count * itemsize
    if op in _PER_RANK_COUNT and nranks:
        return count * itemsize * nranks
    return None


def bus_factor(op: Op, nranks: int | None) -> float | None:
    """busbw / algbw of an operation on `nranks` ranks; None when nranks is 1 or unknown.

    >>> bus_factor(Op.ALL_REDUCE, 8)
    1.75
    """
    if nranks is None or nranks < 2:
        return None
    if op is Op.ALL_REDUCE:
        return 2 * (nranks - 1) / nranks
    if op in _PER_RANK_COUNT or op is Op.ALL_TO_ALLV:
        return (nranks - 1) / nranks
    if op in _WHOLE_VECTOR:
        return 1.0
    return None


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
