"""Process groups of traces, with their calls in order (pure)."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.match.groups import Group
from collscope.match.joining import ExtraGroup
from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.match.run import CallClass
from collscope.match.traces import Calls, ranks_of
from collscope.model import CollectiveClass, Op
from collscope.model.trace import Ints


class GroupCalls(msgspec.Struct, frozen=True):
    """The calls of one group, and where each came from."""

    group: ExtraGroup
    index: Ints  # per call its number in the timeline; empty for recordings
    when: Ints  # per call ns on some clock of the group; 0 where not known


def call_class(key: CollectiveClass, root: int | None) -> CallClass:
    """Class of a call as the store has it; a trace has neither buffers nor the backend."""
    return CallClass(
        op=key.op,
        datatype=key.datatype,
        redop=key.redop,
        count=key.count,
        root=root if key.op.rooted else None,
        size_bytes=key.size_bytes,
        nranks=key.nranks,
        shape="sendrecv" if key.op is Op.SEND_RECV else None,
    )


def traced_groups(rows: Rows, calls: Calls, arrival: Ints) -> list[GroupCalls]:
    """Groups that have calls, each with its calls in the order of their time.

    arrival  per call ns on a clock that all have in common
    """
    if not len(calls):
        return []
    roots = np.array([e.root if e.root is not None else -1 for e in rows.entries] + [-1])
    root = roots[rows.entry[calls.row[calls.offsets[:-1]]]]
    order = np.lexsort((arrival, calls.group))
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
        chosen, group = order[a:b], calls.groups[number]
        keys = zip(calls.class_[chosen].tolist(), root[chosen].tolist(), strict=True)
        classes = [
            known.get(k) or known.setdefault(k, call_class(calls.classes[k[0]], _none(k[1])))
            for k in keys
        ]
        # A single trace without arguments does not show how many others there are.
        several = len(group.members) > 1 and (calls.p2p[chosen].all() or ranks_of(rows, group) > 0)
        size = group.size or (len(group.members) if several else None)
        if size is None:
            classes = [_without_ranks(c) for c in classes]
        hosts = {rows.hosts[t] for t in group.members}
        complete = len(group.members) == size and None not in hosts
        extra = ExtraGroup(
            name=group.name,
            description=group.description,
            ranks=group.ranks,
            size=size,
            members=tuple(rows.ranks[t] for t in group.members),
            nnodes=len(hosts) if complete else None,
            inferred=group.identity == "inferred",
            classes=tuple(classes),
            seen=tuple(calls.seen[chosen].tolist()),
            missing=tuple(missing[number]),
            between=_between(rows, group, len(chosen)),
        )
        found.append(GroupCalls(extra, chosen, arrival[chosen]))
    return found


def _between(rows: Rows, group: Group, calls: int) -> tuple[int, ...]:
    """Per call of a group the collectives of others that its first member launched since the last.

    calls  of the group: where rows are not calls one by one, or a launch is not known, none
    """
    own = group.rows[0]
    span = rows.of(group.members[0])
    launched = span.start + np.flatnonzero(rows.entry[span] >= 0)
    if len(own) != calls or (rows.launch[launched] == UNKNOWN_LAUNCH).any():
        return ()
    order = launched[np.argsort(rows.launch[launched], kind="stable")]
    place = np.empty(len(rows.launch[span]), dtype=np.int64)
    place[order - span.start] = np.arange(len(order))
    where = place[own - span.start]
    if (np.diff(where) < 1).any():
        return ()
    return tuple((np.diff(where, prepend=where[:1] - 1) - 1).tolist())


def _without_ranks(found: CallClass) -> CallClass:
    """A class whose number of ranks is not known, and with it what is computed from it."""
    per_rank = found.op.count_is_part
    return replace(
        found,
        nranks=None,
        size_bytes=None if per_rank else found.size_bytes,
        count=None if found.op is Op.ALL_TO_ALL else found.count,
    )


def _none(root: int) -> int | None:
    return root if root >= 0 else None
