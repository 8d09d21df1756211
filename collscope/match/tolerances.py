"""Every tolerance of matching: what it bounds, its value, and where the value comes from.

Times are ns. A share is a part of 1. Recordings are those of H200s with PyTorch 2.11 and NCCL 2.28.
"A choice" has a reason and no measurement. What a format fixes (widths of fields, codes) stands
with its reader.
"""

from __future__ import annotations

# How far the ends of one call lie from each other: ranks leave a ring or tree one after the other.

END_SCATTER_NS = 20_000
"""Ends of one call, on one clock: no closer tolerance separates two calls. Source: recordings, in
78 % of 3526 calls all ranks end within it."""

MAX_END_SCATTER_NS = 60_000
"""Ends of one call, on one clock, however long it lasts. Source: recordings, in 95 % of 3526 calls
all ranks end within it."""

END_SCATTER_SHARE = 0.1
"""The same between these two: part of what the call lasts. Source: recordings, 84 % of 3526 calls
keep to it, and two groups need no more than 70 % (`MIN_SHARED_CALLS`)."""

FOREIGN_END_SCATTER_SHARE = 0.25
"""The same where offset and drift of the clocks are estimates, with no upper end. Source:
recordings of 11 jobs, each of two starts: 97 % of the calls of one start keep to it or to
`MAX_END_SCATTER_NS`, and at most 33 % of those of two."""

EXCHANGE_END_SCATTER_SHARE = 0.5
"""The same of kernels that may be exchanges: part of the shortest. Source: a choice, kernels that
belong to other exchanges end by a whole kernel earlier or later."""

GROUP_END_SCATTER_NS = 5_000.0
"""Differences of the ends of a group's ranks about their median, on clocks that differ: for half of
the calls. Source: recordings, the median spread of the ends of a call is 4.3 us."""

GROUP_END_SCATTER_SHARE = 0.2
"""The same, as a part of what the calls last. Source: a choice, twice `END_SCATTER_SHARE`."""

MAX_GROUP_END_SCATTER_NS = 50_000.0
"""The same, where only time shows the groups. Source: a choice, neighbouring groups meet at
about the same time, however long their calls last."""

OFFSET_WINDOW_NS = 50_000
"""Width in which differences of ends crowd under the right offset of two clocks; calls that last
longer meet no neighbour. Source: a choice, ends of one call agree to some tens of us."""

MAX_EARLY_LEAVE_NS = 10_000_000
"""Ends of one call that some ranks leave early, as the root of a Broadcast does. Source: a choice,
below the length of most steps."""

ELAPSED_SCATTER_NS = 1_000_000
"""Times from the call before to this one on several GPUs, in RCCL's kernel trace. Source: a choice,
above what ranks are late by."""

# How clocks drift.

MAX_CLOCK_DRIFT = 2e-4
"""Of two clocks that nothing disciplines, ns per ns. Source: crystals are off by less than half of
that each."""

MAX_GPU_CLOCK_DRIFT = 1e-3
"""Of two GPUs' clocks, ns per ns. Source: crystals keep to a tenth of it."""

# Which sequences of calls are one.

OFFSET_CANDIDATES = 3
"""Offsets of two clocks that are tried, of either end of the sequences. Source: a choice."""

MIN_COMMON_CALLS = 8
"""Calls in the time that two traces have in common, to judge by. Source: a choice, of fewer many
may end together by chance."""

MIN_SHARE_OF_ONE_START = 0.8
"""Share of the common calls that end together on ranks of one start. Source: as of
`FOREIGN_END_SCATTER_SHARE`."""

MAX_SHARE_OF_TWO_STARTS = 0.5
"""Share of the common calls that end together on ranks of two starts; in between nothing is known.
Source: as before."""

MIN_JOB_GAP_NS = 1_000_000_000
"""From the end of one start of a job to the next, where it is longer than both. Source: a choice,
processes take longer to start."""

MAX_COMPARED_MATES = 8
"""Traces of a linked set with which another one is compared, mates of its groups first. Source: a
choice, each more costs as much and adds little."""

MIN_SHARED_CALLS = 0.7
"""Share of the calls of two ranks of one group that end together. Source: recordings, 84 % of the
calls of all ranks do (`END_SCATTER_SHARE`)."""

NEAR_BEST_PARTNER = 0.9
"""Part of the best partner's share that another one of the group has. Source: a choice, groups that
do the same at once agree somewhat."""

MIN_CALLS_OF_PAIR = 3
"""Calls in the time that two ranks have in common, to compare them by. Source: a choice, fewer may
all end together by chance."""

MIN_STANDING_OFF = 0.7
"""Share of the calls in which two bunches of ranks stand off from each other: they are two groups
in step. Source: by chance two pairs of four ranks do in a third of the calls."""

MIN_EITHER_ORDER = 0.1
"""Share of these calls with either bunch first. Source: a choice, ranks of one group end in any
order, or always in the same one."""

MIN_CALLS_TO_SPLIT = 8
"""Calls needed to separate two such groups. Source: as of `MIN_COMMON_CALLS`."""

MIN_RANKS_TO_SPLIT = 4
"""Ranks of two such groups. Source: a group has two at least."""

MAX_CALLS_UNGROUPED = 4
"""Calls of a stream that may stay without a group by the clock. Source: a choice, so few show no
group."""

MIN_MET_SHARE = 0.5
"""Share of a unit's calls, within the time in common, that meet those of its group. Source: a
majority."""

MIN_EXCHANGES = 3
"""SendRecv kernels of each rank, to decide whether they are exchanges of all. Source: as of
`MIN_CALLS_OF_PAIR`."""

MIN_EXCHANGE_SHARE = 0.7
"""Share of these kernels that all ranks run together. Source: as of `MIN_SHARED_CALLS`."""

MIN_NUMBERED_SHARE = 0.5
"""Share of calls that the source's numbers join, and of these, that agree. Source: a majority, else
the numbers prove nothing."""

MIN_COUNTER_AGREEMENT = 0.9
"""Share of the calls of two logs that stay joined with opCount. Source: a choice, else the ranks'
counters do not run alike."""

SIZE_TOLERANCE = 0.02
"""Sizes of two calls, as a part of the larger, whose difference no time shows. Source: repetitions
of one measurement differ by 3 % (nccl-tests on four H200s)."""

MIN_MATCHED_SHARE = 0.9
"""Share of a trace's calls with the same sizes at every place where they fit a log. Source: a
choice, steps may differ in a few calls."""

MIN_DATE_SUFFIX = 10**7
"""A larger number behind the name of a log is a date, which grows with time. Source: yyyymmdd has
eight digits."""

MAX_RANKS = 1 << 20
"""Ranks of a group; a larger number of a peer is damaged. Source: the largest machines have fewer
than 2^17 GPUs."""
