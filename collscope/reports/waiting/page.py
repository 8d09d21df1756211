"""Drawings of a traced run: the step by rank, who arrives last, who waits for whom in what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from collscope.model import Op
from collscope.reports.rendering.drawing import (
    PARTS,
    WAITING,
    Sheet,
    colour_of,
    log_axis,
    series_style,
)
from collscope.reports.rendering.heat_map import Matrix, heat_figure
from collscope.reports.rendering.layout import NUMBER, table
from collscope.reports.rendering.origin import origin
from collscope.reports.rendering.page import Figure
from collscope.reports.report.answer import Report, report_ops
from collscope.reports.waiting.traced_kernels import TracedKernels
from collscope.units import count

if TYPE_CHECKING:
    from collscope.reports.rendering.drawing import Drawing


_MOST_RANKS = 64
_EXPOSED = ("", "//", "\\\\")  # hatches of the classes of one operation with the most exposed time
# What is no operation is grey, and waiting as among the parts of a class.
_COMPUTE, _COPIES, _OTHER, _IDLE = "#8C959F", "#6E7781", "#444444", "#D0D7DE"


def step_figure(report: Report, traced: TracedKernels, names: Mapping[int, str]) -> Figure | None:
    """What each rank's GPU did: compute, waiting, exposed classes, copies alone, nothing.

    names  of classes
    """
    ranks = report.timeline.ranks[:_MOST_RANKS]
    if not ranks:
        return None
    waiting, by_class = _exposed(traced, {r.rank: r.exposed_ns for r in ranks})
    shown = sorted(by_class, key=lambda i: -by_class[i].sum())[: len(_EXPOSED)]
    parts = [("compute, with hidden collectives", (_COMPUTE, ""),
              np.array([r.compute_ns for r in ranks])),
             ("exposed: waiting for the last rank", PARTS[WAITING], waiting)]  # fmt: skip
    parts += [(f"exposed: {names.get(i, 'class')} #{i}", style, by_class[i])
              for i, style in zip(shown, _class_styles(report, shown), strict=True)]  # fmt: skip
    rest = np.array([r.exposed_ns for r in ranks]) - sum(ns for _, _, ns in parts[1:])
    idle = np.array([r.idle_ns for r in ranks])
    copies = np.array([r.span_ns - r.compute_ns - r.exposed_ns for r in ranks]) - idle
    parts += [("exposed: other collectives", (_OTHER, ""), np.maximum(rest, 0)),
              ("copies alone", (_COPIES, "//"), np.maximum(copies, 0)),
              ("idle: no work on the GPU", (_IDLE, ""), idle)]  # fmt: skip
    parts = [(name, style, ns) for name, style, ns in parts if ns.max() >= 1]
    marks = {
        f"step-{r.rank}-{n}": f"rank {r.rank}\n{name}\n"
        f"{ns[i] / 1e6:.3f} ms of {r.span_ns / 1e6:.3f}"
        for n, (name, _, ns) in enumerate(parts) for i, r in enumerate(ranks)
    }  # fmt: skip

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.rows([f"rank {r.rank}" for r in ranks])
        before = np.zeros(len(ranks))
        for n, (name, (colour, hatch), ns) in enumerate(parts):
            ms = ns / 1e6
            bars = axis.barh(
                range(len(ranks)), ms, left=before, color=colour, hatch=hatch, label=name,
                height=sheet.bar, edgecolor="white", linewidth=0.5,
            )  # fmt: skip
            before += ms
            for bar, r in zip(bars, ranks, strict=True):
                bar.set_gid(f"step-{r.rank}-{n}")
        axis.set_xlabel("ms, warm-up excluded")
        return drawing

    columns = [(f"{name} ms", NUMBER) for name, _, _ in parts]
    found = table(
        [("rank", NUMBER), ("traced ms", NUMBER), *columns],
        ((r.rank, r.span_ns / 1e6, *(ns[i] / 1e6 for _, _, ns in parts))
         for i, r in enumerate(ranks)),
        (origin("rank_times", rank=r.rank) for r in ranks),
    )  # fmt: skip
    left = len(report.timeline.ranks) - len(ranks)
    return Figure(
        "Time of each rank",
        "Traced time of each rank's GPU. Exposed: not hidden by compute. Waiting: exposed "
        "time beyond the call's transfer. Where compute hides part of a call, more of the "
        "class's time may be waiting." + (f" {left} more ranks are not drawn." if left else ""),
        make, found, marks,
    )  # fmt: skip


def _class_styles(report: Report, ids: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Colour and hatch of some classes: the colour of the operation, a hatch for a further one."""
    op_of = {row.class_id: row.op for row in report.classes}
    colours = colour_of(report_ops(report))
    seen: dict[Op | None, int] = defaultdict(int)
    for i in ids:
        op = op_of.get(i)
        yield _OTHER if op is None else colours[op], _EXPOSED[seen[op]]
        seen[op] += 1


def _exposed(
    traced: TracedKernels, ranks: Mapping[int, int]
) -> tuple[NDArray[np.float64], dict[int, NDArray[np.float64]]]:
    """Exposed time of each rank in ns: what is surely waiting, and the rest by class.

    ranks  exposed time of each, which collectives that overlap each other share
    """
    chosen = np.isin(traced.kernels[:, 0], list(ranks))
    kernels, exposed = traced.kernels[chosen], traced.exposed[chosen]
    order = sorted(ranks)
    place = np.searchsorted(order, kernels[:, 0])
    ids, klass = np.unique(kernels[:, 4], return_inverse=True)
    transfer = kernels[:, 2] - np.maximum(kernels[:, 3], 0)
    wait = np.where(kernels[:, 3] < 0, 0, np.maximum(exposed - transfer, 0))
    waiting = np.bincount(place, wait, len(order))
    rest = np.bincount(place * len(ids) + klass, exposed - wait, len(order) * len(ids))
    by_class = rest.reshape(len(order), len(ids))
    split_ns = waiting + by_class.sum(1)
    part = np.minimum(1, np.array([ranks[rank] for rank in order]) / np.maximum(split_ns, 1))
    back = np.searchsorted(order, list(ranks))  # into the order of the bars
    return (waiting * part)[back], {
        i: (by_class[:, n] * part)[back] for n, i in enumerate(ids.tolist())
    }


_MOST_MARKS = 2000
_MOST_SERIES = 12
_MOST_ROWS, _MOST_COLUMNS = 32, 24  # of a matrix


def lateness_figure(traced: TracedKernels) -> Figure | None:
    """Which rank arrived last at each call, and by how much, in the order of the calls."""
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
        log_axis(axis, "y")
        axis.set_ylabel("late by (us)")
        axis.set_xlabel("calls of this figure, in order of time")
        return drawing

    found = table(
        [("rank", NUMBER), ("last in calls", NUMBER), ("median us", NUMBER), ("sum ms", NUMBER)],
        ((rank, len(us), float(np.median(us)), sum(us) / 1e3)
         for rank in order for us in (sums[rank],)),
        (origin("call_times", warm_up=0, last_rank=rank) for rank in order),
    )  # fmt: skip
    left = len(sums) - len(ranks)
    rest = f" {count(left, 'rank')} with less lateness not drawn." if left else ""
    rest += f" One in {every} calls is drawn." if every > 1 else ""
    return Figure(
        "Which rank arrives last, and how late",
        f"In {len(calls)} of {total} calls a rank arrives last by more than the clock error."
        + rest,
        make, found,
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
    judged = (call[:, 4] == 0) & (call[:, 2] >= 0)
    if judged.any():
        yield _heat(
            "Which rank waits for which",
            "Total waiting of the row's rank in calls where the column's rank arrives last, "
            "without warm-up.",
            _Sums.of(known[judged, 0], call[judged, 2], known[judged, 3]),
            lambda rank: f"for {rank}",
        )  # fmt: skip
    yield _heat(
        "Mean waiting per kernel, by rank and class",
        "A rank that waits little is the one that other ranks wait for.",
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
    rows = np.sort(np.argsort(-found.sums.sum(1), kind="stable")[:_MOST_ROWS])
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
