"""Bounds of a collective's bus bandwidth from the wiring of a system, before any size.

All are nccl-tests bus bandwidths in GB/s (GB = 1e9 bytes). n ranks, N nodes, g = n/N; B⁺(U) is
what leaves a set U of GPUs and switches, |U| the GPUs in it, E what leaves one GPU, B_N what the
NICs of a node carry.

Inside a node the bound is the minimum over sets U of

    AllGather, ReduceScatter  (n−1) B⁺(U)/|U|, U misses a GPU: of S/n bytes that start at each GPU
                              in U all have to leave it, so the time is at least (S/n)|U|/B⁺(U)
    AllReduce                 the same, as ReduceScatter and AllGather
    Broadcast, Reduce         B⁺(U), U holds the root and misses a GPU; of Reduce the reverse
    Gather                    (n−1) B⁺(U)/|U|, U misses the root
    Scatter                   (n−1) B⁺(U)/(n−|U|), U holds the root
    AllToAll, AllToAllv       (n−1) B⁺(U)/(|U|(n−|U|)); a v-exchange counts as uniform
    Send, Recv                the links of a pair and switches; hard: the maximum flow

Schedules that reach these exist: arXiv 2305.18461 §1.1, 2402.06787; Edmonds' theorem for
Broadcast. An AllReduce that is no ReduceScatter and AllGather may pass its bound. Its hard limit
is 2(n−1)/n min B⁺(U), and the mean of what the GPUs can send.

Between nodes it is the bound inside a node, and of the NICs

    AllReduce, AllGather, ReduceScatter, Gather, Scatter   (n−1) B_N/(g(N−1))
    Broadcast, Reduce                                      B_N
    AllToAll, AllToAllv                                    (n−1) B_N/(g(n−g))
    Send, Recv                                             one NIC

The hard limit adds the paths by NICs to the links: B_N/g to those of a GPU, B_N to those of the
root of a Gather or Scatter; of AllReduce it is at most (n−1)N B_N/(n(N−1)).

Switches that reduce, for AllReduce: with NVLS a GPU sends and receives S(1+1/g), so the bound is
E 2(n−1)/n g/(g+1) (`nvls_factor`); with SHARP a node sends and receives S once: 2(n−1)/n B_N; with
NVLSTree that of NVLS, and between nodes that of the NICs above.
"""

from __future__ import annotations

from math import inf

import msgspec
from msgspec.structs import replace

from collscope.errors import UsageError
from collscope.model import Op
from collscope.model.note import Note
from collscope.roofline.cut import ENUMERATED_NODES, direct_gbps, egress_gbps, minimum_cut
from collscope.roofline.flow import max_flow
from collscope.roofline.system import UNIFORM_WIRINGS, Fabric, InNetwork, System
from collscope.roofline.wiring import Weight, Wiring
from collscope.units import count

# Spread: RS + AG schedules, whose bound also is that of an AllReduce without in-network reduction.
_SPREAD = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER)
_EXCHANGE = (Op.ALL_TO_ALL, Op.ALL_TO_ALLV)
_TRANSFER = (Op.SEND_RECV, Op.SEND, Op.RECV)
BOUNDED_OPS = (*_SPREAD, *_EXCHANGE, *_TRANSFER, Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER)


class Request(msgspec.Struct, frozen=True):
    """The bound to compute, and its communicator.

    gpus        GPUs of each node that take part; None: the first nranks/nnodes of it
    root        rank among them for rooted operations; None: the best of all
    in_network  reduction by switches (NVLS, SHARP) is used
    tree        then only by those inside nodes, which a tree joins (NVLSTree)
    scheduled   MSCCL or MSCCL++ runs a schedule of its own: reachable, not the bound, depends on it
    links, network  parts of the line rates that count; 1 gives the limit of the wiring
    """

    op: Op
    nranks: int
    nnodes: int = 1
    gpus: tuple[int, ...] | None = None
    root: int | None = None
    in_network: bool = False
    tree: bool = False
    scheduled: bool = False
    links: float = 1.0
    network: float = 1.0

    @property
    def usable(self) -> bool:
        """True for the bound that protocols leave, not the limit."""
        return self.links < 1 or self.network < 1


class Bounds(msgspec.Struct, frozen=True):
    """What the wiring allows.

    busbw_gbps  the roof: the best schedule over the links
    limit       links, network or in-network: what the roof comes from
    hard_gbps   no schedule over the links can pass this (AllReduce may pass busbw_gbps)
    """

    busbw_gbps: float
    limit: str
    hard_gbps: float
    assumptions: tuple[Note, ...]


class _Inside(msgspec.Struct, frozen=True):
    """Bounds of the links inside one node, GB/s; infinite where one GPU of a node takes part."""

    busbw_gbps: float
    hard_gbps: float
    egress_gbps: float  # largest of one GPU


_ALONE = _Inside(inf, inf, 0.0)


def bounds(system: System, request: Request) -> Bounds | None:
    """Bounds of one operation; None for one rank and for operations that move no data.

    raises  UsageError when the system has not so many GPUs per node, no links, or no NICs
    """
    nodes = _domains(system, request.nranks, request.nnodes)
    if request.nranks < 2 or request.op not in BOUNDED_OPS:
        return None
    members, assumptions = _members(system, request, nodes)
    inside = _inside(system, request, members, nodes)
    if nodes == 1:
        found = Bounds(inside.busbw_gbps, "links", inside.hard_gbps, ())
    else:
        found = _between(system, request, nodes, inside)
    if request.in_network:
        found = _in_network(system, request, nodes, inside, found)
    return replace(found, assumptions=(*assumptions, *found.assumptions))


def nvls_factor(nranks: int, per_node: int) -> float:
    """Bus bandwidth over link rate of an AllReduce that the switch of each node reduces.

    Each GPU sends S to be reduced, and its reduced share S/per_node to the others; it receives as
    much. On one node that is 2(n−1)/(n+1).
    """
    return 2 * (nranks - 1) / nranks * per_node / (per_node + 1)


def _domains(system: System, nranks: int, nnodes: int) -> int:
    """Nodes for the bound: hosts that share a fabric count as one."""
    if not 1 <= nnodes <= max(nranks, 1):
        where = f"{count(nranks, 'rank')} on {count(nnodes, 'node')}"
        raise UsageError(f"{where}: impossible. Give 1 to {count(nranks, 'node')}.")
    return system.domains(nnodes)


def _members(
    system: System, request: Request, nodes: int
) -> tuple[tuple[int, ...], tuple[Note, ...]]:
    """GPUs of a node that take part, and what had to be assumed about them."""
    per_node = -(-request.nranks // nodes)
    gpus = per_node if system.fabric is None else system.fabric.gpus
    where = f"{count(request.nranks, 'rank')} on {count(nodes, 'node')} of {system.name}"
    if per_node > gpus:
        raise UsageError(
            f"{where}: {per_node} per node, but a node has {gpus} GPUs. "
            "Give --nodes, or another --system."
        )
    assumptions = []
    if request.nranks % nodes:
        assumptions.append(
            Note(
                "ranks_spread_evenly",
                {"ranks_per_node": per_node},
                f"ranks spread evenly: nodes with {per_node} and with one fewer",
            )
        )
    if request.gpus is not None:
        if len(set(request.gpus)) != per_node or not set(request.gpus) <= set(range(gpus)):
            raise UsageError(f"{where}: GPUs {request.gpus}. Name {per_node} of 0 to {gpus - 1}.")
        return request.gpus, ()
    if per_node < gpus and system.fabric is not None and system.fabric.wiring == "matrix":
        assumptions.append(
            Note(
                "first_gpus",
                {"gpus": per_node, "of": gpus},
                f"GPUs 0 to {per_node - 1} of {gpus} in each node",
            )
        )
    return tuple(range(per_node)), tuple(assumptions)


def _inside(system: System, request: Request, members: tuple[int, ...], nodes: int) -> _Inside:
    """Bounds of the links of one node."""
    if len(members) < 2:
        return _ALONE
    fabric = system.fabric
    if fabric is None:
        if nodes > 1:
            return _ALONE
        raise UsageError(
            f"{system.name}: has no links inside a node. Give --nodes, or a node with this"
            f" network, as in h100+{system.name}."
        )
    uniform = fabric.wiring in UNIFORM_WIRINGS
    found = _uniform(fabric, request.op, members) if uniform else _any(fabric, request, members)
    scale = request.links
    return _Inside(
        found.busbw_gbps * scale,
        found.hard_gbps * scale,
        found.egress_gbps * scale,
    )


def _uniform(fabric: Fabric, op: Op, members: tuple[int, ...]) -> _Inside:
    """Closed form for a mesh and a switch: by symmetry a cut around one GPU is the smallest."""
    first = fabric.capacity[members[0]]
    if fabric.wiring == "mesh":
        pair = first[members[1]]
        egress, direct = pair * (len(members) - 1), pair
    else:
        egress = direct = first[-1]
    if op in _TRANSFER:
        return _Inside(direct, egress, egress)
    return _Inside(egress, egress, egress)


def _any(fabric: Fabric, request: Request, members: tuple[int, ...]) -> _Inside:
    """Minimum cuts of any directed wiring."""
    graph = fabric.graph.restricted(members)
    egress = egress_gbps(graph)
    n, op = len(members), request.op
    if op in _SPREAD:
        busbw = (n - 1) * minimum_cut(graph, Weight.INSIDE).ratio_gbps
        hard = busbw
        if op is Op.ALL_REDUCE:
            smallest = minimum_cut(graph, Weight.ONE).ratio_gbps
            hard = min(2 * (n - 1) / n * smallest, sum(egress) / n)
        return _Inside(busbw, max(busbw, hard), max(egress))
    if op in _EXCHANGE:
        busbw = (n - 1) * minimum_cut(graph, Weight.PAIRS).ratio_gbps
        return _Inside(busbw, busbw, max(egress))
    if op in _TRANSFER:
        direct, flow = _transfer(graph)
        return _Inside(direct, flow, max(egress))
    if request.root is None and len(graph.capacity) > ENUMERATED_NODES:
        busbw = _any_root(graph)
    else:
        roots = range(n) if request.root is None else (request.root % n,)
        busbw = max(_rooted(graph, op, root) for root in roots)
    return _Inside(busbw, busbw, max(egress))


def _rooted(graph: Wiring, op: Op, root: int) -> float:
    """Bus bandwidth bound of an operation with a root, GB/s."""
    if op is Op.BROADCAST:
        return minimum_cut(graph, Weight.ONE, inside=root).ratio_gbps
    if op is Op.REDUCE:
        return minimum_cut(graph, Weight.ONE, outside=root).ratio_gbps
    if op is Op.SCATTER:
        return (graph.gpus - 1) * minimum_cut(graph, Weight.OUTSIDE, inside=root).ratio_gbps
    return (graph.gpus - 1) * minimum_cut(graph, Weight.INSIDE, outside=root).ratio_gbps


def _transfer(graph: Wiring) -> tuple[float, float]:
    """Best pair over its own links, and with other GPUs forwarding, in GB/s."""
    pairs = [(i, j) for i in range(graph.gpus) for j in range(graph.gpus) if i != j]
    direct = max(direct_gbps(graph, i, j) for i, j in pairs)
    if len(graph.capacity) > ENUMERATED_NODES:
        return direct, _any_root(graph)
    return direct, max(max_flow(graph.capacity, i, j)[0] for i, j in pairs)


def _any_root(graph: Wiring) -> float:
    """Limit that holds for every root of a large wiring, GB/s: the cuts around single GPUs."""
    return min(max(egress_gbps(graph)), max(egress_gbps(graph.reversed())))


def _between(system: System, request: Request, nodes: int, inside: _Inside) -> Bounds:
    """Bounds of several equal nodes on a non-blocking network."""
    network = system.network
    if network is None:
        raise UsageError(
            f"{system.name}: has no NICs, but {nodes} nodes need a network. "
            f"Name a network too, as in {system.name}+8xib-ndr."
        )
    rate = _network_gbps(system, request)
    fitted_gbps = system.all_nics(request.nnodes) * network.uni_gbps * request.network
    n, op = request.nranks, request.op
    per_node, fewest = -(-n // nodes), n // nodes
    around = _around(request, nodes, rate)
    local = inside.busbw_gbps
    if op in _EXCHANGE:
        nic = (n - 1) * rate / max(g * (n - g) for g in (per_node, fewest))
        # Data between GPUs of one node is a part of what each has to send.
        local *= (n - 1) / max(per_node - 1, 1)
    elif op in (Op.BROADCAST, Op.REDUCE):
        nic = rate
    elif op in _TRANSFER:
        nic = system.own_nics * network.uni_gbps * request.network
        local = inf
    else:
        nic = around
    busbw = min(nic, local)
    return Bounds(
        busbw,
        "network" if nic <= local else "links",
        max(
            busbw,
            _hard_between(request, nodes, fitted_gbps, inside, nic * fitted_gbps / rate),
        ),
        (_used(system, request, nodes),),
    )


def _hard_between(request: Request, nodes: int, rate: float, inside: _Inside, nic: float) -> float:
    """What no schedule passes when NICs carry beside the links, which `rate` leaves a node, GB/s.

    nic  bound of the NICs by the same operation's cuts around nodes
    """
    n, op = request.nranks, request.op
    if op in _TRANSFER:
        return rate
    if op is Op.ALL_REDUCE:
        # Each node sends S; all of them 2(N-1)S together; all GPUs 2(n-1)S.
        together = (n - 1) * nodes * rate / (n * (nodes - 1))
        return min(2 * (n - 1) / n * rate, together, inside.hard_gbps + nodes * rate / n)
    gpu = max(inside.hard_gbps, inside.egress_gbps)
    if op in (Op.GATHER, Op.SCATTER):
        # The root's links and all NICs of its node; the best root is in the node with most ranks.
        most = -(-n // nodes)
        return min((n - 1) * rate / (n - most), gpu + rate)
    # The GPUs of a node, each at its links, share its NICs; of Broadcast, those without the root.
    return min(nic, gpu + rate / (n // nodes))


def _network_gbps(system: System, request: Request) -> float:
    """What leaves one node, or one domain of several hosts, in GB/s; 0 without a network."""
    if system.network is None:
        return 0.0
    return system.nics(request.nranks, request.nnodes) * system.network.uni_gbps * request.network


def _around(request: Request, nodes: int, rate: float) -> float:
    """(n−1) B⁺(U)/|U| in GB/s; U: all nodes but the one with the fewest ranks, which get `rate`."""
    n = request.nranks
    return (n - 1) * rate / (n - n // nodes)


def _used(system: System, request: Request, nodes: int) -> Note:
    """What a bound between nodes assumes about them."""
    nics = system.nics(request.nranks, request.nnodes)
    if request.op in _TRANSFER:
        own = "one NIC" if system.own_nics == 1 else f"{system.own_nics} NICs"
        return Note(
            "pair_between_nodes",
            {"nics": system.own_nics, "of": nics},
            f"a pair on different nodes, {own} of {nics}",
        )
    hosts = -(-request.nnodes // nodes)
    equal = f"{nodes} equal nodes" if hosts == 1 else f"{nodes} domains of {hosts} nodes"
    fitted = system.all_nics(request.nnodes)
    used = f"all {nics} NICs" if nics == fitted else f"{nics} of {fitted} NICs"
    return Note(
        "equal_nodes",
        {"nodes": nodes, "hosts": hosts, "nics": nics, "of": fitted},
        f"{equal}, a non-blocking network, {used} used",
    )


def _in_network(
    system: System, request: Request, nodes: int, inside: _Inside, plain: Bounds
) -> Bounds:
    """AllReduce that switches reduce; other operations, and systems without it, do not change.

    Between nodes each node sends S and receives S (SHARP), or a tree joins the nodes.
    """
    links = None if system.fabric is None else system.fabric.in_network
    between = None if system.network is None else system.network.in_network
    feature = links if nodes == 1 or request.tree else between
    if request.op is not Op.ALL_REDUCE or feature is None:
        return plain
    n = request.nranks
    efficiency = feature.efficiency if request.usable else 1.0
    rate = _network_gbps(system, request)
    local, limit = _switched(request, nodes, inside, links), "in-network"
    if nodes == 1:
        value, note = local * efficiency, _reduced_by(feature)
    elif request.tree:
        value, note = local * efficiency, _joined_by_tree(feature)
        if _around(request, nodes, rate) < value:
            value, limit = _around(request, nodes, rate), "network"
    else:
        value = min(2 * (n - 1) / n * rate, local) * efficiency
        note = _reduced_by(feature)
    return Bounds(value, limit, value, (*plain.assumptions, note))


def _switched(request: Request, nodes: int, inside: _Inside, feature: InNetwork | None) -> float:
    """Bound inside nodes whose switches reduce, in GB/s; that of the links where they do not."""
    if feature is None or inside.egress_gbps <= 0:
        return inside.busbw_gbps
    return inside.egress_gbps * nvls_factor(request.nranks, -(-request.nranks // nodes))


def _reduced_by(feature: InNetwork) -> Note:
    """Assumption that names the reduction."""
    return Note("switches_reduce", {"by": feature.name}, f"{feature.name}: the switches reduce")


def _joined_by_tree(feature: InNetwork) -> Note:
    """Assumption of a reduction inside nodes only."""
    return Note(
        "switches_reduce_inside_nodes",
        {"by": feature.name},
        f"{feature.name}: the switches inside nodes reduce, a tree joins the nodes",
    )
