"""What a page adds to a fusion what-if: the time of a step's buckets over their threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import FuncFormatter

from collscope.reports.rendering.drawing import COLOURS, INK, PLAIN, Sheet
from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.page import Extras, Figure
from collscope.reports.whatif.words import setting_text, setting_word
from collscope.units import count, figure
from collscope.whatif.policies import Policy
from collscope.whatif.records import Fusion

if TYPE_CHECKING:
    from collscope.reports.rendering.drawing import Drawing


def fusion_extras(found: Fusion) -> Extras:
    """Time over threshold with its interval, the present one, and the fastest."""
    points = [
        (row.setting, row.time_ns / 1e6, (row.low_ns or row.time_ns) / 1e6,
         (row.high_ns or row.time_ns) / 1e6, row.buckets)
        for row in found.rows if row.setting is not None and row.time_ns is not None
    ]  # fmt: skip
    if not points:
        return Extras()

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.axis(4.2)
        settings, times, lows, highs, _ = zip(*points, strict=True)
        axis.fill_between(settings, lows, highs, color=COLOURS[0], alpha=0.2, linewidth=0)
        axis.plot(settings, times, color=COLOURS[0],
                  label="measured" if found.measured else "predicted")  # fmt: skip
        for i, (setting, ms, _, _, buckets) in enumerate(points):
            axis.plot(setting, ms, "o", ms=5, color=COLOURS[0], gid=f"setting-{i}")
            axis.annotate(str(buckets), (setting, ms), xytext=(0, 7), textcoords="offset points",
                          ha="center", fontsize=8)  # fmt: skip
        if found.present.time_ns is not None:
            axis.axhline(found.present.time_ns / 1e6, color=INK, ls="--",
                         label=f"now: {found.present_name}")  # fmt: skip
        if found.recommended is not None and found.recommended.setting is not None:
            axis.axvline(found.recommended.setting, color=COLOURS[1], ls=":", label="fastest")
        axis.set_xscale("log", base=2)
        fixed = found.policy == Policy.FIXED_COUNT.value
        axis.xaxis.set_major_formatter(
            PLAIN if fixed else FuncFormatter(lambda v, _: setting_text(found.policy, int(v)))
        )
        axis.set_ylim(bottom=0)
        axis.set_xlabel(f"{setting_word(found.policy)} (policy {found.policy})")
        axis.set_ylabel(f"ms of a step's buckets, {found.execution}")
        return drawing

    cells = table(
        [(setting_word(found.policy), TEXT), ("ms", NUMBER), ("from", NUMBER), ("to", NUMBER),
         ("buckets", NUMBER)],
        ((setting_text(found.policy, setting), *rest) for setting, *rest in points),
    )  # fmt: skip
    marks = {
        f"setting-{i}": f"{setting_text(found.policy, setting)}: {figure(ms, 4)} ms "
        f"({figure(low, 4)} to {figure(high, 4)})\n{count(buckets, 'bucket')}"
        for i, (setting, ms, low, high, buckets) in enumerate(points)
    }
    title = f"Time by {setting_word(found.policy)}"
    shown = Figure(
        f"{title}: {found.source}",
        "The band covers 5 to 95 %. The number at each point is its number of buckets.",
        make, cells, marks,
    )  # fmt: skip
    return Extras(drawings={title: (shown,)})
