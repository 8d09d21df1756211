"""Maximum flow between two nodes of a small dense graph (Dinic's algorithm)."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

_EPSILON = 1e-12  # of the largest capacity: what remains of a used link after rounding


def max_flow(
    capacity: tuple[tuple[float, ...], ...], source: int, target: int
) -> tuple[float, frozenset[int]]:
    """Largest flow from `source` to `target` and the source's side of a minimum cut.

    capacity  square, `capacity[i][j]` from i to j, not negative, finite
    """
    residual = [list(row) for row in capacity]
    least = _EPSILON * max(max(row) for row in residual)
    total = 0.0
    while True:
        levels = _levels(residual, source, least)
        if target not in levels:
            return total, frozenset(levels)
        total += _blocking_flow(residual, levels, source, target, least)


def _levels(residual: list[list[float]], source: int, least: float) -> dict[int, int]:
    """Distance in links of every node that still can be reached."""
    levels = {source: 0}
    queue = deque([source])
    while queue:
        node = queue.popleft()
        for other, left in enumerate(residual[node]):
            if left > least and other not in levels:
                levels[other] = levels[node] + 1
                queue.append(other)
    return levels


def _blocking_flow(
    residual: list[list[float]], levels: dict[int, int], source: int, target: int, least: float
) -> float:
    """Push along shortest paths until none is left; changes `residual`.

    A path is kept as a stack; `tried[node]` is the first neighbour that may still lead on.
    """
    size = len(residual)
    tried = [0] * size
    total = 0.0
    path = [source]
    while path:
        node = path[-1]
        if node == target:
            links = list(pairwise(path))
            pushed = min(residual[i][j] for i, j in links)
            for i, j in links:
                residual[i][j] -= pushed
                residual[j][i] += pushed
            total += pushed
            path = [source]
            continue
        following = levels[node] + 1
        while tried[node] < size:
            other = tried[node]
            if residual[node][other] > least and levels.get(other) == following:
                path.append(other)
                break
            tried[node] += 1
        else:
            path.pop()
            if path:
                tried[path[-1]] += 1
    return total
