"""The process group of each collective of each rank (pure).

In order of trust: the ranks that the trace lists, the name and size of the group, and, where a
trace has neither, streams whose collectives end together ("inferred").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.match.common_clock import Linked
from collscope.match.pairing import compare_calls, pair_by_time
from collscope.match.rows import Rows, signatures
from collscope.match.shared_clock import match_by_clock
from collscope.match.tolerances import (
    GROUP_END_SCATTER_NS,
    GROUP_END_SCATTER_SHARE,
    MAX_CALLS_UNGROUPED,
    MAX_GROUP_END_SCATTER_NS,
    MIN_MET_SHARE,
)
from collscope.model import Op
from collscope.model.trace import Ints


class Group(msgspec.Struct, frozen=True):
    """A process group and the collective rows of the ranks whose traces are there."""

    identity: str  # ranks, name, inferred
    name: str | None
    ranks: tuple[int, ...] | None  # world ranks, where known
    size: int | None
    members: tuple[int, ...]  # traces, rising
    rows: tuple[Ints, ...]  # per member its rows in the order of start
    description: str | None = None  # what the program calls it
    doubtful: bool = False  # further traces may belong to it


def find_groups(linked: Linked) -> list[Group]:
    """Process groups of all traces, the largest first.

    The same ranks may form several groups (data parallel and the world): names distinguish
    them where every member knows the same names.
    """
    rows = linked.rows
    collective = np.flatnonzero(rows.entry >= 0)
    units = _units(rows, collective)
    groups: list[Group] = []
    for (identity, *_), members in units.items():
        group = _group(rows, str(identity), members)
        groups += _split(rows, group) if _too_many(group) else [group]
    groups = _sized(linked, groups)
    return sorted(groups, key=lambda g: (-(g.size or len(g.members)), g.members, g.name or ""))


def _units(rows: Rows, collective: Ints) -> dict[tuple[Hashable, ...], dict[int, Ints]]:
    """Rows per identity of a group, and per trace."""
    names = _agreed_names(rows, collective)
    n = len(rows.entries)
    slots = rows.trace[collective].astype(np.int64) * n + rows.entry[collective]
    present, of_row = np.unique(slots, return_inverse=True)
    keys: dict[tuple[Hashable, ...], int] = {}
    key_of = np.empty(len(present), dtype=np.int64)
    for k, slot in enumerate(present.tolist()):
        e = rows.entries[slot % n]
        key: tuple[Hashable, ...] = ("inferred", e.group_size)
        if e.group_ranks:
            key = ("ranks", e.group_ranks, e.group if e.group_ranks in names else None)
        elif e.group is not None:
            key = ("name", e.group, e.group_size)
        key_of[k] = keys.setdefault(key, len(keys))
    units: dict[tuple[Hashable, ...], dict[int, Ints]] = {}
    nameless = np.array([key[0] == "inferred" for key in keys], dtype=bool)
    sizeless = np.array([key == ("inferred", None) for key in keys], dtype=bool)
    stream = rows.stream[collective].astype(np.int64)
    of_key = _of_stream(stream, _of_stream(stream, key_of[of_row], nameless), sizeless)
    for key, number in keys.items():
        chosen = collective[of_key == number]
        if key[0] == "inferred":
            units |= _infer(rows, chosen, key)
        else:
            units[key] = _by_trace(rows, chosen)
    return units


def _of_stream(stream: Ints, of_key: Ints, nameless: npt.NDArray[np.bool_]) -> Ints:
    """Group of each row; a row without one gets the only group of its stream, if there is one.

    A profiler lacks the host's side of what was launched before it began: such kernels have a name
    only, while later ones on the stream have their group.
    """
    without = nameless[of_key] if len(of_key) else np.zeros(0, dtype=bool)
    if not without.any() or without.all():
        return of_key
    pairs = np.unique(np.stack([stream[~without], of_key[~without]]), axis=1)
    streams, first, groups = np.unique(pairs[0], return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(streams, stream), len(streams) - 1)
    known = without & (streams[place] == stream) & (groups[place] == 1)
    return np.where(known, pairs[1][first[place]], of_key)


def _by_trace(rows: Rows, chosen: Ints) -> dict[int, Ints]:
    cuts = np.searchsorted(chosen, rows.bounds)
    return {t: chosen[a:b] for t, (a, b) in enumerate(pairwise(cuts.tolist())) if a < b}


def _agreed_names(rows: Rows, collective: Ints) -> set[tuple[int, ...]]:
    """Sets of ranks whose traces all know the same names of groups."""
    known: dict[tuple[int, ...], dict[int, set[str | None]]] = defaultdict(lambda: defaultdict(set))
    n = max(len(rows.entries), 1)
    pairs = np.unique(rows.trace[collective].astype(np.int64) * n + rows.entry[collective])
    for slot in pairs.tolist():
        e = rows.entries[slot % n]
        if e.group_ranks:
            known[e.group_ranks][slot // n].add(e.group)
    return {
        ranks
        for ranks, by_trace in known.items()
        if len({frozenset(names) for names in by_trace.values()}) == 1
    }


def _infer(
    rows: Rows, chosen: Ints, key: tuple[Hashable, ...]
) -> dict[tuple[Hashable, ...], dict[int, Ints]]:
    """Groups of rows that name none: the streams of different traces that meet in time.

    Windows of a profiler begin and end at different calls on each rank, so that neither the number
    of calls nor their order shows which streams belong together; calls that end together
    do. Streams that nothing meets are joined where their sequences are equal.
    """
    sig = signatures(rows)
    units = [
        (t, unit[rows.stream[unit] == stream])
        for t, unit in _by_trace(rows, chosen).items()
        for stream in np.unique(rows.stream[unit]).tolist()
    ]
    size = key[1] if isinstance(key[1], int) else None
    groups = _by_clock(rows, units, size)
    known = {id(unit) for group in groups or () for unit in group.values()}
    rest = [(t, unit) for t, unit in units if id(unit) not in known]
    groups = _equal(rows, sig, [*(groups or ()), *_meeting(rows, sig, rest, size)])
    joined = _one_communicator(rows, groups)
    return {(*key, number): group for number, group in enumerate(joined)}


def _by_clock(
    rows: Rows, units: list[tuple[int, Ints]], size: int | None
) -> list[dict[int, Ints]] | None:
    """Groups on a clock that all ranks share; None where some unit meets none, as with others.

    There the best partner is known: pairs of ranks that do the same at once meet, too.
    """
    met = match_by_clock([(t, (rows.start[unit], rows.end[unit])) for t, unit in units])
    together = {k for places in met for k in places}
    many = {k for k, (_, unit) in enumerate(units) if len(unit) > MAX_CALLS_UNGROUPED}
    if many - together or any(size is not None and len(places) > size for places in met):
        return None
    return [dict(units[k] for k in places) for places in met]


def _meeting(
    rows: Rows, sig: Ints, units: list[tuple[int, Ints]], size: int | None
) -> list[dict[int, Ints]]:
    """Units, each with those of other traces whose calls end when its own do; the longest first."""
    groups: list[dict[int, Ints]] = []
    heads: list[int] = []
    for t, unit in sorted(units, key=lambda unit: (-len(unit[1]), unit[0])):
        scatters = {
            g: how
            for g, group in enumerate(groups)
            if t not in group
            and (size is None or len(group) < size)
            and (how := _scatter(rows, sig, (heads[g], group[heads[g]]), (t, unit))) is not None
        }
        if scatters:
            groups[min(scatters, key=lambda g: scatters[g])][t] = unit
        else:
            groups.append({t: unit})
            heads.append(t)
    return groups


def _scatter(rows: Rows, sig: Ints, one: tuple[int, Ints], other: tuple[int, Ints]) -> float | None:
    """Scatter of the ends of two units' common calls, ns; None where they are not of one group.

    Half of the calls that the shorter one has while both are recorded must take place together.
    """
    (t, a), (u, b) = one, other
    host = rows.hosts[t]
    shared = host is not None and host == rows.hosts[u]
    found = pair_by_time(
        (sig[rows.entry[a]], rows.start[a], rows.end[a]),
        (sig[rows.entry[b]], rows.start[b], rows.end[b]),
        shared_clock=shared,
    )
    common = np.flatnonzero(found.partner >= 0)
    common = common[sig[rows.entry[b[common]]] == sig[rows.entry[a[found.partner[common]]]]]
    if not len(common):
        return None
    x, y = a[found.partner[common]], b[common]
    ends, other_ends = rows.end[a], rows.end[b] - found.offset
    both = max(ends[0], other_ends[0]), min(ends[-1], other_ends[-1])
    within = [int(((e >= both[0]) & (e <= both[1])).sum()) for e in (ends, other_ends)]
    difference = rows.end[y] - found.offset - rows.end[x]
    scatter = float(np.median(np.abs(difference - np.median(difference))))
    lasts = np.minimum(rows.end[x] - rows.start[x], rows.end[y] - rows.start[y])
    # Neighbouring groups meet at about the same time, and only the ends of calls decide.
    bound = max(
        GROUP_END_SCATTER_NS,
        min(GROUP_END_SCATTER_SHARE * float(np.median(lasts)), MAX_GROUP_END_SCATTER_NS),
    )
    return scatter if len(common) >= MIN_MET_SHARE * min(within) and scatter <= bound else None


def _equal(rows: Rows, sig: Ints, groups: list[dict[int, Ints]]) -> list[dict[int, Ints]]:
    """Groups, those of one trace joined where their sequences of calls are equal."""
    alone: dict[bytes, list[dict[int, Ints]]] = defaultdict(list)
    for group in groups:
        if len(group) == 1:
            (unit,) = group.values()
            alone[sig[rows.entry[unit]].tobytes()].append(group)
    joined = [group for group in groups if len(group) > 1]
    for same in alone.values():
        traces = [t for group in same for t in group]
        if len(set(traces)) == len(traces):
            joined.append({t: unit for group in same for t, unit in group.items()})
        else:
            joined += same
    return joined


def _one_communicator(rows: Rows, groups: list[dict[int, Ints]]) -> list[dict[int, Ints]]:
    """Groups, those of the same traces joined where they never run at once.

    FSDP has a stream for each operation of one communicator. The library runs the kernels of a
    communicator one after the other, on whatever streams; those of several communicators overlap
    sooner or later.
    """
    joined: list[dict[int, Ints]] = []
    for group in groups:
        for known in joined:
            if len(group) > 1 and set(known) == set(group):
                both = {t: np.sort(np.concatenate([known[t], group[t]])) for t in group}
                if not any(_overlap(rows, unit) for unit in both.values()):
                    known.update(both)
                    break
        else:
            joined.append(dict(group))
    return joined


def _overlap(rows: Rows, chosen: Ints) -> bool:
    """True where some rows, given in the order of start, run at once."""
    ends = np.maximum.accumulate(rows.end[chosen])
    return bool((rows.start[chosen][1:] < ends[:-1]).any())


def _group(rows: Rows, identity: str, members: dict[int, Ints]) -> Group:
    order = sorted(members)
    # Kernels launched before the profiler began do not show their group.
    entries = (rows.entries[e] for t in order for e in np.unique(rows.entry[members[t]]).tolist())
    first = next((e for e in entries if e.group is not None or e.group_ranks), None)
    if first is None:
        first = rows.entries[int(rows.entry[members[order[0]][0]])]
    ranks = first.group_ranks or None
    size = first.group_size or (len(ranks) if ranks else None)
    return Group(
        identity, first.group, ranks, size, tuple(order), tuple(members[t] for t in order),
        first.description,
    )  # fmt: skip


def _sized(linked: Linked, groups: list[Group]) -> list[Group]:
    """Inferred groups with the size that the traces give such a group; parts of one joined.

    A group of ranks that no trace names is part of one: the smallest that has them all. Parts
    are joined where their calls do not contradict it; what is left alone keeps the size of the
    whole, so that its waiting is not known.
    """
    rows = linked.rows
    sends = np.array([e.op.point_to_point or e.op is Op.SEND_RECV for e in rows.entries] + [False])
    sig = signatures(rows)
    found: list[Group] = []
    parts: dict[tuple[int, ...], list[Group]] = defaultdict(list)
    for group in groups:
        # Send and Recv make communicators of two ranks, which no trace names.
        pairs = any(sends[rows.entry[r]].any() for r in group.rows)
        if group.identity != "inferred" or group.size is not None or pairs:
            found.append(group)
            continue
        ranks_of_whole = _ranks_of_whole(rows, group)
        if ranks_of_whole is None or _present(rows, ranks_of_whole) == group.members:
            found.append(replace(group, size=ranks_of_whole and len(ranks_of_whole)))
        else:
            parts[ranks_of_whole].append(group)
    for ranks, own in parts.items():
        for group in _joined(linked, sig, own):
            # Another stream of the same communicator may have been found whole.
            key = ("inferred", len(ranks), group.members)
            alike = [(g.identity, g.size, g.members) == key for g in found]
            same = [g for g, one in zip(found, alike, strict=True) if one]
            found = [g for g, one in zip(found, alike, strict=True) if not one]
            streams = [dict(zip(g.members, g.rows, strict=True)) for g in (*same, group)]
            for by_trace in _one_communicator(rows, streams):
                found.append(replace(group, size=len(ranks), rows=tuple(by_trace.values())))
    return [
        replace(g, doubtful=g.identity == "inferred" and not linked.doubtful.isdisjoint(g.members))
        for g in found
    ]


def _ranks_of_whole(rows: Rows, group: Group) -> tuple[int, ...] | None:
    """Ranks of the smallest group that all members name and that has them all; None: unknown."""
    ranks = {rows.ranks[t] for t in group.members}
    named = [set(rows.group_ranks[t]) for t in group.members]
    fitting = [g for g in set.intersection(*named) if ranks <= set(g)]
    return min(fitting, key=lambda g: (len(g), g), default=None)


def _present(rows: Rows, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Traces of a group's ranks, rising."""
    return tuple(t for t, rank in enumerate(rows.ranks) if rank in ranks)


def _joined(linked: Linked, sig: Ints, parts: list[Group]) -> list[Group]:
    """Parts of one group, those of different traces joined unless their calls contradict it."""
    joined: list[Group] = []
    for part in sorted(parts, key=lambda g: -sum(map(len, g.rows))):
        for k, known in enumerate(joined):
            if set(known.members).isdisjoint(part.members) and _may_be_one(
                linked, sig, known, part
            ):
                both = dict(zip(known.members + part.members, known.rows + part.rows, strict=True))
                order = tuple(sorted(both))
                joined[k] = replace(known, members=order, rows=tuple(both[t] for t in order))
                break
        else:
            joined.append(part)
    return joined


def _may_be_one(linked: Linked, sig: Ints, one: Group, other: Group) -> bool:
    """Whether the calls of two parts are the same; of few calls whether the clocks are linked."""
    rows = linked.rows
    ours, theirs = (max(g.rows, key=len) for g in (one, other))
    found = compare_calls(
        *((sig[rows.entry[r]], rows.start[r], rows.end[r]) for r in (ours, theirs))
    )
    if found.same is None:
        return len(set(linked.component[[*one.members, *other.members]].tolist())) == 1
    return found.same


def _too_many(group: Group) -> bool:
    """More members than the group has, or its size is unknown."""
    if group.identity == "ranks":
        return False
    return len(group.members) > (1 if group.size is None else group.size)


def _split(rows: Rows, group: Group) -> list[Group]:
    """Groups that several sets of ranks use under one name, separated by their end times.

    The end times of one group's ranks differ by a constant (their clocks); those of two groups'
    by whatever the groups do. Members that no other resembles come in the order of rank.
    """
    left = list(range(len(group.members)))
    parts: list[list[int]] = []
    while left:
        head = left[0]
        unlike = {m: _unlikeness(rows, group.rows[head], group.rows[m]) for m in left[1:]}
        # A stable sort keeps the order of rank among equals.
        mates = sorted(unlike, key=lambda m: unlike[m])
        if group.size is None:
            lasts = rows.end[group.rows[head]] - rows.start[group.rows[head]]
            bound = max(GROUP_END_SCATTER_NS, GROUP_END_SCATTER_SHARE * float(np.median(lasts)))
            # Of ranks with other numbers of calls nothing is known: they stay.
            mates = [m for m in mates if unlike[m] <= bound or np.isinf(unlike[m])]
        else:
            mates = mates[: group.size - 1]
        parts.append(sorted([head, *mates]))
        left = [m for m in left if m not in parts[-1]]
    identity = group.identity if len(parts) == 1 else "inferred"
    return [
        Group(
            identity,
            group.name,
            None,
            group.size,
            tuple(group.members[m] for m in part),
            tuple(group.rows[m] for m in part),
            group.description,
        )
        for part in parts
    ]


def _unlikeness(rows: Rows, a: Ints, b: Ints) -> float:
    """Spread of the differences of end times, ns; infinite where the numbers of calls differ."""
    if len(a) != len(b):
        return float("inf")
    difference = rows.end[a] - rows.end[b]
    return float(np.median(np.abs(difference - np.median(difference))))
