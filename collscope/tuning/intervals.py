"""One setting per range of sizes: the cheapest choice with few switch points (pure).

Minimises sum N_c t_c(setting) + switches x cost over at most k ranges of the sizes measured, by
dynamic programming over the sizes in order. Points are the sizes of one operation on one number
of ranks and nodes, since a row of the plugin's CSV distinguishes only these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from collscope.model import Op

# Our choices: few rows, which a reader can check.
MOST_RANGES = 4  # of a shape
SWITCH_COST = 0.002  # of the time of all points with their cheapest setting
REACH = 2.0  # beyond the least and the largest size measured, a factor
_LARGEST = 2**62


class Point(msgspec.Struct, frozen=True):
    """All classes of one size."""

    size_bytes: int  # nccl-tests size S
    costs: Mapping[str, float]  # seconds of all calls by setting; those missing are forbidden


class Shape(msgspec.Struct, frozen=True):
    """What a row is for beside its range of sizes."""

    op: Op
    nranks: int
    nnodes: int


class Range(msgspec.Struct, frozen=True):
    """Neighbouring sizes with one setting."""

    first: int  # index of the point
    last: int
    setting: str


def best_ranges(
    points: Sequence[Point], most: int = MOST_RANGES, switch_cost: float = SWITCH_COST
) -> tuple[Range, ...] | None:
    """The cheapest ranges; None when no choice of settings covers every point.

    points  in order of size
    most    ranges at most
    """
    if not points:
        return ()
    if not all(point.costs for point in points):
        return None
    switch = switch_cost * sum(min(point.costs.values()) for point in points)
    n = len(points)
    # cheapest[k][i]: the first i points in k ranges, and the last range's start and setting
    cheapest: list[list[tuple[float, int, str]]] = [
        [(0.0 if i == 0 else math.inf, 0, "") for i in range(n + 1)]
    ]
    for k in range(1, most + 1):
        row = [(math.inf, 0, "")] * (n + 1)
        for start in range(n):
            before = cheapest[k - 1][start][0] + (switch if k > 1 else 0.0)
            if before == math.inf:
                continue
            for end, cost, setting in _from(points, start):
                if before + cost < row[end][0]:
                    row[end] = (before + cost, start, setting)
        cheapest.append(row)
    k = min(range(1, most + 1), key=lambda k: cheapest[k][n][0])
    if cheapest[k][n][0] == math.inf:
        return None
    return _traced(cheapest, k, n)


def _from(points: Sequence[Point], start: int) -> list[tuple[int, float, str]]:
    """Ranges that begin at a point: end (excluded), cost, and the cheapest setting for it."""
    sums = dict.fromkeys(sorted(points[start].costs), 0.0)
    found = []
    for end in range(start, len(points)):
        costs = points[end].costs
        sums = {name: so_far + costs[name] for name, so_far in sums.items() if name in costs}
        if not sums:
            break
        name = min(sums, key=lambda s: sums[s])
        found.append((end + 1, sums[name], name))
    return found


def _traced(
    cheapest: Sequence[Sequence[tuple[float, int, str]]], k: int, n: int
) -> tuple[Range, ...]:
    ranges: list[Range] = []
    end = n
    while end > 0:
        _, start, setting = cheapest[k][end]
        ranges.append(Range(start, end - 1, setting))
        end, k = start, k - 1
    return tuple(reversed(ranges))


def bounds(sizes: Sequence[int], at: Range) -> tuple[int, int]:
    """Least and largest size of a range, both included.

    Ranges meet at the middle of the logarithms of the sizes beside the switch point; the outer
    ones reach a factor of two beyond what was measured.
    """
    low = int(sizes[at.first] / REACH) if at.first == 0 else _middle(sizes, at.first - 1) + 1
    last = at.last == len(sizes) - 1
    high = int(sizes[at.last] * REACH) if last else _middle(sizes, at.last)
    return low, min(high, _LARGEST)


def _middle(sizes: Sequence[int], left: int) -> int:
    return math.isqrt(sizes[left] * sizes[left + 1])
