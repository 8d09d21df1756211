"""When the collectives of a step start, recorded and played: how far the two are apart (pure).

What is played takes the recorded starts from causes; here they are the measure of it.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.timeline.steps import Steps

Floats = npt.NDArray[np.float64]


class Starts(msgspec.Struct, frozen=True):
    """Starts of the collectives of a step, at the median of the steps."""

    source: str  # where the steps come from
    ranks: tuple[int, ...]
    ns: Floats  # (ranks, collectives of a step) since the step's beginning

    def apart_ns(self, other: Starts) -> float | None:
        """Median distance of the starts; None where the steps are not of the same collectives."""
        if (self.source, self.ranks) != (other.source, other.ranks):
            return None
        if self.ns.shape != other.ns.shape:
            return None
        return float(np.median(np.abs(self.ns - other.ns)))


def find_starts(
    rows: Rows, calls: Calls, steps: Steps, start: Floats | Ints, end: Floats | Ints
) -> Starts | None:
    """Starts of a record, or of its play; None where its steps differ in their collectives.

    start, end  (rows,) ns, as recorded or as played; the collectives of each step are those of
                the recorded one
    """
    recorded, played = steps.ends(rows.end), steps.ends(end)
    found = []
    for place, trace in enumerate(steps.traces.tolist()):
        row = np.unique(calls.row[calls.trace == trace])
        step = np.searchsorted(recorded[:, place], rows.end[row]) - 1
        inside = [row[step == k] for k in range(len(recorded) - 1)]
        if not inside or not len(inside[0]) or len({len(indices) for indices in inside}) > 1:
            return None
        since = [start[indices] - played[k, place] for k, indices in enumerate(inside)]
        found.append(np.median(since, axis=0))
    if not found or len({len(indices) for indices in found}) > 1:
        return None
    return Starts(steps.source, tuple(rows.ranks[t] for t in steps.traces), np.array(found))
