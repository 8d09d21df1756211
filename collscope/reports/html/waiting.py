"""Drawings of waiting: who comes last, who waits for whom, and in which classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from collscope.analysis.traced_kernels import TracedKernels
from collscope.reports.rendering.drawing import Matrix, Sheet, draw, heat_figure, series_style
from collscope.reports.rendering.figure import PLAIN
from collscope.reports.rendering.layout import NUMBER, table
from collscope.reports.rendering.page import Figure
from collscope.units import count

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_MOST_MARKS = 2000
_MOST_SERIES = 12
_MOST_RANKS, _MOST_COLUMNS = 32, 24  # of a matrix


def lateness_figure(traced: TracedKernels) -> Figure | None:
    """Which rank came last to each call, and by how much, in the order of the calls."""
    warm, last, late = traced.calls[:, 4] != 0, traced.calls[:, 2], traced.calls[:, 3]
    chosen = ~warm & (last >= 0) & (late > 0)
    calls = list(zip(last[chosen].tolist(), (late[chosen] / 1e3).tolist(), strict=True))
    if not calls:
        return None
    total = int((~warm).sum())
    sums: dict[int, list[float]] = defaultdict(list)
    for rank, us in calls:
        sums[rank].append(us)
    order = sorted(sums, key=lambda rank: -sum(sums[rank]))
    ranks = sorted(order[:_MOST_SERIES])
    every = -(-len(calls) // _MOST_MARKS)
    shown = list(enumerate(calls))[::every]

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.axis(3.4)
        for n, rank in enumerate(ranks):
            points = [(i, us) for i, (last, us) in shown if last == rank]
            if points:
                axis.plot(*zip(*points, strict=True), ls="", ms=4, **series_style(n),
                          label=f"rank {rank}", gid=f"late-{rank}")  # fmt: skip
        axis.set_yscale("symlog", linthresh=1)
        axis.yaxis.set_major_formatter(PLAIN)
        axis.set_ylabel("late by (us)")
        axis.set_xlabel("these calls, in order of time")
        return drawing

    found = table(
        [("rank", NUMBER), ("last in calls", NUMBER), ("median us", NUMBER), ("sum ms", NUMBER)],
        ((rank, len(us), float(np.median(us)), sum(us) / 1e3)
         for rank in order for us in (sums[rank],)),
    )  # fmt: skip
    left = len(sums) - len(ranks)
    rest = f" {count(left, 'rank')} with less lateness not drawn." if left else ""
    rest += f" One of {every} calls is drawn." if every > 1 else ""
    return Figure(
        "Who comes last, and how late",
        f"{len(calls)} of {total} calls have a rank that came last by more than the clocks' error."
        + rest,
        draw(make), found,
        {f"late-{rank}": f"rank {rank}: last in {len(sums[rank])} calls" for rank in ranks},
    )  # fmt: skip


def wait_figures(traced: TracedKernels, names: Mapping[int, str]) -> Iterable[Figure]:
    """Who waits for whom, and mean waiting of a kernel by rank and class.

    names  of classes
    """
    known = traced.kernels[traced.kernels[:, 3] >= 0]
    if len(np.unique(known[:, 0])) < 2:
        return
    call = traced.calls[np.searchsorted(traced.calls[:, 0], known[:, 5])]
    told = (call[:, 4] == 0) & (call[:, 2] >= 0)
    if told.any():
        yield _heat(
            "Who waits for whom",
            "Sum of the waiting of the row's rank in the calls to which the column's rank came "
            "last, without warm-up.",
            _Sums.of(known[told, 0], call[told, 2], known[told, 3]), lambda rank: f"for {rank}",
        )  # fmt: skip
    yield _heat(
        "Mean waiting of a kernel by rank and class",
        "A rank that waits little is the one that others wait for.",
        _Sums.of(known[:, 0], known[:, 4], known[:, 3]),
        lambda i: f"{names[i]} #{i}" if i in names else f"class {i}", mean=True,
    )  # fmt: skip


class _Sums(msgspec.Struct, frozen=True):
    """Waiting in ns and kernels, by rank (rows) and by what the columns are."""

    ranks: NDArray[np.int64]
    columns: NDArray[np.int64]
    sums: NDArray[np.float64]
    kernels: NDArray[np.float64]

    @staticmethod
    def of(ranks: NDArray[np.int64], columns: NDArray[np.int64], ns: NDArray[np.int64]) -> _Sums:
        rows, i = np.unique(ranks, return_inverse=True)
        ids, j = np.unique(columns, return_inverse=True)
        cell, shape = i * len(ids) + j, (len(rows), len(ids))
        most = len(rows) * len(ids)
        sums, kernels = (
            np.bincount(cell, weights, most).astype(np.float64).reshape(shape)
            for weights in (ns, np.ones(len(ns)))
        )
        return _Sums(rows, ids, sums, kernels)


def _heat(
    title: str, text: str, found: _Sums, name: Callable[[int], str], *, mean: bool = False
) -> Figure:
    """The rows and columns with the most waiting, in the unit that suits the largest value."""
    rows = np.sort(np.argsort(-found.sums.sum(1), kind="stable")[:_MOST_RANKS])
    columns = np.argsort(-found.sums.sum(0), kind="stable")[:_MOST_COLUMNS]
    if not mean:
        columns = np.sort(columns)
    chosen = np.ix_(rows, columns)
    with np.errstate(invalid="ignore"):
        values = found.sums[chosen] / (found.kernels[chosen] if mean else 1)
    values[found.kernels[chosen] == 0] = np.nan
    ns, unit = (1e6, "ms") if np.nanmax(values) >= 1e7 else (1e3, "us")
    cells = [[None if np.isnan(v) else v / ns for v in row] for row in values.tolist()]
    left = len(found.ranks) - len(rows), len(found.columns) - len(columns)
    rest = (
        f" {left[0]} rows and {left[1]} columns with less waiting are not drawn."
        if any(left)
        else ""
    )
    return heat_figure(
        title, text + rest,
        Matrix("rank", [f"rank {found.ranks[i]}" for i in rows],
               [name(int(found.columns[j])) for j in columns], cells, unit),
    )  # fmt: skip
