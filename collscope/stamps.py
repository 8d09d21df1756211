"""Which times of a source can be believed: one rule for logs, profiles, traces and recordings.

A clock that jumps, a stamp that was never taken and a sentinel look like data, and one of them is
enough to make "100 % of the time is waiting" or "0 % of GPU time in collectives". So a row's time
is held against the rest of its source, and a row that cannot be true is left out of every number,
counted and told. A row is not believed when

1. `UNTIMED`: it has no time: a start or end below 0 or above `LATEST_NS` (the year 2096; the
   sentinels 2^63 - 1 and 2^64 - 1 lie behind it), or a duration above `LONGEST_NS` (no job waits a
   week). A start of 0 is none either where the row is then longer than all the rest of its source:
   CUPTI writes 0 for what it could not take.
2. `BACKWARDS`: it ends before it starts.
3. `OVERLAPPING`: it runs for `OVERLAP_NS` or more while other rows of its own stream start and
   end. A stream runs one row after the other: in 25 000 rows of CUDA traces none begins before the
   end of the one before, and in 43 915 of a ROCm trace such overlaps last 55 us at most. One wrong
   stamp explains the row that reaches over the others, two or more would be needed to make the
   others wrong. Where more than one row in a hundred of a stream does so, the source's "streams"
   run several rows at once (shared hardware queues, graphs), and the rule says nothing.
4. `OUTLYING`: it is no collective, lasts `LONG_NS` or more, and longer than everything else of its
   source takes from first start to last end. Of fewer than `FEW` other rows that says nothing.
5. `MISPLACED`: it starts `LONG_NS` or more after rows of its own stream that were launched later,
   or before rows launched earlier: a stream runs in the order of the launches. (Not less: a launch
   may be held up for seconds while another thread launches.) Only for sources that tell launches,
   and, as rule 3, only where few rows of a stream do so.

A collective waits for its last rank as long as that rank takes: ten minutes for one that loads
data, half an hour until the watchdog ends it, as the first row of a source, the last, or its
longest part. So no length below `LONGEST_NS` speaks against it. What it waits for shows on its
stream: nothing else runs there, so rule 3 leaves it alone. One that is longer than all the rest is
kept and told (`long_wait`). So is a row that stands apart from all the rest by a minute and more
than the rest lasts (`row_apart`): a GPU may idle so long before its first kernel, and a clock may
have jumped; idle times and spans depend on which it is. Ranks that do not agree on a wait are a
matter of `collscope.match` and `collscope.timeline`, where ranks meet.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict, replace

from collscope.model import Diagnostic, Severity
from collscope.model.trace import Ints, RecordedCall, RecordedCalls, TraceColumns, TraceFile

Bools = npt.NDArray[np.bool_]

LATEST_NS = 4 * 10**18
LONGEST_NS = 7 * 86_400 * 10**9
OVERLAP_NS = 1_000_000
LONG_NS = 60 * 10**9
FEW = 10  # rows that tell how long a source is
_NO_STREAM = ("", "None", "copy")  # labels of a trace's rows whose stream or queue is not told
_EXCERPT = 200  # characters
_EXCEPTIONAL = 100  # of so many rows of a stream, one may be wrong

BELIEVED, UNTIMED, BACKWARDS, OVERLAPPING, OUTLYING, MISPLACED = range(6)

_MESSAGES = {
    UNTIMED: (
        "untimed_row",
        "Rows whose start or end is not a valid time are left out of all numbers.",
    ),
    BACKWARDS: (
        "ends_before_start",
        "Rows that end before they start are left out of all numbers.",
    ),
    OVERLAPPING: (
        "impossible_time",
        "Rows that run while others start and end on their own stream are left out of all "
        "numbers: a clock jumped, or a stamp is wrong.",
    ),
    OUTLYING: (
        "outlying_time",
        "Kernels and copies of a minute or more that last longer than all the rest of the source "
        "are left out of all numbers: a clock jumped, or a stamp is wrong.",
    ),
    MISPLACED: (
        "misplaced_time",
        "Rows that start a minute or more out of the order of their stream's launches are left out "
        "of all numbers: a clock jumped, or a stamp is wrong.",
    ),
}
_UNTIMED_CALL = (
    "Times of calls that cannot be true (sentinels, an end before the start, longer than a week)"
    " are left out; the calls are kept."
)
_LONG_WAIT = (
    "long_wait",
    "Collectives of a minute or more that last longer than all the rest of the source are kept: "
    "they may have waited for a late rank. If none was late, a stamp is wrong.",
)


_APART = (
    "row_apart",
    "Rows that are apart from the rest of the source by a minute, and by more than the rest lasts,"
    " are kept. If a clock jumped there, idle times and spans are wrong.",
)


class StampJudgement(msgspec.Struct, frozen=True):
    """What became of the rows of a source, by their index."""

    reason: npt.NDArray[np.int8]  # (rows,) BELIEVED, or why not
    long_waits: Ints  # believed collectives that are longer than all the rest
    apart: Ints  # believed rows that stand far from all the rest

    @property
    def believed(self) -> Bools:
        """Rows that count, shape (rows,)."""
        result: Bools = self.reason == BELIEVED
        return result


def judge(
    start: Ints,
    end: Ints,
    stream: npt.NDArray[Any],
    collective: Bools,
    launch: Ints | None = None,
) -> StampJudgement:
    """Hold the rows of one source, or of one clock of it, against each other.

    start, end  (rows,) ns
    stream      (rows,) equal for rows that run one after the other; -1: not known
    collective  (rows,) kernels that may wait for other ranks
    launch      (rows,) ns on the same clock, -1: not known; None: of no row
    """
    reason = np.zeros(len(start), dtype=np.int8)
    timed = (start >= 0) & (start <= LATEST_NS) & (end >= 0) & (end <= LATEST_NS)
    reason[~timed] = UNTIMED
    reason[timed & (end < start)] = BACKWARDS
    # Sentinels would overflow the differences.
    duration = np.where(timed, end, 0) - np.where(timed, start, 0)
    reason[duration > LONGEST_NS] = UNTIMED
    if launch is not None:
        _judge_order(start, stream, launch, reason)
    _judge_streams(start, end, stream, reason)
    long_waits = _judge_lengths(start, end, collective, reason)
    return StampJudgement(reason, long_waits, _apart(start, end, reason))


def _judge_order(
    start: Ints, stream: npt.NDArray[Any], launch: Ints, reason: npt.NDArray[np.int8]
) -> None:
    """Rule 5, in one sweep over all streams."""
    rows = np.flatnonzero((reason == BELIEVED) & (stream != -1) & (launch >= 0))
    if len(rows) < 2:
        return
    rows = rows[np.lexsort((start[rows], launch[rows], stream[rows]))]
    for a, b in _streams(stream[rows]):
        begin = start[rows[a:b]]
        soonest_after = np.append(np.minimum.accumulate(begin[::-1])[::-1][1:], begin[-1])
        latest_before = np.append(begin[0], np.maximum.accumulate(begin)[:-1])
        for out in (begin - soonest_after >= LONG_NS, latest_before - begin >= LONG_NS):
            if 0 < out.sum() <= max(1, (b - a) // _EXCEPTIONAL):
                reason[rows[a:b][out]] = MISPLACED
                break


def _streams(own: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Where the rows of each stream begin and end, of rows sorted by stream."""
    cuts = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1], [True]]))
    return list(pairwise(cuts.tolist()))


def _judge_streams(
    start: Ints, end: Ints, stream: npt.NDArray[Any], reason: npt.NDArray[np.int8]
) -> None:
    """Rule 3, in one sweep over all streams."""
    rows = np.flatnonzero((reason == BELIEVED) & (stream != -1) & (end > start))
    if len(rows) < 2:
        return
    rows = rows[np.lexsort((-end[rows], start[rows], stream[rows]))]
    # Nothing overlaps in most sources: then the ends rise, and there is nothing to look for.
    late = end[rows[:-1]] > end[rows[1:]]
    for a, b in _streams(stream[rows]):
        if not late[a : b - 1].any():
            continue
        begin, finish = start[rows[a:b]], end[rows[a:b]]
        after = np.searchsorted(begin, begin, side="right")  # first row that starts later
        least = np.append(np.minimum.accumulate(finish[::-1])[::-1], LATEST_NS)
        follower = np.append(begin, LATEST_NS)[after]
        over = (least[after] <= finish) & (finish - follower >= OVERLAP_NS)
        if 0 < over.sum() <= max(1, (b - a) // _EXCEPTIONAL):
            reason[rows[a:b][over]] = OVERLAPPING


def _judge_lengths(start: Ints, end: Ints, collective: Bools, reason: npt.NDArray[np.int8]) -> Ints:
    """Rule 4, and the starts of 0 of rule 1; returns the collectives that are kept all the same."""
    good = np.flatnonzero(reason == BELIEVED)
    duration = end[good] - start[good]
    long = duration >= LONG_NS
    rest = good[~long]
    none = np.empty(0, dtype=np.int64)
    if not long.any() or len(rest) < FEW:
        return none
    extent = int(end[rest].max() - start[rest].min())
    beyond = good[long & (duration > extent)]
    reason[beyond[~collective[beyond]]] = OUTLYING
    reason[beyond[start[beyond] == 0]] = UNTIMED
    waits: Ints = beyond[reason[beyond] == BELIEVED]
    return waits


def _apart(start: Ints, end: Ints, reason: npt.NDArray[np.int8]) -> Ints:
    """Few rows at either end of the source, behind a gap longer than all the rest."""
    good = np.flatnonzero(reason == BELIEVED)
    few = max(1, len(good) // _EXCEPTIONAL)
    if len(good) < FEW + few:
        return np.empty(0, dtype=np.int64)
    order = good[np.argsort(start[good], kind="stable")]
    begin, reach = start[order], np.maximum.accumulate(end[order])
    gap = begin[1:] - reach[:-1]
    before = [k + 1 for k in range(few) if gap[k] > max(LONG_NS, reach[-1] - begin[k + 1])]
    last = len(order)
    after = [
        k for k in range(last - few, last) if gap[k - 1] > max(LONG_NS, reach[k - 1] - begin[0])
    ]
    first, behind = max(before, default=0), min(after, default=last)
    alone: Ints = np.concatenate([order[:first], order[behind:]])
    return alone


def diagnostics(found: StampJudgement, excerpt: Callable[[int], str]) -> list[Diagnostic]:
    """What is told of a source's times, counted by rule, each with its first row.

    excerpt  row's index to how a person finds it
    """
    told = []
    for reason, (code, text) in _MESSAGES.items():
        rows = np.flatnonzero(found.reason == reason)
        if len(rows):
            shown = excerpt(int(rows[0]))[:_EXCERPT]
            told.append(Diagnostic(Severity.DATA_LOSS, code, text, None, shown, len(rows)))
    for rows, what in ((found.long_waits, _LONG_WAIT), (found.apart, _APART)):
        if len(rows):
            shown = excerpt(int(rows[0]))[:_EXCERPT]
            told.append(Diagnostic(Severity.NOTICE, *what, None, shown, len(rows)))
    return told


def believed_trace(trace: TraceFile) -> tuple[TraceFile, Ints]:
    """The trace without rows whose times cannot be true, which its diagnostics count.

    returns  also the index of each row that is kept
    """
    c = trace.columns
    told = np.array([label not in _NO_STREAM for label in trace.streams] + [False])
    stream = np.where(told[c.stream], c.stream, -1)
    found = judge(c.start_ns, c.end_ns, stream, c.collective >= 0, c.launch_ns)
    kept = np.flatnonzero(found.believed)
    if len(kept) == len(c) and not len(found.long_waits) and not len(found.apart):
        return trace, kept

    def excerpt(row: int) -> str:
        return f"{trace.names[c.name[row]]}: {c.start_ns[row]} to {c.end_ns[row]} ns"

    columns = TraceColumns(**{name: column[kept] for name, column in asdict(c).items()})
    notes = (*trace.diagnostics, *diagnostics(found, excerpt))
    calls = trace.calls and replace(trace.calls, of_row=trace.calls.of_row[kept])
    return replace(trace, columns=columns, calls=calls, diagnostics=notes), kept


def believed_recording(recorded: RecordedCalls) -> RecordedCalls:
    """The recording without times that cannot be true; the calls stay.

    Calls of a recorder overlap, and no sum is made of them: only what is no time is left out.
    """
    calls = [_believed_call(call) for call in recorded.calls]
    wrong = [k for k, call in enumerate(calls) if call is not recorded.calls[k]]
    if not wrong:
        return recorded
    first = recorded.calls[wrong[0]]
    shown = f"{first.collective.op.value}: {first.start_ns} to {first.end_ns} ns"
    note = Diagnostic(Severity.DATA_LOSS, "untimed_call", _UNTIMED_CALL, None, shown, len(wrong))
    return replace(recorded, calls=tuple(calls), diagnostics=(*recorded.diagnostics, note))


def _believed_call(call: RecordedCall) -> RecordedCall:
    start, end, duration = call.start_ns, call.end_ns, call.duration_ns
    if start is not None and not 0 <= start <= LATEST_NS:
        start = None
    if end is not None and not (start or 0) <= end <= LATEST_NS:
        end = None
    if duration is not None and not 0 <= duration <= LONGEST_NS:
        duration = None
    if (start, end, duration) == (call.start_ns, call.end_ns, call.duration_ns):
        return call
    return replace(call, start_ns=start, end_ns=end, duration_ns=duration)
