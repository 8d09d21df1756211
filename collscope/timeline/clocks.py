"""Offsets between the clocks of the traces, estimated from the collectives themselves (pure).

The ends of a synchronising operation agree on all ranks, to a small part of its transfer time.
So end = (common end of the call) + (offset of the clock) + (noise), a two-way table that medians
solve robustly group by group; groups that share ranks are then joined by least squares.

Ranks leave a call at slightly different moments, always in the same order, so an offset may be off
by some us. But no rank leaves before the last one that it waits for has come: this bounds offsets.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.stats import MAD_TO_SIGMA
from collscope.timeline.tolerances import (
    CLOCK_ROUNDS,
    CLOCK_STEP_NS,
    DRIFT_BINS,
    END_NOISE_NS,
    FEW_ENDS_ERROR,
    MIN_DRIFT_TO_SPREAD,
    MIN_ENDS_PER_BIN,
    MIN_RECEIVED,
    MIN_SLOPE_TO_NOISE,
    MIN_WAIT_TO_ERROR,
)

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class Clocks(msgspec.Struct, frozen=True):
    """What to subtract from a trace's times: offset + drift * time. Times since `Rows.base_ns`."""

    offset: Ints  # (traces,) ns by which the trace's clock is ahead of its component's first
    error: Floats  # (traces,) ns, one standard deviation of the ends about the common end
    drift: Floats  # (traces,) ns per ns; 0 where not significant
    component: npt.NDArray[np.int32]  # (traces,) traces of different ones cannot be compared
    used: Ints  # (traces,) calls that the estimate rests on

    def align(self, times: Ints, trace: npt.NDArray[np.int32]) -> Ints:
        """`times` of rows of `trace`, on the common clock; ns."""
        if not self.drift.any():
            return times - self.offset[trace]
        # ns as floats are exact over 10^15 ns, and drifts move by far less.
        moved = self.offset[trace] + np.rint(times * self.drift[trace]).astype(np.int64)
        return times - moved


def estimate_clocks(rows: Rows, calls: Calls) -> Clocks:
    """Clocks of all traces; those on one host, where hosts are known, share one."""
    clock = _clock_of_trace(rows)
    table = call_ends(rows, calls, clock)
    estimate = _join(table, int(clock.max(initial=-1)) + 1)
    offset, drift = estimate.offset, np.zeros(len(estimate.offset))
    residual = table.residual(offset, drift)
    for _ in range(CLOCK_ROUNDS):
        slopes = _drifts(table, residual, len(drift))
        if not slopes.any():
            break
        drift = drift + slopes
        residual = table.residual(offset, drift)
        offset = offset + weighted_medians(residual, table.weight, table.clock, len(drift))
        residual = table.residual(offset, drift)
    error, used = _errors(table, residual, len(drift))
    offset, drift = _reference(estimate.component, offset, drift)
    estimated = Clocks(
        np.rint(offset).astype(np.int64)[clock],
        error[clock],
        drift[clock],
        estimate.component[clock].astype(np.int32),
        used[clock],
    )
    return _bounded(estimated, clock, rows, calls)


def _bounded(clocks: Clocks, clock: Ints, rows: Rows, calls: Calls) -> Clocks:
    """The same clocks, moved so far that no rank leaves a call before the last one has come.

    Unless bounds contradict each other.

    clock  (traces,) number of each trace's clock
    """
    found, (left, before) = clocks, _early(clocks, clock, rows, calls)
    impossible = before
    for _ in range(CLOCK_ROUNDS):
        if not left.any():
            break
        offset = found.offset - left[clock]
        # Against the first trace of each component, as before.
        _, first, of_trace = np.unique(clocks.component, return_index=True, return_inverse=True)
        offset -= offset[first][of_trace]
        found = msgspec.structs.replace(found, offset=offset)
        left, impossible = _early(found, clock, rows, calls)
    return clocks if left.any() or impossible > before else found


def _early(clocks: Clocks, clock: Ints, rows: Rows, calls: Calls) -> tuple[Ints, int]:
    """(clocks,) ns by which ranks leave calls too early that they wait in.

    And the number of those that leave a synchronising call too early by more than the error of the
    clocks: there something else is wrong.
    """
    found = np.zeros(int(clock.max(initial=-1)) + 1, dtype=np.int64)
    if not len(calls):
        return found, 0
    call, first = calls.call_of_part, calls.offsets[:-1]
    start = clocks.align(rows.start[calls.row], calls.trace)
    end = clocks.align(rows.end[calls.row], calls.trace)
    arrival = np.maximum.reduceat(start, first)[call]
    latest = np.lexsort((start, call))[calls.offsets[1:] - 1]  # the part that arrives last
    error = 2 * np.maximum.reduceat(clocks.error[calls.trace], first)[call]
    component = clocks.component[calls.trace]
    known = (component == component[latest][call]) & (
        clock[calls.trace] != clock[calls.trace[latest]][call]
    )
    known &= (calls.seen == calls.nranks)[call] & ~calls.mismatched[call]
    synchronising = np.array([c.op.synchronises for c in calls.classes])[calls.class_][call]
    within = synchronising & (arrival - end <= error)
    early = known & (end < arrival)
    moved = early & (within | _receives(calls, start - arrival, end - arrival, error))
    np.maximum.at(found, clock[calls.trace[moved]], (arrival - end)[moved])
    return found, int((early & synchronising & ~within).sum())


def _receives(calls: Calls, came: Ints, left: Ints, error: Floats) -> Bools:
    """(parts,) ranks that wait for the last one, as far as their calls of one class show.

    Such a rank comes long before the last one, and leaves with it, again and again. A root leaves
    at once. Of two ranks, a receiver waits for nobody else: the moment at which it leaves is that
    of its root, even where the estimate of the clocks puts it elsewhere, by the same in all calls.

    came, left  (parts,) ns after the last rank's arrival
    error       (parts,) ns of the clocks
    """
    ahead = -came > MIN_WAIT_TO_ERROR * error
    key = calls.class_[calls.call_of_part] * (int(calls.trace.max()) + 1) + calls.trace
    least, most = np.full(int(key.max()) + 1, np.inf), np.full(int(key.max()) + 1, -np.inf)
    np.minimum.at(least, key[ahead], left[ahead])
    np.maximum.at(most, key[ahead], left[ahead])
    alike = (calls.nranks == 2)[calls.call_of_part] & ((most - least)[key] <= error)
    with_it = ahead & (np.abs(left) <= np.where(alike, -came / MIN_WAIT_TO_ERROR, error))
    often, together = (np.bincount(key, weights=w) for w in (ahead, with_it))
    found: Bools = with_it & (together == often)[key] & (together >= MIN_RECEIVED)[key]
    return found


def _clock_of_trace(rows: Rows) -> Ints:
    """Number of the clock of each trace: one per host, and one per trace without a host."""
    known: dict[tuple[str, object], int] = {}
    keys = [("host", h) if h else ("trace", t) for t, h in enumerate(rows.hosts)]
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


class CallEnds(msgspec.Struct, frozen=True):
    """Ends of synchronising calls: one row per call and trace, calls in order."""

    call: Ints  # (ends,) 0..n-1, rising
    starts: Ints  # (calls,) first row of each call
    group: Ints  # (ends,)
    class_: Ints  # (ends,)
    clock: Ints  # (ends,)
    end: Floats  # (ends,) ns since the call's first end on record, so that floats are exact
    time: Floats  # (ends,) ns since base, for drifts
    weight: Floats  # (ends,) 1 / ns: a long transfer's ends agree less

    def residual(self, offset: Floats, drift: Floats) -> Floats:
        """Ends after their clock's correction, against the median of their call."""
        return self.against_median(self.end - offset[self.clock] - drift[self.clock] * self.time)

    def against_median(self, values: Floats) -> Floats:
        """Values minus the median of their call."""
        order = np.lexsort((values, self.call))
        counts = np.diff(np.append(self.starts, len(values)))
        low = values[order][self.starts + (counts - 1) // 2]
        high = values[order][self.starts + counts // 2]
        result: Floats = values - np.repeat((low + high) / 2, counts)
        return result


def call_ends(rows: Rows, calls: Calls, clock: Ints) -> CallEnds:
    """The ends of the calls in which every rank waits for all; `clock` is each trace's."""
    synchronising = np.array([c.op.synchronises for c in calls.classes] + [False])
    good = synchronising[calls.class_] & ~calls.mismatched & ~calls.p2p & (calls.seen > 1)
    part = good[calls.call_of_part]
    call = calls.call_of_part[part]
    row, trace = calls.row[part], calls.trace[part]
    starts = np.flatnonzero(np.diff(call, prepend=-1))
    counts = np.diff(np.append(starts, len(call)))
    end = rows.end[row]
    first = np.repeat(end[starts], counts)
    shortest = np.minimum.reduceat(end - rows.start[row], starts) if len(starts) else end
    return CallEnds(
        np.repeat(np.arange(len(starts)), counts),
        starts,
        calls.group[call].astype(np.int64),
        calls.class_[call].astype(np.int64),
        clock[trace],
        (end - first).astype(np.float64),
        end.astype(np.float64),
        1.0 / np.repeat(shortest + END_NOISE_NS, counts),
    )


class _Estimate(msgspec.Struct, frozen=True):
    offset: Floats
    component: Ints


def _join(table: CallEnds, n_clocks: int) -> _Estimate:
    """Offsets of all clocks from the offsets within each group, weighted by their evidence.

    A group gives its clocks' offsets but for a constant; the constants are eliminated from the
    normal equations, which leaves a weighted graph Laplacian over the clocks.
    """
    laplacian = np.zeros((n_clocks, n_clocks))
    wanted = np.zeros(n_clocks)
    component = np.arange(n_clocks)
    for clocks, offsets, evidence in _group_offsets(table):
        share = evidence / evidence.sum()
        centred = offsets - share @ offsets
        laplacian[np.ix_(clocks, clocks)] += np.diag(evidence) - np.outer(evidence, share)
        wanted[clocks] += evidence * centred
        component[np.isin(component, component[clocks])] = component[clocks].min()
    offset = np.zeros(n_clocks)
    for c in np.unique(component).tolist():
        members = np.flatnonzero(component == c)
        if len(members) > 1:  # the first is the reference of its component
            rest = members[1:]
            offset[rest] = np.linalg.solve(laplacian[np.ix_(rest, rest)], wanted[rest])
    return _Estimate(offset, np.unique(component, return_inverse=True)[1])


def _group_offsets(table: CallEnds) -> list[tuple[Ints, Floats, Floats]]:
    """Per group: its clocks, their offsets (but for a constant) and the evidence for each."""
    found = []
    order = np.argsort(table.group, kind="stable")
    cuts = np.flatnonzero(np.diff(table.group[order], prepend=-1, append=-1))
    for a, b in pairwise(cuts.tolist()):
        group_ends = _select(table, order[a:b])
        clocks, local = np.unique(group_ends.clock, return_inverse=True)
        if len(clocks) > 1:
            offsets, spread = _polish(group_ends, local, len(clocks))
            n = np.bincount(local, minlength=len(clocks))
            found.append((clocks, offsets, n / np.maximum(spread, 1.0) ** 2))
    return found


def _select(table: CallEnds, chosen: Ints) -> CallEnds:
    return CallEnds(
        table.call[chosen],
        np.flatnonzero(np.diff(table.call[chosen], prepend=-1)),
        table.group[chosen],
        table.class_[chosen],
        table.clock[chosen],
        table.end[chosen],
        table.time[chosen],
        table.weight[chosen],
    )


def _polish(table: CallEnds, local: Ints, n: int) -> tuple[Floats, float]:
    """Offsets of one group's clocks by medians of rows and columns in turn; spread about them.

    They start from the differences to one clock, which makes the result the same, but for the
    offsets themselves, whatever the offsets are.
    """
    offset = _first_guess(table, local, n)
    residual = table.against_median(table.end - offset[local])
    for _ in range(CLOCK_ROUNDS):
        step = weighted_medians(residual, table.weight, local, n)
        offset = offset + step
        residual = table.against_median(table.end - offset[local])
        if np.abs(step).max(initial=0.0) < CLOCK_STEP_NS:
            break
    spread = MAD_TO_SIGMA * float(np.median(np.abs(residual)))
    return offset, spread


def _first_guess(table: CallEnds, local: Ints, n: int) -> Floats:
    """Median difference to the clock with most calls; 0 for one that never met it."""
    head = int(np.bincount(local, minlength=n).argmax())
    is_head = local == head
    with_head = np.zeros(len(table.starts), dtype=bool)
    base = np.zeros(len(table.starts))
    number = np.repeat(
        np.arange(len(table.starts)), np.diff(np.append(table.starts, len(table.call)))
    )
    with_head[number[is_head]] = True
    base[number[is_head]] = table.end[is_head]
    met = with_head[number]
    difference = (table.end - base[number])[met]
    return weighted_medians(difference, table.weight[met], local[met], n)


def weighted_medians(values: Floats, weights: Floats, group: Ints, n: int) -> Floats:
    """Weighted median of the values of each group 0..n-1; 0 for a group without values."""
    order = np.lexsort((values, group))
    value, weight = values[order], weights[order]
    bounds = np.searchsorted(group[order], np.arange(n + 1))
    total = np.concatenate([[0.0], np.cumsum(weight)])
    low, high = total[bounds[:-1]], total[bounds[1:]]
    half = np.searchsorted(total[1:], (low + high) / 2 * (1 - 1e-12))
    full = bounds[1:] > bounds[:-1]
    result = np.zeros(n)
    result[full] = value[np.clip(half[full], bounds[:-1][full], bounds[1:][full] - 1)]
    return result


def _drifts(table: CallEnds, residual: Floats, n: int) -> Floats:
    """Drift of each clock, 0 unless it exceeds its own error and the noise of the ends."""
    if len(residual) < MIN_ENDS_PER_BIN * DRIFT_BINS:
        return np.zeros(n)
    begin, span = float(table.time.min()), float(np.ptp(table.time)) or 1.0
    bins = np.minimum((DRIFT_BINS * (table.time - begin) / span).astype(np.int64), DRIFT_BINS - 1)
    slot = table.clock * DRIFT_BINS + bins
    height = weighted_medians(residual, table.weight, slot, n * DRIFT_BINS).reshape(n, DRIFT_BINS)
    counts = np.bincount(slot, minlength=n * DRIFT_BINS).reshape(n, DRIFT_BINS)
    slopes = np.zeros(n)
    noise = np.zeros(n)
    for k in range(n):
        there = counts[k] > 2
        if there.sum() < DRIFT_BINS // 2:
            continue
        x, y = np.arange(DRIFT_BINS)[there] * span / DRIFT_BINS, height[k][there]
        slope, level = np.polyfit(x, y, 1)
        rest = y - slope * x - level
        noise[k] = np.sqrt(rest @ rest / (there.sum() - 2) / ((x - x.mean()) ** 2).sum())
        slopes[k] = slope
    spread = MAD_TO_SIGMA * float(np.median(np.abs(residual)))
    significant = np.abs(slopes) > MIN_SLOPE_TO_NOISE * noise
    significant &= np.abs(slopes) * span > MIN_DRIFT_TO_SPREAD * spread
    # A median call end drifts with some of the clocks: all get their slope, or none.
    return slopes if significant.any() else np.zeros(n)


def _errors(table: CallEnds, residual: Floats, n: int) -> tuple[Floats, Ints]:
    """Error of each clock's offset, ns, and the number of ends it rests on.

    The spread of the ends about the common end: not divided by the root of their number, since
    a rank that leaves a ring earlier does so in every call.
    """
    used = np.bincount(table.clock, minlength=n)
    spread = weighted_medians(np.abs(residual), table.weight, table.clock, n) * MAD_TO_SIGMA
    # Few ends agree by chance: then a tenth of the shortest transfer stands for their spread.
    shortest = np.full(n, np.inf)
    np.minimum.at(shortest, table.clock, 1.0 / table.weight)
    few = FEW_ENDS_ERROR * shortest / np.sqrt(np.maximum(used, 1))
    typical = MAD_TO_SIGMA * float(np.median(np.abs(residual))) if len(residual) else 0.0
    error = np.maximum(np.maximum(spread, typical), np.where(np.isfinite(few), few, 0.0))
    return error, used


def _reference(component: Ints, offset: Floats, drift: Floats) -> tuple[Floats, Floats]:
    """Offsets and drifts against the first clock of each component."""
    offset, drift = offset.copy(), drift.copy()
    for c in np.unique(component).tolist():
        members = np.flatnonzero(component == c)
        offset[members] -= offset[members[0]]
        drift[members] -= drift[members[0]]
    return offset, drift
