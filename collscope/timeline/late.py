"""Which rank the others wait for, how often and how long (pure)."""

from __future__ import annotations

import numpy as np

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.timeline.clocks import Clocks
from collscope.timeline.late_chain import inherited_lateness
from collscope.timeline.records import LateRank
from collscope.timeline.tolerances import (
    FREQUENT_STRAGGLER_SHARE,
    MIN_EVEN_SHARES,
    MIN_LATE_CALLS,
    MIN_LATE_COST,
    MIN_LATENESS_TO_CLOCK_ERROR,
    MIN_SHARE_BESIDE_STOP,
    STRAGGLER_SHARE,
)
from collscope.timeline.waits import CallTimes


def late_ranks(
    rows: Rows, calls: Calls, times: CallTimes, clocks: Clocks, exposed: Ints | None = None
) -> list[LateRank]:
    """All ranks, the one that is late most in total first.

    exposed  (rows,) ns of each collective that compute does not hide; None: not known, and
             then every lateness counts for the rank that arrived last

    Only synchronising calls count that all ranks with a trace took part in. A rank is named when
    its share of all lateness, or the share that it is the first cause of, is three even shares or
    75 % (two thirds, where it arrives last twice as often as an even share), in three calls or
    more, its typical lateness is beyond three times the clocks' error, and it costs 1 % of the
    ranks' time in calls. One stop of another rank does not hide it: where it arrives last in as
    large a part of the calls and has a quarter of all lateness, the greatest lateness is left out.
    """
    synchronising = np.array([c.op.synchronises for c in calls.classes] + [False])
    good = synchronising[calls.class_] & (calls.seen == calls.expected) & (calls.seen > 1)
    good &= ~times.warm_up & (times.lateness >= 0)
    part = good[calls.call_of_part]
    took_part = np.bincount(calls.trace[part], minlength=len(rows.ranks))
    late = good & (times.last >= 0)
    everything = int(times.lateness[late].sum())
    counted = ~times.warm_up[calls.call_of_part]
    matters = MIN_LATE_COST * float((times.end - times.start)[counted].sum())
    active = int((took_part > 0).sum())
    often = 2 * int(late.sum()) / max(active, 1)
    chain = None
    if exposed is not None:
        chain = inherited_lateness(calls, times, exposed, late, len(rows.ranks))
    found = []
    for t, rank in enumerate(rows.ranks):
        late_calls = np.flatnonzero(late & (times.last == t))
        lateness = times.lateness[late_calls]
        typical = typical_lateness(lateness)
        total = int(lateness.sum())
        share = total / everything if everything else 0.0
        caused = int((lateness * (calls.seen[late_calls] - 1)).sum())
        behind = int((lateness >= typical / 2).sum())
        most = max(total, 0 if chain is None else float(chain.caused[t]))
        first = -1 if chain is None else int(chain.first[t])
        enough = min(
            STRAGGLER_SHARE if len(late_calls) < often else FREQUENT_STRAGGLER_SHARE,
            MIN_EVEN_SHARES / max(active, 1),
        )
        others = times.lateness[late & (times.last != t)]
        named = (
            everything > 0
            and (most >= enough * everything or late_beside_stop(lateness, others, enough))
            and behind >= MIN_LATE_CALLS
            and typical > MIN_LATENESS_TO_CLOCK_ERROR * float(clocks.error[t])
            and caused > matters
        )
        found.append(
            LateRank(
                rank=rank,
                calls=int(took_part[t]),
                last=len(late_calls),
                behind=behind,
                typical_ns=typical,
                mean_ns=float(lateness.mean()) if len(late_calls) else 0.0,
                median_ns=float(np.median(lateness)) if len(late_calls) else 0.0,
                max_ns=int(lateness.max(initial=0)),
                total_ns=total,
                caused_wait_ns=caused,
                share=share,
                named=named,
                inherited_ns=0 if chain is None else round(float(chain.inherited[t])),
                first_rank=None if first < 0 else rows.ranks[first],
            )
        )
    return sorted(found, key=lambda r: (-r.total_ns, r.rank))


def late_beside_stop(own: Ints, others: Ints, enough: float) -> bool:
    """Whether one stop of another rank hides a late rank, which arrives last in most calls.

    own, others  lateness of this rank, and of other ranks, in the calls that each arrived last at
    enough       share of all lateness, and of all calls, that names a rank

    >>> late_beside_stop(np.array([30] * 19), np.array([700]), 0.75)
    True
    """
    total, stop = int(own.sum()), int(others.max(initial=0))
    return (
        int(own.max(initial=0)) < stop
        and len(own) >= enough * (len(own) + len(others))
        and total >= enough * (total + int(others.sum()) - stop)
        and total >= MIN_SHARE_BESIDE_STOP * (total + int(others.sum()))
    )


def typical_lateness(lateness: Ints) -> float:
    """The lateness that calls at least as late make up half of the total with; 0 for none.

    Unlike mean and median it is not drawn down by the many calls that chance decides.

    >>> typical_lateness(np.array([2, 1000, 3, 1010, 1, 990]))
    1000.0
    """
    if not len(lateness):
        return 0.0
    ordered = np.sort(lateness)[::-1]
    total = np.cumsum(ordered)
    return float(ordered[np.searchsorted(total, total[-1] / 2)])
