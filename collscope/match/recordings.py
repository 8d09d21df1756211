"""Process groups and communicators of recordings, with their calls in order (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from collscope.match.joining import ExtraGroup
from collscope.match.p2p import Transfer
from collscope.match.recorded_transfers import (
    Member,
    RecordedPattern,
    is_half,
    recorded_patterns,
)
from collscope.match.rows import class_key
from collscope.match.run import CallClass
from collscope.match.tolerances import MAX_RANKS
from collscope.match.trace_calls import GroupCalls, call_class
from collscope.model import Op
from collscope.model.trace import RecordedCall, RecordedCalls

_NOT_RUN = "captured"  # into a graph; its launches are recorded again
_Ranks = tuple[int, ...] | None


class _RecordedPlace(NamedTuple):
    """Where the ranks of a group meet."""

    seq: int
    op: Op | None  # where each operation is counted by itself
    number: int  # of those that a rank called under this number: a coalesced group has one


class RecordedPart(NamedTuple):
    """What one rank recorded of a call."""

    recording: int  # its place among those given
    rank: int | None  # world rank; its number in the group where only that is known
    call: RecordedCall


class RecordedGroup(GroupCalls, frozen=True):
    """The calls of one group, and what each rank recorded of them."""

    parts: tuple[tuple[RecordedPart, ...], ...]  # per call; of transfers none


class _Entry(NamedTuple):
    """One call of a group on its way into the order."""

    key: CallClass
    seen: int
    start_ns: int  # 0: not known
    transfers: tuple[Transfer, ...] = ()
    parts: tuple[RecordedPart, ...] = ()


def recorded_groups(recordings: Iterable[RecordedCalls]) -> list[RecordedGroup]:
    """Groups of recordings: collectives by the recorders' own numbers, transfers in patterns."""
    groups: dict[tuple[str, _Ranks], list[Member]] = defaultdict(list)
    for number, recording in enumerate(recordings):
        # One process may drive several ranks.
        by_rank: dict[tuple[str, _Ranks, int | None], list[RecordedCall]] = defaultdict(list)
        for call in recording.calls:
            c = call.collective
            if c.group is not None and call.state != _NOT_RUN:
                by_rank[c.group, c.group_ranks, call.group_rank].append(call)
        for (name, ranks, _), calls in by_rank.items():
            groups[name, ranks].append(Member(recording, calls, number))
    ordered = sorted(
        groups.items(), key=lambda item: (-(_size(item[1]) or _least(item[1])), item[0][0])
    )
    found = [_recorded(name, ranks, members) for (name, ranks), members in ordered]
    return [group for group in found if group.group.classes]


def _size(members: Sequence[Member]) -> int | None:
    """Ranks of a group; None where no recording has them: those that recorded may be a part."""
    entry = members[0].calls[0].collective
    return entry.group_size or len(entry.group_ranks or ()) or None


def _least(members: Sequence[Member]) -> int:
    """Ranks that a group must have: those that recorded, or that a call names."""
    numbers = {n for m in members for c in m.calls for n in (c.group_rank, c.collective.peer)}
    sensible = [n for n in numbers if n is not None and n < MAX_RANKS]
    return max(len(members), 1 + max(sensible, default=0))


def _recorded(name: str, ranks: _Ranks, members: Sequence[Member]) -> RecordedGroup:
    size = _size(members)
    entries = _in_order(members, ranks, size)
    world = {w for m in members if (w := _world(m, ranks)) is not None}
    hosts = {m.recording.host for m in members}
    extra = ExtraGroup(
        name=name,
        ranks=ranks,
        size=size,
        members=tuple(sorted(world)),
        nnodes=len(hosts) if len(world) == size and None not in hosts else None,
        inferred=False,
        classes=tuple(e.key for e in entries),
        seen=tuple(e.seen for e in entries),
        transfers={k: e.transfers for k, e in enumerate(entries) if e.transfers},
        description=members[0].calls[0].collective.description,
        numbered=ranks is None and all(m.recording.rank is None for m in members),
    )
    when = np.array([e.start_ns for e in entries], dtype=np.int64)
    # A call without a time stands behind the one before it.
    times = np.maximum.accumulate(when) if len(when) else when
    parts = tuple(e.parts for e in entries)
    return RecordedGroup(extra, np.empty(0, dtype=np.int64), times, parts)


def _in_order(members: Sequence[Member], ranks: _Ranks, size: int | None) -> list[_Entry]:
    """Calls of a group: collectives by number, each pattern of transfers behind the collective
    that its first rank called before it."""
    at: dict[_RecordedPlace, list[RecordedPart]] = defaultdict(list)
    sequences = [_places(member) for member in members]
    for member, sequence in zip(members, sequences, strict=True):
        rank = _world(member, ranks)
        for place, call in zip(sequence, member.calls, strict=True):
            if place is not None:
                at[place].append(RecordedPart(member.number, rank, call))
    known_places = [[place for place in sequence if place is not None] for sequence in sequences]
    places = _merged(sorted(known_places, key=lambda sequence: -len(sequence)))
    order = {place: k for k, place in enumerate(places)}
    entries = [((k, -1, 0), _collective(at[place], size)) for k, place in enumerate(places)]
    behind = [
        list(accumulate(sequence, lambda k, p: k if p is None else order[p], initial=-1))
        for sequence in sequences
    ]
    for pattern in recorded_patterns(members, size or _least(members)):
        key = (behind[pattern.member][pattern.number], pattern.number, pattern.member)
        entries.append((key, _transfers(pattern)))
    return [entry for _, entry in sorted(entries, key=lambda item: item[0])]


def _collective(parts: Sequence[RecordedPart], size: int | None) -> _Entry:
    calls = [part.call for part in parts]
    start = min((c.start_ns for c in calls if c.start_ns is not None), default=0)
    seen = min(len(calls), size or len(calls))
    return _Entry(_class_of(calls, size), seen, start, parts=tuple(parts))


def _transfers(pattern: RecordedPattern) -> _Entry:
    return _Entry(pattern.key, pattern.ranks_seen, pattern.start_ns, pattern.transfers)


def _places(member: Member) -> list[_RecordedPlace | None]:
    """Place of each call of a rank; None for a Send or Recv."""
    found: list[_RecordedPlace | None] = []
    under: Counter[tuple[int, Op | None]] = Counter()
    number = 0
    for call in member.calls:
        if is_half(call):
            found.append(None)
            continue
        seq = number if call.seq is None else call.seq
        number += 1
        key = (seq, call.collective.op if member.recording.seq_per_op else None)
        found.append(_RecordedPlace(*key, under[key]))
        under[key] += 1
    return found


def _merged(sequences: Sequence[Sequence[_RecordedPlace]]) -> list[_RecordedPlace]:
    """All places in the order of the first sequence; what it lacks behind its predecessor."""
    behind: dict[_RecordedPlace | None, _RecordedPlace | None] = {None: None}
    for sequence in sequences:
        before: _RecordedPlace | None = None
        for place in sequence:
            if place not in behind:
                behind[place] = behind[before]
                behind[before] = place
            before = place
    found, place_or_end = [], behind[None]
    while place_or_end is not None:
        found.append(place_or_end)
        place_or_end = behind[place_or_end]
    return found


def _world(member: Member, ranks: _Ranks) -> int | None:
    """World rank of a member; its place in the group where only that is known."""
    if member.recording.rank is not None:
        return member.recording.rank
    place = next((c.group_rank for c in member.calls if c.group_rank is not None), None)
    return ranks[place] if ranks and place is not None and place < len(ranks) else place


def _class_of(calls: Sequence[RecordedCall], size: int | None) -> CallClass:
    """Class of a call, from what most ranks recorded of it."""
    entry, _ = Counter(c.collective for c in calls).most_common(1)[0]
    counts = {n for c in calls for n in (c.collective.in_count, c.collective.out_count)}
    if entry.op is Op.ALL_TO_ALL and len(counts - {None}) > 1:
        # PyTorch's flight recorder names even and uneven ones alike.
        entry = replace(entry, op=Op.ALL_TO_ALLV)
    found = call_class(class_key(entry, size), entry.root)
    # Only the root's buffers count where the others may pass anything.
    decide = [c for c in calls if c.group_rank == entry.root] if entry.op.rooted else []
    places = {c.in_place for c in decide or calls}
    if len(places) == 1 and (place := places.pop()) is not None:
        found = replace(found, in_place=place)
    if found.size_bytes is None:
        found = replace(found, size_bytes=calls[0].size_bytes)
    return found
