"""Which traces of a run were recorded together: profiled periods and jobs told apart (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import msgspec


class Recording(msgspec.Struct, frozen=True):
    """What a trace is told from others by."""

    rank: int | None  # world rank, where told
    world_size: int | None
    start_ns: int  # its first kernel, on its own clock
    folder: str  # that its file lies in
    job: int = 0  # the start of the job, where their collectives tell starts apart


def assign_periods(traces: Sequence[Recording]) -> list[int]:
    """Number of the period or job of each trace, from 0 in the order in which they were read.

    No period has a rank twice. Starts and jobs of other sizes are apart, and so are folders that
    hold the same ranks each. The rest is told by the order in time: the first trace of each rank is
    of the first period where all ranks have as many, else a period ends before the trace whose rank
    it has.
    """
    groups: dict[Hashable, list[int]] = defaultdict(list)
    by_folder = _folders_are_jobs(traces)
    for k, trace in enumerate(traces):
        folder = trace.folder if by_folder else None
        groups[trace.job, trace.world_size, folder].append(k)
    found: dict[int, Hashable] = {}
    for job, members in groups.items():
        for k, period in zip(members, _in_time([traces[k] for k in members]), strict=True):
            found[k] = job, period
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(found[k], len(numbers)) for k in range(len(traces))]


def _folders_are_jobs(traces: Sequence[Recording]) -> bool:
    """Whether there are several folders, each with all the ranks."""
    ranks: dict[str, set[int | None]] = defaultdict(set)
    for trace in traces:
        ranks[trace.folder].add(trace.rank)
    return len(ranks) > 1 and len({frozenset(r) for r in ranks.values()}) == 1


def _in_time(traces: Sequence[Recording]) -> list[int]:
    """Period of each trace of one job; those that tell no rank are of the first one."""
    order = sorted(range(len(traces)), key=lambda k: traces[k].start_ns)
    seen: dict[int, list[int]] = defaultdict(list)
    for k in order:
        rank = traces[k].rank
        if rank is not None:
            seen[rank].append(k)
    found = [0] * len(traces)
    if len({len(own) for own in seen.values()}) <= 1:
        for own in seen.values():
            for period, k in enumerate(own):
                found[k] = period
        return found
    period, there = 0, set[int]()
    for k in order:
        rank = traces[k].rank
        if rank is None:
            continue
        if rank in there:
            period, there = period + 1, set[int]()
        there.add(rank)
        found[k] = period
    return found
