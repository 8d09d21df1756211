"""Process groups of traces and recordings, with their calls in order (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from collscope.ingest.extra_calls import ExtraGroup
from collscope.match.run import CallClass
from collscope.model import Op
from collscope.timeline.analyse import Timeline
from collscope.timeline.rows import ClassKey, class_key
from collscope.trace import Ints, RecordedCall, RecordedCalls

_NOT_RUN = "captured"  # into a graph; its launches are recorded again


@dataclass(frozen=True, slots=True)
class GroupCalls:
    """The calls of one group, and where each came from."""

    group: ExtraGroup
    index: Ints  # per call its number in the timeline; empty for recordings
    when: Ints  # per call ns on some clock of the group; 0 where not known


def call_class(key: ClassKey, root: int | None) -> CallClass:
    """Class of a call as the store has it; a trace tells neither buffers nor the backend."""
    return CallClass(
        op=key.op,
        datatype=None if key.datatype is None else key.datatype.label,
        redop=key.redop,
        count=key.count,
        root=root if key.op.rooted else None,
        size_bytes=key.size_bytes,
        in_place=None,
        nranks=key.nranks,
        nnodes=None,
        shape="sendrecv" if key.op is Op.SEND_RECV else None,
        backend="native",
    )


def timeline_groups(timeline: Timeline) -> list[GroupCalls]:
    """Groups that have calls, each with its calls in the order of their time."""
    rows, calls, times = timeline.rows, timeline.calls, timeline.times
    if not len(calls):
        return []
    roots = np.array([e.root if e.root is not None else -1 for e in rows.entries] + [-1])
    root = roots[rows.entry[calls.row[calls.offsets[:-1]]]]
    order = np.lexsort((times.arrival, calls.group))
    cuts = np.searchsorted(calls.group[order], np.arange(len(calls.groups) + 1))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - cuts[calls.group[order]]
    missing: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for call, trace in calls.missing():
        missing[int(calls.group[call])].append((int(place[call]), rows.ranks[trace]))
    known: dict[tuple[int, int], CallClass] = {}
    found = []
    for number, (a, b) in enumerate(pairwise(cuts.tolist())):
        if a == b:
            continue
        mine, group = order[a:b], calls.groups[number]
        keys = zip(calls.class_[mine].tolist(), root[mine].tolist(), strict=True)
        classes = [
            known.get(k) or known.setdefault(k, call_class(calls.classes[k[0]], _none(k[1])))
            for k in keys
        ]
        # A single trace without arguments does not tell how many others there are.
        size = group.size or (len(group.members) if len(group.members) > 1 else None)
        if size is None:
            classes = [_without_ranks(c) for c in classes]
        hosts = {rows.hosts[t] for t in group.members}
        whole = len(group.members) == size and None not in hosts
        extra = ExtraGroup(
            name=group.name,
            ranks=group.ranks,
            size=size,
            members=tuple(rows.ranks[t] for t in group.members),
            nnodes=len(hosts) if whole else None,
            inferred=group.identity == "inferred",
            classes=tuple(classes),
            seen=tuple(calls.seen[mine].tolist()),
            missing=tuple(missing[number]),
        )
        found.append(GroupCalls(extra, mine, times.arrival[mine]))
    return found


def _without_ranks(found: CallClass) -> CallClass:
    """A class whose number of ranks is not known, and with it what is computed from it."""
    per_rank = found.op in (Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL)
    return replace(
        found,
        nranks=None,
        size_bytes=None if per_rank else found.size_bytes,
        count=None if found.op is Op.ALL_TO_ALL else found.count,
    )


def _none(root: int) -> int | None:
    return root if root >= 0 else None


class _Place(NamedTuple):
    """Where the ranks of a group meet."""

    seq: int
    op: Op | None  # where each operation is counted by itself


def recorded_groups(recordings: Iterable[RecordedCalls]) -> list[GroupCalls]:
    """Groups of recorded collectives, by the recorders' own numbers. Transfers are left out."""
    groups: dict[tuple[str, tuple[int, ...] | None], list[_Member]] = defaultdict(list)
    for recording in recordings:
        by_group: dict[tuple[str, tuple[int, ...] | None], list[RecordedCall]] = defaultdict(list)
        for call in recording.calls:
            c = call.collective
            if c.group is not None and not c.op.point_to_point and call.state != _NOT_RUN:
                by_group[c.group, c.group_ranks].append(call)
        for key, calls in by_group.items():
            groups[key].append(_Member(recording, calls))
    ordered = sorted(groups.items(), key=lambda item: (-_size(item[1]), item[0][0]))
    return [_recorded(name, ranks, members) for (name, ranks), members in ordered]


class _Member(NamedTuple):
    """One rank's calls in one group."""

    recording: RecordedCalls
    calls: list[RecordedCall]


def _size(members: Sequence[_Member]) -> int:
    entry = members[0].calls[0].collective
    ranks = entry.group_ranks
    return entry.group_size or (len(ranks) if ranks else len(members))


def _recorded(name: str, ranks: tuple[int, ...] | None, members: Sequence[_Member]) -> GroupCalls:
    at: dict[_Place, list[RecordedCall]] = defaultdict(list)
    sequences = []
    for member in sorted(members, key=lambda m: -len(m.calls)):
        sequence = [_place(member, k) for k in range(len(member.calls))]
        for place, call in zip(sequence, member.calls, strict=True):
            at[place].append(call)
        sequences.append(sequence)
    places = _merged(sequences)
    size = _size(members)
    world = {w for m in members if (w := _world(m, ranks)) is not None}
    hosts = {m.recording.host for m in members}
    extra = ExtraGroup(
        name=name,
        ranks=ranks,
        size=size,
        members=tuple(sorted(world)),
        nnodes=len(hosts) if len(world) == size and None not in hosts else None,
        inferred=False,
        classes=tuple(_class_of(at[place], size) for place in places),
        seen=tuple(min(len(at[place]), size) for place in places),
    )
    when = [min((c.start_ns for c in at[p] if c.start_ns is not None), default=0) for p in places]
    # A call without a time stands behind the one before it.
    times = np.maximum.accumulate(np.array(when, dtype=np.int64)) if when else np.empty(0, np.int64)
    return GroupCalls(extra, np.empty(0, dtype=np.int64), times)


def _place(member: _Member, number: int) -> _Place:
    call = member.calls[number]
    seq = number if call.seq is None else call.seq
    return _Place(seq, call.collective.op if member.recording.seq_per_op else None)


def _merged(sequences: Sequence[Sequence[_Place]]) -> list[_Place]:
    """All places in the order of the first sequence; what it lacks behind its predecessor."""
    behind: dict[_Place | None, _Place | None] = {None: None}
    for sequence in sequences:
        before: _Place | None = None
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


def _world(member: _Member, ranks: tuple[int, ...] | None) -> int | None:
    """World rank of a member; its place in the group where only that is told."""
    if member.recording.rank is not None:
        return member.recording.rank
    place = next((c.group_rank for c in member.calls if c.group_rank is not None), None)
    return ranks[place] if ranks and place is not None and place < len(ranks) else place


def _class_of(calls: Sequence[RecordedCall], size: int) -> CallClass:
    """Class of a call, from what most ranks recorded of it."""
    entry, _ = Counter(c.collective for c in calls).most_common(1)[0]
    found = call_class(class_key(entry, size), entry.root)
    places = {c.in_place for c in calls}
    if len(places) == 1 and (place := places.pop()) is not None:
        found = replace(found, in_place=int(place))
    if found.size_bytes is None:
        found = replace(found, size_bytes=calls[0].size_bytes)
    return found
