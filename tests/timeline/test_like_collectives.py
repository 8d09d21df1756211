"""Kernels of unknown names that behave like collectives: synthetic jobs, and recordings renamed."""

from __future__ import annotations

import json
import lzma
import random
import re
from pathlib import Path

import numpy as np
import pytest
from command import collscope
from inputs import SHARED

from collscope.match.rows import Rows, gather_rows
from collscope.model.trace import Kind, TraceColumns, TraceFile
from collscope.timeline.like_collectives import like_collectives

US = 1_000
CAUSES = SHARED / "recordings" / "h200x2-causes"
_Row = tuple[str, int, int]  # name, start and end in ns

GEMM, REDUCE, NORM, EARLY = "gemm<4>", "foo_kernel<4>", "norm_kernel", "early_norm_kernel"


def trace_of(rank: int, rows: list[_Row], offset_ns: int = 0) -> TraceFile:
    names = tuple(dict.fromkeys(name for name, _, _ in rows))
    n = len(rows)
    start, end = (np.array([row[k] for row in rows], dtype=np.int64) for k in (1, 2))
    columns = TraceColumns(
        kind=np.full(n, Kind.KERNEL, np.int8),
        name=np.array([names.index(name) for name, _, _ in rows], np.int32),
        stream=np.zeros(n, np.int32),
        start_ns=start + offset_ns + 1_000_000,
        end_ns=end + offset_ns + 1_000_000,
        launch_ns=np.full(n, -1, np.int64),
        collective=np.full(n, -1, np.int32),
        seq=np.full(n, -1, np.int64),
    )
    return TraceFile("kineto", names, ("7",), (), columns, rank=rank)


def job(
    nranks: int = 2,
    calls: int = 60,
    *,
    jitter_us: float = 30.0,
    early: bool = False,
    slower_us: int = 0,
) -> list[TraceFile]:
    """Ranks that compute for different times and meet in `REDUCE`; clocks differ by 5 ms a rank.

    early      a kernel behind it begins while it runs, and ends 2 us after it
    slower_us  by which the kernel after a meeting lasts longer on rank 1 than on rank 0, each time
    """
    rng = random.Random(7)
    free = [0] * nranks
    rows: list[list[_Row]] = [[] for _ in range(nranks)]
    for _ in range(calls):
        arrive = []
        for rank in range(nranks):
            length = int((50 + jitter_us * rng.random()) * US)
            rows[rank].append((GEMM, free[rank] + US, free[rank] + US + length))
            arrive.append(free[rank] + 2 * US + length)
        end = max(arrive) + 10 * US
        for rank in range(nranks):
            left = end + rng.randrange(300)
            rows[rank].append((REDUCE, arrive[rank], left))
            if early:
                rows[rank].append((EARLY, arrive[rank] + US, left + 2 * US))
                left += 2 * US
            length = int((4 + slower_us * rank + rng.random()) * US)
            rows[rank].append((NORM, left + US, left + length))
            free[rank] = left + length + US
    return [trace_of(rank, rows[rank], 5_000_000 * rank) for rank in range(nranks)]


def names(rows: Rows) -> list[str]:
    return [rows.names[one.name] for one in like_collectives(rows)]


@pytest.mark.parametrize("nranks", [2, 4])
def test_a_kernel_that_ranks_leave_together_is_found_whatever_its_name(nranks: int) -> None:
    found = like_collectives(gather_rows(job(nranks)))
    rows = gather_rows(job(nranks))
    (one,) = found
    assert rows.names[one.name] == REDUCE
    assert one.calls == 60
    # Arrivals differ by up to 30 us, ends by less than 0.3.
    assert 10 * US < one.start_spread_ns < 30 * US
    assert one.end_spread_ns < US


def test_compute_that_varies_is_none() -> None:
    """The same job without its meetings: every rank goes on as soon as its own work is done."""
    rng = random.Random(3)
    files = []
    for rank in range(2):
        rows: list[_Row] = []
        at = 0
        for _ in range(200):
            length = int((50 + 30 * rng.random()) * US)
            rows.append((GEMM, at, at + length))
            at += length + US
        files.append(trace_of(rank, rows))
    assert names(gather_rows(files)) == []


def test_a_kernel_that_waits_within_itself_for_the_one_before_is_none() -> None:
    assert names(gather_rows(job(early=True))) == [REDUCE]


def test_a_slower_gpu_makes_no_collective() -> None:
    """Its kernel after a meeting begins with rank 0's and ends 9 us later, every time."""
    assert names(gather_rows(job(slower_us=9))) == [REDUCE]


def test_ranks_that_arrive_together_show_nothing() -> None:
    assert names(gather_rows(job(jitter_us=0.0))) == []


def test_one_trace_and_few_calls_show_nothing() -> None:
    assert names(gather_rows(job()[:1])) == []
    assert names(gather_rows(job(calls=10))) == []


def renamed(folder: Path, pattern: str, to: Path) -> list[Path]:
    """Traces of a recorded job whose collectives have other names, and no other sign of theirs."""
    made = []
    for path in sorted(folder.glob(pattern)):
        text = lzma.decompress(path.read_bytes()).decode()
        text = re.sub(r"ncclDevKernel_\w+(?:\(\w+<\w+>\))?", "foo_kernel", text)
        document = json.loads(text)
        for event in document["traceEvents"]:
            if "foo_kernel" in event.get("name", ""):
                args = event.get("args", {})
                for key in [k for k in args if k not in ("stream", "device", "correlation")]:
                    del args[key]
        out = to / path.name.removesuffix(".xz")
        out.write_text(json.dumps(document))
        made.append(out)
    return made


@pytest.mark.parametrize(
    ("job_name", "pattern"),
    [
        ("infer-nccl", "light.*"), ("infer-nccl-late", "light.*"), ("base/traces", "*"),
        ("loader/traces", "*"), ("slowgpu/traces", "*"), ("scalars/traces", "*"),
    ],
)  # fmt: skip
def test_renamed_collectives_of_recorded_jobs_are_proposed_and_nothing_else(
    tmp_path: Path, job_name: str, pattern: str
) -> None:
    if not CAUSES.is_dir():
        pytest.skip("no recordings/h200x2-causes folder")
    db = tmp_path / "job.db"
    traces = renamed(CAUSES / job_name, pattern, tmp_path)
    assert collscope("ingest", "trace", *traces, "--db", db, "--run", "masked").code == 0
    answer = json.loads(collscope("report", "--db", db, "--run", "masked", "--format", "json").out)
    (finding,) = [f for f in answer["findings"] if f["code"] == "like_collectives"]
    assert re.findall("--collective '([^']*)'", finding["detail"]) == ["foo_kernel=AllReduce"]
    # What is printed names them: the job's collectives are there again.
    named = ("--collective", "foo_kernel=AllReduce", "--run", "named")
    assert collscope("ingest", "trace", *traces, "--db", db, *named).code == 0
    answer = json.loads(collscope("report", "--db", db, "--run", "named", "--format", "json").out)
    assert not [f for f in answer["findings"] if f["code"] == "like_collectives"]


@pytest.mark.parametrize("job_name", ["infer-nccl", "base/traces", "loader/traces", "ctas1/traces"])
def test_recorded_jobs_as_they_are_propose_nothing(tmp_path: Path, job_name: str) -> None:
    if not CAUSES.is_dir():
        pytest.skip("no recordings/h200x2-causes folder")
    db = tmp_path / "job.db"
    traces = sorted((CAUSES / job_name).glob("*rank*"))
    assert collscope("ingest", "trace", *traces, "--db", db).code == 0
    answer = json.loads(collscope("report", "--db", db, "--format", "json").out)
    assert not [f for f in answer["findings"] if f["code"] == "like_collectives"]
