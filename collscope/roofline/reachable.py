"""What the libraries' algorithms reach on a wiring: rings and trees over the links that are there.

`bounds` computes what any schedule over the fabric may reach, the *limit*. A library has a few
algorithms; the best of them is the *reachable* ceiling. Rates are those that protocols leave of a
link (`links.toml`), so each has a value and a range. All results are nccl-tests bus bandwidths in
GB/s; n ranks on N nodes of g = n/N, S the size, B_N what the NICs of a node carry.

Ring, one node      k directed rings, each w GB/s wide: k w. A switch: what one GPU sends. A mesh of
                    g GPUs: g-1 rings of one link each. Any other wiring: the rings of its file,
                    else those that a search finds.
Ring, N nodes       A ring passes a node on a path, which leaves one link out: a mesh has g paths,
                    a switch carries g/(g-1) of its rate. At most B_N.
Tree (AllReduce)    S goes up and down a chain inside each node: half of its paths each way. Two
                    nodes send and receive S each; of more, inner nodes send and receive 2 S.
                    (Double binary tree of nodes: NVIDIA/nccl src/graph/trees.cc.) NCCL's channels
                    carry no more than its tuning table allows each of them.
Direct              AllToAll, Send/Recv, Gather and Scatter go straight; their limit is reachable.
MSCCL, MSCCL++      A schedule of its own (a file, or kernels of the library) takes the place of
                    ring and tree. It is unknown: we assume ring and tree, and at most the limit at
                    the usable rate.
Switches reduce     `bounds` with their efficiency: AllReduce on nodes with NVSwitch and more than
                    four GPUs (NVLS; between nodes NVLSTree). With more than two nodes inner ones of
                    the tree send and receive 2 S, and a tree adds nothing to what one node reaches.
Between nodes       Rings leave a part of what the NICs carry, pairs (AllToAll, Send/Recv) of NCCL
                    at its default settings half: `_BETWEEN`, `_PAIRS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec
from msgspec.structs import replace

from collscope.model import Op
from collscope.model.note import Note
from collscope.roofline.bounds import Request, bounds
from collscope.roofline.links import Usable
from collscope.roofline.nccl_constants import nccl_limits
from collscope.roofline.system import Fabric, System
from collscope.roofline.wiring import Wiring
from collscope.units import format_size

RING, TREE, DIRECT, SWITCHES = "ring", "tree", "direct", "switches that reduce"
SCHEDULE = "MSCCL schedule"
_RING_OPS = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.BROADCAST, Op.REDUCE)
_SEARCHED_GPUS = 8  # rings of larger irregular wirings are not searched for
_MOST_TRIES = 20_000  # steps of that search
_UNKNOWN = Usable(1.0, 1.0, 1.0, "")
# Where no ring over the links exists, a library falls back to slower ways: at least this part.
_NO_RING_LOW = 0.3


class _UsablePart(msgspec.Struct, frozen=True):
    """Part of a rate that an algorithm leaves: most likely, and the range of what was published."""

    value: float
    low: float
    high: float

    def at(self, end: str) -> float:
        """The part at one end of the range: value, low or high."""
        return {"value": self.value, "low": self.low, "high": self.high}[end]


_WHOLE = _UsablePart(1.0, 1.0, 1.0)
# Rings between nodes, of what the NICs carry (published tables of the calibration half). AllReduce:
# 366 of 388 GB/s on 4 x 8 H100 (nccl-tests issue 309), 358 of 388 on 2 x 8 MI300X. Other
# operations: 326 of 380 on 2 x 8 H200 (GCP A3 Ultra), 308 of 388 on 2 x 8 B200, 189 of 190 with
# TCPXO, 32 of 47.5 with one GPU per node.
_BETWEEN_REDUCE = _UsablePart(0.94, 0.88, 1.0)
_BETWEEN = _UsablePart(0.82, 0.64, 1.0)
# One GPU per node: 32 of 47.5 on 2 x 1 H200 (AllGather).
_ONE_GPU = _UsablePart(0.67, 0.6, 1.0)
# Trees between nodes: 236 of 340 GB/s on 2 x 4 H100, 78 of 89 on 2 x 8 A100 with EFA.
_TREE = _UsablePart(0.78, 0.6, 1.0)
# NCCL's speed table has 24 and 48 GB/s for NICs of 25 and 50: such channels are not doubled at 25
# and 50 GB/s (search.cc).
_ONE_CHANNEL_GBPS = 25.0
# AllToAll and Send/Recv between nodes. NCCL: 42 of 91 and 19.6 of 48.5 GB/s on 2 x 8 B200, 46 of 91
# on 2 x 8 RTX 6000D, few channels per peer and 128 KiB chunks (src/init.cc); with more channels up
# to the whole. RCCL: 91 of 89 GB/s on 2 x 8 MI355X.
_PAIRS = {"nccl": _UsablePart(0.48, 0.38, 1.0), "rccl": _UsablePart(1.0, 0.85, 1.0)}
# AllGather and ReduceScatter of two GPUs on one node: 483 of 722 GB/s on 2 B200.
_OF_TWO = _UsablePart(0.68, 0.62, 0.9)
# With up to four GPUs per node NCCL takes rings: stas00/ml-engineering, NCCL 2.27.7 on H200, B200.
_MOST_BY_RING = 4


class Reach(msgspec.Struct, frozen=True):
    """The reachable bus bandwidth of large messages, in GB/s.

    busbw_gbps   most likely; low, high: range that holds what machines of the kind reach
    algorithm    ring, tree, direct, switches that reduce or MSCCL schedule
    assumed      True where a rate behind it was never measured on such links
    assumptions  with their sources
    """

    busbw_gbps: float
    low_gbps: float
    high_gbps: float
    algorithm: str
    assumed: bool
    assumptions: tuple[Note, ...]


def with_switches(system: System, request: Request) -> Request:
    """The request with NVSwitches that reduce, where the library lets them by default."""
    nodes = system.domains(request.nnodes)
    if (
        request.op is not Op.ALL_REDUCE
        or request.scheduled
        or -(-request.nranks // nodes) <= _MOST_BY_RING
        or not _switches_reduce(system)
    ):
        return request
    return replace(request, in_network=True, tree=nodes > 1)


def reachable_ways(system: System, request: Request) -> tuple[Reach, ...]:
    """The algorithms that the library chooses from, the fastest of large messages first.

    raises  UsageError as `bounds`
    """
    ways = [reachable(system, replace(request, in_network=False, tree=False))]
    if request.in_network:
        ways.append(reachable(system, request))
    found = [way for way in ways if way is not None]
    return tuple(sorted(found, key=lambda way: way.busbw_gbps, reverse=True))


def reachable(system: System, request: Request) -> Reach | None:
    """The reachable ceiling of large messages; None where `bounds` has none.

    A published figure of the same operation and shape raises the lower end of the range: it was
    reached.

    raises  UsageError as `bounds`
    """
    limit = bounds(system, request)
    if limit is None:
        return None
    links, network = _usable(system)
    nodes = system.domains(request.nnodes)
    inside = request.nranks > nodes
    used = [u for u, counts in ((links, inside), (network, nodes > 1)) if counts]
    found = {end: _best(system, request, end) for end in ("value", "low", "high")}
    (value, algorithm), (low, _), (high, _) = found["value"], found["low"], found["high"]
    notes = [_note(u, where) for u, where in ((links, "links"), (network, "network")) if u in used]
    if algorithm == TREE:  # a ring is what every library falls back to
        low = min(low, _ring(system, request, "low"))
    if algorithm == RING and not _has_rings(system, request, nodes):
        low = min(low, _NO_RING_LOW * value)
        notes.append(
            Note(
                "no_ring",
                {},
                "no ring over the links was found; what the library does instead is not known",
            )
        )
    if not request.in_network and request.op is Op.ALL_REDUCE and _switches_reduce(system):
        best = bounds(
            system, replace(request, in_network=True, links=links.high, network=network.high)
        )
        high = high if best is None else max(high, best.busbw_gbps)
        notes.append(
            Note("upper_end_with_switches", {}, "the upper end assumes that switches reduce")
        )
    if request.scheduled and algorithm in (RING, TREE):
        best = bounds(system, replace(request, links=links.high, network=network.high))
        high = high if best is None else max(high, best.busbw_gbps)
        algorithm = SCHEDULE
        notes.append(
            Note(
                "own_schedule",
                {},
                "MSCCL runs its own schedule, which is unknown; we assume ring and tree, and the "
                "upper end is the most that any schedule over these links reaches",
            )
        )
    if algorithm == SWITCHES:
        low *= _worst(system)
    low, published = _raised(system, request, low)
    notes += published
    low = min(low, limit.hard_gbps)
    return Reach(
        busbw_gbps=max(value, low),
        low_gbps=min(low, value),
        high_gbps=max(high, value, low),
        algorithm=algorithm,
        assumed=any(u.assumed for u in used),
        assumptions=(*limit.assumptions, *notes),
    )


def _usable(system: System) -> tuple[Usable, Usable]:
    fabric, network = system.fabric, system.network
    return (
        _UNKNOWN if fabric is None else fabric.usable,
        _UNKNOWN if network is None else network.usable,
    )


def _note(usable: Usable, where: str) -> Note:
    assumed = "; assumed" * usable.assumed
    return Note(
        f"usable_{where}",
        {
            "value": usable.value,
            "low": usable.low,
            "high": usable.high,
            "assumed": usable.assumed,
            "source": usable.source,
        },
        f"{where} {'carry' if where == 'links' else 'carries'} {usable.value:g} of the line rate "
        f"({usable.low:g} to {usable.high:g}{assumed}). Source: {usable.source}",
    )


def _switches_reduce(system: System) -> bool:
    return system.fabric is not None and system.fabric.in_network is not None


def _worst(system: System) -> float:
    """What the worst machine known reaches of the switches' usual efficiency."""
    feature = None if system.fabric is None else system.fabric.in_network
    if feature is None or feature.efficiency_low is None:
        return 1.0
    return feature.efficiency_low / feature.efficiency


def _raised(system: System, request: Request, low: float) -> tuple[float, list[Note]]:
    """The lower end with what was published of the same shape, and where."""
    alike = [
        row
        for row in system.published
        if (row.op, row.nranks, row.nnodes) == (request.op, request.nranks, request.nnodes)
        and row.in_network == request.in_network
    ]
    best = max(alike, key=lambda row: row.busbw_gbps, default=None)
    if best is None or best.busbw_gbps <= low:
        return low, []
    reached = Note(
        "published",
        {"busbw_gbps": best.busbw_gbps, "source": best.source},
        f"a bus bandwidth of {best.busbw_gbps:g} GB/s was measured at "
        f"{format_size(best.size_bytes)}: {best.source}",
    )
    return best.busbw_gbps, [reached]


def _best(system: System, request: Request, end: str) -> tuple[float, str]:
    """The best algorithm at one end of the range of rates: GB/s and its name."""
    if request.in_network:
        return _reduced(system, request, end)
    if request.op not in _RING_OPS:
        return _direct(system, request, end), DIRECT
    ring, tree = _ring(system, request, end), _tree(system, request, end)
    return (tree, TREE) if tree > ring else (ring, RING)


def _rates(system: System, end: str) -> tuple[float, float]:
    """Usable parts of the links' and the network's line rate at one end of their range."""
    links, network = _usable(system)
    return getattr(links, end), getattr(network, end)


def _reduced(system: System, request: Request, end: str) -> tuple[float, str]:
    """Switches that reduce; the links' own algorithms where there are none."""
    links, network = _rates(system, end)
    found = bounds(system, replace(request, links=links, network=network))
    assert found is not None  # `reachable` has seen to it
    if found.limit == "links" or request.op is not Op.ALL_REDUCE:
        return _best(system, replace(request, in_network=False), end)
    nodes = system.domains(request.nnodes)
    if not request.tree or nodes == 1:
        return found.busbw_gbps, SWITCHES
    inside = replace(request, nranks=-(-request.nranks // nodes), nnodes=1, links=links)
    node = bounds(system, replace(inside, tree=False))
    between = 2 * (request.nranks - 1) / request.nranks * _nics_gbps(system, request) * network
    return min(
        found.busbw_gbps,
        inf if node is None else node.busbw_gbps,
        between / (1 if nodes == 2 else 2),
    ), SWITCHES


def _direct(system: System, request: Request, end: str) -> float:
    """Every pair on its own way."""
    links, network = _rates(system, end)
    if system.domains(request.nnodes) > 1:
        library = "nccl" if system.tuning is None else system.tuning.library
        network *= _PAIRS[library].at(end)
    found = bounds(system, replace(request, links=links, network=network))
    assert found is not None  # `reachable` has seen to it
    return found.busbw_gbps


def _ring(system: System, request: Request, end: str) -> float:
    nodes = system.domains(request.nnodes)
    links, network = _rates(system, end)
    inside = _paths(system, request, nodes) * links
    if nodes == 1:
        two = request.nranks == 2 and request.op in (Op.ALL_GATHER, Op.REDUCE_SCATTER)
        switched = system.fabric is not None and system.fabric.wiring == "switch"
        return inside * (_OF_TWO if two and switched else _WHOLE).at(end)
    between = _BETWEEN_REDUCE if request.op is Op.ALL_REDUCE else _BETWEEN
    if request.nranks == nodes:
        between = _ONE_GPU
    return min(inside, _nics_gbps(system, request) * network * between.at(end))


def _tree(system: System, request: Request, end: str) -> float:
    """A chain in each node and a double binary tree of nodes; 0 where a ring is never worse."""
    n, nodes = request.nranks, system.domains(request.nnodes)
    if request.op is not Op.ALL_REDUCE or nodes == 1:
        return 0.0
    links, network = _rates(system, end)
    factor = 2 * (n - 1) / n
    chains = _paths(system, request, nodes) * links / 2
    network *= min(_TREE.at(end), _ONE_GPU.at(end)) if n == nodes else _TREE.at(end)
    between = _nics_gbps(system, request) * network / (1 if nodes == 2 else 2)
    channels = inf if end == "high" else _tree_channels_gbps(system, request, nodes)
    return min(factor * min(chains, between), channels)


def _tree_channels_gbps(system: System, request: Request, nodes: int) -> float:
    """Bus bandwidth that NCCL's channels allow a tree between nodes; infinite where not known.

    The library gives each NIC one channel. It doubles channels that carry 25 GB/s or more; after
    Ampere it does so only for up to four channels, or from 50 GB/s on (`ncclTopoDupChannels` of
    NVIDIA/nccl 5067397 src/graph/search.cc). `perChMaxTreeBws` of tuning.cc bounds each channel.
    """
    tuning, network = system.tuning, system.network
    if tuning is None or network is None:
        return inf
    limits = nccl_limits(tuning.architecture)
    if tuning.library != "nccl" or limits is None:
        return inf
    nics = system.nics(request.nranks, request.nnodes)
    gbps = network.uni_gbps
    few = tuning.architecture in ("volta", "ampere") or nics <= 4
    doubled = gbps > _ONE_CHANNEL_GBPS and (few or gbps > 2 * _ONE_CHANNEL_GBPS)
    return nics * (2 if doubled else 1) * limits.tree_per_channel[1 if nodes == 2 else 2]


def _nics_gbps(system: System, request: Request) -> float:
    """Line rate of a node's NICs."""
    return (
        0.0
        if system.network is None
        else system.nics(request.nranks, request.nnodes) * system.network.uni_gbps
    )


def _paths(system: System, request: Request, nodes: int) -> float:
    """Line rate of the rings of one node, or of the paths through it where there are several."""
    per_node = -(-request.nranks // nodes)
    fabric = system.fabric
    if per_node < 2 or fabric is None:
        return inf
    stretched = per_node / (per_node - 1) if nodes > 1 else 1.0
    members = request.gpus or tuple(range(per_node))
    if fabric.wiring == "mesh":
        return (per_node - 1) * fabric.capacity[members[0]][members[1]] * stretched
    if fabric.wiring != "matrix":
        return fabric.capacity[members[0]][-1] * stretched
    rings = _rings(fabric, members)
    if rings:
        return rings * fabric.uni_gbps
    found = bounds(system, Request(Op.ALL_GATHER, per_node, gpus=request.gpus))
    return 0.0 if found is None else found.busbw_gbps


def _has_rings(system: System, request: Request, nodes: int) -> bool:
    """Whether rings over the links of a node are known."""
    per_node = -(-request.nranks // nodes)
    fabric = system.fabric
    if per_node < 2 or fabric is None or fabric.wiring != "matrix":
        return True
    return _rings(fabric, request.gpus or tuple(range(per_node))) > 0


def _rings(fabric: Fabric, members: tuple[int, ...]) -> int:
    """Rings of one link over some GPUs: those of the file where all take part, else found ones."""
    if fabric.rings and len(members) == fabric.gpus:
        return len(fabric.rings)
    return count_rings(fabric.graph.restricted(members), fabric.uni_gbps)


def count_rings(graph: Wiring, link_gbps: float) -> int:
    """How many rings of one link over all GPUs a search finds room for at once.

    Rings are taken one after another, each over the pairs with the most links left, and a choice
    is taken back where it ends nowhere. A lower bound, exact for the shipped systems; 0 beyond
    `_SEARCHED_GPUS` GPUs. Switches are not passed.
    """
    if not 2 <= graph.gpus <= _SEARCHED_GPUS:
        return 0
    gpus = range(graph.gpus)
    left = [[int(graph.capacity[i][j] / link_gbps + 1e-9) for j in gpus] for i in gpus]
    found = 0
    while (ring := next(_cycles(left), None)) is not None:
        for i, j in zip(ring, (*ring[1:], ring[0]), strict=True):
            left[i][j] -= 1
        found += 1
    return found


def _cycles(left: list[list[int]]) -> Iterator[tuple[int, ...]]:
    """Rings over all GPUs with a link left on every hop, the widest hops first."""
    size, tries = len(left), 0
    stack: list[tuple[int, ...]] = [(0,)]
    while stack and tries < _MOST_TRIES:
        tries += 1
        path = stack.pop()
        if len(path) == size:
            if left[path[-1]][0] > 0:
                yield path
            continue
        last = path[-1]
        onward = [j for j in range(size) if j not in path and left[last][j] > 0]
        stack += [(*path, j) for j in sorted(onward, key=lambda j: left[last][j])]
