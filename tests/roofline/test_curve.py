"""The curve between latency and bandwidth: by hand, and against nccl-tests and published tables."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from msgspec.structs import replace

from collscope.model import Op, parse_op
from collscope.roofline import floors
from collscope.roofline.catalogue import load_system
from collscope.roofline.pipeline import NETWORK, NODE, Branch, Channels, Pipeline, fill_of
from collscope.roofline.roof import Roof, Roofs
from collscope.roofline.system import System
from collscope.roofline.system_roofs import SystemRoofs
from collscope.roofline.workload import RoofAt, Workload

_TABLES = Path(__file__).parents[2] / "benchmarks" / "published"


def roof(
    system: System | str, op: Op, size: int, nranks: int, nnodes: int = 1, **more: bool
) -> Roof:
    found = load_system(system) if isinstance(system, str) else system
    ceilings = Roofs(found).ceilings(Workload(op, size, nranks, nnodes, **more))
    assert ceilings is not None
    return ceilings.reachable


def test_a_branch_by_hand() -> None:
    # 100 GB/s: 1 MB takes 10 us; 5 us before it, and 2 sqrt(10 x 2.5) = 10 us to fill the pipeline
    one = Branch("Simple", 5.0, 100.0, 2.5)
    assert one.time_us(1e6) == pytest.approx(25)
    late = Branch("LL", 1.0, 20.0)
    assert Pipeline((one, late)).fastest(1e4).name == "LL"
    assert Pipeline((one, late)).time_us(1e6) == pytest.approx(25)
    assert replace(one, together=True).time_us(1e6) == pytest.approx(20)
    # two channels of 10 GB/s, four beyond 2 MB, 2 x 1 MB
    few = replace(one, fill_us=0.0, channels=Channels(2, 4, 10.0, 1_000_000))
    assert few.time_us(2e6) == pytest.approx(5 + 100)
    assert few.time_us(2e6 + 1) == pytest.approx(5 + 50)


def test_constants_are_borrowed_with_a_wider_range() -> None:
    own, borrowed = fill_of("hopper", "ring", NODE), fill_of("volta", "ring", NODE)
    assert not own.borrowed
    assert borrowed.borrowed
    assert "borrowed from ampere" in borrowed.source
    nearest = fill_of("ampere", "ring", NODE)
    assert borrowed.high - borrowed.low > nearest.high - nearest.low
    for architecture in (None, "hopper", "gfx90a", "gfx950", "of the future"):
        for way in ("ring", "direct"):
            for place in (NODE, NETWORK):
                found = fill_of(architecture, way, place)
                assert 0 <= found.low <= found.value <= found.high
                assert len(found.source) > 20


@pytest.mark.parametrize("name", ["h100", "b200", "mi300x", "a100", "frontier", "pcie-gen4"])
def test_times_rise_and_ranges_hold_them(name: str) -> None:
    for op in (Op.ALL_REDUCE, Op.ALL_GATHER, Op.BROADCAST, Op.ALL_TO_ALL, Op.SEND_RECV):
        for nranks in (2, 4, 8):
            found = [roof(name, op, 1 << shift, nranks) for shift in range(10, 34)]
            assert all(r.time_low_ns <= r.time_ns <= r.time_high_ns for r in found)
            # a pair that gets twice the channels at a size is faster there: SendRecv may fall
            if op is not Op.SEND_RECV:
                assert all(a.time_ns <= b.time_ns for a, b in pairwise(found))


def test_nvls_is_what_large_all_reduces_reach() -> None:
    # NVIDIA staff, nccl-tests issue 212: 480 GB/s on 8 H100 with NVLS; rings 365 (NCCL issue 1455)
    with_it = roof("h100", Op.ALL_REDUCE, 8 << 30, 8)
    off = roof("h100", Op.ALL_REDUCE, 8 << 30, 8, multicast=False)
    assert with_it.busbw_gbps == pytest.approx(480, rel=0.03)
    assert off.busbw_gbps == pytest.approx(365, rel=0.03)
    assert with_it.by_rings_ns == pytest.approx(off.time_ns, rel=0.01)
    assert off.by_rings_ns is None
    # up to four GPUs NCCL takes rings, and the others are no all-reduce
    assert roof("h100", Op.ALL_REDUCE, 8 << 30, 4).by_rings_ns is None
    assert roof("h100", Op.ALL_GATHER, 8 << 30, 8).by_rings_ns is None
    # two nodes: a tree joins what the switches reduced, as fast as one node
    assert roof("h100", Op.ALL_REDUCE, 8 << 30, 16, 2).busbw_gbps == pytest.approx(480, rel=0.03)


def test_one_gpu_has_one_nic() -> None:
    alone = roof("h200+roce-400", Op.ALL_GATHER, 8 << 30, 2, 2)
    assert alone.busbw_gbps < 50  # eight NICs would carry 400
    assert any("1 of 8 NICs used" in note.text for note in alone.assumptions)
    # an EFA node has 32 NICs for 8 GPUs: four each
    assert any("4 of 32 NICs" in note.text for note in roof(
        "h100+efa-p5", Op.ALL_GATHER, 8 << 30, 2, 2
    ).assumptions)  # fmt: skip


def test_nothing_is_promised_where_no_latency_is_known() -> None:
    roofs = SystemRoofs("mi210")
    small = roofs.at(Workload(Op.ALL_REDUCE, 65536, 4))
    assert isinstance(small, str)
    assert "the latency of mi210 is unknown" in small
    large = roofs.at(Workload(Op.ALL_REDUCE, 1 << 30, 4))
    assert isinstance(large, RoofAt)
    assert large.time_high_ns - large.time_ns > 30_000  # the latency may be any that was published


# --- against measurements --------------------------------------------------------------------

_OPS = {
    "allgather": Op.ALL_GATHER, "allreduce": Op.ALL_REDUCE, "alltoall": Op.ALL_TO_ALL,
    "broadcast": Op.BROADCAST, "reduce": Op.REDUCE, "reducescatter": Op.REDUCE_SCATTER,
    "sendrecv": Op.SEND_RECV,
}  # fmt: skip
_ROW = re.compile(r"\s*(\d+)(?:\s+\S+){4}\s+([\d.]+)\s")


def nccl_tests(recordings: Path, *, by_round: bool) -> Iterator[tuple[Op, int, int, float]]:
    """Operation, ranks, size and time in us from 16 KiB up, on 2 and 4 H200."""
    for nranks in (2, 4):
        times: dict[tuple[Op, str, int], list[float]] = {}
        for file in sorted(recordings.parent.glob(f"h200x{nranks}-nccl*/nccl-tests/*.txt")):
            op, round_, _ = file.name.split(".")
            for found in filter(None, map(_ROW.match, file.read_text().splitlines())):
                key = (_OPS[op], round_ if by_round else "", int(found[1]))
                times.setdefault(key, []).append(float(found[2]))
        for (op_, _round, size), values in times.items():
            if size >= 16 << 10:
                yield op_, nranks, size, median(values)


def score(
    system: System, cells: list[tuple[Op, int, int, float]], part: float
) -> tuple[float, float]:
    """Part of the cells in the ceiling's range, and within `part` of its middle."""
    roofs = Roofs(system)
    held = near = 0
    for op, nranks, size, time in cells:
        found = roofs.ceilings(Workload(op, size, nranks))
        assert found is not None
        held += found.reachable.time_low_ns <= 1000 * time <= found.reachable.time_high_ns
        near += abs(found.reachable.time_ns / 1000 / time - 1) <= part
    return held / len(cells), near / len(cells)


def test_the_ranges_of_h200_hold_nccl_tests(recordings: Path) -> None:
    cells = list(nccl_tests(recordings, by_round=True))
    assert len(cells) > 400
    held, near = score(load_system("h200"), cells, 0.15)
    assert held >= 0.95
    assert near >= 0.9


def test_h200_without_its_own_measurements(
    recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what was measured on H100, GH200 and B200, and the library's constants, tell of H200
    kept = tuple(row for row in floors.measured_floors() if "H200" not in row.source)
    monkeypatch.setattr(floors, "measured_floors", lambda: kept)
    bare = replace(load_system("h200"), measured=(), published=())
    held, near = score(bare, list(nccl_tests(recordings, by_round=False)), 0.25)
    assert near >= 0.8
    assert held >= 0.9


def test_nothing_published_is_above_a_limit() -> None:
    with (_TABLES / "collectives-2026-11.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    roofs: dict[str, Roofs] = {}
    for row in rows:
        name = row["system"]
        found = roofs.setdefault(name, Roofs(load_system(name)))
        work = Workload(
            parse_op(row["op"]), int(row["size_bytes"]), int(row["nranks"]), int(row["nnodes"])
        )
        ceilings = found.ceilings(work)
        assert ceilings is not None
        assert 1000 * float(row["time_us"]) >= ceilings.limit.time_ns, row
