"""What an MSCCL algorithm costs on a system: alpha-beta over its step structure.

time = base + latencies of the longest chain of dependent messages + time of the busiest link. The
latencies are the library's own tuning constants (ring, by protocol). A call of S bytes is cut into
`chunks` chunks, as the executors do; LL sends a flag with every 4 bytes, LL128 8 bytes of them per
line: of 128 bytes in NCCL, of 64 in RCCL (NCCL_LL128_LINESIZE in device.h of both).
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum

import msgspec

from collscope.parsers.msccl_xml import MscclAlgorithm
from collscope.reports.msccl.structure import Hops, Structure
from collscope.roofline.nccl_constants import PROTOCOLS
from collscope.roofline.nccl_model import constants_of
from collscope.roofline.system import System


class Assumption(Enum):
    """What a cost takes for granted."""

    LIBRARY_LATENCY = "library_latency"  # per message and call: the library's, of a ring
    LINE_RATE = "line_rate"  # the usable part of it, every link full duplex
    PROTOCOL = "protocol"  # what part of the bytes sent is data
    NOTHING_HIDDEN = "nothing_hidden"  # the chain of messages and the busiest link add up
    FREE_LOCALLY = "free_locally"  # copies, reductions and the number of channels cost nothing
    NODES_FILLED = "nodes_filled"  # ranks fill node after node, whose NICs share its traffic
    SLOWEST_LINK = "slowest_link"  # between GPUs without a link of their own


class Lack(Enum):
    """What the cost of an algorithm needs and a system lacks."""

    LATENCIES = "latencies"
    LINKS = "links"  # inside a node
    NICS = "nics"
    LINK_BETWEEN = "link_between"  # two GPUs that exchange messages


_CARRIED = {"LL": 0.5, "LL128": 120 / 128, "Simple": 1.0}
_CARRIED_RCCL = _CARRIED | {"LL128": 56 / 64}


class Load(msgspec.Struct, frozen=True):
    """Bytes on the busiest link of each kind, as parts of S; None where nothing goes over it."""

    pair: float | None  # from one GPU to one other of its node
    gpu: float | None  # out of or into one GPU, within its node
    node: float | None  # out of or into one node


class Cost(msgspec.Struct, frozen=True):
    """Time of one call in ns; `time_ns` is the sum of the other three."""

    base_ns: float
    hops_ns: float
    transfer_ns: float
    hops: Hops

    @property
    def time_ns(self) -> float:
        """Time of one call."""
        return self.base_ns + self.hops_ns + self.transfer_ns


def load_of(algorithm: MscclAlgorithm, structure: Structure, ranks_per_node: int) -> Load:
    """What the busiest links carry of the S bytes of a call."""
    outward: dict[tuple[str, int], int] = defaultdict(int)
    inward: dict[tuple[str, int], int] = defaultdict(int)
    pairs = 0
    for (sender, receiver), chunks in structure.link_chunks.items():
        here, there = sender // ranks_per_node, receiver // ranks_per_node
        if here == there:
            pairs = max(pairs, chunks)
            outward["gpu", sender] += chunks
            inward["gpu", receiver] += chunks
        else:
            outward["node", here] += chunks
            inward["node", there] += chunks

    def busiest(kind: str) -> float | None:
        loads = [n for side in (outward, inward) for (k, _), n in side.items() if k == kind]
        return max(loads) / algorithm.chunks if loads else None

    return Load(pairs / algorithm.chunks if pairs else None, busiest("gpu"), busiest("node"))


class Costs:
    """Costs of algorithms on one system; structure and loads are computed once each."""

    def __init__(self, system: System) -> None:
        """Costs on `system`."""
        self.system = system
        self.constants = None if system.tuning is None else constants_of(system.tuning)

    def ranks_per_node(self, algorithm: MscclAlgorithm) -> int:
        """Ranks on one node: as many as it has GPUs, or all of them."""
        fabric = self.system.fabric
        return algorithm.nranks if fabric is None else min(algorithm.nranks, fabric.gpus)

    def lacks(self, algorithm: MscclAlgorithm, load: Load) -> Lack | None:
        """What the algorithm needs and the system lacks; None when nothing is missing."""
        if self.constants is None:
            return Lack.LATENCIES
        if load.gpu is not None and self.system.fabric is None:
            return Lack.LINKS
        if load.node is not None and self.system.network is None:
            return Lack.NICS
        if load.pair is not None and self._pair_gbps(algorithm) == 0:
            return Lack.LINK_BETWEEN
        return None

    def cost(
        self, algorithm: MscclAlgorithm, structure: Structure, load: Load, size_bytes: int
    ) -> Cost:
        """Cost of one call of nccl-tests size S; `lacks` has to be None."""
        if self.constants is None:
            raise ValueError("no latencies")
        protocol = PROTOCOLS.index(algorithm.protocol)
        times = self.constants.ring
        inside, between = times.link[protocol], times.net[protocol]
        hops = structure.critical(self.ranks_per_node(algorithm), inside, between)
        return Cost(
            1000 * times.base[protocol],
            1000 * (hops.inside * inside + hops.between * between),
            self._transfer_ns(algorithm, load, size_bytes),
            hops,
        )

    def _transfer_ns(self, algorithm: MscclAlgorithm, load: Load, size_bytes: int) -> float:
        tuning = self.system.tuning
        carried = _CARRIED_RCCL if tuning and tuning.library == "rccl" else _CARRIED
        data = size_bytes / carried[algorithm.protocol]  # ns at 1 GB/s
        parts = (
            (load.pair, self._pair_gbps(algorithm)),
            (load.gpu, self._gpu_gbps(algorithm)),
            (load.node, self._node_gbps()),
        )
        return max((part * data / rate for part, rate in parts if part and rate > 0), default=0.0)

    def _pair_gbps(self, algorithm: MscclAlgorithm) -> float:
        """Slowest direct link between two GPUs that take part; around a switch, all of a GPU's."""
        fabric = self.system.fabric
        if fabric is None:
            return 0.0
        members = range(self.ranks_per_node(algorithm))
        direct: list[float] = [fabric.capacity[i][j] for i in members for j in members if i != j]
        used = [rate for rate in direct if rate > 0]
        rate = min(used) if used else self._gpu_gbps(algorithm) / fabric.usable.value
        return rate * fabric.usable.value

    def _gpu_gbps(self, algorithm: MscclAlgorithm) -> float:
        """What the slowest GPU that takes part can send to the others of its node, and switches."""
        fabric = self.system.fabric
        if fabric is None:
            return 0.0
        members = range(self.ranks_per_node(algorithm))
        reached = [*members, *range(fabric.gpus, len(fabric.capacity))]
        rates: list[float] = [
            sum(fabric.capacity[i][j] for j in reached if j != i) for i in members
        ]
        return min(rates) * fabric.usable.value

    def _node_gbps(self) -> float:
        network = self.system.network
        return 0.0 if network is None else network.node_gbps * network.usable.value
