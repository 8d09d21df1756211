"""One rank's recorded calls in one group, and what of a call all ranks must agree on."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from collscope.model import Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from collscope.model.trace import GroupStatus, RecordedCall

COMPLETED = "completed"
# What all ranks of a call must agree on; the others may give every rank another count.
_SAME_INPUT = (Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE, Op.REDUCE_SCATTER, Op.GATHER)
_SAME_OUTPUT = (Op.ALL_GATHER, Op.SCATTER)


class CallPlace(NamedTuple):
    """Where collectives of ranks meet; `op` only where each operation is counted by itself."""

    seq: int
    op: Op | None


class Signature(NamedTuple):
    """What ranks of one call must agree on; None: unknown."""

    op: Op
    size: int | None
    datatype: str | None
    root: int | None


class Member:
    """One rank's calls in one group."""

    def __init__(self, coverage: str, status: GroupStatus | None) -> None:
        """Have no calls yet.

        coverage  as `RecordedCalls.coverage`
        status    the recorder's own counters for the group
        """
        self.coverage = coverage
        self.places: dict[CallPlace, list[RecordedCall]] = defaultdict(list)
        self.transfers: dict[tuple[Op, int], list[RecordedCall]] = defaultdict(list)
        self._status = status
        self._by_seq: dict[int, list[RecordedCall]] = defaultdict(list)

    def add(self, call: RecordedCall, per_op: bool) -> None:
        """Take one call."""
        op, peer = call.collective.op, call.collective.peer
        if op.point_to_point and peer is not None:
            self.transfers[op, peer].append(call)
        elif call.seq is not None and op is not Op.UNKNOWN and not op.point_to_point:
            self.places[CallPlace(call.seq, op if per_op else None)].append(call)
            self._by_seq[call.seq].append(call)

    def called(self, seq: int) -> list[RecordedCall]:
        """Calls of a number, of every operation."""
        return self._by_seq.get(seq, [])

    @property
    def last_called(self) -> int | None:
        """Highest number called; a dump that lost the calls themselves still has counters."""
        # The counters of a group with transfers count those as well.
        by_status = self._status.last_enqueued if self._status and not self.transfers else None
        return max((p.seq for p in self.places), default=by_status)

    @property
    def last_completed(self) -> int | None:
        """Highest number known to be completed."""
        by_status = self._status.last_completed if self._status and not self.transfers else None
        seen = [p.seq for p, calls in self.places.items() if all_done(calls)]
        return max([*seen, *([] if by_status is None else [by_status])], default=None)

    @property
    def first_open(self) -> int | None:
        """Lowest number that was called and is known not to be completed."""
        return min((p.seq for p, calls in self.places.items() if any_open(calls)), default=None)


def is_open(call: RecordedCall) -> bool:
    """True for a call that is known not to be completed."""
    return call.state is not None and call.state != COMPLETED


def any_open(calls: Iterable[RecordedCall]) -> bool:
    """True when one of the calls is known not to be completed."""
    return any(is_open(call) for call in calls)


def all_done(calls: Iterable[RecordedCall]) -> bool:
    """True when all of the calls are known to be completed."""
    return all(call.state == COMPLETED for call in calls)


def signature(call: RecordedCall) -> Signature:
    """What the other ranks of a call must have called as well."""
    collective = call.collective
    return Signature(
        collective.op,
        _size(call),
        None if collective.datatype is None else collective.datatype.value,
        collective.root,
    )


def _size(call: RecordedCall) -> int | None:
    """What ranks must agree on: elements, or bytes where only those are known."""
    collective = call.collective
    if collective.op in _SAME_INPUT and collective.in_count is not None:
        return collective.in_count
    if collective.op in _SAME_OUTPUT and collective.out_count is not None:
        return collective.out_count
    return call.size_bytes


def agree(calls: Sequence[Signature], expected: Sequence[Signature]) -> bool:
    """Whether two ranks' calls at one place can be one; unknown values agree."""
    return len(calls) == len(expected) and all(
        own.op is other.op
        and all(a is None or b is None or a == b for a, b in zip(own[1:], other[1:], strict=True))
        for own, other in zip(calls, expected, strict=True)
    )


def words(calls: Sequence[Signature]) -> str:
    """Calls in words: ``AllReduce of 1024 Float32``."""
    return " + ".join(
        " ".join(
            str(word)
            for word in (
                call.op.value,
                "" if call.size is None else f"of {call.size}",
                call.datatype,
            )
            if word
        )
        + ("" if call.root is None else f" with root {call.root}")
        for call in calls
    )


def byte_count(call: RecordedCall, count: int | None) -> int | None:
    """Bytes of a transfer; elements where the type is unknown."""
    if count is None:
        return call.size_bytes
    datatype = call.collective.datatype
    return count * (1 if datatype is None or datatype.itemsize is None else datatype.itemsize)


def amount(call: RecordedCall, count: int | None) -> str:
    """Elements of a transfer in words."""
    datatype = call.collective.datatype
    return f"{count} {'elements' if datatype is None else datatype.value}"


def rank_list(ranks: Sequence[int]) -> str:
    """Ranks in words, long rows of them cut."""
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
