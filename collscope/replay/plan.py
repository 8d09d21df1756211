"""The replay plan: which collectives to run on which ranks. File format: schemas/plan.md."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from collscope.model import Datatype, Op, Redop, size_bytes

UNIQUE, SEQUENCE = "unique", "sequence"
SHAPES = ("alltoall", "alltoallv", "gather", "scatter", "shift", "sendrecv")
REDOPS = tuple(r for r in Redop if r is not Redop.CUSTOM)
REPLAYED = (
    Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.BROADCAST, Op.REDUCE, Op.ALL_TO_ALL,
    Op.ALL_TO_ALLV, Op.GATHER, Op.SCATTER, Op.SEND_RECV,
)  # fmt: skip
# Nothing in the libraries does these in one function: only Send and Recv do.
ONLY_TRANSFERS = (Op.ALL_TO_ALLV, Op.SEND_RECV)


class PlanComm(msgspec.Struct, frozen=True):
    """A communicator; its ranks 0, 1, … are `ranks` of the plan, in this order."""

    id: int
    ranks: tuple[int, ...]


class PlanTransfer(NamedTuple):
    """One message between two ranks of a communicator."""

    src_rank: int
    dst_rank: int
    elements: int


class PlanTransfers(msgspec.Struct, frozen=True):
    """What a point-to-point class exchanges on one communicator."""

    comm: int
    items: tuple[PlanTransfer, ...]


class PlanClass(msgspec.Struct, frozen=True):
    """Calls that cost the same. `comms` are ids; in mode unique they are disjoint."""

    id: int
    op: Op
    datatype: Datatype
    comms: tuple[int, ...]
    redop: Redop | None = None  # with a reduction only
    count: int | None = None  # elements as the API takes it; None where transfers say it
    root: int | None = None  # rank of the communicator
    in_place: bool = False
    calls: int = 1  # in the run, over all communicators
    shape: str | None = None  # None: the library's own function
    size_bytes: int | None = None  # nccl-tests size S of a class with transfers
    transfers: tuple[PlanTransfers, ...] = ()  # one per communicator, in the order of `comms`

    def size(self, nranks: int) -> int:
        """Size S of nccl-tests in bytes of one call on a communicator of `nranks` ranks."""
        if self.size_bytes is not None:
            return self.size_bytes
        found = size_bytes(self.op, count=self.count or 0, datatype=self.datatype, nranks=nranks)
        return found or 0


class PlanStep(msgspec.Struct, frozen=True):
    """One launch: classes on communicators, by their ids; several are one group."""

    items: tuple[tuple[int, int], ...]


class Plan(msgspec.Struct, frozen=True):
    """What to run. `steps` only in mode sequence; equal steps are one object."""

    mode: str  # unique or sequence
    nranks: int
    comms: tuple[PlanComm, ...]
    classes: tuple[PlanClass, ...]
    steps: tuple[PlanStep, ...] = ()
    scaled_from: int | None = None  # ranks of the job, when remapped to fewer

    def comm_ranks(self) -> dict[int, tuple[int, ...]]:
        """Ranks of the plan by communicator id."""
        return {c.id: c.ranks for c in self.comms}


def itemsize(datatype: Datatype) -> int:
    """Bytes of one element; a plan holds no unknown datatype."""
    assert datatype.itemsize is not None  # readers and builders refuse Datatype.UNKNOWN
    return datatype.itemsize


def used(plan: Plan) -> tuple[tuple[PlanComm, ...], int]:
    """Communicators that classes use, and how many ranks these need: 0 … n−1."""
    wanted = {c for planned in plan.classes for c in planned.comms}
    comms = tuple(c for c in plan.comms if c.id in wanted)
    return comms, max((max(c.ranks) + 1 for c in comms), default=0)
