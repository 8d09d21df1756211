"""Ingest against its peers: a bare C++ loop, and Python `re` with SQLite's executemany.

Generates its logs in a temporary folder, runs the contenders in alternating rounds and prints
medians and ratios. Asserts nothing about time. Times are wall time of whole processes, start-up of
the interpreter included, with the log in the page cache. Byte code is kept between commands, as an
installation does.
"""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec
from make_log import write_log

HERE = Path(__file__).resolve().parent
BAR_BARE, BAR_PEER, BAR_MB = 2.5, 10, 400
# nccl-rccl-parser on 1 M lines of plain NCCL format: a stated figure, not run here.
STATED_SECONDS, STATED_MB = 7.17, 532
PLAIN_LINES = 1_000_000

# RCCL 2.18: node:52942:52942 [5] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f8c76f79600 recvbuff
# 0x7f8c76f79600 count 1 datatype 6 op 0 root 0 comm 0xaf50de0 [nranks=8] stream 0xac17530 task 0
# globalrank 5
LINE = re.compile(
    r"([^:]+):(\d+):(\d+) \[(\d+)\] NCCL INFO (\w+): opCount ([0-9a-f]+) sendbuff 0x([0-9a-f]+)"
    r" recvbuff 0x([0-9a-f]+) count (\d+) datatype (\d+) op (\d+) root (\d+) comm 0x([0-9a-f]+)"
    r" \[nranks=(\d+)\] stream 0x([0-9a-f]+) task (\d+) globalrank (\d+)"
)
COLUMNS = 17
TEXT_GROUPS = {0, 4}
HEX_GROUPS = {5, 6, 7, 12, 14}
BASES = [0 if i in TEXT_GROUPS else 16 if i in HEX_GROUPS else 10 for i in range(COLUMNS)]


class Run(msgspec.Struct, frozen=True):
    """Wall time in seconds and peak resident memory in units of 1e6 bytes of one process."""

    seconds: float
    peak_mb: float


def timed(command: list[str]) -> Run:
    """One process from its start to its end; its failure ends the benchmark."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment.setdefault("PYTHONPYCACHEPREFIX", f"{tempfile.gettempdir()}/collscope-benchmark")
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}.")
    return Run(seconds, usage.ru_maxrss * 1024 / 1e6)  # Linux counts it in KiB


def ingest(log: Path) -> Run:
    """`collscope ingest log` into a store of its own, matching included."""
    with tempfile.TemporaryDirectory(dir=log.parent) as folder:
        store = str(Path(folder, "store.db"))
        return timed([sys.executable, "-m", "collscope", "ingest", "log", str(log), "--db", store])


def peer_rows(log: Path) -> Iterator[list[str | int]]:
    """The 17 fields of every line that matches, numbers as int."""
    with log.open(encoding="ascii") as lines:
        for line in lines:
            found = LINE.match(line)
            if found:
                yield [
                    int(text, base) if base else text
                    for text, base in zip(found.groups(), BASES, strict=True)
                ]


def peer(log: Path) -> float:
    """Seconds of Python `re`, int() and executemany: no interning, no matching, no index."""
    with tempfile.TemporaryDirectory(dir=log.parent) as folder:
        start = time.perf_counter()
        connection = sqlite3.connect(Path(folder, "peer.db"))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"CREATE TABLE call ({', '.join(f'c{i}' for i in range(COLUMNS))})")
        marks = ", ".join("?" * COLUMNS)
        connection.executemany(f"INSERT INTO call VALUES ({marks})", peer_rows(log))
        connection.commit()
        connection.close()
        return time.perf_counter() - start


def write_plain(path: Path) -> None:
    """1 M lines of 8 ranks as NCCL 2.18 prints them, without RCCL's task and globalrank."""
    ops = ["AllReduce", "AllGather", "ReduceScatter", "Broadcast"]
    host = "gpu-node-017.cluster"
    with path.open("w", encoding="ascii", newline="\n") as out:
        for rank in range(8):
            out.write(
                f"{host}:{52937 + rank}:{53100 + rank} [{rank}] NCCL INFO comm"
                f" 0x{0x55D00AEF8A00 + rank * 0x11A60:x} rank {rank} nranks 8 cudaDev {rank}"
                f" nvmlDev {rank} busId {0xC000 + rank * 0x16000:x} commId 0xc2f42310f0fc7fea"
                " - Init COMPLETE\n"
            )
        for line in range(PLAIN_LINES - 8):
            call, rank = divmod(line, 8)
            buffer = 0x7F8BCCF79600 + rank * 0x22000000 + call % 28 * 0x100000
            out.write(
                f"{host}:{52937 + rank}:{52937 + rank} [{rank}] NCCL INFO {ops[call % 4]}: opCount"
                f" {call:x} sendbuff 0x{buffer:x} recvbuff 0x{buffer:x} count {1 << call % 28}"
                f" datatype {(6, 7, 9)[call % 3]} op 0 root 0 comm"
                f" 0x{0x55D00AEF8A00 + rank * 0x11A60:x} [nranks=8] stream"
                f" 0x{0x55D00AC16B80 + rank * 0x1F0:x}\n"
            )


def count_lines(path: Path) -> int:
    """Line ends in the file."""
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def show(name: str, runs: list[Run], megabytes: float) -> None:
    """One line of the table."""
    seconds = median(r.seconds for r in runs)
    peak = max(r.peak_mb for r in runs)
    print(f"{name:34}{seconds:9.2f}{megabytes / seconds:9.0f}{peak:9.0f}")


def spread(ratios: list[float]) -> str:
    """Median and range, since rounds on a shared machine differ."""
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def compare(folder: Path, megabytes: int, rounds: int) -> None:
    """The log of 8 ranks: all contenders, and ingest at half the size."""
    full, half, tenth = folder / "full.log", folder / "half.log", folder / "tenth.log"
    for path, size in ((full, megabytes), (half, megabytes // 2), (tenth, megabytes // 10)):
        write_log(path, max(size, 1))
    bare_loop = str(folder / "bare_loop")
    subprocess.run(
        ["g++", "-O2", "-std=c++17", "-o", bare_loop, str(HERE / "bare_loop.cpp")], check=True
    )
    os.sync()  # the logs' write-back must not run beside the first round
    bare, full_runs, halves, peers = [], [], [], []
    for number in range(rounds):
        bare.append(timed([bare_loop, str(full)]))
        full_runs.append(ingest(full))
        halves.append(ingest(half))
        if number < 2:
            peers.append(peer(tenth) * full.stat().st_size / tenth.stat().st_size)
    size_mb = full.stat().st_size / 1e6
    show("bare loop", bare, size_mb)
    show("ingest", full_runs, size_mb)
    show("ingest, half the log", halves, half.stat().st_size / 1e6)
    print(f"{'re + executemany (scaled x10)':34}{median(peers):9.2f}{size_mb / median(peers):9.0f}")
    seconds = median(r.seconds for r in full_runs)
    ratios = [b.seconds / a.seconds for a, b in zip(bare, full_runs, strict=True)]
    print(f"ingest / bare loop            {spread(ratios)}, bar {BAR_BARE}")
    print(f"re + executemany / ingest     {median(peers) / seconds:.1f}, bar {BAR_PEER}")
    print(f"peak of ingest                {max(r.peak_mb for r in full_runs):.0f} MB, bar {BAR_MB}")
    half_ns = median(r.seconds for r in halves) / count_lines(half) * 1e9
    full_ns = seconds / count_lines(full) * 1e9
    print(f"ns a line at 50 %, 100 %      {half_ns:.0f}, {full_ns:.0f}")


def plain(folder: Path, rounds: int) -> None:
    """1 M lines of plain NCCL format beside the stated figure of nccl-rccl-parser."""
    log = folder / "plain.log"
    write_plain(log)
    os.sync()
    runs = [ingest(log) for _ in range(rounds)]
    show("ingest, 1 M plain NCCL lines", runs, log.stat().st_size / 1e6)
    seconds = median(r.seconds for r in runs)
    peak = max(r.peak_mb for r in runs)
    print(f"stated, not run: nccl-rccl-parser {STATED_SECONDS} s, {STATED_MB} MB:", end=" ")
    print(f"{STATED_SECONDS / seconds:.1f} x the time, {STATED_MB / peak:.1f} x the memory")


def main() -> None:
    """Reads size and rounds from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500, help="size of the log, 1e6 bytes")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'':34}{'s':>9}{'MB/s':>9}{'peak MB':>9}")
        compare(Path(folder), arguments.megabytes, arguments.rounds)
        plain(Path(folder), arguments.rounds)


if __name__ == "__main__":
    main()
