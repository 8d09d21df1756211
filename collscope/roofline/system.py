"""The records of a system: the links of its GPUs and its nodes, with their sources.

Every rate is GB/s of one direction (`uni_gbps`, GB = 1e9 bytes). Data sheets often print the sum
of both directions; `bi_gbps` holds that figure and must be twice `uni_gbps`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from collscope.model import Op
from collscope.model.note import Note
from collscope.roofline.fit import Curve
from collscope.roofline.gpu_models import OtherGpus, other_gpus
from collscope.roofline.links import Usable
from collscope.roofline.wiring import Wiring

UNIFORM_WIRINGS = ("mesh", "switch", "host")  # every GPU is like every other


class InNetwork(msgspec.Struct, frozen=True):
    """Reduction done by switches: NVLS inside a node, SHARP between nodes."""

    name: str
    efficiency: float  # part of its own bound that is reached
    source: str
    efficiency_low: float | None = None  # of the worst machine known; None: as `efficiency`


class Fabric(msgspec.Struct, frozen=True):
    """Links between the GPUs of one node, or of one switch domain of several hosts.

    wiring  mesh (a link from each GPU to each other), switch, host (PCIe through the host), or
            matrix (any directed graph)
    """

    wiring: str
    gpus: int
    uni_gbps: float  # of one link
    bi_gbps: float  # of one link, both directions together
    links_per_gpu: int | None  # None: not the same for every GPU
    gpu_bi_gbps: float | None  # all links of one GPU, both directions: the data sheet's figure
    capacity: tuple[tuple[float, ...], ...]  # GPUs, then switches; one direction
    rings: tuple[tuple[int, ...], ...]  # edge-disjoint rings over all GPUs, one link wide each
    hosts: int  # hosts that share the fabric; 1 but for rack-scale domains
    usable: Usable
    in_network: InNetwork | None
    source: str
    source_kind: str
    confidence: str
    gpu_models: tuple[str, ...] = ()  # words of the driver's names of its GPUs; none: unknown

    @property
    def graph(self) -> Wiring:
        """The links as a directed graph."""
        return Wiring(self.gpus, self.capacity)


class Network(msgspec.Struct, frozen=True):
    """What leaves a node (for a domain of several hosts: the domain)."""

    name: str
    nics: int
    uni_gbps: float  # of one NIC
    bi_gbps: float
    usable: Usable
    in_network: InNetwork | None
    source: str
    source_kind: str
    confidence: str

    @property
    def node_gbps(self) -> float:
        """Rate of all NICs of a node in one direction, GB/s."""
        return self.nics * self.uni_gbps


class TuningChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which constants of a library describe the system's latencies, as its file has them."""

    library: str  # nccl, rccl
    architecture: str  # volta, ampere, hopper, blackwell; gfx90a, gfx94
    cpu: str = "intel"  # amd or intel: NCCL's limits between nodes depend on it
    graph_gbps: float | None = None  # what the library's own rings carry, where it is not the bound


class Published(msgspec.Struct, frozen=True):
    """A bus bandwidth in GB/s that somebody reached on such a machine with a large message."""

    op: Op
    nranks: int
    nnodes: int
    size_bytes: int
    busbw_gbps: float
    in_network: bool  # switches reduced
    source: str


class System(msgspec.Struct, frozen=True):
    """A machine, or a part of one: a node's fabric, a network, or both."""

    name: str
    title: str
    fabric: Fabric | None
    network: Network | None
    tuning: TuningChoice | None
    aliases: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    published: tuple[Published, ...] = ()
    measured: tuple[Curve, ...] = ()

    def other_gpus(self, names: Iterable[str]) -> OtherGpus | None:
        """GPU models in the run that this system lacks; None if unknown."""
        models = () if self.fabric is None else self.fabric.gpu_models
        return other_gpus(self.name, models, names)

    def domains(self, nnodes: int) -> int:
        """Groups that only the network joins: hosts that share the links are one, else nodes."""
        return -(-nnodes // (1 if self.fabric is None else self.fabric.hosts))

    def fewest_nodes(self, nranks: int) -> int:
        """Fewest nodes that hold the ranks, for an unknown number: on these they are fastest."""
        if self.fabric is None:
            return 1
        return max(-(-nranks * self.fabric.hosts // self.fabric.gpus), 1)

    def nics(self, nranks: int, nnodes: int) -> int:
        """NICs that one domain of a job uses, at most; 0 without a network.

        A domain's NICs are those of its hosts: hosts without a rank send nothing. A GPU sends by
        its own NICs: one, or its share where the node has more NICs than GPUs.
        """
        return min(self.all_nics(nnodes), self.own_nics * -(-nranks // self.domains(nnodes)))

    def all_nics(self, nnodes: int) -> int:
        """NICs of the hosts of one domain, whether or not its ranks use them."""
        if self.network is None:
            return 0
        hosts = 1 if self.fabric is None else self.fabric.hosts
        return -(-self.network.nics * -(-nnodes // self.domains(nnodes)) // hosts)

    @property
    def own_nics(self) -> int:
        """NICs that one GPU sends by: its share, one at least."""
        if self.network is None:
            return 0
        if self.fabric is None:
            return self.network.nics
        return max(self.network.nics // self.fabric.gpus, 1)

    def with_network(self, other: System, nics: int | None) -> System:
        """This node with the network of `other`.

        nics  of them per node; None: as many as in that network's file, and where it describes
              a single NIC, as many as this node usually has
        """
        network, own, notes = other.network, self.network, self.notes
        count = "" if nics is None else f"{nics}x"
        if network is not None and nics is None and network.nics == 1 and own is not None:
            nics = own.nics
            usual = Note(
                "usual_nics",
                {"nics": nics, "system": self.name},
                f"{nics} NICs per node, as {self.name} usually has",
            )
            notes = (*notes, usual)
        if network is not None and nics is not None:
            per_domain = nics if self.fabric is None or count == "" else nics * self.fabric.hosts
            network = replace(network, nics=per_domain)
        name = f"{self.name}+{count}{other.name}"
        return replace(self, name=name, network=network, notes=notes)


def uniform_capacity(
    wiring: str, gpus: int, links_per_gpu: int, uni_gbps: float
) -> tuple[tuple[float, ...], ...]:
    """Capacities in GB/s of a full mesh, or of GPUs around one switch (the last node)."""
    egress = links_per_gpu * uni_gbps
    if wiring == "mesh":
        pair = egress / (gpus - 1)
        return tuple(tuple(0.0 if i == j else pair for j in range(gpus)) for i in range(gpus))
    spokes = tuple((*((0.0,) * gpus), egress) for _ in range(gpus))
    return (*spokes, (*((egress,) * gpus), 0.0))
