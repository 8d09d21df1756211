"""Traces of several starts of a job: far apart in time, and without a collective in common (pure).

The clocks of hosts may differ by any constant, so that the time between two traces alone proves
nothing. But one collective ends on all its ranks together, whatever the clocks: where none of the
offsets of two clocks, and no drift that clocks have, makes most of them end so, these are not the
same calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.match.common_clock import unlinked
from collscope.match.groups import find_groups
from collscope.match.pairing import Sequence3, compare_calls
from collscope.match.rows import Rows, gather_rows, signatures
from collscope.match.tolerances import MIN_COMMON_CALLS, MIN_JOB_GAP_NS
from collscope.model.trace import TraceFile


class JobStarts(msgspec.Struct, frozen=True):
    """Which start of the job each trace is of."""

    start: tuple[int, ...]  # per trace, from 0 in the order of the traces
    # ns between traces that may be of one start or of two; None: all are decided
    unsure_ns: int | None = None


def find_job_starts(traces: Sequence[TraceFile]) -> JobStarts:
    """Separate the starts; undecided ones count as one. A rank may have several."""
    windows = _windows(traces)
    sets = separate_windows(windows)
    if len(sets) < 2:
        return JobStarts((0,) * len(traces))
    rows = gather_rows([replace(trace, rank=k, groups=()) for k, trace in enumerate(traces)])
    same = _compare(rows, sets)
    joined: list[list[int]] = []
    number: list[int] = []
    unsure: int | None = None
    for k, own in enumerate(sets):
        same_as = [
            [same.get((j, k)) for j in range(k) if number[j] == n] for n in range(len(joined))
        ]
        one = next((n for n, answers in enumerate(same_as) if True in answers), None)
        if one is None:
            hosts = {rows.hosts[t] for t in own}
            one = next(
                (
                    n for n, answers in enumerate(same_as)
                    if False not in answers and not _one_host(rows, joined[n], hosts)
                ), None,
            )  # fmt: skip
            if one is not None:
                unsure = max(unsure or 0, _gap(windows, joined[one], own))
        if one is None:
            one = len(joined)
            joined.append([])
        joined[one] += own
        number.append(one)
    start = [0] * len(traces)
    for n, own in enumerate(joined):
        for t in own:
            start[t] = n
    seen: dict[int, int] = {}
    return JobStarts(tuple(seen.setdefault(n, len(seen)) for n in start), unsure)


def _windows(traces: Sequence[TraceFile]) -> dict[int, tuple[int, int]]:
    """First start and last end of each trace that has collectives."""
    return {
        t: (int(trace.columns.start_ns.min()), int(trace.columns.end_ns.max()))
        for t, trace in enumerate(traces)
        if (trace.columns.collective >= 0).any()
    }


def separate_windows(windows: dict[int, tuple[int, int]]) -> list[list[int]]:
    """Traces whose windows lie no further from each other than they are long, or a second, set by
    set: starts of a job are further apart.

    windows  (first start, last end) by trace, ns on its clock
    """
    sets: list[list[int]] = []
    end, longest = 0, 0
    for t, (first, last) in sorted(windows.items(), key=lambda item: item[1]):
        if not sets or first - end > max(longest, last - first, MIN_JOB_GAP_NS):
            sets.append([])
            end, longest = last, 0
        sets[-1].append(t)
        end, longest = max(end, last), max(longest, last - first)
    return sets


def _gap(windows: dict[int, tuple[int, int]], some: list[int], others: list[int]) -> int:
    """Least time between the windows of two sets."""
    return min(
        max(windows[a][0] - windows[b][1], windows[b][0] - windows[a][1])
        for a in some
        for b in others
    )


def _one_host(rows: Rows, some: list[int], hosts: set[str | None]) -> bool:
    """Whether two sets share a host, which has one clock."""
    return bool({rows.hosts[t] for t in some} & (hosts - {None, ""}))


def _compare(rows: Rows, sets: list[list[int]]) -> dict[tuple[int, int], bool]:
    """For pairs of sets whether a group's calls are the same in both; none: unknown."""
    set_of = {t: k for k, own in enumerate(sets) for t in own}
    sig = signatures(rows)
    synchronising = np.array([e.op.synchronises for e in rows.entries] + [False])
    found: dict[tuple[int, int], bool] = {}
    for group in find_groups(unlinked(rows)):
        first: dict[int, Sequence3] = {}
        for t, group_rows in zip(group.members, group.rows, strict=True):
            own = group_rows[synchronising[rows.entry[group_rows]]]
            if len(own) >= MIN_COMMON_CALLS and t in set_of:
                calls = sig[rows.entry[own]], rows.start[own], rows.end[own]
                first.setdefault(set_of[t], calls)
        for j, k in combinations(sorted(first), 2):
            if not found.get((j, k)):
                same = compare_calls(first[j], first[k]).same
                if same is not None:
                    found[j, k] = same
    return found
