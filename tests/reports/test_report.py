"""Sections of the report, on stores built row by row; expected values derived by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import collscope
from hypothesis import given
from hypothesis import strategies as st
from inputs import ROOT
from msgspec.structs import replace
from store_builder import StoreBuilder

from collscope.cli.options import write
from collscope.errors import UsageError
from collscope.model import Op
from collscope.reports.calls.answer import compact_ranges
from collscope.reports.rendering.formats import FORMATS
from collscope.reports.rendering.rows import render_rows
from collscope.reports.rendering.share_words import denominator
from collscope.reports.report.answer import Report
from collscope.reports.report.findings import find
from collscope.reports.report.formats import render
from collscope.reports.report.text import sections
from collscope.reports.waiting.late_causes import LateCause
from collscope.reports.waiting.late_ranks_text import short_late_sentence
from collscope.reports.waiting.ranks import RankRow
from collscope.reports.waiting.text import timeline_section

_SCHEMA = ROOT / "schemas" / "report.schema.json"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(document)
    return document


def _guide() -> StoreBuilder:
    """The three rows of the guide's top table, as pasted."""
    store = StoreBuilder()
    source = store.source("top.txt", kind="profile", dialect="top_text")
    for name, family, calls, total_us, percent in (
        ("mscclKernel_Sum_half_Simple_false", "msccl", 52224, 125822179, 18.8200893749884),
        ("ncclDevKernel_Generic", "rccl", 26592, 69872574, 10.4513218907667),
        ("mscclKernel_Sum_uint8_t_LL_false", "msccl", 8, 3559, 0.000532429084356098),
    ):
        store.total(source, name, family, total_us * 1000, calls=calls, reported_percentage=percent)
    return store


def _job() -> StoreBuilder:
    """Two ranks, a timed large all-reduce (class 1) and a small all-gather (class 2)."""
    store = StoreBuilder()
    source, comm = store.group()
    large = store.collective(count=262144, size_bytes=1048576)
    small = store.collective(op="AllGather", redop=None, count=4, size_bytes=32, in_place=None)
    ring, tree = store.tuning("RING", "SIMPLE", 24), store.tuning("TREE", "LL", 8)
    calls = store.calls(comm, large, 3, tuning=ring)
    store.calls(comm, large, 1, tuning=tree)
    store.calls(comm, small, 6, ranks_seen=1)
    # one call, two ranks: 100 us and 100 + 40 us
    store.kernel(calls[0], source, transfer_ns=100_000, wait_ns=0)
    store.kernel(calls[0], source, transfer_ns=100_000, wait_ns=40_000)
    return store


def test_share_of_a_pasted_excerpt_is_the_guides() -> None:
    report = _guide().report()
    (share,) = report.shares
    # the guide's own `select sum(Percentage)`: 29.2719436948395
    assert share.percent == pytest.approx(29.2719436948395, abs=1e-12)
    assert share.partial
    assert share.share_of_busy is None
    # 18.8200893749884 + 0.000532429084356098, and 125822179 + 3559 us
    assert share.families[0].percent == pytest.approx(18.8206218040728, abs=1e-12)
    assert share.families[0].total_ns == 125_825_738_000
    assert (
        "Collectives take at least 29.27 % of GPU time (denominator: the profile's own "
        "total of kernels and copies; the file holds only 3 of its rows)."
    ) in " ".join(render(report, "text").split())


def test_share_of_a_whole_profile_has_both_denominators() -> None:
    store = StoreBuilder()
    source = store.source("p.rpd", kind="profile", dialect="rpd")
    store.total(source, "ncclDevKernel_AllReduce", "rccl", 300, device="0")
    store.total(source, "gemm", None, 500)
    store.total(source, "CopyHostToDevice", None, 200, kind="copy")
    (share,) = store.report().shares
    # 300 of 300 + 500 kernels, and of 300 + 500 + 200 with the copy
    assert share.share_of_kernels == pytest.approx(0.375)
    assert share.share_of_busy == pytest.approx(0.3)
    assert share.percent == pytest.approx(30.0)
    assert denominator(share) == "all kernels and copies"
    assert [kernel.percent for kernel in share.kernels] == [pytest.approx(30.0)]


def test_profile_without_copies_says_so() -> None:
    store = StoreBuilder()
    source = store.source("k.csv", kind="profile", dialect="rocprofv3_stats")
    store.total(source, "rccl", "rccl", 1)
    store.total(source, "gemm", None, 3)
    (share,) = store.report().shares
    assert share.percent == pytest.approx(25.0)
    assert denominator(share) == "all kernels; the profile has no times of copies"


def test_files_of_one_rocprofv3_process_are_one_share() -> None:
    """Copies join the kernels of their process, totals beside the trace count nothing twice."""
    store = StoreBuilder()
    for name in ("d/7_kernel_stats.csv", "d/7_kernel_trace.csv"):
        source = store.source(name, kind="profile", dialect="rocprofv3_" + name[-9:-4])
        store.total(source, f"rccl {name}", "rccl", 20)
        store.total(source, f"gemm {name}", None, 60)
    copies = store.source("d/7_memory_copy_trace.csv", kind="profile", dialect="rocprofv3_trace")
    store.total(copies, "MEMORY_COPY_HOST_TO_DEVICE", None, 20, kind="copy")
    other = store.source("d/8_memory_copy_trace.csv", kind="profile", dialect="rocprofv3_trace")
    store.total(other, "MEMORY_COPY_DEVICE_TO_HOST", None, 20, kind="copy")
    report = store.report()
    (share,) = report.shares  # copies without any kernel have no share
    assert (share.source, share.collective_ns, share.percent) == ("d/7_kernel_trace.csv", 20, 20.0)
    assert denominator(share) == "all kernels and copies"
    (finding,) = [found for found in report.findings if found.code == "totals_beside_trace"]
    assert [line.source for line in finding.evidence] == ["d/7_kernel_stats.csv"]


def test_ranks_of_one_dialect_are_one_sentence() -> None:
    store = StoreBuilder()
    for rank, gemm in enumerate((900, 700)):
        source = store.source(f"{rank}_kernel_trace.csv", kind="profile", dialect="rocprofv3_trace")
        store.total(source, f"rccl {rank}", "rccl", 100)
        store.total(source, f"gemm {rank}", None, gemm)
    first = sections(store.report())[0].blocks[0]
    assert first == (
        "Compute-bound: collectives take 10.00 to 12.50 % of GPU time in 2 profiles (denominator: "
        "all kernels; the profile has no times of copies)."
    )


def test_devices_of_a_kernel_are_added_and_names_cut_to_the_top() -> None:
    store = StoreBuilder()
    source = store.source("p.rpd", kind="profile", dialect="rpd")
    store.total(source, "a", "nccl", 10, device="0", calls=1)
    name = store.connection.execute("SELECT name_id FROM _kernel_name").fetchone()[0]
    store.insert(
        "_kernel_total",
        source_id=source,
        name_id=name,
        kind="kernel",
        device="1",
        calls=3,
        total_ns=30,
    )
    store.total(source, "b", "nccl", 20)
    (share,) = store.report(top=1).shares
    (kernel,) = share.kernels
    assert (kernel.name, kernel.calls, kernel.total_ns, kernel.mean_ns) == ("a", 4, 40, 10.0)
    assert share.kernels_total == 2
    assert share.families[0].total_ns == 60


def test_unclassified_names_stand_beside_the_share() -> None:
    store = StoreBuilder()
    source = store.source("p.rpd", kind="profile", dialect="rpd")
    store.total(source, "gemm", None, 1)
    for name in ("my_ccl_kernel", "other_ccl"):
        store.diagnostic("notice", "unclassified_name", source_id=source, excerpt=name, count=2)
    (share,) = store.report().shares
    assert [(n.name, n.calls) for n in share.unclassified] == [
        ("my_ccl_kernel", 2),
        ("other_ccl", 2),
    ]


def test_classes_have_bytes_tuning_and_time() -> None:
    large, small = _job().report().classes
    assert (large.class_id, large.calls, large.total_bytes) == (1, 4, 4 * 1048576)
    # 4 * 1048576 of 4 * 1048576 + 6 * 32 bytes
    assert large.share_of_bytes == pytest.approx(4194304 / 4194496)
    assert (large.algorithm, large.protocol, large.channels) == ("RING", "SIMPLE", 24)
    assert large.tuned_calls == 4
    assert (large.kernel_calls, large.kernel_observations) == (1, 2)
    # mean over the one timed call; mean over its two kernels; 100 + 140 us
    assert (large.transfer_ns, large.wait_ns, large.kernel_ns) == (100_000, 20_000, 240_000)
    assert (small.in_place, small.algorithm, small.transfer_ns) == (None, None, None)


def test_timed_classes_come_before_larger_untimed_ones() -> None:
    store = StoreBuilder()
    source, comm = store.group()
    store.calls(comm, store.collective(size_bytes=10**9), 1)
    timed = store.calls(comm, store.collective(count=1, size_bytes=4), 1)
    store.kernel(timed[0], source, transfer_ns=1, wait_ns=0)
    assert [row.class_id for row in store.report().classes] == [2, 1]


def test_top_cuts_the_classes_but_no_total() -> None:
    report = _job().report(top=1)
    assert [row.class_id for row in report.classes] == [1]
    assert (report.header.classes, report.header.calls) == (2, 10)
    assert sum(row.calls for row in report.histograms[0].bins) == 10
    assert "1 more class not shown." in render(report, "text")


def test_header_counts_what_the_run_consists_of() -> None:
    header = _job().report().header
    assert (header.processes, header.gpus, header.ranks, header.nodes) == (2, 2, 2, 1)
    assert header.hosts == ("n1",)
    assert (header.communicators, header.classes, header.calls) == (1, 2, 10)
    assert header.total_bytes == 4 * 1048576 + 6 * 32


def test_libraries_come_from_sources_and_version_lines() -> None:
    store = StoreBuilder()
    source = store.source(library="rccl", library_version="2.21.5")
    store.fact(source, "hip", "6.2")
    store.fact(source, "network", "IB")
    assert store.report().header.libraries == ("hip 6.2", "rccl 2.21.5")


def test_communicators_have_world_ranks_missing_ranks_and_usage() -> None:
    store = StoreBuilder()
    source = store.source()
    ranks = [store.process(source, pid=pid) for pid in range(4)]
    store.comm(ranks)
    sub = store.comm([ranks[0], None], world_ranks=[0, 2], parent_id=1, matched_by="parent/color")
    store.calls(sub, store.collective(), 5, ranks_seen=1)
    world, split = store.report().communicators
    assert (world.world_ranks, world.missing_ranks, world.calls) == ("0-3", None, 0)
    assert (split.world_ranks, split.missing_ranks, split.calls) == ("0", "1", 5)
    assert split.total_bytes == 5 * 4096
    assert [(op.op, op.calls) for op in split.ops] == [(Op.ALL_REDUCE, 5)]


def test_equal_siblings_share_a_line_of_text() -> None:
    store = StoreBuilder()
    source = store.source()
    ranks = [store.process(source, pid=pid) for pid in range(4)]
    store.comm(ranks)
    kind = store.collective()
    for world in ([0, 1], [2, 3]):
        pair = [ranks[rank] for rank in world]
        store.calls(store.comm(pair, world_ranks=world, parent_id=1), kind, 5)
    (line,) = [
        line for line in render(store.report(), "text").splitlines() if "{0-1} {2-3}" in line
    ]
    assert line.split()[:4] == ["2", "and", "1", "more"]
    assert line.split()[4:7] == ["2", "2", "1"]  # two communicators of 2 ranks on 1 node


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], None),
        ([5], "5"),
        ([0, 2], "0,2"),
        ([0, 1], "0-1"),
        ([3, 2, 1, 0], "0-3"),
        ([0, 8, 16, 24], "0-24:8"),
        ([0, 1, 2, 7, 9, 11, 20], "0-2,7-11:2,20"),
    ],
)
def test_ranks_are_written_as_ranges(ranks: list[int], text: str | None) -> None:
    assert compact_ranges(ranks) == text


@given(st.sets(st.integers(0, 200)))
def test_ranges_name_exactly_the_ranks(ranks: set[int]) -> None:
    named: list[int] = []
    for part in (compact_ranges(ranks) or "").split(",") if ranks else []:
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        named += range(int(first), int(last or first) + 1, int(step or 1))
    assert sorted(named) == sorted(ranks)
    assert len(named) == len(ranks)


def test_histogram_bins_have_closed_low_and_open_high_edges() -> None:
    store = StoreBuilder()
    _, comm = store.group()
    for size, calls in ((0, 1), (15, 2), (16, 4), (4095, 8), (4096, 16), (16 * 1024**2, 32)):
        store.calls(comm, store.collective(size_bytes=size), calls)
    perftools, powers = store.report().histograms
    # <16: 0 and 15; 16..256: 16; 256..4Ki: 4095; 4Ki..64Ki: 4096; none; none; >=16Mi
    assert [row.calls for row in perftools.bins] == [3, 4, 8, 16, 0, 0, 32]
    assert perftools.bins[-1].high_bytes is None
    assert perftools.bins[3].total_bytes == 16 * 4096
    filled = [(row.low_bytes, row.high_bytes, row.calls) for row in powers.bins if row.calls]
    assert filled == [
        (0, 8, 1),
        (8, 16, 2),
        (16, 32, 4),
        (2048, 4096, 8),
        (4096, 8192, 16),
        (16 * 1024**2, 32 * 1024**2, 32),
    ]


@given(st.lists(st.tuples(st.integers(0, 2**50), st.integers(1, 5)), min_size=1, max_size=8))
def test_bins_hold_every_sized_call_once(sized: list[tuple[int, int]]) -> None:
    store = StoreBuilder()
    _, comm = store.group()
    for size, calls in sized:
        store.calls(comm, store.collective(size_bytes=size), calls)
    for histogram in store.report().histograms:
        assert sum(row.calls for row in histogram.bins) == sum(calls for _, calls in sized)
        assert sum(row.total_bytes for row in histogram.bins) == sum(s * n for s, n in sized)
        for low, high in zip(histogram.bins, histogram.bins[1:], strict=False):
            assert low.high_bytes == high.low_bytes


def test_calls_of_unknown_size_are_counted_and_left_out() -> None:
    store = StoreBuilder()
    _, comm = store.group()
    store.calls(comm, store.collective(op="AllToAllv", count=None, size_bytes=None), 7)
    report = store.report()
    assert report.header.calls_without_size == 7
    assert report.histograms == ()
    assert report.classes[0].share_of_bytes is None


def test_transports_count_pairs_once_and_tell_hosts_apart() -> None:
    store = StoreBuilder()
    source = store.source()
    first, second = store.process(source, "n1", 1), store.process(source, "n2", 2)
    store.comm([first, first, second], nnodes=2)
    handle = 1  # rank 0's view of the communicator
    store.link(source, 0, 1, "P2P/IPC", handle_id=handle, channels=4)
    for direction in ("send", "receive"):  # both ends log the pair: 2 channels, not 4
        store.link(source, 0, 2, "NET/IB", net="IB", gdr=1, direction=direction, handle_id=handle)
    net, p2p = store.report().transports
    assert (net.transport, net.gdr, net.pairs, net.channels) == ("NET/IB", True, 1, 2)
    assert (net.intra_node, net.inter_node, net.unknown) == (0, 1, 0)
    assert (p2p.transport, p2p.pairs, p2p.channels, p2p.intra_node) == ("P2P/IPC", 1, 4, 1)


def test_coverage_counts_complete_calls_and_names_the_gaps() -> None:
    coverage = _job().report().coverage
    # 4 all-reduces seen by both ranks, 6 all-gathers by one of two
    assert (coverage.calls_complete, coverage.calls_incomplete) == (4, 6)
    assert [gap.question.split(":")[0] for gap in coverage.gaps] == [
        "share of GPU time in collectives",
        "transports between ranks",
        "settings in the environment",
    ]


def test_diagnostics_are_added_over_sources_worst_first() -> None:
    store = StoreBuilder()
    for path in ("a.log", "b.log"):
        source = store.source(path)
        store.diagnostic("info", "other_line", source_id=source, count=9)
        store.diagnostic("data_loss", "torn_line", source_id=source, line=5, count=2)
    torn, other = store.report().coverage.diagnostics
    assert (torn.code, torn.count, torn.sources, torn.line) == ("torn_line", 4, 2, 5)
    assert (other.code, other.count) == ("other_line", 18)


def test_a_report_is_of_one_run_only() -> None:
    store = _job()
    other = store.insert("_run", label="other")
    store.insert("_diagnostic", run_id=other, severity="error", code="x", message="m", count=1)
    assert store.report().coverage.diagnostics == ()


def test_an_empty_run_says_what_is_missing() -> None:
    report = StoreBuilder().report()
    assert (report.classes, report.shares, report.header.ranks) == ((), (), None)
    text = render(report, "text")
    assert "No calls" in text
    assert "collscope ingest profile PATH" in text
    assert "collscope ingest log PATH" in text


def test_csv_is_the_classes_table() -> None:
    rows = list(csv.DictReader(io.StringIO(render(_job().report(), "csv"))))
    assert [row["op"] for row in rows] == ["AllReduce", "AllGather"]
    assert (rows[0]["in_place"], rows[1]["in_place"], rows[1]["redop"]) == ("1", "", "")


def test_markdown_tables_have_equal_cells_and_no_raw_bar() -> None:
    store = _job()
    store.setting(1, "NCCL_ALGO", "ring|tree\nx")
    blocks = [
        block.splitlines()
        for block in render(store.report(), "md").split("\n\n")
        if block.startswith("|")
    ]
    assert len(blocks) > 5
    for block in blocks:
        assert len({line.replace("\\|", "").count("|") for line in block}) == 1
    assert "ring\\|tree x" in render(store.report(), "md")


@pytest.mark.parametrize("build", [StoreBuilder, _guide, _job])
def test_json_follows_its_schema(schema: dict[str, Any], build: Callable[[], StoreBuilder]) -> None:
    document = json.loads(render(build().report(), "json"))
    jsonschema.validate(document, schema)
    assert document["schema"] == "collscope.report/2"


def _late(rank: int, typical_us: float, caused_ms: float) -> RankRow:
    """A rank of 100 ms, last in 25 of 26 calls, clearly in 10."""
    zeros = dict.fromkeys(RankRow.__struct_fields__, 0)
    late = {"late_of": 26, "late_last": 25, "late_behind": 10, "late_share": 1.0}
    times = {"late_typical_ns": 1e3 * typical_us, "caused_wait_ns": round(1e6 * caused_ms)}
    known = {"rank": rank, "span_ns": 100_000_000, "straggler": caused_ms > 0}
    return RankRow(**{**zeros, **late, **times, **known})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("typical_us", "caused_ms", "severity"),
    # of 300 ms that the three others were traced
    [(25, 3.1, "warning"), (5.9, 3.1, "note"), (25, 2.9, "note")],
)
def test_a_late_rank_is_a_warning_when_the_others_lose_time(
    typical_us: float, caused_ms: float, severity: str
) -> None:
    ranks = tuple(_late(r, typical_us, caused_ms if r == 1 else 0) for r in range(4))
    report = StoreBuilder().report()
    causes = (LateCause(1, "slower", None, 0, 3_000_000, 0, None),)
    said = replace(report.timeline, ranks=ranks, causes=causes)
    report = replace(report, timeline=said)
    (finding,) = find(report)
    assert (finding.code, finding.severity) == ("straggler", severity)
    assert "take longer: 3 ms in total" in finding.detail
    # the same number as the table's `last in`, and the other one named
    assert "Rank 1 arrives last in 25 of 26 calls" in finding.detail
    assert f"typically by {typical_us:.3g} us" in finding.detail
    first = render(report, "text").partition("Findings")[0]
    assert ("Rank 1 arrives last" in first) is (severity == "warning")


@pytest.mark.parametrize(
    ("last", "caused_ms", "told"),
    [
        ((10, 9, 1, 0), 5, "No single rank stands out: ranks 0 and 1 have 95 % of all lateness."),
        ((10, 9, 8, 3), 5, "the rank that arrives last changes from call to call"),
        (
            (2, 51, 1, 1),
            5,
            "One stop: rank 1 arrived 31 ms late to one call, 56 % of all lateness.",
        ),
        ((10, 9), 5, "the rank that arrives last changes from call to call"),
        ((10, 9, 1, 0), 0.1, None),  # under 1 % of the time
    ],
)
def test_no_single_late_rank_is_said_where_it_costs_time(
    last: tuple[int, ...], caused_ms: float, told: str | None
) -> None:
    """`last` is the lateness of each rank in ms; that of 51 ms came with one call of 31."""
    ranks = tuple(
        replace(
            _late(r, 25, caused_ms), late_of=26, straggler=False,
            late_total_ns=n * 1_000_000, late_max_ns=(31 if n > 50 else 1) * 1_000_000,
        )
        for r, n in enumerate(last)
    )  # fmt: skip
    report = StoreBuilder().report()
    said = replace(report.timeline, ranks=ranks)
    text = " ".join(render(replace(report, timeline=said), "text").split())
    assert ("No single rank" in text or "One stop" in text) is (told is not None)
    assert (told or "") in text


def test_calls_without_sizes_are_told_without_a_zero() -> None:
    store = StoreBuilder()
    _, comm = store.group()
    untold = dict.fromkeys(("datatype", "redop", "count", "size_bytes", "in_place", "nranks"))
    store.calls(comm, store.collective(op="Unknown", **untold), 7)
    said = render(store.report(), "text")
    assert "7 calls in 1 class, sizes not known, on 1 communicator" in said
    assert "0 B" not in said
    assert "Largest class:" not in said
    store.calls(comm, store.collective(op="AllGather", **untold), 8)
    assert "Largest class: AllGather, size not known, on unknown ranks" in render(
        store.report(), "text"
    )


def test_unknown_format_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="format 'xml'"):
        render(StoreBuilder().report(), "xml")


def test_text_is_at_most_120_columns_wide() -> None:
    store = _job()
    source = store.source("/a/long/path" * 20)
    store.setting(source, "NCCL_" + "X" * 80, "value " * 30)
    store.fact(source, "warning", "word " * 100)
    store.diagnostic("notice", "something", source_id=source, message="m" * 300)
    store.link(source, 0, 1, "NET/AWS Libfabric", net="AWS Libfabric", gdr=0)
    store.comm([None] * 64)
    wide = [line for line in render(store.report(), "text").splitlines() if len(line) > 120]
    # A word is never broken, so that a path can be copied.
    assert all(len(line.split()) == 1 for line in wide)


@given(st.text(max_size=60), st.sampled_from(FORMATS))
def test_any_text_from_a_log_renders(value: str, fmt: str) -> None:
    store = StoreBuilder()
    source = store.source(value.encode("utf-8", "replace").decode())
    store.setting(source, "NCCL_ALGO", value.encode("utf-8", "replace").decode())
    assert render(store.report(), fmt)


def test_output_that_cannot_hold_every_character(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", narrow)
    write("1 KiB… in", None)
    assert narrow.buffer.getvalue() == b"1 KiB? in\n"  # type: ignore[attr-defined]
    write("1 KiB… in", tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_bytes() == "1 KiB… in".encode()


def test_rows_of_a_query_are_one_line_each_but_in_csv_and_json() -> None:
    rows = [("a\nb|", None, True)]
    assert render_rows("xyz", rows, "text").splitlines()[-1] == "a b|  -  True"
    assert render_rows("xyz", rows, "md").splitlines()[-1] == r"| a b\| | - | True |"
    assert render_rows("xyz", rows, "csv") == 'x,y,z\n"a\nb|",,1\n'


def test_report_is_the_same_every_time() -> None:
    reports: list[Report] = [_job().report() for _ in range(2)]
    assert reports[0] == reports[1]
    assert render(reports[0], "json") == render(reports[1], "json")


def test_processes_and_gpus_of_kernel_trace_lines_are_counted(
    samples: Path, tmp_path: Path
) -> None:
    """`cut -d: -f2 | sort -u` of the sample: seven pids; seven bus ids in its KL and KE lines."""
    db = tmp_path / "a.db"
    collscope("ingest", "log", samples / "rccl" / "guide-coll-klke.log", "--db", db)
    assert "7 processes, 7 GPUs" in collscope("report", "--db", db).out


def test_compute_ms_beside_waits_is_explained_under_extra_work() -> None:
    # 2 ranks: the one that waits has 60 ms of collectives beside compute, the busier one 20 ms
    waits = replace(_late(0, 0, 0), hidden_ns=60_000_000)
    busier = replace(_late(1, 25, 50), hidden_ns=20_000_000)
    report = StoreBuilder().report()

    def text(*ranks: RankRow, extra_work: Sequence[int] = (1,)) -> str:
        found = timeline_section(replace(report.timeline, ranks=ranks), extra_work)
        return " ".join(str(block) for section in found for block in section.blocks)

    line = "while a collective runs, and rank 0 has more of this overlap (hidden ms)."
    assert line in text(waits, busier)
    assert "may not show" not in text(waits, busier, extra_work=())
    assert "may not show" not in text(replace(waits, hidden_ns=20_000_000), busier)


def test_a_wait_is_hidden_by_compute_where_little_of_the_collectives_is_exposed() -> None:
    # of 50 ms waited, at most the exposed 20 ms are exposed; of 30 ms this is not most
    late = _late(1, 25, 50)
    for exposed_ms, hides in ((20, True), (30, False)):
        waits = replace(_late(0, 0, 0), exposed_ns=exposed_ms * 1_000_000)
        words = short_late_sentence(late, (waits, late))
        assert "Rank 0 waits 50 ms for it, of 100 ms traced" in words
        assert ("but compute hides most of this wait" in words) is hides
