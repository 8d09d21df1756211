"""Ranks that record and are killed at random moments: what the reader finds in their files.

recorder_kills.py [KILLS [SEED]]

Every call that ended 100 ms before the kill is read with its GPU time, none twice, and none that
was not made.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
from recorder_player import player

from collscope.parsers.recorders.own_recorder import parse

_OLD_NS = 100_000_000
_MOST_CALLS = 1 << 20
_LONGEST_S = 0.5
_KERNEL_NS = 100_000


class Killed(msgspec.Struct, frozen=True):
    """One kill."""

    made: int  # calls that had ended
    old: int  # of these, 100 ms before
    read: int
    timed: int
    newest_lost_ns: int  # from the end of the first call that was not read to the kill; 0: none
    diagnostics: tuple[tuple[str, int], ...]
    problems: tuple[str, ...]


def kill_after(seconds: float, folder: Path) -> Killed:
    """Kill a rank so long after its first call, and read what it left."""
    ledger = folder / "ends"
    np.zeros(_MOST_CALLS, np.int64).tofile(ledger)
    ends = np.memmap(ledger, np.int64, "r")
    with player(folder, level="all") as rank:
        rank.tell(calls=_MOST_CALLS, took_ns=_KERNEL_NS, ledger=str(ledger))
        while not ends[0]:
            time.sleep(0.001)
        time.sleep(seconds)
        killed_ns = time.monotonic_ns()
        rank.process.send_signal(signal.SIGKILL)
        rank.process.wait()
    made = int(np.count_nonzero(ends))
    return judged(folder, ends[:made], killed_ns)


def judged(folder: Path, ends: np.ndarray, killed_ns: int) -> Killed:
    """What the files have of calls that ended at `ends`, monotonic ns."""
    files = [parse(path.read_bytes(), path.name) for path in sorted(folder.glob("*.collrec"))]
    calls = [call for file in files for call in file.calls]
    numbers = [call.seq for call in calls if call.seq is not None]
    timed = {call.seq for call in calls if call.duration_ns is not None}
    old = int(np.count_nonzero(ends < killed_ns - _OLD_NS))
    lost = next((number for number in range(len(ends)) if number not in timed), None)
    problems = []
    if missing := old - len(timed & set(range(old))):
        problems.append(f"{missing} of {old} old calls not read with their times")
    if len(set(numbers)) != len(calls):
        problems.append(f"{len(calls) - len(set(numbers))} calls twice, or without a number")
    # One call may be under way.
    if numbers and max(numbers) > len(ends):
        problems.append(f"call {max(numbers)} was not made")
    if {c.duration_ns for c in calls} - {None, _KERNEL_NS}:
        problems.append("times that no kernel took")
    return Killed(
        made=len(ends),
        old=old,
        read=len(calls),
        timed=len(timed),
        newest_lost_ns=0 if lost is None else killed_ns - int(ends[lost]),
        diagnostics=tuple((d.code, d.count) for file in files for d in file.diagnostics),
        problems=tuple(problems),
    )


def main(kills: int = 200, seed: int = 1) -> int:
    """Kill so often; the number of kills with a problem."""
    moments = random.Random(seed)
    found = []
    for _ in range(kills):
        with tempfile.TemporaryDirectory() as folder:
            found.append(kill_after(moments.uniform(0, _LONGEST_S), Path(folder)))
            for problem in found[-1].problems:
                print(f"kill {len(found)}: {problem} {found[-1].diagnostics}")
    wrong = sum(bool(one.problems) for one in found)
    codes = sorted({code for one in found for code, _ in one.diagnostics})
    print(
        f"{kills} kills, {wrong} with a problem: {sum(f.made for f in found)} calls made, "
        f"{sum(f.old for f in found)} of them 100 ms before the kill, {sum(f.read for f in found)} "
        f"read, {sum(f.timed for f in found)} with their times; the oldest call lost had ended "
        f"{max(f.newest_lost_ns for f in found) / 1e6:.1f} ms before; diagnostics {codes}"
    )
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
