"""Rows of `collscope roofline`: a system's ceilings by operation, and by size."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from collscope.model import Op, bus_factor
from collscope.model.note import Note
from collscope.roofline.bounds import Bounds, Request, bounds
from collscope.roofline.fit import Fit
from collscope.roofline.floors import floor_of
from collscope.roofline.reachable import reachable_ways, with_switches
from collscope.roofline.roof import Roofs, latency_note
from collscope.roofline.system import System
from collscope.roofline.workload import Workload

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


class BoundRow(msgspec.Struct, frozen=True):
    """Both ceilings of one operation for large messages: bus bandwidths in GB/s, times in ns.

    factor                        busbw / algbw
    limit_gbps                    what the fabric allows; limit: links, network or in-network
    reachable_gbps, _low, _high   what the library's algorithms reach, with its range
    algorithm                     that reaches it: ring, tree, direct
    assumed                       a rate or latency behind it was never measured on such a machine
    in_network_gbps               limit where switches can reduce; None otherwise
    hard_gbps                     no schedule over the links passes this
    floor_ns, _low, _high         least time of any size, with its range
    """

    op: str
    factor: float | None
    limit_gbps: float
    reachable_gbps: float
    reachable_low_gbps: float  # range of reachable_gbps: its lower end
    reachable_high_gbps: float  # range of reachable_gbps: its upper end
    algorithm: str
    assumed: bool
    hard_gbps: float
    in_network_gbps: float | None
    floor_ns: float | None
    floor_low_ns: float | None  # range of floor_ns: its lower end
    floor_high_ns: float | None  # range of floor_ns: its upper end
    limit: str  # links, network or in-network
    assumptions: tuple[Note, ...]  # what the figures assume


class RoofRow(msgspec.Struct, frozen=True):
    """Every ceiling of one size: bus bandwidths in GB/s, and times of the target in ns.

    ranking  the library's algorithms, its first choice first, each with its estimated time over
             the first one's, such as "Ring/LL128 1.00"
    """

    op: str
    size_bytes: int  # nccl-tests size S of one call
    limit_gbps: float  # what the fabric allows, without latency
    reachable_gbps: float  # what the library's algorithms reach at this size
    fit_gbps: float | None  # from measurements
    time_ns: float  # of one call
    time_low_ns: float  # range of time_ns: its lower end
    time_high_ns: float  # range of time_ns: its upper end
    regime: str  # latency or bandwidth
    roof: str  # name of the roof that time_ns is of
    limit: str  # links, network or in-network
    assumed: bool  # something behind the ceiling was never measured on such a machine
    ranking: tuple[str, ...]
    assumptions: tuple[Note, ...]  # what the figures assume


def bound_rows(system: System, nranks: int, nnodes: int) -> tuple[BoundRow, ...]:
    """Ceilings of every operation; empty for one rank.

    raises  UsageError when the system has too few GPUs, or does not describe them
    """
    rows = []
    for op in TABLE_OPS:
        request = Request(op, nranks, nnodes)
        reduced = bounds(system, Request(op, nranks, nnodes, in_network=True))
        request = with_switches(system, request)
        limit = bounds(system, request)
        if limit is None:
            continue
        reach = reachable_ways(system, request)[0]
        floor = floor_of(system, op, nranks, nnodes)
        rows.append(
            BoundRow(
                op=op.value,
                factor=bus_factor(op, nranks),
                limit_gbps=limit.busbw_gbps,
                reachable_gbps=reach.busbw_gbps,
                reachable_low_gbps=reach.low_gbps,
                reachable_high_gbps=reach.high_gbps,
                algorithm=reach.algorithm,
                assumed=reach.assumed or (floor is not None and not floor.measured),
                hard_gbps=limit.hard_gbps,
                in_network_gbps=_reduced(reduced),
                floor_ns=None if floor is None else 1000 * floor.us,
                floor_low_ns=None if floor is None else 1000 * floor.low_us,
                floor_high_ns=None if floor is None else 1000 * floor.high_us,
                limit=limit.limit,
                assumptions=(
                    *reach.assumptions,
                    *(() if floor is None else (latency_note(floor),)),
                    *system.notes,
                ),
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
    """Ceilings of one operation over sizes in bytes; empty for one rank.

    raises  UsageError when the system has too few GPUs, or does not describe them
    """
    roofs = Roofs(system, fitted)
    rows = []
    for size in sizes:
        work = Workload(op, size, nranks, nnodes)
        found = roofs.ceilings(work)
        if found is None:
            continue
        target = found.target
        rows.append(
            RoofRow(
                op=op.value,
                size_bytes=size,
                limit_gbps=found.limit.busbw_gbps,
                reachable_gbps=found.reachable.busbw_gbps,
                fit_gbps=None if found.fit is None else found.fit.busbw_gbps,
                time_ns=target.time_ns,
                time_low_ns=target.time_low_ns,
                time_high_ns=target.time_high_ns,
                regime=target.regime,
                roof=target.name,
                limit=target.limit,
                assumed=target.assumed,
                ranking=tuple(
                    f"{one.algorithm}/{one.protocol} {one.ratio:.2f}" for one in roofs.ranking(work)
                ),
                assumptions=target.assumptions,
            )
        )
    return tuple(rows)


def _reduced(found: Bounds | None) -> float | None:
    """Bus bandwidth of a bound that in-network reduction gives."""
    return found.busbw_gbps if found is not None and found.limit == "in-network" else None
