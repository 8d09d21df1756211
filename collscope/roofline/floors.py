"""The least time of a collective, however small: measured where somebody did, else estimated.

A floor belongs to an architecture, an operation and a way of launching. Measured floors with their
sources are floors.toml. Where there is none, the latencies of the library's own cost model stand
in. They rank algorithms well, but they are no times: 23.2 us for AllReduce on 8 MI300X, where 12.8
were measured, and 7.2 us on 4 H200, where it were 10.0. Such a floor gets a wide range.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from collscope.model import Op, parse_op
from collscope.roofline.bounds import Request, bounds
from collscope.roofline.nccl_constants import NCCL_NET_OVERHEAD_US, Constants
from collscope.roofline.nccl_model import (
    MODELLED_OPS,
    PAT,
    CostLine,
    Shape,
    constants_of,
    cost_lines,
)
from collscope.roofline.system import System, TuningChoice

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HALVING = "halving"
_BY = {
    PAT: ": PAT, which NCCL has from 2.23 on for one rank per node",
    HALVING: ": of ceil(log2) steps, fewer than a ring needs; NCCL does this (PAT) with one rank "
    "per node only",
}
EAGER, GRAPH, PROCESS = "eager", "graph", "process"
_TABLE = Path(__file__).parent / "floors.toml"
# Groups of sends and receives, all of them.
_LIKE = {
    Op.ALL_TO_ALLV: Op.ALL_TO_ALL, Op.GATHER: Op.ALL_TO_ALL, Op.SCATTER: Op.ALL_TO_ALL,
    Op.SEND: Op.SEND_RECV, Op.RECV: Op.SEND_RECV,
}  # fmt: skip
_SPREADING = (Op.ALL_GATHER, Op.REDUCE_SCATTER)
# Range around a floor of the library's latencies alone (module docstring), and around one that is
# scaled from a measurement of another number of ranks.
_MODEL_RANGE = (0.5, 2.0)
_SCALED_RANGE = (0.6, 1.5)
_REACH = 4
# One process that launches on all GPUs takes up to three times as long (MI300X: 40 us for 13).
_OF_PROCESS_LOW = 0.3


# The slowest least times published: 52 us on 8 MI300X (one process, ROCm/rccl issue 1562), 195 us
# on 2 x 8 A100 (EFA with an old plugin, aws-samples/aws-efa-eks 9d6557e).
_SLOWEST_US, _SLOWEST_NETWORK_US = 52.0, 195.0


class Floor(msgspec.Struct, frozen=True):
    """The least time of any size in us, with the range that holds it, and where it comes from."""

    us: float
    low_us: float
    high_us: float
    source: str
    measured: bool
    algorithm: str | None = None  # of an estimate, where another than Ring or Tree has it

    def later(self, us: float, network: str) -> Floor:
        """This floor over a network whose steps take longer, by `us` in all (from 0 to twice)."""
        if us <= 0:
            return self
        source = f"{self.source}; {us:g} us more over {network}"
        return replace(
            self, us=self.us + us, high_us=self.high_us + 2 * us, source=source, measured=False
        )


def unknown_floor(nodes: int) -> Floor:
    """The floor of a system whose latency nobody measured or modelled: anything that was published.

    nodes  groups that only a network joins
    """
    slowest = _SLOWEST_US if nodes == 1 else _SLOWEST_NETWORK_US
    return Floor(slowest / 4, 0.0, slowest, "is not known", False)


class _Row(msgspec.Struct, frozen=True):
    """One measured floor."""

    architecture: str
    op: Op
    nranks: int
    launch: str
    us: float
    source: str
    nnodes: int = 1


@cache
def measured_floors() -> tuple[_Row, ...]:
    """The rows of floors.toml."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return tuple(
        _Row(
            r["architecture"],
            parse_op(r["op"]),
            r["nranks"],
            r["launch"],
            r["us"],
            r["source"],
            r.get("nnodes", 1),
        )
        for r in table["floor"]
    )


def floor_of(system: System, op: Op, nranks: int, nnodes: int) -> Floor | None:
    """The floor of one operation and shape; None where nothing is known about the latencies.

    Operations that the library's model leaves out get the latency of a Broadcast: one base latency
    and one step; they cannot take less.
    """
    nodes = system.domains(nnodes)
    floor = _of_library(system.tuning, op, nranks, nodes)
    if floor is None or nodes == 1 or system.network is None:
        return floor
    hops = (nodes - 1).bit_length() * (2 if op is Op.ALL_REDUCE else 1)
    return floor.later(hops * system.network.usable.hop_us, system.network.name)


def _of_library(tuning: TuningChoice | None, op: Op, nranks: int, nodes: int) -> Floor | None:
    """The floor over links, InfiniBand or RoCE."""
    if tuning is None:
        return None
    estimate = _estimate(tuning, op, nranks, nodes)
    if estimate is None:
        return None
    alike = [
        row
        for row in measured_floors()
        if row.architecture == tuning.architecture and _alike(row, nranks, nodes)
    ]
    eager = [row for row in alike if row.launch in (EAGER, PROCESS)]
    own = [row for row in eager if row.op is _LIKE.get(op, op)]
    if own:
        graph = [r for r in alike if r.launch == GRAPH and r.op is own[0].op]
        return _measured(tuning, own, graph, nranks, nodes)
    if eager:
        return _borrowed(tuning, eager, estimate)
    low, high = _MODEL_RANGE
    return Floor(
        estimate.us,
        low * estimate.least_us,
        high * estimate.us,
        "estimated from the library's own latencies, which rank algorithms but are not measured"
        " times" + _BY.get(estimate.algorithm or "", ""),
        False,
        estimate.algorithm,
    )


def _borrowed(tuning: TuningChoice, eager: list[_Row], estimate: _Estimate) -> Floor:
    """The library's latencies, scaled as measured ones of other operations are to theirs."""
    ratios = []
    for row in eager:
        there = _estimate(tuning, row.op, row.nranks, row.nnodes)
        if there is not None:
            ratios.append(row.us / there.us)
    # below 1 an operation has a schedule of its own (MSCCL), which others do not have
    scale = max(median(ratios), 1.0) if ratios else 1.0
    low, high = _MODEL_RANGE
    return Floor(
        scale * estimate.us,
        low * estimate.least_us,
        max(high, scale * high) * estimate.us,
        "estimated from the library's own latencies and what other operations took on such GPUs",
        False,
        estimate.algorithm,
    )


def _measured(
    tuning: TuningChoice, eager: list[_Row], graph: list[_Row], nranks: int, nodes: int
) -> Floor:
    """A measured floor, scaled by the estimates where it is of other ranks."""
    row = min(eager, key=lambda r: abs(r.nranks - nranks))
    here = _estimate(tuning, row.op, nranks, nodes)
    there = _estimate(tuning, row.op, row.nranks, row.nnodes)
    scale = here.us / there.us if here and there else 1.0
    value = row.us * scale
    low = min((r.us * scale for r in graph if r.nranks == row.nranks), default=None)
    if low is None:
        low = (_OF_PROCESS_LOW if row.launch == PROCESS else _SCALED_RANGE[0]) * value
    scaled = "" if row.nranks == nranks else f", scaled from {row.nranks} to {nranks} ranks"
    return Floor(value, low, _SCALED_RANGE[1] * value, f"measured: {row.source}{scaled}", True)


def _alike(row: _Row, nranks: int, nodes: int) -> bool:
    """Whether a row holds for a shape: both on one node or both on several, each with one rank per
    node or with more, and no more than four times as large; other shapes use other algorithms."""
    if (row.nnodes == 1) != (nodes == 1) or (row.nranks == row.nnodes) != (nranks == nodes):
        return False
    return max(row.nranks, nranks) <= _REACH * min(row.nranks, nranks)


class _Estimate(NamedTuple):
    us: float
    least_us: float  # of any algorithm, where the library has a slower one
    algorithm: str | None


def _estimate(tuning: TuningChoice, op: Op, nranks: int, nodes: int) -> _Estimate | None:
    """Latency of the fastest algorithm.

    AllGather and ReduceScatter could take ceil(log2) steps in any shape. NCCL's PAT does so with
    one rank per node, where its own latency counts; elsewhere the bare steps do.
    """
    modelled = op if op in MODELLED_OPS else Op.BROADCAST
    constants = constants_of(tuning)
    if constants is None:
        return None
    # latencies do not depend on what the rings carry
    lines = cost_lines(constants, Shape(modelled, nranks, nodes, 1.0, tuning.cpu))
    best = min(lines, key=lambda line: line.latency_us, default=None)
    halving = _logarithmic_us(constants, tuning.cpu, nranks, nodes) if op in _SPREADING else None
    if best is None or halving is None:
        us = halving if best is None else best.latency_us
        return None if us is None else _Estimate(us, us, None)
    least = min(best.latency_us, halving)
    if any(line.algorithm == PAT for line in lines):
        return _Estimate(best.latency_us, least, PAT if best.algorithm == PAT else None)
    return _Estimate(least, least, HALVING if halving < best.latency_us else None)


def _logarithmic_us(constants: Constants, cpu: str, nranks: int, nodes: int) -> float:
    """AllGather or ReduceScatter in ceil(log2) steps, as Bruck's algorithm.

    A ring needs n - 1 steps; at 512 ranks that is a hundred times as many.
    """
    per_node = -(-nranks // nodes)
    ring, tree = constants.ring, constants.tree
    inside, between = (per_node - 1).bit_length(), (nodes - 1).bit_length()
    hop = max(tree.net[0], NCCL_NET_OVERHEAD_US[cpu])
    return ring.base[0] + inside * ring.link[0] + between * hop


def model_lines(system: System, op: Op, nranks: int, nnodes: int) -> tuple[CostLine, ...]:
    """The library's algorithms and protocols on a system; empty without constants.

    Its rings carry what a node's links leave to data, between nodes no more than the NICs do.
    """
    choice, fabric = system.tuning, system.fabric
    constants = None if choice is None else constants_of(choice)
    if choice is None or constants is None or fabric is None:
        return ()
    nodes = system.domains(nnodes)
    per_node = -(-nranks // nodes)
    rates = []
    if per_node > 1:
        inside = bounds(system, Request(Op.ALL_GATHER, per_node, links=fabric.usable.value))
        assert inside is not None  # two ranks or more, and an operation with a bound
        graph_gbps = choice.graph_gbps if per_node == fabric.gpus else None
        rates.append(graph_gbps or inside.busbw_gbps)
    if nodes > 1 and system.network is not None:
        network = system.network
        rates.append(system.nics(nranks, nnodes) * network.uni_gbps * network.usable.value)
    if not rates or min(rates) <= 0:
        return ()
    return cost_lines(constants, Shape(op, nranks, nodes, min(rates), choice.cpu))
