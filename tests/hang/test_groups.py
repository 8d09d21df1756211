"""One verdict for a hang of four ranks, whose groups of two cross each other.

What recorded jobs of four ranks with NCCL 2.30.7 and 2.32.3 on one H200 showed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from test_sources import of_files

from collscope.hang.collect import evidence_of
from collscope.hang.judge import judge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Step = tuple[str, str, int]  # operation, group, root or peer in it
PAIRS = {"tp": ((0, 1), (2, 3)), "dp": ((0, 2), (1, 3))}
TURN: list[Step] = [("AllReduce", "tp", 0), ("AllReduce", "dp", 0), ("AllReduce", "world", 0)]


def write_log(folder: Path, rank: int, steps: Sequence[Step], host: str = "vm") -> None:
    """A rank's log; each group has a communicator of its own."""
    at = f"{host}:{100 + rank}:{100 + rank} [{rank % 2}] NCCL INFO"
    lines = []
    for number, all_members in enumerate([((0, 1, 2, 3),), *PAIRS.values()]):
        members = next(own for own in all_members if rank in own)
        state = f"comm 0x{number + 1}0 rank {members.index(rank)} nranks {len(members)}"
        unique = f"0x{number + 1}{all_members.index(members)}"
        lines += [
            f"{at} ncclCommInitRankConfig {state} cudaDev 0 nvmlDev 0 busId 1000 commId {unique}"
            f" - Init {end}"
            for end in ("START", "COMPLETE")
        ]
    for op, name, peer in steps:
        number = ("world", "tp", "dp").index(name)
        size = 4 if name == "world" else 2
        lines.append(
            f"{at} {op}: opCount 0 sendbuff 0x1 recvbuff 0x2 count 64 datatype 7 op 0 root {peer}"
            f" comm 0x{number + 1}0 [nranks={size}] stream 0x5"
        )
    (folder / f"nccl.{rank}.log").write_text("\n".join(lines) + "\n")


def test_a_call_that_all_made_waits_behind_one_that_has_not_ended(tmp_path: Path) -> None:
    """Rank 0 makes two calls in another order. Rank 2 runs ahead of rank 3, which only waits."""
    turn = {
        rank: [*([("SendRecv", "tp", 0)] if rank < 2 else []), ("AllReduce", "dp", 0)]
        for rank in range(4)
    }

    def steps(rank: int, turns: int) -> list[Step]:
        transfer = ("Send" if rank == 0 else "Recv", "tp", 1 - rank)
        return [transfer if s[0] == "SendRecv" else s for s in turn[rank] * turns]

    first = [("AllReduce", "tp", 0)]
    write_log(tmp_path, 0, [*first, *steps(0, 8), ("AllReduce", "dp", 0)])
    write_log(tmp_path, 1, [*first, *steps(1, 9)])
    write_log(tmp_path, 2, [*first, *steps(2, 9), *first])
    write_log(tmp_path, 3, [*first, *steps(3, 9)])
    found = judge(evidence_of([str(tmp_path)]))
    # Rank 3 made one call less than rank 2: it waits for rank 1, which waits for rank 0.
    assert 3 not in [one.rank for one in found.who]


def test_several_ranks_of_one_host_may_wait_for_a_gpu_of_theirs(tmp_path: Path) -> None:
    for rank in range(4):
        write_log(tmp_path, rank, TURN * (8 if rank in {0, 2} else 9))
    found = judge(evidence_of([str(tmp_path)]))
    assert (found.decided, found.candidates) == (False, (0, 2))


def test_all_ranks_of_a_host_of_their_own_are_named(tmp_path: Path) -> None:
    for rank in range(4):
        behind = rank in {0, 2}
        write_log(tmp_path, rank, TURN * (8 if behind else 9), "left" if behind else "right")
    assert of_files(tmp_path) == ([0, 2], ("host_never_called",))


def watchdog(rank: int, group: tuple[int, int, str, int], op: str, numbers: tuple[int, int]) -> str:
    """Lines of a rank: the group's ID and GUID, its name and the rank in it; last work of both."""
    at = f"[rank{rank}]:[E1123 21:30:43.607013548 ProcessGroupNCCL.cpp:689]"
    id_, guid, name, own = group
    enqueued, completed = numbers
    return (
        f"{at} [Rank {own}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum="
        f"{completed + 1}, OpType={op}, NumelIn=64, NumelOut=64, Timeout(ms)=12000) ran\n"
        f"{at} [PG ID {id_} PG GUID {guid}({name}) Rank {own}]  failure detected by watchdog at"
        f" work sequence id: {completed + 1} PG status: last enqueued work: {enqueued}, last"
        f" completed work: {completed}\n"
    )


def test_the_watchdog_names_a_rank_by_its_place_in_the_group(tmp_path: Path) -> None:
    """Rank 2 of the job is "Rank 1" of its group."""
    lines = [watchdog(0, (2, 3, "data_parallel", 0), "ALLREDUCE", (17, 16))]
    lines += [watchdog(2, (2, 3, "data_parallel", 1), "ALLREDUCE", (16, 16))]
    (tmp_path / "stderr.txt").write_text("".join(lines))
    assert of_files(tmp_path) == ([2], ("host_never_called",))


def test_groups_with_one_id_in_several_processes_are_several(tmp_path: Path) -> None:
    """Both groups are the second of their processes; no member of one owes the other's call."""
    lines = [watchdog(0, (2, 3, "data_parallel", 0), "ALLREDUCE", (17, 16))]
    lines += [watchdog(3, (2, 4, "data_parallel", 1), "ALLREDUCE", (9, 9))]
    (tmp_path / "stderr.txt").write_text("".join(lines))
    assert of_files(tmp_path) == ([], ())


def test_numbers_of_a_group_with_transfers_are_not_compared(tmp_path: Path) -> None:
    """A Recv counts for the two ranks that take part alone."""
    lines = [watchdog(0, (0, 0, "default_pg", 0), "RECV", (33, 32))]
    lines += [watchdog(1, (0, 0, "default_pg", 1), "RECV", (34, 32))]
    lines += [watchdog(2, (0, 0, "default_pg", 2), "ALLREDUCE", (31, 31))]
    (tmp_path / "stderr.txt").write_text("".join(lines))
    assert of_files(tmp_path) == ([], ())


def test_a_gpu_error_of_its_peers_follows_from_a_rank_that_ended(tmp_path: Path) -> None:
    error = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    for rank, raised in enumerate([error, "ValueError: no more data", error]):
        text = f"Traceback (most recent call last):\n{raised}\n"
        (tmp_path / f"stderr.{rank}.txt").write_text(text)
    assert of_files(tmp_path) == ([1], ("dead",))
