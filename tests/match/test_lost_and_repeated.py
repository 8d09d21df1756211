"""Lines that are lost from a log, or stand in it again, where the others show what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import collscope, rows

SAMPLES = Path(__file__).parents[2] / "samples"
DDP = SAMPLES / "nccl" / "ddp"
KLKE = SAMPLES / "rccl" / "guide-coll-klke.log"
_INIT = re.compile(r"ncclCommInit|commId|nRanks|comm 0x\w+ rank|Trees|Init COMPLETE|Init START")


def damaged(folder: Path, *without_init: int) -> Path:
    """The sample's logs, some of them without their INIT lines."""
    folder.mkdir()
    for k, log in enumerate(sorted(DDP.glob("*.log"))):
        lines = log.read_text().splitlines(keepends=True)
        kept = [line for line in lines if k not in without_init or not _INIT.search(line)]
        (folder / log.name).write_text("".join(kept))
    return folder


def counts(db: Path) -> tuple[int, ...]:
    """Calls, bytes, communicators, ranks with a log."""
    query = (
        "SELECT (SELECT COUNT(*) FROM calls), (SELECT SUM(size_bytes) FROM calls),"
        " (SELECT COUNT(*) FROM communicators), (SELECT COUNT(*) FROM members)"
    )
    ((calls, size, comms, members),) = rows(db, query)
    return calls, size, comms, members


@pytest.mark.parametrize("rank", range(4))
def test_a_log_without_init_lines_is_the_rank_that_lacks(
    rank: int, tmp_path: Path, db_path: Path
) -> None:
    whole = tmp_path / "whole.db"
    collscope("ingest", "log", DDP, "--db", whole)
    done = collscope("ingest", "log", damaged(tmp_path / "logs", rank), "--db", db_path)
    assert counts(db_path) == counts(whole)
    assert rows(db_path, "SELECT matched_by FROM communicators") == [("commId",)]
    assert "rank_by_calls" in done.out
    query = "SELECT severity, count FROM diagnostics WHERE code = 'rank_by_calls'"
    assert rows(db_path, query) == [("notice", 1)]
    assert rows(whole, query) == []


def test_two_logs_without_init_lines_could_be_either_rank(tmp_path: Path, db_path: Path) -> None:
    collscope("ingest", "log", damaged(tmp_path / "logs", 1, 3), "--db", db_path)
    assert rows(db_path, "SELECT matched_by FROM communicators ORDER BY 1") == [
        ("commId",), ("inferred",),
    ]  # fmt: skip


def test_lines_of_a_kernel_trace_that_stand_there_again(tmp_path: Path, db_path: Path) -> None:
    lines = KLKE.read_text().splitlines(keepends=True)
    path = tmp_path / "again.log"
    # From the second third on, as a writer that resumed from its last checkpoint.
    path.write_text("".join(lines[: len(lines) // 2] + lines[len(lines) // 3 :]))
    whole = tmp_path / "whole.db"
    collscope("ingest", "log", KLKE, "--db", whole)
    collscope("ingest", "log", path, "--db", db_path)
    assert counts(db_path) == counts(whole)
    kernels = "SELECT name, start_ns, duration_ns FROM kernels ORDER BY 1, 2"
    assert rows(db_path, kernels) == rows(whole, kernels)
    codes = "SELECT code, count FROM diagnostics WHERE code <> 'counted_once' ORDER BY 1"
    assert rows(db_path, codes) == rows(whole, codes)
    again = "SELECT SUM(count) FROM diagnostics WHERE code = 'counted_once'"
    assert rows(db_path, again) == [(4,)]
    assert rows(whole, again) == [(None,)]


_CALL = (
    "n1:7:7 [0] NCCL INFO AllReduce: opCount {:x} sendbuff 0x7f00 recvbuff 0x7f80 count 64 datatype"
    " 7 op 0 root 0 comm 0xabc0 [nranks=1] stream 0x10\n"
)


@pytest.mark.parametrize(
    ("numbers", "calls"),
    [
        ([0, 1, 2, 3, 4, 2, 3, 4, 5], 6),  # lines 2 to 4 again
        ([0, 1, 2, 2, 3], 5),  # a group of two calls
        ([0, 1, 2, 0, 1, 2], 6),  # perhaps another communicator with the pointer of the first
        ([3, 3, 3, 3], 4),  # opCount does not count
        ([0, 2, 4, 3, 5], 5),  # it goes back, and not to a line that was there
    ],
)
def test_calls_whose_count_goes_back(
    numbers: list[int], calls: int, tmp_path: Path, db_path: Path
) -> None:
    path = tmp_path / "one.log"
    path.write_text("".join(map(_CALL.format, numbers)))
    collscope("ingest", "log", path, "--db", db_path)
    assert rows(db_path, "SELECT COUNT(*) FROM calls") == [(calls,)]
    query = "SELECT SUM(count) FROM diagnostics WHERE code = 'counted_once'"
    assert rows(db_path, query) == [(len(numbers) - calls or None,)]


def test_an_unknown_datatype_is_no_lost_line(tmp_path: Path, db_path: Path) -> None:
    for log in DDP.glob("*.log"):
        text = re.sub(r"datatype \d+", "datatype 99", log.read_text())
        (tmp_path / log.name).write_text(text)
    collscope("ingest", "log", *sorted(tmp_path.glob("*.log")), "--db", db_path)
    codes = "SELECT code, severity, SUM(count) FROM diagnostics WHERE code NOT LIKE '%_line'"
    assert rows(db_path, f"{codes} GROUP BY 1") == [("unknown_datatype", "notice", 4 * 116)]
    assert "\n116 calls in 13 classes, sizes not known" in collscope("report", "--db", db_path).out


def test_lines_that_only_some_logs_have_are_not_called_lost(tmp_path: Path, db_path: Path) -> None:
    for k, log in enumerate(sorted(DDP.glob("*.log"))):
        lines = log.read_text().splitlines(keepends=True)
        # opCount is 0 in all of them: whether the calls were made twice is not known.
        middle = len(lines) // 2
        (tmp_path / log.name).write_text("".join(lines[:middle] + lines[middle - 20 * (k > 0) :]))
    collscope("ingest", "log", *sorted(tmp_path.glob("*.log")), "--db", db_path)
    report = " ".join(collscope("report", "--db", db_path).out.split())
    assert "that the logs of other ranks have" in report
    assert "missing" not in report.partition("Findings")[2].partition("Share of GPU time")[0]
