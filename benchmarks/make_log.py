"""Writes a synthetic log: eight ranks of one node on one stdout, in RCCL 2.18's COLL format.

Deterministic. Every call is logged by all ranks in shuffled order with its own opCount; about
0.02 % of the lines are KL/KE lines of the kernel trace.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

HOST = "node-s78-4"
NRANKS = 8
FIRST_PID = 52937
KERNEL_EVERY = 1250  # calls between two traced kernels of all ranks

# Operations with their datatype, redop and root, and the counts they are called with.
SHAPES = [("AllReduce", 6, 0), ("AllReduce", 8, 0), ("ReduceScatter", 9, 4), ("AllGather", 9, 0)]
COUNTS = [1, 9, 512, 4096, 65536, 1048576, 3145728, 12582912, 50331648, 268435456]
ITEM_BYTES = {6: 2, 8: 8, 9: 2}


def rank_heads() -> list[tuple[str, str]]:
    """Per rank the text before the message and the text from `comm` on."""
    heads = []
    for rank in range(NRANKS):
        pid = FIRST_PID + rank
        prefix = f"{HOST}:{pid}:{pid} [{rank}] NCCL INFO "
        comm = 0xAEF8A00 + rank * 0x11A60
        stream = 0xAC16B80 + rank * 0x1F0
        tail = f" comm 0x{comm:x} [nranks={NRANKS}] stream 0x{stream:x} task 0 globalrank {rank}\n"
        heads.append((prefix, tail))
    return heads


def call_middle(shape: int, rank: int) -> str:
    """Text of a call of the class `shape` between its opCount and its communicator."""
    op, datatype, redop = SHAPES[shape % len(SHAPES)]
    count = COUNTS[shape // len(SHAPES) % len(COUNTS)]
    base = 0x7F8BCCF79600 + rank * 0x22000000 + shape * 0x100000
    block = count * ITEM_BYTES[datatype] * rank
    send = base + block if op == "AllGather" else base
    recv = base + block if op == "ReduceScatter" else base
    return (
        f" sendbuff 0x{send:x} recvbuff 0x{recv:x} count {count} datatype {datatype}"
        f" op {redop} root 0"
    )


def kernel_lines(op_count: int) -> str:
    """KL and KE lines of every rank for one call, as the trace threads print them."""
    lines = []
    for rank in range(NRANKS):
        pid = FIRST_PID + rank
        seconds = 170260 + op_count * 1e-4
        head = f"{HOST}:{pid}:{pid + 240} [0] NCCL INFO ## "
        place = f"[{rank:02d}:00] {op_count:06x}"
        bus = f"busId {0xC000 + rank * 0x16000:x} nRanks {NRANKS}"
        name = "ncclDevFunc_AllReduce_RING_LL_Sum_double nw 4 bi 0 nc 0"
        lines.append(f"{head}[{seconds:013.6f}] {place} KL HWID 42300{rank}00 {name} {bus}\n")
        lines.append(f"{head}[{seconds + 5e-5:013.6f}] {place} KE {bus}\n")
    return "".join(lines)


def write_log(path: Path, megabytes: int) -> None:
    """Writes at least `megabytes` (1e6 bytes) to `path`, whole calls only."""
    heads = rank_heads()
    shapes = len(SHAPES) * len(COUNTS)
    middles = [[call_middle(shape, rank) for rank in range(NRANKS)] for shape in range(shapes)]
    shuffler = random.Random(7)
    orders = [shuffler.sample(range(NRANKS), NRANKS) for _ in range(1021)]
    wanted = megabytes * 1_000_000
    written = op_count = 0
    with path.open("w", encoding="ascii", newline="\n") as out:
        while written < wanted:
            parts = []
            for _ in range(KERNEL_EVERY):
                texts = middles[op_count * 7 % shapes]
                for rank in orders[op_count % len(orders)]:
                    prefix, tail = heads[rank]
                    op = SHAPES[op_count * 7 % shapes % len(SHAPES)][0]
                    parts.append(f"{prefix}{op}: opCount {op_count:x}{texts[rank]}{tail}")
                op_count += 1
            parts.append(kernel_lines(op_count - 1) if op_count % (10 * KERNEL_EVERY) == 0 else "")
            text = "".join(parts)
            written += out.write(text)


def main() -> None:
    """Reads the size and the path from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=int, help="size of the log in units of 1e6 bytes")
    parser.add_argument("path", type=Path, help="file to write")
    arguments = parser.parse_args()
    write_log(arguments.path, arguments.megabytes)
    print(f"{arguments.path}: {arguments.path.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
