"""Times `collscope report`: a run of 10 M calls in 5 000 classes, all measured, against a system.

The store is written in SQL: calls are counted by class as matching leaves them, each class has a
measurement of 11 samples, and a profile has the share of the collectives. Wall and processor time
of building the report and rendering it, the median of the rounds; and of the whole command.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from collscope.reports.report.build import build_report
from collscope.reports.report.formats import render
from collscope.store.connection import open_store

OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AllToAll")
FACTORS = {"AllReduce": 1.75, "Broadcast": 1.0}  # of 8 ranks; the others 7/8
SAMPLES = 11
BUSBW_GBPS, LATENCY_US = 300.0, 30.0


def build_store(path: Path, classes: int, calls: int) -> None:
    """A run named main: one communicator of 8 ranks on one host."""
    rng = random.Random(1)
    connection = open_store(path)
    connection.execute("BEGIN")
    connection.execute("INSERT INTO _run (run_id, label) VALUES (1, 'main')")
    for source, kind in enumerate(("log", "profile", "csv"), start=1):
        connection.execute(
            "INSERT INTO _source (source_id, run_id, path, sha256, kind, dialect)"
            " VALUES (?, 1, ?, ?, ?, ?)",
            (source, kind, kind, kind, kind),
        )
    connection.execute(
        "INSERT INTO _comm (comm_id, run_id, nranks, nnodes, matched_by, ranks_seen)"
        " VALUES (1, 1, 8, 1, 'commId', 8)"
    )
    for number in range(1, classes + 1):
        _insert_class(connection, rng, number, calls // classes)
    kernels = ((1, "ncclDevKernel_Generic", "rccl", 30), (2, "gemm", None, 70))
    for name, kernel, family, total in kernels:
        connection.execute(
            "INSERT INTO _kernel_name (name_id, name, family) VALUES (?, ?, ?)",
            (name, kernel, family),
        )
        connection.execute(
            "INSERT INTO _kernel_total (source_id, name_id, kind, calls, total_ns)"
            " VALUES (2, ?, 'kernel', ?, ?)",
            (name, 8 * calls, total * 10**12),
        )
    connection.commit()
    connection.close()


def _insert_class(
    connection: sqlite3.Connection, rng: random.Random, number: int, calls: int
) -> None:
    op = OPS[number % len(OPS)]
    size = 2 ** rng.randint(3, 29) + 16 * number
    key = (op, "Bfloat16", "Sum", size // 2, size, number % 2, 8, 1)
    connection.execute(
        "INSERT INTO _class (class_id, run_id, op, datatype, redop, count, size_bytes, in_place,"
        " nranks, nnodes) VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?, ?)",
        (number, *key),
    )
    connection.execute(
        "INSERT INTO _call_total (comm_id, class_id, ranks_seen, calls) VALUES (1, ?, 8, ?)",
        (number, calls),
    )
    middle = LATENCY_US + size * FACTORS.get(op, 0.875) / (BUSBW_GBPS * 1e3)
    samples = sorted(middle * rng.uniform(0.97, 1.05) for _ in range(SAMPLES))
    connection.execute(
        "INSERT INTO _measurement (measurement_id, run_id, source_id, label, op, datatype, redop,"
        " count, size_bytes, in_place, nranks, nnodes, time_us_median, status)"
        " VALUES (?, 1, 3, 'replay', ?, ?, ?, ?, ?, ?, ?, ?, ?, 'ok')",
        (number, *key, statistics.median(samples)),
    )
    connection.executemany(
        "INSERT INTO _sample VALUES (?, ?, ?)",
        ((number, ordinal, sample) for ordinal, sample in enumerate(samples)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=5_000)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--system", default="mi300x")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "r.db"
        build_store(db, args.classes, args.calls)
        walls, cpus, commands = [], [], []
        for _ in range(args.rounds):
            connection = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
            cpu, wall = time.process_time(), time.perf_counter()
            report = build_report(connection, "main", system=args.system)
            render(report, "text")
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
            connection.close()
            wall = time.perf_counter()
            command = ["-m", "collscope", "report", "--db", str(db), "--system", args.system]
            subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
            commands.append(time.perf_counter() - wall)
    assert report.header.calls == args.calls // args.classes * args.classes
    assert report.header.classes == args.classes
    print(f"{report.header.calls} calls, {args.classes} classes, {args.classes * SAMPLES} samples")
    for name, times in (
        ("report, wall", walls),
        ("report, cpu", cpus),
        ("command, wall", commands),
    ):
        middle, low, high = statistics.median(times), min(times), max(times)
        print(f"{name:14} {middle:6.2f} s  ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
