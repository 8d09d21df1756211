"""How much slower compute kernels are beside collectives, from the record itself (pure).

The same kernel of every step and rank is launched at the same place of the step. Where it ran
beside a collective in one and alone in another, the two durations give its slowdown: a matrix
product that fills all multiprocessors but once may need nearly twice as long, a copy a few percent
more. A collective that waits for its last rank takes its part, too: its kernel holds
multiprocessors.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints, Kind
from collscope.timeline.overlap import covered, union
from collscope.timeline.steps import recurring_kernels
from collscope.timeline.tolerances import MAX_BESIDE_ALONE, MIN_BESIDE, MIN_PAIRED_TIME

Floats = npt.NDArray[np.float64]


class Contention(msgspec.Struct, frozen=True):
    """Slowdown of compute kernels beside collectives, in parts of their time alone."""

    mean: float | None  # over the kernels' time; None: too few ran both alone and beside one
    slowdown: Floats  # (rows,) of each kernel; the mean where its own is not known
    share: Floats  # (rows,) of each kernel's time with a collective of its rank beside it

    def alone(self, duration: Floats | Ints, slowdown: Floats) -> Floats:
        """Times with nothing beside, ns, of kernels that lasted `duration` as recorded."""
        found: Floats = duration * (1 - self.share * slowdown / (1 + slowdown))
        return found


def measure_contention(rows: Rows, calls: Calls) -> Contention:
    """Slowdown of one job's compute kernels, over all ranks and steps.

    A kernel's own is that of its place in the step, else that of all with its name.
    """
    duration = (rows.end - rows.start).astype(np.float64)
    share = _beside(rows, calls)
    unknown = Contention(None, np.zeros(len(rows)), share)
    periods = [recurring_kernels(rows, t) for t in range(len(rows.ranks))]
    places = [
        (np.arange(len(kernels))[::-1] % period * len(rows.names) + rows.name[kernels], kernels)
        for kernels, period in periods
        if period and period == periods[0][1]
    ]
    if not places:
        return unknown
    row = np.concatenate([kernels for _, kernels in places])
    place = np.unique(np.concatenate([p for p, _ in places]), return_inverse=True)[1]
    alone, beside = share[row] < MAX_BESIDE_ALONE, share[row] > MIN_BESIDE
    base = _means(place[alone], duration[row[alone]], place)
    pairs = beside & (base > 0)
    if base[pairs].sum() < MIN_PAIRED_TIME * duration[row].sum():
        return unknown
    compute = (rows.entry < 0) & (rows.kind == Kind.KERNEL)
    mean = max(0.0, float(duration[row[pairs]].sum() / base[pairs].sum() - 1))
    slowdown = np.where(compute, mean, 0.0)
    for key, wanted, into in (
        (rows.name[row], rows.name[compute], np.flatnonzero(compute)),
        (place, place, row),
    ):
        with_one = _means(key[pairs], duration[row[pairs]], wanted)
        without = _means(key[pairs], base[pairs], wanted)
        known = without > 0
        slowdown[into[known]] = np.maximum(with_one[known] / without[known] - 1, 0.0)
    return Contention(mean, slowdown, share)


def _means(key: npt.NDArray[np.int64], values: Floats, wanted: npt.NDArray[np.int64]) -> Floats:
    """Mean of the values of each key that is wanted; 0 where it has none."""
    size = int(max(key.max(initial=0), wanted.max(initial=0))) + 1
    count = np.bincount(key, minlength=size)
    total = np.bincount(key, weights=values, minlength=size)
    means: Floats = (total / np.maximum(count, 1))[wanted]
    return means


def _beside(rows: Rows, calls: Calls) -> Floats:
    """Share of each compute kernel's time with a collective of its rank beside it."""
    share = np.zeros(len(rows))
    for trace in range(len(rows.ranks)):
        trace_rows = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
        collective = np.sort(calls.row[calls.trace == trace])
        compute = trace_rows[(rows.entry[trace_rows] < 0) & (rows.kind[trace_rows] == Kind.KERNEL)]
        busy = union(rows.start[collective], rows.end[collective])
        with_one = covered(*busy, rows.end[compute]) - covered(*busy, rows.start[compute])
        share[compute] = with_one / np.maximum(rows.end[compute] - rows.start[compute], 1)
    return share
