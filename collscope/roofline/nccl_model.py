"""The libraries' own estimate of a collective's time: minimum over algorithm and protocol.

time = latency · factor + size / bandwidth, as ncclTopoTuneModel and ncclTopoGetAlgoTime of
src/graph/tuning.cc compute it. Ring, Tree and PAT only: NVLS and CollNet depend on what the machine
switches on. Times in µs, bandwidths in GB/s, sizes in bytes.
"""

from __future__ import annotations

import msgspec

from collscope.model import Op
from collscope.roofline.nccl_constants import (
    CONSTANTS,
    NCCL_LL_NET,
    NCCL_NET_OVERHEAD_US,
    NCCL_PAT,
    NCCL_TREE_CORRECTION,
    PROTOCOLS,
    Constants,
    Latencies,
    NcclLimits,
    RcclModel,
)
from collscope.roofline.system import TuningChoice

PAT = "PAT"
PAT_OPS = (Op.ALL_GATHER, Op.REDUCE_SCATTER)
MODELLED_OPS = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.BROADCAST, Op.REDUCE)
_LL, _LL128, _SIMPLE = range(3)


class Shape(msgspec.Struct, frozen=True):
    """What a communicator looks like to the model; `graph_gbps` is what its rings carry."""

    op: Op
    nranks: int
    nnodes: int
    graph_gbps: float
    cpu: str = "intel"

    @property
    def steps(self) -> int:
        """Steps of a ring."""
        if self.op is Op.ALL_REDUCE:
            return 2 * (self.nranks - 1)
        return self.nranks if self.op.rooted else self.nranks - 1

    @property
    def pat(self) -> bool:
        """True where NCCL takes PAT into account: one rank per node (`ncclPatEnable`, from 2.23).

        RCCL leaves PAT off unless NCCL_PAT_ENABLE asks for it.
        """
        return self.op in PAT_OPS and self.nranks == self.nnodes

    @property
    def nodes_index(self) -> int:
        """0 for one node, 1 for two, 2 for more."""
        return min(self.nnodes, 3) - 1


class CostLine(msgspec.Struct, frozen=True):
    """One algorithm and protocol: time = latency + size / algbw, corrected by size.

    correction  by log2(size / 64 B); empty where there is none
    plateau     factor of the latency from `plateau_bytes` on
    channel_bound  algbw is a bandwidth, not a part that serves to rank (RCCL's tables)
    """

    algorithm: str
    protocol: str
    latency_us: float
    algbw_gbps: float
    correction: tuple[float, ...] = ()
    plateau: float = 1.0
    plateau_bytes: int = 0
    channel_bound: bool = False

    def time_us(self, size: int) -> float:
        """Estimated time of `size` bytes (nccl-tests size S) in µs."""
        bandwidth = self.algbw_gbps
        index = max(size >> 6, 1).bit_length() - 1
        if index < len(self.correction):
            bandwidth *= self.correction[index]
        late = self.plateau > 1 and size >= self.plateau_bytes
        return self.latency_us * (self.plateau if late else 1) + size / (1000 * bandwidth)


def constants_of(choice: TuningChoice) -> Constants | None:
    """Constants of a library's architecture, or None when there are none."""
    wanted = (choice.library, choice.architecture)
    return next((c for c in CONSTANTS if (c.library, c.architecture) == wanted), None)


def cost_lines(constants: Constants, shape: Shape) -> tuple[CostLine, ...]:
    """Every algorithm and protocol the library would consider; empty for other operations."""
    if shape.op not in MODELLED_OPS or shape.nranks < 2:
        return ()
    limits = constants.limits
    lines: list[CostLine] = []
    for protocol in range(3):
        if isinstance(limits, NcclLimits):
            made = [_nccl_ring(constants, limits, shape, protocol)]
            if shape.op is Op.ALL_REDUCE:
                made.append(_nccl_tree(constants, limits, shape, protocol))
            if shape.pat and protocol == _SIMPLE:
                made.append(_nccl_pat(constants, shape))
        else:
            made = [_rccl_ring(constants, limits, shape, protocol)]
            if shape.op is Op.ALL_REDUCE:
                made.append(_rccl_tree(constants, limits, shape, protocol))
        lines.extend(line for line in made if line.algbw_gbps > 0)
    return tuple(lines)


def best_line(lines: tuple[CostLine, ...], size: int) -> CostLine:
    """The line the library would choose for `size` bytes."""
    return min(lines, key=lambda line: line.time_us(size))


def _nccl_ring(constants: Constants, limits: NcclLimits, shape: Shape, protocol: int) -> CostLine:
    """Ring of NCCL."""
    bandwidth = shape.graph_gbps
    if protocol == _LL:
        bandwidth = min(_nccl_ll_limit(limits, shape), bandwidth / 2)
    elif protocol == _LL128:
        per_channel = limits.ring_ll128_per_channel[shape.nodes_index]
        bandwidth = min(0.92 * bandwidth, limits.channels * per_channel)
    # Between nodes, Simple's latency grows once each rank has 64 bytes per channel.
    grows = protocol == _SIMPLE and shape.nnodes > 1 and shape.op is Op.ALL_REDUCE
    return CostLine(
        "Ring",
        PROTOCOLS[protocol],
        _ring_latency(constants, shape, protocol, 2 * (shape.nnodes - 1)),
        bandwidth * shape.nranks / shape.steps,
        channel_bound=True,
        plateau=limits.plateau if grows else 1.0,
        plateau_bytes=64 * limits.channels * shape.nranks,
    )


def _nccl_tree(constants: Constants, limits: NcclLimits, shape: Shape, protocol: int) -> CostLine:
    """Double binary tree of NCCL (AllReduce)."""
    nodes = shape.nodes_index
    bandwidth = min(0.92 * shape.graph_gbps, limits.channels * limits.tree_per_channel[nodes])
    if protocol == _LL:
        bandwidth = min(bandwidth / 3.8, _nccl_ll_limit(limits, shape))
    elif protocol == _LL128:
        part = 7 / 9 if shape.nnodes == 1 else 120 / 128
        per_channel = limits.tree_ll128_per_channel[nodes]
        bandwidth = min(bandwidth * part, limits.channels * per_channel)
    return CostLine(
        "Tree",
        PROTOCOLS[protocol],
        _tree_latency(constants.tree, shape, protocol),
        bandwidth / 2,
        correction=NCCL_TREE_CORRECTION[protocol],
        channel_bound=True,
    )


def _nccl_pat(constants: Constants, shape: Shape) -> CostLine:
    """PAT of NCCL: a base, a part that grows with log2 of the nodes, and one with the ranks."""
    steps = (shape.nnodes.bit_length() - 1) * constants.tree.net[_SIMPLE] / NCCL_PAT.step_part
    return CostLine(
        PAT,
        PROTOCOLS[_SIMPLE],
        NCCL_PAT.base_us + steps + shape.nranks * NCCL_PAT.rank_us,
        NCCL_PAT.bandwidth * shape.graph_gbps,
    )


def _nccl_ll_limit(limits: NcclLimits, shape: Shape) -> float:
    """What LL carries: by GPU generation on one node, by CPU between nodes."""
    return limits.ll_node if shape.nnodes == 1 else NCCL_LL_NET[shape.cpu][shape.nodes_index - 1]


def _rccl_ring(constants: Constants, model: RcclModel, shape: Shape, protocol: int) -> CostLine:
    """Ring of RCCL; its correction by size applies between nodes only."""
    bandwidth = shape.graph_gbps * model.ring_ratio[shape.nnodes > 2][protocol]
    if protocol == _LL and shape.op.rooted and shape.nnodes == 1:
        bandwidth *= model.ring_ll_rooted_factor
    between = 0 if shape.nnodes == 1 else 2 * shape.nnodes
    return CostLine(
        "Ring",
        PROTOCOLS[protocol],
        _ring_latency(constants, shape, protocol, between),
        bandwidth * shape.nranks / shape.steps,
        correction=() if shape.nnodes == 1 else model.ring_correction[protocol],
    )


def _rccl_tree(constants: Constants, model: RcclModel, shape: Shape, protocol: int) -> CostLine:
    """Tree of RCCL (AllReduce)."""
    bandwidth = shape.graph_gbps * model.tree_ratio[shape.nnodes > 2][protocol]
    if protocol == _SIMPLE and shape.nnodes == 1 and not model.tree_simple_on_one_node:
        bandwidth = 0.0
    return CostLine(
        "Tree",
        PROTOCOLS[protocol],
        _tree_latency(constants.tree, shape, protocol),
        bandwidth / 2,
        correction=model.tree_correction[protocol],
    )


def _ring_latency(
    constants: Constants, shape: Shape, protocol: int, all_reduce_between: int
) -> float:
    """Base and steps in µs; `all_reduce_between` steps of an AllReduce cross nodes."""
    times = constants.ring
    if shape.op.rooted:
        hop = times.link if shape.nnodes == 1 else times.net
        return times.base[protocol] + hop[protocol]
    between = all_reduce_between if shape.op is Op.ALL_REDUCE else shape.nnodes - 1
    link = times.link[protocol]
    if shape.nnodes > 1:
        overhead = NCCL_NET_OVERHEAD_US[shape.cpu]
        link = max(link, 3 * overhead if protocol == _SIMPLE else overhead)
    # One rank per node has nothing to hide the network behind: the tree's latency counts.
    net = constants.tree.net if shape.nranks == shape.nnodes else times.net
    inside = max(0, shape.steps - between)
    return times.base[protocol] + inside * link + between * net[protocol]


def _tree_latency(times: Latencies, shape: Shape, protocol: int) -> float:
    """Base, the chain inside a node, and the tree between nodes, there and back, in µs."""
    chain = shape.nranks // shape.nnodes - 1
    depth = shape.nnodes.bit_length() - 1
    steps = chain * times.link[protocol] + depth * times.net[protocol]
    return times.base[protocol] + 2 * steps
