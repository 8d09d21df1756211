"""GPUs that run nothing although their next work was launched (pure)."""

from __future__ import annotations

import numpy as np

from collscope.match.rows import UNKNOWN_LAUNCH
from collscope.model.trace import Ints


def queued_idle(start: Ints, end: Ints, launch: Ints) -> Ints:
    """(rows,) ns for which a GPU runs nothing before each row and after the launch of it.

    A launch has returned, at the latest, when the next one begins: it may itself take long.
    """
    found = np.zeros(len(start), dtype=np.int64)
    order = np.argsort(start, kind="stable")
    start, end, launch = start[order], end[order], launch[order]
    known = np.unique(launch[launch != UNKNOWN_LAUNCH])
    if not len(known):
        return found
    behind = np.searchsorted(known, launch, side="right")
    queued = (launch != UNKNOWN_LAUNCH) & (behind < len(known))
    returned = known[np.minimum(behind, len(known) - 1)]
    since = np.maximum(np.maximum.accumulate(end)[:-1], returned[1:])
    idle = np.where(queued[1:], start[1:] - since, 0)
    found[order[1:]] = np.maximum(idle, 0)
    return found
