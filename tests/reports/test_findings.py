"""Every rule of the findings: what makes it speak, what keeps it silent, and its evidence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command import collscope
from store_builder import StoreBuilder

from collscope.reports.efficiency.findings import (
    skew_dominated,
    skew_dominated_classes,
    waiting_dominates,
)
from collscope.reports.report.answer import Evidence, Finding
from collscope.reports.report.findings import RULES, SEVERITIES
from collscope.reports.report.formats import render
from collscope.reports.waiting.findings import stragglers


def _found(store: StoreBuilder, code: str) -> list[Finding]:
    return [finding for finding in store.report().findings if finding.code == code]


def _only(store: StoreBuilder, code: str) -> Finding:
    (finding,) = _found(store, code)
    return finding


def _two_hosts() -> StoreBuilder:
    """Source 1 and communicator 1: rank 0 on n1 (stream 1), rank 1 on n2."""
    store = StoreBuilder()
    source = store.source()
    store.comm([store.process(source, "n1", 1), store.process(source, "n2", 2)], nnodes=2)
    return store


def test_nothing_to_find_in_an_empty_or_a_quiet_run() -> None:
    quiet = StoreBuilder()
    _, comm = quiet.group()
    quiet.calls(comm, quiet.collective(size_bytes=1 << 20), 1000)
    for store in (StoreBuilder(), quiet):
        assert store.report().findings == ()
    assert "No finding." in render(quiet.report(), "text")


def test_a_late_rank_stands_before_the_classes_that_show_it() -> None:
    for shows in (waiting_dominates, skew_dominated, skew_dominated_classes):
        assert RULES.index(stragglers) < RULES.index(shows)


def test_sockets_between_hosts_are_a_problem_with_the_line_as_evidence() -> None:
    store = _two_hosts()
    line = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"
    store.link(1, 0, 1, "NET/Socket", net="Socket", gdr=0, handle_id=1, line=12, excerpt=line)
    store.fact(1, "network", "Socket")
    finding = _only(store, "internode_socket")
    assert finding.severity == "problem"
    assert finding.detail == "Over NET/Socket: 1 of 1 pair of ranks on two hosts."
    assert finding.evidence == (Evidence("a.log", 12, line),)
    assert f"    a.log:12: {line}" in render(store.report(), "text").splitlines()
    # said once, and Socket has no GDR to switch on
    assert _found(store, "socket_network") == []
    assert _found(store, "gdr_not_in_use") == []


def test_sockets_within_a_host_are_no_problem() -> None:
    store = StoreBuilder()
    source, _ = store.group()
    store.link(source, 0, 1, "NET/Socket", net="Socket", handle_id=1)
    assert _found(store, "internode_socket") == []


def test_network_socket_counts_only_when_communicators_span_hosts() -> None:
    store = _two_hosts()
    store.fact(1, "network", "Socket", line=9, excerpt="Using network Socket")
    assert _only(store, "socket_network").evidence == (
        Evidence("a.log", 9, "Using network Socket"),
    )
    single = StoreBuilder()
    source, _ = single.group()
    single.fact(source, "network", "Socket")
    assert _found(single, "socket_network") == []


def test_gdr_not_in_use_counts_pairs_of_networks_that_could() -> None:
    store = _two_hosts()
    store.link(1, 0, 1, "NET/IB", net="IB", gdr=0, handle_id=1, line=20)
    store.link(1, 1, 0, "NET/IB", net="IB", gdr=1, handle_id=1)
    finding = _only(store, "gdr_not_in_use")
    assert finding.detail == "1 of 2 pairs of ranks over NET without GDR."
    assert finding.evidence == (Evidence("a.log", 20, "0 -> 1 via NET/IB"),)
    store.link(1, 0, 1, "NET/IB", net="IB", gdr=1, handle_id=1, line=21)  # of another channel
    detail = _only(store, "gdr_not_in_use").detail
    assert detail == (
        "1 of 2 pairs of ranks over NET without GDR on some of their channels, 0 of them on all."
    )


def test_shared_memory_instead_of_p2p() -> None:
    store = StoreBuilder()
    source, _ = store.group()
    store.link(source, 0, 1, "SHM/direct", handle_id=1)
    store.link(source, 1, 0, "P2P/IPC", handle_id=1)
    finding = _only(store, "shared_memory_instead_of_p2p")
    assert finding.detail == "Over SHM: 1 of 2 pairs of ranks on one host."


def test_forced_choices_are_named_with_their_line() -> None:
    store = StoreBuilder()
    source = store.source()
    first, second = store.process(source, pid=1), store.process(source, pid=2)
    for process in (first, second):
        store.setting(source, "NCCL_ALGO", "Ring", process_id=process)
        store.setting(source, "NCCL_IB_HCA", "mlx5", process_id=process)
    finding = _only(store, "forced_choice")
    assert finding.title == "algorithm forced by the environment: NCCL_ALGO=Ring"
    assert "NCCL_ALGO=Ring in 2 of 2 processes" in finding.detail
    assert finding.evidence == (Evidence("a.log", 3, "NCCL_ALGO set to Ring"),)


def test_a_value_of_the_configuration_is_not_the_environment() -> None:
    store = StoreBuilder()
    store.setting(store.source(), "NCCL_ALGO", "Ring", origin="config")
    assert store.report().findings == ()


def test_disabled_features_depend_on_the_value() -> None:
    store = StoreBuilder()
    source = store.source()
    for name, value in (
        ("NCCL_P2P_DISABLE", "1"),
        ("NCCL_SHM_DISABLE", "0"),
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_NVLS_ENABLE", "0"),
        ("RCCL_MSCCL_ENABLE", "1"),
    ):
        store.setting(source, name, value)
    titles = [finding.title for finding in _found(store, "disabled_feature")]
    assert [title.rsplit(": ")[-1] for title in titles] == [
        "NCCL_NVLS_ENABLE=0",
        "NCCL_P2P_DISABLE=1",
    ]


def test_traces_left_on() -> None:
    store = StoreBuilder()
    source = store.source()
    store.setting(source, "RCCL_KERNEL_COLL_TRACE_ENABLE", "1")
    store.setting(source, "NCCL_DEBUG", "INFO")
    assert _only(store, "debug_left_on").title.endswith("RCCL_KERNEL_COLL_TRACE_ENABLE=1")
    off = StoreBuilder()
    off.setting(off.source(), "RCCL_KERNEL_COLL_TRACE_ENABLE", "0")
    assert off.report().findings == ()


def test_environment_differs_by_value_or_by_absence() -> None:
    store = StoreBuilder()
    source = store.source()
    first, second = store.process(source, pid=1), store.process(source, pid=2)
    store.setting(source, "NCCL_PROTO", "LL", process_id=first)
    store.setting(source, "NCCL_SOCKET_IFNAME", "eth0", process_id=first)
    store.setting(source, "NCCL_SOCKET_IFNAME", "eth1", process_id=second)
    titles = {finding.title for finding in _found(store, "environment_differs")}
    assert titles == {
        "NCCL_PROTO differs between processes",
        "NCCL_SOCKET_IFNAME differs between processes",
    }
    store.diagnostic("notice", "several_jobs", count=1)  # each may be right by itself
    for finding in _found(store, "environment_differs"):
        assert finding.severity == "note"
        assert "hang" not in finding.advice
    several = _only(store, "several_jobs")
    assert several.title.endswith("1 GPU used by several processes")
    assert "used several GPUs" not in several.detail  # no line names processes or GPUs


def test_library_versions_differ_between_sources() -> None:
    store = StoreBuilder()
    store.source("a.log", library="nccl", library_version="2.28.9")
    store.source("b.log", library="nccl", library_version="2.28.9")
    assert _found(store, "library_differs") == []
    store.source("c.log", library="nccl", library_version="2.27.3")
    finding = _only(store, "library_differs")
    store.setting(1, "NCCL_ALGO", "Ring")
    assert store.report().findings[0].code == "library_differs"  # two jobs: the rest is doubtful
    assert finding.detail == "nccl 2.27.3, nccl 2.28.9."
    assert [evidence.source for evidence in finding.evidence] == ["c.log", "a.log"]


def test_missing_ranks_are_named() -> None:
    store = StoreBuilder()
    source = store.source()
    store.comm([store.process(source), None, None, None])
    finding = _only(store, "missing_ranks")
    assert finding.detail == (
        "Missing ranks, numbered within the communicator: communicator 1: 1-3."
    )


def test_missing_calls_are_counted_per_rank() -> None:
    store = StoreBuilder()
    source, comm = store.group()
    calls = store.calls(comm, store.collective(), 4, ranks_seen=1)
    for call in calls[:3]:
        store.deviation(call, 1, "missing", source_id=source, line=40 + call)
    store.diagnostic("data_loss", "observation_missing", count=3)
    finding = _only(store, "missing_calls")
    assert finding.title == "logs lack 3 entries that the logs of other ranks have"
    assert "Communicator 1: rank 1 lacks 3 entries" in finding.detail
    assert finding.evidence == (Evidence("a.log", 41, None),)
    assert _found(store, "data_loss") == []  # the same loss is not told twice


def test_calls_missing_in_traces_are_not_told_of_logs() -> None:
    store = StoreBuilder()
    source = store.source("t.json", kind="trace")
    comm = store.comm([store.process(source), store.process(source, pid=2), None])
    first, _ = store.calls(comm, store.collective(), 2, ranks_seen=1)
    store.deviation(first, 1, "missing", source_id=source)
    finding = _only(store, "missing_calls")
    assert finding.title == "1 call is missing in traces or recordings of ranks"
    assert "log" not in finding.title + finding.advice
    title = _only(store, "missing_ranks").title
    assert title == "ranks without a trace or recording in 1 of 1 communicator"


def test_a_class_without_a_count_is_named_by_what_is_known() -> None:
    store = StoreBuilder()
    source, comm = store.group()
    of = store.collective(count=None, size_bytes=None, datatype=None)
    (call,) = store.calls(comm, of, 1)
    for _ in range(2):
        store.kernel(call, source, transfer_ns=1000, wait_ns=9000)
    assert _only(store, "waiting_dominates").detail == (
        "Of 20 us over all ranks, 18 us is waiting for the last rank, the largest part (18 us) in "
        "AllReduce, size not known, on 2 ranks."
    )


def test_a_rank_that_lacks_all_calls_from_one_on_has_stopped() -> None:
    store = StoreBuilder()
    _, comm = store.group()
    calls = store.calls(comm, store.collective(), 10)
    for call in (calls[2], *calls[6:]):
        store.deviation(call, 1, "missing")
    finding = _only(store, "ranks_stopped")
    said = "its last call is number 6 (AllReduce of 1024 Float32) of 10"
    assert finding.title == f"rank 1 stopped: {said}"
    assert finding.evidence == (Evidence("a.log", None, None),)
    detail = _only(store, "missing_calls").detail
    assert detail == "Communicator 1: rank 1 lacks 1 entry."  # between
    silent = StoreBuilder()
    _, comm = silent.group()
    # Without a log, of a trace: it may end before others.
    silent.insert("_member", comm_id=comm, rank=2, world_rank=2, handle_id=None)
    for call in silent.calls(comm, silent.collective(), 2):
        silent.deviation(call, 0, "missing")
        silent.deviation(call, 2, "missing")
    assert _only(silent, "ranks_stopped").title == ("rank 0 stopped: it made none of 2 calls")


def test_disagreeing_ranks_are_a_problem_with_what_they_logged() -> None:
    store = StoreBuilder()
    source, comm = store.group()
    (call,) = store.calls(comm, store.collective(), 1)
    store.deviation(call, 1, "differs", source_id=source, line=8, detail="Broadcast count 4")
    finding = _only(store, "ranks_disagree")
    assert finding.severity == "problem"
    assert finding.evidence == (Evidence("a.log", 8, "Broadcast count 4"),)


def test_inferred_communicators_are_noted() -> None:
    store = StoreBuilder()
    source = store.source()
    ranks = [store.process(source, pid=pid) for pid in (1, 2)]
    for matched_by in ("inferred", "inferred", "commId"):
        store.comm(ranks, matched_by=matched_by)
    finding = _only(store, "communicators_inferred")
    assert finding.title == "2 of 3 communicators are inferred"
    assert finding.detail.startswith("Communicators 1-2:")


def test_counts_modulo_2_32() -> None:
    store = StoreBuilder()
    store.diagnostic("info", "count_modulo_2_32", count=12)
    finding = _only(store, "counts_modulo")
    assert finding.severity == "note"  # no call is known to be as large
    assert "Smaller counts are printed in full" in finding.detail


def test_tiny_messages_are_more_than_half_of_the_calls_below_4_kib() -> None:
    store = StoreBuilder()
    _, comm = store.group()
    store.calls(comm, store.collective(op="AllGather", size_bytes=4095), 5)
    store.calls(comm, store.collective(op="AllGather", size_bytes=4096), 5)
    assert _found(store, "tiny_messages") == []  # exactly half
    store.calls(comm, store.collective(op="AllGather", size_bytes=0), 1)
    # 6 of 11
    assert _only(store, "tiny_messages").title == "54.5 % of the calls are below 4 KiB"


def test_fusable_all_reduces_are_many_small_and_the_majority() -> None:
    store = StoreBuilder()
    _, comm = store.group()
    store.calls(comm, store.collective(size_bytes=32768), 99)
    assert _found(store, "fusable_all_reduces") == []  # too few
    store.calls(comm, store.collective(size_bytes=65535), 1)
    finding = _only(store, "fusable_all_reduces")
    # 99 * 32768 + 65535 bytes over 100 calls
    assert finding.detail == "Together they move 3309567 bytes, 33095 per call."
    store.calls(comm, store.collective(size_bytes=1 << 24), 100)
    assert _found(store, "fusable_all_reduces") == []  # half of the all-reduces are large


def test_lost_data_is_a_warning_and_an_error_a_problem() -> None:
    store = StoreBuilder()
    source = store.source()
    store.diagnostic("data_loss", "torn_line", source_id=source, line=3, excerpt="AllRed", count=4)
    store.diagnostic("error", "corrupt_database", source_id=source)
    store.diagnostic("notice", "interleaved_line", source_id=source)
    worst, torn = _found(store, "data_loss")
    assert (worst.severity, torn.severity) == ("problem", "warning")
    assert torn.title == "records were lost: torn_line (4 times)"
    assert torn.evidence == (Evidence("a.log", 3, "AllRed"),)


def test_waiting_dominates_when_it_is_more_than_half_of_the_kernel_time() -> None:
    store = StoreBuilder()
    source, comm = store.group()
    even, uneven = store.calls(comm, store.collective(), 2)
    store.kernel(even, source, transfer_ns=100, wait_ns=0)
    store.kernel(even, source, transfer_ns=100, wait_ns=200)
    assert _found(store, "waiting_dominates") == []  # 200 of 400
    store.kernel(uneven, source, transfer_ns=100, wait_ns=400)
    # 600 of 900
    finding = _only(store, "waiting_dominates")
    assert finding.title == "waiting takes 66.7 % of the time in collective kernels"


def test_warnings_of_the_library_come_before_error_returns() -> None:
    store = StoreBuilder()
    source = store.source()
    store.fact(source, "error", "net_ib.cc:89 -> 2", count=64)
    store.fact(source, "warning", "init.cc:1: slow path", count=2)
    store.fact(source, "wqe_slow", "WQE slow: peer=1", count=4)
    store.fact(source, "attention", "half the width", count=1)  # worth a look, no warning
    finding = _only(store, "library_warnings")
    assert finding.title == "the library printed 70 warnings or errors"
    assert [evidence.text for evidence in finding.evidence] == [
        "init.cc:1: slow path",
        "WQE slow: peer=1",
        "net_ib.cc:89 -> 2",
    ]


def test_rules_look_at_classes_that_the_table_leaves_out() -> None:
    store = StoreBuilder()
    _, comm = store.group()
    store.calls(comm, store.collective(size_bytes=1 << 30), 1)
    store.calls(comm, store.collective(size_bytes=4), 200)
    report = store.report(top=1)
    assert {finding.code for finding in report.findings} == {
        "tiny_messages",
        "fusable_all_reduces",
    }


def test_findings_are_ordered_by_severity() -> None:
    store = _two_hosts()
    store.link(1, 0, 1, "NET/Socket", net="Socket", handle_id=1)
    store.setting(1, "NCCL_DEBUG", "TRACE")
    store.setting(1, "NCCL_ALGO", "Ring")
    severities = [finding.severity for finding in store.report().findings]
    assert severities == ["problem", "warning", "note"]
    assert severities == sorted(severities, key=SEVERITIES.index)


def test_time_that_was_lost_comes_before_what_may_cost_some() -> None:
    store = StoreBuilder()
    source, comm = store.group()
    store.setting(source, "NCCL_ALGO", "Ring")
    (call,) = store.calls(comm, store.collective(), 1)
    store.kernel(call, source, transfer_ns=100, wait_ns=400)
    assert [f.code for f in store.report().findings if f.severity == "warning"] == [
        "waiting_dominates",
        "forced_choice",
    ]


def test_every_rule_says_what_it_looks_for() -> None:
    assert all(rule.__doc__ for rule in RULES)
    assert len({rule.__name__ for rule in RULES}) == len(RULES)


def _edited(samples: Path, folder: Path, edit: Callable[[dict[str, Any]], None]) -> str:
    """What report says of the sample traces, each changed."""
    for path in sorted((samples / "traces" / "default").glob("rank*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        edit(trace)
        (folder / f"rank{trace['distributedInfo']['rank']}.json").write_text(
            json.dumps(trace), encoding="utf-8"
        )
    db = ("--db", folder / "t.db")
    assert collscope("ingest", "trace", *sorted(folder.glob("rank*.json")), *db).code == 0
    return " ".join(collscope("report", *db).out.split())


def test_a_copied_trace_under_another_rank_is_told(samples: Path, tmp_path: Path) -> None:
    first: list[dict[str, Any]] = []

    def copy(trace: dict[str, Any]) -> None:
        rank = trace["distributedInfo"]["rank"]
        if rank == 1:
            first.append(trace["traceEvents"])
        elif rank == 3:
            trace["traceEvents"] = first[0]

    said = _edited(samples, tmp_path, copy)
    assert "The traces of ranks 1 and 3 have the same times in every row" in said
    assert "ranks 0 and" not in said


def test_ranks_without_a_known_collective_are_told(samples: Path, tmp_path: Path) -> None:
    def rename(trace: dict[str, Any]) -> None:
        for event in trace["traceEvents"]:
            if event.get("cat") == "kernel" and "nccl" in event["name"]:
                event["name"] = "myComm_kernel(args)"

    said = _edited(samples, tmp_path, rename)
    assert "no collective is recognised in the traces" in said
    assert "most time first: myComm_kernel(args)" in said
    assert "ompute-bound" not in said
