"""The library's own count of a communicator's launches, and what follows from it (pure).

NCCL and RCCL print a communicator's ``opCount`` with each call. Where it moves it counts launches:
each is one call, or one group of calls, which share it. On one host it stays 0 in most releases.
Recorded on H200: NCCL 2.32.3 counts calls, also those of a group; NCCL 2.30.7 does not count a
Broadcast, whose count is that of the next call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from collscope.model import Op

Ints = npt.NDArray[Any]

# A call of these alone is one launch. Those that are made of transfers, and groups, may be split
# into several launches (ncclLaunchPrepare of enqueue.cc), which raise the count unseen.
ONE_LAUNCH = frozenset((Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.BROADCAST, Op.REDUCE))


def counts_calls(rank: int, counts: Ints, sends: Ints, recvs: Ints) -> bool:
    """Whether the count of one rank's communicator rises within a group.

    A rank's Send to itself waits for its own Recv: alone it would never end.

    counts  opCount of its Send and Recv rows, in order
    sends   peer of each Send row, -1 of others
    recvs   peer of each Recv row, -1 of others

    >>> counts_calls(0, np.array([8, 9]), np.array([0, -1]), np.array([-1, 0]))
    True
    >>> counts_calls(0, np.array([7, 7]), np.array([0, -1]), np.array([-1, 0]))
    False
    """
    sent, received = counts[sends == rank], counts[recvs == rank]
    return bool(len(sent)) and len(sent) == len(received) and bool((sent != received).all())


def launch_numbers(counts: Ints, broadcast: Ints) -> Ints:
    """Number of the launch of each row of one rank's communicator; all 0 where the count stays.

    counts     opCount, in the order of the log
    broadcast  whether the row is a Broadcast

    >>> launch_numbers(np.array([1, 2, 2, 3]), np.array([False, True, False, False])).tolist()
    [0, 1, 2, 3]
    """
    starts = np.zeros(len(counts), dtype=bool)
    starts[1:] = counts[1:] != counts[:-1]
    if not starts.any():
        return starts.astype(np.int64)
    behind = broadcast[:-1] & ~broadcast[1:]
    if behind.any() and not starts[1:][behind].any():  # the library counts none
        starts[1:] |= broadcast[:-1]
    return np.cumsum(starts)


def lacking_launches(members: Iterable[tuple[Ints, Ints]]) -> int:
    """Launches that all members of a communicator lack between two that they have.

    members  per rank with calls: opCount of its rows in the order of the log, and whether each row
             is of an operation in `ONE_LAUNCH`; taken until a member lacks none
    returns  0 where a count does not rise, or shows nothing; what a log begins with, or ends with,
             may be a part of the job

    >>> rows = np.array([0, 1, 4, 4, 7])
    >>> lacking_launches([(rows, np.ones(5, bool))])
    2
    """
    common: list[tuple[int, int]] | None = None
    for counts, single in members:
        own = _gaps(counts, single)
        common = own if common is None else _both(common, own)
        if not common:
            return 0
    return sum(end - begin for begin, end in common or ())


def _gaps(counts: Ints, single: Ints) -> list[tuple[int, int]]:
    """Ranges of counts, without their end, that one rank lacks behind calls made alone."""
    if len(counts) < 2 or (counts[1:] < counts[:-1]).any():
        return []
    values, first, rows = np.unique(counts, return_index=True, return_counts=True)
    behind_one = (rows[:-1] == 1) & single[first[:-1]]
    at = np.flatnonzero(behind_one & (values[1:] - values[:-1] > 1))
    return [(int(values[k]) + 1, int(values[k + 1])) for k in at]


def _both(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Parts of rising ranges that both have."""
    found = []
    i = j = 0
    while i < len(some) and j < len(others):
        begin, end = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if begin < end:
            found.append((begin, end))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found
