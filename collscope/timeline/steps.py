"""Where the steps of a job end in each rank's trace (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints, Kind
from collscope.timeline.overlap import warm_until
from collscope.timeline.waits import CallTimes

Floats = npt.NDArray[np.float64]
_ALIKE = 0.98  # of the collectives that recur after a period
_TRIED = 32


class Steps(msgspec.Struct, frozen=True):
    """As many steps of every trace that has any, each from one boundary to the next.

    A boundary is all streams' last rows that had ended by then: whatever is slower afterwards,
    the step ends when all of them have.
    """

    # marks: the profiler's; kernels, period: of kernels, collectives; given: as many as was said;
    source: str  # window: none
    rows: Ints  # rows of all boundaries, boundary by boundary
    bounds: Ints  # (boundaries,) where each begins; the first ones of all traces, then the second
    count: Ints  # (traces,) steps of each of these traces, the same of all
    traces: Ints  # (traces,) those traces

    def mean_ns(self, end: Floats | Ints) -> float | None:
        """Mean step time, the longest of all ranks; None without steps.

        end  (rows,) ends of all rows of the traces, ns
        """
        if not len(self.count):
            return None
        ends = self.ends(end)
        return float(((ends[-1] - ends[0]) / self.count).max())

    def ends(self, end: Floats | Ints) -> Floats:
        """Moments of all boundaries, shape (steps + 1, traces); traces as in `traces`."""
        if not len(self.bounds):
            return np.empty((0, len(self.traces)))
        latest = np.maximum.reduceat(end[self.rows], self.bounds)
        return latest.reshape(-1, len(self.traces)).astype(np.float64)

    def span(self, end: Floats | Ints, n: int) -> tuple[Floats, Floats]:
        """Moments of the first and last boundary of `n` traces; empty spans of those without."""
        ends = self.ends(end)
        begin, finish = np.zeros(n), np.zeros(n)
        if len(ends):
            begin[self.traces], finish[self.traces] = ends[0], ends[-1]
        return begin, finish

    def last_rows(self, trace: int) -> Ints:
        """Rows of a trace's last boundary."""
        k = int(np.flatnonzero(self.traces == trace)[0]) - len(self.traces)
        return np.split(self.rows, self.bounds[1:])[k]


def find_steps(rows: Rows, calls: Calls, times: CallTimes, given: int | None = None) -> Steps:
    """Steps after the warm-up: the profiler's marks, else what recurs in the order of launches.

    As many steps for every rank, the last ones: windows may begin at different calls.

    given  number of steps in each trace, where that is known: equal parts of its launches
    """
    warm = warm_until(rows, calls, times)
    n = len(rows.ranks)
    source, found = "window", [_window(rows, t, int(warm[t])) for t in range(n)]
    searched: Sequence[tuple[str, Callable[[Rows, int], Ints]]] = (
        ("marks", _marked), ("kernels", _by_kernels), ("period", _by_collectives)
    )  # fmt: skip
    if given is not None:
        cut = [_after(rows, _equal_parts(rows, t, given), int(warm[t])) for t in range(n)]
        source, found, searched = "given", cut, ()
    for name, ends_of in searched:
        ends = [_after(rows, ends_of(rows, t), int(warm[t])) for t in range(n)]
        if ends and min(len(e) for e in ends) > 1:
            source, found = name, ends
            break
    good = [t for t in range(n) if len(found[t]) > 1]
    count = min((len(found[t]) for t in good), default=2) - 1
    lasts = [_boundaries(rows, t, found[t][-1 - count :]) for t in good]
    streams = [part.shape[1] for part in lasts]
    table = np.concatenate([np.empty((count + 1, 0), dtype=np.int64), *lasts], axis=1)
    begins = np.cumsum([0, *streams])[: len(good)]
    held = np.add.reduceat(table >= 0, begins, axis=1, dtype=np.int64).ravel()
    return Steps(
        source,
        table[table >= 0],
        np.cumsum(held) - held,
        np.full(len(good), count, dtype=np.int64),
        np.array(good, dtype=np.int64),
    )


def _boundaries(rows: Rows, trace: int, ends: Ints) -> Ints:
    """Per row of `ends` the last row of each stream that ends with it at the latest; -1: none."""
    mine = rows.of(trace)
    order = mine.start + np.lexsort((rows.end[mine], rows.stream[mine]))
    begins = np.unique(rows.stream[order], return_index=True)[1].tolist()
    lasts = np.full((len(ends), len(begins)), -1, dtype=np.int64)
    for column, (a, b) in enumerate(pairwise([*begins, len(order)])):
        place = np.searchsorted(rows.end[order[a:b]], rows.end[ends], side="right")
        lasts[:, column] = np.where(place > 0, order[a + place - 1], -1)
    return lasts


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


def recurring_kernels(rows: Rows, trace: int) -> tuple[Ints, int | None]:
    """Kernels on the busiest stream in their order, and after how many they recur.

    What a step launches recurs in its order, whatever streams and ranks do meanwhile. None where
    nothing recurs. Rows of a trace stand in the order of their starts: on a stream that is the one
    of their launches, of which those before the trace began are not known.
    """
    mine: Ints = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    mine = mine[(rows.kind[mine] == Kind.KERNEL) & (rows.entry[mine] < 0)]
    if not len(mine):
        return mine, None
    streams, number = np.unique(rows.stream[mine], return_inverse=True)
    busiest: Ints = mine[rows.stream[mine] == streams[np.bincount(number).argmax()]]
    names = rows.name[busiest].astype(np.int64)
    period = find_period(names)
    # Kernels of one name recur after every one: that is no step.
    return busiest, period if period and len(np.unique(names[-period:])) > 1 else None


def _by_kernels(rows: Rows, trace: int) -> Ints:
    """Per period of the kernels the row that ends last of those launched by then."""
    recurring, period = recurring_kernels(rows, trace)
    kernels: Ints = recurring[rows.launch[recurring] != UNKNOWN_LAUNCH]
    if not period:
        return kernels[:0]
    mine = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    mine = mine[rows.launch[mine] != UNKNOWN_LAUNCH]
    mine = mine[np.argsort(rows.launch[mine], kind="stable")]
    # Behind the last kernel of a period come the launches up to the first of the next one.
    first = kernels[::-1][period - 1 :: period][::-1]
    cuts = np.append(np.searchsorted(rows.launch[mine], rows.launch[first]), len(mine))
    ends = [mine[:cut][rows.end[mine[:cut]].argmax()] for cut in cuts.tolist() if cut]
    return np.array(ends, dtype=np.int64)


def _by_collectives(rows: Rows, trace: int) -> Ints:
    """The last collective of every period, the last one of the trace among them."""
    mine = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    mine = mine[rows.entry[mine] >= 0]
    kind = rows.entry[mine].astype(np.int64) * len(rows.streams) + rows.stream[mine]
    period = find_period(kind)
    return mine[::-1][::period][::-1] if period else mine[:0]


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


def _equal_parts(rows: Rows, trace: int, steps: int) -> Ints:
    """The first row launched, and per step the row that ends last of those launched by then.

    Every step launches as much as the others: where in its step a trace begins does not matter.
    """
    mine = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    if len(mine) <= steps:
        return mine[:0]
    launch = np.where(rows.launch[mine] != UNKNOWN_LAUNCH, rows.launch[mine], rows.start[mine])
    mine = mine[np.argsort(launch, kind="stable")]
    end = rows.end[mine]
    latest = np.maximum.accumulate(
        np.where(end == np.maximum.accumulate(end), np.arange(len(mine)), 0)
    )
    cuts = np.rint(np.linspace(0, len(mine), steps + 1)).astype(np.int64)
    chosen: Ints = mine[latest[np.maximum(cuts - 1, 0)]]
    return chosen


def _window(rows: Rows, trace: int, warm: int) -> Ints:
    """First row after the warm-up and the row that ends last."""
    mine = rows.of(trace)
    after: Ints = mine.start + np.flatnonzero(rows.start[mine] >= warm)
    if len(after) < 2:
        return after[:0]
    return np.array([after[0], after[rows.end[after].argmax()]])
