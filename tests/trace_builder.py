"""Synthetic jobs: ranks that compute and meet in collectives, with the truth about who waited."""

from __future__ import annotations

import random
from collections import defaultdict

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.model import Datatype, Op
from collscope.model.trace import Call, HostCalls, Kind, TraceCollective, TraceColumns, TraceFile

US = 1_000
COMPUTE, COMM = 0, 1  # streams


class Row(msgspec.Struct):
    kind: int
    name: int
    stream: int
    start: int
    end: int
    launch: int = -1
    collective: TraceCollective | None = None
    seq: int = -1
    wait: int | None = None  # the truth


class Job(msgspec.Struct, dict=True):
    """Rows per rank, on the true clock; `play` methods append to them."""

    nranks: int
    seed: int = 0
    base: int = 1_790_000_000_000_000_000
    jitter_ns: int = 300
    host_work: int = 0  # ns from launch to launch; 0: a host that is far ahead of the GPU
    rows: dict[int, list[Row]] = msgspec.field(default_factory=lambda: defaultdict(list))
    compute_free: dict[int, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    comm_free: dict[int, int] = msgspec.field(default_factory=lambda: defaultdict(int))

    host: dict[int, int] = msgspec.field(default_factory=lambda: defaultdict(lambda: -200 * US))

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def _launch(self, rank: int, ready: int) -> tuple[int, int]:
        """Start of a row that the GPU is ready for, and its launch."""
        if self.host_work:
            self.host[rank] += self.host_work
            return max(ready, self.host[rank] + 6 * US), self.host[rank]
        self.host[rank] = min(self.host[rank] + 5 * US, ready - 6 * US)
        return ready, self.host[rank]

    def compute(self, rank: int, duration: int, gap: int = 2 * US) -> None:
        start, launch = self._launch(rank, self.compute_free[rank] + gap)
        self.rows[rank].append(Row(Kind.KERNEL, 0, COMPUTE, start, start + duration, launch))
        self.compute_free[rank] = start + duration

    def collective(
        self,
        ranks: tuple[int, ...],
        transfer: int,
        *,
        op: Op = Op.ALL_REDUCE,
        count: int = 1 << 20,
        blocking: bool = True,
        comm: int = COMM,
    ) -> None:
        """All of `ranks` meet; blocking ones hold up the compute stream until they are done."""
        started = {
            r: self._launch(r, max(self.compute_free[r], self.comm_free[r]) + 2 * US) for r in ranks
        }
        arrival = max(start for start, _ in started.values())
        entry = TraceCollective(
            op, Datatype.BFLOAT16, count, count, str(ranks), len(ranks), ranks, "Sum"
        )
        for r in ranks:
            end = arrival + transfer - self.random.randint(0, self.jitter_ns)
            start, launch = started[r]
            row = Row(Kind.KERNEL, 1, comm, start, end, launch, entry)
            row.wait = arrival - start
            self.rows[r].append(row)
            self.comm_free[r] = end
            if blocking:
                self.compute_free[r] = end

    def traces(
        self,
        offsets: dict[int, int] | None = None,
        drifts: dict[int, float] | None = None,
        hosts: dict[int, str] | None = None,
    ) -> list[TraceFile]:
        """One trace per rank; its clock is ahead by `offsets` and runs fast by `drifts`."""
        return [
            self._trace(
                r, (offsets or {}).get(r, 0), (drifts or {}).get(r, 0.0), (hosts or {}).get(r)
            )
            for r in range(self.nranks)
        ]

    def _trace(self, rank: int, offset: int, drift: float, host: str | None) -> TraceFile:
        rows = sorted(self.rows[rank], key=lambda r: r.start)
        table = list(dict.fromkeys(r.collective for r in rows if r.collective is not None))
        place = {c: k for k, c in enumerate(table)}

        def times(values: list[int]) -> np.ndarray:
            known = np.array(values, dtype=np.int64)
            moved = known + self.base + offset + (known * drift).astype(np.int64)
            return np.where(known < -(1 << 40), -1, moved)

        streams = sorted({r.stream for r in rows})
        return TraceFile(
            dialect="kineto",
            names=("gemm", "ncclDevKernel", "Memcpy"),
            streams=tuple(str(s) for s in streams),
            collectives=tuple(table),
            columns=TraceColumns(
                kind=np.array([r.kind for r in rows], dtype=np.int8),
                name=np.array([r.name for r in rows], dtype=np.int32),
                stream=np.array([streams.index(r.stream) for r in rows], dtype=np.int32),
                start_ns=times([r.start for r in rows]),
                end_ns=times([r.end for r in rows]),
                launch_ns=times([r.launch for r in rows]),
                collective=np.array(
                    [-1 if r.collective is None else place[r.collective] for r in rows],
                    dtype=np.int32,
                ),
                seq=np.array([r.seq for r in rows], dtype=np.int64),
            ),
            rank=rank,
            world_size=self.nranks,
            host=host,
        )

    def drop(self, rank: int, number: int) -> Row:
        """Take the `number`-th collective away from one rank's trace."""
        calls = [r for r in self.rows[rank] if r.collective is not None]
        self.rows[rank].remove(calls[number])
        return calls[number]

    def forget_groups(self) -> None:
        """As older traces: nothing tells which group a collective is of."""
        for rows in self.rows.values():
            for r in rows:
                if r.collective is not None:
                    r.collective = replace(
                        r.collective, group=None, group_ranks=None, group_size=None
                    )


def with_waits(job: Job, waits: list[list[tuple[int, int]]]) -> list[TraceFile]:
    """Traces with launches of 4 us, and calls in which hosts wait, from when to when."""
    found = []
    for trace, waited in zip(job.traces(), waits, strict=True):
        launch = trace.columns.launch_ns
        start = np.append(launch, [begin + job.base for begin, _ in waited])
        end = np.append(launch + 4 * US, [finish + job.base for _, finish in waited])
        kind = np.repeat([Call.LAUNCH, Call.STREAM_SYNC], [len(launch), len(waited)])
        order = np.argsort(start, kind="stable")
        unknown = np.full(len(start), -1, dtype=np.int32)
        calls = HostCalls(
            kind[order].astype(np.int8), np.zeros(len(start), dtype=np.int32), start[order],
            end[order], np.where(kind[order] == Call.STREAM_SYNC, COMPUTE, -1).astype(np.int32),
            unknown, np.argsort(order)[: len(launch)].astype(np.int32),
        )  # fmt: skip
        found.append(replace(trace, calls=calls))
    return found


def steady_job(nranks: int, calls: int, *, seed: int = 0, late: int = -1) -> Job:
    """Compute and an AllReduce of the world, `calls` times; rank `late` 1 ms late each 10th."""
    job = Job(nranks, seed)
    world = tuple(range(nranks))
    for k in range(calls):
        for r in world:
            job.compute(r, 200 * US + job.random.randint(0, 8 * US))
            if r == late and k % 10 == 9:
                job.compute(r, 1000 * US, gap=0)
        job.collective(world, 60 * US, count=1 << (14 + k % 3))
    return job


def nested_job(seed: int) -> Job:
    """2 to 8 ranks; groups of neighbours within the world; some collectives are overlapped."""
    rng = random.Random(seed)
    nranks = rng.choice([2, 4, 6, 8])
    size = rng.choice([s for s in (1, 2, 3, 4) if nranks % s == 0 and s < nranks])
    job = Job(nranks, seed, jitter_ns=rng.choice([0, 50, 500]))
    world = tuple(range(nranks))
    parts = [world[k : k + size] for k in range(0, nranks, size)]
    across = [world[k::size] for k in range(size)]
    ops = [Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER]
    for _ in range(rng.randint(4, 8)):
        for k in range(rng.randint(3, 6)):
            for r in world:
                job.compute(r, rng.randint(20, 300) * US)
            blocking = rng.random() < 0.5
            groups = rng.choice([[world], parts, across])
            for g in groups:
                if len(g) > 1:
                    job.collective(
                        g, rng.randint(10, 80) * US, op=ops[k % 3], count=1 << 10 + k,
                        blocking=blocking,
                    )  # fmt: skip
        for r in world:
            job.compute_free[r] = max(job.compute_free[r], job.comm_free[r])
        job.collective(world, 30 * US, count=77)
    return job
