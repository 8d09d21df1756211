"""Tables of totals: torch.profiler, DeepSpeed's communication logger, Cray perftools."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import collscope, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ROOT

from collscope.kernel_names import classify
from collscope.model import Op, Profile
from collscope.parsers import deepspeed, key_averages, perftools

SAMPLES = ROOT / "samples" / "profiles"
TABLES = {
    path.name: path.read_text()
    for name in ("key_averages", "frontier-gptj", "frontier-bigbird", "frontier-perftools")
    for path in [SAMPLES / f"{name}.txt"]
}
COMMS = """\
[2026-01-01 00:00:00,000] [INFO] [logging.py:69:log_dist] [Rank 0] done
Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)    
broadcast
                    0B                  2                   0.19                0.10                0.00                0.00                
                    2.0 KB              150                 12.00               0.08                0.41                0.41                
all_gather_into_tensor | [Caller Func: _allgather_params]
                    6.0 MB              200                 14.00               0.25                1600.00             1500.00             
reduce_scatter_tensor
                    64.0 MB             40                  600.00              10.00               53.69               50.33               
barrier
                    0B                  3                   237.96              79.32               0.00                0.00                
_______________________________
Breakdown with straggler effect
-------------------------------
Comm. Op            Message Size        Count               Total comm lat(ms)  Total straggler(ms) Avg comm lat(ms)    Avg straggler(ms)   
broadcast
                    2.0 KB              150                 10.00               2.00                0.07                0.01                
"""  # noqa: E501, W291
MESSAGES = """\
Table 2:  MPI Message Stats by Caller

    MPI |          MPI | MPI Msg |  MsgSz |   16<= |  256<= | Function
   Msg% |    Msg Bytes |   Count |    <16 |  MsgSz |  MsgSz |  Caller
        |              |         |  Count |   <256 |  <4KiB |   PE=[mmm]
        |              |         |        |  Count |  Count |    Thread=HIDE

 100.0% | 34,567,890.0 | 4,344.5 |   12.0 |  100.5 | 4,232.0 | Total
|-----------------------------------------------------------------------------
|  98.0% | 33,000,000.0 | 4,000.0 |   10.0 |   90.0 | 3,900.0 | MPI_Isend
||  50.0% | 17,000,000.0 | 2,000.0 |    5.0 |   45.0 | 1,950.0 | exchange_
|   2.0% |  1,567,890.0 |   344.5 |    2.0 |   10.5 |   332.0 | MPI_Allreduce
|=============================================================================
"""


def share(profile: Profile) -> tuple[float, float]:
    """Percent of the device's time in collectives, and in everything that the table lists."""
    rows = [(classify(t.name) is not None, t.reported_percentage or 0.0) for t in profile.totals]
    return sum(p for known, p in rows if known), sum(p for _, p in rows)


def test_gptj_of_the_slides_is_bound_by_communication() -> None:
    profile = key_averages.parse(TABLES["frontier-gptj.txt"])
    collective, listed = share(profile)
    assert collective == pytest.approx(99.97)
    assert listed == pytest.approx(99.97)
    top = profile.totals[0]
    assert (top.name, top.calls, top.total_ns) == ("record_param_comms", 1380, 6_478_273_000_000)


def test_bigbird_of_the_slides_is_bound_by_computation() -> None:
    profile = key_averages.parse(TABLES["frontier-bigbird.txt"])
    collective, listed = share(profile)
    assert collective == 0
    # copy_ 19.32, mm 18.85, fill_ 9.13, add_ 9.52, bmm 8.57, addmm 9.07, mul 6.49
    assert listed == pytest.approx(80.95)
    codes = [d.code for d in profile.diagnostics]
    assert codes == ["calls_computed", "partial_top"]
    mm = next(t for t in profile.totals if t.name == "aten::mm")
    assert mm.calls == 296  # 6.544 ms / 22.108 us


def test_recorded_table() -> None:
    profile = key_averages.parse(TABLES["key_averages.txt"])
    assert [(t.name, t.calls, t.total_ns) for t in profile.totals] == [
        # the operators cover more; the kernels of record_param_comms stand for it, as long as it
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKerne...", 27, 26_091_000),
        ("aten::mm", 114, 23_235_000),
        ("aten::addmm", 39, 6_767_000),
    ]
    assert [d.code for d in profile.diagnostics] == ["partial_top"]


def table(*rows: tuple[str, float, float, int]) -> str:
    """A table as `key_averages().table()` prints it: name, device us, percent, calls per row."""
    widths = [30, 12, 12, 12, 12, 12, 12, 12]
    titles = ["Name", "Self CPU %", "Self CPU", "CPU total", "Self CUDA", "Self CUDA %",
              "CUDA total", "# of Calls"]  # fmt: skip
    ruler = "  ".join("-" * width for width in widths)

    def line(cells: list[str]) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))

    lines = [ruler, line(titles), ruler]
    lines += [
        line([name, "0.00%", "0.000us", "0.000us", f"{us:.3f}us", f"{percent:.2f}%",
              f"{us:.3f}us", str(calls)])
        for name, us, percent, calls in rows
    ]  # fmt: skip
    total = sum(us for _, us, _, _ in rows)
    return "\n".join([*lines, ruler, "Self CPU time total: 9.000ms",
                      f"Self CUDA time total: {total:.3f}us", ""])  # fmt: skip


PHASES = (
    "starting, 12.5ms after launch\n"
    + table(("ncclKernel_AllReduce", 75, 75, 3), ("sgemm", 25, 25, 5))
    + "step 2 took 17.3ms\nName  Self CPU %  Self CPU  CPU total %  CPU total  # of Calls\n"
    + "aten::mm  10.00%  3.1us  10.00%  3.1us  4\n"
    + table(("ncclKernel_AllReduce", 10, 20, 1), ("sgemm", 40, 80, 8))
)


def test_every_table_of_a_log() -> None:
    """Two phases, a step time and a table of the host alone between them: no row of it counts."""
    found = key_averages.tables(PHASES)
    assert [
        (each.line, [(t.name, t.calls, t.total_ns) for t in each.profile.totals]) for each in found
    ] == [
        (3, [("ncclKernel_AllReduce", 3, 75_000), ("sgemm", 5, 25_000)]),
        (14, [("sgemm", 8, 40_000), ("ncclKernel_AllReduce", 1, 10_000)]),
    ]
    assert [d.code for each in found for d in each.profile.diagnostics] == []
    assert key_averages.parse(PHASES) == found[0].profile


def test_copies_among_kernels() -> None:
    names = {"Memcpy DtoD (Device -> Device)": "copy", "Memset (Device)": "copy",
             "CopyDeviceToDevice": "copy", "memcpy_kernel": "kernel"}  # fmt: skip
    found = key_averages.parse(table(*((name, 25, 25, 1) for name in names)))
    assert {t.name: t.kind for t in found.totals} == names


def test_tables_pasted_without_rulers() -> None:
    """Nothing but its sums, or the next header, ends such a table."""
    lines = [line for line in PHASES.splitlines() if not line.startswith("---")]
    found = key_averages.tables("\n".join(lines))
    assert [[t.total_ns for t in each.profile.totals] for each in found] == [
        [75_000, 25_000], [40_000, 10_000],
    ]  # fmt: skip
    assert [d.code for each in found for d in each.profile.diagnostics] == []


@pytest.mark.parametrize("labels", [("[rank0]:", "[rank1]:"), ("0: ", "1: ")])
def test_tables_of_ranks_with_mixed_lines(labels: tuple[str, str]) -> None:
    """Two ranks print at once through a launcher that labels lines: line by line in turns."""
    first = table(("ncclKernel_AllReduce", 75, 75, 3), ("sgemm", 25, 25, 5)).splitlines()
    second = table(("ncclKernel_AllReduce", 50, 50, 3), ("sgemm", 50, 50, 5)).splitlines()
    mixed = "\n".join(f"{labels[0]}{a}\n{labels[1]}{b}" for a, b in zip(first, second, strict=True))
    assert key_averages.sniff_text(mixed)
    found = key_averages.tables(mixed)
    assert [(each.line, [t.total_ns for t in each.profile.totals]) for each in found] == [
        (3, [75_000, 25_000]), (4, [50_000, 50_000]),
    ]  # fmt: skip


def test_tables_of_a_log_are_sources_of_their_own(db_path: Path, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(PHASES)
    for again in (False, True):
        done = collscope("ingest", "profile", log, "--db", db_path)
        assert ("already in this run" in done.out) is again
        assert ("2 tables, 4 kernel names" in done.out) is not again
    query = (
        "SELECT path, collective_calls, collective_ns, busy_ns, reported_coverage FROM share"
        " JOIN sources USING (source_id) ORDER BY source_id"
    )
    assert rows(db_path, query) == [
        (str(log), 3, 75_000, 100_000, 100.0),
        (f"{log} (table 2, line 14)", 1, 10_000, 50_000, 100.0),
    ]
    shown = collscope("report", "--db", db_path).out
    assert "75.00 % of GPU time" in shown
    assert "20.00 % of GPU time" in shown


@pytest.mark.parametrize("device", ["CUDA", "HIP", "XPU", "PrivateUse1", "Device"])
def test_any_device(device: str) -> None:
    text = TABLES["key_averages.txt"].replace("CUDA", device)
    profile = key_averages.parse(text)
    assert [t.calls for t in profile.totals] == [27, 114, 39]


def test_kernels_are_taken_where_they_cover_more() -> None:
    lines = TABLES["key_averages.txt"].splitlines()
    kept = [line for line in lines if "aten::" not in line]
    names = {t.name for t in key_averages.parse("\n".join(kept)).totals}
    assert "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKerne..." in names
    assert "record_param_comms" not in names  # counts the same kernels
    assert "nccl:all_reduce" not in names
    assert "DistributedDataParallel.forward" not in names
    assert not any(name.startswith("cuda") for name in names)


def test_amd_kernels_keep_the_end_of_their_names() -> None:
    text = table(("ncclDevKernel_Generic_4.kd", 75, 75, 3), ("Optimizer.step", 80, 80, 1))
    assert [t.name for t in key_averages.parse(text).totals] == ["ncclDevKernel_Generic_4.kd"]


def test_an_operator_stays_where_not_all_its_kernels_are_listed() -> None:
    lines = TABLES["key_averages.txt"].splitlines()
    cut = [line.replace("26.091ms", "25.091ms") if "ncclDev" in line else line for line in lines]
    names = {t.name for t in key_averages.parse("\n".join(cut)).totals}
    assert "record_param_comms" in names
    assert not any("ncclDev" in name for name in names)


def test_profile_of_the_host_alone() -> None:
    text = "Name  Self CPU %  Self CPU  CPU total %  CPU total  # of Calls\n"
    assert not key_averages.sniff_text(text)
    assert [d.code for d in key_averages.parse(text).diagnostics] == ["no_rows"]


def test_deepspeed() -> None:
    found = deepspeed.parse(COMMS)
    assert [(m.op, m.calls) for m in found.measurements] == [
        (Op.BROADCAST, 2), (Op.BROADCAST, 150), (Op.ALL_GATHER, 200), (Op.REDUCE_SCATTER, 40),
        (Op.BARRIER, 3),
    ]  # fmt: skip
    gather, scatter = found.measurements[2:4]
    # 1500 / 1600 = 15/16: sixteen ranks; the size is one rank's part: 16 × 6 MiB
    assert (gather.nranks, gather.size_bytes) == (16, 16 * 6 * 2**20)
    assert gather.time_us_median == 250
    assert gather.reported_busbw_gbps == pytest.approx(1500 / 8)  # bits
    # of a ReduceScatter it is the whole: 64 MiB in 10 ms, times 15/16
    assert scatter.size_bytes == 64 * 2**20
    assert scatter.busbw_gbps == pytest.approx(64 * 2**20 / 0.010 / 1e9 * 15 / 16)
    assert found.diagnostics == ()


def test_deepspeed_says_no_ranks_when_digits_do_not_suffice() -> None:
    # 0.41 / 0.43 may be 17/18 to 27/28
    text = COMMS.split("reduce_scatter", maxsplit=1)[0]
    small = text.replace("1600.00 ", "0.43    ").replace("1500.00 ", "0.41    ")
    gather = deepspeed.parse(small).measurements[-1]
    assert (gather.op, gather.calls) == (Op.ALL_GATHER, 200)
    assert (gather.nranks, gather.size_bytes, gather.busbw_gbps) == (None, None, None)


def test_perftools_of_the_slides() -> None:
    found = perftools.parse(TABLES["frontier-perftools.txt"])
    first, second = found.tables  # two measurements: 361.69 s and 344.88 s
    assert (first.line, second.line) == (2, 32)
    assert share(first.profile) == pytest.approx((17.8, 99.3))
    assert share(second.profile) == pytest.approx((17.8, 99.3))
    totals = [(t.name, t.calls, t.total_ns) for table in found.tables for t in table.profile.totals]
    assert ("python.all_gather_into_tensor", 14657, 64_260_000_000) in totals
    assert ("python.validation", 211308, 38_490_000_000) in totals
    assert ("main", 4732, 0) in totals  # its source stands before its name
    assert not any(name == "Total" or "/" in name for name, _, _ in totals)
    bins = {(b.function, b.what, b.low_bytes): (b.high_bytes, b.count) for b in found.bins}
    # row "main": 8 below 16 B, 16 of 256 B to 4 KiB, 448 of 4 to 64 KiB
    assert bins["main", "HtoA", 0] == (16, 8.0)
    assert bins["main", "HtoA", 256] == (4096, 16.0)
    assert bins["main", "HtoA", 4096] == (65536, 448.0)


def test_perftools_messages() -> None:
    found = perftools.parse(MESSAGES)
    assert [(b.function, b.low_bytes, b.high_bytes, b.count) for b in found.bins] == [
        ("MPI_Isend", 0, 16, 10.0), ("MPI_Isend", 16, 256, 90.0), ("MPI_Isend", 256, 4096, 3900.0),
        ("MPI_Allreduce", 0, 16, 2.0), ("MPI_Allreduce", 16, 256, 10.5),
        ("MPI_Allreduce", 256, 4096, 332.0),
    ]  # fmt: skip


def test_each_sniffs_its_own() -> None:
    modules = (key_averages, deepspeed, perftools)
    texts = [*TABLES.values(), COMMS, MESSAGES]
    owners = [[m.__name__.rpartition(".")[2] for m in modules if m.sniff_text(t)] for t in texts]
    assert owners == [
        ["key_averages"], ["key_averages"], ["key_averages"], ["perftools"], ["deepspeed"],
        ["perftools"],
    ]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([*TABLES.values(), COMMS, MESSAGES]), st.data())
def test_cut_text_never_raises(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    again = data.draw(st.integers(0, len(text)))
    damaged = text[:cut] + data.draw(st.text(max_size=5)) + text[again:]
    for module in (key_averages, deepspeed, perftools):
        module.sniff_text(damaged)
        module.parse(damaged)


def test_cut_loses_no_earlier_row() -> None:
    text = TABLES["frontier-gptj.txt"]
    rows = len(key_averages.parse(text).totals)
    seen = [len(key_averages.parse(text[:cut]).totals) for cut in range(0, len(text), 50)]
    assert max(seen) <= rows
    assert seen == sorted(seen)


def test_markers_of_old_rocm_traces_are_no_kernels() -> None:
    lines = [line for line in TABLES["frontier-gptj.txt"].splitlines() if "param_comms" not in line]
    names = {t.name for t in key_averages.parse("\n".join(lines)).totals}
    assert names == {"aten::copy_", "aten::fill_", "aten::_local_scalar_dense"}


def test_a_column_above_its_whole_is_remarked() -> None:
    rows = [("gemm", 139, 139, 1), ("reduce_kernel", 100, 100, 1)]
    (note,) = key_averages.parse(table(*rows)).diagnostics
    assert (note.code, "239 %" in note.message) == ("counted_again", True)
    whole = table(*((f"kernel{k}", 1, 0.14, 1) for k in range(715)))  # 100.1 % of rounded rows
    assert key_averages.parse(whole).diagnostics == ()
