"""Text profiles (a pasted top, rocprof CSV): totals derived by hand, and damaged input."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import make_profiles
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collscope.kernel_names import classify
from collscope.model import KernelTotal, Profile, Severity
from collscope.parsers import rocprof_csv, top_text

SAMPLES = make_profiles.SAMPLES


def codes(profile: Profile) -> dict[str, int]:
    return {d.code: d.count for d in profile.diagnostics}


def plain(profile: Profile) -> set[tuple[str, str | None, str, int, int]]:
    return {(t.name, t.device, t.kind, t.calls, t.total_ns) for t in profile.totals}


# ---- the guide's top ----


def test_guide_percentages_add_up_to_what_sqlite_printed() -> None:
    text = (SAMPLES / "guide-top.txt").read_text()
    assert text.rstrip().endswith("29.2719436948395")  # sqlite prints 15 digits
    profile = top_text.parse(text)
    shares = [t.reported_percentage or 0 for t in profile.totals if classify(t.name)]
    assert f"{math.fsum(shares):.15g}" == "29.2719436948395"
    assert f"{sum(shares):.15g}" == "29.2719436948395"
    assert codes(profile) == {"partial_top": 1}
    assert profile.diagnostics[0].severity is Severity.NOTICE
    assert profile.totals[0] == KernelTotal(
        name="mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)",
        calls=52224,
        total_ns=125_822_179_000,
        reported_percentage=18.8200893749884,
    )
    assert [t.calls for t in profile.totals] == [52224, 26592, 8]


LIST = (SAMPLES / "guide-top.txt").read_text()
HEADER, *ROWS = LIST.splitlines()[1:5]


def as_csv() -> str:
    rows = [row.split("|") for row in ROWS]
    return "\r\n".join([HEADER.replace("|", ","), *(f'"{r[0]}",{",".join(r[1:])}' for r in rows)])


def as_barred() -> str:
    titles = "| " + " | ".join(HEADER.split("|")) + " |"
    return "\n".join(
        [titles, "|---|---|---|---|---|"] + [f"| {r.replace('|', ' | ')} |" for r in ROWS]
    )


@pytest.mark.parametrize(
    "text",
    [
        (SAMPLES / "guide-top.column.txt").read_text(),
        (SAMPLES / "guide-top.box.txt").read_text(),
        as_csv(),
        as_barred(),
        LIST.replace("|", "\t"),
        "\n".join(ROWS),
        LIST + LIST,
        LIST.replace("\n", "\r\n"),
        "\ufeff" + "\n".join([HEADER, *ROWS]),
        HEADER.replace("Duration", "Duration_us").replace("Ave", "Ave_us") + "\n" + "\n".join(ROWS),
    ],
    ids=["column", "box", "csv", "markdown", "tabs", "bare", "twice", "crlf", "bom", "_us"],
)
def test_every_output_mode_gives_the_same_totals(text: str) -> None:
    assert top_text.sniff_text(text)
    assert top_text.parse(text).totals == top_text.parse(LIST).totals
    assert top_text.parse(text.splitlines(keepends=True)).totals == top_text.parse(LIST).totals


def test_top_text_skips_and_counts_bad_rows() -> None:
    bad = ["k|1|2|3", "|1|2|3|4", "k|-1|2|3|4", "k|1|x|3|4", f"k|{'9' * 6000}|2|3|4"]
    profile = top_text.parse("\n".join([HEADER, *ROWS, *bad]))
    assert profile.totals == top_text.parse(LIST).totals
    assert codes(profile) == {
        "torn_row": 1,
        "row_without_name": 1,
        "bad_number": 3,
        "partial_top": 1,
    }


def test_a_row_of_fixed_columns_that_is_cut_is_none() -> None:
    text = (SAMPLES / "guide-top.column.txt").read_text()
    profile = top_text.parse(text[: text.index("125822179") + 3])
    assert (profile.totals, codes(profile)) == ((), {"torn_row": 1})


@pytest.mark.parametrize(("unit", "scale"), [("Ns", 1), ("_ms", 1_000_000), ("_s", 1_000_000_000)])
def test_the_header_names_the_unit(unit: str, scale: int) -> None:
    text = f"Name|TotalCalls|TotalDuration{unit}|Percentage\nk|2|3|100.0\n"
    profile = top_text.parse(text)
    assert plain(profile) == {("k", None, "kernel", 2, 3 * scale)}
    assert profile.diagnostics == ()


def test_prose_is_no_top() -> None:
    assert not top_text.sniff_text("Name your TotalCalls\nhost:1:1 [0] NCCL INFO x | y\n")
    assert codes(top_text.parse("some text\n")) == {"unread_line": 1}
    assert codes(top_text.parse("")) == {"no_rows": 1}


# ---- CSV ----


def csv_profile(path: Path) -> Profile:
    text = path.read_text()
    assert rocprof_csv.sniff_text(text)
    assert not top_text.sniff_text(text)
    return rocprof_csv.parse(text)


def test_rocprof_v1_trace() -> None:
    profile = csv_profile(SAMPLES / "rocprof_v1_results.csv")
    assert profile.dialect == "rocprof_v1_trace"
    generic = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*) [clone .kd]"
    assert plain(profile) == {
        (generic, "0", "kernel", 1, 5_000),
        (generic, "1", "kernel", 1, 4_500),
        (make_profiles.GEMM + " [clone .kd]", "0", "kernel", 1, 3_000),
        (make_profiles.DECOY, "0", "kernel", 1, 100),
    }
    assert [s.stream for s in profile.spans] == ["0", "1", "1", "0"]


def test_rocprofv3_kernel_stats() -> None:
    profile = csv_profile(SAMPLES / "rocprofv3_kernel_stats.csv")
    assert profile.dialect == "rocprofv3_stats"
    assert profile.totals[0] == KernelTotal(
        make_profiles.RCCL, 4, 11_500, min_ns=1_000, max_ns=5_000, reported_percentage=63.54
    )
    assert profile.diagnostics == ()


def test_rocprofv3_copies_belong_to_the_gpu() -> None:
    profile = csv_profile(SAMPLES / "rocprofv3_memory_copy_trace.csv")
    assert plain(profile) == {
        ("MEMORY_COPY_HOST_TO_DEVICE", "Agent 4", "copy", 1, 500),
        ("MEMORY_COPY_DEVICE_TO_HOST", "Agent 5", "copy", 1, 250),
    }


def test_corpus_rocprof_csv(corpus: Path) -> None:
    folder = corpus / "rocprof"
    v1 = csv_profile(folder / "rocprof_v1_results.stats.csv")
    name = "copy_kernel(float*, float*, int, int) [clone .kd]"
    assert v1.dialect == "rocprof_v1_stats"
    assert v1.totals == (KernelTotal(name, 1, 165_920, reported_percentage=100.0),)

    trace = csv_profile(folder / "rocprofv3_kernel_trace.csv")
    lines = (folder / "rocprofv3_kernel_trace.csv").read_text().splitlines()[1:]
    # Only the kernel's name holds commas, so the times are found from the end of the line.
    durations = [int(line.split(",")[-12]) - int(line.split(",")[-13]) for line in lines]
    assert [s.end_ns - s.start_ns for s in trace.spans] == durations
    assert sum(t.total_ns for t in trace.totals) == sum(durations)
    assert {t.device for t in trace.totals} == {"Agent 4"}
    # The documentation shows 9 of 13 dispatches.
    assert [(d.code, d.count) for d in trace.diagnostics] == [("many_kernels_lost", 4)]

    for stats, count in (("hip_api", 17), ("hip_domain", 1)):
        host = csv_profile(folder / f"rocprofv3_{stats}_stats.csv")
        assert host.totals == ()
        assert codes(host) == {"host_api_stats": count}
    calls = csv_profile(folder / "rocprofv3_rccl_trace.csv")
    assert calls.totals == ()
    assert codes(calls).keys() == {"no_gpu_times"}


def test_rocprof_csv_skips_and_counts_bad_rows() -> None:
    text = (SAMPLES / "rocprof_v1_results.csv").read_text()
    header, *rows = text.splitlines()
    bad = [
        rows[0].replace("3600", "500"),
        rows[0].replace(",600,", ",,"),
        rows[0].replace(",600,", ",-600,"),
        rows[0][:40],
        rows[0].replace('"gemm_bf16(float*, float const*, int) [clone .kd]"', ""),
    ]
    profile = rocprof_csv.parse("\n".join([header, *bad, *rows, header, rows[3]]))
    assert len(profile.spans) == 5
    assert codes(profile) == {
        "ends_before_start": 1,
        "bad_number": 2,
        "torn_row": 1,
        "row_without_name": 1,
    }
    assert profile.diagnostics[0].line == 2


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ('"Kernel_Name","Counter_Name","Start_Timestamp","End_Timestamp"', "counter_rows"),
        ('"Index","KernelName","gpu-id","queue-id"', "no_timestamps"),
    ],
)
def test_kernel_rows_without_usable_times(header: str, code: str) -> None:
    profile = rocprof_csv.parse(f"{header}\nk,SQ_WAVES,1,2\n")
    assert profile.totals == ()
    assert codes(profile) == {code: 1}


def test_text_of_another_kind_is_reported() -> None:
    profile = rocprof_csv.parse("a,b\n1,2\n")
    assert not rocprof_csv.sniff_text("a,b\n1,2\n")
    assert codes(profile) == {"unknown_header": 2}


# ---- any cut, any bytes ----

TEXTS = [
    (parse, path.read_bytes())
    for parse, pattern in ((top_text.parse, "guide-top*.txt"), (rocprof_csv.parse, "*.csv"))
    for path in sorted(SAMPLES.glob(pattern))
]


@given(case=st.sampled_from(TEXTS), data=st.data())
def test_a_cut_at_any_byte_loses_no_earlier_row(
    case: tuple[Callable[[str], Profile], bytes], data: st.DataObject
) -> None:
    parse, raw = case
    cut = data.draw(st.integers(0, len(raw)))
    whole_lines = raw[:cut].rpartition(b"\n")[0]
    kept = parse(raw[:cut].decode("utf-8", "replace"))
    before = parse(whole_lines.decode("utf-8", "replace"))
    assert sum(t.calls for t in kept.totals) >= sum(t.calls for t in before.totals)
    assert len(kept.spans) >= len(before.spans)


@given(st.text(alphabet=st.characters() | st.sampled_from("|,\"'\t-\0\n│")), st.integers(0, 3))
def test_any_text_is_answered(noise: str, place: int) -> None:
    lines = LIST.splitlines()
    lines.insert(place, noise)
    top_text.parse("\n".join(lines))
    top_text.sniff_text(noise)
    rocprof_csv.parse(noise)
    rocprof_csv.parse('"Name","Calls","TotalDurationNs"\n' + noise)
