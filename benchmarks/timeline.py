"""Times the analysis of traces: 8 ranks x 4 000 collectives and as many compute kernels or more.

The traces are generated as columns, so that no parser takes part. The times are of matching,
clocks, waits, overlap (`analyse`), of the graph for predictions and of one prediction, each the
median of the rounds, as processor time of this process; and once more at twice the size.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from itertools import pairwise

import numpy as np

from collscope.model import Datatype, Op
from collscope.model.trace import TraceCollective, TraceColumns, TraceFile
from collscope.timeline.analyse import analyse
from collscope.timeline.prediction.predict import predict
from collscope.timeline.transfer_factors import NewTime

OPS = [Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_REDUCE]


def make_traces(ranks: int, calls: int, compute: int, seed: int = 0) -> list[TraceFile]:
    """A blocking job: `compute` kernels, then one of 4 collectives of the world or of a half.

    ranks    even; compute is per call
    """
    rng = np.random.default_rng(seed)
    work = rng.integers(20_000, 60_000, (ranks, calls, compute))
    work[:, :, -1] += rng.integers(0, 20_000, (ranks, calls))
    transfer = rng.integers(30_000, 90_000, calls)
    offset = rng.integers(-5_000_000, 5_000_000, ranks)
    jitter = rng.integers(0, 500, (ranks, calls))
    halves = np.arange(ranks) // (ranks // 2)
    free = np.zeros(ranks, dtype=np.int64)
    start = np.empty((ranks, calls, compute + 1), dtype=np.int64)
    end = np.empty_like(start)
    for k in range(calls):
        begin = free[:, None] + 2_000 * np.arange(1, compute + 1)
        spent = np.cumsum(work[:, k], axis=1)
        end[:, k, :compute] = begin + spent
        start[:, k, :compute] = end[:, k, :compute] - work[:, k]
        ready = end[:, k, compute - 1] + 2_000
        arrival = np.full(ranks, ready.max())
        if k % 4 == 3:
            arrival = np.array([ready[halves == h].max() for h in halves])
        start[:, k, compute] = ready
        free = end[:, k, compute] = arrival + transfer[k] - jitter[:, k]
    return [_trace(r, ranks, start[r] + offset[r], end[r] + offset[r]) for r in range(ranks)]


def _trace(rank: int, ranks: int, start: np.ndarray, end: np.ndarray) -> TraceFile:
    calls, row = start.shape
    n = calls * row
    world = tuple(range(ranks))
    half = world[: ranks // 2] if rank < ranks // 2 else world[ranks // 2 :]
    groups = [world, world, world, half]
    table = tuple(
        TraceCollective(op, Datatype.BFLOAT16, 1 << (12 + k), 1 << (12 + k), str(len(g)), len(g), g)
        for k, (op, g) in enumerate(zip(OPS, groups, strict=True))
    )
    collective = np.full((calls, row), -1, dtype=np.int32)
    collective[:, -1] = np.arange(calls) % 4
    is_collective = collective.ravel() >= 0
    base = 1_790_000_000_000_000_000
    return TraceFile(
        dialect="synthetic",
        names=("gemm", "nccl"),
        streams=("7", "20"),
        collectives=table,
        columns=TraceColumns(
            kind=np.zeros(n, dtype=np.int8),
            name=is_collective.astype(np.int32),
            stream=is_collective.astype(np.int32),
            start_ns=start.ravel() + base,
            end_ns=end.ravel() + base,
            launch_ns=base + start.ravel()[0] - 100_000 + 5_000 * np.arange(n),
            collective=collective.ravel(),
            seq=np.full(n, -1, dtype=np.int64),
        ),
        rank=rank,
    )


def measure(traces: list[TraceFile]) -> tuple[list[float], int]:
    """Processor seconds of analysis, graph and prediction; rows of all traces."""
    marks = [time.process_time()]
    timeline = analyse(traces)
    marks.append(time.process_time())
    recorded = timeline.recorded()
    marks.append(time.process_time())
    calls, times = timeline.calls, timeline.times
    new = {}
    for number, key in enumerate(calls.classes):
        median = float(np.median(times.transfer[times.known & (calls.class_ == number)]))
        new[key] = NewTime(0.5 * median, 0.4 * median)
    predict(recorded, new)
    marks.append(time.process_time())
    return [b - a for a, b in pairwise(marks)], len(timeline.rows)


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for compute in (1, 5):
        for calls in (options.calls, 2 * options.calls):
            traces = make_traces(options.ranks, calls, compute)
            rounds = [measure(traces) for _ in range(options.rounds)]
            parts = [statistics.median(r[0][k] for r in rounds) for k in range(3)]
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{options.ranks} ranks x {calls} collectives, {rounds[0][1]} rows:"
                f" analyse {parts[0]:.3f} s, graph {parts[1]:.3f} s, predict {parts[2]:.3f} s;"
                f" peak {peak:.0f} MiB"
            )


if __name__ == "__main__":
    main()
