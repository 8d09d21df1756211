"""Jobs written by hand, each with its right verdict: hangs, and jobs that were healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flight_dumps import BEGIN, SECOND, save_dump
from msgspec.structs import replace
from test_sources import TURN, answer, named, status, write_log

from collscope.hang.collect import evidence_of
from collscope.hang.judge import judge
from collscope.hang.records import Verdict, Waiting, Who
from collscope.reports.hang.text import render_hang

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Step = tuple[str, str, int]  # group, operation or "send 0->1", elements
Groups = dict[str, tuple[int, ...]]


def write_dump(
    folder: Path, rank: int, groups: Groups, steps: Sequence[Step], done: int, late_s: int = 60
) -> None:
    numbers: dict[tuple[str, bool], int] = {}
    entries: list[dict[str, Any]] = []
    for place, (group, op, count) in enumerate(steps):
        transfer = "->" in op or "<-" in op
        number = numbers[group, transfer] = numbers.get((group, transfer), 0) + 1
        entries.append({
            "record_id": place, "pg_id": list(groups).index(group),
            "process_group": [group, "undefined"],
            "collective_seq_id": numbers.get((group, False), 0),
            "p2p_seq_id": number if transfer else 0,
            "op_id": sum(made for key, made in numbers.items() if key[0] == group),
            "profiling_name": f"nccl:{op}", "time_created_ns": BEGIN + place * SECOND // 1000,
            "input_sizes": [[count]], "input_dtypes": ["Float"], "output_sizes": [[count]],
            "output_dtypes": ["Float"], "state": "completed" if place < done else "started",
            "timeout_ms": 8000, "is_p2p": transfer,
            "frames": [{"name": f"step_of_rank_{rank}", "filename": "train.py", "line": 7}],
        })  # fmt: skip
    save_dump(folder, rank, groups, entries, late_s)


def judged(folder: Path) -> tuple[Verdict, str]:
    found = judge(evidence_of([str(folder)]))
    text = render_hang(found, "text")
    assert len(text.splitlines()) <= 10
    return found, text


HOSTS: Groups = {"0": tuple(range(8)), "1": (0, 1, 2, 3), "2": (4, 5, 6, 7)}


def test_a_rank_stops_in_the_communicator_of_its_host(tmp_path: Path) -> None:
    for rank in range(8):
        own = "1" if rank < 4 else "2"
        turn = [(own, "all_reduce", 64), ("0", "all_reduce", 8)]
        # Ranks 4, 6, 7 wait for rank 5 in their host's group, the other host in the world's.
        made = {5: turn * 5}.get(rank, turn * 6 if rank < 4 else [*turn * 5, turn[0]])
        write_dump(tmp_path, rank, HOSTS, made, 11 if rank < 4 else 10)
    found, text = judged(tmp_path)
    assert named(found) == ([5], ("host_never_called",))
    # The first call that it owes, though it owes the world's call 6, too.
    assert (found.group, found.seq) == ("2 [4, 5, 6, 7]", 6)
    assert found.waiting.which == (0, 1, 2, 3, 4, 6, 7)
    assert "Waiting: ranks 0 to 4, 6, 7 (7 ranks), in calls of group " in text
    # It is the code of a rank that waits: rank 5 made no call.
    assert found.frames_rank in (4, 6, 7)
    assert found.frames == (f"step_of_rank_{found.frames_rank} train.py:7",)
    assert f"Code: rank {found.frames_rank}, which waits, made the call in step_of_rank_" in text
    assert (
        "Last call that rank 5 completed: AllReduce, call 5 of group 0 (ranks 0 to 7). Each group"
        " counts its own calls."
    ) in text


def test_the_code_of_the_named_rank(tmp_path: Path) -> None:
    groups: Groups = {"0": (0, 1, 2, 3)}
    for rank in range(4):
        write_dump(tmp_path, rank, groups, [("0", "all_reduce", 8)] * 6, 4 if rank == 2 else 6)
    found, text = judged(tmp_path)
    assert named(found) == ([2], ("gpu_not_finished",))
    assert (found.frames_rank, found.waiting.which) == (2, ())
    assert "Code: rank 2 made the call in step_of_rank_2 train.py:7." in text


def test_an_expert_that_died_before_the_all_to_all(tmp_path: Path) -> None:
    groups: Groups = {"0": (0, 1, 2, 3), "ep": (0, 1, 2, 3)}
    turn = [("ep", "all_to_all", 32), ("ep", "all_to_all", 32), ("0", "all_reduce", 8)]
    for rank in (0, 1, 3):
        write_dump(tmp_path, rank, groups, [*turn * 4, turn[0]], 12)
    (tmp_path / "stderr.txt").write_text(
        "Root Cause (first observed failure):\n[0]:\n  host      : n1\n"
        "  rank      : 2 (local_rank: 2)\n  exitcode  : -11 (pid: 77)\n"
    )
    found, text = judged(tmp_path)
    assert named(found) == ([2], ("dead",))
    assert "Waiting: ranks 0, 1, 3, in calls of group ep (ranks 0 to 3)." in text


STAGES: Groups = {"0": (0, 1, 2, 3)}
SEND = {0: "send 0->1", 1: "send 1->2", 2: "send 2->3"}
RECV = {1: "recv 1<-0", 2: "recv 2<-1", 3: "recv 3<-2"}
OOM = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have "
    "been OOM Killed.\n"
    "srun: error: {host}: task {task}: Out Of Memory\n"
    "srun: Terminating StepId=77.0\n"
    "slurmstepd: error: *** STEP 77.0 ON nid001 CANCELLED AT 2026-11-24T10:00:00 ***\n"
)


def write_pipeline(folder: Path) -> None:
    """Stage 2 ended before it received: stage 1 waits for it, stage 3 for its send."""
    for rank in (0, 1, 3):
        own = [of[rank] for of in (RECV, SEND) if rank in of]
        steps = [("0", name, 16) for name in own] * 5
        open_calls = {0: 0, 1: 1, 3: 1}[rank]
        write_dump(folder, rank, STAGES, steps, len(steps) - open_calls)


def test_a_pipeline_stage_that_ran_out_of_memory(tmp_path: Path) -> None:
    write_pipeline(tmp_path)
    ended = "srun: error: nid001: tasks 0-1,3: Terminated\n"
    (tmp_path / "slurm-77.out").write_text(OOM.format(host="nid001", task=2) + ended)
    found, text = judged(tmp_path)
    assert named(found) == ([2], ("dead",))
    assert found.who[0].host == "nid001"
    assert "Rank 2 ended: srun reports 'Out Of Memory' for its task." in text
    assert "Also reported: Slurm: memory ran out, and a process of step 77.0 was killed." in text


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        # One task a node, below which torchrun starts four ranks.
        (OOM.format(host="nid001", task=1), "task 1 on nid001 (Out Of Memory)"),
        # Of two tasks with an end of their own nobody knows the first.
        (
            "srun: error: nid001: task 1: Killed\n"
            "srun: error: nid001: task 0: Segmentation fault\n",
            "task 0 on nid001 (Segmentation fault), task 1 on nid001 (Killed)",
        ),
    ],
)
def test_a_task_that_may_be_a_node_is_no_rank(tmp_path: Path, tasks: str, why: str) -> None:
    for rank in range(4):
        write_dump(tmp_path, rank, STAGES, [("0", "all_reduce", 8)] * 6, 5)
    (tmp_path / "slurm-77.out").write_text(tasks)
    found, text = judged(tmp_path)
    assert named(found) == ([], ())
    assert f"srun reports the end of {why}. A task may be a node, not a rank" in text


def write_hosts_log(folder: Path, rank: int, steps: int) -> None:
    """A log of a job with two ranks on each host."""
    write_log(folder, rank, TURN * steps)
    path = folder / f"nccl.{rank}.log"
    path.write_text(path.read_text().replace("node:", f"nid00{rank // 2}:"))


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("srun: error: nid001: task 2: Segmentation fault (core dumped)\n", [2]),
        # With one task a host, task 1 is on the second host, and rank 1 on the first.
        ("srun: error: nid001: task 1: Segmentation fault (core dumped)\n", []),
        # The first host shows nothing: its task 0 may be the launcher of both ranks.
        ("srun: error: nid000: task 0: Segmentation fault (core dumped)\n", []),
        # What comes after the end of the step is a consequence.
        ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
         "srun: error: nid001: task 2: Killed\n", []),
    ],
)  # fmt: skip
def test_a_task_on_the_host_of_its_rank_is_this_rank(
    tmp_path: Path, line: str, who: list[int]
) -> None:
    for rank in range(4):
        write_hosts_log(tmp_path, rank, 8)
    (tmp_path / "slurm-77.out").write_text(line)
    found, _ = judged(tmp_path)
    assert named(found)[0] == who


def test_a_rank_that_timed_out_ends_with_a_code_of_its_task(tmp_path: Path) -> None:
    lines = "".join(status(rank, 25, 22) for rank in (0, 1, 3))
    tasks = "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n1: tasks 1-3: Killed\n"
    (tmp_path / "stderr.txt").write_text(lines + "srun: Job step aborted: Waiting\n" + tasks)
    for rank in range(4):
        write_log(tmp_path, rank, TURN * 8)
    found, _ = judged(tmp_path)
    assert 0 not in named(found)[0]


def test_a_peer_that_the_ras_service_lost(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(answer([9, 9, 9, 9], missing=[3]))
    found, _ = judged(tmp_path)
    assert named(found) == ([3], ("silent",))


STOPPED = {
    "time limit": "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-11-24T10:00:00 DUE TO TIME"
    " LIMIT ***\n",
    "cancelled": "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-11-24T10:00:00 ***\n",
}


@pytest.mark.parametrize("how", STOPPED)
@pytest.mark.parametrize("turns", [7, 8])
def test_a_healthy_job_that_slurm_stopped_names_nobody(
    tmp_path: Path, how: str, turns: int
) -> None:
    for rank in range(4):
        write_log(tmp_path, rank, TURN * (turns if rank == 1 else 8))
    (tmp_path / "slurm-77.out").write_text(STOPPED[how])
    found, text = judged(tmp_path)
    assert named(found) == ([], ())
    if turns == 7:
        assert found.candidates == (1,)
        assert f"Slurm stopped the job ({how})" in text


def test_a_job_that_hung_until_its_time_limit(tmp_path: Path) -> None:
    for rank in range(4):
        write_log(tmp_path, rank, TURN * (7 if rank == 1 else 8))
    lines = "".join(status(rank, 25, 22) for rank in (0, 2, 3)) + status(1, 22, 22)
    (tmp_path / "slurm-77.out").write_text(lines + STOPPED["time limit"])
    assert named(judged(tmp_path)[0])[0] == [1]


def test_a_healthy_job_that_was_cancelled_while_it_wrote_dumps(tmp_path: Path) -> None:
    for rank in range(4):
        steps = [("0", "all_reduce", 8)] * (6 if rank == 2 else 7)
        write_dump(tmp_path, rank, STAGES, steps, 6, late_s=2)
    (tmp_path / "slurm-77.out").write_text(STOPPED["cancelled"])
    assert named(judged(tmp_path)[0]) == ([], ())


def test_a_data_loader_that_ran_out_of_memory_in_a_healthy_job(tmp_path: Path) -> None:
    for rank in range(4):
        write_log(tmp_path, rank, TURN * 8)
    (tmp_path / "slurm-77.out").write_text(OOM.splitlines(keepends=True)[0])
    found, text = judged(tmp_path)
    assert named(found) == ([], ())
    assert "Slurm: memory ran out" in text


@pytest.mark.parametrize(
    ("made", "values"),
    [
        (
            {1: 999},
            "ranks 0, 2, 3 called AllReduce, 8 elements, Float32; rank 1 called AllReduce, 999",
        ),
        (
            {1: 999, 2: 999},
            "ranks 0, 3 called AllReduce, 8 elements, Float32; ranks 1, 2 called AllReduce, 999",
        ),
    ],
)
def test_sizes_that_differ_are_printed(
    tmp_path: Path, made: Mapping[int, int], values: str
) -> None:
    for rank in range(4):
        steps = [("0", "broadcast", 4), ("0", "all_reduce", made.get(rank, 8))]
        write_dump(tmp_path, rank, STAGES, steps, 1)
    found, text = judged(tmp_path)
    assert named(found)[0] == ([1] if len(made) == 1 else [])
    assert f"As call 2 of the group, {values}" in text


def test_logs_without_init_or_without_calls_say_what_to_set(tmp_path: Path) -> None:
    for rank in range(4):
        write_log(tmp_path, rank, TURN * 8)
    files = {path: path.read_text().splitlines(keepends=True) for path in tmp_path.iterdir()}
    for path, lines in files.items():
        path.write_text("".join(line for line in lines if "ncclCommInit" not in line))
    found, text = judged(tmp_path)
    assert not found.decided
    assert "no lines of communicators: ranks are not known. Set NCCL_DEBUG_SUBSYS=INIT," in text
    for path, lines in files.items():
        path.write_text("".join(line for line in lines if "ncclCommInit" in line))
    assert "The logs have no calls. Set NCCL_DEBUG_SUBSYS=INIT,COLL,P2P." in judged(tmp_path)[1]


@pytest.mark.parametrize(
    ("waiting", "line"),
    [
        (Waiting(1, ("1 [0, 1]",), (0,)), "rank 0, in a call of group 1 (ranks 0, 1)."),
        (Waiting(2, ("0", "1"), (0, 3)), "ranks 0, 3, in calls of group 0, group 1."),
        (Waiting(1, ("process group 7",), (2,)), "rank 2, in a call of process group 7."),
        (Waiting(1200, ("0",)), "1,200 ranks, in calls of group 0."),
        (Waiting(2, (), (0, 1)), "ranks 0, 1."),
        (Waiting(5, (), (0, 1, 4, 6, 9)), "ranks 0, 1, 4, 6, 9 (5 ranks)."),
    ],
)
def test_the_line_of_ranks_that_wait_names_them(waiting: Waiting, line: str) -> None:
    found = Verdict(
        decided=True, who=(Who(9),), what=("dead",), group=None, seq=None, op=None, since=None,
        waiting=waiting, certainty="likely", candidates=(), reasons=("It ended.",),
    )  # fmt: skip
    assert f"\nWaiting: {line}\n" in render_hang(found, "text")
    undecided = replace(found, decided=False, who=(), what=(), certainty=None)
    assert f"\nPossibly waiting: {line}\n" in render_hang(undecided, "text")


def test_the_code_line_has_the_job_s_own_frames() -> None:
    torch = "/venv/lib/python3.12/site-packages/torch/distributed"
    found = Verdict(
        decided=True, who=(Who(2),), what=("different_call",), group="1 [0, … 63]", seq=4,
        op="AllReduce", since=None, waiting=Waiting(0, ()), certainty="likely", candidates=(),
        reasons=("It differs.",), frames_rank=2,
        frames=(f"all_reduce {torch}/c10d.py:3068", f"wrapper {torch}/log.py:83",
                "forward /job/model.py:30", "<module> /job/train.py:9"),
    )  # fmt: skip
    text = render_hang(found, "text")
    assert (
        "Code: rank 2 made the mismatched call in forward /job/model.py:30, called from"
        " <module> /job/train.py:9.\n"
    ) in text
    assert "AllReduce, call 4 of group 1 (ranks 0, … 63).\n" in text
    inferred = "How sure: likely. The recorded calls differ; that rank 2 is wrong is inferred.\n"
    assert inferred in text
    certain = render_hang(replace(found, certainty="certain"), "text")
    assert "\nHow sure: certain.\n" in certain
    alone = render_hang(replace(found, frames=found.frames[:1]), "text")
    assert f"made the mismatched call in all_reduce {torch}/c10d.py:3068.\n" in alone
