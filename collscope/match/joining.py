"""Calls that traces and recordings show, joined to the calls of logs (pure).

Where the run has logs of the same communicator there is no second set of calls: the calls of a
trace are joined to the logged ones by aligning both sequences, what is left over by class, and only
what no log holds is added.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope._align import align
from collscope.match.communicators import Communicator
from collscope.match.p2p import Transfer
from collscope.match.run import CALL_COLUMNS, CallClass, Deviation, Matched
from collscope.match.tolerances import MIN_MATCHED_SHARE, SIZE_TOLERANCE
from collscope.model import Diagnostic, Op, Severity
from collscope.model.trace import Ints

# Logs record a batch of Sends and Recvs as one call, traces each transfer: not compared.
_APART = Op.SEND_RECV
_BARRIER = Op.BARRIER
_HASH = re.compile(r"0x([0-9a-f]{1,16})")


class ExtraGroup(msgspec.Struct, frozen=True):
    """A process group and the calls on it, in order."""

    name: str | None
    ranks: tuple[int, ...] | None  # world ranks in the order of the group's ranks, where known
    size: int | None
    members: tuple[int, ...]  # world ranks that a trace or recording is of
    nnodes: int | None
    inferred: bool  # by equal sequences of collectives
    classes: tuple[CallClass, ...]  # per call
    seen: tuple[int, ...]  # ranks that show it, per call
    missing: tuple[tuple[int, int], ...] = ()  # (call, world rank) of members that lack a call
    transfers: Mapping[int, tuple[Transfer, ...]] = msgspec.field(default_factory=dict)  # by call
    description: str | None = None  # what the program calls it
    numbered: bool = False  # `members` are numbers in the group: world ranks are unknown
    # Per call the collectives of other groups that its first member launched since the one before;
    # empty where that is not known.
    between: tuple[int, ...] = ()


class Joined(msgspec.Struct):
    """Where the calls of each group went."""

    call: list[Ints]  # per group and call; -1: left out
    by_class: int = 0  # joined to a logged call of the class, not to the very call
    added: int = 0  # to communicators of logs
    unplaced: int = 0  # groups without sizes that fit a log at several places, or nowhere


def join_extra(matched: Matched, groups: Sequence[ExtraGroup], what: str) -> Joined:
    """Join the calls of `groups` to those of `matched`, which gets what it lacks.

    what  they come from, in words for diagnostics
    """
    there = {rank for group in groups if not group.numbered for rank in group.members}
    joiner = _Joiner(matched, there)
    calls = [joiner.place(group) for group in groups]
    joined = Joined(calls, joiner.by_class, joiner.added, joiner.unplaced)
    joiner.finish()
    for n, code, text in (
        (joined.by_class, "joined_by_class",
         f"calls of {what} joined to a logged call of their class, not to the exact call: they are"
         " of another run, or a log is incomplete"),
        (joined.added, "call_not_logged", f"calls of {what} that are in no log: added"),
        (joined.unplaced, "trace_not_placed",
         f"groups of {what} without sizes that do not match the log completely, or match it at "
         "places with different sizes: kept separate"),
    ):  # fmt: skip
        if n:
            matched.diagnostics.append(Diagnostic(Severity.NOTICE, code, text, count=n))
    return joined


class _Joiner:
    """The matched run, its calls by communicator, and what is to be added to it."""

    def __init__(self, matched: Matched, there: set[int]) -> None:
        self.matched = matched
        self._there = there  # world ranks that a trace or recording is of
        self.by_class = self.added = self.unplaced = 0
        self._uncertain = False  # the group in hand fits a log, but not at one place
        self._used: set[int] = set()
        self._class_of = {key: k for k, key in enumerate(matched.classes)}
        self._base = len(matched.calls["seq"])
        # As narrow as they may be: a trace has up to millions of calls.
        self._new = {name: array("q" if name == "op_count" else "i") for name in CALL_COLUMNS}
        comm, seq = matched.calls["comm"], matched.calls["seq"]
        order = np.lexsort((seq, comm))
        cuts = np.searchsorted(comm[order], np.arange(len(matched.comms) + 1))
        self._calls_of = [order[a:b] for a, b in pairwise(cuts.tolist())]

    def place(self, group: ExtraGroup) -> Ints:
        """Call of each call of the group, in `Matched.calls` with the new ones behind."""
        best: tuple[int, int] | None = None
        self._uncertain = False
        partners = np.empty(0, dtype=np.int64)
        for c in self._candidates(group):
            found = self._align(group, c)
            n = int((found >= 0).sum())
            if n and (best is None or n > best[0]):
                best, partners = (n, c), found
        if best is None:
            self.unplaced += self._uncertain
            return self._add_group(group)
        self._used.add(best[1])
        if group.description is not None:
            comms = self.matched.comms
            comms[best[1]] = replace(comms[best[1]], name=group.description)
        self._learn_ranks(group, self.matched.comms[best[1]])
        return self._fill(group, best[1], partners)

    def _candidates(self, group: ExtraGroup) -> Iterator[int]:
        """Communicators of the same ranks that no other group was joined to."""
        size = len(group.ranks) if group.ranks else group.size
        for c, comm in enumerate(self.matched.comms[: len(self._calls_of)]):
            if c in self._used or comm.nranks is None or comm.nranks != (size or comm.nranks):
                continue
            world = {rank: self.matched.world_ranks[s] for rank, s in comm.members.items()}
            known = {rank: w for rank, w in world.items() if w is not None}
            own_hash = None if comm.comm_hash is None else _hash_of(group.name)
            if own_hash is not None:
                agrees = own_hash == comm.comm_hash
            elif group.numbered:
                agrees = True
            elif group.ranks is not None:
                agrees = all(group.ranks[rank] == w for rank, w in known.items())
            else:
                # Of the communicator's ranks those with a trace take part, and no others.
                world_ranks, members = set(known.values()), set(group.members)
                agrees = world_ranks & self._there <= members
                agrees &= len(known) < comm.nranks or members <= world_ranks
            if agrees:
                yield c

    def _learn_ranks(self, group: ExtraGroup, comm: Communicator) -> None:
        """World ranks of a communicator known only from a recorder without them."""
        if group.ranks is not None and comm.matched_by == "process group":
            for rank, member in comm.members.items():
                if self.matched.world_ranks[member] is None and rank < len(group.ranks):
                    self.matched.world_ranks[member] = group.ranks[rank]

    def _align(self, group: ExtraGroup, comm: int) -> Ints:
        """Call of the communicator that each call of the group is, -1 where none fits."""
        logged = self._calls_of[comm]
        keys = self.matched.calls["class"][logged]
        sized = np.array([c.count is not None or c.op is Op.ALL_TO_ALLV for c in group.classes])
        if sized.any() and not sized.all():
            # Kernels launched before a profiler began have no size: their neighbours place them.
            places = self._places([c for c, t in zip(group.classes, sized, strict=True) if t], keys)
            found = np.full(len(sized), -1, dtype=np.int64)
            found[sized] = places
            found = self._beside(group, found, keys)
        else:
            found = self._places(group.classes, keys)
            fitting = [] if sized.any() else self._places_between(group, comm, keys)
            if fitting:
                found = np.arange(fitting[-1], fitting[-1] + len(sized))
            if group.inferred and not sized.any() and not self._certain(found, keys, fitting):
                self._uncertain = True
                found[:] = -1
        result = np.full(len(found), -1, dtype=np.int64)
        result[found >= 0] = logged[found[found >= 0]]
        return result

    def _beside(self, group: ExtraGroup, found: Ints, keys: Ints) -> Ints:
        """Places, also of calls without size beside one that has a place, of their operation."""
        placed = np.flatnonzero(found >= 0)
        if not len(placed):
            return found
        result, used = found.copy(), set(found[placed].tolist())
        for k in np.flatnonzero(found < 0).tolist():
            near = int(placed[np.abs(placed - k).argmin()])
            place = int(found[near]) + k - near
            if not 0 <= place < len(keys) or place in used or group.classes[k].count is not None:
                continue
            if self.matched.classes[int(keys[place])].op is group.classes[k].op:
                result[k] = place
                used.add(place)
        return result

    def _places_between(self, group: ExtraGroup, comm: int, keys: Ints) -> list[int]:
        """Where the log has as many calls of other communicators between those of the group.

        A step that recurs has as many of each at every step: what stands between two calls of one
        communicator shows which calls of the step they are. None where nothing shows it.
        """
        own = np.array(group.between[1:], dtype=np.int64)
        if not len(own):
            return []
        calls, first = self.matched.calls["comm"][: self._base], group.members[0]
        theirs = [
            c
            for c, known in enumerate(self.matched.comms)
            if any(self.matched.world_ranks[member] == first for member in known.members.values())
        ]
        # Calls are in the order in which each process launched them.
        launched = np.flatnonzero(np.isin(calls, theirs))
        between = np.diff(np.searchsorted(launched, self._calls_of[comm])) - 1
        ops: dict[Op, int] = {}
        op = np.array([ops.setdefault(c.op, len(ops)) for c in self.matched.classes])[keys]
        group_ops = np.array([ops.setdefault(c.op, len(ops)) for c in group.classes])
        return [
            at
            for at in _fits(op, group_ops)
            if np.mean(between[at : at + len(own)] == own) >= MIN_MATCHED_SHARE
        ]

    def _certain(self, found: Ints, keys: Ints, places: Sequence[int]) -> bool:
        """Whether calls without sizes have one place in the log, or places of the same sizes.

        A trace of CUDA activities alone has operations only. Its calls follow each other in the
        log without a gap; where they fit at several places, as at every step, nine in ten of the
        sizes must be those of the place chosen.

        places  where it fits, if less than everywhere that the operations do
        """
        n = len(found)
        if (found < 0).any() or (np.diff(found) != 1).any():
            return False
        ops: dict[Op, int] = {}
        op = np.array([ops.setdefault(c.op, len(ops)) for c in self.matched.classes])[keys]
        size = np.array([float(c.size_bytes or 0) for c in self.matched.classes])[keys]
        here = size[found]
        alike = [
            np.abs(size[at : at + n] - here) <= SIZE_TOLERANCE * np.maximum(size[at : at + n], here)
            for at in places or _fits(op, op[found])
        ]
        return bool(np.mean(alike) >= MIN_MATCHED_SHARE)

    def _places(self, classes: Sequence[CallClass], keys: Ints) -> Ints:
        """Place in `keys` of each call of the group, -1 where none fits."""
        with_count = all(c.count is not None for c in classes if c.op is not Op.ALL_TO_ALLV)
        with_type = all(c.datatype is not None for c in classes)
        barriers = with_count and _has_barriers(classes)
        numbers: dict[Hashable, int] = {}

        def number(key: CallClass) -> int:
            parts: Hashable = (
                _BARRIER
                if barriers and _may_be_barrier(key)
                else (key.op, key.datatype if with_type else 0, key.count if with_count else 0)
            )
            return numbers.setdefault(parts, len(numbers))

        of_class = np.array([number(key) for key in self.matched.classes] or [0])
        number_of = {key: number(key) for key in set(classes)}
        sequence = np.array([number_of[key] for key in classes], dtype=np.uint64)
        logged = of_class[keys].astype(np.uint64)
        # A longest common subsequence may have gaps where there is a place without any.
        fits = _fits(logged, sequence)
        if fits:
            return np.arange(fits[-1], fits[-1] + len(sequence))
        found: Ints = align(logged, sequence).astype(np.int64)
        return found

    def _fill(self, group: ExtraGroup, comm: int, partners: Ints) -> Ints:
        """Partners for the calls that the alignment left over: of their class, or new ones."""
        if (partners >= 0).all():
            return partners
        barriers = _has_barriers(group.classes)
        free: dict[Hashable, list[int]] = defaultdict(list)
        taken = set(partners.tolist())
        class_of = self.matched.calls["class"]
        for call in self._calls_of[comm].tolist()[::-1]:
            if call not in taken:
                free[_kind(self.matched.classes[int(class_of[call])], barriers)].append(call)
        known = {
            _kind(key, barriers): key
            for key in (self.matched.classes[k] for k in set(class_of[self._calls_of[comm]]))
        }
        result = partners.copy()
        for k in np.flatnonzero(partners < 0).tolist():
            key = group.classes[k]
            kind = _kind(key, barriers)
            if free[kind]:
                result[k] = free[kind].pop()
                self.by_class += 1
            elif key.op is not _APART:
                seq = len(self._calls_of[comm]) + self.added
                result[k] = self._add(comm, seq, known.get(kind, key), group.seen[k])
                self._add_transfers(group, k, int(result[k]))
                self.added += 1
        return result

    def _add_group(self, group: ExtraGroup) -> Ints:
        """A communicator of its own."""
        matched = self.matched
        comm = len(matched.comms)
        size = group.size or (len(group.ranks) if group.ranks else None)
        places = group.ranks or sorted(group.members)
        rank_of = {w: w if group.numbered else r for r, w in enumerate(places)}
        members = {}
        for world in sorted(group.members, key=lambda w: rank_of.get(w, w)):
            if world in rank_of:
                members[rank_of[world]] = len(matched.world_ranks)
                matched.world_ranks.append(None if group.numbered else world)
        how = "inferred" if group.inferred else "process group"
        matched.comms.append(Communicator(size, members, how, group.nnodes, name=group.description))
        first, n = self._base + len(self._new["seq"]), len(group.classes)
        # A trace has up to millions of calls of few classes.
        class_of = {
            key: self._class(replace(key, nnodes=group.nnodes))
            for key in dict.fromkeys(group.classes)
        }
        self._extend(
            {"comm": [comm] * n, "seq": range(n), "class": [class_of[key] for key in group.classes],
             "ranks_seen": group.seen},
            n,
        )  # fmt: skip
        for seq in group.transfers:
            self._add_transfers(group, seq, first + seq)
        matched.deviations += [
            Deviation(first + call, rank_of[world], "missing", None, None)
            for call, world in group.missing
            if world in rank_of
        ]
        return np.arange(first, first + len(group.classes))

    def _add(self, comm: int, seq: int, key: CallClass, seen: int) -> int:
        row = {"comm": [comm], "seq": [seq], "class": [self._class(key)], "ranks_seen": [seen]}
        self._extend(row, 1)
        return self._base + len(self._new["seq"]) - 1

    def _class(self, key: CallClass) -> int:
        return self._class_of.setdefault(key, len(self._class_of))

    def _extend(self, known: Mapping[str, Sequence[int]], n: int) -> None:
        """Add `n` calls; what neither traces nor recordings give is -1."""
        for name, values in self._new.items():
            values.extend(known[name] if name in known else array(values.typecode, [-1]) * n)

    def _add_transfers(self, group: ExtraGroup, number: int, call: int) -> None:
        self.matched.transfers += [(call, t) for t in group.transfers.get(number, ())]

    def finish(self) -> None:
        """Put the new calls and classes into the matched run."""
        self.matched.classes = list(self._class_of)
        for name, values in self.matched.calls.items():  # one column at a time is held twice
            new = np.array(self._new.pop(name))
            self.matched.calls[name] = np.concatenate([values.astype(new.dtype), new])


def _fits(sequence: npt.NDArray[Any], part: npt.NDArray[Any]) -> list[int]:
    """Where `part` is in `sequence` without a gap, rising.

    >>> _fits(np.array([1, 2, 1, 2, 1]), np.array([1, 2]))
    [0, 2]
    """
    n = len(part)
    if not 0 < n <= len(sequence):
        return []
    last = len(sequence) - n + 1
    # Both ends first: they rule out most places.
    likely = np.flatnonzero((sequence[:last] == part[0]) & (sequence[n - 1 :] == part[-1]))
    return [at for at in likely.tolist() if np.array_equal(sequence[at : at + n], part)]


def _hash_of(name: str | None) -> int | None:
    """Hash of a communicator that recorders name by it: ``0xee443ed6adab8120``."""
    match = None if name is None else _HASH.fullmatch(name)
    return None if match is None else int(match[1], 16)


def _kind(key: CallClass, barriers: bool) -> Hashable:
    """What classes of a trace and of a log have in common.

    barriers  the group has some
    """
    if barriers and _may_be_barrier(key):
        return _BARRIER
    return (key.op, key.datatype, key.count)


def _has_barriers(classes: Sequence[CallClass]) -> bool:
    return any(key.op is _BARRIER for key in set(classes))


def _may_be_barrier(key: CallClass) -> bool:
    """A barrier, or what PyTorch makes of it and logs show: an AllReduce of one element."""
    return key.op is _BARRIER or (key.op is Op.ALL_REDUCE and key.count == 1)


def put_in_order(matched: Matched, joined: Joined, when: Sequence[Ints]) -> None:
    """Number the calls by time; for a run whose calls are all of traces or recordings.

    when  per group and call its time
    """
    time = np.zeros(len(matched.calls["seq"]), dtype=np.int64)
    for calls, times in zip(joined.call, when, strict=True):
        time[calls] = times
    order = np.lexsort((matched.calls["seq"], matched.calls["comm"], time))
    new = np.empty(len(order), dtype=np.int64)
    new[order] = np.arange(len(order))
    for name, values in matched.calls.items():  # one column at a time is held twice
        matched.calls[name] = values[order]
    matched.deviations = [d._replace(call=int(new[d.call])) for d in matched.deviations]
    moved = [(int(new[call]), t) for call, t in matched.transfers]
    matched.transfers = sorted(moved, key=lambda pair: pair[0])
    joined.call = [new[calls] for calls in joined.call]
