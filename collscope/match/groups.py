"""Which collectives of which ranks belong to one process group (pure).

In order of trust: the ranks that the trace lists, the name and size of the group, and, where a
trace tells neither, equal sequences of collectives on a stream ("inferred").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from collscope.match.rows import Rows, signature
from collscope.model.trace import Ints

_ALIKE_NS = 5_000.0  # differences of the ends of one group's calls scatter by less,
_ALIKE = 0.2  # or by less than this part of what the calls last


@dataclass(frozen=True, slots=True)
class Group:
    """A process group and the collective rows of the ranks whose traces are there."""

    identity: str  # ranks, name, inferred
    name: str | None
    ranks: tuple[int, ...] | None  # world ranks, where told
    size: int | None
    members: tuple[int, ...]  # traces, rising
    rows: tuple[Ints, ...]  # per member its rows in the order of start


def find_groups(rows: Rows) -> list[Group]:
    """Process groups of all traces, the largest first.

    The same ranks may form several groups (data parallel and the world): names tell them apart
    where every member knows the same names.
    """
    collective = np.flatnonzero(rows.entry >= 0)
    units = _units(rows, collective)
    groups: list[Group] = []
    for (identity, *_), members in units.items():
        group = _group(rows, str(identity), members)
        groups += _split(rows, group) if _too_many(group) else [group]
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
    of_key = key_of[of_row]
    for key, number in keys.items():
        chosen = collective[of_key == number]
        if key[0] == "inferred":
            units |= _infer(rows, chosen, key)
        else:
            units[key] = _by_trace(rows, chosen)
    return units


def _by_trace(rows: Rows, chosen: Ints) -> dict[int, Ints]:
    cuts = np.searchsorted(chosen, rows.bounds)
    return {t: chosen[a:b] for t, (a, b) in enumerate(pairwise(cuts.tolist())) if a < b}


def _agreed_names(rows: Rows, collective: Ints) -> set[tuple[int, ...]]:
    """Sets of ranks of which every trace knows the same names of groups."""
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
    """Groups of rows that name none: one per stream of a trace, joined by equal sequences first."""
    sig = signatures(rows)
    units = [
        (t, mine[rows.stream[mine] == stream])
        for t, mine in _by_trace(rows, chosen).items()
        for stream in np.unique(rows.stream[mine]).tolist()
    ]
    digests: dict[bytes, list[int]] = defaultdict(list)
    for k, (_, mine) in enumerate(units):
        digests[sig[rows.entry[mine]].tobytes()].append(k)
    joined: dict[tuple[Hashable, ...], dict[int, Ints]] = defaultdict(dict)
    alone: dict[int, int] = defaultdict(int)
    for number, same in enumerate(digests.values()):
        traces = [units[k][0] for k in same]
        for k in same:
            t, mine = units[k]
            if len(same) > 1 and len(set(traces)) == len(same):
                joined[(*key, "same", number)][t] = mine
            else:  # the k-th such stream of each trace
                joined[(*key, "stream", alone[t])][t] = mine
                alone[t] += 1
    return joined


def signatures(rows: Rows) -> Ints:
    """Per entry a number equal for those that may be one call, shape (entries + 1,)."""
    known: dict[tuple[object, ...], int] = {}
    numbers = [known.setdefault(signature(e), len(known)) for e in rows.entries]
    return np.array([*numbers, -1], dtype=np.int64)


def _group(rows: Rows, identity: str, members: dict[int, Ints]) -> Group:
    order = sorted(members)
    first = rows.entries[int(rows.entry[members[order[0]][0]])]
    ranks = first.group_ranks or None
    size = first.group_size or (len(ranks) if ranks else None)
    return Group(identity, first.group, ranks, size, tuple(order), tuple(members[t] for t in order))


def _too_many(group: Group) -> bool:
    """More members than the group has; or nothing tells how many it has."""
    if group.identity == "ranks":
        return False
    return len(group.members) > (1 if group.size is None else group.size)


def _split(rows: Rows, group: Group) -> list[Group]:
    """Groups that several sets of ranks use under one name, told apart by their end times.

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
            bound = max(_ALIKE_NS, _ALIKE * float(np.median(lasts)))
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
        )
        for part in parts
    ]


def _unlikeness(rows: Rows, a: Ints, b: Ints) -> float:
    """Spread of the differences of end times, ns; infinite where the numbers of calls differ."""
    if len(a) != len(b):
        return float("inf")
    difference = rows.end[a] - rows.end[b]
    return float(np.median(np.abs(difference - np.median(difference))))
