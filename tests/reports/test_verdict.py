"""The verdict in every format: first, at most ten lines, with commands that run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from command import collscope
from msgspec.structs import replace

from collscope.reports.rendering.cause_words import advice, evidence, kernel
from collscope.reports.report.answer import Finding
from collscope.reports.verdict.answer import (
    CODES,
    Answer,
    MsPerStep,
    StepSummary,
    VerdictEntry,
)
from collscope.reports.verdict.problems_text import with_problems
from collscope.reports.verdict.text import entries, section
from collscope.timeline.step_causes.records import Cause, Cost, Evidence


@pytest.fixture
def traced(samples: Path, tmp_path: Path) -> Path:
    db = tmp_path / "t.db"
    assert collscope("ingest", "trace", samples / "traces" / "ringll", "--db", db).code == 0
    return db


def _lines(text: str) -> list[str]:
    return text.splitlines()[2:]  # without the title


def test_brief_prints_at_most_ten_lines(traced: Path) -> None:
    for fmt in ("text", "md"):
        got = collscope("report", "--db", traced, "--brief", "--format", fmt)
        assert got.code == 0
        assert "SLOW SETTING" in got.out
    text = collscope("report", "--db", traced, "--brief").out
    assert len(_lines(text)) <= 10
    assert collscope("report", "--db", traced).out.splitlines()[2:8] == _lines(text)[:6]


def test_json_has_the_verdict_and_never_an_empty_one(
    traced: Path, samples: Path, tmp_path: Path
) -> None:
    body = json.loads(collscope("report", "--db", traced, "--format", "json").out)
    (entry,) = body["verdict"]
    fields = ["cause", "certainty", "ranks", "where", "ms_per_step", "evidence", "advice"]
    assert list(entry) == fields
    assert list(entry["ms_per_step"]) == ["value", "low", "high"]
    assert entry["cause"] in CODES
    logs = tmp_path / "logs.db"
    assert collscope("ingest", "log", samples / "nccl" / "mixed", "--db", logs).code == 0
    (entry,) = json.loads(collscope("report", "--db", logs, "--format", "json").out)["verdict"]
    assert entry["cause"] == "unknown"
    assert "torch.profiler" in entry["advice"]


def test_the_page_begins_with_the_verdict(traced: Path) -> None:
    page = collscope("report", "--db", traced, "--format", "html").out
    assert (
        0
        < page.index("A setting slows down collectives (likely)")
        < page.index("Share of the traced time")
    )


def test_the_command_that_a_verdict_prints_runs(
    traced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = collscope("report", "--db", traced, "--brief").out
    (line,) = [line for line in text.splitlines() if "collscope export" in line]
    lead, command = line.split(": ", 1)
    assert lead == "To see it on a timeline, in ui.perfetto.dev"
    program, *words = shlex.split(command)
    assert program == "collscope"
    got = collscope(*words)
    assert got.code == 0, got.err
    assert (tmp_path / "trace.json.gz").stat().st_size


def test_the_step_time_must_be_one(traced: Path) -> None:
    assert collscope("report", "--db", traced, "--brief", "--step-ms", "0").code == 2


def test_a_given_step_time_is_shown_and_not_asked_for(traced: Path) -> None:
    asks = "Measure the step time without the profiler"
    assert asks in " ".join(collscope("report", "--db", traced).out.split())
    told = " ".join(collscope("report", "--db", traced, "--step-ms", "5.5").out.split())
    assert "on rank 2, the slowest), and 5.5 ms without it, as given. Steps were found by" in told
    # Each rank's trace holds three turns of the loop: two steps from one end to the next.
    assert "mean of 2 steps" in told
    assert "so the first is not counted." in told
    assert asks not in told


def test_of_two_ranks_a_cause_names_the_other_one() -> None:
    step = StepSummary(60.0, None, 3, 2, 2, False, "host", 71.2, "collscope export perfetto")
    shown = Evidence("extra_kernels", "gemm", count=133.0, usual=73.0, ms=10.3)
    work = Cause("extra_work", True, (1,), "kernels", Cost(10.5, 8.0, 13.1), shown)
    words = (
        "In each step rank 1 runs gemm 133 times, {} rank 73 times. All extra kernels of rank 1 "
        "run 10.3 ms a step; the saving is simulated and can differ."
    )
    (two,) = entries(Answer(step, (work,)))
    assert two.evidence.startswith(words.format("the other"))
    (four,) = entries(Answer(replace(step, ranks=4, world=4), (work,)))
    assert four.evidence.startswith(words.format("another"))


def test_hosts_that_bound_a_step_are_not_nothing_to_fix() -> None:
    # under the profiler alone nobody knows whether the hosts are the limit without it, too
    step = StepSummary(7.6, None, 3, 1, 1, True, "host", 100.0, "collscope export perfetto")
    (entry,) = entries(Answer(step))
    assert (entry.cause, entry.certainty) == ("none", "likely")
    assert "--step-ms" in entry.advice
    assert "Nothing to fix" not in entry.advice
    (entry,) = entries(Answer(replace(step, given_ms=7.5)))
    assert entry.certainty == "certain"


def test_the_first_line_names_the_largest_part_of_the_critical_path() -> None:
    step = StepSummary(60.0, 40.0, 3, 2, 2, False, "host", 71.2, "collscope export perfetto")
    blocks = section(entries(Answer(step)), step).blocks
    assert blocks[0] == (
        "NOTHING STANDS OUT  60 ms a step as recorded; 71 % of its critical path is host work."
    )
    # 60 ms recorded, 40 without the profiler
    assert "makes up 33 % of that step, so without it" in str(blocks[1])
    unknown = replace(step, bound=None, bound_percent=None)
    assert "what bounds it is not known" in str(
        section(entries(Answer(unknown)), unknown).blocks[0]
    )


def test_a_pause_of_one_step_asks_for_more_steps() -> None:
    step = StepSummary(60.0, None, 3, 2, 2, False, "host", 71.2, "collscope export perfetto")
    shown = Evidence("pauses", count=1, ms=13.0, usual=3, after="a", before="b", detail="0")
    pause = Cause("periodic", False, (1,), "launch", Cost(4.0, 0.0, 6.5), shown)
    (entry,) = entries(Answer(step, (pause,)))
    assert entry.where == "before b, after a"
    assert entry.evidence == (
        "In 1 of 3 steps, rank 1's host took 13 ms longer than rank 0's between launching a and b. "
        "A host that waits for a data loader waits longer without the profiler. It may cost "
        "nothing: one step does not show that it recurs. Trace more steps."
    )
    (entry,) = entries(Answer(step, (replace(pause, evidence=replace(shown, count=2)),)))
    assert "Trace more steps" not in entry.evidence


def test_a_cause_that_may_cost_nothing_has_the_reason() -> None:
    step = StepSummary(60.0, None, 3, 2, 2, False, "host", 71.2, "collscope export perfetto")
    shown = Evidence("host_gaps", ms=9.0, usual=25.0, after="a", before="b", detail="0")
    late = Cause("late_host", False, (1,), "launch", Cost(7.9, 0.0, 10.0), shown)

    def words(cause: Cause, of: StepSummary = step) -> str:
        return entries(Answer(of, (cause,)))[0].evidence

    assert words(late).startswith(
        "In one step, rank 1's host took 25 ms longer than rank 0's between launching a and b; all "
        "such gaps together take 9 ms longer, on average over the steps."
    )
    assert words(late).endswith(
        "It may cost nothing: without the profiler, GPU work may hide the gap. "
        "Pass --step-ms to find out."
    )
    work = Cause(
        "extra_work", False, (1,), "kernels", Cost(4.0, 0.0, 5.0), Evidence("extra_kernels")
    )
    assert "without the profiler, slow hosts may hide it" in words(work)
    given = words(late, replace(step, given_ms=50.0))
    assert given.endswith("It may cost nothing: two starts of a job may differ by as much.")
    above = Cause("late_host", False, (1,), "launch", Cost(7.9, 0.1, 10.0), shown)
    assert "may cost nothing" not in words(above)
    assert words(replace(late, certain=True)).endswith(
        "Another start may not show it: two starts of a job may differ by as much."
    )


def test_calls_of_unknown_size_leave_slow_collectives_open() -> None:
    step = StepSummary(
        60.0, None, 3, 2, 2, False, "compute", 71.2, "collscope export perfetto",
        sizes_unknown=True,
    )  # fmt: skip
    (entry,) = entries(Answer(step))
    assert entry.certainty == "likely"
    assert "Trace with CPU activities to record them" in entry.advice
    assert "Nothing to fix" not in entry.advice


def test_nothing_to_fix_is_not_written_beside_a_problem() -> None:
    step = StepSummary(60.0, 50.0, 3, 2, 2, False, "compute", 71.2, "collscope export perfetto")
    verdict = entries(Answer(step))
    assert verdict[0].advice.startswith("Nothing to fix. ")

    def beside(code: str, severity: str) -> VerdictEntry:
        (entry,) = with_problems(verdict, [Finding(severity, code, "a title", "", "")])
        return entry

    assert beside("few_samples", "warning") == verdict[0]
    sockets = beside("internode_socket", "problem")
    assert (sockets.cause, sockets.certainty) == ("none", "certain")
    assert sockets.advice == (
        "The findings show: a title. The report shows what faster collectives would save."
    )
    for severity in ("problem", "warning"):  # a warning, where logs alone show it
        stopped = beside("ranks_stopped", severity)
        assert (stopped.cause, stopped.certainty) == ("none", "likely")
        assert "collscope hang PATH" in stopped.advice
        assert "Nothing to fix" not in stopped.advice


def test_three_causes_take_ten_lines() -> None:
    entry = VerdictEntry(
        "late_host", "likely", (1,), "before a", MsPerStep(4.9, 0.0, 7.0), "A gap.", "Find it."
    )
    step = StepSummary(60.0, None, 3, 2, 2, False, "host", 70.0, "collscope export perfetto")
    blocks = section((entry,) * 3, step).blocks
    lines = sum(1 if isinstance(block, str) else 1 + len(block.lines) for block in blocks)  # type: ignore[union-attr]
    assert lines <= 10


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, std::array<char*, 2>>(int)",
         "vectorized_elementwise_kernel"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("nvjet_tst_128x256", "nvjet_tst_128x256"),
        ("a" * 41, "a" * 39 + "~"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_kernel_is_named_without_its_types(name: str, short: str) -> None:
    assert kernel(name) == short


@pytest.mark.parametrize(
    ("shown", "sentence", "remedy"),
    [
        (Evidence("polls", count=10), "waits 10 times a step", "TORCH_NCCL_BLOCKING_WAIT"),
        (Evidence("blocking_launches", count=850), "850 launches", "CUDA_LAUNCH_BLOCKING"),
        (Evidence("blocking_calls", "COPY", 2, ms=68), "2 copies to the host", "Read GPU values"),
        (Evidence("blocking_calls", "COPY", 2, ms=68), "pauses for 68 ms", "Read GPU values"),
    ],
)
def test_what_makes_hosts_wait_decides_what_to_do(
    shown: Evidence, sentence: str, remedy: str
) -> None:
    cause = Cause("blocking_sync", True, (), "calls", Cost(5.0, 4.0, 6.0), shown)
    assert sentence in evidence(cause)
    assert remedy in advice(cause)


def test_copies_that_a_host_does_not_pause_behind_have_no_pause() -> None:
    shown = Evidence("blocking_calls", "STREAM_SYNC", 9)
    cause = Cause("blocking_sync", True, (), "calls", Cost(5.0, 4.0, 6.0), shown)
    assert "pauses" not in evidence(cause)
