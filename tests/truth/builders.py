"""Small inputs that a case describes instead of holding: each function writes files."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import random
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import zstandard


def text(path: Path, content: str) -> None:
    """A file of that content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, "utf-8")


def edit(source: Path, path: Path, *changes: list[str]) -> None:
    """`source` (a glob's one match) with each [old, new] replaced everywhere."""
    content = _read(source)
    for old, new in changes:
        assert old in content, f"{source}: no {old!r}"
        content = content.replace(old, new)
    text(path, content)


def long(source: Path, path: Path, word: str, times: int) -> None:
    """`source` with `word` stretched to that many characters."""
    edit(source, path, [word, "x" * times])


def repeated(path: Path, before: str, word: str, times: int, after: str) -> None:
    """A file of `word` so many times, between two others."""
    text(path, before + word * times + after)


def keep(source: Path, path: Path, word: str) -> None:
    """Lines of `source` that hold `word`."""
    text(path, "".join(row for row in _read(source).splitlines(keepends=True) if word in row))


def lines(source: Path, path: Path, first: int, last: int) -> None:
    """Lines `first` to `last` of `source`, from 1."""
    text(path, "".join(_read(source).splitlines(keepends=True)[first - 1 : last]))


def join(path: Path, *sources: Path) -> None:
    """All `sources` one after the other."""
    text(path, "".join(_read(s) for s in sources))


def encode(source: Path, path: Path, encoding: str) -> None:
    """`source` in another encoding."""
    path.write_bytes(_read(source).encode(encoding))


def sqlite(source: Path | None, path: Path, script: str) -> None:
    """A database: a copy of `source`, or a new one, after `script`."""
    if source:
        path.write_bytes(source.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def archive(path: Path, *sources: Path) -> None:
    """A .tar.gz of the files of globs, not compressed themselves, in folders as they lie."""
    with tarfile.open(path, "w:gz") as tar:
        for glob in sources:
            for source in sorted(glob.parent.glob(glob.name)):
                content = _read(source).encode()
                member = tarfile.TarInfo(f"{source.parent.name}/{source.name.removesuffix('.gz')}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def cut(source: Path, path: Path, size: int) -> None:
    """The first bytes of a file."""
    path.write_bytes(source.read_bytes()[:size])


def bomb(path: Path, size: int) -> None:
    """`size` zero bytes as .zst, a 30 000th of that on the disk."""
    block = bytes(1 << 24)
    with path.open("wb") as file, zstandard.ZstdCompressor(level=1).stream_writer(file) as writer:
        for _ in range(size // len(block)):
            writer.write(block)


def link(path: Path, target: str) -> None:
    """A symbolic link, which may lead nowhere."""
    path.symlink_to(target)


def pipe(path: Path) -> None:
    """A FIFO that nobody writes to."""
    os.mkfifo(path)


def kineto(folder: Path, job: dict[str, Any]) -> None:
    """Traces of some ranks of an invented job, `rankN.json.gz`, as torch.profiler writes them.

    Every step each of `groups` (lists of world ranks, with `names`) does one AllReduce. Rank r
    arrives `late_us[r]` after the earliest and all end `transfer_us` after the last; its step has
    one compute kernel of `compute_us[r]`. Groups follow each other by `spacing_us`.
    `begin[r]` steps are missing at the start of rank r's window. `ranks` are those whose traces
    exist, of `world`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank in job["ranks"]:
        events = list(_kineto_events(job, rank))
        trace = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": rank % 8, "name": "NVIDIA H200"}],
            "distributedInfo": {
                "backend": "nccl",
                "rank": rank,
                "world_size": job["world"],
                "pg_count": len(job["groups"]),
                "pg_config": [
                    {"pg_name": str(k), "pg_desc": name, "pg_size": len(group), "ranks": group}
                    for k, (name, group) in enumerate(zip(job["names"], job["groups"], strict=True))
                ],
            },
            "baseTimeNanoseconds": 1_790_000_000_000_000_000,
            "traceEvents": events,
        }
        body = json.dumps(trace).encode()
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(body, 1, mtime=0))


def ahead(folder: Path, by_us: float, *sources: Path) -> None:
    """Recorded traces of PyTorch's profiler as of a host whose clock is ahead by so much."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        trace = json.loads(zstandard.decompress(source.read_bytes()))
        for event in trace["traceEvents"]:
            if "ts" in event:
                event["ts"] += by_us
        body = gzip.compress(json.dumps(trace).encode(), 1, mtime=0)
        (folder / f"{source.name.removesuffix('.zst')}.gz").write_bytes(body)


def damaged(folder: Path, what: dict[str, Any], *sources: Path) -> None:
    """Recorded traces of PyTorch's profiler, `rankN.json`, with events changed or lost.

    Of the `ranks` named (all without): of every `nth` kernel in the order of the starts (of those
    whose name has `of`) the duration is `times` as long, the start `later_us` later; kernels that
    start in the part `lost` (from, to) of the trace's time are gone; events of the categories
    `without` and of the names `without_calls` are gone; `twice` all events stand there again; those
    behind the middle of the kernels' time are `jump_us` later.
    Kernels stand there `again_us` later, too; all starts are `rounded_us` down; the clock of the
    `categories` named (all without) is `slow` as slow, from the first event on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, source in enumerate(sorted(sources)):
        trace = json.loads(_read(source))
        if number in what.get("ranks", [number]):
            _damage(trace, what)
        (folder / f"rank{number}.json").write_text(json.dumps(trace), "utf-8")


def _damage(trace: dict[str, Any], what: dict[str, Any]) -> None:
    events = trace["traceEvents"]
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])
    begin = kernels[0]["ts"]
    lasts = kernels[-1]["ts"] + kernels[-1]["dur"] - begin
    gone = {id(e) for e in events if e.get("cat") in what.get("without", ())}
    gone |= {id(e) for e in events if e.get("name") in what.get("without_calls", ())}
    if "lost" in what:
        first, last = (begin + part * lasts for part in what["lost"])
        gone |= {id(e) for e in kernels if first <= e["ts"] <= last}
    named = [e for e in kernels if what.get("of", "") in e["name"]]
    for kernel in named[:: what["nth"]] if "nth" in what else ():
        kernel["dur"] *= what.get("times", 1)
        kernel["ts"] += what.get("later_us", 0)
    for event in events if "jump_us" in what else ():
        if event.get("ph") != "M" and event.get("ts", 0) > begin + lasts / 2:
            event["ts"] += what["jump_us"]
    if "again_us" in what:
        events += [{**e, "ts": e["ts"] + what["again_us"]} for e in kernels]
    timed = [e for e in events if e.get("ph") == "X"]
    first = min(e["ts"] for e in timed)
    for event in timed:
        event["ts"] -= event["ts"] % what["rounded_us"] if "rounded_us" in what else 0
        if event.get("cat") in what.get("categories", [event.get("cat")]) and "slow" in what:
            event["ts"] = first + (event["ts"] - first) * what["slow"]
            event["dur"] = event.get("dur", 0) * what["slow"]
    kept = [e for e in events if id(e) not in gone]
    trace["traceEvents"] = [*kept, *(dict(e) for e in kept)] if what.get("twice") else kept


def convert(folder: Path, form: str, *sources: Path) -> None:
    """Recorded traces of PyTorch's profiler as another one would have written them."""
    from readers import parse
    from trace_converter import write

    traces = [t for path in sources for t in parse([zstandard.decompress(path.read_bytes())], "t")]
    for _ in write(traces, form, folder):
        pass


def _kineto_events(job: dict[str, Any], rank: int) -> Iterator[dict[str, Any]]:
    late, step = job["late_us"], float(job["step_us"])
    jitter = random.Random(rank)
    number = 0
    for k in range(job.get("begin", {}).get(str(rank), 0), job["steps"]):
        base = 1_000_000.0 + k * step
        computed = (base, base + job["compute_us"][rank])
        yield from _launched(number, "gemm_kernel", computed, (rank, 7), {})
        number += 1
        for place, (name, group) in enumerate(zip(job["names"], job["groups"], strict=True)):
            if rank not in group:
                continue
            at = base + max(job["compute_us"]) + 50 + place * job.get("spacing_us", 0.0)
            ends = at + max(late[r] for r in group) + job["transfer_us"]
            start = at + late[rank] + jitter.random() * 0.2
            args = {
                "Collective name": "allreduce",
                "In msg nelems": job["count"],
                "Out msg nelems": job["count"],
                "dtype": "BFloat16",
                "Group size": len(group),
                "Process Group Name": str(place),
                "Process Group Description": name,
                "Process Group Ranks": str(group),
            }
            kernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            yield from _launched(number, kernel, (start, ends), (rank, 20 + place), args)
            number += 1


def _launched(
    number: int, name: str, times: tuple[float, float], place: tuple[int, int], args: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """A kernel of (start, end) on (rank, stream), and the host's call that launched it before."""
    (start, end), (rank, stream) = times, place
    both = {"correlation": number + 1, "External id": number + 1}
    yield {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100 + rank,
        "tid": 100 + rank, "ts": round(start - 9, 3), "dur": 4.0, "args": {"cbid": 211, **both},
    }  # fmt: skip
    yield {
        "ph": "X", "cat": "kernel", "name": name, "pid": rank % 8, "tid": stream,
        "ts": round(start, 3), "dur": round(end - start, 3),
        "args": {"device": rank % 8, "stream": stream, **both, **args},
    }  # fmt: skip


def _read(source: Path) -> str:
    if "*" in source.name:
        (source,) = source.parent.glob(source.name)
    packed = {".gz": gzip.decompress, ".xz": lzma.decompress, ".zst": zstandard.decompress}
    unpack = packed.get(source.suffix, bytes)
    return unpack(source.read_bytes()).decode()


def klke(path: Path, job: dict[str, Any]) -> None:
    """A log of RCCL's kernel trace: `nranks` processes, `calls` AllReduce calls in order.

    Rank r starts `late_us[r]` after the earliest, all end `transfer_us` after the last.
    """
    lines: list[str] = []
    for k in range(job["calls"]):
        for r, late in enumerate(job["late_us"]):
            head = f"node1:{100 + r}:{100 + r} [{r}] NCCL INFO "
            trace = f"node1:{100 + r}:{200 + r} [0] NCCL INFO ## "
            start = 1000 + k * 0.01 + late / 1e6
            end = 1000 + k * 0.01 + (max(job["late_us"]) + job["transfer_us"]) / 1e6
            tail = f"busId {r + 1}2000 nRanks {job['nranks']}"
            lines += [
                f"{head}AllReduce: opCount {k:x} sendbuff 0x7f0000000000 recvbuff 0x7f0000000000 "
                f"count 1048576 datatype 7 op 0 root 0 comm 0x{0xA000 + r:x} "
                f"[nranks={job['nranks']}] stream 0x1{r:x}0 task 0 globalrank {r}",
                f"{trace}[{start:.6f}] [{r:02}:00] {k:06x} KL HWID 42300330 "
                f"ncclDevFunc_AllReduce_RING_SIMPLE_Sum_float nw 4 bi 0 nc 0 {tail}",
                f"{trace}[{end:.6f}] [{r:02}:00] {k:06x} KE {tail}",
            ]
    text(path, "\n".join(lines) + "\n")
