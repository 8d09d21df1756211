"""The replayer beside nccl-tests, as tables of benchmarks/gpu/results.md.

    python3 benchmarks/gpu/nccl_tests_table.py FOLDER

Reads OP.ROUND.txt of nccl-tests (`all_reduce_perf -b 1K -e 4G -f 4 -d bfloat16`, one process per
GPU) and replay.ROUND.csv of `collscope replay --sweep ... --in-place both`, measured in alternating
rounds. A cell is an operation, a size and in place or not; its ratio is nccl-tests' time over the
replayer's, each the median of the rounds: above 1 the replayer is the shorter.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

OPS = {
    "allreduce": "AllReduce", "allgather": "AllGather", "reducescatter": "ReduceScatter",
    "broadcast": "Broadcast", "reduce": "Reduce", "alltoall": "AllToAll", "sendrecv": "SendRecv",
}  # fmt: skip
MIB = 1 << 20
Cell = tuple[str, int, bool]  # operation, size in bytes, in place
Times = dict[Cell, dict[int, float]]  # us by round


def of_nccl_tests(folder: Path) -> Times:
    """Times that nccl-tests printed."""
    times: Times = defaultdict(dict)
    for path in folder.glob("*.[0-9].txt"):
        name, number, _ = path.name.split(".")
        for line in path.read_text().splitlines():
            # size count type redop root | time algbw busbw #wrong | time algbw busbw #wrong
            words = line.split()
            if len(words) == 13 and words[0].isdigit():
                for place, column in ((False, 5), (True, 9)):
                    times[OPS[name], int(words[0]), place][int(number)] = float(words[column])
    return times


def of_replays(folder: Path) -> Times:
    """Medians of the replayer's CSV files."""
    times: Times = defaultdict(dict)
    for path in folder.glob("replay.*.csv"):
        with path.open() as file:
            for row in csv.DictReader(line for line in file if not line.startswith("#")):
                assert row["status"] == "ok", row
                key = row["op"], int(row["size_bytes"]), row["in_place"] == "1"
                times[key][int(path.name.split(".")[1])] = float(row["time_us_median"])
    return times


def human(size: int) -> str:
    """A size in words."""
    unit = next(u for u in (30, 20, 10) if size >= 1 << u)
    return f"{size >> unit} {'KMG'[unit // 10 - 1]}iB"


def main(folder: Path) -> None:
    """Print the tables."""
    theirs, ours = of_nccl_tests(folder), of_replays(folder)
    cells = sorted(theirs.keys() & ours.keys())
    ratio = {c: median(theirs[c].values()) / median(ours[c].values()) for c in cells}
    large = [c for c in cells if c[1] >= 16 * MIB]
    print("| operation | place | 1 KiB µs | 1 MiB µs | 64 MiB µs | 4 GiB ms "
          "| nccl-tests / ours below 1 MiB | from 16 MiB |")  # fmt: skip
    print("|---|---|---:|---:|---:|---:|---|---|")
    for op in OPS.values():
        for place in (False, True):
            own = [c for c in cells if (c[0], c[2]) == (op, place)]
            if not own:
                continue
            us = {c[1]: median(ours[c].values()) for c in own}
            small = sorted(ratio[c] for c in own if c[1] < MIB)
            big = sorted(ratio[c] for c in own if c in large)
            print(f"| {op} | {'in' if place else 'out'} | {us[1024]:.1f} | {us[MIB]:.1f} "
                  f"| {us[64 * MIB]:.1f} | {us[4096 * MIB] / 1e3:.3f} "
                  f"| {small[0]:.2f}–{small[-1]:.2f} | {big[0]:.3f}–{big[-1]:.3f} |")  # fmt: skip
    for bound in (0.01, 0.02):
        within = sum(abs(ratio[c] - 1) <= bound for c in large)
        print(f"\nFrom 16 MiB up {within} of {len(large)} cells lie within {bound:.0%}.")
    print("\n| farther off | nccl-tests µs, rounds in order | replayer µs | ratio |")
    print("|---|---|---|---:|")
    for c in sorted(large, key=lambda c: -abs(ratio[c] - 1)):
        if abs(ratio[c] - 1) > 0.02:
            rounds = (", ".join(f"{t[c][r]:.1f}" for r in sorted(t[c])) for t in (theirs, ours))
            where = f"{c[0]} {human(c[1])}, {'in' if c[2] else 'out of'} place"
            print(f"| {where} | {' | '.join(rounds)} | {ratio[c]:.3f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
