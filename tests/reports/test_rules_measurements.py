"""Findings about measurements: the slides' tables of Frontier, and none in a sound sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import collscope

_TCP = "RCCL Test Data - 2 Nodes With TCP/IP for Inter Node Communications"
_GDR = "RCCL Test Data - 2 Nodes with the Plugin + NCCL_NET_GDR_LEVEL=3"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    db = tmp_path_factory.mktemp("frontier") / "t.db"
    table = samples / "tables" / "frontier-allreduce.txt"
    assert collscope("ingest", "table", table, "--db", db).code == 0
    return db


def findings(db: Path, label: str) -> dict[str, Any]:
    done = collscope(
        "report", "--db", db, "--system", "frontier", "--label", label, "--format", "json"
    )
    return {f["code"]: f for f in json.loads(done.out)["findings"]}


def test_tcp_between_nodes_is_far_below_reachable(store: Path) -> None:
    # 8.03 GB/s at best where a tree reaches 135 and at least 109 were reached
    found = findings(store, _TCP)["far_below_reachable"]
    assert found["severity"] == "problem"
    assert "TCP instead of RDMA" in found["advice"]


def test_a_size_slower_than_the_next_and_places_that_differ(store: Path) -> None:
    # GDR level 3 at 32 MiB: 1810.3 us out of place, 886.4 in place; 64 MiB out of place 1508.5 us
    found = findings(store, _GDR)
    assert (
        "32 MiB on 16 ranks took 1810.3 us, but 64 MiB 1508.5 us" in found["times_fall"]["detail"]
    )
    assert found["times_fall"]["title"] == "1 size took longer than a larger message"
    assert "(2.04 x)" in found["places_differ"]["detail"]


def test_a_sound_table_gives_none_of_them(store: Path) -> None:
    found = findings(store, "RCCL Test Data - Single Node")
    assert not {"far_below_reachable", "times_fall", "places_differ"} & set(found)


def test_one_rank_alone_has_no_places_to_compare(tmp_path: Path) -> None:
    # A Reduce on one rank copies out of place (4 016 us) and does nothing in place (0.19 us).
    table = tmp_path / "one.txt"
    table.write_text(
        "./build/reduce_perf -b 1G -e 1G\n# nThread 1 nGpus 1 minBytes 1073741824\n"
        "#   Rank  0 Group  0 Pid  31816 on box device  0 [0000:b4:00] NVIDIA GeForce RTX 2080 Ti\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong\n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
        "            (us)  (GB/s)  (GB/s)\n"
        "  1073741824     268435456     float     sum       0   4016.0  267.37    0.00      0"
        "     0.19  5706839.35    0.00      0\n"
    )
    db = tmp_path / "t.db"
    assert collscope("ingest", "table", table, "--db", db).code == 0
    assert "places_differ" not in findings(db, "one")


_HEADER = (
    "op,datatype,redop,root,count,size_bytes,in_place,nranks,nnodes,calls,time_us_median,"
    "time_us_min,time_us_max,time_us_mad,iterations,algbw_gbps,busbw_gbps,n_wrong,method,"
    "backend,library,device,host,status,label,round,message"
)
_SIZES = tuple(1 << p for p in range(20, 26))  # 1 to 32 MiB: 30 to 1 000 us


def _row(size: int, us: float, *, host: str = "a", label: str = "x", number: int | None = None,
         message: str = "") -> str:  # fmt: skip
    return (
        f"AllReduce,Float32,Sum,,{size // 4},{size},1,8,1,,{us},,,,50,,,0,batch,hip,rccl 2.26.6,,"
        f"{host},ok,{label},{'' if number is None else number},{message}"
    )


def _usual(size: int) -> float:
    return 10 + size / 50_000


def _found(folder: Path, rows: list[str], *more: str) -> dict[str, Any]:
    csv, db = folder / "a.csv", folder / "a.db"
    csv.write_text("\n".join(["# collscope-replay: 1", _HEADER, *rows]) + "\n")
    assert collscope("ingest", "csv", csv, "--db", db).code == 0
    done = collscope("report", "--db", db, "--format", "json", *more)
    return {f["code"]: f for f in json.loads(done.out)["findings"]}


def test_a_round_slower_than_the_others(tmp_path: Path) -> None:
    # Round 3 takes 1.3 times as long, but for one class of six, which takes as long as ever.
    rows = [
        _row(size, _usual(size) * (1.3 if n == 3 and size != _SIZES[0] else 1 + n / 100), number=n)
        for n in range(5)
        for size in _SIZES
    ]
    found = _found(tmp_path, rows)
    assert found["outlier_round"]["title"] == "round 3 is slower than the rest"
    # The usual time is the median of 1.00, 1.01, 1.02, 1.3 and 1.04: 1.02.
    assert (
        "takes 1.27 times the usual time (6 classes, 4 other rounds)"
        in (found["outlier_round"]["detail"])
    )
    few = tmp_path / "few"
    few.mkdir()
    kept = [row for row in rows if row.split(",")[25] in "013"]
    assert "outlier_round" not in _found(few, kept)  # of three, nothing is usual


@pytest.mark.parametrize("own_labels", [False, True])
def test_a_node_slower_than_the_others(tmp_path: Path, own_labels: bool) -> None:
    rows = [
        _row(size, _usual(size) * (1.2 if host == "c" else 1), host=host,
             label=host if own_labels else "x")
        for host in "abcdef"
        for size in _SIZES
    ]  # fmt: skip
    found = _found(tmp_path, rows, *(("--label", "a") if own_labels else ()))
    assert found["outlier_node"]["title"] == "node c is slower than the rest"
    assert "1.20 times the usual time (6 classes, 5 other nodes)" in found["outlier_node"]["detail"]


def test_a_switch_of_algorithm_that_costs(tmp_path: Path) -> None:
    # 40 GB/s up to 4 MiB, 25 from 8 MiB on: two calls of 4 MiB take less than one of 8.
    rows = [
        _row(size, 10 + size / (40_000 if size <= 4 << 20 else 25_000),
             message="TREE LL128" if size <= 4 << 20 else "RING SIMPLE")
        for size in _SIZES
    ]  # fmt: skip
    found = _found(tmp_path, rows)
    assert found["switch_costs"]["title"] == "bandwidth falls at 1 size, by up to 34 %"
    assert (
        "4 MiB on 8 ranks took 114.86 us, 8 MiB 345.54 us (TREE LL128, then RING SIMPLE)"
        in (found["switch_costs"]["detail"])
    )
    sound = tmp_path / "sound"
    sound.mkdir()
    assert not {"switch_costs", "outlier_round", "outlier_node"} & set(
        _found(sound, [_row(size, _usual(size)) for size in _SIZES])
    )
