"""What every row of a trace waited for before it started, inferred from times (pure).

A row starts when the last of these has come: the row before it on its stream, a row of another
stream whose end it follows at once, and its launch by the host. What it followed within a few µs
held it up, and keeps its distance; anything earlier only bounds it from below. All is expressed
in shifts against the record: a row's shift is the largest of its predecessors' shifts, each less
the slack there was. Unchanged collectives thus reproduce the record exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.model.trace import Ints

Bools = npt.NDArray[np.bool_]
TIGHT_NS = 10_000  # what starts this soon after something had waited for it
_SYNC_GAP_NS = 50_000  # the host is blocked, not busy, when it launches nothing for this long
_WAKE_NS = 50_000  # and goes on this soon after the GPU is done
_HOST_STEP_NS = 5_000  # between two launches of a host that nothing blocks
_LATENCY_NS = 15_000  # no runtime takes longer
_VIOLATIONS = 0.01
NONE = -1


@dataclass(frozen=True, slots=True)
class Edges:
    """Predecessors of rows and of host segments, with their slack in ns; -1: none."""

    before: Ints  # (rows,) on the same stream
    before_slack: Ints
    other: Ints  # (rows,) on another stream
    other_slack: Ints
    segment: Ints  # (rows,) stretch of the host between two blocking waits; 0: from the start
    host_slack: Ints  # (rows,) -1 where the launch is not known
    blocked_by: Ints  # (segments,) row the host waited for; -1 for segment 0
    earlier: Ints  # (segments,) the segment before on the same host, 0: the start
    earlier_slack: Ints
    resumed: Ints  # (segments,) ns, when the host went on


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows of one trace in other orders; all numbers count in the whole table."""

    by_end: Ints
    by_launch: Ints  # those whose launch is known


def find_edges(rows: Rows) -> Edges:
    """Dependencies of all rows within their trace; times on the trace's own clock."""
    n = len(rows)
    before = _on_stream(rows)
    gap = np.where(before >= 0, rows.start - rows.end[before], 0)
    usual = _usual_gap(gap[before >= 0])
    other = np.full(n, NONE, dtype=np.int64)
    segment = np.zeros(n, dtype=np.int64)
    latency = np.full(n, -1, dtype=np.int64)
    hosts = _Hosts()
    after = np.full(n, NONE, dtype=np.int64)
    after[before[before >= 0]] = np.flatnonzero(before >= 0)
    for t in range(len(rows.ranks)):
        mine = np.arange(rows.bounds[t], rows.bounds[t + 1])
        launched = mine[rows.launch[mine] != UNKNOWN_LAUNCH]
        order = _Sorted(
            mine[np.argsort(rows.end[mine], kind="stable")],
            launched[np.argsort(rows.launch[launched], kind="stable")],
        )
        other[mine] = _followed(rows, mine, order, gap, before, usual)
        enqueued = _enqueued_after(rows, launched, order)
        other[launched] = np.where(enqueued >= 0, enqueued, other[launched])
        delay = rows.start[launched] - rows.launch[launched]
        latency[launched] = np.maximum(0, delay - _launch_latency(delay))
        hosts.add(rows, order, after, segment)
    between = np.where(other >= 0, rows.start - rows.end[other], 0)
    slacks = [
        np.where(before >= 0, _slack(gap, usual), -1),
        np.where(other >= 0, _slack(between, usual), -1),
        np.where(latency >= TIGHT_NS, latency, np.where(latency == -1, -1, 0)),
    ]
    _tighten(slacks)
    return Edges(before, slacks[0], other, slacks[1], segment, slacks[2], *hosts.columns())


def contract(rows: Rows, edges: Edges, keep: Bools) -> tuple[Edges, Bools]:
    """Rows that only pass on what came before them on their stream, folded into the next one.

    keep  (rows,) rows that must stay; those that others wait for stay anyway
    returns the edges of the rows that stay, and a mask of these
    """
    order = np.argsort(rows.stream, kind="stable")
    following = np.append(order[1:], 0)
    stays = keep | (edges.before < 0) | (edges.other >= 0)
    stays[edges.other[edges.other >= 0]] = True
    stays[edges.blocked_by[edges.blocked_by >= 0]] = True
    last = np.append(rows.stream[order][1:] != rows.stream[order][:-1], True)[: len(order)]
    stays[order[last]] = True
    # The launches folded together must move together.
    stays[order] |= edges.segment[order] != edges.segment[following[: len(order)]]
    place = np.flatnonzero(stays[order])
    if not len(place):
        return edges, stays
    total = np.cumsum(np.maximum(edges.before_slack[order], 0))
    unknown = np.iinfo(np.int64).max // 2
    host = np.where(edges.host_slack[order] >= 0, edges.host_slack[order] - total, unknown)
    least = np.minimum.reduceat(host, np.append(0, place[:-1] + 1)) + total[place]
    row, previous = order[place], np.append(0, place[:-1])
    before, before_slack = edges.before.copy(), edges.before_slack.copy()
    chained = before[row] >= 0
    before[row[chained]] = order[previous[chained]]
    before_slack[row[chained]] = (total[place] - total[previous])[chained]
    host_slack = edges.host_slack.copy()
    host_slack[row] = np.where(least < unknown // 2, least, -1)
    return (
        replace(edges, before=before, before_slack=before_slack, host_slack=host_slack),
        stays,
    )


def _on_stream(rows: Rows) -> Ints:
    """Row before each on its stream, -1 for the first."""
    order = np.argsort(rows.stream, kind="stable")
    before = np.full(len(rows), NONE, dtype=np.int64)
    same = rows.stream[order][1:] == rows.stream[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _usual_gap(gaps: Ints) -> int:
    """Twice the median gap between kernels that follow each other on a stream, ns."""
    near = gaps[(gaps >= 0) & (gaps <= TIGHT_NS)]
    return max(1_000, 2 * int(np.median(near))) if len(near) else 2_000


def _launch_latency(delay: Ints) -> int:
    """From the host's launch to the start of a kernel on an idle GPU, ns.

    The shortest delays of a trace, unless the GPU always had work queued.
    """
    return min(_LATENCY_NS, int(np.percentile(delay, 1))) if len(delay) else 0


def _slack(gap: Ints, usual: int) -> Ints:
    return np.where(gap <= TIGHT_NS, 0, gap - usual)


def _followed(rows: Rows, mine: Ints, order: _Sorted, gap: Ints, before: Ints, usual: int) -> Ints:
    """Row of another stream that ended last before each started, a few µs ago at most.

    Only where the row's own stream had been idle for longer than between kernels in a row.
    """
    start = rows.start[mine]
    place = np.searchsorted(rows.end[order.by_end], start, side="right") - 1
    last = np.where(place >= 0, order.by_end[place], NONE)
    fits = (last >= 0) & (rows.stream[last] != rows.stream[mine])
    fits &= start - rows.end[last] <= TIGHT_NS
    fits &= (before[mine] < 0) | (gap[mine] > usual)
    return np.where(fits, last, NONE)


def _enqueued_after(rows: Rows, launched: Ints, order: _Sorted) -> Ints:
    """For collectives the compute row launched last before them, per row of `launched`.

    PyTorch makes a collective's stream wait for all that the compute stream was given before.
    Streams whose collectives are seen to start earlier do not work like that.
    """
    compute = order.by_launch[rows.entry[order.by_launch] < 0]
    result = np.full(len(launched), NONE, dtype=np.int64)
    chosen = np.flatnonzero(rows.entry[launched] >= 0)
    if not len(compute) or not len(chosen):
        return result
    row = launched[chosen]
    place = np.searchsorted(rows.launch[compute], rows.launch[row]) - 1
    last = np.where(place >= 0, compute[place], NONE)
    apart = (last >= 0) & (rows.stream[last] != rows.stream[row])
    violated = apart & (rows.end[last] > rows.start[row])
    for stream in np.unique(rows.stream[row]).tolist():
        on = rows.stream[row] == stream
        if violated[on].sum() <= _VIOLATIONS * on.sum():
            good = on & apart & ~violated
            result[chosen[good]] = last[good]
    return result


def _tighten(slacks: list[Ints]) -> None:
    """Where nothing held a row up within a few µs, what came last did; -1: no such predecessor."""
    known = np.stack([np.where(s < 0, np.iinfo(np.int64).max, s) for s in slacks])
    least = known.argmin(axis=0)
    for k, slack in enumerate(slacks):
        slack[(least == k) & (slack > 0)] = 0


class _Hosts:
    """Stretches of the hosts' launching, each begun by a wait for the GPU."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = [(NONE, NONE, 0, 0)]

    def add(self, rows: Rows, order: _Sorted, after: Ints, segment: Ints) -> None:
        """Find the waits of one trace, and set the segment of its rows."""
        launch = rows.launch[order.by_launch]
        gap = np.diff(launch)
        if not len(gap):
            return
        long = np.flatnonzero(gap > max(_SYNC_GAP_NS, 5 * int(np.median(gap)))) + 1
        place = np.searchsorted(rows.end[order.by_end], launch[long], side="right") - 1
        done = np.where(place >= 0, order.by_end[place], NONE)
        then = np.where(after[done] >= 0, rows.launch[after[done]], np.iinfo(np.int64).max)
        waited = (done >= 0) & (rows.end[done] > launch[long - 1])
        waited &= launch[long] - rows.end[done] <= _WAKE_NS
        waited &= then >= launch[long]  # nothing was queued behind it
        previous, begin = 0, len(self.rows)
        for at, row in zip(long[waited].tolist(), done[waited].tolist(), strict=True):
            slack = max(0, int(gap[at - 1]) - _HOST_STEP_NS)
            self.rows.append((row, previous, slack, int(launch[at])))
            previous = len(self.rows) - 1
        stretch = np.searchsorted(long[waited], np.arange(len(launch)), side="right")
        segment[order.by_launch] = np.where(stretch > 0, begin + stretch - 1, 0)

    def columns(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Row waited for, segment before, slack to that, and time, per segment."""
        table = np.array(self.rows, dtype=np.int64)
        return table[:, 0], table[:, 1], table[:, 2], table[:, 3]
