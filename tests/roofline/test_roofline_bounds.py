"""Bounds of wirings: hand-derived values, and brute force over every cut of random graphs."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collscope.errors import UsageError
from collscope.model import Op, bus_factor
from collscope.roofline.bounds import Bounds, Request, bounds, nvls_factor
from collscope.roofline.catalogue import load_system, shipped_systems
from collscope.roofline.cut import direct_gbps, minimum_cut
from collscope.roofline.flow import max_flow
from collscope.roofline.system import uniform_capacity
from collscope.roofline.wiring import Weight, Wiring

SPREAD = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER)


def bound(name: str, op: Op, nranks: int, nnodes: int = 1, **more: object) -> Bounds:
    found = bounds(load_system(name), Request(op, nranks, nnodes, **more))  # type: ignore[arg-type]
    assert found is not None
    return found


# --- the factors -----------------------------------------------------------------------------

# What each rank must send of S bytes: for an AllReduce n − 1 shares of S/n to be reduced elsewhere,
# and its own reduced share to n − 1 others.
FACTORS = {
    1: dict.fromkeys((Op.ALL_REDUCE, Op.ALL_GATHER, Op.BROADCAST), None),
    2: {Op.ALL_REDUCE: 1, Op.ALL_GATHER: Fraction(1, 2), Op.BROADCAST: 1},
    8: {Op.ALL_REDUCE: Fraction(7, 4), Op.ALL_GATHER: Fraction(7, 8), Op.BROADCAST: 1},
    16: {Op.ALL_REDUCE: Fraction(15, 8), Op.ALL_GATHER: Fraction(15, 16), Op.BROADCAST: 1},
}
SAME_FACTOR = {
    Op.ALL_GATHER: (Op.REDUCE_SCATTER, Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER),
    Op.BROADCAST: (Op.REDUCE, Op.SEND_RECV),
}


@pytest.mark.parametrize("nranks", FACTORS)
def test_factor_table(nranks: int) -> None:
    for op, expected in FACTORS[nranks].items():
        for same in (op, *SAME_FACTOR.get(op, ())):
            factor = bus_factor(same, nranks)
            assert factor == (None if expected is None else pytest.approx(float(expected))), same


# --- one node --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nranks", "limit", "usable"),
    [
        ("mi300x", 8, 448, 336),  # 7 links of 64, of which 48 are left to data
        ("mi300x", 4, 192, 144),
        ("mi300x", 2, 64, 48),
        ("mi100", 4, 138, 72),
        ("mi210", 4, 150, 108),
        ("mi355x", 8, 537.6, 403.2),
        ("mi300a", 4, 384, 288),
        ("frontier", 8, 875 / 3, 210),  # cut: three OAMs to the fourth, 250 GB/s for 6 GCDs
        ("dgx1-v100", 8, 150, 120),
        ("dgx2-v100", 16, 150, 120),
        ("a100", 8, 300, 240),
        ("h100", 8, 450, 370.8),
        ("b200", 8, 900, 721.8),
        ("pcie-gen5", 8, 63, 53.55),
    ],
)
def test_spread_bound_of_one_node(name: str, nranks: int, limit: float, usable: float) -> None:
    fabric = load_system(name).fabric
    assert fabric is not None
    for op in SPREAD:
        assert bound(name, op, nranks).busbw_gbps == pytest.approx(limit, rel=1e-4)
        reached = bound(name, op, nranks, links=fabric.usable.value)
        assert reached.busbw_gbps == pytest.approx(usable, rel=1e-3)


def test_frontier_node_by_hand() -> None:
    # AllToAll: two OAMs against two, 300 GB/s for 4 x 4 pairs: 7 * 300 / 16.
    assert bound("frontier", Op.ALL_TO_ALL, 8).busbw_gbps == pytest.approx(7 * 300 / 16)
    # Broadcast: the root's own OAM has 5 links to the others.
    for root in range(8):
        for op in (Op.BROADCAST, Op.REDUCE):
            assert bound("frontier", op, 8, root=root).busbw_gbps == pytest.approx(250)
    # Mean of four GCDs with 7 links and four with 6.
    assert bound("frontier", Op.ALL_REDUCE, 8).hard_gbps == pytest.approx(325)
    # A pair inside an OAM has four links; with forwarding all 6 links of the odd GCD.
    transfer = bound("frontier", Op.SEND_RECV, 8)
    assert (transfer.busbw_gbps, transfer.hard_gbps) == (200, 300)


def test_four_rings_of_frontier_fit() -> None:
    fabric = load_system("frontier").fabric
    assert fabric is not None
    used: dict[tuple[int, int], int] = {}
    for ring in fabric.rings:
        for i, j in zip(ring, (*ring[1:], ring[0]), strict=True):
            used[i, j] = used.get((i, j), 0) + 1
    assert sum(used.values()) == 32
    assert all(count * 50 <= fabric.capacity[i][j] for (i, j), count in used.items())
    assert sum(map(sum, fabric.capacity)) / 50 == 52


def test_mesh_and_switch_by_operation() -> None:
    for op in (*SPREAD, Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER, Op.ALL_TO_ALL):
        assert bound("mi300x", op, 8).busbw_gbps == pytest.approx(448), op
        assert bound("h100", op, 8).busbw_gbps == pytest.approx(450), op
    single = bound("mi300x", Op.SEND_RECV, 8)
    assert (single.busbw_gbps, single.hard_gbps) == (64, 448)
    assert bound("mi300x", Op.SEND_RECV, 8, links=0.75).busbw_gbps == 48
    assert bound("h100", Op.SEND_RECV, 8).busbw_gbps == 450


# --- switches that reduce --------------------------------------------------------------------


def test_nvls() -> None:
    assert nvls_factor(8, 8) == pytest.approx(14 / 9)
    assert nvls_factor(72, 72) == pytest.approx(1.945, abs=5e-4)
    assert bound("h100", Op.ALL_REDUCE, 8, in_network=True).busbw_gbps == pytest.approx(700)
    reached = bound("h100", Op.ALL_REDUCE, 8, in_network=True, links=0.824)
    assert reached.busbw_gbps == pytest.approx(370.8 * 14 / 9 * 0.85)
    assert bound("h100", Op.ALL_GATHER, 8, in_network=True).busbw_gbps == pytest.approx(450)
    assert bound("mi300x", Op.ALL_REDUCE, 8, in_network=True).limit == "links"


def test_nvls_tree_reduces_inside_nodes_only() -> None:
    # 4 nodes of 8: NICs carry 31 * 400 / 24 of a reduce-scatter and all-gather; the switches of a
    # node carry S (1 + 1/8) per GPU: 2 * 31/32 * 450 * 8/9.
    inside, between = 2 * 31 / 32 * 450 * 8 / 9, 31 * 400 / 24
    tree = bound("h100", Op.ALL_REDUCE, 32, 4, in_network=True, tree=True)
    assert tree.busbw_gbps == pytest.approx(min(inside, between))
    assert tree.limit == "network"
    assert (
        tree.assumptions[-1].text
        == "NVLS: the switches inside nodes reduce, a tree joins the nodes"
    )
    fast = bound("h100+32xib-ndr", Op.ALL_REDUCE, 32, 4, in_network=True, tree=True)
    assert (fast.busbw_gbps, fast.limit) == (pytest.approx(inside), "in-network")
    # Without switches that reduce inside nodes it is an AllReduce as any other.
    assert bound("a100", Op.ALL_REDUCE, 16, 2, in_network=True, tree=True).limit == "links"


def test_sharp_between_nodes_sends_each_byte_once() -> None:
    found = bound("ib-ndr", Op.ALL_REDUCE, 4, 4, in_network=True)
    assert found.busbw_gbps == pytest.approx(2 * 3 / 4 * 50)
    assert found.limit == "in-network"


# --- several nodes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nranks", "nnodes", "expected"),
    [(16, 2, 187.5), (32, 4, 31 * 100 / 24), (512, 64, 511 * 100 / (8 * 63))],
)
def test_frontier_between_nodes(nranks: int, nnodes: int, expected: float) -> None:
    found = bound("frontier", Op.ALL_REDUCE, nranks, nnodes)
    assert found.busbw_gbps == pytest.approx(expected)
    assert found.limit == "network"


def test_operations_between_nodes() -> None:
    assert bound("frontier", Op.ALL_REDUCE, 512, 64).busbw_gbps == pytest.approx(101.389, abs=1e-3)
    assert bound("frontier", Op.ALL_TO_ALL, 16, 2).busbw_gbps == pytest.approx(15 * 100 / 64)
    assert bound("frontier", Op.BROADCAST, 16, 2).busbw_gbps == 100
    assert bound("frontier", Op.GATHER, 16, 2).busbw_gbps == pytest.approx(187.5)
    assert bound("frontier", Op.SEND_RECV, 16, 2).busbw_gbps == 25
    # 8 NICs of 50: 750 over the network, so the links of a node decide.
    h100 = bound("h100", Op.ALL_REDUCE, 16, 2)
    assert (h100.busbw_gbps, h100.limit) == (450, "links")


def test_hosts_of_a_rack_share_one_domain() -> None:
    assert bound("gb200-nvl72", Op.ALL_REDUCE, 72, 18).busbw_gbps == 900
    whole = bound("gb200-nvl72", Op.ALL_REDUCE, 144, 36)
    assert whole.assumptions[0].text.startswith("2 domains of 18 nodes, ")
    # Of a rack of which 10 hosts take part only their 40 NICs carry data.
    half = bound("gb200-nvl72", Op.ALL_TO_ALL, 80, 20)
    assert half.busbw_gbps == pytest.approx(79 * 40 * 50 / (40 * 40))
    assert half.assumptions[0].text.endswith("all 40 NICs used")


def test_hard_limit_of_uneven_nodes() -> None:
    # 9 ranks as 5 and 4. What the GPUs send on average: 450, and 2 * 400 by the NICs for all 9.
    assert bound("h100", Op.ALL_REDUCE, 9, 2).hard_gbps == pytest.approx(450 + 800 / 9)
    # Each node sends S at least: 2 * 8/9 * 50.
    slow = bound("h100+1xib-ndr", Op.ALL_REDUCE, 9, 2)
    assert slow.busbw_gbps == pytest.approx(8 * 50 / 5)  # the node of 5 sends 5/9 of the data
    assert slow.hard_gbps == pytest.approx(2 * 8 / 9 * 50)


def test_hard_limit_adds_the_nics_to_the_links() -> None:
    # Each GPU takes in 7 * 64 over links, and the 8 of a node share 8 * 50 by NICs.
    for op in (Op.ALL_GATHER, Op.REDUCE_SCATTER):
        found = bound("mi300x+8xroce-400", op, 16, 2)
        assert (found.busbw_gbps, found.hard_gbps) == (448, 498)
    # All NICs of the root's node may feed the root; 8 of 16 parts come in by these 400.
    for op in (Op.GATHER, Op.SCATTER):
        assert bound("mi300x+8xroce-400", op, 16, 2).hard_gbps == 15 * 400 / 8
        assert bound("mi300x+8xroce-800", op, 16, 2).hard_gbps == 448 + 800
    assert bound("mi300x+8xroce-400", Op.BROADCAST, 16, 2).hard_gbps == 400
    # Two nodes of one GPU, and nodes whose links are not known: the NICs alone.
    for ranks in (2, 8):
        assert bound("ib-ndr", Op.ALL_GATHER, ranks, 2).hard_gbps == (ranks - 1) * 50 / (ranks / 2)


def test_network_of_another_system() -> None:
    assert bound("h100+2xib-ndr", Op.BROADCAST, 16, 2).busbw_gbps == 100
    assert bound("h100+efa-p4d", Op.BROADCAST, 16, 2).busbw_gbps == 50


def test_what_cannot_be_bounded() -> None:
    system = load_system("mi300x")
    assert bounds(system, Request(Op.ALL_REDUCE, 1)) is None
    assert bounds(system, Request(Op.BARRIER, 8)) is None
    for name, nranks, nnodes, text in (
        ("mi300x", 16, 1, "has 8 GPUs"),
        ("mi325x", 16, 2, "has no NICs"),
        ("ib-ndr", 8, 1, "has no links"),
        ("mi300x", 2, 4, "impossible"),
        ("mi300x", 8, 0, "impossible"),
    ):
        with pytest.raises(UsageError, match=text):
            bound(name, Op.ALL_REDUCE, nranks, nnodes)
    with pytest.raises(UsageError, match="Name 2 of 0 to 7"):
        bound("frontier", Op.ALL_REDUCE, 2, gpus=(0, 9))


def test_chosen_gpus_of_an_irregular_node() -> None:
    assert bound("frontier", Op.ALL_REDUCE, 2, gpus=(0, 1)).busbw_gbps == 200
    assert bound("frontier", Op.ALL_REDUCE, 2, gpus=(0, 6)).busbw_gbps == 100
    assert bound("frontier", Op.ALL_REDUCE, 2, gpus=(0, 7)).busbw_gbps == 0
    (first,) = bound("frontier", Op.ALL_REDUCE, 2).assumptions
    assert first.text == "GPUs 0 to 1 of 8 in each node"


# --- the cuts themselves ---------------------------------------------------------------------


@st.composite
def wirings(draw: st.DrawFn) -> Wiring:
    """Small directed graphs with integer capacities, often asymmetric, some with switches."""
    gpus = draw(st.integers(2, 5))
    size = gpus + draw(st.integers(0, 2))
    rates = draw(st.lists(st.integers(0, 6), min_size=size * size, max_size=size * size))
    rows = [
        tuple(0.0 if i == j else float(rates[i * size + j]) for j in range(size))
        for i in range(size)
    ]
    return Wiring(gpus, tuple(rows))


def brute_force(
    wiring: Wiring, weight: Weight, inside: int | None = None, outside: int | None = None
) -> Fraction:
    """Smallest ratio, by writing the definition down."""
    size, n = len(wiring.capacity), wiring.gpus
    ratios = []
    for count in range(1, size + 1):
        for chosen in combinations(range(size), count):
            k = sum(node < n for node in chosen)
            wrong_root = inside not in (None, *chosen) or outside in chosen
            if not 0 < k < n or wrong_root:
                continue
            rest = set(range(size)) - set(chosen)
            leaving = sum(Fraction(wiring.capacity[i][j]) for i in chosen for j in rest)
            divisor = {"1": 1, "|U|": k, "n - |U|": n - k}.get(weight.value, k * (n - k))
            ratios.append(leaving / divisor)
    return min(ratios)


@given(wiring=wirings(), weight=st.sampled_from(Weight), data=st.data())
@settings(max_examples=60, deadline=None)
def test_enumeration_is_the_definition(wiring: Wiring, weight: Weight, data: st.DataObject) -> None:
    root = data.draw(st.sampled_from([None, 0, wiring.gpus - 1]))
    for inside, outside in ((root, None), (None, root)):
        found = minimum_cut(wiring, weight, inside=inside, outside=outside)
        expected = float(brute_force(wiring, weight, inside, outside))
        assert found.ratio_gbps == pytest.approx(expected, abs=1e-9)


def with_idle_switches(wiring: Wiring, count: int) -> Wiring:
    """The same cuts in a graph too large to enumerate: switches without links."""
    rows = [(*row, *((0.0,) * count)) for row in wiring.capacity]
    idle = (0.0,) * (len(wiring.capacity) + count)
    return Wiring(wiring.gpus, (*rows, *((idle,) * count)))


@given(wiring=wirings(), data=st.data())
@settings(max_examples=30, deadline=None)
def test_max_flow_finds_the_same_cuts(wiring: Wiring, data: st.DataObject) -> None:
    large = with_idle_switches(wiring, 18)
    root = data.draw(st.sampled_from([None, 0, wiring.gpus - 1]))
    for weight, inside, outside in (
        (Weight.ONE, root, None),
        (Weight.ONE, None, root),
        (Weight.INSIDE, None, root),
        (Weight.OUTSIDE, root, None),
    ):
        found = minimum_cut(large, weight, inside=inside, outside=outside)
        expected = float(brute_force(wiring, weight, inside, outside))
        assert found.ratio_gbps == pytest.approx(expected, abs=1e-6), weight
    pairs = minimum_cut(large, Weight.PAIRS).ratio_gbps
    assert pairs >= float(brute_force(wiring, Weight.PAIRS)) - 1e-9


@given(wiring=wirings())
@settings(max_examples=40, deadline=None)
def test_max_flow_is_min_cut(wiring: Wiring) -> None:
    flow, side = max_flow(wiring.capacity, 0, 1)
    assert flow == pytest.approx(float(brute_force(wiring, Weight.ONE, 0, 1)), abs=1e-9)
    rest = set(range(len(wiring.capacity))) - side
    assert sum(wiring.capacity[i][j] for i in side for j in rest) == pytest.approx(flow, abs=1e-9)
    assert direct_gbps(wiring, 0, 1) <= flow + 1e-9


@given(wiring=st.sampled_from(["mesh", "switch"]), gpus=st.integers(2, 8), links=st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_closed_forms_equal_the_cuts(wiring: str, gpus: int, links: int) -> None:
    graph = Wiring(gpus, uniform_capacity(wiring, gpus, links, 8.0))
    egress = links * 8.0
    for weight, scale in ((Weight.INSIDE, gpus - 1), (Weight.ONE, 1), (Weight.PAIRS, gpus - 1)):
        assert scale * minimum_cut(graph, weight).ratio_gbps == pytest.approx(egress)


def test_asymmetric_wiring_takes_the_weaker_direction() -> None:
    # Two GPUs, 100 one way and 10 the other: AllReduce needs both, a broadcast from 0 does not.
    graph = Wiring(2, ((0.0, 100.0), (10.0, 0.0)))
    assert minimum_cut(graph, Weight.INSIDE).ratio_gbps == 10
    assert minimum_cut(graph, Weight.ONE, inside=0).ratio_gbps == 100
    assert minimum_cut(graph, Weight.ONE, inside=1).ratio_gbps == 10


def test_less_of_the_rates_never_gives_more_and_hard_never_falls_below() -> None:
    for system in shipped_systems():
        nranks, nnodes = (8, 8) if system.fabric is None else (min(system.fabric.gpus, 16), 1)
        for op in (*SPREAD, Op.ALL_TO_ALL, Op.BROADCAST, Op.SEND_RECV):
            limit = bounds(system, Request(op, nranks, nnodes))
            reached = bounds(system, Request(op, nranks, nnodes, links=0.8, network=0.9))
            assert limit is not None
            assert reached is not None
            assert 0 < reached.busbw_gbps <= limit.busbw_gbps <= limit.hard_gbps
