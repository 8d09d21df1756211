"""The library's model against measurements and its own table; fits; roofs and efficiency."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from collscope.errors import NoVerdictError
from collscope.model import Measurement, Op
from collscope.roofline.catalogue import load_system
from collscope.roofline.fit import fit, hockney
from collscope.roofline.floors import model_lines
from collscope.roofline.nccl_constants import CONSTANTS
from collscope.roofline.nccl_model import Shape, best_line, constants_of, cost_lines
from collscope.roofline.roof import Roofs
from collscope.roofline.system import TuningChoice
from collscope.roofline.tables import TABLE_OPS, bound_rows, roof_rows
from collscope.roofline.workload import Workload

# README of microsoft/msccl, "All-Gather Latency (us)", column NCCL, ND H100 v5 (8 H100), FP16;
# 1 KB to 1 GB in powers of two, sizes are totals of 2^10 bytes and up.
MSCCL_README_NCCL_US = (9.54, 9.8, 9.78, 9.78, 10.29, 12.49, 12.87, 13.16, 13.23, 13.39, 18.33)
MSCCL_README_NCCL_US += (23.18, 33.66, 44.7, 67.19, 104.7, 192.4, 368.3, 699.5, 1358.6, 2663.8)

# What NCCL 2.28.9 prints with NCCL_DEBUG_SUBSYS=TUNING for 4 H200 (12 channels of 30 GB/s):
# latency in us / algorithm bandwidth in GB/s, of LL, LL128, Simple.
PRINTED_BY_NCCL = {
    (Op.BROADCAST, "Ring"): ((7.2, 141.0), (15.9, 331.2), (11.8, 360.0)),
    (Op.REDUCE, "Ring"): ((7.2, 141.0), (15.9, 331.2), (11.8, 360.0)),
    (Op.ALL_GATHER, "Ring"): ((8.4, 188.0), (19.7, 441.6), (18.6, 480.0)),
    (Op.REDUCE_SCATTER, "Ring"): ((8.4, 188.0), (19.7, 441.6), (18.6, 480.0)),
    (Op.ALL_REDUCE, "Ring"): ((10.2, 94.0), (25.4, 220.8), (28.8, 240.0)),
    (Op.ALL_REDUCE, "Tree"): ((10.4, 43.6), (21.5, 128.8), (32.4, 165.6)),
}

# Frontier, one node, 8 GCDs, AllReduce float, rccl-tests out-of-place times in us, 64 KiB to 4 GiB:
# the guide to RCCL's network plugin that the project starts from.
FRONTIER_NODE_US = (37.54, 34.76, 67.83, 90.54, 101.7, 125.1, 170.8, 271.6, 286.7, 498.5, 931.1)
FRONTIER_NODE_US += (1804.6, 3552.8, 7059.0, 13993.0, 27847.0, 55157.0)


def sweep(times_us: tuple[float, ...], first: int, op: Op, nranks: int) -> list[Measurement]:
    return [
        Measurement(op=op, size_bytes=first << i, nranks=nranks, nnodes=1, time_us_median=time)
        for i, time in enumerate(times_us)
    ]


def frontier_fit() -> list[Measurement]:
    return sweep(FRONTIER_NODE_US, 65536, Op.ALL_REDUCE, 8)


# --- the model -------------------------------------------------------------------------------


def test_model_against_the_msccl_column() -> None:
    lines = model_lines(load_system("h100"), Op.ALL_GATHER, 8, 1)
    errors = [
        abs(best_line(lines, 1024 << i).time_us(1024 << i) / measured - 1)
        for i, measured in enumerate(MSCCL_README_NCCL_US)
    ]
    assert len(errors) == 21
    assert median(errors) <= 0.07
    assert max(errors) <= 0.14


@pytest.mark.parametrize(("op", "algorithm"), PRINTED_BY_NCCL)
def test_model_is_the_table_that_nccl_prints(op: Op, algorithm: str) -> None:
    constants = constants_of(TuningChoice("nccl", "hopper"))
    assert constants is not None
    lines = [
        (round(line.latency_us, 1), round(line.algbw_gbps, 1))
        for line in cost_lines(constants, Shape(op, 4, 1, 12 * 30.0))
        if line.algorithm == algorithm
    ]
    assert tuple(lines) == PRINTED_BY_NCCL[op, algorithm]


def test_latency_between_nodes_by_hand() -> None:
    # Hopper, Intel, 16 ranks on 2 nodes, AllReduce, Ring LL: 6.6 + 28 steps of max(0.6, 1.0)
    # + 2 steps of 2.7; Tree LL: 6.8 + 2 (7 * 0.6 + 1 * 5.0).
    lines = model_lines(load_system("h100"), Op.ALL_REDUCE, 16, 2)
    found = {(line.algorithm, line.protocol): line.latency_us for line in lines}
    assert found["Ring", "LL"] == pytest.approx(6.6 + 28 * 1.0 + 2 * 2.7)
    assert found["Tree", "LL"] == pytest.approx(6.8 + 2 * (7 * 0.6 + 5.0))
    # Ring Simple: 8.4 + 28 steps of max(3.4, 3 * 1.0) + 2 of 14; from 64 B per channel (12) and
    # rank on 1.4 times that. An AMD CPU posts in 2.0.
    simple = next(line for line in lines if (line.algorithm, line.protocol) == ("Ring", "Simple"))
    assert simple.latency_us == pytest.approx(8.4 + 28 * 3.4 + 2 * 14.0)
    step = simple.time_us(64 * 12 * 16) - simple.time_us(64 * 12 * 16 - 1)
    assert step == pytest.approx(0.4 * 131.6, abs=0.01)
    constants = constants_of(TuningChoice("nccl", "hopper"))
    assert constants is not None
    amd = cost_lines(constants, Shape(Op.ALL_REDUCE, 16, 2, 100.0, "amd"))
    assert [x.latency_us for x in amd if x.algorithm == "Ring"][-1] == pytest.approx(204.4)


def test_rccl_prefers_the_tree_between_two_frontier_nodes() -> None:
    # bwRatio of model 3: Tree/Simple 1.75 of the ring's 97 GB/s, halved by there and back.
    lines = model_lines(load_system("frontier"), Op.ALL_REDUCE, 16, 2)
    found = {(line.algorithm, line.protocol): line.algbw_gbps for line in lines}
    assert found["Tree", "Simple"] == pytest.approx(1.75 * 97 / 2)
    assert found["Ring", "Simple"] == pytest.approx(97 * 16 / 30)
    assert ("Ring", "LL128") not in found
    assert best_line(lines, 64 << 20).algorithm == "Tree"


def test_every_table_of_constants_gives_rising_positive_times() -> None:
    for constants in CONSTANTS:
        for op in (Op.ALL_REDUCE, Op.ALL_GATHER, Op.BROADCAST):
            for nranks, nnodes in ((2, 1), (8, 1), (16, 2), (64, 8), (8, 8)):
                lines = cost_lines(constants, Shape(op, nranks, nnodes, 100.0, "amd"))
                assert lines
                for size in (1, 64, 1 << 20, 1 << 34):
                    assert best_line(lines, size).time_us(size) > 0


def test_no_model_where_the_library_has_none() -> None:
    assert model_lines(load_system("h100"), Op.ALL_TO_ALL, 8, 1) == ()
    assert model_lines(load_system("mi210"), Op.ALL_REDUCE, 4, 1) == ()
    assert model_lines(load_system("h100"), Op.ALL_REDUCE, 1, 1) == ()


def test_what_rccl_s_rings_carry_is_known_of_whole_nodes_only() -> None:
    # 144 GB/s of four rings on 8 GCDs. Of 4 GCDs on two OAMs, 2 links of 50 GB/s carry what one OAM
    # has for the other: bus bandwidth 3 * 100 / 2, of which 72 % are reached.
    for nranks, rings in ((8, 144.0), (4, 3 * 100 / 2 * 0.72)):
        lines = model_lines(load_system("frontier"), Op.ALL_GATHER, nranks, 1)
        found = {line.protocol: line.algbw_gbps for line in lines}
        assert found["Simple"] == pytest.approx(rings * nranks / (nranks - 1))


# --- fits ------------------------------------------------------------------------------------


def test_hockney_of_the_frontier_node() -> None:
    line = hockney(tuple(65536 << i for i in range(17)), FRONTIER_NODE_US)
    assert 59 <= line.latency_us <= 64
    assert line.algbw_gbps * 1.75 == pytest.approx(134.8, abs=0.4)
    assert line.median_error < 0.03
    assert 0.7 < line.worst_error < 0.9  # one line cannot follow a change of protocol


@given(alpha=st.floats(0.1, 1e3), beta=st.floats(1e-6, 1e-1), count=st.integers(3, 12))
def test_hockney_finds_an_exact_line(alpha: float, beta: float, count: int) -> None:
    sizes = tuple(1024 << i for i in range(count))
    line = hockney(sizes, tuple(alpha + beta * size for size in sizes))
    assert line.worst_error < 1e-6
    assert 1 / (1000 * line.algbw_gbps) == pytest.approx(beta, rel=1e-3)


def test_curve_passes_its_points_and_is_monotone() -> None:
    curve = fit(frontier_fit(), "frontier").curve(Op.ALL_REDUCE, 8, 1)
    assert curve is not None
    assert curve.time_us(131072) == 34.76
    assert curve.time_us(65536) == 34.76  # 37.54 measured, but 128 KiB took less
    assert curve.time_us(1) == 34.76
    assert curve.time_us(8 << 30) == pytest.approx(2 * 55157)
    # Half-way in log(size) is half-way in log(time).
    middle = curve.time_us(round(2**20.5))
    assert middle == pytest.approx((101.7 * 125.1) ** 0.5, rel=1e-4)
    assert curve.covers(1 << 20)
    assert not curve.covers(1024)


@given(st.lists(st.tuples(st.integers(1, 1 << 34), st.floats(1e-3, 1e7)), min_size=1, max_size=20))
def test_any_curve_rises_and_stays_below_its_points(points: list[tuple[int, float]]) -> None:
    measurements = [
        Measurement(op=Op.ALL_GATHER, size_bytes=size, nranks=4, time_us_median=time)
        for size, time in points
    ]
    curve = fit(measurements, "any").curve(Op.ALL_GATHER, 4, 1)
    assert curve is not None
    assert all(curve.time_us(size) <= time * (1 + 1e-9) for size, time in points)
    sizes = sorted({1, 1 << 35, *(size for size, _ in points), *(size + 7 for size, _ in points)})
    times = [curve.time_us(size) for size in sizes]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(times))


def test_fit_leaves_out_what_failed_and_takes_the_best_setting() -> None:
    good = Measurement(op=Op.ALL_REDUCE, size_bytes=1024, nranks=8, time_us_median=20.0)
    bad = [
        replace(good, status="failed", time_us_median=1.0),
        replace(good, n_wrong=3, time_us_median=1.0),
        replace(good, size_bytes=0, time_us_median=1.0),
        replace(good, nranks=None, time_us_median=1.0),
        replace(good, time_us_median=None),
    ]
    curve = fit([good, replace(good, label="tree", time_us_median=15.0), *bad], "x").curve(
        Op.ALL_REDUCE, 8, 1
    )
    assert curve is not None
    assert curve.times_us == (15.0,)
    with pytest.raises(NoVerdictError, match=r"size.*2 failed or gave wrong results"):
        fit(bad, "x")


# --- roofs -----------------------------------------------------------------------------------


def test_roof_of_the_guides_class() -> None:
    # 512 MiB fp16 AllReduce on 8 MI300X: 2.796 ms at 336 after 12.8 us, 2.097 ms at 448 GB/s;
    # measured 3.2284.
    roofs = Roofs(load_system("mi300x"))
    work = Workload(Op.ALL_REDUCE, 536870912, 8)
    found = roofs.ceilings(work)
    assert found is not None
    assert found.reachable.time_ns == pytest.approx(2_796_000 + 12_800, abs=1000)
    assert found.limit.time_ns == pytest.approx(2_097_000, abs=1000)
    assert found.target is found.reachable
    assert found.target.name == "mi300x reachable"
    assert any(
        "links carry 0.75 of the line rate" in note.text for note in found.target.assumptions
    )
    assert not any("network" in note.text for note in found.target.assumptions)
    assert roofs.judge(work, 3_228_400).value == pytest.approx(0.870, abs=5e-4)
    assert roofs.judge(work, 3_228_400, "limit").value == pytest.approx(0.650, abs=5e-4)


def test_small_messages_meet_the_floor() -> None:
    found = Roofs(load_system("h100")).ceilings(Workload(Op.ALL_GATHER, 1024, 8))
    assert found is not None
    # measured on 8 H100: 9.5 us (the msccl README), and 1 KiB takes next to nothing more
    assert found.reachable.floor_ns == 9_500
    assert found.reachable.time_ns == pytest.approx(9500 + 1024 * 7 / 8 / 141)  # LL on Hopper
    assert found.reachable.regime == "latency"
    assert found.limit.time_ns == pytest.approx(1024 * 7 / 8 / 450)  # no latency is counted
    # Measured on 8 H100, whatever reduces: the library takes Ring or Tree where these are faster.
    reduced = Roofs(load_system("h100")).ceilings(Workload(Op.ALL_REDUCE, 1024, 8, 1, "NVLS"))
    assert reduced is not None
    assert reduced.reachable.floor_ns == 16_000
    # One rank on each host of a rack: the links still carry everything.
    rack = Roofs(load_system("gb200-nvl72")).ceilings(Workload(Op.ALL_REDUCE, 1 << 30, 18, 18))
    assert rack is not None
    assert any("links carry 0.802 of the line" in note.text for note in rack.reachable.assumptions)
    # Without constants no floor is claimed.
    bare = Roofs(load_system("mi210")).ceilings(Workload(Op.ALL_GATHER, 1024, 4))
    assert bare is not None
    assert bare.reachable.floor_ns is None


def test_the_fit_is_the_target_and_says_whose_it_is() -> None:
    roofs = Roofs(load_system("frontier"), fit(frontier_fit(), "node sweep"))
    found = roofs.ceilings(Workload(Op.ALL_REDUCE, 4 << 30, 8))
    assert found is not None
    assert found.target is found.fit
    assert found.target.busbw_gbps == pytest.approx(136.27, abs=0.01)
    assert [n.text for n in found.target.assumptions] == ["best of 17 sizes of node sweep"]
    beyond = roofs.ceilings(Workload(Op.ALL_REDUCE, 32 << 10, 8))  # the sweep begins at 64 KiB
    assert beyond is not None
    assert beyond.target.assumptions[-1].text == "beyond the measured sizes"
    for far in (1024, 32 << 30):  # more than four times beyond: nothing measured tells it
        unknown = roofs.ceilings(Workload(Op.ALL_REDUCE, far, 8))
        assert unknown is not None
        assert (unknown.fit, unknown.target.ceiling) == (None, "reachable")
    other = roofs.ceilings(Workload(Op.ALL_REDUCE, 1024, 4))
    assert other is not None
    assert other.target.ceiling == "reachable"


def measured(roofs: Roofs, busbw: float, nranks: int, nnodes: int = 1, **more: str) -> str | None:
    """What is said about a bus bandwidth at 4 GiB; None when the roof applies."""
    work = Workload(Op.ALL_REDUCE, 4 << 30, nranks, nnodes, **more)
    time_us = work.size_bytes * 2 * (nranks - 1) / nranks / busbw / 1e3
    return roofs.judge(work, 1000 * time_us).why


def tree_of(roofs: Roofs, algorithm: str) -> str:
    """Assumption about switches of a large AllReduce on 32 nodes."""
    found = roofs.ceilings(Workload(Op.ALL_REDUCE, 4 << 30, 256, 32, algorithm))
    assert found is not None
    return next(n.text for n in found.reachable.assumptions if "switches" in n.text)


def test_efficiency_above_one_says_why() -> None:
    frontier, h100 = Roofs(load_system("frontier")), Roofs(load_system("h100"))
    assert measured(frontier, 109.02, 16, 2) is None  # above the NICs' 100, below the cut's 187.5
    assert measured(frontier, 136, 8) is None
    assert "algorithms reach more here" in str(measured(frontier, 250, 8))
    assert "up to 325" in str(measured(frontier, 300, 8))
    assert "more than any schedule" in str(measured(frontier, 330, 8))
    # 480 GB/s were reached with NVLS, which NCCL takes with more than four GPUs
    assert measured(h100, 470, 8) is None
    assert "algorithms reach more here" in str(measured(h100, 600, 8))
    assert "more than any schedule" in str(measured(h100, 720, 8))
    four = measured(h100, 500, 4)  # NCCL takes rings there, though the switches could reduce
    assert "NVLS: the switches reduce" in str(four)
    assert "up to 540" in str(four)
    assert measured(h100, 470, 8, algorithm="NVLS") is None
    assert "a tree joins the nodes" in tree_of(h100, "NVLS_TREE") == tree_of(h100, "NVLSTree")
    assert "SHARP: the switches reduce" in tree_of(h100, "NVLS")
    pair = Roofs(load_system("mi300x")).judge(Workload(Op.SEND_RECV, 1 << 30, 8), 7_300_000)
    assert "GB/s is possible over several paths, up to 448" in str(pair.why)
    small = Workload(Op.ALL_GATHER, 1024, 8)
    verdict = h100.judge(small, 9_400)
    assert not verdict.applies
    assert "no further saving is expected" in str(verdict.why)
    assert "with another algorithm or release" in str(h100.judge(small, 3_000).why)
    fitted = Roofs(load_system("frontier"), fit(frontier_fit(), "sweep"))
    assert fitted.judge(Workload(Op.ALL_REDUCE, 1 << 20, 8), 101_700).applies
    assert "fit again" in str(fitted.judge(Workload(Op.ALL_REDUCE, 1 << 20, 8), 90_000).why)


def test_no_roof_for_one_rank_or_no_data() -> None:
    roofs = Roofs(load_system("h100"))
    assert roofs.ceilings(Workload(Op.ALL_REDUCE, 1024, 1)) is None
    assert roofs.ceilings(Workload(Op.ALL_REDUCE, 0, 8)) is None
    assert roofs.ceilings(Workload(Op.BARRIER, 1024, 8)) is None
    with pytest.raises(ValueError, match="no target ceiling"):
        roofs.judge(Workload(Op.BARRIER, 1024, 8), 1.0)


def test_rows_of_the_command() -> None:
    rows = {row.op: row for row in bound_rows(load_system("frontier"), 16, 2)}
    assert list(rows) == [op.value for op in TABLE_OPS]
    assert rows["AllReduce"].limit_gbps == pytest.approx(187.5)
    # a tree of RCCL's: half of the paths of four rings each way, 1.875 x 72
    assert rows["AllReduce"].reachable_gbps == pytest.approx(1.875 * 72)
    assert rows["AllReduce"].algorithm == "tree"
    assert rows["AllReduce"].assumed  # nobody measured what Slingshot leaves to data
    assert rows["SendRecv"].floor_ns == pytest.approx(
        12_000 + 9_500
    )  # base and one step between nodes
    assert bound_rows(load_system("h100"), 8, 1)[0].in_network_gbps == pytest.approx(700)
    assert bound_rows(load_system("h100"), 1, 1) == ()
    sizes = roof_rows(load_system("h100"), Op.ALL_REDUCE, 8, 1)
    assert [row.regime for row in sizes][:2] == ["latency", "latency"]
    # 490 at once, less 25 us of NVLS and its pipeline: 1 GiB takes 4.25 and 4.02 ms on 8 H100
    assert sizes[-1].reachable_gbps == pytest.approx(454.4, rel=0.01)
    assert all(a.reachable_gbps <= b.reachable_gbps for a, b in pairwise(sizes))
