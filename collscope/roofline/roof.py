"""The roof of a class on a system: the least time its size can take, by name and assumptions.

t_roof(S) = max(floor, S · f / B): B from `bounds`, f the bus bandwidth factor, the floor from the
smallest size measured, else from the library's latencies. Beside it stand the library's own
estimate (`model`) and the best time measured (`fit`). A `Roofs` keeps what does not depend on
size, so thousands of classes are cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from collscope.model import Op, bus_bandwidth, bus_factor
from collscope.roofline.bounds import Bounds, Request, bounds
from collscope.roofline.fit import Curve, Fit
from collscope.roofline.nccl_model import (
    MODELLED_OPS,
    CostLine,
    Shape,
    best_line,
    constants_of,
    cost_lines,
)
from collscope.roofline.system import System
from collscope.units import count

_IN_NETWORK_ALGORITHMS = ("NVLS", "COLLNET")
IMPOSSIBLE = "more than any schedule over these links reaches"
_LATENCY_SIZE = 1024  # a time measured at up to so many bytes is all latency


@dataclass(frozen=True, slots=True)
class Workload:
    """What a roof is asked for: the size-dependent part of a class.

    size_bytes  nccl-tests size S
    algorithm   the library's name where it is known: NVLS and CollNet have another bound
    """

    op: Op
    size_bytes: int
    nranks: int
    nnodes: int = 1
    algorithm: str | None = None

    @property
    def in_network(self) -> bool:
        """True when the algorithm lets switches reduce."""
        return (self.algorithm or "").upper().startswith(_IN_NETWORK_ALGORITHMS)

    @property
    def tree(self) -> bool:
        """True of NVLSTree: switches reduce inside nodes only."""
        return self.in_network and (self.algorithm or "").upper().endswith("TREE")


@dataclass(frozen=True, slots=True)
class Roof:
    """One ceiling at one size.

    ceiling       nominal, achievable, model or fit
    time_us       least time of the size; busbw_gbps what that is
    peak_gbps     bus bandwidth without the floor; None for model and fit
    floor_us      least time of any size; None where it is not known
    regime        latency when the floor decides, else bandwidth
    """

    name: str
    ceiling: str
    time_us: float
    busbw_gbps: float
    peak_gbps: float | None
    floor_us: float | None
    regime: str
    limit: str
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The roofs of one workload, side by side; model and fit are None where there is none."""

    nominal: Roof
    achievable: Roof
    model: Roof | None
    fit: Roof | None

    @property
    def target(self) -> Roof:
        """The roof for efficiency and uplift: the fit where one exists, else the achievable."""
        return self.fit or self.achievable


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Roof time over measured time; above 1 the roof does not apply, and `why` says why."""

    value: float
    roof: Roof
    applies: bool
    why: str | None


@dataclass(frozen=True, slots=True)
class _Shaped:
    """What is the same for every size of one operation and communicator."""

    factor: float
    nominal: Bounds
    achievable: Bounds
    floor_us: float | None
    lines: tuple[CostLine, ...]  # of the library's model; empty for in-network reduction
    notes: dict[str, tuple[str, ...]]  # assumptions by ceiling


class Roofs:
    """Roofs on one system, with a cache of what does not depend on size."""

    def __init__(self, system: System, fitted: Fit | None = None) -> None:
        """Roofs of `system`; `fitted` adds a ceiling where it has a curve."""
        self.system = system
        self.fitted = fitted
        self._shaped: dict[Request, _Shaped | None] = {}

    def ceilings(self, work: Workload) -> Ceilings | None:
        """Every ceiling of a workload; None for one rank and operations without data.

        raises  UsageError when the system has not so many GPUs or says nothing about them
        """
        shaped = self._shape(work)
        if shaped is None or work.size_bytes <= 0:
            return None
        return Ceilings(
            nominal=self._bound(work, shaped, "nominal"),
            achievable=self._bound(work, shaped, "achievable"),
            model=self._model(work, shaped),
            fit=self._fit(work, shaped),
        )

    def judge(self, work: Workload, measured_us: float, ceiling: str = "target") -> Efficiency:
        """Efficiency of a measured time against a ceiling that exists for the workload.

        raises  ValueError when the workload has no such ceiling
        """
        ceilings = self.ceilings(work)
        roof = None if ceilings is None else getattr(ceilings, ceiling)
        if roof is None or measured_us <= 0:
            raise ValueError(f"no {ceiling} roof, or no time")
        value = roof.time_us / measured_us
        applies = value <= 1 + 1e-9
        return Efficiency(value, roof, applies, None if applies else self._why(work, roof, value))

    def _shape(self, work: Workload) -> _Shaped | None:
        """Bounds, floor and model lines of the workload's shape, from the cache."""
        request = Request(
            work.op, work.nranks, work.nnodes, in_network=work.in_network, tree=work.tree
        )
        if request not in self._shaped:
            self._shaped[request] = self._compute(request)
        return self._shaped[request]

    def _compute(self, request: Request) -> _Shaped | None:
        """What `_shape` keeps; the request is for the nominal bound."""
        op, nranks, nnodes = request.op, request.nranks, request.nnodes
        nominal = bounds(self.system, request)
        achievable = bounds(self.system, replace(request, achievable=True))
        factor = bus_factor(op, nranks)
        if nominal is None or achievable is None or factor is None:
            return None
        lines = model_lines(self.system, op, nranks, nnodes)
        curve = self._curve(op, nranks, nnodes)
        if curve is not None and curve.sizes[0] <= _LATENCY_SIZE:
            floor: float | None = curve.times_us[0]
        else:  # of Tree and Ring, which the library takes instead of NVLS where they are faster
            floor = latency_floor_us(self.system, op, nranks, nnodes)
        notes = {
            "nominal": (*nominal.assumptions, "line rates", *self.system.notes),
            "achievable": (
                *achievable.assumptions,
                *self._fractions(nranks, nnodes),
                *self.system.notes,
            ),
        }
        modelled = () if request.in_network else lines
        return _Shaped(factor, nominal, achievable, floor, modelled, notes)

    def _curve(self, op: Op, nranks: int, nnodes: int) -> Curve | None:
        """Measured curve of a shape."""
        return None if self.fitted is None else self.fitted.curve(op, nranks, nnodes)

    def _bound(self, work: Workload, shaped: _Shaped, ceiling: str) -> Roof:
        """Roof of a bound with the latency floor."""
        found = shaped.nominal if ceiling == "nominal" else shaped.achievable
        floor = shaped.floor_us
        # A wiring that leaves a GPU without links carries nothing: no time is enough.
        rate = found.busbw_gbps * 1000
        transfer = work.size_bytes * shaped.factor / rate if rate > 0 else inf
        time = max(floor or 0.0, transfer)
        return Roof(
            name=f"{self.system.name} {ceiling}",
            ceiling=ceiling,
            time_us=time,
            busbw_gbps=work.size_bytes * shaped.factor / (time * 1000),
            peak_gbps=found.busbw_gbps,
            floor_us=floor,
            regime="bandwidth" if time == transfer else "latency",
            limit=found.limit,
            assumptions=shaped.notes[ceiling],
        )

    def _fractions(self, nranks: int, nnodes: int) -> tuple[str, ...]:
        """The achievable fractions that a bound was made with, as assumptions."""
        fabric, network = self.system.fabric, self.system.network
        domains = self.system.domains(nnodes)
        notes = []
        if fabric is not None and nranks > domains:
            notes.append(f"links at {fabric.achievable_fraction:g} of the line rate")
        if network is not None and domains > 1:
            notes.append(f"network at {network.achievable_fraction:g} of the line rate")
        return tuple(notes)

    def _model(self, work: Workload, shaped: _Shaped) -> Roof | None:
        """The library's own estimate: the best of its algorithms and protocols."""
        if not shaped.lines:
            return None
        line = best_line(shaped.lines, work.size_bytes)
        return self._timed(
            work, shaped, "model", line.time_us(work.size_bytes), self._release(line)
        )

    def _release(self, line: CostLine) -> tuple[str, ...]:
        """Whose constants an estimate comes from, and what they choose."""
        choice = self.system.tuning
        constants = None if choice is None else constants_of(choice)
        release = "" if constants is None else f" of {constants.library} {constants.release}"
        return (f"constants{release}: {line.algorithm}/{line.protocol} would be chosen",)

    def _fit(self, work: Workload, shaped: _Shaped) -> Roof | None:
        """The best time measured, where there is a curve."""
        curve = self._curve(work.op, work.nranks, work.nnodes)
        if self.fitted is None or curve is None:
            return None
        notes = [f"best of {count(len(curve.sizes), 'size')} of {self.fitted.name}"]
        if self.fitted.unusable:
            unusable = count(self.fitted.unusable, "measurement")
            notes.append(f"{unusable} of {self.fitted.name} failed or wrong, left out")
        if not curve.covers(work.size_bytes):
            notes.append("beyond the measured sizes")
        return self._timed(work, shaped, "fit", curve.time_us(work.size_bytes), tuple(notes))

    def _timed(
        self,
        work: Workload,
        shaped: _Shaped,
        ceiling: str,
        time_us: float,
        assumptions: tuple[str, ...],
    ) -> Roof:
        """Roof whose time is given, not derived from a bandwidth."""
        busbw = work.size_bytes * shaped.factor / (time_us * 1000)
        return Roof(
            name=f"{self.system.name} {ceiling}",
            ceiling=ceiling,
            time_us=time_us,
            busbw_gbps=busbw,
            peak_gbps=None,
            floor_us=None,
            regime="bandwidth" if 2 * busbw >= shaped.achievable.busbw_gbps else "latency",
            limit=shaped.achievable.limit,
            assumptions=assumptions,
        )

    def _why(self, work: Workload, roof: Roof, value: float) -> str:
        """Why a measured time can be below a roof's."""
        start = not_applying(roof.name)
        if roof.ceiling == "fit":
            return start + "Faster than every measurement it was fitted from: fit again."
        if roof.ceiling == "model":
            return start + "The library's constants are an estimate, and this machine is faster."
        if roof.regime == "latency":
            return start + (
                "Its floor is the library's own estimate for Ring and Tree, good to some 15 %: "
                "another algorithm, another release or overlapping calls can be faster."
            )
        shaped = self._shape(work)
        busbw = bus_bandwidth(
            work.op,
            size=work.size_bytes,
            time_s=roof.time_us / value / 1e6,
            nranks=work.nranks,
        )
        if shaped is None or busbw is None:
            return start
        return start + self._reason(work, shaped, busbw)

    def _reason(self, work: Workload, shaped: _Shaped, busbw: float) -> str:
        """Which other bound a bus bandwidth in GB/s would fit under."""
        seen = f"{busbw:.4g} GB/s is "
        nominal = shaped.nominal
        if busbw <= nominal.busbw_gbps:
            return (
                f"{seen}below the line rate's {nominal.busbw_gbps:.4g}: "
                "the achievable fraction is too low here."
            )
        if busbw <= nominal.hard_gbps:
            tree = "with a tree or another schedule than ReduceScatter and AllGather, or "
            tree = tree if work.op is Op.ALL_REDUCE else ""
            return f"{seen}possible {tree}over several paths, up to {nominal.hard_gbps:.4g}."
        request = Request(work.op, work.nranks, work.nnodes, in_network=True)
        reduced = bounds(self.system, request)
        if reduced is not None and reduced.limit == "in-network" and busbw <= reduced.busbw_gbps:
            return (
                f"{seen}possible where switches reduce ({reduced.assumptions[-1]}), "
                f"up to {reduced.busbw_gbps:.4g}."
            )
        return (
            f"{seen}{IMPOSSIBLE}: ranks, nodes, size or system are not as stated, or switches "
            "reduce (NVLS, SHARP)."
        )


def not_applying(roof: str) -> str:
    """How every reason begins why a time is below that of the roof of this name."""
    return f"The roof '{roof}' does not apply. "


def model_lines(system: System, op: Op, nranks: int, nnodes: int) -> tuple[CostLine, ...]:
    """The library's algorithms and protocols on a system; empty without constants.

    Its rings carry what a node's links achieve, between nodes no more than the NICs do.
    """
    choice, fabric = system.tuning, system.fabric
    constants = None if choice is None else constants_of(choice)
    if choice is None or constants is None or fabric is None:
        return ()
    nodes = system.domains(nnodes)
    per_node = -(-nranks // nodes)
    rates = []
    if per_node > 1:
        inside = bounds(system, Request(Op.ALL_GATHER, per_node, achievable=True))
        assert inside is not None  # two ranks or more, and an operation with a bound
        whole = choice.graph_gbps if per_node == fabric.gpus else None
        rates.append(whole or inside.busbw_gbps)
    if nodes > 1 and system.network is not None:
        network = system.network
        rates.append(system.nics(nnodes) * network.uni_gbps * network.achievable_fraction)
    if not rates or min(rates) <= 0:
        return ()
    return cost_lines(constants, Shape(op, nranks, nodes, min(rates), choice.cpu))


def latency_floor_us(system: System, op: Op, nranks: int, nnodes: int) -> float | None:
    """Least time of any size in µs by the library's latencies; None without constants.

    Operations that the library's model leaves out (AllToAll, Gather, Scatter, Send/Recv) get the
    floor of a Broadcast, one base latency and one step: inferred, they cannot take less.
    """
    modelled = op if op in MODELLED_OPS else Op.BROADCAST
    lines = model_lines(system, modelled, nranks, nnodes)
    return min((line.latency_us for line in lines), default=None)
