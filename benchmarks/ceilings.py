"""Published measurements against limit, reachable ceiling and latency floor, as Markdown.

    python benchmarks/ceilings.py             # the table of benchmarks/ceilings.md
    python benchmarks/ceilings.py --points    # every point

Each system is judged twice: as shipped, and once more without its own published figures, so that
no row is held against itself.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collscope.model import Op, bus_factor, parse_op
from collscope.roofline.catalogue import load_system
from collscope.roofline.roof import Ceilings, Roofs
from collscope.roofline.workload import Workload

_TABLE = Path(__file__).parent / "published" / "collectives.csv"
_SMALL = 64 << 10  # bytes up to which a time is latency


class Point(msgspec.Struct, frozen=True):
    """One published time, and the ceilings of its class with and without the system's figures."""

    op: Op
    nranks: int
    nnodes: int
    size: int
    time_us: float
    busbw_gbps: float
    ceilings: Ceilings
    without: Ceilings


def main() -> None:
    groups: dict[tuple[str, Op, int, int, bool], list[Point]] = defaultdict(list)
    sources: dict[str, None] = {}
    with _TABLE.open(newline="") as file:
        for row in csv.DictReader(file):
            point = _point(row)
            key = (row["system"], point.op, point.nranks, point.nnodes, row["in_network"] == "1")
            groups[key].append(point)
            sources[f"{row['system']}: {row['source']}"] = None
    if "--points" in sys.argv:
        _points(groups)
        return
    print(
        "| machine | class | best GB/s | limit | reachable | range | best / reachable |"
        " range without its own figures | holds | least us | latency us | range | points |"
        " above limit | faster than the range |"
    )
    print("|---|---|---:|---:|---:|---|---:|---|---|---:|---:|---|---:|---:|---:|")
    for (system, op, nranks, nnodes, reduced), points in groups.items():
        print(_line(system, f"{op.value} x{nranks}, {nnodes} node{'s' * (nnodes > 1)}"
                    + " switches reduce" * reduced, points))  # fmt: skip
    print("\nSources:\n")
    for source in sources:
        print(f"- {source}")


def _point(row: dict[str, str]) -> Point:
    op, nranks = parse_op(row["op"]), int(row["nranks"])
    work = Workload(
        op, int(row["size_bytes"]), nranks, int(row["nnodes"]),
        "NVLS" if row["in_network"] == "1" else None,
    )  # fmt: skip
    system = load_system(row["system"])
    shipped = Roofs(system).ceilings(work)
    without = Roofs(replace(system, published=())).ceilings(work)
    assert shipped is not None
    assert without is not None
    time_us, factor = float(row["time_us"]), bus_factor(op, nranks)
    assert factor is not None
    return Point(
        op, nranks, work.nnodes, work.size_bytes, time_us,
        work.size_bytes * factor / time_us / 1e3, shipped, without,
    )  # fmt: skip


def _line(system: str, what: str, points: list[Point]) -> str:
    best = max(points, key=lambda p: p.busbw_gbps)
    small = [p for p in points if p.size <= _SMALL]
    least = min(small, key=lambda p: p.time_us, default=None)
    reach, left = best.ceilings.reachable, best.without.reachable
    to_gbps = best.busbw_gbps * best.time_us
    floor = "" if least is None else f"{least.ceilings.reachable.floor_us or 0:.1f}"
    spread = (
        ""
        if least is None
        else f"{least.ceilings.reachable.time_low_us:.1f} to "
        f"{least.ceilings.reachable.time_high_us:.1f}"
    )
    cells = [
        system, what, f"{best.busbw_gbps:.1f}", f"{best.ceilings.limit.busbw_gbps:.1f}",
        f"{reach.busbw_gbps:.1f}",
        f"{to_gbps / reach.time_high_us:.1f} to {to_gbps / reach.time_low_us:.1f}",
        f"{best.busbw_gbps / reach.busbw_gbps:.3f}",
        f"{to_gbps / left.time_high_us:.1f} to {to_gbps / left.time_low_us:.1f}",
        "yes" if left.time_low_us <= best.time_us <= left.time_high_us else "no",
        "" if least is None else f"{least.time_us:.1f}", floor, spread, str(len(points)),
        str(sum(p.time_us < p.ceilings.limit.time_us for p in points)),
        str(sum(p.time_us < p.ceilings.reachable.time_low_us for p in points)),
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _points(groups: dict[tuple[str, Op, int, int, bool], list[Point]]) -> None:
    for key, points in groups.items():
        print(*key)
        for p in points:
            reach = p.ceilings.reachable
            print(
                f"  {p.size:>12} {p.time_us:>10.1f} us  reachable {reach.time_us:>10.1f}"
                f" ({reach.time_low_us:.1f} to {reach.time_high_us:.1f})"
                f"  {reach.time_us / p.time_us:.2f}"
            )


if __name__ == "__main__":
    main()
