"""How much compute may slow down beside the new collectives (pure)."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.timeline.recorded_job import RecordedJob, recorded_transfers
from collscope.timeline.tolerances import SLOWDOWN_PRIOR
from collscope.timeline.traced_transfers import Transfers, blocks_change

Floats = npt.NDArray[np.float64]


class ContentionReading(msgspec.Struct, frozen=True):
    """One reading of what compute kernels need, beside the old collectives and the new ones."""

    alone: Floats  # (rows,) ns with nothing beside
    old: Floats  # (rows,) slowdown beside the recorded collectives
    new: Floats  # (rows,) and beside those after the change


def contention_readings(
    recorded: RecordedJob, factor: Floats, traced: Transfers | None
) -> tuple[ContentionReading, ContentionReading, ContentionReading]:
    """What is possible beside the new collectives, the middle first.

    A collective slows compute down by the multiprocessors that its kernel holds, and by the bytes
    that it moves. As many of both: the slowdown stays. Between a slowdown that stays and one in
    proportion lies what a change of either does; the middle is their geometric mean.
    """
    graph, contention = recorded.graph, recorded.contention
    duration = graph.duration.astype(np.float64)
    more = blocks_change(recorded, traced)
    if more is None:
        transfer = recorded_transfers(recorded)
        total, new = float(transfer.sum()), float((transfer * factor).sum())
        more = total / max(1.0, new) if total > 0 else 1.0

    if contention.mean is None:
        none, prior = np.zeros(len(duration)), np.where(graph.compute, SLOWDOWN_PRIOR, 0.0)
        alone = contention.alone(duration, prior)
        least = ContentionReading(alone, prior, prior * min(1.0, more))
        greatest = ContentionReading(alone, prior, prior)
        if more > 1:
            greatest = ContentionReading(duration, none, prior)
        return ContentionReading(duration, none, none), least, greatest
    old = contention.slowdown
    alone = contention.alone(duration, old)
    most = max(1.0, SLOWDOWN_PRIOR / max(contention.mean, 1e-9))
    low, high = min(1.0, more), min(max(1.0, more), most)
    if low == high:
        same = ContentionReading(alone, old, old)
        return same, same, same
    middle, least, greatest = (
        ContentionReading(alone, old, old * scale)
        for scale in (float(np.sqrt(low * high)), low, high)
    )
    if more > 1:
        # What a few blocks do not slow down many may.
        prior = np.where(graph.compute, SLOWDOWN_PRIOR, 0.0)
        greatest = replace(greatest, new=np.maximum(greatest.new, prior))
    return middle, least, greatest
