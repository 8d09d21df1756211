"""Calls at whose place ranks logged different things, found in what was aligned (pure)."""

from __future__ import annotations

import numpy as np

from collscope.match.calls import AlignedCalls
from collscope.match.observations import Ints


def join_disagreements(
    aligned: AlignedCalls, op_count: Ints
) -> tuple[Ints, dict[tuple[int, int], int]]:
    """Neighbouring calls with complementary ranks are one call that the ranks log differently.

    Where opCount took part in the alignment, it must be the same too.

    returns rows (calls, members) with the minority's rows taken out, and those rows by
            (call, member)
    """
    rows = aligned.rows
    present = rows >= 0
    partial = np.flatnonzero(~present.all(axis=1)).tolist() if aligned.realigned else []
    drop: set[int] = set()
    differing: dict[int, dict[int, int]] = {}
    runs = _runs(partial, present)
    k = 0
    while k + 1 < len(runs):
        a, b = runs[k], runs[k + 1]
        adjacent = a[-1] + 1 == b[0] and len(a) == len(b)
        if adjacent and aligned.witnessed:
            adjacent = bool((op_count[rows[a].max(axis=1)] == op_count[rows[b].max(axis=1)]).all())
        if not adjacent or (present[a[0]] == present[b[0]]).any():
            k += 1
            continue
        keep, other = (a, b) if present[a[0]].sum() >= present[b[0]].sum() else (b, a)
        for kept, dropped in zip(keep, other, strict=True):
            members = np.flatnonzero(present[dropped]).tolist()
            differing[kept] = {m: int(rows[dropped, m]) for m in members}
            drop.add(dropped)
        k += 2
    kept_rows = [c for c in range(len(rows)) if c not in drop] if drop else None
    if kept_rows is None:
        return rows, {}
    new = {old: i for i, old in enumerate(kept_rows)}
    moved = {(new[c], m): row for c, by in differing.items() for m, row in by.items()}
    return rows[kept_rows], moved


def _runs(partial: list[int], present: Ints) -> list[list[int]]:
    """Neighbouring incomplete calls that the same ranks logged."""
    runs: list[list[int]] = []
    for c in partial:
        last = runs[-1][-1] if runs else -2
        if last + 1 == c and (present[last] == present[c]).all():
            runs[-1].append(c)
        else:
            runs.append([c])
    return runs
