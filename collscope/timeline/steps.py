"""Where the steps of a job end in each rank's trace (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.timeline.overlap import warm_until
from collscope.timeline.waits import CallTimes

_ALIKE = 0.98  # of the collectives that recur after a period
_TRIED = 32


@dataclass(frozen=True, slots=True)
class Steps:
    """Two boundaries per trace, `count` steps apart.

    A boundary is all streams' last rows that had ended by then: whatever is slower afterwards,
    the step ends when all of them have.
    """

    source: str  # marks: the profiler's; period: of the collectives; window: none was found
    rows: Ints  # rows of all boundaries, boundary by boundary
    bounds: Ints  # (boundaries,) where each begins; the first ones of all traces, then the last
    count: Ints  # (boundaries / 2,) steps between the two of each trace that has any

    def mean_ns(self, end: Ints, shift: npt.NDArray[np.float64] | None = None) -> float | None:
        """Mean step time of the slowest rank; None without steps.

        end    (rows,) ends of all rows of the traces, ns
        shift  ns by which those of `rows` have moved; None: not at all
        """
        if not len(self.count):
            return None
        ends = end[self.rows] if shift is None else end[self.rows] + shift
        first, last = np.maximum.reduceat(ends, self.bounds).reshape(2, -1)
        return float(((last - first) / self.count).max())


def find_steps(rows: Rows, calls: Calls, times: CallTimes) -> Steps:
    """Steps after the warm-up: from the profiler's marks, else from the order of collectives."""
    warm = warm_until(rows, calls, times)
    n = len(rows.ranks)
    marked = [_marked(rows, t) for t in range(n)]
    found = [_after(rows, ends, int(warm[t])) for t, ends in enumerate(marked)]
    source = "marks"
    if not found or min(len(ends) for ends in found) < 2:
        source = "period"
        found = [_after(rows, ends, int(warm[t])) for t, ends in enumerate(_periods(rows, calls))]
    if not found or min(len(ends) for ends in found) < 2:
        source, found = "window", [_window(rows, t, int(warm[t])) for t in range(n)]
    good = [t for t in range(n) if len(found[t]) > 1]
    parts = [_boundary(rows, t, found[t][k]) for k in (0, -1) for t in good]
    return Steps(
        source,
        np.concatenate([*parts, np.empty(0, dtype=np.int64)]),
        np.cumsum([0, *(len(p) for p in parts)])[: len(parts)],
        np.array([len(found[t]) - 1 for t in good], dtype=np.int64),
    )


def _boundary(rows: Rows, trace: int, row: int) -> Ints:
    """Last row of each stream that ends with `row` at the latest."""
    mine = rows.of(trace)
    done = mine.start + np.flatnonzero(rows.end[mine] <= rows.end[row])
    done = done[np.argsort(rows.end[done], kind="stable")][::-1]
    chosen: Ints = done[np.unique(rows.stream[done], return_index=True)[1]]
    return chosen


def _after(rows: Rows, ends: Ints, warm: int) -> Ints:
    """Rows of `ends` that end when the warm-up is over."""
    late: Ints = ends[rows.end[ends] >= warm]
    return late


def _marked(rows: Rows, trace: int) -> Ints:
    """Per marked step the row that ends last of those that the host launched in it."""
    mine = rows.of(trace)
    when = np.where(rows.launch[mine] != UNKNOWN_LAUNCH, rows.launch[mine], rows.start[mine])
    found = []
    for begin, finish in rows.steps[trace]:
        inside = np.flatnonzero((when >= begin) & (when < finish))
        if len(inside):
            found.append(mine.start + int(inside[rows.end[mine][inside].argmax()]))
    return np.array(found, dtype=np.int64)


def _periods(rows: Rows, calls: Calls) -> list[Ints]:
    """Per trace the last collective of every period, the last one of the trace among them."""
    order = np.lexsort((calls.row, calls.trace))
    cuts = np.searchsorted(calls.trace[order], np.arange(len(rows.ranks) + 1))
    call = calls.call_of_part
    kind = calls.group.astype(np.int64) * len(calls.classes) + calls.class_
    found = []
    for a, b in pairwise(cuts.tolist()):
        part = order[a:b]
        period = find_period(kind[call[part]])
        ends = part[::-1][::period][::-1] if period else part[:0]
        found.append(calls.row[ends])
    return found


def find_period(values: Ints) -> int | None:
    """Smallest period of a sequence that recurs at least once, with up to 2 % of exceptions.

    >>> find_period(np.array([9, 1, 2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3]))
    4
    """
    tail = values[len(values) // 4 :]  # the beginning may be initialisation
    known, counts = np.unique(tail, return_counts=True)
    if not (counts > 1).any():
        return None
    rarest = known[np.where(counts > 1, counts, len(tail) + 1).argmin()]
    places = np.flatnonzero(tail == rarest)
    for distance in (places[-1] - places[-2 : -2 - _TRIED : -1]).tolist():
        if 2 * distance <= len(tail) + 1 and (tail[distance:] == tail[:-distance]).mean() >= _ALIKE:
            return int(distance)
    return None


def _window(rows: Rows, trace: int, warm: int) -> Ints:
    """First row after the warm-up and the row that ends last."""
    mine = rows.of(trace)
    after: Ints = mine.start + np.flatnonzero(rows.start[mine] >= warm)
    if len(after) < 2:
        return after[:0]
    return np.array([after[0], after[rows.end[after].argmax()]])
