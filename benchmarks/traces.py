"""Times PyTorch profiler traces, parsed and ingested: time, memory, and whether both are linear.

Eight ranks of 4000 collectives with arguments (33 MB of JSON in all) are generated in the layout of
the profiler. They are parsed, then ingested and analysed by `collscope ingest trace` and reported
by `collscope report`, each in a process of its own, start-up and matching included. Then a trace of
`--megabytes` is read in chunks, in a process of its own, for its peak memory; with `--command` it
is a file, plain and compressed, that `collscope ingest trace` puts into a store. Times are wall and
processor time, the best of the rounds. Byte code is kept between commands, as an installation does.

`--runs 4 16 64` times runs of so many traces instead, of 24 MB each: 20 marked steps of 970
collectives in groups of eight, ranks that come at different moments, and matrix products between.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from collscope.parsers.traces.kineto import parse

RANKS, COLLECTIVES = 8, 4000
CHUNK = 1 << 20

KERNEL = """  {{
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "pid": {rank}, "tid": 20,
    "ts": {ts}.{ns:03d}, "dur": {dur}.125,
    "args": {{
      "External id": {call}, "queued": 0, "device": {rank}, "context": 1, "stream": 20, "correlation": {call},
      "registers per thread": 96, "shared memory": 103808, "blocks per SM": 0.007576, "warps per SM": 0.060606,
      "grid": [1, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 0, "Collective name": "allreduce",
      "In msg nelems": {count}, "Out msg nelems": {count}, "Group size": 8, "dtype": "BFloat16",
      "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
      "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"
    }}
  }},
  {{
    "ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernelEx", "pid": 963, "tid": 963,
    "ts": {host}.{ns:03d}, "dur": 12.422,
    "args": {{
      "External id": {call}, "cbid": 652, "correlation": {call}
    }}
  }}"""  # noqa: E501


def event(rank: int, call: int) -> str:
    """One collective: its kernel and the host call that launched it."""
    host = 4320677110699 + call * 300
    return KERNEL.format(
        rank=rank,
        call=call + 1,
        host=host,
        ts=host + 40,
        ns=call * 7 % 1000,
        dur=100 + call % 90,
        count=1 << (10 + call % 16),
    )


def trace(rank: int, collectives: int) -> Iterator[bytes]:
    """A rank's trace in chunks."""
    yield (
        '{\n  "schemaVersion": 1,\n  "distributedInfo": {"backend": "nccl", "rank": '
        f'{rank}, "world_size": {RANKS}, "nccl_version": "2.28.9"}},\n'
        '  "baseTimeNanoseconds": 1790857026000000000,\n  "traceEvents": [\n'
    ).encode()
    pending = ""
    for call in range(collectives):
        pending += event(rank, call) + (",\n" if call + 1 < collectives else "\n")
        if len(pending) > CHUNK:
            yield pending.encode()
            pending = ""
    yield pending.encode() + b'  ],\n  "traceName": "trace.json"\n}\n'


def repeated(megabytes: int) -> Iterator[bytes]:
    """A trace of about that size without the cost of making it: one chunk again and again."""
    head, *chunks, _ = trace(0, 3 * CHUNK // 1000)
    yield head
    for _ in range(max(1, (megabytes << 20) // len(chunks[0]))):
        yield chunks[0]
    yield event(0, 0).encode() + b"]}"


def peak_of(megabytes: int) -> tuple[float, float, int]:
    """Seconds, peak MB and rows of reading a large trace."""
    begin = time.perf_counter()
    (file,) = parse(repeated(megabytes), "large")
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return seconds, peak, len(file.columns)


STEP = """  {{
    "ph": "X", "cat": "{category}", "name": "ProfilerStep#{number}", "pid": {pid}, "tid": {pid},
    "ts": {ts}.000, "dur": {dur}.000, "args": {{"External id": {number}}}
  }}"""
PRODUCT = """  {{
    "ph": "X", "cat": "kernel", "name": "gemm", "pid": {rank}, "tid": 7, "ts": {ts}.000,
    "dur": {dur}.125, "args": {{
      "External id": {call}, "device": {rank}, "context": 1, "stream": 7, "correlation": {call}
    }}
  }}"""


def step_trace(rank: int, ranks: int, steps: int, calls: int) -> bytes:
    """A rank's trace of marked steps: it comes late to each call by its own times."""
    own, shared = random.Random(rank), random.Random(1000 + rank // 8)
    head = next(trace(rank, 1)).replace(b'"world_size": 8', b'"world_size": %d' % ranks)
    events = []
    for call in range(steps * calls):
        lasts, late = 100 + shared.randrange(90), own.randrange(30)
        host = 4320677110699 + call * 300
        if call % calls == 0:
            for category, pid, begin in (("user_annotation", 963, 0),
                                         ("gpu_user_annotation", rank, 5)):  # fmt: skip
                events.append(STEP.format(category=category, number=call // calls, pid=pid,
                                          ts=host + begin, dur=calls * 300 - 10))  # fmt: skip
        events.append(
            KERNEL.format(
                rank=rank, call=call + 1, host=host, ts=host + 40 + late, ns=call * 7 % 1000,
                dur=lasts - late, count=1 << (10 + call % 16),
            )
        )  # fmt: skip
        if call % 4 == 0:
            events.append(PRODUCT.format(rank=rank, ts=host + 240, dur=50 + late,
                                         call=10_000_000 + call))  # fmt: skip
    first = rank // 8 * 8
    group = str(list(range(first, min(first + 8, ranks))))
    text = ",\n".join(events).replace("[0, 1, 2, 3, 4, 5, 6, 7]", group)
    text = text.replace('Group Name": "0"', f'Group Name": "{rank // 8}"')
    return head + text.encode() + b"\n  ]\n}\n"


def runs_of(numbers: list[int]) -> None:
    """Print what a run of so many traces costs."""
    for ranks in numbers:
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(ranks):
                (Path(folder) / f"rank{rank}.json").write_bytes(step_trace(rank, ranks, 20, 970))
            for name, found in zip(("ingest", "report"), pipeline(Path(folder)), strict=True):
                wall, cpu, peak = found
                print(f"{name} of {ranks} traces: {wall:.1f} s, processor {cpu:.1f} s, "
                      f"peak {peak:.0f} MB")  # fmt: skip


Usage = tuple[float, float, float]  # wall seconds, processor seconds, peak MB


def collscope(*words: str) -> Usage:
    """Run a command; what it prints is thrown away."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment.setdefault("PYTHONPYCACHEPREFIX", f"{tempfile.gettempdir()}/collscope-benchmark")
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begin = time.perf_counter()
    command = [sys.executable, "-m", "collscope", *words]
    child = os.posix_spawn(sys.executable, command, environment, file_actions=quiet)
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    wall = time.perf_counter() - begin
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def pipeline(folder: Path) -> tuple[Usage, Usage]:
    """`collscope ingest trace` of a folder into a new store, and `collscope report` of it."""
    with tempfile.TemporaryDirectory() as other:
        db = f"{other}/a.db"
        ingest = collscope("ingest", "trace", str(folder), "--db", db)
        return ingest, collscope("report", "--db", db)


def as_commands(collectives: int, rounds: int) -> None:
    """Print the best of the rounds for eight ranks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rank in range(RANKS):
            (folder / f"rank{rank}.json").write_bytes(b"".join(trace(rank, collectives)))
        found = [pipeline(folder) for _ in range(rounds)]
    for command, part in (("ingest trace", 0), ("report", 1)):
        wall, cpu, peak = (min(column) for column in zip(*(r[part] for r in found), strict=True))
        print(
            f"collscope {command}, {RANKS} ranks x {collectives}: {wall:.2f} s, processor "
            f"{cpu:.2f} s, peak {peak:.0f} MB"
        )


def large_files(megabytes: int) -> None:
    """Print what a trace of that size costs as a file: every event is another one."""
    events = (megabytes << 20) // len(event(0, 1_000_000))
    for name, opened in (("rank0.json", Path.open), ("rank0.json.gz", _packed)):
        with tempfile.TemporaryDirectory() as folder:
            with opened(Path(folder) / name, "wb") as file:
                for chunk in trace(0, events):
                    file.write(chunk)
            (wall, cpu, peak), _ = pipeline(Path(folder))
        print(
            f"collscope ingest trace, {megabytes} MB as {name}, {events} collectives: "
            f"{wall:.1f} s, processor {cpu:.1f} s, peak {peak:.0f} MB"
        )


def _packed(path: Path, mode: str) -> IO[bytes]:
    return gzip.open(path, mode, compresslevel=1)  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--command", action="store_true", help="the large trace as files, too")
    parser.add_argument("--runs", type=int, nargs="+", help="numbers of traces of marked steps")
    arguments = parser.parse_args()
    if arguments.runs:
        runs_of(arguments.runs)
        return
    # First, while this process is small: a command's peak counts from the size of its parent on.
    for collectives in (COLLECTIVES // 2, COLLECTIVES):
        as_commands(collectives, arguments.rounds)
    if arguments.command:
        large_files(arguments.megabytes)
    for collectives in (COLLECTIVES // 2, COLLECTIVES):
        files = [list(trace(rank, collectives)) for rank in range(RANKS)]
        size = sum(len(chunk) for file in files for chunk in file)
        walls, processor = [], []
        for _ in range(arguments.rounds):
            wall, cpu = time.perf_counter(), time.process_time()
            rows = sum(len(parse(file, "rank")[0].columns) for file in files)
            walls.append(time.perf_counter() - wall)
            processor.append(time.process_time() - cpu)
        print(
            f"{RANKS} ranks x {collectives}: {size / 1e6:.1f} MB, {rows} rows:"
            f" {min(walls):.3f} s, processor {min(processor):.3f} s"
        )
    spawn = multiprocessing.get_context("spawn")
    for megabytes in (arguments.megabytes // 2, arguments.megabytes):
        with spawn.Pool(1) as pool:
            seconds, peak, rows = pool.apply(peak_of, (megabytes,))
        print(f"{megabytes} MB in one trace: {rows} rows, {seconds:.2f} s, peak {peak:.0f} MB")


if __name__ == "__main__":
    main()
