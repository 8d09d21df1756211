"""Calls of RCCL's recorder, whichever form they were written in, as `RecordedCall`.

Meaning of the fields: recorder.h and recorder.cc of ROCm/rccl (pull request 1603, ROCm 7.0).
"""

from __future__ import annotations

import re

import msgspec

from collscope.model import BufferPlace, Extent, Op, datatype_of, parse_op, redop_of
from collscope.model.limits import LIMIT
from collscope.model.trace import RecordedCall, TraceCollective

# name.PID.HOST, then the extension of RCCL_REPLAY_FILE from its first dot on
_FILE = re.compile(r"[^/\\]*?\.(\d{1,9})\.([^/\\]+)")
_EXTENSION = re.compile(r"\.(?:json|bin|log|rccl|txt|gz|zst)", re.IGNORECASE)

OPS = {
    name: parse_op(name)
    for name in (
        "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "AllReduceWithBias",
        "Send", "Recv", "AllToAll", "AllToAllv", "Gather", "Scatter", "Bcast",
    )
}  # fmt: skip
"""Operations of rcclCallStr (recorder.h); the other names of that table move no data."""


class RawCall(msgspec.Struct, frozen=True):
    """One call as recorded; pointers are addresses in the process, 0 where none."""

    op: Op
    sendbuff: int
    recvbuff: int
    count: int  # as the API takes it
    datatype: int
    redop: int
    root: int
    comm: int
    nranks: int
    rank: int  # in the communicator: comm->localRankToRank[comm->localRank]
    time_ms: float | None  # since the epoch
    sendcounts: tuple[int, ...] = ()
    recvcounts: tuple[int, ...] = ()
    captured: int = -1  # 1: recorded into a graph and not executed; each launch records it again


class Communicators:
    """Names of communicators that ranks agree on, by the pointers of one process.

    A pointer is used again after its communicator ended, so the last start of it counts.
    """

    def __init__(self, process: str) -> None:
        """Know none.

        process  distinguishes this process in the names of communicators whose start is lost
        """
        self._process = process
        self._names: dict[int, str] = {}
        self._low: dict[int, str] = {}  # of new communicators, by the lower half of their address
        # By address: one process may drive several ranks of a communicator.
        self._splits: dict[int, int] = {}
        self._known: dict[tuple[object, ...], TraceCollective] = {}
        self._seq: dict[int, int] = {}
        self._ranks: dict[int, int] = {}  # number of them that a communicator was made with
        self._depth = self._launch = 0
        self.contradicting = 0  # calls that give their communicator another number of ranks

    def group_start(self) -> None:
        """ncclGroupStart: the calls up to the end of the outermost group are launched as one."""
        self._launch += self._depth == 0
        self._depth += 1

    def group_end(self) -> None:
        """ncclGroupEnd; one too many, as damaged files have it, is passed over."""
        self._depth = max(self._depth - 1, 0)

    def start(self, pointer: int, unique_id: int, ranks: int | None = None) -> None:
        """A communicator was made; its unique id is the hash that INIT lines print.

        ranks  it has; None where that is unknown
        """
        self.end(pointer)
        if ranks is not None and ranks > 0:
            self._ranks[pointer] = ranks
        self._names[pointer] = f"0x{unique_id:x}"

    def split(self, parent: int, color: int, pointer: int, low: int = 0) -> None:
        """A communicator was split off.

        color    negative: this rank got none
        pointer  of the new one; 0 where it is unknown, as in a group of calls
        low      the lower 32 bits of it; 0 where they are unknown
        """
        self._splits[parent] = number = self._splits.get(parent, 0) + 1
        # Ranks of one colour are together, and every rank of the parent splits as often.
        child = f"{self.name(parent)}/{number}.{color}"
        if color >= 0 and pointer:
            self.end(pointer)
            self._names[pointer] = child
        elif color >= 0 and low:
            self._low[low] = child

    def name(self, pointer: int) -> str:
        """Name of the communicator at an address."""
        if pointer not in self._names:
            own = f"0x{pointer:x}@{self._process}"
            self._names[pointer] = self._low.pop(pointer & 0xFFFFFFFF, own)
        return self._names[pointer]

    def _collective(self, raw: RawCall, group: str) -> TraceCollective:
        # A job repeats few different calls: equal ones are one object.
        key = (
            raw.op, raw.count, raw.datatype, raw.redop, raw.root, raw.nranks, raw.rank, group,
            raw.sendcounts, raw.recvcounts,
        )  # fmt: skip
        if key not in self._known:
            self._known[key] = _collective(raw, group)
        return self._known[key]

    def end(self, pointer: int) -> None:
        """The communicator at an address is gone."""
        self._names.pop(pointer, None)
        self._splits.pop(pointer, None)
        self._seq.pop(pointer, None)
        self._ranks.pop(pointer, None)

    def call(self, raw: RawCall) -> RecordedCall:
        """The record of a call; calls of one communicator are numbered in their order."""
        group = self.name(raw.comm)
        rank = raw.rank if 0 <= raw.rank < max(raw.nranks, 1) else None
        if raw.nranks > 0 and self._ranks.get(raw.comm, raw.nranks) != raw.nranks:
            self.contradicting += 1
            raw = msgspec.structs.replace(raw, nranks=0)
        self._launch += self._depth == 0
        seq = None
        if not raw.op.point_to_point and raw.captured != 1:
            # opCount is per launch, and 0 for every call on one host.
            seq = self._seq[raw.comm] = self._seq.get(raw.comm, 0) + 1
        return RecordedCall(
            collective=self._collective(raw, group),
            seq=seq,
            start_ns=_ns(raw.time_ms),
            state="captured" if raw.captured == 1 else None,
            group_rank=rank,
            in_place=_in_place(raw),
            together=self._launch,
        )


def process_of(name: str) -> tuple[int | None, str | None]:
    """Process id and host in a recording's file name; None where it has none.

    >>> process_of("run/replay.4711.node-3.json")
    (4711, 'node-3')
    """
    match = _FILE.fullmatch(name[-512:].replace("\\", "/").rpartition("/")[2])
    if match is None:
        return None, None
    host = match[2]
    while (dot := host.rfind(".")) > 0 and _EXTENSION.fullmatch(host[dot:]):
        host = host[:dot]
    return int(match[1]), host


def _collective(raw: RawCall, group: str) -> TraceCollective:
    ranks = raw.nranks if raw.nranks > 0 else None
    peer = raw.root if raw.op.point_to_point and raw.root >= 0 else None
    rooted = raw.op.rooted and raw.root >= 0
    in_count, out_count = _counts(raw, ranks)
    return TraceCollective(
        op=raw.op,
        datatype=datatype_of(raw.datatype),
        in_count=in_count,
        out_count=out_count,
        group=group,
        group_size=ranks,
        redop=redop_of(raw.redop).value if raw.op.reduces else None,
        root=raw.root if rooted else None,
        peer=peer,
        in_split=raw.sendcounts,
        out_split=raw.recvcounts,
    )


def _counts(raw: RawCall, ranks: int | None) -> tuple[int | None, int | None]:
    """Elements this rank puts in and gets out."""
    op, count = raw.op, raw.count
    if op is Op.ALL_TO_ALLV:
        known = bool(raw.sendcounts) and sum(raw.sendcounts + raw.recvcounts) < LIMIT
        return (sum(raw.sendcounts), sum(raw.recvcounts)) if known else (None, None)
    parts = None if ranks is None else min(count * ranks, LIMIT - 1)
    elements = {Extent.COUNT: count, Extent.PARTS: parts}
    into, out = elements.get(op.sends), elements.get(op.receives)
    if raw.rank != raw.root:
        into = None if op is Op.SCATTER else into
        out = None if op in (Op.REDUCE, Op.GATHER) else out
    return into, out


def _in_place(raw: RawCall) -> bool | None:
    """Whether input and output share memory as the API defines it; None where there is one."""
    size = datatype_of(raw.datatype).itemsize
    if raw.op.point_to_point or size is None or not (raw.sendbuff and raw.recvbuff):
        return None
    place = raw.op.place
    if place is not BufferPlace.SAME and raw.op.rooted and raw.rank != raw.root:
        return None
    own = raw.rank * raw.count * size
    if place is BufferPlace.PART_OF_RECV:
        return raw.sendbuff == raw.recvbuff + own
    if place is BufferPlace.PART_OF_SEND:
        return raw.recvbuff == raw.sendbuff + own
    return raw.sendbuff == raw.recvbuff


def _ns(time_ms: float | None) -> int | None:
    if time_ms is None or not 0 < time_ms < LIMIT / 1e6:
        return None
    # Whole and part by themselves: a float of so many ns would be off by hundreds.
    whole_ms = int(time_ms)
    return whole_ms * 1_000_000 + round((time_ms - whole_ms) * 1e6)
