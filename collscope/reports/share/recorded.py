"""What part of the wall time collectives take, by the GPU times of recordings."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from collscope.reports.tolerances import MIN_WINDOWS

_WINDOWS = """
SELECT comm_id, class_id, calls, kernels, kernel_ns, shortest_ns FROM recorded_windows
WHERE run = ? ORDER BY comm_id, class_id, window
"""

# Calls of every communicator and class on its ranks, and what of them is no collective with times.
_CALLS = """
SELECT t.comm_id, t.class_id, l.op, l.size_bytes, l.nranks, SUM(t.calls),
       SUM(t.calls * t.ranks_seen)
FROM call_totals t JOIN classes l USING (run, class_id) WHERE run = ?
GROUP BY t.comm_id, t.class_id ORDER BY t.comm_id, t.class_id
"""

# Only the wall time of processes with GPU times is what these are part of.
_WALL = """
SELECT COUNT(*), TOTAL(wall_ns), TOTAL(callback_ns), COUNT(callback_ns) FROM (
    SELECT MAX(c.end_ns) - MIN(c.begin_ns) AS wall_ns,
           CASE WHEN MIN(c.part) = 0 THEN MAX(c.callback_ns) END AS callback_ns,
           MAX(EXISTS (SELECT 1 FROM kernels e WHERE e.source_id = c.source_id)) AS timed
    FROM recordings c WHERE run = ? GROUP BY COALESCE(c.process, c.source_id))
WHERE timed AND wall_ns > 0
"""

_WARM_UP = """
SELECT TOTAL(duration_ns) FROM kernels JOIN call_times USING (run, call_id)
JOIN recordings USING (run, source_id) WHERE run = ? AND warm_up
"""


_WALL_PERCENT = 101.0  # of the wall time: the clocks of its ends and of the calls differ


class RecordedClassShare(msgspec.Struct, frozen=True):
    """Calls of one class on one communicator. Percentages are of the wall time of all ranks."""

    comm_id: int
    class_id: int
    op: str
    size_bytes: int | None
    nranks: int | None
    calls: int
    timed_calls: int  # with a GPU time on any rank, warm-up left out
    mean_ns: float | None  # of a timed call on a rank; None: no call has a time
    least_percent: float  # calls without a time count with the shortest timed one
    percent: float | None  # they count with the mean; None: too few windows, or no call has a time


class RecordedShare(msgspec.Struct, frozen=True):
    """Part of the wall time, from the first call to the last one, in which collectives ran.

    Calls of a rank that run at the same time count each, as long as the sum is below the wall time.
    Where calls are sampled there is no upper end: a call without a time may have waited for any
    time. Calls of one communicator run one after the other: where they sum to more than the wall
    time, their times are wrong, and no percentage is known.
    """

    least_percent: float
    # estimate; exact where all calls have a time; None: too few windows, or above the wall time
    percent: float | None
    ranks: int  # processes with GPU times
    wall_ns: int  # mean of the ranks, without the warm-up
    calls: int  # collectives; those without any time of their class are in `untimed_calls`
    timed_calls: int
    untimed_calls: int  # of communicators and classes without any time: in no percentage
    callback_percent: float | None  # of the wall time: the recorder's callbacks; None: not known
    classes: tuple[RecordedClassShare, ...]  # most time first
    # what calls sum to, in percent, where that is above the wall time: of one communicator, which
    # cannot be; or of all, because communicators overlap
    impossible_percent: float | None = None
    overlapping_percent: float | None = None


class _Window(NamedTuple):
    """Calls that follow each other: kernels, their summed and their shortest duration."""

    calls: int
    kernels: int
    kernel_ns: int
    shortest_ns: int


def read_recorded_share(connection: sqlite3.Connection, run: str) -> RecordedShare | None:
    """The share by the run's recordings; None where they have no GPU times or no wall time."""
    windows: dict[tuple[int, int], list[_Window]] = defaultdict(list)
    for comm, class_, *counts in connection.execute(_WINDOWS, (run,)):
        windows[comm, class_].append(_Window(*counts))
    if not windows:
        return None
    ranks, wall, callbacks, known = connection.execute(_WALL, (run,)).fetchone()
    wall -= connection.execute(_WARM_UP, (run,)).fetchone()[0]
    if wall <= 0:
        return None
    rows = [
        _row((comm, class_, op, size, nranks, calls), members, windows[comm, class_], wall)
        for comm, class_, op, size, nranks, calls, members in connection.execute(_CALLS, (run,))
    ]
    timed = [row for row in rows if row.timed_calls]
    estimates = [row.percent for row in timed if row.percent is not None]
    found = RecordedShare(
        least_percent=sum(row.least_percent for row in rows),
        percent=sum(estimates) if len(estimates) == len(timed) else None,
        ranks=ranks,
        wall_ns=round(wall / ranks),
        calls=sum(row.calls for row in rows),
        timed_calls=sum(row.timed_calls for row in rows),
        untimed_calls=sum(row.calls for row in rows if not row.timed_calls),
        callback_percent=100 * callbacks / wall if known == ranks else None,
        classes=tuple(sorted(rows, key=lambda row: -row.least_percent)),
    )
    return within_wall(found)


def within_wall(share: RecordedShare) -> RecordedShare:
    """The share without percentages above the wall time, which no rank can spend in collectives."""
    of_comm: dict[int, float] = defaultdict(float)
    for row in share.classes:
        of_comm[row.comm_id] += row.least_percent
    most = max(of_comm.values(), default=0.0)
    if most > _WALL_PERCENT:
        classes = tuple(replace(row, least_percent=0.0, percent=None) for row in share.classes)
        return replace(
            share, least_percent=0.0, percent=None, classes=classes, impossible_percent=most
        )
    if share.least_percent > _WALL_PERCENT:
        return replace(
            share, least_percent=most, percent=None, overlapping_percent=share.least_percent
        )
    if share.percent is not None and share.percent > _WALL_PERCENT:
        return replace(share, percent=None)
    return share


def _row(
    key: tuple[int, int, str, int | None, int | None, int],
    members: int,
    windows: Sequence[_Window],
    wall_ns: float,
) -> RecordedClassShare:
    """One class on one communicator.

    key      the first six fields of the record
    members  calls times ranks: kernels, timed or not
    windows  in the order of their calls; the recorder takes the first always, others by chance
    """
    timed = sum(window.calls for window in windows)
    kernels = sum(window.kernels for window in windows)
    if not kernels:
        return RecordedClassShare(*key, 0, None, 0.0, None)
    known_ns = sum(window.kernel_ns for window in windows)
    untimed = max(members - kernels, 0)
    shortest_ns = min(window.shortest_ns for window in windows)
    later = windows[1:]
    percent = None
    if not untimed:
        percent = 100 * known_ns / wall_ns
    elif len(later) >= MIN_WINDOWS:
        mean_ns = sum(window.kernel_ns for window in later) / sum(w.kernels for w in later)
        percent = 100 * (known_ns + untimed * mean_ns) / wall_ns
    least = 100 * (known_ns + untimed * shortest_ns) / wall_ns
    return RecordedClassShare(*key, timed, known_ns / kernels, least, percent)
