"""Summaries of rocprofiler-sdk: with bars, with blanks, as CSV."""

from __future__ import annotations

import pytest
from inputs import ROOT

from collscope.model import ProfileSet
from collscope.parsers.hints import Hints
from collscope.parsers.registry import read_bytes
from collscope.parsers.rocprofv3_summary import parse, sniff_text

TEXT = (ROOT / "samples/profiles/synthetic.rocprofv3-summary.txt").read_text()
NCCL = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
EXPECTED = [
    (NCCL, "kernel", 40, 6_000_000, 100_000, 400_000),
    ("void either<float>(float*, float | int)", "kernel", 20, 4_000_000, 150_000, 250_000),
    ("MEMORY_COPY_HOST_TO_DEVICE", "copy", 8, 2_000_000, 200_000, 300_000),
]
TITLES = (
    "Name", "Calls", "DURATION (nsec)", "AVERAGE (nsec)", "PERCENT (INC)", "MIN (nsec)",
    "MAX (nsec)", "STD_DEV",
)  # fmt: skip
ROWS = [
    (NCCL, "40", "6000000", "1.500000e+05", "60.000000", "100000", "400000", "70000.0"),
    (EXPECTED[1][0], "20", "4000000", "2.0e+05", "40.000000", "150000", "250000", "30000.0"),
]
COPIES = (EXPECTED[2][0], "8", "2000000", "2.5e+05", "100.000000", "200000", "300000", "40000.0")
HOST = ("hipMemcpy", "8", "73000000", "9.1e+06", "100.000000", "21000", "40000000", "NaN")


def blanks(title: str, *rows: tuple[str, ...]) -> str:
    """A table as pandas prints it."""
    lines = ["  ".join(f"{cell:>15}" for cell in row) for row in (TITLES, *rows)]
    return "\n".join([f"{title}:", *lines, "", ""])


BLANKS = (
    blanks("KERNELS_SUMMARY", *ROWS) + blanks("HIP_API_SUMMARY", HOST)
    + blanks("MEMORY_COPIES_SUMMARY", COPIES)
)  # fmt: skip
CSV = "".join(
    ",".join(f'"{cell}"' if k == 0 or "(" in cell else cell for k, cell in enumerate(row)) + "\n"
    for row in (TITLES, *ROWS)
)


def rows_of(text: str) -> list[tuple[str, str, int, int, int | None, int | None]]:
    return [(t.name, t.kind, t.calls, t.total_ns, t.min_ns, t.max_ns) for t in parse(text).totals]


def codes(text: str) -> dict[str, int]:
    return {d.code: d.count for d in parse(text).diagnostics}


def test_kernels_and_copies_count_once_and_nothing_of_the_host() -> None:
    assert rows_of(TEXT) == EXPECTED
    assert codes(TEXT) == {"host_api_stats": 4, "repeated_table": 3}


def test_the_table_of_all_domains_alone() -> None:
    alone = TEXT[TEXT.index("ROCPROFV3 SUMMARY:") :]
    assert rows_of(alone) == EXPECTED
    assert codes(alone) == {"host_api_stats": 2}


def test_tables_with_blanks() -> None:
    assert rows_of(BLANKS) == EXPECTED
    assert codes(BLANKS) == {"host_api_stats": 1}


def test_a_csv_of_kernels() -> None:
    assert rows_of(CSV) == EXPECTED[:2]
    assert codes(CSV) == {}
    lines = CSV.splitlines(keepends=True)
    assert codes("".join(lines[:2])) == {"partial_top": 1}  # 60 of 100 %


@pytest.mark.parametrize(("unit", "factor"), [("usec", 1_000), ("msec", 10**6), ("sec", 10**9)])
def test_units(unit: str, factor: int) -> None:
    text = CSV.replace("nsec", unit).replace("6000000", "6").replace("4000000", "4")
    text = text.replace("100000,400000", "1,2").replace("150000,250000", "1,2")
    assert [row[3] for row in rows_of(text)] == [6 * factor, 4 * factor]


def test_numbers_with_commas_and_tables_with_fewer_columns() -> None:
    text = (
        "ROCPROFV3 SUMMARY:\n"
        "| NAME | DOMAIN | CALLS | DURATION (nsec) | PERCENT (INC) |\n"
        "|------|--------|-------|-----------------|---------------|\n"
        f"| {NCCL} | KERNEL_DISPATCH | 3 | 193,410,768 | 62.588122 |\n"
        "| torn | KERNEL_DISPATCH | 3 |\n"
    )
    assert rows_of(text) == [(NCCL, "kernel", 3, 193_410_768, None, None)]
    assert codes(text)["torn_row"] == 1


@pytest.mark.parametrize("text", [TEXT, BLANKS, CSV])
def test_they_are_told_from_other_files(text: str) -> None:
    assert sniff_text(text)
    found = read_bytes("profile", text.encode(), Hints())
    assert isinstance(found, ProfileSet)
    assert [table.profile.dialect for table in found.tables] == ["rocprofv3_summary"]


def test_percentages_that_count_host_calls_are_no_shares_of_gpu_time() -> None:
    # `rocprofv3 -S` prints this table alone where nothing asks for one of each domain.
    text = (
        "ROCPROFV3 SUMMARY:\n\n"
        "| NAME | DOMAIN | CALLS | DURATION (nsec) | AVERAGE (nsec) | PERCENT (INC) |\n"
        "|------|--------|-------|-----------------|----------------|---------------|\n"
        "| a_kernel | KERNEL_DISPATCH | 20 | 6000000 | 3.000e+05 | 75.000000 |\n"
        "| hipLaunchKernel | HIP_API | 30 | 2000000 | 6.667e+04 | 25.000000 |\n"
    )
    assert [(t.total_ns, t.reported_percentage) for t in parse(text).totals] == [(6_000_000, None)]
