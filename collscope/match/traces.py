"""Collectives of all ranks joined into calls, tolerant of what a rank lacks (pure).

The k-th collective of a group on one rank is the k-th on the others. Where the ranks' sequences
differ they are matched by the source's own numbers, else by time (the ends of one call agree once
the clocks' difference is known), else by longest common subsequence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.match.align import interleave
from collscope.match.common_clock import link_clocks
from collscope.match.groups import Group, find_groups
from collscope.match.pairing import pair_by_time
from collscope.match.rows import UNKNOWN_LAUNCH, Rows, class_key, signatures
from collscope.match.tolerances import (
    END_SCATTER_NS,
    EXCHANGE_END_SCATTER_SHARE,
    MIN_EXCHANGE_SHARE,
    MIN_EXCHANGES,
    MIN_NUMBERED_SHARE,
)
from collscope.model import CollectiveClass, Op
from collscope.model.trace import Ints, TraceCollective


class Calls(msgspec.Struct, frozen=True):
    """Calls of all groups, and the rows that took part (sorted by call, then by trace)."""

    groups: tuple[Group, ...]
    classes: tuple[CollectiveClass, ...]
    group: npt.NDArray[np.int32]  # (calls,) into `groups`
    seq: Ints  # (calls,) place in the group
    class_: npt.NDArray[np.int32]  # (calls,) into `classes`
    expected: npt.NDArray[np.int32]  # (calls,) ranks that have a trace and should take part
    nranks: npt.NDArray[np.int32]  # (calls,) ranks that take part, traced or not; -1: not known
    mismatched: npt.NDArray[np.bool_]  # (calls,) the ranks disagree on operation or size
    p2p: npt.NDArray[np.bool_]  # (calls,) a Send with its Recv
    offsets: Ints  # (calls + 1,) into row and trace
    row: Ints  # (parts,) row of `Rows`
    trace: npt.NDArray[np.int32]  # (parts,)
    realigned: tuple[bool, ...]  # per group: the ranks' sequences differed
    unpaired: Ints  # rows of Send, Recv or SendRecv without a partner
    # (call, trace) where the rank's trace begins behind the call, or ends before it
    outside: frozenset[tuple[int, int]] = frozenset()

    def __len__(self) -> int:
        """Calls."""
        return len(self.group)

    @property
    def seen(self) -> Ints:
        """Ranks that took part, shape (calls,)."""
        return np.diff(self.offsets)

    @property
    def call_of_part(self) -> Ints:
        """Call of each part, shape (parts,)."""
        return np.repeat(np.arange(len(self)), self.seen)

    def matrix(self, group: int) -> Ints:
        """Rows of one group, shape (calls of the group, members); -1 where a rank lacks it."""
        calls = np.flatnonzero((self.group == group) & ~self.p2p)
        of_call = np.full(len(self), -1, dtype=np.int64)
        of_call[calls] = np.arange(len(calls))
        out = np.full((len(calls), len(self.groups[group].members)), -1, dtype=np.int64)
        place = of_call[self.call_of_part]
        in_group = place >= 0
        column = np.searchsorted(self.groups[group].members, self.trace[in_group])
        out[place[in_group], column] = self.row[in_group]
        return out

    def missing(self) -> list[tuple[int, int]]:
        """(call, trace) of every rank whose trace covers a call that others have, and lacks it."""
        return [pair for pair in self.absent() if pair not in self.outside]

    def absent(self) -> list[tuple[int, int]]:
        """(call, trace) of every rank that has a trace and lacks a call others have."""
        found = []
        for call in np.flatnonzero((self.seen < self.expected) & ~self.p2p).tolist():
            there = set(self.trace[self.offsets[call] : self.offsets[call + 1]].tolist())
            members = self.groups[self.group[call]].members
            found += [(call, t) for t in members if t not in there]
        return found


def match_calls(rows: Rows) -> Calls:
    """Calls of all ranks' collectives; nothing that a rank lacks or has too much stops it."""
    linked = link_clocks(rows)
    rows = linked.rows
    groups, sig = find_groups(linked), signatures(rows)
    point = np.array([e.op.point_to_point for e in rows.entries] + [False])
    unclear = np.array([e.op is Op.SEND_RECV for e in rows.entries] + [False])
    builder = _Builder(rows, sig)
    realigned = []
    for number, group in enumerate(groups):
        sends = [r[point[rows.entry[r]]] for r in group.rows]
        plain = [r[~point[rows.entry[r]]] for r in group.rows]
        if group.size != 2 and not _exchanges(rows, [r[unclear[rows.entry[r]]] for r in plain]):
            # A SendRecv kernel of a larger group does not say with whom.
            builder.unpaired += [r[unclear[rows.entry[r]]] for r in plain]
            plain = [r[~unclear[rows.entry[r]]] for r in plain]
        matrix, changed = align_members(rows, sig, plain)
        realigned.append(changed)
        builder.add(number, group, matrix)
        if any(len(s) for s in sends):
            builder.add_pairs(number, group, sends)
    calls = builder.finish(tuple(groups), tuple(realigned))
    return replace(calls, outside=frozenset(_outside(rows, calls)))


def _exchanges(rows: Rows, members: list[Ints]) -> bool:
    """Whether SendRecv kernels are exchanges of all ranks: on one clock, they end together."""
    if len(members) < 2 or any(len(m) < MIN_EXCHANGES for m in members):
        return False
    sig = np.zeros(len(rows.entries) + 1, dtype=np.int64)
    matrix, _ = align_members(rows, sig, members)
    complete = matrix[(matrix >= 0).all(axis=1)]
    if len(complete) < MIN_EXCHANGE_SHARE * max(len(m) for m in members):
        return False
    lasts = (rows.end[complete] - rows.start[complete]).min(axis=1)
    at_once = rows.start[complete].max(axis=1) < rows.end[complete].min(axis=1)
    scatter = np.maximum(END_SCATTER_NS, EXCHANGE_END_SCATTER_SHARE * lasts)
    together = at_once & (np.ptp(rows.end[complete], axis=1) <= scatter)
    return bool(together.mean() >= MIN_EXCHANGE_SHARE)


def _outside(rows: Rows, calls: Calls) -> Iterator[tuple[int, int]]:
    """(call, trace) where the rank's trace begins behind the call, or ends before it.

    Only calls before the rank's first on the group, and behind its last, can be outside. The rank
    would have launched, begun or left one when another did, by the differences that the two show in
    the calls they have in common. A profiler records what is launched while it runs, and most of
    what runs when it begins.
    """
    absent: dict[tuple[int, int], list[int]] = defaultdict(list)
    for call, trace in calls.absent():
        absent[int(calls.group[call]), trace].append(call)
    for (group, trace), lacked in absent.items():
        matrix = calls.matrix(group)
        numbers = np.flatnonzero((calls.group == group) & ~calls.p2p)
        column = calls.groups[group].members.index(trace)
        own = np.flatnonzero(matrix[:, column] >= 0)
        if not len(own):
            continue
        own_rows = rows.of(trace)
        ran = int(rows.start[own_rows].min()), int(rows.end[own_rows].max())
        stamps = [(rows.start, ran), (rows.end, ran)]
        launches = rows.launch[own_rows][rows.launch[own_rows] != UNKNOWN_LAUNCH]
        if len(launches):
            stamps.append((rows.launch, (int(launches.min()), int(launches.max()))))
        places = np.searchsorted(numbers, lacked)
        for place, call in zip(places.tolist(), lacked, strict=True):
            if own[0] < place < own[-1]:
                continue
            other = int(np.argmax(matrix[place] >= 0))
            common = own[matrix[own, other] >= 0]
            pairs = matrix[common, column], matrix[common, other], int(matrix[place, other])
            early = place < own[0]
            if any(_beyond(times, pairs, window, early=early) for times, window in stamps):
                yield call, trace


def _beyond(
    times: Ints, pairs: tuple[Ints, Ints, int], window: tuple[int, int], *, early: bool
) -> bool:
    """Whether a rank's time of a call that it lacks lies before its window, or behind it.

    pairs   rows of the calls that the rank and another have in common, of either, and the other's
            row of the call
    """
    own, others, there = pairs
    known = (times[own] != UNKNOWN_LAUNCH) & (times[others] != UNKNOWN_LAUNCH)
    if not known.any() or times[there] == UNKNOWN_LAUNCH:
        return False
    ahead = times[own[known]] - times[others[known]]
    if early:
        return bool(times[there] + ahead.min() <= window[0])
    return bool(times[there] + ahead.max() >= window[1])


def align_members(rows: Rows, sig: Ints, members: list[Ints]) -> tuple[Ints, bool]:
    """Calls of a group as (calls, members) rows, -1 where absent; whether sequences differed.

    members  per member its rows in the order of start
    """
    if not any(len(m) for m in members):
        return np.empty((0, len(members)), dtype=np.int64), False
    keys = [sig[rows.entry[m]] for m in members]
    equal = all(np.array_equal(keys[0], k) for k in keys[1:])
    by_number = _by_number(rows, members, keys)
    if by_number is not None:
        return by_number, not equal or len(by_number) > len(members[0])
    if (equal or _one_to_one(rows, keys, members)) and not _shifted(rows, members):
        return np.stack(members, axis=1), not equal
    return _by_time(rows, keys, members), True


def _numbered(seq: Ints) -> Ints | None:
    """The source's numbers of a rank's calls; None where they are missing.

    The first calls may have none: kernels launched before the profiler began. They are counted
    back from the first number where the numbers behind it have no gap.
    """
    known = np.flatnonzero(seq >= 0)
    if not len(seq):
        return seq
    if not len(known) or (seq[known[0] :] < 0).any():
        return None
    lead = int(known[0])
    if lead and (np.diff(seq[lead:]) != 1).any():
        return None
    return np.concatenate([seq[lead] - np.arange(lead, 0, -1), seq[lead:]])


def _by_number(rows: Rows, members: list[Ints], keys: list[Ints]) -> Ints | None:
    """Members joined by the source's numbers; None where these are missing or prove nothing."""
    numbers = [n for m in members if (n := _numbered(rows.seq[m])) is not None]
    if len(numbers) < len(members) or any((np.diff(n) <= 0).any() for n in numbers):
        return None
    known = np.unique(np.concatenate(numbers))
    matrix = np.full((len(known), len(members)), -1, dtype=np.int64)
    key = np.full(matrix.shape, -1, dtype=np.int64)
    for m, n in enumerate(numbers):
        place = np.searchsorted(known, n)
        matrix[place, m], key[place, m] = members[m], keys[m]
    shared = (matrix >= 0).sum(axis=1) > 1
    agree = ((key == key.max(axis=1, keepdims=True)) | (matrix < 0)).all(axis=1)
    enough = len(members) == 1 or shared.sum() >= MIN_NUMBERED_SHARE * min(len(m) for m in members)
    return matrix if enough and agree[shared].sum() >= MIN_NUMBERED_SHARE * shared.sum() else None


def _one_to_one(rows: Rows, keys: list[Ints], members: list[Ints]) -> bool:
    """Sequences of the same operations in which one rank's kind of call is always one of another's.

    The ranks made the same calls, and do not record them alike: with another datatype, say.
    """
    if len({len(m) for m in members}) > 1:
        return False
    number = {op: k for k, op in enumerate(Op)}
    ops = np.array([number[e.op] for e in rows.entries])
    return all(
        np.array_equal(ops[rows.entry[m]], ops[rows.entry[members[0]]])
        and len({*zip(keys[0].tolist(), key.tolist(), strict=True)})
        == len(np.unique(keys[0]))
        == len(np.unique(key))
        for m, key in zip(members[1:], keys[1:], strict=True)
    )


def _shifted(rows: Rows, members: list[Ints]) -> bool:
    """Sequences of one length whose ends differ by far more than calls last: not the same."""
    head = members[0]
    shortest = np.min([rows.end[m] - rows.start[m] for m in members], axis=0)
    bound = max(END_SCATTER_NS, float(np.median(shortest)))
    for m in members[1:]:
        difference = rows.end[m] - rows.end[head]
        if np.median(np.abs(difference - np.median(difference))) > bound:
            return True
    return False


def _by_time(rows: Rows, keys: list[Ints], members: list[Ints]) -> Ints:
    """Members merged into the longest, one after the other."""
    order = sorted(range(len(members)), key=lambda m: -len(members[m]))
    head = order[0]
    key, start, end = keys[head], rows.start[members[head]], rows.end[members[head]]
    placed = {head: np.arange(len(key))}
    for m in order[1:]:
        own_rows = members[m]
        found = pair_by_time((key, start, end), (keys[m], rows.start[own_rows], rows.end[own_rows]))
        moved, place = interleave(len(key), found.partner)
        placed = {k: moved[p] for k, p in placed.items()} | {m: place}
        size = len(key) + int((found.partner < 0).sum())
        merged = []
        for reference, own in (
            (key, keys[m]), (start, rows.start[own_rows] - found.offset),
            (end, rows.end[own_rows] - found.offset),
        ):  # fmt: skip
            column = np.empty(size, dtype=np.int64)
            column[place] = own
            column[moved] = reference
            merged.append(column)
        key, start, end = merged
    matrix = np.full((len(key), len(members)), -1, dtype=np.int64)
    for m, place in placed.items():
        matrix[place, m] = members[m]
    return matrix


_COLUMNS: dict[str, type[np.generic]] = {
    "group": np.int32, "seq": np.int64, "class": np.int32, "expected": np.int32,
    "nranks": np.int32, "mismatched": np.bool_, "p2p": np.bool_, "seen": np.int64,
    "row": np.int64, "trace": np.int32,
}  # fmt: skip


class _Builder:
    """Calls under construction."""

    def __init__(self, rows: Rows, sig: Ints) -> None:
        self.rows, self.sig = rows, sig
        # Entries known only from a kernel's name.
        self.vague = np.array([_vague(e) for e in rows.entries] + [False])
        self.class_of: dict[CollectiveClass, int] = {}
        self.parts: dict[str, list[npt.NDArray[Any]]] = defaultdict(list)
        self.unpaired: list[Ints] = []

    def add(self, number: int, group: Group, matrix: Ints) -> None:
        """Calls of one group from its matrix of rows."""
        there = matrix >= 0
        # A rank with more than its kernel's name speaks for the call.
        detailed = there & ~self.vague[self.rows.entry[matrix]]
        first = matrix[
            np.arange(len(matrix)),
            np.where(detailed.any(axis=1)[:, None], detailed, there).argmax(axis=1),
        ]
        self._append(number, group, matrix, there, first, p2p=False)
        self._keep("trace", np.array(group.members)[np.nonzero(there)[1]])

    def add_pairs(self, number: int, group: Group, sends: list[Ints]) -> None:
        """Sends with the Recvs they meet: the k-th of one rank to another with its k-th."""
        rows = self.rows
        directed: dict[tuple[int, int, bool], list[Ints]] = defaultdict(list)
        for m, own_rows in enumerate(sends):
            entries = rows.entry[own_rows]
            for e in np.unique(entries).tolist():
                peer = _member(rows, group, rows.entries[e].peer)
                sending = rows.entries[e].op is Op.SEND
                pair = (m, peer) if sending else (peer, m)
                directed[(*pair, sending)].append(own_rows[entries == e])
        pairs = []
        for src, dst, _ in sorted({(s, d, True) for s, d, _ in directed}):
            sent = np.sort(np.concatenate([*directed[src, dst, True], _EMPTY]))
            received = np.sort(np.concatenate([*directed[src, dst, False], _EMPTY]))
            pairs.append(self._pair(sent, received))
        matrix = np.concatenate(pairs)
        complete = (matrix >= 0).all(axis=1)
        self.unpaired.append(matrix[~complete].max(axis=1, initial=-1))
        matrix = matrix[complete]
        matrix = matrix[np.argsort(rows.start[matrix[:, 0]], kind="stable")]
        self._append(number, group, matrix, matrix >= 0, matrix[:, 0], p2p=True)
        self._keep("trace", rows.trace[matrix.ravel()])

    def _pair(self, sends: Ints, recvs: Ints) -> Ints:
        """(transfers, 2) rows of Send and Recv, -1 for the half that is missing."""
        rows = self.rows
        if len(sends) == len(recvs):
            return np.stack([sends, recvs], axis=1)
        count = np.array(
            [e.in_count or e.out_count or e.count_bytes or 0 for e in rows.entries] + [0]
        )
        both = [(count[rows.entry[r]], rows.start[r], rows.end[r]) for r in (sends, recvs)]
        partner = pair_by_time(*both).partner if len(sends) and len(recvs) else recvs * 0 - 1
        alone = np.setdiff1d(np.arange(len(sends)), partner)
        met = np.where(partner >= 0, np.append(sends, -1)[partner], -1)
        return np.concatenate(
            [
                np.stack([met, recvs], axis=1),
                np.stack([sends[alone], np.full(len(alone), -1)], axis=1),
            ]
        )

    def _append(
        self, number: int, group: Group, matrix: Ints, there: npt.NDArray[np.bool_], first: Ints,
        *, p2p: bool,
    ) -> None:  # fmt: skip
        rows, n = self.rows, len(matrix)
        nranks = 2 if p2p else ranks_of(rows, group)
        size = group.size or (len(group.members) if nranks > 0 else None)
        entry = rows.entry[first]
        of_entry = np.zeros(len(rows.entries), dtype=np.int64)
        for e in np.unique(entry).tolist():
            key = class_key(rows.entries[e], size)
            of_entry[e] = self.class_of.setdefault(key, len(self.class_of))
        compared = there & (~self.vague[rows.entry[matrix]] | self.vague[entry][:, None])
        sig = np.where(compared, self.sig[rows.entry[matrix]], self.sig[entry][:, None])
        expected = 2 if p2p else len(group.members)
        differ = np.zeros(n, dtype=bool) if p2p else (sig != self.sig[entry][:, None]).any(axis=1)
        for column, values in (
            ("group", np.full(n, number, np.int32)), ("seq", np.arange(n)),
            ("class", of_entry[entry]), ("expected", np.full(n, expected, np.int32)),
            ("nranks", np.full(n, nranks, np.int32)),
            ("mismatched", differ), ("p2p", np.full(n, p2p)),
            ("seen", there.sum(axis=1)), ("row", matrix[there]),
        ):  # fmt: skip
            self._keep(column, values)

    def _keep(self, column: str, values: npt.NDArray[Any]) -> None:
        self.parts[column].append(values.astype(_COLUMNS[column], copy=False))

    def finish(self, groups: tuple[Group, ...], realigned: tuple[bool, ...]) -> Calls:
        """The calls of all groups added."""
        # Of the largest traces, one column at a time is held twice.
        part = {
            name: np.concatenate([*self.parts.pop(name, ()), np.empty(0, dtype=kind)])
            for name, kind in _COLUMNS.items()
        }
        unpaired = np.concatenate([*self.unpaired, _EMPTY])
        return Calls(
            groups,
            tuple(self.class_of),
            part["group"],
            part["seq"],
            part["class"],
            part["expected"],
            part["nranks"],
            part["mismatched"],
            part["p2p"],
            np.concatenate([[0], np.cumsum(part["seen"])]),
            part["row"],
            part["trace"],
            realigned,
            np.sort(unpaired[unpaired >= 0]),
        )


def ranks_of(rows: Rows, group: Group) -> int:
    """Ranks of a group; -1 where they are unknown: others have no trace, or may belong to it."""
    if group.doubtful:
        return -1
    if group.size is not None:
        return max(group.size, len(group.members))
    size = max(rows.world_size or 0, rows.least_size)
    return -1 if len(rows.ranks) < size else len(group.members)


def _vague(entry: TraceCollective) -> bool:
    known = (
        entry.group, entry.group_ranks, entry.datatype, entry.in_count, entry.out_count,
        entry.count_bytes,
    )  # fmt: skip
    return all(part is None for part in known)


_EMPTY = np.empty(0, dtype=np.int64)


def _member(rows: Rows, group: Group, peer: int | None) -> int:
    """Member of a group that a Send or Recv names by its rank in the group; -1: none."""
    if peer is None or peer < 0:
        return -1
    world = group.ranks[peer] if group.ranks and peer < len(group.ranks) else peer
    if world not in rows.ranks:
        return -1
    trace = rows.ranks.index(world)
    return group.members.index(trace) if trace in group.members else -1
