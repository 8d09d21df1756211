"""The HTML page at its limits: size, time to make it, and the timeline's frames while panning.

    python benchmarks/page.py [RANKS KERNELS_A_RANK]

Needs Chromium and playwright. A frame is the script's own time of one drawing, while the window
moves over the whole timeline at several zooms.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from playwright.sync_api import sync_playwright

from collscope.reports.html.page import Extras, to_html
from collscope.reports.html.timeline import make_strip
from collscope.reports.layout import NUMBER, TEXT, Section, table

_SEED = 7
_CLASSES = 10_000


def main() -> None:
    ranks, kernels = (int(a) for a in (sys.argv[1:] or ("64", "10000")))
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
