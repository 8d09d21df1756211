"""How much slower compute kernels are beside collectives, as the record itself tells it (pure).

The same kernel of every step and rank is launched at the same place of the step. Where it ran
beside a collective in one and alone in another, the two durations tell the slowdown. A collective
that waits for its last rank takes its part, too: its kernel holds multiprocessors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.model.trace import Kind
from collscope.timeline.overlap import covered, union
from collscope.timeline.steps import recurring_kernels

Floats = npt.NDArray[np.float64]
_ALONE, _BESIDE = 0.1, 0.5  # share of a kernel's time with a collective beside it
_ENOUGH = 0.05  # of the kernels' time that pairs must cover


@dataclass(frozen=True, slots=True)
class Contention:
    """Slowdown of compute beside collectives: a kernel lasts alone * (1 + slowdown * share)."""

    slowdown: float | None  # None: no kernel ran both alone and beside a collective
    share: Floats  # (rows,) of each row's time with a collective beside it; 0 for collectives

    def alone(self, duration: Floats) -> Floats:
        """Durations with nothing beside, of rows that last `duration` as recorded; ns."""
        return duration / (1 + (self.slowdown or 0.0) * self.share)


def measure_contention(rows: Rows) -> Contention:
    """Slowdown of one job's compute kernels, over all ranks and steps."""
    duration = (rows.end - rows.start).astype(np.float64)
    share = beside_collectives(rows, rows.start.astype(np.float64), rows.end.astype(np.float64))
    places, samples = [], []
    periods = [recurring_kernels(rows, t) for t in range(len(rows.ranks))]
    for kernels, period in periods:
        if period and period == periods[0][1]:
            from_end = np.arange(len(kernels))[::-1] % period
            places.append(from_end * len(rows.names) + rows.name[kernels])
            samples.append(kernels)
    if not samples:
        return Contention(None, share)
    _, place = np.unique(np.concatenate(places), return_inverse=True)
    row = np.concatenate(samples)
    alone = share[row] < _ALONE
    count = np.bincount(place[alone], minlength=int(place.max()) + 1)
    total = np.bincount(place[alone], weights=duration[row][alone], minlength=len(count))
    base = np.where(count > 0, total / np.maximum(count, 1), 0.0)[place]
    pairs = (share[row] > _BESIDE) & (base > 0)
    if base[pairs].sum() < _ENOUGH * duration[row].sum():
        return Contention(None, share)
    slower = (duration[row][pairs] - base[pairs]).sum()
    slowdown = slower / (base[pairs] * share[row][pairs]).sum()
    return Contention(max(0.0, float(slowdown)), share)


def beside_collectives(rows: Rows, start: Floats, end: Floats) -> Floats:
    """Share of each compute kernel's time with a collective of its rank beside it.

    start, end  ns, any clock that is one per rank
    """
    share = np.zeros(len(rows))
    for trace in range(len(rows.ranks)):
        mine = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
        collective = mine[rows.entry[mine] >= 0]
        compute = mine[(rows.entry[mine] < 0) & (rows.kind[mine] == Kind.KERNEL)]
        order = collective[np.argsort(start[collective], kind="stable")]
        busy = union(start[order], end[order])
        with_one = covered(*busy, end[compute]) - covered(*busy, start[compute])
        share[compute] = with_one / np.maximum(end[compute] - start[compute], 1.0)
    return share
