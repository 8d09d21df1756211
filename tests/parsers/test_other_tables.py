"""Tables of other programs than nccl-tests: each sample against figures taken from it by hand."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from command import collscope, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ROOT

from collscope.model import Datatype, MeasurementSet, MetricSet, Op
from collscope.parsers import registry
from collscope.parsers.hints import Hints, TableHints

TABLES = ROOT / "samples" / "tables"
OSU = (TABLES / "osu-7.4-host.txt").read_text()
OSU_GPU = (TABLES / "synthetic.osu-gpu.txt").read_text()
P2P = (TABLES / "p2p-microbenchmarks.md").read_text()
WRAPPER = (TABLES / "allreduce-wrapper.md").read_text()
TRANSFERS = (TABLES / "synthetic.transferbench.txt").read_text()
RAS = (ROOT / "samples" / "recorders" / "synthetic.ras.json").read_text()
NVBANDWIDTH = (TABLES / "synthetic.nvbandwidth.json").read_text()


def read(text: str, said: TableHints | None = None) -> MeasurementSet:
    found = registry.read_bytes("table", text.encode(), Hints(table=said or TableHints()))
    assert isinstance(found, MeasurementSet)
    return found


def codes(found: MeasurementSet) -> dict[str, int]:
    return {d.code: d.count for d in found.diagnostics}


# --- OSU Micro-Benchmarks ---------------------------------------------------


def test_every_row_of_osu_is_read_or_passed_over() -> None:
    # grep -c '^[0-9]' says 26: one of a one-sided, two of a non-blocking test.
    assert len(re.findall(r"^\d", OSU, re.MULTILINE)) == 26
    found = read(OSU)
    assert len(found.measurements) == 23
    assert codes(found) == {"other_test": 3}
    assert found.dialect == "osu"  # no other reader sees them again
    assert Counter(m.op for m in found.measurements) == {
        Op.SEND_RECV: 13, Op.ALL_REDUCE: 4, Op.ALL_GATHER: 3, Op.REDUCE_SCATTER: 3,
    }  # fmt: skip
    assert {(m.nranks, m.backend, m.datatype) for m in found.measurements} == {
        (2, "host", Datatype.INT8)
    }


def test_bandwidths_of_osu_are_of_one_direction() -> None:
    by_line = {m.line: m for m in read(OSU).measurements}
    lines = OSU.split("\n")
    one = next(i for i, line in enumerate(lines, 1) if line.startswith("1048576"))
    assert lines[one - 1].split() == ["1048576", "3727.68"]
    assert by_line[one].time_us_median == pytest.approx(1048576 / 3727.68)
    assert by_line[one].busbw_gbps == pytest.approx(3.72768)
    # osu_bibw.c: size / 1e6 * iterations * window * 2, so 4923.81 MB/s are 2461.9 each way.
    both = next(i for i, line in enumerate(lines, 1) if line.split()[1:] == ["4923.81"])
    assert by_line[both].busbw_gbps == pytest.approx(2.461905)


def test_sizes_of_osu_become_those_of_nccl_tests() -> None:
    found = read(OSU).measurements
    # osu_allgather prints what a rank puts in: 1024 B on 2 ranks gather 2048 B; -c says Pass.
    gathered = [m for m in found if m.op is Op.ALL_GATHER]
    assert [(m.size_bytes, m.n_wrong) for m in gathered] == [(2048, 0), (4096, 0), (8192, 0)]
    # osu_reduce_scatter prints what a rank puts in, which is S of nccl-tests.
    assert [m.size_bytes for m in found if m.op is Op.REDUCE_SCATTER] == [1024, 2048, 4096]
    reduced = [m for m in found if m.op is Op.ALL_REDUCE]
    assert next((m.time_us_median, m.iterations) for m in reduced) == (1.53, 50)


def test_osu_without_its_command_asks_for_the_ranks_of_a_gather() -> None:
    bare = re.sub(r"^\$.*\n", "", OSU, flags=re.MULTILINE)
    found = read(bare)
    assert codes(found)["nranks_unknown"] == 3
    assert Op.ALL_GATHER not in {m.op for m in found.measurements}
    told = read(bare, TableHints(nranks=4)).measurements
    assert [m.size_bytes for m in told if m.op is Op.ALL_GATHER] == [4096, 8192, 16384]
    assert {m.nranks for m in told if m.op is Op.SEND_RECV} == {2}


def test_osu_on_gpus() -> None:
    bw, _, latency, exchange, reduced = read(OSU_GPU).measurements
    assert (bw.backend, bw.label, bw.busbw_gbps) == ("hip", "OSU Bandwidth", pytest.approx(21.0005))
    assert (latency.backend, latency.label) == (None, "OSU Latency, device to host")
    # 64 KiB to each of 8 ranks.
    assert (exchange.op, exchange.size_bytes, exchange.nranks) == (Op.ALL_TO_ALL, 524288, 8)
    assert (exchange.time_us_median, exchange.iterations) == (210.0, 100)
    assert (reduced.op, reduced.library, reduced.backend) == (Op.ALL_REDUCE, "nccl", "cuda")


def test_a_failed_validation_is_wrong() -> None:
    text = OSU.replace("Pass", "Fail", 1)
    assert Counter(m.status for m in read(text).measurements) == {"ok": 22, "wrong": 1}


# --- peer-to-peer microbenchmarks -------------------------------------------


@pytest.fixture(scope="module")
def p2p() -> MeasurementSet:
    return read(P2P)


def test_the_p2p_document_is_read_whole(p2p: MeasurementSet) -> None:
    # Queue pairs 4 x 2, sizes 11 x 2 and 7 x 2; beside computation 4 x 2, 11 x 2 and 4 sentences;
    # copies 13 x 3, handles 12 x 2.
    assert len(p2p.measurements) == 8 + 22 + 14
    assert len(p2p.interference) == 8 + 22 + 4
    assert Counter(c.kind for c in p2p.copies) == {
        "ipc_async": 13, "ipc_sync": 13, "ipc_sync_open": 13, "ipc_open": 12, "ipc_close": 12,
    }  # fmt: skip
    assert codes(p2p) == {}


def test_bandwidth_over_queue_pairs(p2p: MeasurementSet) -> None:
    # 3	 375.74	 336.00 Gbit/s, messages of 1 GB (1 GiB)
    (found,) = (m for m in p2p.measurements if m.label == "Pickle, 3 queue pairs")
    assert (found.op, found.size_bytes, found.nranks) == (Op.SEND_RECV, 1 << 30, 2)
    assert found.busbw_gbps == pytest.approx(375.74 / 8)


def test_relative_compute(p2p: MeasurementSet) -> None:
    # 16 GB	 0.996	 0.834
    (slow,) = (i for i in p2p.interference if i.size_bytes == 16 << 30 and i.label == "NCCL")
    assert (slow.op, slow.relative_compute) == (Op.SEND_RECV, 0.834)
    pairs = [i for i in p2p.interference if i.label == "NCCL, 4 queue pairs"]
    assert [(i.size_bytes, i.relative_compute) for i in pairs] == [(None, 0.984)]
    gathers = [i for i in p2p.interference if i.op is Op.ALL_GATHER]
    assert [(i.label, i.relative_compute, i.nranks) for i in gathers] == [
        ("Nvlink NCCL allgather", 0.858, 8),
        ("Nvlink Pickle allgather", 0.858, 8),
        ("RDMA NCCL allgather", 0.99, 8),
        ("RDMA Pickle allgather", 0.99, 8),
    ]


def test_copies_and_handles(p2p: MeasurementSet) -> None:
    by = {(c.kind, c.size_bytes): c for c in p2p.copies}
    # 16.00 MB, 0.0534982, 313.603, …
    copy = by["ipc_async", 16 << 20]
    assert copy.time_us_median == pytest.approx(53.4982)
    assert copy.bandwidth_gbps == pytest.approx(313.603, rel=1e-5)
    # Buffe size: 1.00 GB / Average cudaIpcCloseMemHandle time: 776.98 us
    assert by["ipc_close", 1 << 30].time_us_median == 776.98
    assert by["ipc_close", 1 << 30].bandwidth_gbps is None


def test_a_printed_bandwidth_that_is_not_size_over_time_is_told() -> None:
    assert codes(read(P2P.replace("313.603", "413.603"))) == {"bandwidth_mismatch": 1}


def test_copies_of_an_unknown_kind_are_no_copies() -> None:
    text = re.sub(r"(?i)ipc", "", P2P[P2P.index("## 附纯") : P2P.index("## cudaIpc")])
    found = registry.read_bytes("table", text.encode(), Hints())
    assert isinstance(found, MeasurementSet)
    assert not found.rows
    assert codes(found) == {"kind_unknown": 3}


def test_auto_stores_every_part(tmp_path: Path) -> None:
    db = tmp_path / "store.db"
    told = collscope("ingest", "auto", TABLES / "p2p-microbenchmarks.md", "--db", db)
    assert "44 measurements, 63 copies, 34 interference rows" in told.out
    assert rows(db, "select count(*) from interference where relative_compute < 0.9") == [(4,)]


# --- all-reduce wrapper -----------------------------------------------------


def test_times_of_the_wrapper() -> None:
    found = read(WRAPPER).measurements
    assert len(found) == 10
    # nDev per thread: 1 - number of float:   1000000 - Time: 0.051799 sec, 2 nodes, 2 gpu each
    last = found[-1]
    assert (last.op, last.count, last.size_bytes) == (Op.ALL_REDUCE, 1_000_000, 4_000_000)
    assert (last.nranks, last.nnodes, last.iterations) == (4, 2, 10)
    assert (last.time_us_median, last.label) == (pytest.approx(51799), "nDev per thread: 1")


def test_passes_by_fusion_threshold_are_figures() -> None:
    found = registry.read_bytes("metric", WRAPPER.encode(), Hints())
    assert isinstance(found, MetricSet)
    assert [(m.name, m.value, m.unit, m.label) for m in found.metrics] == [
        ("fusion threshold 1 KB, 100 batches: time", 2.310482182, "s", "gpu per thread: 2"),
        ("fusion threshold 10 KB, 66 batches: time", 2.282010829, "s", "gpu per thread: 2"),
        ("fusion threshold 10 KB, 66 batches: time", 2.364754549, "s", "gpu per thread: 1"),
    ]


def test_a_torn_row_of_a_wrapper_is_counted() -> None:
    whole, torn = read(WRAPPER), read(WRAPPER[: WRAPPER.rindex("sec")])
    assert len(torn.measurements) == len(whole.measurements) - 1
    assert [d.code for d in torn.diagnostics] == [*(d.code for d in whole.diagnostics), "torn_row"]


def test_a_wrapper_without_a_heading_asks_for_the_operation() -> None:
    text = re.sub(r"^#+ testing output.*$", "", WRAPPER, flags=re.MULTILINE)
    found = registry.read_bytes("table", text.encode(), Hints())
    assert isinstance(found, MeasurementSet)
    assert not found.rows
    assert codes(found) == {"op_unknown": 10}


# --- TransferBench ----------------------------------------------------------


def test_transfers_and_the_p2p_matrix() -> None:
    found = read(TRANSFERS)
    # grep -c '^ *Transfer' says 5; the matrices have 9 and 2 numbers, sums "<->" apart.
    assert len(re.findall(r"^[ │]*Transfer \d", TRANSFERS, re.MULTILINE)) == 5
    assert Counter(c.kind for c in found.copies) == {
        "transfer_gpu": 3 + 6 + 2, "transfer_dma": 2, "transfer_cpu": 3,
    }  # fmt: skip
    assert codes(found) == {}
    by = {(c.label, c.line): c for c in found.copies}
    first = by["test 1: G0 -> G000:004 -> G1", 6]
    assert (first.src_device, first.dst_device, first.size_bytes) == (0, 1, 256 << 20)
    # 45.309 GB/s has more digits than 5.925 ms.
    assert first.time_us_median == pytest.approx(268435456 / 45.309e3)
    assert first.bandwidth_gbps == pytest.approx(45.309)
    from_host = by["test 2: C0 -> D000:001 -> G0", 12]
    assert (from_host.src_device, from_host.dst_device) == (None, 0)


def test_both_directions_of_the_matrix() -> None:
    both = [c for c in read(TRANSFERS).copies if c.direction == "both"]
    assert [(c.src_device, c.dst_device, c.bandwidth_gbps) for c in both] == [
        (0, 1, pytest.approx(46.01)),
        (1, 0, pytest.approx(45.51)),
    ]
    assert {c.size_bytes for c in both} == {67108864}


def test_transferbench_csv_without_its_sums() -> None:
    found = read((TABLES / "synthetic.transferbench.csv").read_text())
    assert [(c.kind, c.src_device, c.dst_device, c.bandwidth_gbps) for c in found.copies] == [
        ("transfer_gpu", 0, 1, pytest.approx(45.309)),
        ("transfer_dma", 1, None, pytest.approx(26.844)),
    ]
    # As 1.51 and later print the same with commas.
    later = TRANSFERS.replace("|", ",")
    assert [c.kind for c in read(later).copies] == [c.kind for c in read(TRANSFERS).copies]


def test_a_remote_read_is_carried_out_by_the_destination() -> None:
    remote = TRANSFERS.replace("[Local read / Remote write]", "[Remote read / Local write]")
    found = {c.label: c.kind for c in read(remote).copies if c.direction == "one"}
    assert found["CPU 00 to GPU 01"] == "transfer_gpu"
    assert found["GPU 01 to CPU 00"] == "transfer_cpu"


# --- nvbandwidth ------------------------------------------------------------


def figures(text: str) -> MetricSet:
    found = registry.read_bytes("metric", text.encode(), Hints())
    assert isinstance(found, MetricSet)
    return found


def test_every_value_of_nvbandwidth_is_a_figure_of_its_pair() -> None:
    found = figures(NVBANDWIDTH)
    # Strings of the matrices that are numbers: 2 + 2 + 6 + 2.
    assert len(re.findall(r'^\t+"[\d.]+",?$', NVBANDWIDTH, re.MULTILINE)) == 12
    by = {m.name: m for m in found.metrics}
    assert len(by) == 12
    read_ = by["device_to_device_memcpy_read_ce: GPU 0 <- GPU 1"]
    assert (read_.value, read_.unit, read_.higher_is_better) == (396.5, "GB/s", True)
    latency = by["host_device_latency_sm: CPU 0 <-> GPU 1"]
    assert (latency.value, latency.unit, latency.higher_is_better) == (651.02, "ns", False)
    # Three matrices stand behind each other (json_output.cpp appends): two parts and their sum.
    name = "device_to_device_bidirectional_memcpy_read_ce"
    parts = [by[f"{name} {part}: GPU 0 <-> GPU 1"].value for part in ("1", "2", "total")]
    assert parts == [380.1, 379.9, 760.0]
    assert [(d.code, d.count) for d in found.diagnostics] == [("test_not_passed", 1)]


def test_the_text_of_nvbandwidth_tells_the_same_as_its_json() -> None:
    text = (TABLES / "synthetic.nvbandwidth.txt").read_text()
    found = figures("a log line\n" + text + "another\n")
    assert found.dialect == "nvbandwidth_text"
    printed = {m.name: (m.value, m.unit) for m in found.metrics}
    # The text has two decimals.
    exact = {m.name: (round(m.value, 2), m.unit) for m in figures(NVBANDWIDTH).metrics}
    assert printed == exact
    cut = text[: text.index("395.90") + 3]
    assert len(figures(cut).metrics) == 3
    assert {d.code for d in figures(cut).diagnostics} == {"cut_row"}


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_a_cut_json_keeps_the_tests_before(share: float) -> None:
    cut = NVBANDWIDTH[: int(len(NVBANDWIDTH) * share)]
    found, whole = figures(cut), figures(NVBANDWIDTH)
    assert found.metrics == whole.metrics[: len(found.metrics)]
    assert "cut_json" in {d.code for d in found.diagnostics}


def test_auto_knows_nvbandwidth(tmp_path: Path) -> None:
    db = tmp_path / "store.db"
    told = collscope("ingest", "auto", TABLES / "synthetic.nvbandwidth.json", "--db", db)
    assert "nvbandwidth_json: 12 figures" in told.out


# --- RAS --------------------------------------------------------------------


def test_ras_counts_and_what_is_apart() -> None:
    found = figures(RAS)
    assert found.dialect == "ras_json"
    assert {(m.name, m.value, m.unit) for m in found.metrics} == {
        ("ranks that answered", 3, "ranks"),
        ("AllGather launched, least of 3 ranks", 12, "calls"),
        ("AllGather launched, most of 3 ranks", 12, "calls"),
        ("AllReduce launched, least of 3 ranks", 6649, "calls"),
        ("AllReduce launched, most of 3 ranks", 6650, "calls"),
    }
    assert {m.label for m in found.metrics} == {"0xae94423cfbb2ef4a 2026-06-11 13:06:53"}
    told = {d.code: d.excerpt for d in found.diagnostics}
    assert told["ras_missing_ranks"] == "0xae94423cfbb2ef4a: rank 3"
    assert told["ras_errors"] == "0xae94423cfbb2ef4a: rank 2"
    behind = "0xae94423cfbb2ef4a: AllReduce 6650, but rank 1 at least 6649"
    assert told["ras_ranks_behind"] == behind
    assert "PEER_DEAD" in (told["ras_event"] or "")


def test_a_cut_snapshot_of_ras_says_so() -> None:
    found = registry.read_bytes("metric", RAS[:900].encode(), Hints())
    assert isinstance(found, MetricSet)
    assert {d.code for d in found.diagnostics} == {"cut_json"}


def test_auto_reads_ras_and_not_as_a_recording(tmp_path: Path) -> None:
    path = ROOT / "samples" / "recorders" / "synthetic.ras.json"
    told = collscope("ingest", "auto", path, "--db", tmp_path / "store.db")
    assert "ras_json: 5 figures" in told.out
    assert "ras_ranks_behind" in told.out


def test_an_empty_log_names_the_log_plugin(tmp_path: Path) -> None:
    (tmp_path / "nccl.log").touch()
    told = collscope("ingest", "log", tmp_path / "nccl.log", "--db", tmp_path / "store.db")
    assert told.code == 3
    assert "the file is empty. With NCCL_LOG_PLUGIN set" in told.err


# --- all of them ------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([OSU, OSU_GPU, P2P, WRAPPER, TRANSFERS]), st.data())
def test_a_cut_loses_no_earlier_row(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    part = text[:cut]
    whole_lines = part.count("\n")
    found = registry.read_bytes("table", part.encode(), Hints())
    kept = {r.line for r in found.rows} if isinstance(found, MeasurementSet) else set()
    expected = {r.line for r in read(text).rows if r.line is not None and r.line <= whole_lines}
    assert expected <= kept


def test_a_size_that_no_store_holds_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "osu.txt"
    path.write_text(OSU.replace("\n1024                    1.55", f"\n{2**63 - 2}  1.55"))
    told = collscope("ingest", "table", path, "--db", tmp_path / "store.db")
    assert "osu: 22 measurements" in told.out
    assert "cut_row" in told.out


def test_a_bare_size_has_the_unit_of_its_column() -> None:
    text = "RDMA P2P, relative compute performance\n\nSize (MB)\tNCCL\n4\t0.9\n16\t0.8\n"
    assert [i.size_bytes for i in read(text).interference] == [4 << 20, 16 << 20]
