"""Rows of `collscope roofline`: a system's bounds by operation, and its roofs by size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collscope.model import Op, bus_factor
from collscope.roofline.bounds import Bounds, Request, bounds
from collscope.roofline.fit import Fit
from collscope.roofline.roof import Roofs, Workload, latency_floor_us
from collscope.roofline.system import System

TABLE_OPS = (
    Op.ALL_REDUCE,
    Op.ALL_GATHER,
    Op.REDUCE_SCATTER,
    Op.BROADCAST,
    Op.REDUCE,
    Op.ALL_TO_ALL,
    Op.GATHER,
    Op.SCATTER,
    Op.SEND_RECV,
)
TABLE_SIZES = tuple(1024 << shift for shift in range(0, 22, 2))  # 1 KiB to 1 GiB


@dataclass(frozen=True, slots=True)
class BoundRow:
    """Bounds of one operation: bus bandwidths in GB/s, times in µs.

    factor                busbw / algbw
    in_network_gbps       where switches can reduce; None otherwise
    ring_gbps, hard_gbps  nominal, as in `bounds.Bounds`
    """

    op: str
    factor: float | None
    nominal_gbps: float
    achievable_gbps: float
    ring_gbps: float | None
    hard_gbps: float
    in_network_gbps: float | None
    floor_us: float | None
    limit: str
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoofRow:
    """Every ceiling of one size: bus bandwidths in GB/s, and the time of the target roof in µs."""

    op: str
    size_bytes: int
    nominal_gbps: float
    achievable_gbps: float
    model_gbps: float | None
    fit_gbps: float | None
    time_us: float
    regime: str
    roof: str
    limit: str
    assumptions: tuple[str, ...]


def bound_rows(system: System, nranks: int, nnodes: int) -> tuple[BoundRow, ...]:
    """Bounds of every operation; empty for one rank.

    raises  UsageError when the system has not so many GPUs or says nothing about them
    """
    rows = []
    for op in TABLE_OPS:
        nominal = bounds(system, Request(op, nranks, nnodes))
        achievable = bounds(system, Request(op, nranks, nnodes, achievable=True))
        reduced = bounds(system, Request(op, nranks, nnodes, in_network=True))
        if nominal is None or achievable is None:
            continue
        rows.append(
            BoundRow(
                op=op.value,
                factor=bus_factor(op, nranks),
                nominal_gbps=nominal.busbw_gbps,
                achievable_gbps=achievable.busbw_gbps,
                ring_gbps=nominal.ring_gbps,
                hard_gbps=nominal.hard_gbps,
                in_network_gbps=_reduced(reduced),
                floor_us=latency_floor_us(system, op, nranks, nnodes),
                limit=nominal.limit,
                assumptions=(*nominal.assumptions, *system.notes),
            )
        )
    return tuple(rows)


def roof_rows(
    system: System,
    op: Op,
    nranks: int,
    nnodes: int,
    *,
    sizes: Iterable[int] = TABLE_SIZES,
    fitted: Fit | None = None,
) -> tuple[RoofRow, ...]:
    """Roofs of one operation over sizes in bytes; empty for one rank.

    raises  UsageError when the system has not so many GPUs or says nothing about them
    """
    roofs = Roofs(system, fitted)
    rows = []
    for size in sizes:
        found = roofs.ceilings(Workload(op, size, nranks, nnodes))
        if found is None:
            continue
        rows.append(
            RoofRow(
                op=op.value,
                size_bytes=size,
                nominal_gbps=found.nominal.busbw_gbps,
                achievable_gbps=found.achievable.busbw_gbps,
                model_gbps=None if found.model is None else found.model.busbw_gbps,
                fit_gbps=None if found.fit is None else found.fit.busbw_gbps,
                time_us=found.target.time_us,
                regime=found.target.regime,
                roof=found.target.name,
                limit=found.target.limit,
                assumptions=found.target.assumptions,
            )
        )
    return tuple(rows)


def _reduced(found: Bounds | None) -> float | None:
    """Bus bandwidth of a bound that in-network reduction gives."""
    return found.busbw_gbps if found is not None and found.limit == "in-network" else None
