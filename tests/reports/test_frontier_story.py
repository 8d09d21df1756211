"""The published story of a plugin on Frontier, through the commands: tables, log lines, figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import collscope, rows

TCP = "RCCL Test Data - 2 Nodes With TCP/IP for Inter Node Communications"
PLUGIN = "RCCL Test Data - 2 Nodes with the Plugin"
GDR = "RCCL Test Data - 2 Nodes with the Plugin + NCCL_NET_GDR_LEVEL=3"
# The document's three log lines, each joined from the two that its page breaks it into.
LINES = {
    "tcp": "frontier01466:86382:86734 [0] NCCL INFO Channel 02/0 : 36[d9000] -> 45[de000] [send]"
    " via NET/Socket/4 comm 0x7ffbec000d70 nRanks 80\n",
    "plugin": "frontier08155:21778:21989 [0] NCCL INFO Channel 01/0 : 70[c1000] -> 74[c9000] [send]"
    " via NET/AWS Libfabric/0 comm 0x7ffbec000d70 nRanks 80\n",
    "gdr": "frontier08431:43731:43989 [0] NCCL INFO Channel 01/0 : 14[c1000] -> 18[c9000] [send]"
    " via NET/AWS Libfabric/0/GDRDMA comm 0x7ffbec000d70 nRanks 80\n",
}


@pytest.fixture(scope="module")
def store(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frontier")
    db, tables = folder / "t.db", samples / "tables"
    ingested = [
        collscope("ingest", "table", tables / "frontier-allreduce.txt", "--db", db),
        collscope("ingest", "metric", tables / "frontier-applications.txt", "--db", db),
    ]
    for run, line in LINES.items():
        (folder / f"{run}.log").write_text(line)
        log = folder / f"{run}.log"
        ingested.append(collscope("ingest", "log", log, "--db", db, "--run", run))
    assert [outcome.code for outcome in ingested] == [0] * 5, ingested
    return db


@pytest.fixture(scope="module")
def comparison(store: Path) -> dict[str, Any]:
    outcome = collscope("compare", TCP, PLUGIN, GDR, "--db", store, "--format", "json")
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_the_plugin_and_gdr_raise_the_bus_bandwidth(comparison: dict[str, Any]) -> None:
    assert comparison["labels"] == [TCP, PLUGIN, GDR]
    (row,) = [
        row
        for row in comparison["classes"]
        if row["key"]["size_bytes"] == 4 << 30 and row["key"]["in_place"]
    ]
    assert [round(cell["busbw_gbps"], 2) for cell in row["cells"]] == [8.03, 56.85, 109.01]
    # By hand from the printed times: 1003000 / 141643 and 1003000 / 73877.
    assert [round(cell["speed_up"], 3) for cell in row["cells"]] == [1, 7.081, 13.577]


def test_the_outlier_at_32_mib_is_flagged(comparison: dict[str, Any]) -> None:
    assert [note["text"] for note in comparison["notes"] if "2.04" in note["text"]] == [
        f"{GDR}: AllReduce of 33554432 B takes 1810.3 us out of place and 886.4 us in place"
        " (ratio 2.04): first use of the buffer, or an outlier"
    ]


def test_nothing_is_above_the_wires(store: Path) -> None:
    outcome = collscope("compare", TCP, PLUGIN, GDR, "--db", store, "--system", "frontier")
    assert "impossible" not in outcome.out


def test_one_table_of_averages_gives_no_verdict(store: Path) -> None:
    outcome = collscope("check", "--baseline", PLUGIN, "--current", GDR, "--db", store)
    assert outcome.code == 4


def test_the_log_names_tcp_sockets_with_the_line(store: Path) -> None:
    findings = {
        run: json.loads(collscope("report", "--db", store, "--run", run, "--format", "json").out)[
            "findings"
        ]
        for run in LINES
    }
    (sockets,) = [f for f in findings["tcp"] if f["code"] == "internode_socket"]
    (evidence,) = sockets["evidence"]
    assert evidence["line"] == 1
    assert "36[d9000] -> 45[de000] [send] via NET/Socket/4" in evidence["text"]
    assert [f["code"] for f in findings["plugin"]] == ["gdr_not_in_use"]
    assert findings["gdr"] == []


def test_application_figures_are_in_the_store(store: Path) -> None:
    found = [value for (value,) in rows(store, "SELECT value FROM metrics")]
    for figure in (36.372, 60.975, 72.106, 920.145, 942.769, 118874.19, 508689.71):
        assert figure in found
