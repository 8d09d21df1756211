"""Recorded Sends and Recvs as calls and transfers, by the same rules as those of logs (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.match import p2p
from collscope.match.communicators import Communicator
from collscope.match.observations import COLUMNS, Observations, Signature
from collscope.match.run import CallClass
from collscope.model import Datatype, Op
from collscope.model.trace import RecordedCall, RecordedCalls

_MOST = 1 << 57  # elements, as `p2p` packs them
_LIMIT = 1 << 63  # bytes
_NO_DATATYPE = -1  # code of no datatype


class Member(NamedTuple):
    """One rank's calls in one group, in their order."""

    recording: RecordedCalls
    calls: list[RecordedCall]
    number: int  # of the recording


class RecordedPattern(msgspec.Struct, frozen=True):
    """Transfers that make one call, and where its first one stands."""

    key: CallClass
    transfers: tuple[p2p.Transfer, ...]  # of bytes (Uint8) where no datatype is known
    ranks_seen: int
    member: int
    number: int  # of its first row among the member's calls
    start_ns: int  # 0: not known


class _Row(NamedTuple):
    """One rank's half of a transfer."""

    member: int
    number: int
    call: RecordedCall
    signature: Signature
    in_elements: bool  # count and datatype are known, not bytes alone


def is_half(call: RecordedCall) -> bool:
    """True for a Send or Recv."""
    return call.collective.op.point_to_point


def recorded_patterns(members: Sequence[Member], size: int) -> list[RecordedPattern]:
    """Calls that the Sends and Recvs of a group make, in no certain order.

    size  ranks of the group
    """
    rows = [row for m, member in enumerate(members) for row in _rows(m, member)]
    if not rows:
        return []
    observed = _observations(rows)
    rows_of: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        rank = row.call.group_rank
        assert rank is not None  # `_rows` takes no other
        rows_of.setdefault(rank, []).append(place)
    group_of = _launch_groups(rows, rows_of, members, observed)
    if any(members[row.member].recording.coverage == "tail" for row in rows):
        # Ring buffers begin anywhere and end together: what is left over is of the beginning.
        rows_of = {rank: own[::-1] for rank, own in rows_of.items()}
    comm = Communicator(size, dict.fromkeys(rows_of, 0), "process group")
    transfers = p2p.pair_transfers(comm, rows_of, observed)
    groups = p2p.join_groups(transfers, group_of)
    return [
        _pattern(call, rows, size)
        for g, group in enumerate(groups)
        # A single half may be anything's: only with others it makes a pattern.
        for call in p2p.recognise(group, size if len(group) > 1 else None, g)
    ]


def _rows(m: int, member: Member) -> Iterable[_Row]:
    for number, call in enumerate(member.calls):
        peer = call.collective.peer
        if is_half(call) and peer is not None and call.group_rank is not None:
            count, code, in_elements = _amount(call)
            signature = Signature(call.collective.op, "native", count, code, 0, peer, 0)
            yield _Row(m, number, call, signature, in_elements)


def _amount(call: RecordedCall) -> tuple[int, int, bool]:
    """Elements and datatype's code; bytes where a recorder has only those."""
    c = call.collective
    own, other = (c.in_count, c.out_count) if c.op is Op.SEND else (c.out_count, c.in_count)
    count = other if own is None else own
    if count is not None and count < _MOST:
        return count, _NO_DATATYPE if c.datatype is None else c.datatype.code, True
    if call.size_bytes is not None and call.size_bytes < _MOST:
        return call.size_bytes, Datatype.UINT8.code, False
    return 0, _NO_DATATYPE, False


def _observations(rows: Sequence[_Row]) -> Observations:
    """What the matching of logs sees of them; no handle and no line takes part."""
    signatures: dict[Signature, int] = {}
    columns = {name: np.full(len(rows), -1, dtype=np.int64) for name in COLUMNS}
    columns["sig"] = np.array([signatures.setdefault(r.signature, len(signatures)) for r in rows])
    together = [-1 if r.call.together is None else r.call.together for r in rows]
    columns["group"] = np.array(together, dtype=np.int64)
    return Observations([], list(signatures), columns, {}, [])


def _launch_groups(
    rows: Sequence[_Row],
    rows_of: dict[int, list[int]],
    members: Sequence[Member],
    observed: Observations,
) -> dict[int, int]:
    """Group of launches of each row, numbered over all ranks."""
    collectives = [
        np.cumsum([0, *(not is_half(call) for call in member.calls)]).tolist() for member in members
    ]
    group_of: dict[int, int] = {}
    offset = 0
    for own in rows_of.values():
        between = [collectives[rows[r].member][rows[r].number] for r in own]
        numbers = p2p.split_groups(own, between, observed, observed.columns["op_count"])
        group_of.update((row, offset + g) for row, g in zip(own, numbers, strict=True))
        offset += max(numbers) + 1
    return group_of


def _pattern(call: p2p.PatternCall, rows: Sequence[_Row], size: int) -> RecordedPattern:
    own = [r for t in call.transfers for r in (t.send_row, t.recv_row) if r is not None]
    first = rows[call.first_row]
    in_elements = all(rows[r].in_elements for r in own)
    known = in_elements and call.datatype is not Datatype.UNKNOWN
    key = CallClass(
        op=call.op,
        datatype=call.datatype if known else None,
        count=call.count if in_elements else None,
        root=call.root,
        size_bytes=None if (call.size_bytes or 0) >= _LIMIT else call.size_bytes,
        nranks=size,
        shape=call.shape,
    )
    # Without any size there is nothing that a transfer could say.
    sized = any(rows[r].in_elements or rows[r].call.size_bytes is not None for r in own)
    starts = [s for r in own if (s := rows[r].call.start_ns) is not None]
    return RecordedPattern(
        key if sized else replace(key, size_bytes=None),
        call.transfers if sized else (),
        call.ranks_seen,
        first.member,
        first.number,
        min(starts, default=0),
    )
