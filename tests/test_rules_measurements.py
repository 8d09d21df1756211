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
