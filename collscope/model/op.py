"""Operations of collective communication: the one table of what is true of each.

Everything else that depends on the operation (sizes, factors of bandwidth, in-place, buffers,
names) is computed from this table. Sources stand at its columns.
"""

from __future__ import annotations

import re
from enum import Enum

import msgspec


class Op(Enum):
    """Operation of a call, in the library's spelling."""

    # Members are singletons; Enum's own hash is of the name, in Python, and slows every look-up.
    __hash__ = object.__hash__

    ALL_REDUCE = "AllReduce"
    ALL_GATHER = "AllGather"
    REDUCE_SCATTER = "ReduceScatter"
    BROADCAST = "Broadcast"
    REDUCE = "Reduce"
    ALL_TO_ALL = "AllToAll"
    ALL_TO_ALLV = "AllToAllv"
    GATHER = "Gather"
    SCATTER = "Scatter"
    SEND = "Send"
    RECV = "Recv"
    SEND_RECV = "SendRecv"
    ALL_GATHERV = "AllGatherV"
    PUT_SIGNAL = "PutSignal"
    SIGNAL = "Signal"
    WAIT_SIGNAL = "WaitSignal"
    BARRIER = "Barrier"
    SEQUENCE = "Sequence"  # all steps of a replay in order; no library's operation
    UNKNOWN = "Unknown"

    def __str__(self) -> str:
        """The printed name."""
        return self.value

    @property
    def rooted(self) -> bool:
        """True where one rank has another role than the rest."""
        return _FACTS[self].rooted

    @property
    def reduces(self) -> bool:
        """True where the elements of several ranks become one."""
        return _FACTS[self].reduces

    @property
    def point_to_point(self) -> bool:
        """True for one rank's half of a transfer."""
        return self in (Op.SEND, Op.RECV)

    @property
    def synchronises(self) -> bool:
        """True where no rank can leave before all have come."""
        return _FACTS[self].synchronises

    @property
    def sends(self) -> Extent:
        """What a rank puts in (the root, where there is one and only it does)."""
        return _FACTS[self].sends

    @property
    def receives(self) -> Extent:
        """What a rank gets out (the root, where there is one and only it does)."""
        return _FACTS[self].receives

    @property
    def count_is_part(self) -> bool:
        """True where the API's count is one rank's part of the size."""
        return Extent.PARTS in (self.sends, self.receives)

    @property
    def place(self) -> BufferPlace:
        """Which pointers are equal when the call is in place."""
        sides = (self.sends, self.receives)
        if sides == (Extent.COUNT, Extent.PARTS):
            return BufferPlace.PART_OF_RECV
        if sides == (Extent.PARTS, Extent.COUNT):
            return BufferPlace.PART_OF_SEND
        return BufferPlace.SAME

    @property
    def has_in_place(self) -> bool:
        """False where the libraries and nccl-tests have no in-place form."""
        return _FACTS[self].in_place

    @property
    def bus(self) -> Bus | None:
        """How bus bandwidth follows from algorithm bandwidth; None where it is not defined."""
        return _FACTS[self].bus

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the name, lower case: all, to, all.

        >>> Op.ALL_TO_ALLV.words
        ('all', 'to', 'allv')
        """
        return tuple(word.lower() for word in re.findall("[A-Z][a-z]*", self.value))

    @property
    def benchmark(self) -> str | None:
        """Program of nccl-tests that measures it, without ``_perf``; None: there is none."""
        return _FACTS[self].benchmark

    @property
    def kernel(self) -> str | None:
        """The operation as the names of NCCL's and RCCL's kernels spell it."""
        return _FACTS[self].kernel

    @property
    def other_kernels(self) -> str | None:
        """Pattern, lower case, of names of kernels of other libraries."""
        return _FACTS[self].other_kernels


class Extent(Enum):
    """Elements of a buffer in terms of the API's count."""

    NOTHING = "nothing"
    COUNT = "count"
    PARTS = "count times nranks"
    VARIED = "another number on each rank"


class BufferPlace(Enum):
    """What in-place means: which pointers are equal."""

    SAME = "sendbuff == recvbuff"
    PART_OF_RECV = "sendbuff == recvbuff + rank * count * itemsize"
    PART_OF_SEND = "recvbuff == sendbuff + rank * count * itemsize"


class Bus(Enum):
    """Bus bandwidth / algorithm bandwidth on n ranks."""

    ONE = "1"
    OTHERS = "(n-1)/n"
    TWICE_OTHERS = "2(n-1)/n"


class _Facts(msgspec.Struct, frozen=True):
    """What is true of an operation.

    sends, receives  the functions' contracts in nccl.h
    bus              NVIDIA/nccl-tests doc/PERFORMANCE.md and src/<benchmark>.cu (Gather, Scatter
                     and SendRecv stand only in the latter)
    in_place         nccl-tests: whether a table's second block measures anything else
    synchronises     reference of the operations in NCCL's collectives documentation
    benchmark        NVIDIA/nccl-tests src/Makefile
    spellings        other spellings in logs, lower case: ncclInfo.opName of NVIDIA/nccl and
                     ROCm/rccl (enqueue.cc, collectives.cc), mscclFunc names of ROCm/rccl
                     msccl_lifecycle.cc
    kernel           generate.py and common.h of NVIDIA/nccl and ROCm/rccl
    other_kernels    src/ext/collectives of microsoft/mscclpp, kernels of vLLM, PyTorch, ROCm/mori
    """

    sends: Extent = Extent.NOTHING
    receives: Extent = Extent.NOTHING
    bus: Bus | None = None
    rooted: bool = False
    reduces: bool = False
    in_place: bool = True
    synchronises: bool = False
    benchmark: str | None = None
    spellings: tuple[str, ...] = ()
    kernel: str | None = None
    other_kernels: str | None = None


_FACTS = {
    Op.ALL_REDUCE: _Facts(
        Extent.COUNT, Extent.COUNT, Bus.TWICE_OTHERS,
        reduces=True, synchronises=True, benchmark="all_reduce",
        spellings=("allreducewithbias",), kernel="AllReduce",
        other_kernels="all_?reduce|cross_device_reduce|quick_?reduce",
    ),
    Op.ALL_GATHER: _Facts(
        Extent.COUNT, Extent.PARTS, Bus.OTHERS,
        synchronises=True, benchmark="all_gather",
        kernel="AllGather", other_kernels="all_?gather",
    ),
    Op.REDUCE_SCATTER: _Facts(
        Extent.PARTS, Extent.COUNT, Bus.OTHERS,
        reduces=True, synchronises=True, benchmark="reduce_scatter",
        kernel="ReduceScatter", other_kernels="reduce_?scatter",
    ),
    Op.BROADCAST: _Facts(
        Extent.COUNT, Extent.COUNT, Bus.ONE,
        rooted=True, benchmark="broadcast", spellings=("bcast",),
        kernel="Broadcast",
    ),
    Op.REDUCE: _Facts(
        Extent.COUNT, Extent.COUNT, Bus.ONE,
        rooted=True, reduces=True, benchmark="reduce", kernel="Reduce",
    ),
    Op.ALL_TO_ALL: _Facts(
        Extent.PARTS, Extent.PARTS, Bus.OTHERS,
        in_place=False, synchronises=True, benchmark="alltoall", spellings=("alltoallpivot",),
        kernel="AllToAllPivot", other_kernels="all_to_all|all2all",
    ),
    Op.ALL_TO_ALLV: _Facts(
        Extent.VARIED, Extent.VARIED, Bus.OTHERS,
        in_place=False, synchronises=True, benchmark="alltoallv",
    ),
    Op.GATHER: _Facts(
        Extent.COUNT, Extent.PARTS, Bus.OTHERS, rooted=True, benchmark="gather",
    ),
    Op.SCATTER: _Facts(
        Extent.PARTS, Extent.COUNT, Bus.OTHERS, rooted=True, benchmark="scatter",
    ),
    Op.SEND: _Facts(Extent.COUNT, Extent.NOTHING, Bus.ONE, in_place=False),
    Op.RECV: _Facts(Extent.NOTHING, Extent.COUNT, Bus.ONE, in_place=False),
    Op.SEND_RECV: _Facts(
        Extent.COUNT, Extent.COUNT, Bus.ONE,
        in_place=False, benchmark="sendrecv", kernel="SendRecv",
    ),
    Op.ALL_GATHERV: _Facts(Extent.VARIED, Extent.VARIED, in_place=False),
    Op.PUT_SIGNAL: _Facts(in_place=False),
    Op.SIGNAL: _Facts(in_place=False),
    Op.WAIT_SIGNAL: _Facts(in_place=False),
    Op.BARRIER: _Facts(in_place=False, synchronises=True),
    Op.SEQUENCE: _Facts(in_place=False),
    Op.UNKNOWN: _Facts(Extent.VARIED, Extent.VARIED),  # it may have an in-place form
}  # fmt: skip

_BY_VALUE = {op.value: op for op in Op}
_BY_SPELLING = {
    **{op.value.lower(): op for op in Op},
    **{spelling: op for op, facts in _FACTS.items() for spelling in facts.spellings},
}


def parse_op(name: str) -> Op:
    """Operation of a logged name; prefixes of MSCCL, MSCCL++ and the API are dropped.

    >>> parse_op("mscclFuncAllReduce"), parse_op("AlltoAll")
    (<Op.ALL_REDUCE: 'AllReduce'>, <Op.ALL_TO_ALL: 'AllToAll'>)
    """
    if name in _BY_VALUE:
        return _BY_VALUE[name]
    lower = name.lower()
    for prefix in ("mscclpp_", "mscclfunc", "nccl"):
        lower = lower.removeprefix(prefix)
    return _BY_SPELLING.get(lower, Op.UNKNOWN)
