"""One verdict for a hang: collscope's own recorder, NCCL's Inspector, NCCL's diagnostics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from inputs import ROOT
from msgspec.structs import replace
from test_sources import named, of_files, status, write_log

from collscope.hang.collect import evidence_of
from collscope.hang.judge import judge
from collscope.hang.recorders import recorder_evidence
from collscope.model import Datatype, Diagnostic, Op, Severity
from collscope.model.trace import RecordedCall, RecordedCalls, TraceCollective
from collscope.reports.hang.text import render_hang

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from collscope.hang.records import Evidence

WORLD, TP = "0xa", "0xb"
TURN = [(WORLD, Op.ALL_REDUCE, 64), (TP, Op.ALL_GATHER, 16), (WORLD, Op.BROADCAST, 8)]
Step = tuple[str, Op, int]


def recording(rank: int, steps: Sequence[Step], *codes: str) -> RecordedCalls:
    """Of one of four ranks, of which two and two are in a group."""
    calls = [
        RecordedCall(
            collective=TraceCollective(
                op=op, datatype=Datatype.FLOAT32, in_count=count, out_count=None,
                group=f"{group}{rank // 2}" if group == TP else group,
                group_size=2 if group == TP else 4, root=0 if op is Op.BROADCAST else None,
                peer=None if op is not Op.SEND else rank ^ 1,
            ),
            seq=None,
            start_ns=place,
            group_rank=rank % 2 if group == TP else rank,
        )
        for place, (group, op, count) in enumerate(steps)
    ]  # fmt: skip
    return RecordedCalls(
        dialect="own_recorder", calls=tuple(calls), rank=rank, host="node", pid=100 + rank,
        diagnostics=tuple(Diagnostic(Severity.NOTICE, code, "") for code in ("no_end", *codes)),
    )  # fmt: skip


def files(of: dict[int, RecordedCalls]) -> list[tuple[str, RecordedCalls]]:
    return [(f"node.{100 + rank}.0.0.collrec", calls) for rank, calls in of.items()]


def only(found: list[Evidence]) -> Evidence:
    (one,) = found
    return one


def verdict_of(of: dict[int, RecordedCalls]) -> tuple[list[int], tuple[str, ...]]:
    return named(judge(list(recorder_evidence(files(of)))))


@pytest.mark.parametrize("guilty", [1, 3])
def test_a_rank_that_made_no_more_calls(guilty: int) -> None:
    of = {rank: recording(rank, TURN * 8 + TURN[:1]) for rank in range(4)}
    of[guilty] = recording(guilty, TURN * 8)
    assert verdict_of(of) == ([guilty], ("host_never_called",))


def test_a_rank_that_called_another_size() -> None:
    of = {rank: recording(rank, TURN * 8) for rank in range(4)}
    of[2] = recording(2, [*TURN * 7, (WORLD, Op.ALL_REDUCE, 65), *TURN[1:]])
    found = verdict_of(of)
    assert found[0] == [2]
    assert "different_call" in found[1]


def test_a_job_that_ended_names_nobody() -> None:
    assert verdict_of({rank: recording(rank, TURN * 8) for rank in range(4)}) == ([], ())


@pytest.mark.parametrize("code", ["not_launched", "torn"])
def test_a_rank_whose_last_call_may_not_be_in_the_file_is_not_named(code: str) -> None:
    of = {rank: recording(rank, TURN * 8 + TURN[:1]) for rank in range(4)}
    of[1] = recording(1, TURN * 8, code)
    if code == "torn":
        lost = Diagnostic(Severity.DATA_LOSS, "torn_record", "")
        of[1] = RecordedCalls("own_recorder", of[1].calls, 1, diagnostics=(lost,))
    assert verdict_of(of) == ([], ())


def test_the_files_of_a_process_are_one() -> None:
    parts = files({rank: recording(rank, TURN * 8 + TURN[:1]) for rank in (0, 2, 3)})
    of = replace(recording(1, TURN * 4), process="node.101.0")
    parts += [("node.101.0.1.collrec", replace(of, part=1)), ("node.101.0.0.collrec", of)]
    found = only(list(recorder_evidence(parts)))
    assert [len(rank.calls) for rank in found.ranks] == [25, 24, 25, 25]
    assert [one.rank for one in judge([found]).who] == [1]
    # Without its first file the numbers of its calls are not known.
    assert only(list(recorder_evidence(parts[:4]))).damaged == (1,)


def test_files_of_the_recorder_and_logs_that_contradict_them(tmp_path: Path) -> None:
    for path in (ROOT / "samples/recorders").glob("*.collrec"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    verdict = judge(evidence_of([str(tmp_path)]))
    assert len(verdict.sources) == 2
    assert verdict.who == ()
    for rank in range(4):
        write_log(tmp_path, rank, [("AllReduce", 64, 0)] * (7 if rank == 3 else 8))
    of = {rank: recording(rank, TURN * 8 + TURN[: rank != 1]) for rank in range(4)}
    both = [*evidence_of([str(tmp_path / f"nccl.{rank}.log") for rank in range(4)])]
    both += recorder_evidence(files(of))
    verdict = judge(both)
    assert (verdict.who, verdict.candidates) == ((), (1, 3))


def test_inspector_has_no_record_of_a_call_that_hangs(tmp_path: Path) -> None:
    for rank in range(4):
        header = {"id": "0xa", "rank": rank, "n_ranks": 4, "nnodes": 1}
        lines = [
            json.dumps({
                "header": header,
                "metadata": {"inspector_output_format_version": "v4.0", "hostname": "node",
                             "pid": rank + 1},
                "coll_perf": {"coll": "AllReduce", "coll_sn": n, "coll_msg_size_bytes": 64},
            })
            for n in range(1, 9 - (rank == 2))
        ]  # fmt: skip
        (tmp_path / f"node-pid{rank}.log").write_text("\n".join(lines) + "\n")
    (found,) = evidence_of([str(tmp_path)])
    assert (found.kind, [len(rank.calls) for rank in found.ranks]) == ("inspector", [8, 8, 7, 8])
    # Each process writes its records in its own time.
    assert judge([found]).who == ()


DIAG = (
    "node042:7 NCCL DIAG === RAS Diagnostics ===\n"
    "node042:7 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 8 ranks in comm 0x1\n"
    "node042:7 NCCL DIAG [INFO] NVLink: unavailable via NVML across 8 ranks in comm 0x1\n"
    "node042:7 NCCL DIAG [INFO] Xid 79 detected 1 time on host node042. Restart the affected app.\n"
    "node042:7 NCCL DIAG RAS diagnostics completed in 12.3 ms across 8 RAS peers\n"
)


def test_what_the_diagnostics_found_is_shown_and_names_nobody(tmp_path: Path) -> None:
    (tmp_path / "diag.txt").write_text(DIAG)
    verdict = judge(evidence_of([str(tmp_path)]))
    assert verdict.who == ()
    assert verdict.remarks == ("Xid 79 detected 1 time on host node042. Restart the affected app.",)
    assert "Also reported: Xid 79 detected" in render_hang(verdict, "text")
    lines = "".join(status(rank, 25, 22) for rank in range(3)) + status(3, 22, 22)
    (tmp_path / "stderr.txt").write_text(lines)
    assert of_files(tmp_path) == ([3], ("host_never_called",))
