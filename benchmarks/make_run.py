"""Writes the logs of a training run: a file for each rank, in NCCL 2.28's format.

Deterministic. Every rank is in three communicators: all ranks, groups of eight neighbours (tensor
parallel), and every eighth rank (data parallel). A step of 50 calls comes again and again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

GROUP = 8  # ranks of a node, and of a group of neighbours
# Operation, datatype, redop, count and communicator of the calls of a step.
STEP = [
    *[("AllReduce", 9, 0, 8388608, "neighbours")] * 16,
    *[("AllGather", 9, 0, 3145728, "every_eighth"), ("AllReduce", 9, 0, 4194304, "neighbours")] * 8,
    *[("ReduceScatter", 9, 0, 3145728, "every_eighth")] * 8,
    *[("AllGather", 9, 0, 12582912, "every_eighth")] * 8,
    ("AllReduce", 7, 0, 1, "all"),
    ("AllReduce", 8, 2, 7, "all"),
]  # fmt: skip


def write_rank(path: Path, rank: int, ranks: int, lines: int) -> int:
    """Writes the log of one rank; returns its size in bytes."""
    node, local = divmod(rank, GROUP)
    prefix = f"node-{node:05d}:{40000 + local}:{40000 + local} [{local}] NCCL INFO "
    nodes = ranks // GROUP
    # Pointer, rank, ranks, nodes and commId of each communicator.
    groups = {
        "all": (0x55D0_0000_0000, rank, ranks, nodes, 0xE14770A474F583A5),
        "neighbours": (0x55D0_1000_0000, local, GROUP, 1, 0xA100_0000_0000_0000 + node),
        "every_eighth": (0x55D0_2000_0000, node, nodes, nodes, 0xB100_0000_0000_0000 + local),
    }
    head = [f"{prefix}NCCL version 2.28.9+cuda13.0\n"]
    for comm, own, size, spread, identity in groups.values():
        pointer = f"comm 0x{comm + rank * 0x100:x}"
        start = (
            f"{prefix}ncclCommInitRankConfig {pointer} rank {own} nranks {size} cudaDev {local}"
            f" nvmlDev {local} busId {(local + 1) << 12:x} commId 0x{identity:x} - Init "
        )
        head += [
            f"{start}START\n",
            f"{prefix}{pointer} rank {own} nRanks {size} nNodes {spread}"
            f" localRanks {size // spread} localRank {own % (size // spread)} MNNVL 0\n",
            f"{start}COMPLETE\n",
        ]
    calls = []
    for number, (op, datatype, redop, count, group) in enumerate(STEP):
        comm, own, size, *_ = groups[group]
        buffer = 0x7F60_4280_0000 + rank * 0x1_0000_0000 + number * 0x800_0000
        block = count * 2 * own
        send = buffer + (block if op == "AllGather" else 0)
        recv = buffer + (block if op == "ReduceScatter" else 0)
        behind = (
            f" sendbuff 0x{send:x} recvbuff 0x{recv:x} count {count} datatype {datatype} op {redop}"
            f" root 0 comm 0x{comm + rank * 0x100:x} [nranks={size}] stream 0x55d03000\n"
        )
        calls.append((group, f"{prefix}{op}: opCount ", behind))
    made = dict.fromkeys(groups, 0)
    parts = head
    for line in range(lines - len(head)):
        group, before, behind = calls[line % len(calls)]
        parts.append(f"{before}{made[group]:x}{behind}")
        made[group] += 1
    return path.write_text("".join(parts), encoding="ascii")


def write_run(folder: Path, ranks: int, lines: int) -> int:
    """Writes a run of `ranks` (a multiple of 8) with so many lines each; returns its bytes."""
    folder.mkdir(parents=True)
    return sum(write_rank(folder / f"log.{rank:05d}", rank, ranks, lines) for rank in range(ranks))


def main() -> None:
    """Reads sizes and the folder from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ranks", type=int)
    parser.add_argument("lines", type=int, help="of each rank")
    parser.add_argument("folder", type=Path, help="a new folder")
    given = parser.parse_args()
    size = write_run(given.folder, given.ranks, given.lines)
    print(f"{given.folder}: {size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
