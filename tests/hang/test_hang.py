"""One verdict for a hang, from the flight recorder's dumps."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from command import collscope
from flight_dumps import BEGIN, SECOND, save_dump
from inputs import ROOT

from collscope.errors import InputError
from collscope.hang.collect import evidence_of
from collscope.hang.judge import judge
from collscope.reports.hang.text import render_hang

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from collscope.hang.records import Verdict

GROUPS = {"world": (0, 1, 2, 3), "tp": (0, 1), "tp2": (2, 3)}

Step = tuple[str, str, int]  # group, operation, elements


def turn(rank: int) -> list[Step]:
    tp = "tp" if rank < 2 else "tp2"
    return [(tp, "all_reduce", 64), ("world", "all_reduce", 128), (tp, "_all_gather_base", 32)]


def loop(rank: int, turns: int = 8) -> list[Step]:
    return turn(rank) * turns


def write(folder: Path, rank: int, steps: Sequence[Step], done: int, late_s: int = 60) -> None:
    """Dump of a rank that made these calls, of which so many completed."""
    numbers: dict[str, int] = {}
    entries: list[dict[str, Any]] = []
    for place, (group, op, count) in enumerate(steps):
        numbers[group] = numbers.get(group, 0) + 1
        entries.append({
            "record_id": place,
            "pg_id": list(GROUPS).index(group),
            "process_group": [group, "x"],
            "collective_seq_id": numbers[group],
            "p2p_seq_id": 0,
            "op_id": numbers[group],
            "profiling_name": f"nccl:{op}",
            "time_created_ns": BEGIN + place * SECOND // 1000 + rank,
            "input_sizes": [[count]],
            "input_dtypes": ["Float"],
            "output_sizes": [[count * (len(GROUPS[group]) if "gather" in op else 1)]],
            "output_dtypes": ["Float"],
            "state": "completed" if place < done else "scheduled",
            "timeout_ms": 8000,
            "is_p2p": False,
            "frames": [{"name": "step", "filename": "train.py", "line": 7}],
        })  # fmt: skip
    save_dump(folder, rank, GROUPS, entries, late_s)


def verdict(folder: Path) -> Verdict:
    found = judge(evidence_of([str(folder)]))
    *_, last = lines = render_hang(found, "text").splitlines()
    assert len(lines) <= 10
    assert last.startswith("What to do: ")
    return found


@pytest.mark.parametrize("decided", [True, False])
def test_the_forms_of_a_verdict(tmp_path: Path, decided: bool) -> None:
    for rank in range(4):
        write(tmp_path, rank, loop(rank), 22 if rank == 2 and decided else 24)
    answers = {}
    for fmt in ("json", "md", "html", "text"):
        ran = collscope("hang", tmp_path, "--format", fmt)
        assert ran.code == (0 if decided else 4)
        answers[fmt] = ran.out
    document = json.loads(answers["json"])
    jsonschema.validate(document, json.loads((ROOT / "schemas/hang.schema.json").read_text()))
    assert [one["rank"] for one in document["who"]] == ([2] if decided else [])
    for fmt in ("md", "html", "text"):
        assert ("rank 2 still has the call open" in answers[fmt]) == decided


def who(found: Verdict) -> list[int]:
    return [one.rank for one in found.who]


def test_a_rank_that_stops_calling_is_named_and_those_behind_it_wait(tmp_path: Path) -> None:
    # Rank 1 stops after the world's call 8; rank 0 waits for it in tp, ranks 2, 3 for rank 0.
    write(tmp_path, 1, loop(1)[:-1], 23)
    write(tmp_path, 0, loop(0), 23)
    for rank in (2, 3):
        write(tmp_path, rank, [*loop(rank), *turn(rank)], 25)
    found = verdict(tmp_path)
    # Rank 1 has no open call and made no call 9 of world either; rank 0 owes it too, but waits.
    assert (who(found), found.what) == ([1], ("host_never_called",))
    assert found.waiting.ranks == 3
    assert found.frames == ("step train.py:7",)


def test_a_rank_whose_gpu_does_not_end_what_its_peers_ended(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, loop(rank), 22 if rank == 2 else 24)
    found = verdict(tmp_path)
    assert (who(found), found.what, found.seq) == ([2], ("gpu_not_finished",), 8)


@pytest.mark.parametrize("empty", [True, False])
def test_a_rank_that_wrote_nothing(tmp_path: Path, empty: bool) -> None:
    for rank in (0, 1, 2):
        write(tmp_path, rank, [*loop(rank), *turn(rank)], 25)
    if empty:
        (tmp_path / "dump_3").touch()
    found = verdict(tmp_path)
    assert (who(found), found.what) == ([3], ("silent",))


@pytest.mark.parametrize(
    ("last", "what"),
    [
        ([("tp", "all_reduce", 999), *turn(1)[1:]], "different_call"),
        ([("tp", "_all_gather_base", 64), *turn(1)[1:]], "different_call"),
        ([turn(1)[1], turn(1)[0], turn(1)[2]], "different_order"),
        ([turn(1)[2], *turn(1)], "extra_call"),
        ([*turn(1)[1:], *turn(1)], "host_never_called"),
    ],
)
def test_the_rank_that_leaves_its_pattern(tmp_path: Path, last: list[Step], what: str) -> None:
    for rank in (0, 2, 3):
        write(tmp_path, rank, [*loop(rank), *turn(rank)], 24)
    write(tmp_path, 1, [*loop(1), *last], 24)
    found = verdict(tmp_path)
    assert who(found) == [1]
    assert what in found.what


def test_no_rank_is_named_without_a_pattern(tmp_path: Path) -> None:
    write(tmp_path, 0, [("tp", "all_reduce", 64)], 0)
    write(tmp_path, 1, [("tp", "all_reduce", 65)], 0)
    found = verdict(tmp_path)
    assert (found.decided, found.candidates) == (False, (0, 1))


def test_dumps_of_a_job_that_runs_name_nobody(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, loop(rank), 22 if rank == 2 else 24, late_s=1)
    assert who(verdict(tmp_path)) == []


def test_a_damaged_dump_names_nobody(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, loop(rank), 24 if rank == 1 else 21)
    path = tmp_path / "dump_1"
    undamaged = path.read_bytes()
    for end in range(1, len(undamaged) - 1, 97):
        path.write_bytes(undamaged[:end])
        assert who(verdict(tmp_path)) == []


def test_a_folder_without_dumps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass\n")
    with pytest.raises(InputError, match="nothing that shows a hang"):
        evidence_of([str(tmp_path)])


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("hang-hostsleep", "host_never_called"),
        ("hang-size", "different_call"),
        ("hang-exit", "silent"),
    ],
)
def test_the_recorded_hangs(corpus: Path, case: str, what: str) -> None:
    found = verdict(corpus.parent / "recordings" / "h200x2-causes" / case / "fr")
    assert (who(found), found.what, found.op, found.seq) == ([1], (what,), "AllReduce", 42)


def test_the_injected_hang_of_sixteen_ranks(corpus: Path) -> None:
    folder = corpus / "wild-2026-11" / "fr-culprit-not-named" / "lock_gil_1st"
    assert who(verdict(folder)) == [9, 14]


@pytest.mark.parametrize("decided", [True, False])
def test_a_stored_run_gives_the_verdict_of_its_files(tmp_path: Path, decided: bool) -> None:
    dumps, db = tmp_path / "dumps", tmp_path / "a.db"
    dumps.mkdir()
    for rank in range(4):
        write(dumps, rank, loop(rank), 22 if rank == 2 and decided else 24)
    assert collscope("ingest", "auto", dumps, "--db", db, "--run", "mine").code == 0
    of_files = collscope("hang", dumps, "--format", "json")
    of_run = collscope("hang", "--run", "mine", "--db", db, "--format", "json")
    assert (of_run.code, of_run.out) == (of_files.code, of_files.out)


@pytest.mark.parametrize("late_s", [60, 1])
def test_the_report_names_whom_the_command_names(tmp_path: Path, late_s: int) -> None:
    dumps, db = tmp_path / "dumps", tmp_path / "a.db"
    dumps.mkdir()
    for rank in range(4):
        steps = loop(rank)[: 22 if rank == 2 else None]
        write(dumps, rank, steps, 22 if rank > 1 else 23, late_s)
    assert collscope("ingest", "auto", dumps, "--db", db).code == 0
    report = json.loads(collscope("report", "--db", db, "--format", "json").out)
    of_run = json.loads(collscope("hang", "--run", "main", "--db", db, "--format", "json").out)
    codes = {finding["code"]: finding for finding in report["findings"]}
    if late_s == 60:
        assert report["hang"] == of_run
        assert "rank 2 did not make the call" in codes["hang"]["title"]
        assert not codes.keys() & {"ranks_stopped", "ranks_open"}
    else:  # the job runs: what the ranks differ in is listed, and nobody is named
        assert (report["hang"], of_run["who"]) == (None, [])
        assert "hang" not in codes
        assert codes.keys() & {"ranks_stopped", "ranks_open"}


def test_a_damaged_dump_of_a_store_names_nobody(tmp_path: Path) -> None:
    dumps, db = tmp_path / "dumps", tmp_path / "a.db"
    dumps.mkdir()
    for rank in range(4):
        write(dumps, rank, loop(rank), 22 if rank == 2 else 24)
    path = dumps / "dump_2"
    path.write_text(path.read_text()[:-300])
    assert collscope("ingest", "auto", dumps, "--db", db).code == 0
    of_run = collscope("hang", "--run", "main", "--db", db)
    assert (of_run.code, "Damaged and not used: rank 2." in of_run.out) == (4, True)
    assert of_run.out == collscope("hang", dumps).out


def test_runs_without_dumps_and_no_run(tmp_path: Path, samples: Path) -> None:
    db = tmp_path / "a.db"
    assert collscope("ingest", "log", samples / "nccl" / "mixed", "--db", db).code == 0
    none = collscope("hang", "--run", "main", "--db", db)
    assert (none.code, "no dumps of the flight recorder" in none.err) == (3, True)
    assert collscope("hang", "--run", "other", "--db", db).code == 3
    assert collscope("hang", samples, "--run", "main", "--db", db).code == 2


def hung(folder: Path, late_s: int = 60) -> Path:
    """Dumps of a job whose rank 2 makes no further call; it still runs where they came at once."""
    folder.mkdir()
    for rank in range(4):
        write(folder, rank, loop(rank)[: 22 if rank == 2 else None], 22 if rank > 1 else 23, late_s)
    return folder


@pytest.mark.parametrize("traces", ["", "traces/default", "traces/ringll"])
def test_the_verdict_of_a_report_begins_with_the_hang(
    tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch, traces: str
) -> None:
    db = tmp_path / "a b.db"
    files = [hung(tmp_path / "dumps"), *([samples / traces] if traces else [])]
    monkeypatch.chdir(tmp_path)
    assert collscope("ingest", "auto", *files, "--db", db, "--run", "my run").code == 0
    report = ("report", "my run", "--db", db)
    brief = collscope(*report, "--brief").out
    assert "Nothing to fix" not in brief
    assert "torch.profiler" not in brief
    body = brief.splitlines()[2:]
    assert body[0].startswith("HANG  The recordings of this run show a hang (certain): rank 2 did")
    assert len(body) <= 10
    (line,) = [line for line in body if ": collscope hang" in line]
    program, *words = shlex.split(line.partition(": ")[2])
    verdict = collscope(*words)
    assert (program, verdict.code) == ("collscope", 0)
    assert verdict.out.startswith("Verdict: rank 2 did not make the call")
    record = json.loads(collscope(*report, "--format", "json").out)
    assert [entry["cause"] for entry in record["verdict"]] == (
        ["unknown", "slow_setting"] if traces == "traces/ringll" else ["unknown"]
    )
    assert record["step"]["hang"] == shlex.join(["collscope", *words])
    assert "The recordings of this run show a hang" in record["verdict"][0]["evidence"]
    whole = collscope(*report).out
    assert whole.splitlines()[2 : 2 + len(body)] == body
    assert "The job hangs" in collscope(*report, "--format", "html").out


def test_the_verdict_of_a_job_that_may_hang_is_not_certain(tmp_path: Path, samples: Path) -> None:
    db, dumps = tmp_path / "a.db", hung(tmp_path / "dumps", late_s=1)

    def entry(run: str, *files: Path) -> dict[str, Any]:
        assert collscope("ingest", "auto", *files, "--db", db, "--run", run).code == 0
        report = json.loads(collscope("report", run, "--db", db, "--format", "json").out)
        assert (report["hang"], report["step"]["hang"]) == (None, None)
        (only,) = report["verdict"]
        return dict(only)

    healthy = entry("healthy", samples / "traces" / "default")
    assert (healthy["cause"], healthy["certainty"]) == ("none", "certain")
    assert healthy["advice"].startswith("Nothing to fix.")
    stopped = entry("stopped", samples / "traces" / "default", dumps)
    assert (stopped["cause"], stopped["certainty"]) == ("none", "likely")
    assert "Nothing to fix" not in stopped["advice"]
    alone = entry("alone", dumps)
    assert alone["cause"] == "unknown"
    for found in (stopped, alone):
        assert found["advice"].startswith("The findings show: collectives called but not completed")
        assert "collscope hang PATH" in found["advice"]
