"""Operations of collective communication, in the libraries' spelling."""

from __future__ import annotations

from enum import Enum


class Op(Enum):
    """Operation of a call, in the library's spelling."""

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

    @property
    def rooted(self) -> bool:
        """True where one rank has another role than the rest."""
        return self in _ROOTED

    @property
    def reduces(self) -> bool:
        """True where the elements of several ranks become one."""
        return self in _REDUCING

    @property
    def point_to_point(self) -> bool:
        """True for one rank's half of a transfer."""
        return self in (Op.SEND, Op.RECV)


_ROOTED = {Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER}
_REDUCING = {Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.REDUCE}

# Spellings found in logs, lower case, against ours. Sources: ncclInfo.opName of NVIDIA/nccl and
# ROCm/rccl (enqueue.cc, collectives.cc), mscclFunc names of ROCm/rccl msccl_lifecycle.cc.
_OP_SPELLINGS = {
    **{op.value.lower(): op for op in Op},
    "alltoallpivot": Op.ALL_TO_ALL,
    "bcast": Op.BROADCAST,
    "allreducewithbias": Op.ALL_REDUCE,
}


def parse_op(name: str) -> Op:
    """Operation of a logged name; prefixes of MSCCL, MSCCL++ and the API are dropped.

    >>> parse_op("mscclFuncAllReduce"), parse_op("AlltoAll")
    (<Op.ALL_REDUCE: 'AllReduce'>, <Op.ALL_TO_ALL: 'AllToAll'>)
    """
    lower = name.lower()
    for prefix in ("mscclpp_", "mscclfunc", "nccl"):
        lower = lower.removeprefix(prefix)
    return _OP_SPELLINGS.get(lower, Op.UNKNOWN)
