"""Which times of a source can be believed: one rule for logs, profiles, traces and recordings.

A clock that jumps, a stamp that was never taken and a sentinel look like data, and one of them is
enough to make "100 % of the time is waiting" or "0 % of GPU time in collectives". So a row's time
is held against the rest of its source, and a row that cannot be true is left out of every number,
and counted. A row is not believed when

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
   run several rows at once (shared hardware queues, graphs), and the rule does not apply.
4. `OUTLYING`: it is no collective, lasts `LONG_NS` or more, and longer than everything else of its
   source takes from first start to last end. With fewer than `FEW` other rows it does not apply.
5. `MISPLACED`: it starts `LONG_NS` or more after rows of its own stream that were launched later,
   or before rows launched earlier: a stream runs in the order of the launches. (Not less: a launch
   may be held up for seconds while another thread launches.) Where the source has the time at which
   the call that launched a row returned, and another was launched after that, `OVERLAP_NS` are
   enough.

Rules 3 and 5 leave out one row in a hundred of a stream at most. Where more contradict each other,
which are right is unknown: the rows are kept, and counted with a code of `TIMES_UNKNOWN`, for
which no figure is made of the source's times. Overlaps count there by the time that rows outlast
later ones of their stream, even by microseconds, from a hundredth of the stream's time on: less
moves no figure by more. A kernel may begin before the end of the one before it (programmatic
dependent launch), but does not end before it. Rows that one launch starts are a graph's, whose
branches may run at once on one stream number; of hardware queues no order is known.

A kernel takes time: one of no length (`zero_length`) was not timed, unless all stamps are whole
microseconds. Equal rows of one launch are one row, recorded twice.

In 500 000 rows of CUDA traces no collective overlaps another of its stream by a microsecond, and no
two rows of one start by more. So collectives of a stream that overlap by more than half of the
shorter, rows of one start and pairs of equal rows of one launch are no overlap of dependent
launches: stamps are rounded to more than the kernels last, lengths are wrong, or rows are there
twice. Where they are many, which rows are right is unknown.

The host waits for the device or for a stream until its rows have ended. Rows that end `OVERLAP_NS`
or more after the return of a wait behind their launch (`ends_after_wait`) are on another scale than
the host's calls, or on a clock that jumped.

A collective waits for its last rank as long as that rank takes: ten minutes for one that loads
data, half an hour until the watchdog ends it, as the first row of a source, the last, or its
longest part. So no length below `LONGEST_NS` speaks against it. What it waits for shows on its
stream: nothing else runs there, so rule 3 leaves it alone. One that is longer than all the rest is
kept and counted (`long_wait`). So is a row that stands apart from all the rest by a minute and more
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
from collscope.model.trace import (
    Call,
    HostCalls,
    Ints,
    Kind,
    RecordedCall,
    RecordedCalls,
    TraceColumns,
    TraceFile,
)

Bools = npt.NDArray[np.bool_]

LATEST_NS = 4 * 10**18
LONGEST_NS = 7 * 86_400 * 10**9
OVERLAP_NS = 1_000_000
LONG_NS = 60 * 10**9
# A block of a kernel takes microseconds to tens of them; overlaps of ROCm's rows last as long.
_BESIDE_NS = 100_000
FEW = 10  # rows needed to know how long a source is
_NO_STREAM = ("", "None", "copy")  # labels of a trace's rows that name no stream or queue
_QUEUE = "queue "  # how labels of hardware queues begin: several streams share them
_US = 1_000  # ns
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
        "Rows that start a minute or more out of the launch order of their stream are left out of "
        "all numbers: a clock jumped, or a stamp is wrong.",
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
    "Rows a minute or more away from the rest of the source, and further than the rest lasts, are "
    "kept. If a clock jumped there, idle times and spans are wrong.",
)
_ZERO_LENGTH = (
    "zero_length",
    "Kernels that end when they start were not timed: their time is not known, and counts as 0.",
)
REPEATED = (
    "repeated_row",
    "Rows that equal another in name, stream, start and end count once.",
)
# Contradictions of more than one row in a hundred: code and text.
_OVERLAPS = (
    "overlapping_rows",
    "Kernels or copies outlast later ones of their own stream, or overlap them further than"
    " launches that depend on each other do. A stream runs one after the other: starts or durations"
    " are wrong or rounded, or rows are in the source twice; which is unknown.",
)
_DISORDERED = (
    "disordered_rows",
    "Kernels or copies start out of the order in which they were launched on their stream: starts"
    " are wrong; which is unknown.",
)
_AFTER_WAIT = (
    "ends_after_wait",
    "Kernels or copies end after the host has waited for them: times of the GPU and of the host"
    " contradict each other; which are right is unknown.",
)
_UNTIMED_KERNELS = (
    "zero_length_kernels",
    "Kernels that end when they start were not timed: the time of the GPU is not known.",
)


class Launches(msgspec.Struct, frozen=True):
    """When the calls that launched rows began and returned: ns on the rows' clock."""

    start: Ints  # (rows,) -1: not known
    end: Ints | None = None  # (rows,) the same; None: of no row
    waited: Ints | None = None  # (rows,) return of the first wait for the row; `LATEST_NS`: none
    call: npt.NDArray[np.int32] | None = None  # (rows,) number of the call; -1: not known

    @property
    def number(self) -> npt.NDArray[Any]:
        """Equal for rows of one launch, shape (rows,); -1 where not known."""
        return self.start if self.call is None else self.call


class StampJudgement(msgspec.Struct, frozen=True):
    """What became of the rows of a source, by their index."""

    reason: npt.NDArray[np.int8]  # (rows,) BELIEVED, or why not
    long_waits: Ints  # believed collectives that are longer than all the rest
    distant: Ints  # believed rows that stand far from all the rest
    overlaps: Ints  # rows that overlap others of their stream as cannot be, where they are many
    after_wait: Ints  # rows that end after the host waited for them, where they are many
    disordered: Ints  # rows out of the order of their stream's launches, where they are many
    zero_length: Ints  # kernels that end when they start
    of_kernels: int  # that `zero_length` were looked for in

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
    launches: Launches | None = None,
    kernel: Bools | None = None,
) -> StampJudgement:
    """Hold the rows of one source, or of one clock of it, against each other.

    start, end  (rows,) ns
    stream      (rows,) equal for rows that run one after the other; -1: not known
    collective  (rows,) kernels that may wait for other ranks
    launches    of the rows; None: of none
    kernel      (rows,) rows that take time; None: any may take none
    """
    reason = np.zeros(len(start), dtype=np.int8)
    timed = (start >= 0) & (start <= LATEST_NS) & (end >= 0) & (end <= LATEST_NS)
    reason[~timed] = UNTIMED
    reason[timed & (end < start)] = BACKWARDS
    # Sentinels would overflow the differences.
    duration = np.where(timed, end, 0) - np.where(timed, start, 0)
    reason[duration > LONGEST_NS] = UNTIMED
    disordered = overlaps = np.empty(0, dtype=np.int64)
    if launches is not None:
        disordered = _judge_order(start, stream, launches, reason)
    overlaps = _judge_streams(start, end, stream, launches, reason)
    together = _together(start, end, stream, collective, launches, reason)
    overlaps = np.union1d(overlaps, together)
    long_waits = _judge_lengths(start, end, collective, reason)
    kernels = np.zeros(len(start), dtype=bool) if kernel is None else kernel
    in_microseconds = bool(
        ((start % _US == 0) & (end % _US == 0)).all()
    )  # rounded to 0 where shorter
    zero = np.flatnonzero(kernels & (reason == BELIEVED) & (end == start) & (not in_microseconds))
    distant = _distant(start, end, reason)
    return StampJudgement(
        reason, long_waits, distant, overlaps, _after_wait(end, launches, reason),
        disordered, zero, int(kernels.sum()),
    )  # fmt: skip


def _judge_order(
    start: Ints,
    stream: npt.NDArray[Any],
    launches: Launches,
    reason: npt.NDArray[np.int8],
) -> Ints:
    """Rule 5, in one sweep over all streams; returns the rows of streams with too many."""
    launch, returned = launches.start, launches.end
    none = np.empty(0, dtype=np.int64)
    rows = np.flatnonzero((reason == BELIEVED) & (stream != -1) & (launch >= 0))
    if len(rows) < 2:
        return none
    rows = rows[np.lexsort((start[rows], launch[rows], stream[rows]))]
    many = []
    for a, b in _streams(stream[rows]):
        stream_rows = rows[a:b]
        begin = start[stream_rows]
        if (np.diff(begin) >= 0).all():
            continue
        soonest_after = np.append(np.minimum.accumulate(begin[::-1])[::-1][1:], begin[-1])
        latest_before = np.append(begin[0], np.maximum.accumulate(begin)[:-1])
        late, early = begin - soonest_after >= LONG_NS, latest_before - begin >= LONG_NS
        if returned is not None:
            surely_late, surely_early = _after_return(
                begin, launch[stream_rows], returned[stream_rows]
            )
            late, early = late | surely_late, early | surely_early
        out = min((late, early), key=lambda found: int(found.sum()))
        if not out.any():
            out = late | early
        if 0 < out.sum() <= max(1, (b - a) // _EXCEPTIONAL):
            reason[stream_rows[out]] = MISPLACED
        elif out.any():
            many.append(stream_rows[out])
    return np.sort(np.concatenate([none, *many]))


def _after_return(begin: Ints, launch: Ints, returned: Ints) -> tuple[Bools, Bools]:
    """Rows that start long after others launched when their own call had returned; the reverse.

    Of one stream, by launch.
    """
    known = returned > launch
    soonest = np.append(np.minimum.accumulate(begin[::-1])[::-1], LATEST_NS)
    behind = np.searchsorted(launch, np.where(known, returned, LATEST_NS), side="left")
    late = begin - soonest[behind] >= OVERLAP_NS
    order = np.flatnonzero(known)
    order = order[np.argsort(returned[order], kind="stable")]
    latest = np.append(-1, np.maximum.accumulate(begin[order])) if len(order) else np.array([-1])
    before = np.searchsorted(returned[order], launch, side="right")
    early = (latest[before] >= 0) & (latest[before] - begin >= OVERLAP_NS)
    return late, early


def _streams(own: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Where the rows of each stream begin and end, of rows sorted by stream."""
    cuts = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1], [True]]))
    return list(pairwise(cuts.tolist()))


def _judge_streams(
    start: Ints,
    end: Ints,
    stream: npt.NDArray[Any],
    launches: Launches | None,
    reason: npt.NDArray[np.int8],
) -> Ints:
    """Rule 3, in one sweep over all streams; returns the rows of streams with too many."""
    none = np.empty(0, dtype=np.int64)
    rows = np.flatnonzero((reason == BELIEVED) & (stream != -1) & (end > start))
    if len(rows) < 2:
        return none
    rows = rows[np.lexsort((-end[rows], start[rows], stream[rows]))]
    # Nothing overlaps in most sources: then the ends rise, and there is nothing to look for.
    late = end[rows[:-1]] > end[rows[1:]]
    many = []
    for a, b in _streams(stream[rows]):
        if not late[a : b - 1].any():
            continue
        stream_rows = rows[a:b]
        over = _outlast(start[stream_rows], end[stream_rows], OVERLAP_NS)[0]
        if 0 < over.sum() <= max(1, (b - a) // _EXCEPTIONAL):
            reason[stream_rows[over]] = OVERLAPPING
            stream_rows = stream_rows[~over]
        if launches is not None:
            stream_rows = stream_rows[~_of_graphs(launches.number[stream_rows])]
        over, excess = _outlast(start[stream_rows], end[stream_rows], 0)
        if excess * _EXCEPTIONAL > (end[stream_rows] - start[stream_rows]).sum():
            many.append(stream_rows[over])
    return np.sort(np.concatenate([none, *many]))


def _outlast(begin: Ints, finish: Ints, least_ns: int) -> tuple[Bools, int]:
    """Rows of a stream that end after later ones, and by how much in all.

    begin, finish  by start, then the longest first
    least_ns       that a row runs while the next ones start
    """
    after = np.searchsorted(begin, begin, side="right")  # first row that starts later
    least = np.append(np.minimum.accumulate(finish[::-1])[::-1], LATEST_NS)
    follower = np.append(begin, LATEST_NS)[after]
    over = (least[after] <= finish) & (finish - follower >= least_ns)
    return over, int((finish - least[after])[over].sum())


def _together(
    start: Ints,
    end: Ints,
    stream: npt.NDArray[Any],
    collective: Bools,
    launches: Launches | None,
    reason: npt.NDArray[np.int8],
) -> Ints:
    """Rows of streams with many that overlap others as no dependent launch does."""
    none = np.empty(0, dtype=np.int64)
    rows = np.flatnonzero((reason == BELIEVED) & (stream != -1) & (end > start))
    rows = rows[np.lexsort((end[rows], start[rows], stream[rows]))]
    near = (stream[rows][1:] == stream[rows][:-1]) & (
        start[rows][1:] < end[rows][:-1] - _US  # shorter overlaps are of the stamps' rounding
    )
    if not near.any():
        return none
    many = []
    found: tuple[list[Ints], ...] = [], [], []
    looked_at = [0, 0, 0]
    for a, b in _streams(stream[rows]):
        stream_rows = rows[a:b]
        launch = np.full(b - a, -1) if launches is None else launches.number[stream_rows]
        begin, finish = start[stream_rows], end[stream_rows]
        collectives, number = _collectives_over(start, end, stream_rows[collective[stream_rows]])
        kinds = (
            (stream_rows[_at_once(begin, finish, launch)], b - a),
            (stream_rows[_long_beside(begin, finish, launch)], b - a),
            (collectives, number),
        )
        for k, (own, among) in enumerate(kinds):
            found[k].append(own)
            looked_at[k] += among
            if len(own) > max(1, among // _EXCEPTIONAL):
                many.append(own)
    # Of all streams, too: short ones have a pair each.
    for every, among in zip(found, looked_at, strict=True):
        if sum(map(len, every)) > max(1, among // _EXCEPTIONAL):
            many += every
    return np.unique(np.concatenate([none, *many]))


def _long_beside(begin: Ints, finish: Ints, launch: Ints) -> Bools:
    """Rows of one stream that begin long before an earlier one ends, and by half of the shorter.

    Rows of one launch are a graph's, whose branches run at the same time.
    """
    found = np.zeros(len(begin), dtype=bool)
    reach = np.maximum.accumulate(finish)[:-1]
    overlap = np.minimum(reach, finish[1:]) - begin[1:]
    length = finish - begin
    found[1:] = overlap >= np.maximum(_BESIDE_NS, np.minimum(length[1:], length[:-1]) // 2)
    if found.any():
        found &= ~_of_graphs(launch)
    return found


def _collectives_over(start: Ints, end: Ints, stream_rows: Ints) -> tuple[Ints, int]:
    """Collectives of one stream that begin before another ends by half the shorter; of how many."""
    if len(stream_rows) < 2:
        return stream_rows[:0], len(stream_rows)
    before = np.maximum.accumulate(end[stream_rows])[:-1]
    overlap = np.minimum(before, end[stream_rows][1:]) - start[stream_rows][1:]
    length = end[stream_rows] - start[stream_rows]
    over = overlap > np.maximum(_US, np.minimum(length[1:], length[:-1]) // 2)
    return stream_rows[1:][over], len(stream_rows)


def _at_once(begin: Ints, finish: Ints, launch: Ints) -> Bools:
    """Rows of one stream that start with the one before, or are a second row of one launch.

    A graph's branches start at once; no graph of two equal rows is worth its launch. Where no
    launch is known, rows of one length that start within the stamps' rounding are copies.
    """
    found = np.zeros(len(begin), dtype=bool)
    close = np.diff(begin) <= _US
    overlap = np.minimum(finish[1:], finish[:-1]) - begin[1:] > _US
    known, place, often = np.unique(launch, return_inverse=True, return_counts=True)
    rows = np.where(known[place] >= 0, often[place], 1)
    length = finish - begin
    alike = np.abs(np.diff(length)) <= _US
    twins = (launch[1:] == launch[:-1]) & (rows[1:] == 2) & alike
    unknown = known[place] < 0
    copies = unknown[1:] & unknown[:-1] & alike
    same = (begin[1:] == begin[:-1]) & (rows[1:] == 1) & (rows[:-1] == 1)
    found[1:] = close & overlap & (twins | copies | same)
    return found


def _after_wait(end: Ints, launches: Launches | None, reason: npt.NDArray[np.int8]) -> Ints:
    """Rows that end after the host waited for them, where more than one in a hundred does."""
    none = np.empty(0, dtype=np.int64)
    if launches is None or launches.waited is None:
        return none
    waited = np.flatnonzero((reason == BELIEVED) & (launches.waited < LATEST_NS))
    late = waited[end[waited] - launches.waited[waited] >= OVERLAP_NS]
    return late if len(late) > max(1, len(waited) // _EXCEPTIONAL) else none


def _of_graphs(launch: Ints) -> Bools:
    """Rows of a stream whose launch started others of it, too."""
    known, place, often = np.unique(launch, return_inverse=True, return_counts=True)
    found: Bools = (often[place] > 1) & (known[place] >= 0)
    return found


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


def _distant(start: Ints, end: Ints, reason: npt.NDArray[np.int8]) -> Ints:
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
    """Diagnostics of a source's times, counted by rule, each with its first row.

    excerpt  row's index to how a person finds it
    """
    notes = []
    for reason, (code, text) in _MESSAGES.items():
        rows = np.flatnonzero(found.reason == reason)
        if len(rows):
            shown = excerpt(int(rows[0]))[:_EXCERPT]
            notes.append(Diagnostic(Severity.DATA_LOSS, code, text, None, shown, len(rows)))
    untimed = len(found.zero_length) * _EXCEPTIONAL > found.of_kernels
    kept = (
        (Severity.DATA_LOSS, found.overlaps, _OVERLAPS),
        (Severity.DATA_LOSS, found.after_wait, _AFTER_WAIT),
        (Severity.DATA_LOSS, found.disordered, _DISORDERED),
        (Severity.DATA_LOSS, found.zero_length, _UNTIMED_KERNELS if untimed else _ZERO_LENGTH),
        (Severity.NOTICE, found.long_waits, _LONG_WAIT),
        (Severity.NOTICE, found.distant, _APART),
    )
    for severity, rows, what in kept:
        if len(rows):
            shown = excerpt(int(rows[0]))[:_EXCERPT]
            notes.append(Diagnostic(severity, *what, None, shown, len(rows)))
    return notes


def believed_trace(trace: TraceFile) -> tuple[TraceFile, Ints]:
    """The trace without rows whose times cannot be true, which its diagnostics count.

    returns  also the index of each row that is kept
    """
    c = trace.columns
    once = _first_of_equals(c, None if trace.calls is None else trace.calls.of_row)
    repeated = len(c) - len(once)
    c = c if not repeated else TraceColumns(**{n: v[once] for n, v in asdict(c).items()})
    named = np.array(
        [s not in _NO_STREAM and not s.startswith(_QUEUE) for s in trace.streams] + [False]
    )
    stream = np.where(named[c.stream], c.stream, -1)
    returned = waited = call = None
    if trace.calls is not None:  # a row without a call has the place -1
        call = trace.calls.of_row[once]
        returned = np.append(trace.calls.end_ns, -1)[call]
        waited = _waited(trace.calls, c.stream, returned)
    found = judge(
        c.start_ns,
        c.end_ns,
        stream,
        c.collective >= 0,
        Launches(c.launch_ns, returned, waited, call),
        c.kind == Kind.KERNEL,
    )

    def excerpt(row: int) -> str:
        return f"{trace.names[c.name[row]]}: {c.start_ns[row]} to {c.end_ns[row]} ns"

    notes = tuple(diagnostics(found, excerpt))
    if repeated:
        first = np.setdiff1d(np.arange(len(trace.columns)), once)[0]
        shown = trace.names[trace.columns.name[first]][:_EXCERPT]
        notes += (Diagnostic(Severity.NOTICE, *REPEATED, None, shown, repeated),)
    kept = np.flatnonzero(found.believed)
    if len(kept) == len(trace.columns) and not notes:
        return trace, kept
    columns = TraceColumns(**{name: column[kept] for name, column in asdict(c).items()})
    calls = trace.calls and replace(trace.calls, of_row=trace.calls.of_row[once[kept]])
    steps = tuple(sorted(set(trace.steps)))
    return (
        replace(
            trace, columns=columns, calls=calls, steps=steps,
            diagnostics=(*trace.diagnostics, *notes),
        ),
        once[kept],
    )  # fmt: skip


def _waited(calls: HostCalls, stream: npt.NDArray[np.int32], returned: Ints) -> Ints:
    """When the first wait behind each row's launch returned, for the device or the row's stream."""
    result = np.full(len(stream), LATEST_NS)
    waits = (calls.kind == Call.STREAM_SYNC) & (calls.stream >= 0)
    for own in (-1, *np.unique(calls.stream[waits]).tolist()):
        of = calls.kind == Call.DEVICE_SYNC if own < 0 else waits & (calls.stream == own)
        begin, back = calls.start_ns[of], calls.end_ns[of]  # by start
        soonest = np.append(np.minimum.accumulate(back[::-1])[::-1], LATEST_NS)
        bound = soonest[np.searchsorted(begin, returned, side="left")]
        stream_rows = (returned >= 0) & ((own < 0) | (stream == own))
        result = np.where(stream_rows, np.minimum(result, bound), result)
    return result


def _first_of_equals(c: TraceColumns, call: npt.NDArray[np.int32] | None) -> Ints:
    """Rows of a trace without those that equal another and are of no other call of the host.

    call  (rows,) that launched each; -1: not known. Rows of two calls are two, though they be
          rounded to one time
    """
    every = np.arange(len(c))
    # By start: rows that have one in common are few, so only they are looked at.
    same = np.flatnonzero(c.start_ns[1:] == c.start_ns[:-1])
    if not len(same):
        return every
    look = np.unique(np.concatenate([same, same + 1]))
    columns = np.stack(
        [c.start_ns[look], c.end_ns[look], c.stream[look], c.name[look], c.kind[look], c.seq[look]]
    )
    if call is not None:
        alike = np.asarray(np.unique(columns, axis=1, return_inverse=True)[1]).reshape(-1)
        known = np.full(alike.max() + 1, -1, dtype=np.int64)
        np.maximum.at(known, alike, call[look])
        columns = np.vstack([columns, np.where(call[look] < 0, known[alike], call[look])])
    _, first = np.unique(columns, axis=1, return_index=True)
    repeated = np.setdiff1d(np.arange(len(look)), first)
    return np.delete(every, look[repeated])


def believed_recording(recorded: RecordedCalls) -> RecordedCalls:
    """The recording without times that cannot be true; the calls stay.

    Calls of a recorder overlap, and no sum is made of them: only what is no time is left out.
    """
    wrong = [
        k
        for k, call in enumerate(recorded.calls)
        if not 0
        <= (call.start_ns or 0)
        <= (LATEST_NS if call.end_ns is None else call.end_ns)
        <= LATEST_NS
        or not 0 <= (call.duration_ns or 0) <= LONGEST_NS
    ]
    if not wrong:
        return recorded
    calls = list(recorded.calls)
    for k in wrong:
        calls[k] = _believed_call(calls[k])
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
