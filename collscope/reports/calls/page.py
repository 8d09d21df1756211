"""The drawing of the message sizes of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collscope.reports.calls.answer import MIB
from collscope.reports.rendering.drawing import (
    PLAIN,
    Sheet,
    colour_of,
    hatch_of,
)
from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.page import Figure
from collscope.reports.report.answer import Report, report_ops
from collscope.units import count, format_size

if TYPE_CHECKING:
    from collscope.reports.rendering.drawing import Drawing


_MANY_BINS, _MANY_BINS_NARROW = 14, 5  # beyond them their names are turned


def sizes_figure(report: Report) -> Figure | None:
    """Calls by message size and operation, and their bytes."""
    histogram = next((h for h in report.histograms if h.name == "powers_of_two"), None)
    bins = () if histogram is None else tuple(b for b in histogram.bins if b.calls)
    if not bins:
        return None
    names = [format_size(b.low_bytes) for b in bins]
    colours, hatches = colour_of(report_ops(report)), hatch_of(report_ops(report))
    there = {o.op for b in bins for o in b.ops}

    def make(sheet: Sheet) -> Drawing:
        turned = len(bins) > (_MANY_BINS_NARROW if sheet.narrow else _MANY_BINS)
        drawing, (top, bottom) = sheet.axes(4.6, 2, bottom=1.0 if turned else 0.58)
        base = np.zeros(len(bins))
        for op in (op for op in colours if op in there):
            calls = np.array([sum(o.calls for o in b.ops if o.op == op) for b in bins])
            bars = top.bar(
                range(len(bins)), calls, 0.7, bottom=base, color=colours[op], label=op,
                hatch=hatches[op], edgecolor="white", linewidth=0.5,
            )  # fmt: skip
            base += calls
            for n, bar in enumerate(bars):
                bar.set_gid(f"size-{n}-{op}")
        bottom.bar(range(len(bins)), [b.total_bytes / MIB for b in bins], 0.7, color="#888888")
        top.set_ylabel("calls")
        bottom.set_ylabel("MiB of all calls")
        bottom.set_xticks(range(len(bins)), names, rotation=45 if turned else 0)
        bottom.set_xlabel("message size, from")
        for axis in (top, bottom):
            axis.grid(visible=False, axis="x")
            axis.yaxis.set_major_formatter(PLAIN)
        return drawing

    found = table(
        [("from", TEXT), ("calls", NUMBER), ("total MiB", NUMBER), ("calls per operation", TEXT)],
        ((n, b.calls, b.total_bytes / MIB, ", ".join(f"{o.op} {o.calls}" for o in b.ops))
         for n, b in zip(names, bins, strict=True)),
    )  # fmt: skip
    marks = {
        f"size-{n}-{o.op}": f"from {names[n]}\n{o.op}: {count(o.calls, 'call')} of {b.calls}\n"
        f"{b.total_bytes / MIB:.4g} MiB of all"
        for n, b in enumerate(bins) for o in b.ops
    }  # fmt: skip
    return Figure(
        "Calls by message size",
        "Each power of two that has calls: calls above, bytes below. A bin ends at the next "
        "power of two.",
        make, found, marks,
    )  # fmt: skip
