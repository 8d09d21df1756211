"""What part of the wall time collectives take, by the GPU times of recordings."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from collscope.stats import t_quantile

_CONFIDENCE = 0.95
_LEAST_WINDOWS = 3  # fewer show no spread

_WINDOWS = "SELECT comm_id, class_id, calls, kernels, kernel_ns FROM recorded_windows WHERE run = ?"

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
    percent: float | None


class RecordedShare(msgspec.Struct, frozen=True):
    """Part of the wall time, from the first call to the last one, in which collectives ran.

    Calls of a rank that run at the same time count each. Calls without a time count with the mean
    of those of their communicator and class that have one.
    """

    percent: float
    low: float | None  # range of `percent`; None: too few windows show how the calls differ
    high: float | None
    ranks: int  # recordings with GPU times
    wall_ns: int  # mean of the ranks, without the warm-up
    calls: int  # collectives; what of them has no time of its class is in `untimed_calls`
    timed_calls: int
    untimed_calls: int  # of communicators and classes without any time: in no percentage
    callback_percent: float | None  # of the wall time: the recorder's callbacks; None: not known
    classes: tuple[RecordedClassShare, ...]  # most time first


class _Window(NamedTuple):
    """Calls that follow each other: kernels and their summed duration."""

    calls: int
    kernels: int
    kernel_ns: int


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
    rows, error, unsure = [], 0.0, False
    for comm, class_, op, size, nranks, calls, members in connection.execute(_CALLS, (run,)):
        own = windows.get((comm, class_), [])
        mean = _mean(own)
        timed = sum(window.calls for window in own)
        percent = None if mean is None else 100 * mean * members / wall
        rows.append(RecordedClassShare(comm, class_, op, size, nranks, calls, timed, mean, percent))
        if mean is not None and timed < calls:
            off = _error_of_mean(own, mean)
            unsure |= off is None
            error += (off or 0.0) * members
    share = sum(row.percent or 0.0 for row in rows)
    off_percent = 100 * error / wall
    return RecordedShare(
        percent=share,
        low=None if unsure else max(share - off_percent, 0.0),
        high=None if unsure else share + off_percent,
        ranks=ranks,
        wall_ns=round(wall / ranks),
        calls=sum(row.calls for row in rows),
        timed_calls=sum(row.timed_calls for row in rows),
        untimed_calls=sum(row.calls for row in rows if row.mean_ns is None),
        callback_percent=100 * callbacks / wall if known == ranks else None,
        classes=tuple(sorted(rows, key=lambda row: -(row.percent or 0.0))),
    )


def _mean(windows: Sequence[_Window]) -> float | None:
    """Mean duration of a kernel, ns; None without one."""
    kernels = sum(window.kernels for window in windows)
    return sum(window.kernel_ns for window in windows) / kernels if kernels else None


def _error_of_mean(windows: Sequence[_Window], mean: float) -> float | None:
    """By how much the mean of all calls may differ from that of the timed ones, ns.

    None: not known. Windows are the units: calls that follow each other are alike.
    source  variance of a ratio estimate: Cochran, Sampling Techniques, 3rd ed., section 6.4
    """
    n, kernels = len(windows), sum(window.kernels for window in windows)
    if n < _LEAST_WINDOWS:
        return None
    squares = sum((window.kernel_ns - mean * window.kernels) ** 2 for window in windows)
    deviation = math.sqrt(squares * n / (n - 1)) / kernels
    return t_quantile((1 + _CONFIDENCE) / 2, n - 1) * deviation
