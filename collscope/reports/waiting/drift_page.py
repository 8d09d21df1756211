"""The drawing of recorded classes' bandwidth over the run."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import numpy as np

from collscope.model import bus_bandwidth, parse_op
from collscope.reports.rendering.drawing import PLAIN, Sheet, series_style
from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.origin import origin
from collscope.reports.rendering.page import Figure
from collscope.reports.report.answer import Report
from collscope.reports.tolerances import MIN_CHANGE
from collscope.units import count, format_size

if TYPE_CHECKING:
    from collscope.model.trace import Ints
    from collscope.reports.rendering.drawing import Drawing
    from collscope.reports.waiting.drift import DriftRow

_MOST_CLASSES = 6
_MOST_POINTS = 200  # of a class; each is the median of as many calls as it takes

_TRANSFERS = """
SELECT seq, transfer_ns FROM call_times
WHERE run = ? AND comm_id = ? AND class_id = ? AND NOT warm_up AND transfer_ns > 0 ORDER BY seq
"""


def drift_figure(report: Report, connection: sqlite3.Connection) -> Figure | None:
    """Bus bandwidth of the classes with the most transfer time; None where no class has enough."""
    rows = [row for row in report.timeline.drift if row.segments[0].busbw_gbps][:_MOST_CLASSES]
    if not rows:
        return None
    series = [_points(connection, report.header.run, row) for row in rows]
    names = [f"{row.op} {format_size(row.size_bytes)} #{row.class_id}" for row in rows]

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.axis(3.2)
        for n, (row, (seq, transfer)) in enumerate(zip(rows, series, strict=True)):
            per_ns = bus_bandwidth(
                parse_op(row.op), size=row.size_bytes, time_s=1e-9, nranks=row.nranks
            )
            axis.plot(
                seq, (per_ns or 0.0) / transfer, linestyle="", markersize=3, label=names[n],
                **series_style(n),
            )  # fmt: skip
        axis.set_xlabel("call of the communicator")
        axis.set_ylabel("bus GB/s")
        axis.set_ylim(bottom=0)
        axis.yaxis.set_major_formatter(PLAIN)
        return drawing

    found = table(
        [("class", TEXT), ("from call", NUMBER), ("to call", NUMBER), ("bus GB/s", NUMBER)],
        (
            (name, segment.first_seq, segment.last_seq, segment.busbw_gbps)
            for name, row in zip(names, rows, strict=True)
            for segment in row.segments
        ),
        (
            origin("call_times", comm_id=row.comm_id, class_id=row.class_id)
            for row in rows
            for _ in row.segments
        ),
    )  # fmt: skip
    changed = sum(len(row.segments) > 1 for row in rows)
    classes = count(len(rows), "class", "classes")
    return Figure(
        "Bandwidth over the run",
        f"Recorded calls of the classes with the most transfer time, at most {_MOST_POINTS} "
        f"points a class: medians of neighbouring calls. {changed} of {classes} change by "
        f"{100 * MIN_CHANGE:.0f} % or more; the table has their levels.",
        make,
        found,
        {},
    )


def _points(connection: sqlite3.Connection, run: str, row: DriftRow) -> tuple[Ints, Ints]:
    """Call and transfer in ns of each point."""
    calls = np.array(connection.execute(_TRANSFERS, (run, row.comm_id, row.class_id)).fetchall())
    blocks = np.array_split(calls, min(_MOST_POINTS, len(calls)))
    medians = np.array([np.median(block, axis=0) for block in blocks])
    return medians[:, 0], medians[:, 1]
