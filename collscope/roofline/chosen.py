"""The ceiling that an answer judges by: a system's reachable one, or a fit of the measurements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from collscope.errors import NoVerdictError
from collscope.model import Measurement, bus_factor
from collscope.model.note import Note
from collscope.roofline.fit import BEYOND, Fit, fit
from collscope.roofline.workload import RoofAt, Workload
from collscope.units import count

if TYPE_CHECKING:
    from collscope.roofline.system_roofs import SystemRoofs

NO_SIZE = "size or ranks not known"  # why a class has no ceiling
FIT = "fit"  # the name of a system that asks for a fit of the measurements
_HALF_PEAK = 0.5  # below half of the bandwidth a size costs mostly latency


class FitRoofs:
    """The best time of the measurements at each size."""

    def __init__(self, fitted: Fit) -> None:
        """Roofs of a fit."""
        self._fit = fitted
        self.name = f"fit of {fitted.name}"

    def other_gpus(self, _names: Iterable[str]) -> None:
        """None: a fit is of what ran."""

    def at(self, work: Workload, *, nodes_known: bool = True) -> RoofAt | str:
        """Fitted time of a workload, or why there is none."""
        curve = self._fit.curve(work.op, work.nranks, work.nnodes)
        factor = bus_factor(work.op, work.nranks)
        if curve is None or factor is None or work.size_bytes <= 0:
            nodes = f" on {count(work.nnodes, 'node')}" if nodes_known else ""
            ranks = count(work.nranks, "rank")
            return f"no measurements of {work.op.value} on {ranks}{nodes} to fit"
        if work.size_bytes < curve.sizes[0]:
            # the time of a larger message does not bound the least time of this one
            return "smaller than any measured message"
        time_ns = 1000 * curve.time_us(work.size_bytes)
        busbw = work.size_bytes * factor / time_ns
        peak = max(
            size * factor / (time * 1000)
            for size, time in zip(curve.sizes, curve.times_us, strict=True)
        )
        sizes = len(curve.sizes)
        notes = [Note("best_of_sizes", {"sizes": sizes}, f"best of {count(sizes, 'size')}")]
        if not curve.covers(work.size_bytes):
            notes.append(BEYOND)
        regime = "bandwidth" if busbw >= _HALF_PEAK * peak else "latency"
        return RoofAt(
            self.name, work, time_ns, time_ns, time_ns, busbw, None, regime, False, tuple(notes)
        )

    def why_above(self, roof: RoofAt, measured_ns: float) -> str | None:
        """A median below the fitted time: only with other settings than the fitted ones."""
        if measured_ns >= roof.time_ns:
            return None
        return f"faster than every measurement of the {self.name}"


AnyRoofs: TypeAlias = "SystemRoofs | FitRoofs"


def make_roofs(
    system: str | None, rows: Iterable[Measurement], *, multicast: bool = True
) -> AnyRoofs | None:
    """The requested roofs: of a system by name, `fit`, or nothing.

    multicast  False: the job's switches do not reduce, by its log
    raises     InputError for an unknown system, NoVerdictError when there is nothing to fit
    """
    if system is None:
        return None
    if system == FIT:
        return fitted(rows)
    # Most answers name no system, and what a system's ceilings need takes long to load.
    from collscope.roofline.system_roofs import SystemRoofs  # noqa: PLC0415

    return SystemRoofs(system, multicast=multicast)


def fitted(rows: Iterable[Measurement]) -> FitRoofs:
    """Roof of the best measurements of any label.

    raises  NoVerdictError when there are none with a size, ranks and a time
    """
    # rows without a number of nodes count as one node
    return FitRoofs(fit(rows, "the run's measurements"))


def empirical(rows: Iterable[Measurement]) -> FitRoofs | None:
    """The best of several labels, as a second ceiling; None when only one label was measured.

    The best of a single setting is that setting: it would show that nothing can be saved.
    """
    usable = [row for row in rows if row.usable and not row.on_host]
    if len({row.label for row in usable}) < 2:
        return None
    try:
        return fitted(usable)
    except NoVerdictError:
        return None
