"""Which traces of a run were recorded together: profiled periods and jobs separated (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import msgspec


class Recording(msgspec.Struct, frozen=True):
    """What distinguishes a trace from others."""

    rank: int | None  # world rank, where known
    world_size: int | None
    start_ns: int  # its first kernel, on its own clock
    folder: str  # that its file lies in
    job: int = 0  # the start of the job, where their collectives separate starts
    end_ns: int = 0  # its last kernel's end; 0: not known


def assign_periods(traces: Sequence[Recording]) -> list[int]:
    """Number of the period or job of each trace, from 0 in the order in which they were read.

    No period has a rank twice. Starts and jobs of other sizes are apart, and so are folders that
    hold the same ranks each. The rest follows the order in time: the first trace of each rank is
    of the first period where all ranks have as many, else a period ends before the trace whose rank
    it has. A rank is profiled once at a time: one more trace of the same time is of another job, or
    has a wrong rank. It is set apart; the rest stay together.
    """
    groups: dict[Hashable, list[int]] = defaultdict(list)
    by_folder = _folders_are_jobs(traces)
    for k, trace in enumerate(traces):
        folder = trace.folder if by_folder else None
        groups[trace.job, trace.world_size, folder].append(k)
    found: dict[int, Hashable] = {}
    further: dict[int, bool] = {}
    for job, members in groups.items():
        for k, (period, copies) in zip(
            members, _in_time([traces[k] for k in members]), strict=True
        ):
            found[k], further[k] = (job, period, copies), copies > 0
    numbers: dict[Hashable, int] = {}
    for k in sorted(further, key=lambda k: (further[k], k)):
        numbers.setdefault(found[k], len(numbers))
    return [numbers[found[k]] for k in range(len(traces))]


def _folders_are_jobs(traces: Sequence[Recording]) -> bool:
    """Whether there are several folders, each with all the ranks."""
    ranks: dict[str, set[int | None]] = defaultdict(set)
    for trace in traces:
        ranks[trace.folder].add(trace.rank)
    return len(ranks) > 1 and len({frozenset(r) for r in ranks.values()}) == 1


def _in_time(traces: Sequence[Recording]) -> list[tuple[int, int]]:
    """Period of each trace of one job, and how many the rank has of the same time before it.

    Those without a rank are of the first one.
    """
    order = sorted(range(len(traces)), key=lambda k: traces[k].start_ns)
    seen: dict[int, list[int]] = defaultdict(list)
    for k in order:
        rank = traces[k].rank
        if rank is not None:
            seen[rank].append(k)
    found = [(0, 0)] * len(traces)
    if len({len(own) for own in seen.values()}) <= 1:
        for own in seen.values():
            for period, k in enumerate(own):
                found[k] = period, 0
        return found
    period, there = 0, dict[int, list[int]]()
    for k in order:
        rank = traces[k].rank
        if rank is None:
            continue
        before = there.get(rank, [])
        if before and not any(_at_once(traces[j], traces[k]) for j in before):
            period, there, before = period + 1, {}, []
        found[k] = period, len(before)
        there[rank] = [*before, k]
    return found


def _at_once(one: Recording, other: Recording) -> bool:
    """Whether two traces are of the same time, by half of the shorter: ends may meet."""
    shorter = min(one.end_ns - one.start_ns, other.end_ns - other.start_ns)
    overlap = min(one.end_ns, other.end_ns) - max(one.start_ns, other.start_ns)
    return shorter > 0 and 2 * overlap > shorter
