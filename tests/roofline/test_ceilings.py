"""The reachable ceiling and the floors: by hand, and against what was published of machines."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collscope.model import Op
from collscope.roofline.bounds import Request, bounds
from collscope.roofline.catalogue import catalogue_rows, load_system, shipped_systems
from collscope.roofline.floors import floor_of
from collscope.roofline.links import link_kinds
from collscope.roofline.reachable import Reach, count_rings, reachable
from collscope.roofline.roof import Roofs
from collscope.roofline.system import System
from collscope.roofline.wiring import Wiring
from collscope.roofline.workload import Workload


def reach(name: str, op: Op, nranks: int, nnodes: int = 1, **more: bool) -> Reach:
    found = reachable(load_system(name), Request(op, nranks, nnodes, **more))
    assert found is not None
    return found


def test_a_frontier_node_reaches_its_four_rings_and_not_its_cut() -> None:
    # four rings of 50 GB/s at RCCL's 36: 144; the minimum cut, 210 at the same rate, has no ring
    found = reach("frontier", Op.ALL_REDUCE, 8)
    assert (found.busbw_gbps, found.algorithm) == (pytest.approx(144), "ring")
    # the best of the slides, 136.27 GB/s, was reached; links leave at most 0.74 to data
    assert found.low_gbps == pytest.approx(136.27)
    assert found.high_gbps == pytest.approx(200 * 0.74)


def test_between_frontier_nodes() -> None:
    # a tree on two nodes: half of four paths each way, 36 GB/s each: 15/8 x 2 x 36
    two = reach("frontier", Op.ALL_REDUCE, 16, 2)
    assert (two.busbw_gbps, two.algorithm) == (pytest.approx(135), "tree")
    assert two.low_gbps == pytest.approx(109.02)  # reached with the plugin and GDR level 3
    # a ring on 64: the four NICs at 0.97, which nobody measured, and 0.94 of that
    many = reach("frontier", Op.ALL_REDUCE, 512, 64)
    assert (many.busbw_gbps, many.algorithm, many.assumed) == (
        pytest.approx(97 * 0.94), "ring", True,
    )  # fmt: skip
    assert many.low_gbps == pytest.approx(90.45)


def test_channels_bound_a_tree_between_nodes() -> None:
    # 8 NICs of 25 GB/s give 8 channels of 24, which are not doubled; 23.6 GB/s each on two nodes
    # (perChMaxTreeBws). Published of such nodes: 182 GB/s at 8 GiB.
    two = reach("a100", Op.ALL_REDUCE, 16, 2)
    assert (two.busbw_gbps, two.algorithm) == (pytest.approx(8 * 23.6), "tree")
    # 8 channels of 48 GB/s are not doubled after Ampere: 8 times 41.4 GB/s, and a ring has more
    hopper = reach("h100", Op.ALL_REDUCE, 16, 2)
    assert (hopper.busbw_gbps, hopper.algorithm) == (pytest.approx(0.94 * 0.97 * 400), "ring")
    # four are: 331 GB/s, more than the NICs allow. 14/8 x 0.78 x 4 NICs of 50 GB/s at 0.97
    four = reach("h100+4xib-ndr", Op.ALL_REDUCE, 8, 2)
    assert four.busbw_gbps == pytest.approx(1.75 * 0.78 * 200 * 0.97)


def test_one_gpu_per_node() -> None:
    # 0.67 of the NIC's usable 47.5 GB/s
    assert reach("h200+roce-400", Op.ALL_GATHER, 2, 2).busbw_gbps == pytest.approx(47.5 * 0.67)
    assert reach("h200+roce-400", Op.ALL_REDUCE, 2, 2).busbw_gbps == pytest.approx(47.5 * 0.67)


def test_paths_through_a_mesh_are_one_more_than_its_rings() -> None:
    # 8 GPUs, 7 links each: 7 rings of 48 GB/s on one node, 8 paths through each of two nodes
    assert reach("mi300x", Op.ALL_REDUCE, 8).busbw_gbps == pytest.approx(7 * 48)
    two = reach("mi300x", Op.ALL_REDUCE, 16, 2)
    assert two.busbw_gbps == pytest.approx(0.94 * 0.97 * 400)  # below the 8 paths of 48 GB/s
    assert two.low_gbps == pytest.approx(357.46)  # reached
    # fewer GPUs have fewer links
    assert reach("mi300x", Op.ALL_REDUCE, 4).busbw_gbps == pytest.approx(3 * 48)
    assert reach("mi300x", Op.ALL_REDUCE, 2).busbw_gbps == pytest.approx(48)


def test_a_wiring_without_rings_has_a_wide_range() -> None:
    # GCDs 0, 1 and 2 of a Frontier node: 1 and 2 have no link
    found = reach("frontier", Op.ALL_GATHER, 3)
    assert found.low_gbps <= 0.3 * found.busbw_gbps
    assert any("no ring over the links was found" in note.text for note in found.assumptions)


def test_what_is_assumed_says_so_and_lowers_the_confidence() -> None:
    assert not reach("mi300x", Op.ALL_REDUCE, 8).assumed
    assert reach("mi355x", Op.ALL_REDUCE, 8).assumed
    slingshot = next(s for s in shipped_systems() if s.name == "slingshot-11")
    assert slingshot.network is not None
    assert slingshot.network.usable.assumed


def test_a_row_says_how_sure_links_and_network_are() -> None:
    # Frontier's links are known, of Slingshot nobody measured what it leaves to data.
    rows = {row.name: row for row in catalogue_rows()}
    told = [
        (
            r.usable_assumed,
            r.confidence,
            r.network_usable_fraction,
            r.network_usable_assumed,
            r.network_confidence,
        )
        for r in (rows["frontier"], rows["mi250x"], rows["slingshot-11"], rows["h200"])
    ]
    assert told == [
        (False, "high", 0.97, True, "medium"),
        (False, "high", None, False, None),
        (True, "medium", None, False, None),
        (False, "high", 0.97, False, "medium"),  # which NICs a node has is not known
    ]


@pytest.mark.parametrize("system", ["mi300x", "frontier"])
def test_a_schedule_of_msccl_may_reach_what_no_ring_does(system: str) -> None:
    ring = reach(system, Op.ALL_REDUCE, 8)
    own = reachable(load_system(system), Request(Op.ALL_REDUCE, 8, scheduled=True))
    assert own is not None
    assert (own.busbw_gbps, own.low_gbps) == (ring.busbw_gbps, ring.low_gbps)
    # The cut of a Frontier node is 291.667 GB/s, of which links leave 0.74 at most; its four rings
    # carry 200. On a full mesh the rings use every link.
    highest = {"mi300x": 0.77 * 448, "frontier": 0.74 * 291.667}[system]
    assert own.high_gbps == pytest.approx(highest, rel=1e-4)
    assert own.algorithm == "MSCCL schedule"
    direct = reachable(load_system(system), Request(Op.ALL_TO_ALL, 8, scheduled=True))
    assert direct is not None
    assert direct.algorithm == "direct"


@pytest.mark.parametrize(
    ("system", "ranks", "nodes", "pat"),
    [("h200", 64, 64, True), ("h200", 64, 32, False), ("mi300x", 64, 64, False)],
)
def test_pat_is_of_nccl_with_one_rank_per_node(
    system: str, ranks: int, nodes: int, pat: bool
) -> None:
    roofs = Roofs(load_system(system))
    for op in (Op.ALL_GATHER, Op.REDUCE_SCATTER):
        work = Workload(op, 1024, ranks, nodes)
        ranked = {one.algorithm: one for one in roofs.ranking(work)}
        found = roofs.ceilings(work)
        assert found is not None
        assert ("PAT" in ranked, found.reachable.algorithm == "PAT") == (pat, pat)
        if pat:
            # tuning.cc: 8.0 + log2(64) 14.0 / 3.5 + 64 2.8 us; bare: 6.6 + 6 steps of 5.0
            assert found.reachable.floor_ns == pytest.approx(1e3 * (8.0 + 6 * 4.0 + 64 * 2.8))
            assert found.reachable.time_low_ns == pytest.approx(1e3 * (6.6 + 6 * 5.0) / 2)
    assert "PAT" not in {
        one.algorithm for one in roofs.ranking(Workload(Op.ALL_REDUCE, 1024, ranks, nodes))
    }


def test_one_nic_of_a_network_file_is_no_node() -> None:
    system = load_system("h200+ib-ndr")
    assert system.network is not None
    assert system.network.nics == 8
    assert any("8 NICs per node" in note.text for note in system.notes)
    one = load_system("h200+1xib-ndr")
    assert one.network is not None
    assert one.network.nics == 1


@pytest.mark.parametrize("system", shipped_systems(), ids=lambda s: s.name)
def test_published_figures_keep_below_the_limit_and_near_the_ceiling(system: System) -> None:
    for row in system.published:
        request = Request(row.op, row.nranks, row.nnodes, in_network=row.in_network)
        limit, found = bounds(system, request), reachable(system, request)
        assert limit is not None
        assert found is not None
        assert row.busbw_gbps <= limit.busbw_gbps
        assert found.low_gbps <= row.busbw_gbps <= found.high_gbps
        reduced = bounds(system, Request(row.op, row.nranks, row.nnodes, in_network=True))
        assert reduced is not None
        assert found.high_gbps <= max(limit.hard_gbps, reduced.hard_gbps)
        # docs/roofline.md says why these two are farther away
        if (system.name, row.nranks) not in {("frontier", 16), ("gb200-nvl72", 72)}:
            assert row.busbw_gbps >= 0.85 * found.busbw_gbps


@pytest.mark.parametrize("system", shipped_systems(), ids=lambda s: s.name)
def test_the_reachable_never_passes_the_limit(system: System) -> None:
    shapes = [(8, 8)] if system.fabric is None else [(2, 1), (min(system.fabric.gpus, 16), 1)]
    if system.fabric is not None and system.network is not None and system.fabric.hosts == 1:
        shapes.append((2 * system.fabric.gpus, 2))
    for nranks, nnodes in shapes:
        for op in (Op.ALL_REDUCE, Op.ALL_GATHER, Op.ALL_TO_ALL, Op.BROADCAST, Op.SEND_RECV):
            request = Request(op, nranks, nnodes)
            limit, found = bounds(system, request), reachable(system, request)
            assert limit is not None
            assert found is not None
            assert 0 < found.low_gbps <= found.busbw_gbps <= limit.hard_gbps


def test_kinds_of_link_are_ranges_with_sources() -> None:
    for kind in link_kinds().values():
        assert 0 < kind.low <= kind.value <= kind.high <= 1
        assert len(kind.source) > 10
        assert kind.evidence


# --- rings -----------------------------------------------------------------------------------


def test_rings_of_small_wirings() -> None:
    def wiring(*rows: tuple[float, ...]) -> Wiring:
        return Wiring(len(rows), tuple(rows))

    assert count_rings(wiring((0, 30), (30, 0)), 10.0) == 3
    assert count_rings(wiring((0, 30), (10, 0)), 10.0) == 1  # there and back
    assert count_rings(wiring((0, 10, 0), (0, 0, 10), (10, 0, 0)), 10.0) == 1
    assert count_rings(wiring((0, 10, 0), (10, 0, 0), (0, 0, 0)), 10.0) == 0


def test_the_listed_rings_are_what_the_search_finds() -> None:
    for name, expected in (("frontier", 4), ("dgx1-v100", 6)):
        fabric = load_system(name).fabric
        assert fabric is not None
        assert len(fabric.rings) == expected
        assert 1 <= count_rings(fabric.graph, fabric.uni_gbps) <= expected


@settings(max_examples=60)
@given(st.integers(2, 5), st.data())
def test_found_rings_fit_and_one_is_found_where_there_is_one(
    size: int, data: st.DataObject
) -> None:
    links = [
        [0 if i == j else data.draw(st.integers(0, 2)) for j in range(size)] for i in range(size)
    ]
    found = count_rings(Wiring(size, tuple(tuple(map(float, row)) for row in links)), 1.0)
    exists = any(
        all(links[i][j] for i, j in zip((0, *rest), (*rest, 0), strict=True))
        for rest in permutations(range(1, size))
    )
    assert (found > 0) == exists
    # each ring leaves every GPU once
    assert all(found <= sum(row) for row in links)


# --- floors ----------------------------------------------------------------------------------


def test_the_floor_of_eight_mi300x_is_the_measured_one() -> None:
    floor = floor_of(load_system("mi300x"), Op.ALL_REDUCE, 8, 1)
    assert floor is not None
    # AMD's table: 12.8 us launched one by one, 7.5 with graphs
    assert (floor.us, floor.low_us, floor.measured) == (12.8, 7.5, True)
    assert floor.high_us > 13.3  # what another site measured


def test_a_gather_of_many_ranks_has_no_ring_s_floor() -> None:
    # 512 ranks: a ring takes 511 steps, 63 of them between nodes; 9 steps are enough
    floor = floor_of(load_system("frontier"), Op.ALL_GATHER, 512, 64)
    assert floor is not None
    assert floor.us < 150
    assert not floor.measured
    assert floor.low_us < floor.us < floor.high_us


def test_an_unknown_latency_is_not_claimed() -> None:
    assert floor_of(load_system("mi210"), Op.ALL_REDUCE, 4, 1) is None
