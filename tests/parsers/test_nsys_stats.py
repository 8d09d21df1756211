"""Sums that ``nsys stats`` prints, as a table and as CSV."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from inputs import ROOT

from collscope.model import ProfileSet
from collscope.parsers.hints import Hints
from collscope.parsers.nsys_stats import parse, sniff_text
from collscope.parsers.registry import read_bytes

TEXT = (ROOT / "samples/profiles/synthetic.nsys-stats.txt").read_text()
EXPECTED = [
    ("kernel", 20, 6_000_000, 200_000, 400_000),
    ("kernel", 10, 3_000_000, 200_000, 400_000),
    ("copy", 50, 2_500_000, 40_000, 60_000),
    ("kernel", 5, 1_000_000, 100_000, 300_000),
]


def rows_of(text: str) -> list[tuple[str, int, int, int | None, int | None]]:
    return [(t.kind, t.calls, t.total_ns, t.min_ns, t.max_ns) for t in parse(text).totals]


def as_csv(text: str) -> str:
    """The table of kernels as `--format csv` prints it."""
    table = text.partition("(cuda_gpu_kern_sum):\n\n")[2].partition("\n\n")[0].splitlines()
    out = io.StringIO()
    write = csv.writer(out)
    write.writerow(re.split(r"\s{2,}", table[0].strip()))
    for line in table[2:]:
        *numbers, name = line.split(maxsplit=8)
        write.writerow([*(n.replace(",", "") for n in numbers), name])
    return out.getvalue()


def test_kernels_and_copies_and_nothing_of_the_host() -> None:
    profile = parse(TEXT)
    assert rows_of(TEXT) == EXPECTED
    assert [(d.code, d.count) for d in profile.diagnostics] == [("host_api_stats", 2)]
    assert profile.totals[1].name.startswith("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(")
    assert profile.totals[1].reported_percentage == 30.0


def test_csv_has_the_same_kernels() -> None:
    text = as_csv(TEXT)
    assert rows_of(text) == [row for row in EXPECTED if row[0] == "kernel"]
    assert parse(text).diagnostics == ()


@pytest.mark.parametrize("text", [TEXT, as_csv(TEXT)])
def test_they_are_told_from_other_files(text: str) -> None:
    assert sniff_text(text)
    found = read_bytes("profile", text.encode(), Hints())
    assert isinstance(found, ProfileSet)
    assert [table.profile.dialect for table in found.tables] == ["nsys_stats"]


def test_a_second_table_of_the_kernels_is_not_counted() -> None:
    kernels = TEXT[TEXT.index(" ** CUDA GPU Kernel") : TEXT.index(" ** CUDA GPU MemOps")]
    profile = parse(TEXT + kernels.replace("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum"))
    assert sorted(t.total_ns for t in profile.totals) == sorted(row[2] for row in EXPECTED)
    assert "repeated_table" in [d.code for d in profile.diagnostics]


def test_grids_and_blocks_are_three_numbers_each() -> None:
    text = (
        "Time (%)  Total Time (ns)  Instances  Avg (ns)  GridXYZ  BlockXYZ  Name\n"
        "--------  ---------------  ---------  --------  -------  --------  ----\n"
        "   100.0             2000          4     500.0   24  1  1  544  1  1  a kernel (int)\n"
    )
    (total,) = parse(text).totals
    assert (total.name, total.calls, total.total_ns) == ("a kernel (int)", 4, 2000)


def test_torn_rows_are_counted() -> None:
    cut = TEXT[: TEXT.index("200000    400000")]
    assert [(d.code, d.count) for d in parse(cut).diagnostics] == [
        ("host_api_stats", 2), ("torn_row", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("head", ["", "Time", "Time (%),Total Time (ns),Num Calls,Name\n1,2,3,x\n"])
def test_other_texts_are_none(head: str) -> None:
    assert not sniff_text(head)


def test_the_public_tables(corpus: Path) -> None:
    folder = corpus / "wild-2026-11" / "nsys-stats-csv"
    for name in ("tvm16842_cuda_gpu_kern_sum.csv", "tvm16842_nsys_stats.txt"):
        totals = parse((folder / name).read_text()).totals
        reduces = [t for t in totals if t.name.startswith("ncclDevKernel_AllReduce")]
        assert [(t.calls, t.total_ns) for t in reduces] == [(4048, 277_809_887)]
