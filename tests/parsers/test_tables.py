"""Benchmark tables: figures of real documents, every generation's columns, and damage."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import collscope
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ROOT

from collscope.errors import UsageError
from collscope.model import Datatype, Measurement, MeasurementSet, Op, Severity
from collscope.parsers import registry
from collscope.parsers.hints import Hints, TableHints, table_hints
from collscope.parsers.tables._rows import clean

SINGLE = "RCCL Test Data - Single Node"
TCP = "RCCL Test Data - 2 Nodes With TCP/IP for Inter Node Communications"
PLUGIN = "RCCL Test Data - 2 Nodes with the Plugin"
GDR = "RCCL Test Data - 2 Nodes with the Plugin + NCCL_NET_GDR_LEVEL=3"
GIB4 = 4 << 30


def parse(text: str, said: TableHints) -> MeasurementSet | None:
    found = registry.read_bytes("table", text.encode(errors="replace"), Hints(table=said))
    assert found is None or isinstance(found, MeasurementSet)
    return found


def read(text: str, said: TableHints | None = None) -> MeasurementSet:
    found = parse(text, said or TableHints())
    assert found is not None
    return found


def codes(found: MeasurementSet) -> dict[str, int]:
    return {d.code: d.count for d in found.diagnostics}


@pytest.fixture(scope="module")
def frontier(samples: Path) -> MeasurementSet:
    return read((samples / "tables/frontier-allreduce.txt").read_text())


def of(found: MeasurementSet, label: str, in_place: bool | None = True) -> dict[int, Measurement]:
    return {
        m.size_bytes: m
        for m in found.measurements
        if m.label == label and m.in_place is in_place and m.size_bytes is not None
    }


def half_digit(text: str) -> float:
    """Half of the last digit printed."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


def printed_cells(text: str) -> list[tuple[int, int, list[str]]]:
    """(nranks, size, [time, algbw, busbw]) of every cell, by splitting lines at blanks."""
    cells, nranks = [], 0
    for line in text.splitlines():
        if "srun -n" in line:
            nranks = int(line.split("srun -n")[1].split()[0])
        words = line.split()
        if len(words) == 13 and words[2] == "float":
            cells += [(nranks, int(words[0]), words[k : k + 3]) for k in (5, 9)]
    return cells


def test_all_136_cells_agree_with_time_and_size(frontier: MeasurementSet, samples: Path) -> None:
    cells = printed_cells((samples / "tables/frontier-allreduce.txt").read_text())
    assert len(cells) == 136
    measured = [m for m in frontier.measurements if m.in_place is not None]
    assert len(measured) == 136
    for (nranks, size, (time, algbw, busbw)), m in zip(cells, measured, strict=True):
        assert (m.nranks, m.size_bytes, m.time_us_median) == (nranks, size, float(time))
        assert m.reported_busbw_gbps == float(busbw)
        assert m.algbw_gbps is not None
        assert m.busbw_gbps is not None
        # What half a digit of the time is worth, and half a digit of the bandwidth.
        relative = half_digit(time) / float(time)
        assert abs(m.algbw_gbps - float(algbw)) <= m.algbw_gbps * relative + 0.00501
        assert abs(m.busbw_gbps - float(busbw)) <= m.busbw_gbps * relative + 0.00501
        assert m.busbw_gbps == pytest.approx(size / float(time) / 1e3 * 2 * (nranks - 1) / nranks)
    assert "busbw_mismatch" not in codes(frontier)


def test_the_plugin_story(frontier: MeasurementSet) -> None:
    story = [of(frontier, label)[GIB4] for label in (TCP, PLUGIN, GDR)]
    assert [m.reported_busbw_gbps for m in story] == [8.03, 56.85, 109.01]
    assert {(m.op, m.nranks, m.nnodes, m.count) for m in story} == {(Op.ALL_REDUCE, 16, 2, 1 << 30)}
    single = of(frontier, SINGLE)[GIB4]
    assert (single.nranks, single.nnodes, single.redop, single.root) == (8, 1, "Sum", None)
    assert (single.datatype, single.n_wrong, single.status) == (Datatype.FLOAT32, 0, "ok")


def test_out_of_place_outlier_at_32_mib_is_there(frontier: MeasurementSet) -> None:
    out, into = (of(frontier, GDR, form)[32 << 20].time_us_median for form in (False, True))
    assert (out, into) == (1810.3, 886.4)


@pytest.mark.parametrize(
    ("column", "table"), [("No Plugin", TCP), ("With Plugin", PLUGIN), ("With Plugin+GDR=3", GDR)]
)
def test_summaries_equal_the_in_place_bandwidths(
    frontier: MeasurementSet, column: str, table: str
) -> None:
    summary, full = of(frontier, column, None), of(frontier, table)
    assert len(summary) == 17
    for size, m in summary.items():
        assert m.busbw_gbps == pytest.approx(full[size].reported_busbw_gbps, abs=1e-9)
        assert m.time_us_median == pytest.approx(full[size].time_us_median, rel=0.006)


def test_algorithms_on_64_nodes(frontier: MeasurementSet) -> None:
    tree, ring = of(frontier, "ALGO=Tree", None), of(frontier, "ALGO=Ring", None)
    assert (tree[2 << 20].nranks, tree[2 << 20].nnodes) == (512, 64)
    assert tree[2 << 20].busbw_gbps == pytest.approx(8.6)
    assert len(ring) == 14  # the first three are printed as 0
    assert codes(frontier)["below_precision"] == 3


def test_the_whole_document_reads_like_its_excerpt(
    frontier: MeasurementSet, recordings: Path
) -> None:
    document = recordings.parents[1] / "background/frontier-rccl-plugin.txt"
    if not document.is_file():
        pytest.skip("no background document")
    found = read(document.read_text())
    assert [(m.label, m.size_bytes, m.busbw_gbps) for m in found.measurements] == [
        (m.label, m.size_bytes, m.busbw_gbps) for m in frontier.measurements
    ]
    assert codes(found)["repeated_table"] == 1


def test_msccl_latencies(samples: Path) -> None:
    text = (samples / "tables/msccl-allgather.md").read_text()
    found = read(text, TableHints(nranks=8))
    nccl, msccl = of(found, "NCCL", None), of(found, "MSCCL", None)
    assert (len(nccl), len(msccl)) == (21, 21)
    assert (nccl[1024].time_us_median, msccl[1024].time_us_median) == (9.54, 5.65)
    assert {m.op for m in found.measurements} == {Op.ALL_GATHER}
    assert {m.datatype for m in found.measurements} == {Datatype.FLOAT16}
    assert nccl[1 << 30].busbw_gbps == pytest.approx(352.7, abs=0.05)
    assert nccl[1 << 30].count == (1 << 30) // 8 // 2
    (mismatch,) = found.diagnostics  # 9.78 / 5.47 = 1.79, printed 1.81x
    assert (mismatch.code, mismatch.excerpt) == ("speedup_mismatch", "1.81x")


def test_tables_without_unit_or_operation_are_left_out() -> None:
    relative = "P2P relative\nSize\t Pickle\t NCCL\n4 KB\t 1.004\t 0.995\n"
    found = parse(relative, TableHints())
    assert found is None or not found.measurements
    gbps = "RDMA P2P (Gbps)\nSize\t A (Gbps)\t B (Gbps)\n1 GB\t 383.70\t 372.59\n"
    a, b = read(gbps).measurements
    assert (a.op, a.label, b.label) == (Op.SEND_RECV, "A", "B")
    assert a.busbw_gbps == pytest.approx(383.70 / 8)


def test_a_long_blank_line_is_read_in_one_pass() -> None:
    assert parse(" " * 60_000 + "x\n", TableHints()) is None


@pytest.mark.parametrize(
    ("title", "first", "second"),
    [("Size (MB)", "1", "2"), ("Size", "1 MiB", "2M"), ("Size (bytes)", "1048576", "2097152")],
)
def test_a_size_has_its_own_unit_or_that_of_its_column(title: str, first: str, second: str) -> None:
    found = read(f"AllGather time (us)\n{title},A\n{first},20\n{second},40\n")
    assert [m.size_bytes for m in found.measurements] == [1 << 20, 2 << 20]
    elements = read(f"AllGather time (us)\nSize (floats),A\n{1 << 20},20\n")
    assert (elements.measurements, codes(elements)) == ((), {"bad_size": 1})


def test_a_row_that_lacks_a_number_does_not_end_the_table() -> None:
    text = "AllReduce time (us)\nSize\tA\tB\n1 KB\t10\tN/A\n2 KB\t20\n4 KB\t1,200\t3\n8 KB\t30\t-\n"
    found = read(text + "\f16 KB\t40\t41\n")  # a page ends in the middle
    times = [(m.label, m.time_us_median, m.line) for m in found.measurements]
    assert times == [("A", 10, 3), ("A", 30, 6), ("A", 40, 7), ("B", 41, 7)]
    assert codes(found) == {"bad_number": 2, "cut_row": 2}
    assert found.lines == 7


HEADER = "#       size         count    type {} time algbw busbw {} time algbw busbw {}\n"
TIMES = " 100.0 10.49 {0:.2f} {1} 101.0 10.38 {2:.2f} {1}\n"


def table(columns: str, wrong: str, row: str, factor: float, value: str = "0") -> str:
    times = TIMES.format(10.48576 * factor, value, 10.38194 * factor)
    return HEADER.format(columns, wrong, wrong) + row + times


@pytest.mark.parametrize(
    ("program", "text", "op", "nranks"),
    [
        ("reduce", table("redop root", "#wrong", "1048576 262144 float sum 3", 1), Op.REDUCE, None),
        ("broadcast", table("root", "error", "1048576 262144 half 2", 1), Op.BROADCAST, None),
        ("all_gather", table("", "error", "1048576 65536 float", 0.75), Op.ALL_GATHER, 4),
        ("alltoall", table("redop", "error", "1048576 65536 float", 0.75), Op.ALL_TO_ALL, 4),
        (
            "reduce_scatter",
            table("redop root", "#wrong", "1048576 65536 float sum -1", 0.75),
            Op.REDUCE_SCATTER,
            4,
        ),
        ("all_reduce", table("redop", "error", "1048576 262144 float sum", 1.75), Op.ALL_REDUCE, 8),
    ],
)
def test_columns_of_every_generation(program: str, text: str, op: Op, nranks: int | None) -> None:
    found = read(f"./build/{program}_perf -b 1M\n{text}")
    m = found.measurements[0]
    assert (m.op, m.nranks, m.time_us_median) == (op, nranks, 100.0)
    assert len(found.measurements) == (1 if op is Op.ALL_TO_ALL else 2)
    assert m.root == {"reduce": 3, "broadcast": 2}.get(program)
    expected = {"broadcast": Datatype.FLOAT16}.get(program, Datatype.FLOAT32)
    assert m.datatype is expected


def test_algorithm_protocol_and_channels_behind_the_rows(samples: Path) -> None:
    found = read((samples / "tables/synthetic.rccl-tests-a1.txt").read_text())
    assert [(m.op, m.nranks, m.size_bytes, m.time_us_median) for m in found.measurements] == [
        (Op.ALL_REDUCE, 2, 1 << 20, 31.0), (Op.ALL_REDUCE, 2, 1 << 20, 31.5),
        (Op.ALL_REDUCE, 2, 2 << 20, 52.0), (Op.ALL_REDUCE, 2, 2 << 20, 52.1),
        (Op.ALL_REDUCE, 2, 4 << 20, 99.0), (Op.ALL_REDUCE, 2, 4 << 20, 99.1),
    ]  # fmt: skip
    ring, tree = "RING SIMPLE, 28 channels", "NVLS_TREE LL128, 8 channels"
    wrong = "the program found wrong results"
    assert [m.message for m in found.measurements] == [ring, ring, tree, tree, None, wrong]
    assert [m.n_wrong for m in found.measurements] == [0, 0, 0, None, 0, 3]
    assert not found.diagnostics


def test_one_column_of_results_with_the_device_clock_and_the_choice() -> None:
    # rccl-tests -O 0 -A 1 with the times of HIP events
    text = (
        "# Collective test starting: all_gather_perf\n"
        "# size count type redop root time hipevt algbw busbw #wrong algo proto nchannels\n"
        " 1048576 65536 float none -1 100.0 98.00 10.49 7.86 0 Direct SIMPLE 56\n"
    )
    (one,) = read(text).measurements
    assert (one.op, one.nranks, one.time_us_median) == (Op.ALL_GATHER, 4, 100.0)
    assert (one.reported_busbw_gbps, one.message) == (7.86, "Direct SIMPLE, 56 channels")


@pytest.mark.parametrize("suffix", ["_mpi", "_cuda12.mpich"])
def test_programs_with_a_suffix(samples: Path, suffix: str) -> None:
    text = (samples / "tables/synthetic.nccl-tests.txt").read_text().partition("\n")[2]
    sweep = [text.replace("alltoall_perf", op + "_perf" + suffix.replace(".", "_"))
             for op in ("all_gather", "reduce_scatter")]  # fmt: skip
    found = read("".join(sweep))
    assert [m.op for m in found.measurements] == [Op.ALL_GATHER] * 6 + [Op.REDUCE_SCATTER] * 6


def test_a_program_that_is_not_known_gives_its_rows_to_no_operation(samples: Path) -> None:
    text = (samples / "tables/synthetic.nccl-tests.txt").read_text().partition("\n")[2]
    other = text.replace("alltoall_perf", "all_reduce_bias_perf").replace("  none", "   sum")
    found = read(text.replace("alltoall", "all_gather") + other, TableHints(name="all_gather.txt"))
    assert {m.op for m in found.measurements} == {Op.ALL_GATHER}
    assert len(found.measurements) == 6
    assert codes(found)["op_unknown"] == 1
    named = read(other, TableHints(op=Op.ALL_REDUCE))
    assert len(named.measurements) == 6


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_columns_name_no_operation(factor: float) -> None:
    # all_reduce_perf's, sendrecv_perf's, all_reduce_bias_perf's of RCCL, reduce_scatter's of NCCL 1
    found = read(table("redop root", "#wrong", "1048576 262144 float sum -1", factor))
    assert not found.measurements
    assert "--op" in found.diagnostics[0].message


def test_names_of_two_operations_name_none() -> None:
    text = table("", "#wrong", "1048576 65536 float", 0.75)
    assert not read(text, TableHints(name="allgather_reduce_scatter.txt")).measurements
    summary = "Message Size\tBandwidth (GB/s)\n1M\t10.0\n2M\t12.0\n4M\t13.0\n"
    summary = "We ran it on the new machines.\n\n" * 6 + summary
    two = "all_gather_perf -b 1M\nreduce_scatter_perf -b 1M\n\n" + summary
    assert not read(two, TableHints(nranks=8)).measurements
    one = "all_gather_perf -b 1M\n\n" + summary
    assert {m.op for m in read(one, TableHints(nranks=8)).measurements} == {Op.ALL_GATHER}


# test/single/all_reduce_test.cu of NCCL 1.3.4: "%12i  %12i  %6s  %6s" and twice
# "  %7.3f  %5.2f  %5.2f  %7.0le" of elapsedSec * 1.0E3, algbw, busbw, maxDelta.
NCCL_1 = (
    "# Using devices\n"
    "#   Rank  0 uses device  0 [0x04] Tesla K80\n"
    "#   Rank  1 uses device  1 [0x05] Tesla K80\n\n"
    "#      bytes             N    type      op     time  algbw  busbw      res"
    "     time  algbw  busbw      res\n"
    "     1048576       262144   float     sum    0.100  10.49  10.49    2e-316"
    "    0.101  10.38  10.38    0e+00\n"
)


def test_times_of_nccl_1_are_milliseconds() -> None:
    out, into = read(NCCL_1, TableHints(name="all_reduce_test.txt")).measurements
    assert (out.op, out.in_place, into.in_place) == (Op.ALL_REDUCE, False, True)
    # 1 MiB in 0.1 ms are the printed 10.49 GB/s.
    assert (out.time_us_median, out.nranks) == (100.0, 2)
    assert out.algbw_gbps == pytest.approx(10.48576)
    assert "busbw_mismatch" not in codes(read(NCCL_1, TableHints(op=Op.ALL_REDUCE)))


def test_sizes_of_nccl_1_are_one_ranks_part() -> None:
    # reduce_scatter_test.cu: busbw = algbw * (n - 1), algbw = N * sizeof / time.
    said = TableHints(op=Op.REDUCE_SCATTER)
    found = read(NCCL_1, said)
    assert [m.size_bytes for m in found.measurements] == [2 << 20] * 2
    assert [m.count for m in found.measurements] == [262144] * 2
    assert codes(found) == {}
    unknown = read(re.sub("#   Rank.*\n", "", NCCL_1), said)
    assert not unknown.measurements
    assert codes(unknown) == {"nranks_unknown": 1}
    # nccl-tests of 2017 has the same columns, and the whole's size beside one rank's elements.
    whole = NCCL_1.replace("262144", "131072")
    assert [m.size_bytes for m in read(whole, said).measurements] == [1 << 20] * 2


@pytest.mark.parametrize(
    ("value", "n_wrong", "status"),
    [("0", 0, "ok"), ("N/A", None, "ok"), ("17", 17, "wrong"), ("2e+06", 2000000, "wrong")],
)
def test_wrong_elements(value: str, n_wrong: int | None, status: str) -> None:
    text = table("redop root", "#wrong", "1048576 262144 float sum -1", 1.75, value)
    found = read(text, TableHints(op=Op.ALL_REDUCE))
    assert {(m.n_wrong, m.status) for m in found.measurements} == {(n_wrong, status)}


def test_error_column_is_a_deviation_and_an_asterisk_marks_failure() -> None:
    said = TableHints(op=Op.ALL_REDUCE)
    found = read(table("redop", "error", "1048576 262144 float sum", 1.75, "5e-07*"), said)
    assert {(m.n_wrong, m.status) for m in found.measurements} == {(None, "wrong")}
    found = read(table("redop", "error", "1048576 262144 float sum", 1.75, "5e-07"), said)
    assert {(m.n_wrong, m.status) for m in found.measurements} == {(None, "ok")}


@pytest.mark.parametrize(
    "tag",
    ["0: ", "44: ", "[0] ", "[1,28]<stdout>:", "> ", "104.171.201.171: ", "    ", "\x1b[0m",
     "(RayTrainWorker pid=615, ip=10.72.7.6) ", "[2026-03-12 13:57:49] ", "2026-03-12 13:57:49 "],
)  # fmt: skip
def test_launcher_tags(tag: str) -> None:
    plain = table("redop root", "#wrong", "1048576 262144 float sum -1", 1.75)
    tagged = "".join(tag + line for line in plain.splitlines(keepends=True))
    assert read(tagged).measurements == read(plain).measurements


INFO = "node0:37300:37310 [0] NCCL INFO "


def test_preamble_options_and_a_row_broken_by_log_lines(samples: Path) -> None:
    text = (samples / "tables/synthetic.nccl-tests.txt").read_text()
    broken = text.replace("-1    32.77", f"-1{INFO}Channel 00\n{INFO}Connected\n    32.77")
    assert broken != text
    found = read(broken)
    assert [m.size_bytes for m in found.measurements] == [1024, 65536, 4194304]
    m = found.measurements[1]
    assert (m.op, m.nranks, m.nnodes, m.iterations) == (Op.ALL_TO_ALL, 8, 2, 20)
    assert (m.time_us_median, m.library) == (32.77, "nccl 2.28.7")
    assert m.device == "NVIDIA H100 80GB HBM3"
    assert m.method is not None
    assert "2 graph launches" in m.method
    assert "wait and barrier after each inner iteration" in m.method
    assert codes(found) == {"no_in_place": 3}


def test_corpus_tables(corpus: Path) -> None:
    folder = corpus / "perf-tables"
    text = (folder / "aws-batch-tagged-output.md").read_text()
    assert codes(read(text)) == {"op_unknown": 1}  # it names no operation
    tagged = read(text, TableHints(op=Op.ALL_REDUCE))
    assert len(tagged.measurements) == 64
    assert {m.nranks for m in tagged.measurements} == {8}  # from the printed bandwidths
    name = "superbench-nccl_alltoall.log"
    alltoall = read((folder / name).read_text(), TableHints(name=name))
    assert {(m.op, m.nranks, m.redop) for m in alltoall.measurements} == {(Op.ALL_TO_ALL, 8, None)}
    assert len(alltoall.measurements) == 29  # of 34 rows, 5 have size 0
    assert "busbw_mismatch" not in codes(alltoall) | codes(tagged)


def sweep(sizes: list[int]) -> list[str]:
    return [
        f"{s} {s // 4} float sum -1 {s / 1e4:.2f} 10.00 17.50 0 {s / 1e4:.2f} 10.00 17.50 0\n"
        for s in sizes
    ]


SIZES = [1 << k for k in range(20, 27)]
TRAILER = "# Avg bus bandwidth    : 17.5\n#\n"


def test_two_tables_one_after_the_other() -> None:
    one = HEADER.format("redop root", "#wrong", "#wrong") + "".join(sweep(SIZES)) + TRAILER
    found = read("## First\n" + one + "## Second\n" + one, TableHints(op=Op.ALL_REDUCE))
    assert "interleaved_tables" not in codes(found)
    assert [m.label for m in found.measurements] == ["First"] * 14 + ["Second"] * 14


def test_two_interleaved_tables_are_diagnosed() -> None:
    header = HEADER.format("redop root", "#wrong", "#wrong")
    rows = sweep(SIZES)
    lockstep = header * 2 + "".join(a + b for a, b in zip(rows, rows, strict=True))
    late = header + "".join([*rows[:3], rows[1], rows[3], rows[2], *rows[4:]])
    trailers = header + "".join(rows) + TRAILER * 2
    for text in (lockstep, late, trailers):
        found = read(text, TableHints(op=Op.ALL_REDUCE))
        (mixed,) = [d for d in found.diagnostics if d.code == "interleaved_tables"]
        assert mixed.severity is Severity.DATA_LOSS
        assert len(found.measurements) >= 14


def test_run_cycles_are_rounds() -> None:
    text = HEADER.format("redop root", "#wrong", "#wrong") + "".join(sweep(SIZES) * 2)
    found = read(text, TableHints(op=Op.ALL_REDUCE))
    assert "interleaved_tables" not in codes(found)
    assert [m.round for m in found.measurements] == [1] * 14 + [2] * 14


def test_a_bandwidth_of_other_ranks_is_noticed() -> None:
    said = TableHints(op=Op.ALL_REDUCE, nranks=4)
    found = read(table("redop root", "#wrong", "1048576 262144 float sum -1", 1.75), said)
    assert codes(found)["busbw_mismatch"] == 2
    assert found.measurements[0].busbw_gbps == pytest.approx(10.48576 * 1.5)
    assert found.measurements[0].reported_busbw_gbps == pytest.approx(18.35)


def test_operation_that_nothing_tells() -> None:
    found = read(table("", "#wrong", "1048576 65536 float", 0.75))
    assert not found.measurements
    assert "--op" in found.diagnostics[0].message
    assert read(
        table("", "#wrong", "1048576 65536 float", 0.75), TableHints(op=Op.ALL_GATHER)
    ).measurements
    # The trailer may stand alone, as in the end of a log.
    last = table("", "#wrong", "1048576 65536 float", 0.75)
    (one, _) = read(last + "# Collective test concluded: all_gather_perf\n").measurements
    assert (one.op, one.nranks) == (Op.ALL_GATHER, 4)


def test_operations_that_reduce_nothing_have_no_reduction() -> None:
    found = read("sendrecv_perf\n" + table("redop", "#wrong", "1048576 262144 float sum", 1))
    assert [(m.op, m.redop) for m in found.measurements] == [(Op.SEND_RECV, None)]


def test_words_of_the_user() -> None:
    said = table_hints("all_reduce", 8, 1, "float", "x")
    assert (said.op, said.datatype) == (Op.ALL_REDUCE, Datatype.FLOAT32)
    with pytest.raises(UsageError, match="--op nonsense"):
        table_hints("nonsense", None, None, None, None)
    with pytest.raises(UsageError, match="--datatype nonsense"):
        table_hints(None, None, None, "nonsense", None)


def test_nccl_tests_json(samples: Path) -> None:
    found = read((samples / "tables/synthetic.nccl-tests.json").read_text())
    out, into = found.measurements[:2]
    # Two processes of four GPUs: the program lists one device of each.
    assert (out.op, out.nranks, out.nnodes, out.in_place) == (Op.ALL_REDUCE, 8, 2, False)
    assert (out.samples_us, out.time_us_min, out.time_us_max) == ((41.5, 42.5, 43.5), 41.5, 43.5)
    assert (into.in_place, into.time_us_median, into.samples_us) == (True, 41.65, ())
    assert out.busbw_gbps == pytest.approx(1048576 / 42.5 / 1e3 * 1.75)
    assert (found.library, found.library_version, codes(found)) == ("nccl", "2.28.7", {})


def test_rccl_tests_json_as_lines_and_as_a_list(samples: Path) -> None:
    lines = (samples / "tables/synthetic.rccl-tests.jsonl").read_text()
    found = read(lines)
    records = [json.loads(line) for line in lines.splitlines()]
    assert read(json.dumps(records)).measurements[0].busbw_gbps == found.measurements[0].busbw_gbps
    m = found.measurements[3]
    assert (m.op, m.nranks, m.nnodes, m.in_place, m.count) == (Op.ALL_REDUCE, 8, 1, True, 262144)
    assert (len(found.measurements), codes(found)) == (4, {})


@pytest.mark.parametrize("space", ["", " "])
def test_rccl_tests_csv_whose_header_lacks_a_column(samples: Path, space: str) -> None:
    text = (samples / "tables/synthetic.rccl-tests.csv").read_text().replace(",", "," + space)
    found = read(text)
    m = found.measurements[2]
    assert (m.nranks, m.nnodes, m.size_bytes, m.time_us_median) == (8, 1, 1048576, 55.66)
    assert codes(found) == {"misaligned_header": 4}


def test_plain_sweep_csv(recordings: Path) -> None:
    found = read((recordings / "bench.csv").read_text())
    assert len(found.measurements) == 126
    assert found.measurements[0].label == "default"
    assert {m.datatype for m in found.measurements} == {None}
    said = read((recordings / "bench.csv").read_text(), TableHints(datatype=Datatype.FLOAT32))
    assert said.measurements[0].count == 1024 // 4
    assert "busbw_mismatch" not in codes(found)


FILES = (
    "frontier-allreduce.txt", "msccl-allgather.md", "synthetic.nccl-tests.json",
    "synthetic.nccl-tests.txt", "synthetic.rccl-tests.csv", "synthetic.rccl-tests.jsonl",
)  # fmt: skip
SAMPLES = ROOT / "samples/tables"


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FILES), st.floats(0, 1))
def test_a_cut_keeps_what_is_before_it(name: str, where: float) -> None:
    text = (SAMPLES / name).read_text()
    at = int(where * len(text))
    said = TableHints(op=Op.ALL_REDUCE, nranks=8, nnodes=1, label="x")
    whole = read(text, said).measurements
    cut = parse(text[:at], said)
    # A row that log lines broke spans three lines.
    complete = text[:at].count("\n") + 1 - 2

    def rows(measurements: tuple[Measurement, ...]) -> list[tuple[object, ...]]:
        return [
            (m.line, m.in_place, m.size_bytes, m.time_us_median)
            for m in sorted(measurements, key=lambda m: (m.line or 0, bool(m.in_place)))
            if m.line is not None and m.line < complete
        ]

    assert rows(cut.measurements if cut else ()) == rows(whole)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(FILES),
    st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=12)), max_size=6),
)
def test_damage_never_raises(name: str, damage: list[tuple[float, bytes]]) -> None:
    data = bytearray((SAMPLES / name).read_bytes()[:6000])
    for where, junk in damage:
        at = int(where * len(data))
        data[at : at + len(junk)] = junk
    found = parse(data.decode("utf-8", errors="replace"), TableHints())
    for m in found.measurements if found else ():
        assert m.time_us_median is not None
        assert m.time_us_median > 0
        assert m.size_bytes is not None
        assert 0 < m.size_bytes < 2**63


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_any_text_never_raises(text: str) -> None:
    parse(text, TableHints())
    parse(HEADER.format("redop", "error", "error") + text, TableHints(op=Op.ALL_GATHER))
    parse("numCycle,name,size,time\n" + text, TableHints())
    parse('{"version":3,"start_time":' + text, TableHints())


def test_a_table_cut_mid_row_says_so() -> None:
    text = HEADER.format("redop root", "#wrong", "#wrong") + "".join(sweep(SIZES))
    found = read(text[:-25], TableHints(op=Op.ALL_REDUCE))
    assert len(found.measurements) == 12
    assert codes(found)["cut_row"] == 1


def test_ingest_is_seen_in_the_views(samples: Path, db_path: Path) -> None:
    from collscope.ingest.commands import ingest_tables
    from collscope.store.connection import open_readonly

    path = str(samples / "tables/frontier-allreduce.txt")
    (result,) = ingest_tables([path], db_path, "main", TableHints())
    assert (result.status, result.counts[0]) == ("added", ("measurements", 235))
    (again,) = ingest_tables([path], db_path, "main", TableHints())
    assert again.status == "known"
    connection = open_readonly(db_path)
    query = "SELECT busbw_gbps FROM measurements WHERE label = ? AND size_bytes = ? AND in_place"
    assert connection.execute(query, (GDR, GIB4)).fetchone()[0] == pytest.approx(109.006, abs=1e-3)
    connection.close()


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--ranks", "8", "--label", "v5"], 0, "latency_table: 42 measurements"),
        (["--op", "nonsense"], 2, "--op nonsense: not an operation"),
        (["--ranks", "0"], 2, "--ranks"),
    ],
)
def test_command(samples: Path, db_path: Path, options: list[str], code: int, says: str) -> None:
    path = samples / "tables/msccl-allgather.md"
    done = collscope("ingest", "table", path, "--db", db_path, *options)
    assert done.code == code
    assert says in done.out + done.err


def test_command_refuses_what_holds_no_table(db_path: Path) -> None:
    text = db_path.parent / "hello.txt"
    text.write_text("hello\n")
    for kind in ("table", "metric"):
        done = collscope("ingest", kind, text, "--db", db_path)
        assert (done.code, done.err.count("\n")) == (3, 1)


def test_a_very_long_line_is_no_row_and_takes_no_longer_than_its_size() -> None:
    """Each of its letters might begin a host's name: that took minutes for a line of 3 MB."""
    assert clean("12 nid003041:1:2 [0] NCCL INFO comm") == "12"
    assert clean("x" * 40_000 + " NCCL INFO comm 0x1") == "x" * 40_000
    assert clean("x" * 3_000_000 + " NCCL INFO") == "x" * (1 << 16)
