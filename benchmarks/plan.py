"""Times `collscope replay`'s plan building: a run of many calls, from the store to the plan's text.

A log of one rank with two communicators of 8 ranks is generated and ingested; the times are of
loading, building and writing the plan in both modes, each the median of the rounds, as wall time
and as processor time of this process.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from collscope.ingest.commands import ingest_logs
from collscope.ingest.match import reading
from collscope.replay.build import build_plan
from collscope.replay.load import load_run
from collscope.replay.plan import SEQUENCE, UNIQUE
from collscope.replay.text import plan_text

SHAPES = [("AllReduce", 7, 0), ("AllGather", 9, 0), ("ReduceScatter", 9, 4), ("Broadcast", 7, 0)]
COUNTS = [1, 512, 4096, 65536, 1048576, 3145728, 12582912, 50331648, 67108864, 268435456]


def write_log(path: Path, calls: int) -> None:
    """A log of `calls` COLL lines; every third call is on the second communicator."""
    lines = []
    for k in range(len(SHAPES) * len(COUNTS) * 3):
        op, datatype, redop = SHAPES[k % len(SHAPES)]
        comm = 0xAEF8A00 if k % 3 else 0xBEF8A00
        lines.append(
            f"n1:100:100 [0] NCCL INFO {op}: opCount 0 sendbuff 0x7f8bccf79600 recvbuff"
            f" 0x7f8bccf79600 count {COUNTS[k // len(SHAPES) % len(COUNTS)]} datatype {datatype}"
            f" op {redop} root 0 comm 0x{comm:x} [nranks=8] stream 0xac16b80\n"
        )
    text = "".join(lines)
    with path.open("w", encoding="ascii") as out:
        for _ in range(calls // len(lines)):
            out.write(text)
        out.write("".join(lines[: calls % len(lines)]))


def measure(db: Path, mode: str) -> tuple[list[float], float, int]:
    """Wall seconds of loading, building and writing; processor seconds; steps of the plan."""
    with reading(db) as connection:
        cpu, marks = time.process_time(), [time.perf_counter()]
        records = load_run(connection, "main", calls=mode == SEQUENCE)
        marks.append(time.perf_counter())
    planned = build_plan(records, mode)
    marks.append(time.perf_counter())
    plan_text(planned.plan)
    marks.append(time.perf_counter())
    wall = [b - a for a, b in pairwise(marks)]
    return wall, time.process_time() - cpu, len(planned.plan.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log, db = Path(folder) / "calls.log", Path(folder) / "calls.db"
        write_log(log, arguments.calls)
        ingest_logs([str(log)], db, "main")
        for mode in (UNIQUE, SEQUENCE):
            rounds = [measure(db, mode) for _ in range(arguments.rounds)]
            load, build, write = (statistics.median(r[0][i] for r in rounds) for i in range(3))
            cpu = statistics.median(r[1] for r in rounds)
            print(
                f"{mode}: {arguments.calls} calls, {rounds[0][2]} steps: load {load:.3f} s,"
                f" build {build:.3f} s, write {write:.3f} s, all {load + build + write:.3f} s;"
                f" processor {cpu:.3f} s; slowest round {max(sum(r[0]) for r in rounds):.3f} s"
            )


if __name__ == "__main__":
    main()
