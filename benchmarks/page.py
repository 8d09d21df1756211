"""The HTML page at its limits: size, time to make it, and the timeline's frames while panning.

    python benchmarks/page.py frames [RANKS KERNELS_A_RANK]
    python benchmarks/page.py report [CLASSES RANKS KERNELS_A_RANK]

frames  a page of one timeline in Chromium (needs playwright): a frame is the script's own time of
        one drawing, while the window moves over the whole timeline at several zooms
report  `collscope report` of one store, as text and as HTML in turns: processor time (user and
        system) of the whole command, and the size of the page
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright
from report import build_store

from collscope.model.trace import TraceColumns, TraceFile
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, table
from collscope.reports.rendering.page import Extras, to_html
from collscope.reports.waiting.strip import make_strip
from collscope.store.connection import open_store
from collscope.store.trace_columns import encode_trace

_SEED = 7
_CLASSES = 10_000
_ROUNDS = 3


def main() -> None:
    what, *sizes = sys.argv[1:] or ("frames",)
    if what == "report":
        _reports(*map(int, sizes or ("10000", "1024", "977")))
    else:
        _frames(*map(int, sizes or ("64", "10000")))


def _reports(classes: int, ranks: int, kernels: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        db, page = Path(folder) / "r.db", Path(folder) / "r.html"
        build_store(db, classes, 100 * classes)
        _add_traces(db, classes, ranks, kernels)
        print(f"{classes} classes, {ranks} ranks x {kernels} kernels")
        command = [sys.executable, "-m", "collscope", "report", "--db", str(db), "--system",
                   "mi300x", "-o", str(page), "--format"]  # fmt: skip
        spent: dict[str, list[float]] = {"text": [], "html": []}
        for _ in range(_ROUNDS):
            for form, times in spent.items():
                times.append(_processor_s([*command, form]))
        print(f"page of {page.stat().st_size / 1e6:.2f} MB")
    text, html = (median(times) for times in spent.values())
    print(f"processor time: text {text:.2f} s, HTML {html:.2f} s: {html / text:.2f} times")


def _processor_s(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _add_traces(db: Path, classes: int, ranks: int, kernels: int) -> None:
    """A trace of each rank, as matching leaves it: call k is of class k, one rank is late."""
    rng = np.random.default_rng(_SEED)
    connection = open_store(db)
    connection.execute("BEGIN")
    connection.execute("UPDATE _comm SET nranks = ?", (ranks,))
    connection.execute("UPDATE _class SET nranks = ?", (ranks,))
    connection.executemany(
        "INSERT INTO _source (source_id, run_id, path, sha256, kind, dialect)"
        " VALUES (?, 1, ?, ?, 'trace', 'kineto')",
        ((1000 + r, f"rank{r}.json", str(r)) for r in range(ranks)),
    )
    totals = [row[0] for row in connection.execute("SELECT total_id FROM _call_total")]
    transfer = rng.integers(20_000, 200_000, kernels)
    begin = np.cumsum(transfer + 400_000)
    last = rng.integers(0, ranks, kernels)
    connection.executemany(
        "INSERT INTO _call_row (call_id, total_id, seq) VALUES (?, ?, ?)",
        ((k + 1, totals[k % len(totals)], k) for k in range(kernels)),
    )
    connection.executemany(
        "INSERT INTO _call_time VALUES (?, ?, ?, ?, 300000, 10, ?, 90000, 0, 0, 0)",
        ((k + 1, ranks, ranks, int(transfer[k]), int(last[k])) for k in range(kernels)),
    )
    for r in range(ranks):
        wait = np.where(last == r, 0, rng.integers(90_000, 300_000, kernels))
        rows = [(r * kernels + k + 1, 1000 + r, r, int(begin[k] - wait[k]),
                 int(begin[k] + transfer[k])) for k in range(kernels)]  # fmt: skip
        connection.executemany(
            "INSERT INTO _kernel (kernel_id, source_id, name_id, kind, rank, start_ns, end_ns)"
            " VALUES (?, ?, 1, 'kernel', ?, ?, ?)", rows,
        )  # fmt: skip
        connection.executemany(
            "INSERT INTO _kernel_call VALUES (?, ?, ?, ?, 0)",
            ((row[0], k + 1, int(transfer[k]), int(wait[k])) for k, row in enumerate(rows)),
        )
        connection.execute(
            "INSERT INTO _trace (trace_id, source_id, rank, world_size, first_kernel, kernels,"
            " columns) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (r + 1, 1000 + r, r, ranks, r * kernels + 1, kernels,
             encode_trace(_trace(r, begin - wait, begin + transfer))),
        )  # fmt: skip
        span, busy = int(begin[-1] + transfer[-1]), int((transfer + wait).sum())
        late = int((last == r).sum())
        connection.execute(
            f"INSERT INTO _trace_rank VALUES ({', '.join('?' * 29)})",
            (r + 1, r, 0, 10.0, 0.0, 1, kernels, span, span - busy, 0, busy, busy, 0, 0, 0,
             kernels, busy, int(transfer.sum()), int(wait.sum()), 0, kernels, late, late, 90e3,
             90_000, 90_000 * late, 90_000 * late, 1 / ranks, 0),
        )  # fmt: skip
    connection.commit()
    connection.close()


def _trace(rank: int, start: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> TraceFile:
    """Kernels of one rank as its trace has them."""
    zeros = np.zeros(len(start), dtype=np.int32)
    columns = TraceColumns(
        kind=zeros.astype(np.int8), name=zeros, stream=zeros, start_ns=start, end_ns=end,
        launch_ns=start - 5_000, collective=zeros - 1, seq=np.full(len(start), -1),
    )  # fmt: skip
    return TraceFile(dialect="kineto", names=("ncclDevKernel_Generic",), streams=("7",),
                     collectives=(), columns=columns, rank=rank)  # fmt: skip


def _frames(ranks: int, kernels: int) -> None:
    began = time.perf_counter()
    text = _page(ranks, kernels)
    took = time.perf_counter() - began
    print(f"{ranks} ranks x {kernels} kernels, {_CLASSES} classes: {len(text) / 1e6:.1f} MB, "
          f"made in {took:.1f} s")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(text, encoding="utf-8")
        frames, paint = _pan(path)
    print(f"first paint {paint:.0f} ms; frames while panning: median {median(frames):.1f} ms, "
          f"largest {max(frames):.1f} ms of {len(frames)}")  # fmt: skip


def _page(ranks: int, kernels: int) -> str:
    rng = np.random.default_rng(_SEED)
    parts = []
    for rank in range(ranks):
        gaps = rng.integers(10_000, 400_000, kernels)
        length = rng.integers(5_000, 300_000, kernels)
        start = np.cumsum(gaps + length) - length
        wait = (length * rng.random(kernels) * 0.5).astype(np.int64)
        call = np.arange(kernels)
        parts.append(np.stack([np.full(kernels, rank), start, length, wait, call % 40, call], 1))
    strip = make_strip(np.concatenate(parts), {i: f"AllReduce {i}" for i in range(40)})
    rows = table(
        [("class", NUMBER), ("op", TEXT), ("size", NUMBER), ("calls", NUMBER), ("us", NUMBER)],
        ((i, "AllReduce", f"{i} KiB", i * 3, i * 1.7) for i in range(_CLASSES)),
    )
    sections = [Section("", ("A page at its limits.",)), Section("Classes", (rows,))]
    return to_html("benchmark", sections, Extras((), {"": (strip,)}))


def _pan(path: Path) -> tuple[list[float], float]:
    frames: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_function("document.querySelector('canvas').dataset.frame !== undefined",
                               timeout=120_000)  # fmt: skip
        paint = page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        )
        for zoom in (1, 0.3, 0.05, 0.005):
            frames += page.evaluate(
                """zoom => {
                    const strip = collscopeStrips[0];
                    strip.frames.length = 0;
                    const width = strip.source.span * zoom;
                    for (let i = 0; i < 20; i += 1) {
                        strip.from = (strip.source.span - width) * i / 20;
                        strip.to = strip.from + width;
                        strip.draw();
                    }
                    return strip.frames.slice();
                }""", zoom,
            )  # fmt: skip
        browser.close()
    return frames, paint


if __name__ == "__main__":
    main()
