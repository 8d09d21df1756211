"""The ceiling that an answer judges by: a system's reachable one, or a fit of the measurements."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from collscope.errors import CollscopeError, NoVerdictError
from collscope.model import Measurement, bus_factor
from collscope.roofline.catalogue import load_system
from collscope.roofline.fit import Fit, fit
from collscope.roofline.roof import REACHABLE, Roofs, Workload
from collscope.units import count

NO_SIZE = "size or ranks not known"  # why a class has no ceiling
FIT = "fit"  # the name of a system that asks for a fit of the measurements
_HALF_PEAK = 0.5  # below half of the bandwidth a size costs mostly latency


class RoofAt(msgspec.Struct, frozen=True):
    """The ceiling of one workload.

    time_low_us, time_high_us  range of time_us
    limit_gbps                 what the fabric allows, without latency; None for a fit
    regime                     latency or bandwidth
    assumed                    something behind it was never measured on such a machine
    """

    name: str
    work: Workload  # with the nodes that were assumed, where they are not known
    time_us: float
    time_low_us: float
    time_high_us: float
    busbw_gbps: float
    limit_gbps: float | None
    regime: str
    assumed: bool
    assumptions: tuple[str, ...]


class SystemRoofs:
    """The reachable ceiling of a system."""

    def __init__(self, name: str) -> None:
        """Roofs of a shipped system, a file, or NODE+NETWORK.

        raises  InputError when there is no such system
        """
        self._roofs = Roofs(load_system(name))
        self.name = f"{self._roofs.system.name} {REACHABLE}"

    def at(self, work: Workload, *, nodes_known: bool = True) -> RoofAt | str:
        """Roof of a workload, or why there is none.

        nodes_known  False: the fewest nodes of the system that hold the ranks are taken
        """
        notes: tuple[str, ...] = ()
        if not nodes_known and work.nranks > 0:
            nodes = self._roofs.system.fewest_nodes(work.nranks)
            work = replace(work, nnodes=nodes)
            notes = (f"{count(nodes, 'node')} assumed",)
        try:
            ceilings = self._roofs.ceilings(work)
        except CollscopeError as error:
            return str(error)
        if ceilings is None:
            ranks = count(work.nranks, "rank")
            return f"no roof for {work.op.value} of {work.size_bytes} B on {ranks}"
        roof = ceilings.reachable
        return RoofAt(
            roof.name,
            work,
            roof.time_us,
            roof.time_low_us,
            roof.time_high_us,
            roof.busbw_gbps,
            ceilings.limit.peak_gbps,
            roof.regime,
            roof.assumed,
            (*roof.assumptions, *notes),
        )

    def why_above(self, roof: RoofAt, measured_us: float) -> str | None:
        """Why a time can be below the roof's; None when it is not."""
        return self._roofs.judge(roof.work, measured_us, REACHABLE).why


class FitRoofs:
    """The best time of the measurements at each size."""

    def __init__(self, fitted: Fit) -> None:
        """Roofs of a fit."""
        self._fit = fitted
        self.name = f"fit of {fitted.name}"

    def at(self, work: Workload, *, nodes_known: bool = True) -> RoofAt | str:
        """Fitted time of a workload, or why there is none."""
        curve = self._fit.curve(work.op, work.nranks, work.nnodes)
        factor = bus_factor(work.op, work.nranks)
        if curve is None or factor is None or work.size_bytes <= 0:
            nodes = f" on {count(work.nnodes, 'node')}" if nodes_known else ""
            ranks = count(work.nranks, "rank")
            return f"no measurements of {work.op.value} on {ranks}{nodes} to fit"
        if work.size_bytes < curve.sizes[0]:
            # the time of a larger message says nothing about the least time of this one
            return "smaller than any measured message"
        time_us = curve.time_us(work.size_bytes)
        busbw = work.size_bytes * factor / (time_us * 1000)
        peak = max(
            size * factor / (time * 1000)
            for size, time in zip(curve.sizes, curve.times_us, strict=True)
        )
        notes = [f"best of {count(len(curve.sizes), 'size')}"]
        if not curve.covers(work.size_bytes):
            notes.append("beyond the measured sizes")
        regime = "bandwidth" if busbw >= _HALF_PEAK * peak else "latency"
        return RoofAt(
            self.name, work, time_us, time_us, time_us, busbw, None, regime, False, tuple(notes)
        )

    def why_above(self, roof: RoofAt, measured_us: float) -> str | None:
        """A median below the fitted time: only with other settings than the fitted ones."""
        if measured_us >= roof.time_us:
            return None
        return f"faster than every measurement of the {self.name}"


AnyRoofs = SystemRoofs | FitRoofs


def make_roofs(system: str | None, rows: Iterable[Measurement]) -> AnyRoofs | None:
    """What was asked for: a system by name, `fit`, or nothing.

    raises  InputError for an unknown system, NoVerdictError when there is nothing to fit
    """
    if system is None:
        return None
    return SystemRoofs(system) if system != FIT else fitted(rows)


def fitted(rows: Iterable[Measurement]) -> FitRoofs:
    """Roof of the best measurements of any label.

    raises  NoVerdictError when there are none with a size, ranks and a time
    """
    # rows without a number of nodes are taken to be of one
    return FitRoofs(fit(rows, "the run's measurements"))


def empirical(rows: Iterable[Measurement]) -> FitRoofs | None:
    """The best of several labels, as a second ceiling; None when only one label was measured.

    The best of a single setting is that setting: it would say that nothing can be gained.
    """
    usable = [row for row in rows if row.usable and not row.on_host]
    if len({row.label for row in usable}) < 2:
        return None
    try:
        return fitted(usable)
    except NoVerdictError:
        return None
