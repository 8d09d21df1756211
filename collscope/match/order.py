"""Calls of all communicators in the order in which the processes launched them (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from collscope._align import ChainMerger
from collscope.match.observations import Ints
from collscope.match.run_rows import RunRows


def launch_order(run: RunRows, calls_of: Mapping[int, Ints], calls: Mapping[str, Ints]) -> Ints:
    """Numbers of the calls in launch order, shape (calls,).

    The order extends that of every process's log: a call that a process logged before another
    comes before it, unless logs contradict each other. Calls launched together stay together and
    calls of a communicator keep their `seq` where no log denies it; what nothing decides is in the
    order of communicator and `seq`.

    calls_of  call of each row of a handle, in the order of its rows; -1 where it is of none
    calls     the columns `comm`, `seq` and `group` (-1: alone)
    """
    preferred = np.lexsort((calls["seq"], calls["comm"]))
    rank = np.empty(len(preferred), dtype=np.int32)
    rank[preferred] = np.arange(len(preferred), dtype=np.int32)
    ends = np.flatnonzero(np.diff(calls["comm"][preferred])) + 1
    best: tuple[int, Ints] | None = None
    # Only the logs bind: groups and `seq` are tried with them, and let go where they contradict.
    for node in _nodes(rank, calls["group"]):
        of_call = np.append(node, np.int32(-1))  # the last for rows of no call
        for with_seq in (True, False):
            merger = ChainMerger(len(rank))
            for logged in _chains(run, calls_of):
                merger.add(of_call[logged])
            for one in np.split(node[preferred], ends) if with_seq else ():
                merger.add(np.ascontiguousarray(one))
            merged, contradictions = merger.merge()
            if best is None or contradictions < best[0]:
                best = contradictions, _calls_of(merged, node, rank, preferred)
            if not contradictions:
                return best[1]
    assert best is not None  # there is always at least one attempt
    return best[1]


def _chains(run: RunRows, calls_of: Mapping[int, Ints]) -> Iterator[Ints]:
    """Calls that each process logged, in its order."""
    units = run.units()
    unit_of = {run.handles[h].process: k for k, own in enumerate(units) for h in own}
    process_of = np.array([handle.process for handle in run.handles], dtype=np.int32)
    latest = -1
    for process, unit in sorted(unit_of.items()):
        if unit != latest:  # a log may be of several processes
            latest = unit
            handle = run.rows(units[unit], ("handle",)).columns["handle"]
            logged = np.full(len(handle), -1, dtype=np.int32)
            for own in units[unit]:
                if own in calls_of:
                    logged[handle == own] = calls_of[own]
            writer = process_of[handle]
        yield logged[writer == process]


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
