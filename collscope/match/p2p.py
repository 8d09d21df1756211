"""Send and Recv rows: paired into transfers, transfers into patterns (pure).

The k-th Send from i to j on a communicator meets the k-th Recv on j from i: the library's own
rule. Which transfers were launched together is known from RCCL's `task`, from a CALL trace or
from an opCount that moves; else a new group begins where the datatype changes, a collective
intervenes, or a (direction, peer) comes again. Groups of several ranks that share a transfer are
one call when together they form a pattern: all-to-all, gather, scatter, shift.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import numpy as np

from collscope._align import align
from collscope.match.communicators import Communicator
from collscope.match.observations import Ints, Observations
from collscope.model import Datatype, Op, transfers_size_bytes
from collscope.model.limits import LIMIT


class Transfer(msgspec.Struct, frozen=True):
    """One message between two ranks of a communicator."""

    src_rank: int
    dst_rank: int
    count: int
    datatype: Datatype
    send_row: int | None
    recv_row: int | None

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the message."""
        item = self.datatype.itemsize
        return None if item is None else item * self.count


class PatternCall(msgspec.Struct, frozen=True):
    """Transfers that make one call."""

    op: Op
    shape: str  # alltoall, alltoallv, gather, scatter, shift, sendrecv
    count: int | None  # per peer where all are equal
    datatype: Datatype
    root: int | None
    size_bytes: int | None  # nccl-tests size S
    transfers: tuple[Transfer, ...]
    ranks_seen: int
    first_row: int
    together: int  # number of the group of transfers it was found in, within the communicator


def pair_transfers(
    comm: Communicator, rows_of: dict[int, list[int]], observed: Observations
) -> list[Transfer]:
    """Transfers of a communicator from its ranks' Send and Recv rows, in the order of sends.

    rows_of  per rank its Send and Recv rows in order
    """
    signatures, sig = observed.signatures, observed.columns["sig"]
    sends: dict[tuple[int, int], list[int]] = defaultdict(list)
    recvs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, rows in rows_of.items():
        for row, s in zip(rows, sig[rows].tolist(), strict=True):
            peer = signatures[s].root
            if signatures[s].op is Op.SEND:
                sends[rank, peer].append(row)
            else:
                recvs[peer, rank].append(row)
    pairs: list[Transfer] = []
    for src, dst in sends | recvs:
        for send, recv in _pair(sends[src, dst], recvs[src, dst], observed, comm):
            s = signatures[int(sig[send if send is not None else recv])]
            pairs.append(Transfer(src, dst, s.count, s.element, send, recv))
    return pairs


def _pair(
    sends: list[int], recvs: list[int], observed: Observations, comm: Communicator
) -> list[tuple[int | None, int | None]]:
    """Sends and Recvs of one ordered pair of ranks, in order; None for a half not logged."""
    keys = [_size_keys(rows, observed) for rows in (sends, recvs)]
    if np.array_equal(keys[0], keys[1]):
        return list(zip(sends, recvs, strict=True))
    matched = align(keys[0], keys[1]).tolist()
    pairs: list[tuple[int | None, int | None]] = [
        (sends[m] if m >= 0 else None, recv) for recv, m in zip(recvs, matched, strict=True)
    ]
    alone = set(range(len(sends))) - set(matched)
    return pairs + [(sends[m], None) for m in sorted(alone)]


def _size_keys(
    rows: list[int], observed: Observations
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """What a Send and its Recv have in common: count and datatype."""
    sigs = [observed.signatures[s] for s in observed.columns["sig"][rows].tolist()]
    return np.array([s.count << 6 | (s.datatype & 63) for s in sigs], dtype=np.uint64)


def split_groups(
    rows: list[int], between: list[int], observed: Observations, launch: Ints
) -> list[int]:
    """Group number of each Send or Recv row of one handle, counting from 0.

    between  per row, how many collective rows of the handle stand before it
    launch   per row of all, the number of its launch
    """
    columns = observed.columns
    sigs = [observed.signatures[s] for s in columns["sig"][rows].tolist()]
    tasks, launches = columns["task"][rows].tolist(), launch[rows].tolist()
    traced = columns["group"][rows].tolist()
    numbers: list[int] = []
    number = -1
    seen: set[tuple[Op, int]] = set()
    for k, s in enumerate(sigs):
        if k == 0:
            starts = True
        elif tasks[k] >= 0:
            starts = tasks[k] <= tasks[k - 1]
        elif traced[k] >= 0 or traced[k - 1] >= 0:
            starts = traced[k] != traced[k - 1]
        else:
            starts = (
                between[k] != between[k - 1]
                or launches[k] != launches[k - 1]
                or s.datatype != sigs[k - 1].datatype
                or (s.op, s.root) in seen
            )
        if starts:
            number, seen = number + 1, set()
        seen.add((s.op, s.root))
        numbers.append(number)
    return numbers


def join_groups(transfers: list[Transfer], group_of: dict[int, int]) -> list[list[Transfer]]:
    """Transfers whose rows share a group, directly or through others, kept together.

    group_of  the group of each row, numbered over all ranks of the communicator
    """
    parent = list(range(max(group_of.values(), default=-1) + 1))

    def find(g: int) -> int:
        while parent[g] != g:
            parent[g] = parent[parent[g]]
            g = parent[g]
        return g

    for t in transfers:
        if t.send_row is not None and t.recv_row is not None:
            parent[find(group_of[t.send_row])] = find(group_of[t.recv_row])
    joined: dict[int, list[Transfer]] = defaultdict(list)
    for t in transfers:
        row = t.send_row if t.send_row is not None else t.recv_row
        assert row is not None  # a transfer has at least one half
        joined[find(group_of[row])].append(t)
    return list(joined.values())


def recognise(group: list[Transfer], nranks: int | None, together: int) -> list[PatternCall]:
    """The call that a group of transfers makes, or one SendRecv per transfer if it makes none."""
    pattern = _pattern(group, nranks)
    if pattern is not None:
        return [_call(pattern[0], pattern[1], group, nranks, together, pattern[2])]
    return [_call(Op.SEND_RECV, "sendrecv", [t], nranks, together, None) for t in group]


def _pattern(group: list[Transfer], nranks: int | None) -> tuple[Op, str, int | None] | None:
    """Operation, shape and root of a group; None when it is no known pattern.

    One transfer is none: what a gather shows of a rank is a Send like those of a pipeline.
    """
    pairs = {(t.src_rank, t.dst_rank) for t in group}
    others = {(s, d) for s, d in pairs if s != d}
    if len(pairs) < len(group) or nranks is None or len(others) < 2:
        return None
    seen = {t.src_rank for t in group if t.send_row is not None}
    seen |= {t.dst_rank for t in group if t.recv_row is not None}
    shape = _shape(pairs, others, seen, nranks)
    if shape == "alltoall" and len({(t.count, t.datatype) for t in group}) > 1:
        shape = "alltoallv"
    return None if shape is None else (_OPS[shape], shape, _root(shape, others))


_OPS = {
    "gather": Op.GATHER,
    "scatter": Op.SCATTER,
    "shift": Op.SEND_RECV,
    "alltoall": Op.ALL_TO_ALL,
    "alltoallv": Op.ALL_TO_ALLV,
}


def _root(shape: str, others: set[tuple[int, int]]) -> int | None:
    src, dst = next(iter(others))
    return {"gather": dst, "scatter": src}.get(shape)


def _shape(
    pairs: set[tuple[int, int]], others: set[tuple[int, int]], seen: set[int], nranks: int
) -> str | None:
    """Shape of distinct transfers; only those of the ranks `seen` could be logged."""
    origins, targets = {s for s, _ in others}, {d for _, d in others}
    everyone = seen | origins | targets
    if min(everyone) < 0 or max(everyone) >= nranks:
        return None
    # Sets of all pairs would do as well, but their number is the square of the ranks'.
    unseen = nranks - len(seen)
    shape: str | None = None
    if nranks > 2 and len(targets) == 1 and _all_with(targets, origins, seen, nranks):
        shape = "gather"
    elif nranks > 2 and len(origins) == 1 and _all_with(origins, targets, seen, nranks):
        shape = "scatter"
    elif _is_shift(others, pairs, seen, nranks):
        shape = "shift"
    elif len(others) == nranks * (nranks - 1) - unseen * (unseen - 1):
        shape = "alltoall"
    elif nranks > 2 and len(others) > nranks and len(origins | targets) == nranks:
        shape = "alltoallv"  # peers with nothing to exchange are left out of an uneven one
    return shape


def _all_with(root: set[int], peers: set[int], seen: set[int], nranks: int) -> bool:
    """The one root has a transfer with every other rank, as far as those could be logged."""
    return len(peers) == nranks - 1 if root <= seen else peers == seen


def _is_shift(
    others: set[tuple[int, int]], pairs: set[tuple[int, int]], seen: set[int], nranks: int
) -> bool:
    """Every rank seen sends to one and receives from one, at the same distance around the ring."""
    distances = {(d - s) % nranks for s, d in others}
    sends = Counter(s for s, _ in others)
    receives = Counter(d for _, d in others)
    regular = all(sends[r] == 1 and receives[r] == 1 for r in seen)
    return others == pairs and len(distances) == 1 and len(seen) > 1 and regular


def _call(
    op: Op, shape: str, group: list[Transfer], nranks: int | None, together: int, root: int | None
) -> PatternCall:
    counts = {t.count for t in group}
    rows = [r for t in group for r in (t.send_row, t.recv_row) if r is not None]
    logged = {t.src_rank for t in group if t.send_row is not None}
    logged |= {t.dst_rank for t in group if t.recv_row is not None}
    return PatternCall(
        op,
        shape,
        counts.pop() if len(counts) == 1 else None,
        group[0].datatype,
        root,
        _size(op, group, nranks),
        tuple(group),
        len(logged),
        min(rows),
        together,
    )


def _size(op: Op, group: list[Transfer], nranks: int | None) -> int | None:
    """Size S of nccl-tests; None where a transfer's bytes are not known, or S needs 64 bits."""
    sizes = [(t.src_rank, t.dst_rank, t.size_bytes) for t in group]
    known = [(source, target, size) for source, target, size in sizes if size is not None]
    size = transfers_size_bytes(op, nranks, known)
    return size if len(known) == len(group) and size < LIMIT else None
