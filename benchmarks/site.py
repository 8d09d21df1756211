"""Measures what a site's ingest costs: by the byte, by the file and in the store, beside its peers.

    python benchmarks/site.py [--megabytes 32] [--files 400] [--rounds 3] [--ranks 1024]

Processor time (user and system), with all child processes, of each command; `cat` and `grep -c`
read the same files in the same round, and ratios are medians over the rounds. Memory is the peak of
one process. Byte code is kept between commands, as an installation does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import msgspec
from make_log import write_log
from make_run import write_run

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT / "samples" / "traces" / "default"
SMALL_BYTES = 4096  # of a log whose cost is that of its file


class Spent(msgspec.Struct, frozen=True):
    """What a command took."""

    seconds: float
    peak_mib: float


def spent(command: list[str | Path]) -> Spent:
    """Processor time and peak memory of a command that succeeds."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment.setdefault("PYTHONPYCACHEPREFIX", f"{tempfile.gettempdir()}/collscope-benchmark")
    # Into /dev/null itself `grep -c` stops at the first line that it finds.
    out = subprocess.PIPE if command[0] == "grep" else subprocess.DEVNULL
    with subprocess.Popen(command, stdout=out, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command}: status {process.returncode}")
    return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def compare(name: str, kind: str, files: list[Path], folder: Path, rounds: int) -> None:
    """Print what an ingest of files takes beside its peers."""
    size = sum(file.stat().st_size for file in files)
    peers = {"cat": ["cat"]} | ({"grep -c": ["grep", "-c", "opCount"]} if kind == "log" else {})
    ratios: dict[str, list[float]] = {peer: [] for peer in peers}
    times, peaks = [], []
    db = folder / "site.db"
    for _ in range(rounds):
        db.unlink(missing_ok=True)
        command = [sys.executable, "-m", "collscope", "ingest", kind, folder / name, "--jobs", "1"]
        found = spent([*command, "--db", db, "--quiet"])
        for peer, words in peers.items():
            own = spent([*words, *files]).seconds
            ratios[peer].append(found.seconds / max(own, 0.001))
        times.append(found.seconds)
        peaks.append(found.peak_mib)
    beside = ", ".join(f"{median(found):.1f} x {peer}" for peer, found in ratios.items())
    print(
        f"{name}: {len(files)} files, {size / 1e6:.1f} MB: {median(times):.2f} s of CPU time, "
        f"{size / 1e6 / median(times):.0f} MB/s, {median(times) / len(files) * 1e3:.2f} ms a file, "
        f"{beside}, peak {max(peaks):.0f} MiB, "
        f"store {db.stat().st_size / 1e6:.2f} MB ({db.stat().st_size / size:.3f} of the input)"
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=32)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=0, help="of a run with a log each, as well")
    parser.add_argument("--lines", type=int, default=10_000, help="of each of these logs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for megabytes in (given.megabytes, 4 * given.megabytes):
            logs = folder / f"log{megabytes}"
            logs.mkdir()
            write_log(logs / "a.log", megabytes)
            compare(logs.name, "log", [logs / "a.log"], folder, given.rounds)
        lines = (folder / f"log{given.megabytes}" / "a.log").read_bytes()
        small = folder / "small"
        small.mkdir()
        for number in range(given.files):
            part = lines[number * SMALL_BYTES : (number + 1) * SMALL_BYTES]
            (small / f"{number}.log").write_bytes(
                part[part.index(b"\n") + 1 : part.rindex(b"\n") + 1]
            )
        compare("small", "log", sorted(small.iterdir()), folder, given.rounds)
        if given.ranks:
            write_run(folder / "run", given.ranks, given.lines)
            compare("run", "log", sorted((folder / "run").iterdir()), folder, given.rounds)
        (folder / "traces").symlink_to(TRACES)
        compare("traces", "trace", sorted(TRACES.iterdir()), folder, given.rounds)


if __name__ == "__main__":
    main()
