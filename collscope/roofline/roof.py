"""The ceilings of a class on a system: the limit, the reachable time, and the best measured time.

limit      what the fabric allows: S f / B, B from `bounds`; no latency is counted
reachable  what the library reaches on that wiring: measured on such a machine, else the `curve` of
           its protocols between the latency of `floors` and the bandwidth of `reachable`; with a
           range that holds what machines of the kind reach
fit        the best time measured on this machine

S is the size, f the bus bandwidth factor. Gains, efficiencies and verdicts use the reachable
ceiling, or the fit where there is one. In addition the library's own cost model ranks algorithms
(`ranking`); it does not predict times. A `Roofs` keeps what does not depend on size, so
thousands of classes are cheap.
"""

from __future__ import annotations

from math import inf

import msgspec
from msgspec.structs import replace

from collscope.model import Op, bus_bandwidth, bus_factor
from collscope.model.note import Note
from collscope.roofline.bounds import Bounds, Request, bounds
from collscope.roofline.curve import NVLS, TimeCurve, curve_of
from collscope.roofline.fit import BEYOND, Curve, Fit
from collscope.roofline.floors import Floor, floor_of, model_lines, unknown_floor
from collscope.roofline.nccl_model import CostLine
from collscope.roofline.reachable import Reach, reachable_ways, with_switches
from collscope.roofline.system import System
from collscope.roofline.workload import IMPOSSIBLE, Workload, not_applying
from collscope.units import count

_LATENCY_SIZE = 1024  # a time measured at up to so many bytes is all latency
LIMIT, REACHABLE, FIT = "limit", "reachable", "fit"


# What runs of the same class on the same machine differ by: the rounds of nccl-tests on 4 H200 lie
# within 0.8 and 1.25 of their median in 97 % of the cells.
MEASURED_LOW, MEASURED_HIGH = 0.8, 1.25


_LINE_RATES = Note("line_rates", {}, "line rates, no latency")


class Roof(msgspec.Struct, frozen=True):
    """One ceiling at one size.

    ceiling           limit, reachable or fit
    time_ns           of one call; busbw_gbps what that is
    time_low_ns, time_high_ns  range of the time; equal to it where nothing is uncertain
    peak_gbps         bus bandwidth of large messages; None for a fit
    floor_ns          least time of any size; None where it is not known or not counted
    regime            latency when the floor is most of the time, else bandwidth
    limit             links, network or in-network: what bounds it
    algorithm         of the reachable ceiling: ring, tree, direct, switches that reduce; where
                      the latency is most of the time PAT or halving, if that is theirs
    assumed           a rate or a floor behind it was never measured on such a machine
    by_rings_ns       where switches that reduce are what makes it: the time without them
    """

    name: str
    ceiling: str
    time_ns: float
    time_low_ns: float
    time_high_ns: float
    busbw_gbps: float
    peak_gbps: float | None
    floor_ns: float | None
    regime: str
    limit: str
    algorithm: str | None
    assumed: bool
    assumptions: tuple[Note, ...]
    by_rings_ns: float | None = None


class Ceilings(msgspec.Struct, frozen=True):
    """The ceilings of one workload, side by side; fit is None where nothing was measured."""

    limit: Roof
    reachable: Roof
    fit: Roof | None

    @property
    def target(self) -> Roof:
        """The ceiling for efficiency and uplift: the fit where one exists, else the reachable."""
        return self.fit or self.reachable


class Efficiency(msgspec.Struct, frozen=True):
    """Ceiling time over measured time; above 1 the ceiling does not apply, for the reason `why`."""

    value: float
    roof: Roof
    applies: bool
    why: str | None


class Ranked(msgspec.Struct, frozen=True):
    """One algorithm and protocol in the library's own order; the first has ratio 1."""

    algorithm: str
    protocol: str
    ratio: float  # of its estimated time to the first one's


class _Shaped(msgspec.Struct, frozen=True):
    """What is the same for every size of one operation and communicator."""

    factor: float
    limit: Bounds
    reach: Reach
    floor: Floor | None  # None: no latency is known
    curve: TimeCurve
    measured: Curve | None  # on such a machine
    lines: tuple[CostLine, ...]  # of the library's model; empty for in-network reduction


class Roofs:
    """Ceilings on one system, with a cache of what does not depend on size."""

    def __init__(self, system: System, fitted: Fit | None = None) -> None:
        """Ceilings of `system`; `fitted` adds one where it has a curve."""
        self.system = system
        self.fitted = fitted
        self._measured = {curve.key: curve for curve in system.measured}
        self._shaped: dict[Request, _Shaped | None] = {}

    def ceilings(self, work: Workload) -> Ceilings | None:
        """Every ceiling of a workload; None for one rank and operations without data.

        raises  UsageError when the system has too few GPUs, or does not describe them
        """
        shaped = self._shape(work)
        if shaped is None or work.size_bytes <= 0:
            return None
        return Ceilings(
            limit=self._limit(work, shaped),
            reachable=self._reachable(work, shaped),
            fit=self._fit(work, shaped),
        )

    def ranking(self, work: Workload) -> tuple[Ranked, ...]:
        """The library's algorithms and protocols for a workload, its own first choice first.

        Empty where its constants are not known, or switches reduce.
        """
        shaped = self._shape(work)
        if shaped is None or not shaped.lines or work.size_bytes <= 0 or work.in_network:
            return ()
        ordered = sorted(shaped.lines, key=lambda line: line.time_us(work.size_bytes))
        least = ordered[0].time_us(work.size_bytes)
        return tuple(
            Ranked(line.algorithm, line.protocol, line.time_us(work.size_bytes) / least)
            for line in ordered
        )

    def judge(self, work: Workload, measured_ns: float, ceiling: str = "target") -> Efficiency:
        """Efficiency of a measured time against a ceiling that exists for the workload.

        raises  ValueError when the workload has no such ceiling
        """
        ceilings = self.ceilings(work)
        roof = None if ceilings is None else getattr(ceilings, ceiling)
        if roof is None or measured_ns <= 0:
            raise ValueError(f"no {ceiling} ceiling, or no time")
        value = roof.time_ns / measured_ns
        applies = value <= 1 + 1e-9
        return Efficiency(value, roof, applies, None if applies else self._why(work, roof, value))

    def _shape(self, work: Workload) -> _Shaped | None:
        """Bounds, floor and model lines of the workload's shape, from the cache."""
        request = Request(work.op, work.nranks, work.nnodes, scheduled=work.scheduled)
        if work.in_network:
            request = replace(request, in_network=True, tree=work.tree)
        elif work.multicast:
            request = with_switches(self.system, request)
        if request not in self._shaped:
            self._shaped[request] = self._compute(request)
        return self._shaped[request]

    def _compute(self, request: Request) -> _Shaped | None:
        """What `_shape` keeps."""
        op, nranks, nnodes = request.op, request.nranks, request.nnodes
        limit, factor = bounds(self.system, request), bus_factor(op, nranks)
        if limit is None or factor is None:
            return None
        ways = reachable_ways(self.system, request)
        curve = self._curve(op, nranks, nnodes)
        floor = floor_of(self.system, op, nranks, nnodes)
        if curve is not None and curve.sizes[0] <= _LATENCY_SIZE:
            least = curve.times_us[0]
            floor = Floor(least, least, least, "measured on this machine", True)
        return _Shaped(
            factor,
            limit,
            ways[0],
            floor,
            curve_of(
                self.system, request, ways, floor or unknown_floor(self.system.domains(nnodes))
            ),
            self._measured.get((op, nranks, nnodes)),
            model_lines(self.system, op, nranks, nnodes),
        )

    def _curve(self, op: Op, nranks: int, nnodes: int) -> Curve | None:
        """Measured curve of a shape."""
        return None if self.fitted is None else self.fitted.curve(op, nranks, nnodes)

    def _limit(self, work: Workload, shaped: _Shaped) -> Roof:
        """The least time that the fabric allows."""
        found = shaped.limit
        time = _transfer_us(work, shaped, found.busbw_gbps)
        return Roof(
            name=f"{self.system.name} {LIMIT}",
            ceiling=LIMIT,
            time_ns=1000 * time,
            time_low_ns=1000 * time,
            time_high_ns=1000 * time,
            busbw_gbps=found.busbw_gbps,
            peak_gbps=found.busbw_gbps,
            floor_ns=None,
            regime="bandwidth",
            limit=found.limit,
            algorithm=None,
            assumed=False,
            assumptions=(*found.assumptions, _LINE_RATES, *self.system.notes),
        )

    def _reachable(self, work: Workload, shaped: _Shaped) -> Roof:
        """What the library's algorithms reach: as measured on such a machine, else the curve."""
        reach, curve = shaped.reach, shaped.curve
        floor = shaped.floor or unknown_floor(self.system.domains(work.nnodes))
        data = work.size_bytes * shaped.factor
        time, low, high = (end.time_us(data) for end in (curve.value, curve.fast, curve.slow))
        notes = (*reach.assumptions, latency_note(floor), *curve.notes, *self.system.notes)
        own = shaped.measured
        assumed = reach.assumed or not floor.measured or curve.assumed
        if own is not None and own.reaches(work.size_bytes):
            time = own.time_us(work.size_bytes)
            low, high = MEASURED_LOW * time, MEASURED_HIGH * time
            notes = (_measured_note(own.source), *self.system.notes)
            assumed = False
        transfer = _transfer_us(work, shaped, reach.busbw_gbps)
        rings = curve.value.without(NVLS)
        # the limit holds for every range
        low = max(low, _transfer_us(work, shaped, shaped.limit.hard_gbps))
        latency_by = floor.algorithm
        return Roof(
            name=f"{self.system.name} {REACHABLE}",
            ceiling=REACHABLE,
            time_ns=1000 * max(time, low),
            time_low_ns=1000 * low,
            time_high_ns=1000 * max(high, time, low),
            busbw_gbps=work.size_bytes * shaped.factor / (time * 1000),
            peak_gbps=reach.busbw_gbps,
            floor_ns=None if shaped.floor is None else 1000 * floor.us,
            # an unknown latency may be as long as any that was published
            regime="latency"
            if (floor.us if shaped.floor else floor.high_us) > transfer
            else "bandwidth",
            limit=shaped.limit.limit,
            algorithm=latency_by if floor.us > transfer and latency_by else reach.algorithm,
            assumed=assumed,
            assumptions=notes,
            by_rings_ns=None if rings is None else 1000 * rings.time_us(data),
        )

    def _fit(self, work: Workload, shaped: _Shaped) -> Roof | None:
        """The best time measured, where there is a curve that reaches the size."""
        curve = self._curve(work.op, work.nranks, work.nnodes)
        if self.fitted is None or curve is None or not curve.reaches(work.size_bytes):
            return None
        name, sizes, unusable = self.fitted.name, len(curve.sizes), self.fitted.unusable
        notes = [
            Note(
                "best_of_sizes",
                {"sizes": sizes, "measurements": name},
                f"best of {count(sizes, 'size')} of {name}",
            )
        ]
        if unusable:
            notes.append(
                Note(
                    "unusable_left_out",
                    {"unusable": unusable, "measurements": name},
                    f"{count(unusable, 'measurement')} of {name} failed or wrong, left out",
                )
            )
        if not curve.covers(work.size_bytes):
            notes.append(BEYOND)
        time = curve.time_us(work.size_bytes)
        busbw = work.size_bytes * shaped.factor / (time * 1000)
        return Roof(
            name=f"{self.system.name} {FIT}",
            ceiling=FIT,
            time_ns=1000 * time,
            time_low_ns=1000 * time,
            time_high_ns=1000 * time,
            busbw_gbps=busbw,
            peak_gbps=None,
            floor_ns=None,
            regime="bandwidth" if 2 * busbw >= shaped.reach.busbw_gbps else "latency",
            limit=shaped.limit.limit,
            algorithm=None,
            assumed=False,
            assumptions=tuple(notes),
        )

    def _why(self, work: Workload, roof: Roof, value: float) -> str:
        """Why a measured time can be below a ceiling's."""
        start = not_applying(roof.name)
        if roof.ceiling == FIT:
            return start + "The time is faster than every measurement of the fit: fit again."
        measured_ns = roof.time_ns / value
        if roof.ceiling == REACHABLE and measured_ns >= roof.time_low_ns:
            return (
                f"The time is within the range of '{roof.name}' "
                f"({roof.time_low_ns / 1000:.4g} to {roof.time_high_ns / 1000:.4g} us): no further"
                " saving is expected."
            )
        if roof.regime == "latency":
            return start + (
                "A message this small can be faster with another algorithm or release, with CUDA "
                "graphs, or where calls overlap."
            )
        shaped = self._shape(work)
        busbw = bus_bandwidth(
            work.op, size=work.size_bytes, time_s=measured_ns / 1e9, nranks=work.nranks
        )
        if shaped is None or busbw is None:
            return start
        return start + self._reason(work, shaped, busbw)

    def _reason(self, work: Workload, shaped: _Shaped, busbw: float) -> str:
        """Which other bound a bus bandwidth in GB/s would fit under."""
        seen = f"{busbw:.4g} GB/s is "
        limit = shaped.limit
        if busbw <= limit.busbw_gbps:
            return (
                f"{seen}below the limit of the links, {limit.busbw_gbps:.4g}: the library's "
                "algorithms reach more here than on known machines of this kind."
            )
        if busbw <= limit.hard_gbps:
            tree = "with a tree or another schedule than ReduceScatter and AllGather, or "
            tree = tree if work.op is Op.ALL_REDUCE else ""
            return f"{seen}possible {tree}over several paths, up to {limit.hard_gbps:.4g}."
        request = Request(work.op, work.nranks, work.nnodes, in_network=True)
        reduced = bounds(self.system, request)
        if reduced is not None and reduced.limit == "in-network" and busbw <= reduced.busbw_gbps:
            return (
                f"{seen}possible where switches reduce ({reduced.assumptions[-1].text}), "
                f"up to {reduced.busbw_gbps:.4g}."
            )
        return (
            f"{seen}{IMPOSSIBLE}: the ranks, nodes, size or system are wrong, or switches reduce "
            "(NVLS, SHARP)."
        )


def latency_note(floor: Floor) -> Note:
    """Where the latency of a ceiling is from."""
    return Note("latency", {"source": floor.source}, f"latency {floor.source}")


def _measured_note(source: str) -> Note:
    return Note(
        "measured", {"source": source}, f"reachable speed measured on such a machine: {source}"
    )


def _transfer_us(work: Workload, shaped: _Shaped, gbps: float) -> float:
    """Time at a bus bandwidth; a wiring that leaves a GPU without links carries nothing."""
    return work.size_bytes * shaped.factor / (gbps * 1000) if gbps > 0 else inf
