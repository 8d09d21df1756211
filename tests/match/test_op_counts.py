"""What opCount counts differs by release: recorded with NCCL 2.30.7 and 2.32.3 on H200."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import collscope, rows

CALLS = "SELECT op, shape, count, COUNT(*), COUNT(group_id) FROM calls GROUP BY 1, 2, 3 ORDER BY 1"


def line(rank: int, op: str, count: int, number: int, peer: int = 0) -> str:
    """A call of a rank of two, as NCCL 2.28 and later log it."""
    return (
        f"vm:{100 + rank}:{100 + rank} [{rank}] NCCL INFO {op}: opCount {number:x} sendbuff 0x7f0"
        f" recvbuff 0x7f0 count {count} datatype 7 op 0 root {peer} comm 0x{rank + 1}0 [nranks=2]"
        " stream (nil)\n"
    )


def ingest(
    tmp_path: Path, calls: list[list[tuple[str, int, int, int]]]
) -> list[tuple[object, ...]]:
    """Calls of a job of two ranks; each call has operation, count, opCount and root or peer."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank, own in enumerate(calls):
        head = f"vm:{100 + rank}:{100 + rank} [{rank}] NCCL INFO"
        init = (
            f"{head} comm 0x{rank + 1}0 rank {rank} nRanks 2 nNodes 1 localRanks 2"
            f" localRank {rank} MNNVL 0\n"
            f"{head} ncclCommInitRankConfig comm 0x{rank + 1}0 rank {rank} nranks 2"
            f" cudaDev {rank} nvmlDev {rank} busId {rank}000 commId 0xabc - Init COMPLETE\n"
        )
        text = "".join(line(rank, op, count, number, peer) for op, count, number, peer in own)
        (folder / f"rank{rank}.log").write_text(init + text)
    db = tmp_path / "a.db"
    assert collscope("ingest", "log", folder, "--db", db).code == 0
    return rows(db, CALLS)


def exchange(rank: int, first: int, *, rising: bool) -> list[tuple[str, int, int, int]]:
    """An all-to-all of unequal parts, then a ring shift; counts rise within them or do not."""
    sizes = [(rank + 1) * (peer + 1) * 16 for peer in range(2)]
    parts = [(op, size, peer) for peer, size in enumerate(sizes) for op in ("Send", "Recv")] + [
        ("Send", 4096, 1 - rank),
        ("Recv", 4096, 1 - rank),
    ]
    numbers = [first + k if rising else first + k // 4 for k in range(len(parts))]
    return [(op, size, n, peer) for (op, size, peer), n in zip(parts, numbers, strict=True)]


@pytest.mark.parametrize("rising", [False, True])
def test_transfers_of_a_group_are_one_call_whatever_the_count_does(
    tmp_path: Path, rising: bool
) -> None:
    between = 6 if rising else 2
    calls = [
        [
            ("AllReduce", 8, 0, 0),
            *exchange(rank, 1, rising=rising),
            ("AllReduce", 8, 1 + between, 0),
            *exchange(rank, 2 + between, rising=rising),
        ]
        for rank in range(2)
    ]
    assert ingest(tmp_path, calls) == [
        ("AllReduce", None, 8, 2, 0),
        ("AllToAllv", "alltoallv", None, 2, 0),
        ("SendRecv", "shift", 4096, 2, 0),
    ]


def test_a_broadcast_that_is_not_counted_is_no_group_with_the_next_call(tmp_path: Path) -> None:
    own = [
        ("AllReduce", 8, 0, 0), ("Broadcast", 8, 1, 0), ("Reduce", 8, 1, 0),
        ("Broadcast", 8, 2, 1), ("Broadcast", 8, 2, 0), ("AllGather", 8, 2, 0),
        ("AllReduce", 16, 3, 0), ("AllReduce", 24, 3, 0),
    ]  # fmt: skip
    assert ingest(tmp_path, [own, own]) == [
        ("AllGather", None, 8, 1, 0),
        ("AllReduce", None, 8, 1, 0),
        ("AllReduce", None, 16, 1, 1),
        ("AllReduce", None, 24, 1, 1),
        ("Broadcast", None, 8, 3, 0),
        ("Reduce", None, 8, 1, 0),
    ]


def test_broadcasts_that_are_counted_may_be_a_group(tmp_path: Path) -> None:
    own = [
        ("AllReduce", 8, 0, 0), ("Broadcast", 8, 1, 0), ("Broadcast", 16, 1, 0),
        ("AllReduce", 8, 2, 0),
    ]  # fmt: skip
    assert ingest(tmp_path, [own, own]) == [
        ("AllReduce", None, 8, 2, 0),
        ("Broadcast", None, 8, 1, 1),
        ("Broadcast", None, 16, 1, 1),
    ]
