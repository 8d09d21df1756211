"""Verdicts on generated dumps of jobs in three dimensions, with a planted hang in each.

    python benchmarks/hangs_generated.py [--ranks 64] [--cases 1000] [--turns 12] [--seed 1]
    python benchmarks/hangs_generated.py --ranks 1024 --cases 1 --turns 400

A job is data x tensor x pipeline ranks that repeat a loop over their groups. It is played: a call
ends where it is the first open one of all its members, alike. Hosts run ahead of it by a drawn
number of calls. One rank stops, skips, repeats or changes a call, swaps two, or has a GPU that does
not end what its peers ended; clocks differ by up to an hour; up to two dumps are lost. Printed are
right, undecided and wrong answers by fault, and the seconds that a verdict takes.

A guilty rank whose dump is lost may be silent, and undecided where a second dump is lost.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from typing import NamedTuple

from collscope.hang.judge import judge
from collscope.hang.records import Call, Evidence, RankEvidence

Step = tuple[str, str, int]  # group, operation, elements
FAULTS = {
    "stop": {"host_never_called"}, "skip": {"host_never_called"}, "extra": {"extra_call"},
    "size": {"different_call"}, "operation": {"different_call"}, "order": {"different_order"},
    "gpu": {"gpu_not_finished"}, "none": set(),
}  # fmt: skip


class Job(NamedTuple):
    """Groups and their members, and each rank's loop."""

    groups: dict[str, tuple[int, ...]]
    loops: list[list[Step]]


def job(ranks: int) -> Job:
    """Tensor groups of 8, pipelines of 4 stages, the rest data parallel."""
    tp, pp = 8, 4
    dp = ranks // (tp * pp)
    groups: dict[str, tuple[int, ...]] = {"world": tuple(range(ranks))}
    loops = []
    for rank in range(ranks):
        t, p, d = rank % tp, rank // tp % pp, rank // (tp * pp)
        names = f"tp{p}.{d}", f"dp{t}.{p}", f"pp{t}.{d}"
        base = rank - t
        groups.setdefault(names[0], tuple(range(base, base + tp)))
        groups.setdefault(names[1], tuple(t + tp * p + tp * pp * n for n in range(dp)))
        groups.setdefault(names[2], tuple(t + tp * n + tp * pp * d for n in range(pp)))
        loops.append([
            (names[0], "AllGather", 1 << 20), (names[0], "ReduceScatter", 1 << 20),
            (names[2], "Broadcast", 1 << 16), (names[1], "AllReduce", 1 << 24),
            ("world", "AllReduce", 1),
        ])  # fmt: skip
    return Job(groups, loops)


def changed(calls: list[Step], fault: str, at: int, loop: list[Step]) -> list[Step]:
    """A rank's calls with a fault at one of them."""
    group, op, count = calls[at]
    if fault == "stop":
        return calls[:at]
    if fault == "skip":
        return calls[:at] + calls[at + 1 :]
    if fault == "extra":
        return [*calls[:at], calls[at], *calls[at:]]
    if fault == "size":
        return [*calls[:at], (group, op, count + 1), *calls[at + 1 :]]
    if fault == "operation":
        return [*calls[:at], (group, "AllToAll", count), *calls[at + 1 :]]
    if fault == "order":
        other = next(n for n in range(at + 1, at + len(loop)) if calls[n][0] != group)
        calls[at], calls[other] = calls[other], calls[at]
    return calls


def played(
    made: list[list[Step]], groups: dict[str, tuple[int, ...]], gpu: tuple[int, int] | None
) -> list[int]:
    """How many calls of each rank end; `gpu` is a rank and the call that its GPU does not end."""
    done = [0] * len(made)
    waiting: dict[tuple[Step, int], int] = Counter()
    numbers: list[Counter[str]] = [Counter() for _ in made]
    ready = list(range(len(made)))
    while ready:
        rank = ready.pop()
        if done[rank] >= len(made[rank]):
            continue
        step = made[rank][done[rank]]
        key = step, numbers[rank][step[0]]
        waiting[key] += 1
        members = groups[step[0]]
        if waiting[key] == len(members):
            for member in members:
                if gpu is not None and member == gpu[0] and done[member] == gpu[1]:
                    continue
                done[member] += 1
                numbers[member][step[0]] += 1
                ready.append(member)
    return done


def case(job: Job, draw: random.Random, fault: str, turns: int) -> tuple[int, set[str], Evidence]:
    """Guilty rank, right answers, and the dumps that are left."""
    ranks = len(job.loops)
    guilty = draw.randrange(ranks)
    loop = job.loops[guilty]
    at = len(loop) * draw.randrange(max(turns - 4, 4), turns - 1) + draw.randrange(len(loop))
    made = [own * turns for own in job.loops]
    made[guilty] = changed(made[guilty], fault, at, loop)
    done = played(made, job.groups, (guilty, at) if fault == "gpu" else None)
    ahead = draw.randrange(1, 8)
    found = []
    lost = set(draw.sample(range(ranks), draw.choice((0, 0, 1, 2)))) if fault != "none" else set()
    if draw.random() < 0.1:
        lost.add(guilty)
    for rank, steps in enumerate(made):
        if rank in lost:
            continue
        offset = draw.randrange(3600 * 10**9)
        numbers: Counter[str] = Counter()
        calls = []
        for place, (group, op, count) in enumerate(steps[: done[rank] + ahead]):
            numbers[group] += 1
            calls.append(
                Call(group, numbers[group], op, count, "Float32", None, place < done[rank],
                     offset + place * 10**6)
            )  # fmt: skip
        found.append(RankEvidence(rank, "generated", tuple(calls[-2000:])))
    evidence = Evidence(
        "dumps", tuple(found), tuple(job.groups.items()), silent=tuple(sorted(lost))
    )
    allowed = set(FAULTS[fault])
    if guilty in lost:
        allowed |= {"silent", "undecided"} if len(lost) > 1 else {"silent"}
    # What a GPU that ends a Broadcast before others shows depends on the way of the data.
    if all(n == len(own) for n, own in zip(done, made, strict=True)) or (
        fault == "gpu" and loop[at % len(loop)][1] == "Broadcast"
    ):
        allowed = {"undecided", "silent"} if guilty in lost else {"undecided"}
    return guilty, allowed, evidence


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    draw = random.Random(given.seed)
    made = job(given.ranks)
    marks: Counter[tuple[str, str]] = Counter()
    longest = 0.0
    for number in range(given.cases):
        fault = list(FAULTS)[number % len(FAULTS)]
        guilty, allowed, evidence = case(made, draw, fault, given.turns)
        begin = time.perf_counter()
        found = judge([evidence])
        longest = max(longest, time.perf_counter() - begin)
        if not found.decided:
            mark = "right, undecided" if "undecided" in allowed else "undecided"
        elif [w.rank for w in found.who] == [guilty] and set(found.what) & allowed:
            mark = "right"
        else:
            mark = "wrong"
        marks[fault, mark] += 1
        if given.show and not mark.startswith("right"):
            print(fault, guilty, evidence.silent, mark, found.who, found.what, found.reasons)
    names = ("right", "right, undecided", "undecided", "wrong")
    print(f"| {given.ranks} ranks | {' | '.join(names)} |\n|---|---|---|---|---|")
    for fault in (*FAULTS, "total"):
        cells = [
            sum(n for (f, m), n in marks.items() if m == name and fault in (f, "total"))
            for name in names
        ]
        print(f"| {fault} | {' | '.join(map(str, cells))} |")
    print(f"longest verdict: {longest:.2f} s")


if __name__ == "__main__":
    main()
