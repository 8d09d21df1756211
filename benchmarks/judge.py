"""Times `collscope compare` and `collscope check` over many measurements, from store to text.

Two labels of half the measurements each, in rounds with samples, are put into a store through the
insert function; printed are the medians of the rounds, as wall time and as processor time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from collscope.model import Datatype, Measurement, Op, algorithm_bandwidth, bus_bandwidth
from collscope.reports.check.from_names import Names, check_labels
from collscope.reports.check.text import render_check
from collscope.reports.compare.from_names import compare_labels
from collscope.reports.compare.text import render_compare
from collscope.store import sources
from collscope.store.connection import open_store, transaction
from collscope.store.measurements import insert_measurements

OPS = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.BROADCAST, Op.ALL_TO_ALL)
ROUNDS, SAMPLES = 5, 5


def measurements(number: int, label: str, rng: random.Random) -> list[Measurement]:
    """`number` rows: classes in `ROUNDS` rounds with `SAMPLES` samples each."""
    found = []
    for k in range(number):
        index, turn = divmod(k, ROUNDS)
        size = 1024 * (1 + index // len(OPS))
        op = OPS[index % len(OPS)]
        samples = tuple((10 + size / 1e5) * rng.lognormvariate(0, 0.01) for _ in range(SAMPLES))
        us = statistics.median(samples)
        found.append(
            Measurement(
                op,
                Datatype.FLOAT32,
                "Sum",
                count=size // 4,
                size_bytes=size,
                in_place=True,
                nranks=8,
                nnodes=1,
                calls=100,
                time_us_median=us,
                label=label,
                round=turn,
                algbw_gbps=algorithm_bandwidth(size, us / 1e6),
                busbw_gbps=bus_bandwidth(op, size=size, time_s=us / 1e6, nranks=8),
                n_wrong=0,
                method="batch",
                backend="cuda",
                samples_us=samples,
            )
        )
    return found


def fill(db: Path, number: int) -> None:
    """A store with the labels old and new."""
    rng = random.Random(1)
    connection = open_store(db)
    with transaction(connection, db):
        run = sources.run_id(connection, "main")
        source = sources.insert_source(
            connection, run, sources.SourceRow("made.csv", "0", "csv", "replay_csv")
        )
        for label in ("old", "new"):
            insert_measurements(
                connection, run, source, measurements(number // 2, label, rng), label
            )
        connection.execute("UPDATE _run SET matched = 1")
    connection.close()


def timed(name: str, job: Callable[[], str], rounds: int) -> None:
    """Run and print."""
    wall, cpu, text = [], [], ""
    for _ in range(rounds):
        before = time.perf_counter(), time.process_time()
        text = job()
        wall.append(time.perf_counter() - before[0])
        cpu.append(time.process_time() - before[1])
    print(
        f"{name}: {statistics.median(wall):.3f} s, processor {statistics.median(cpu):.3f} s,"
        f" slowest round {max(wall):.3f} s, {len(text.splitlines())} lines"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "made.db"
        fill(db, arguments.measurements)
        print(f"{arguments.measurements} measurements of {SAMPLES} samples, two labels")
        names = Names("old", "new")
        jobs: dict[str, Callable[[], str]] = {
            "compare": lambda: render_compare(compare_labels(db, names.all), "text"),
            "check": lambda: render_check(check_labels(db, names), "text"),
            "check, junit": lambda: render_check(check_labels(db, names), "junit"),
            "check against a system": lambda: render_check(
                check_labels(db, names, system="h200"), "json"
            ),
        }
        for name, job in jobs.items():
            timed(name, job, arguments.rounds)


if __name__ == "__main__":
    main()
