"""Interference and pairs, as tables of benchmarks/gpu/results.md, of the files of microbench.sh.

    python3 benchmarks/gpu/microbench_table.py FOLDER

Reads kernel.csv and gemm.csv (medians over ranks and rounds), p2p.csv and copies.csv.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

Row = dict[str, str]


def rows_of(path: Path) -> list[Row]:
    """Finished rows of a CSV of ours."""
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [row for row in rows if row["status"] == "ok"]


def middle(rows: Sequence[Row], column: str) -> float:
    """Median of a column."""
    return median(float(row[column]) for row in rows)


def interference(folder: Path) -> None:
    """R beside the kernel and beside the matrix product, by channels."""
    found: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for name in ("kernel", "gemm"):
        for row in rows_of(folder / f"{name}.csv"):
            found[row["channels"] or "default"][name].append(row)
    print("| channels | R, kernel | model | noise | GB/s alone → beside "
          "| R, cuBLAS | noise | GB/s alone → beside |")  # fmt: skip
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for channels, beside in found.items():
        sms = int(beside["kernel"][0]["multiprocessors"])
        cells = [channels]
        for name, digits in (("kernel", 4), ("gemm", 3)):
            rows = beside[name]
            alone, busy = (middle(rows, f"busbw_{w}_gbps") for w in ("alone", "with"))
            model = "–" if channels == "default" else f"{1 - int(channels) / sms:.4f}"
            cells += [f"{middle(rows, 'relative_compute'):.{digits}f}"]
            cells += [model] if name == "kernel" else []
            cells += [f"{middle(rows, 'relative_compute_noise'):.{digits}f}"]
            cells += [f"{alone:.3g} → {busy:.3g}"]
        print(f"| {' | '.join(cells)} |")


def pairs(folder: Path) -> None:
    """Slowest to fastest pair, Send/Recv and copies, by size."""
    rates: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows_of(folder / "p2p.csv"):
        for way in ("one-way", "two-way"):
            if row["label"].endswith(way):
                rates[int(row["size_bytes"])][way].append(float(row["algbw_gbps"]))
    for row in rows_of(folder / "copies.csv"):
        if (row["kind"], row["direction"]) == ("peer_async", "one"):
            rates[int(row["size_bytes"])]["copy"].append(float(row["bandwidth_gbps"]))
    print("\n| size | one-way GB/s | two-way GB/s, each | copy engine GB/s | of copy, median |")
    print("|---|---:|---:|---:|---:|")
    for size, of in sorted(rates.items()):
        if len(of["one-way"]) > 1 and of["copy"]:
            spans = (f"{min(of[w]):.3g}–{max(of[w]):.3g}" for w in ("one-way", "two-way", "copy"))
            part = median(of["one-way"]) / median(of["copy"])
            print(f"| {size / 2**20:g} MiB | {' | '.join(spans)} | {part:.0%} |")


if __name__ == "__main__":
    interference(Path(sys.argv[1]))
    pairs(Path(sys.argv[1]))
