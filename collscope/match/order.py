"""Calls of all communicators in the order in which the processes launched them (pure)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collscope._align import merge_order
from collscope.match.observations import Ints, Observations


def launch_order(observed: Observations, call_of_row: Ints, calls: Mapping[str, Ints]) -> Ints:
    """Numbers of the calls in launch order, shape (calls,).

    The order extends that of every process's log: a call that a process logged before another
    comes before it, unless logs contradict each other. Calls launched together stay together and
    calls of a communicator keep their `seq` where no log denies it; what nothing decides is in the
    order of communicator and `seq`.

    call_of_row  call of each row, -1 where it is of none
    calls        the columns `comm`, `seq` and `group` (-1: alone)
    """
    preferred = np.lexsort((calls["seq"], calls["comm"]))
    rank = np.empty(len(preferred), dtype=np.int32)
    rank[preferred] = np.arange(len(preferred), dtype=np.int32)
    process = np.array([s.process for s in observed.handles], dtype=np.int32)
    logs = process[observed.columns["handle"]]  # rows of a process are in line order
    comms = calls["comm"][preferred].astype(np.int32) + (process.max(initial=-1) + 1)
    best: tuple[int, Ints] | None = None
    # Only the logs bind: groups and `seq` are tried with them, and let go where they contradict.
    for node in _nodes(rank, calls["group"]):
        logged = np.where(call_of_row >= 0, node[call_of_row], np.int32(-1))
        for chain, entry in (
            (np.concatenate([logs, comms]), np.concatenate([logged, node[preferred]])),
            (logs, logged),
        ):
            merged, contradictions = merge_order(chain, entry, len(rank))
            if best is None or contradictions < best[0]:
                best = contradictions, _calls_of(merged, node, rank, preferred)
            if not contradictions:
                return best[1]
    assert best is not None  # there is always at least one attempt
    return best[1]


def _calls_of(merged: Ints, node: Ints, rank: Ints, preferred: Ints) -> Ints:
    """Calls in the order of their nodes, those of one node by rank."""
    if node is rank:
        return preferred[merged]
    place = np.empty(len(rank), dtype=np.int32)
    place[merged] = np.arange(len(rank), dtype=np.int32)
    return np.lexsort((rank, place[node]))


def _nodes(rank: Ints, group: Ints) -> list[Ints]:
    """What to order: groups as one, the least rank of their calls standing for all; then calls."""
    if not (group >= 0).any():
        return [rank]
    first = np.full(int(group.max()) + 1, len(rank), dtype=np.int32)
    np.minimum.at(first, group[group >= 0], rank[group >= 0])
    return [np.where(group >= 0, first[group], rank).astype(np.int32), rank]
