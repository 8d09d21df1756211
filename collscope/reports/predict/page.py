"""What a page adds to a prediction: the step before and after, its longest path, the classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from collscope.model import CollectiveClass
from collscope.reports.predict.answer import PredictionReport
from collscope.reports.predict.words import (
    BoundRow,
    bound_rows,
    change_words,
    in_range,
    origin_words,
)
from collscope.reports.rendering.drawing import (
    COLOURS,
    INK,
    Sheet,
    log_axis,
)
from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.page import Extras, Fact, Figure
from collscope.timeline.records import ChangedClass
from collscope.units import count, figure, format_size

if TYPE_CHECKING:
    from collscope.reports.rendering.drawing import Drawing

_MOST_ROWS = 30
_KINDS = {  # of what bounds a step, in the order of the bars
    "compute": COLOURS[2], "collective": COLOURS[1], "waiting": COLOURS[3], "host": COLOURS[0],
}  # fmt: skip
_OTHER = "#999999"
_STEP_ROW = 0.6  # inches of a bar of the step, with the range below it
_SAME = 0.01  # of the old value, a change that is drawn as none


def prediction_extras(report: PredictionReport) -> Extras:
    """Facts and drawings of a prediction."""
    has_parts = report.new_ns is not None and bound_rows(report)
    drawings = {
        "": (_step(report, report.new_ns or 0.0),) if has_parts else (),
        "What bounds the step": tuple(_path(bound_rows(report))),
        "Classes with new times": tuple(_classes(report.changed)),
    }
    return Extras(tuple(_facts(report)), drawings)


def _facts(report: PredictionReport) -> Iterable[Fact]:
    low, high = in_range(report, report.low_ns), in_range(report, report.high_ns)
    if report.new_ns is None:
        yield Fact("Step time after the change", f"{low} to {high} ms",
                   "most of the step has no known cause", "Assumptions")  # fmt: skip
    else:
        yield Fact("Step time after the change", f"{in_range(report, report.new_ns)} ms",
                   f"{low} to {high} ms, {change_words(report, report.new_ns)}",
                   "Assumptions")  # fmt: skip
    yield Fact("Current step time", f"{figure(report.step_ns / 1e6, 4)} ms",
               f"mean of {count(report.steps, 'step')} of the slowest of "
               f"{count(report.ranks, 'rank')}")  # fmt: skip
    sums = _sums(bound_rows(report))
    if sums:
        kind, (before, after) = max(sums.items(), key=lambda item: item[1][1])
        yield Fact("Largest part of the step, after the change", kind,
                   f"{after / 1e6:.2f} ms of the step; before {before / 1e6:.2f} ms",
                   "What bounds the step")  # fmt: skip
    moved = [c for c in report.changed if _moved(c)]
    if moved:
        most = max(moved, key=_moved)
        yield Fact("Largest change", _name(most.collective_class),
                   f"{figure((most.old_ns or 0) / 1e3, 4)} to {figure(most.new_ns / 1e3, 4)} us"
                   " a call"
                   f", {count(most.calls, 'call')}",
                   "Classes with new times")  # fmt: skip
    yield Fact("With", origin_words(report.times_from))


def _sums(bounds: Iterable[BoundRow]) -> dict[str, tuple[float, float]]:
    """Time of a step before and after, in ns, by kind."""
    sums: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for b in bounds:
        before, after = sums[b.kind]
        sums[b.kind] = before + b.before_ns, after + b.after_ns
    order = list(_KINDS)
    return dict(sorted(sums.items(), key=lambda s: order.index(s[0]) if s[0] in order else 99))


def _step(report: PredictionReport, new_ns: float) -> Figure:
    """The step as a bar before and after, in the parts of its longest path."""
    sums = _sums(bound_rows(report))
    marks = {
        f"bound-{i}-{side}": f"{kind}, {name}\n{part[side] / 1e6:.3f} ms"
        for i, (kind, part) in enumerate(sums.items()) for side, name in enumerate(_SIDES)
    }  # fmt: skip

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.rows(_SIDES, _STEP_ROW)
        ends, height = [0.0, 0.0], min(0.5, sheet.bar)
        for i, (kind, part) in enumerate(sums.items()):
            bars = axis.barh((0, 1), [ns / 1e6 for ns in part], left=ends, height=height,
                             color=_KINDS.get(kind, _OTHER), label=kind)  # fmt: skip
            ends = [end + ns / 1e6 for end, ns in zip(ends, part, strict=True)]
            for side, bar in enumerate(bars):
                bar.set_gid(f"bound-{i}-{side}")
        axis.errorbar(new_ns / 1e6, 1.1 + height / 2, fmt="|", color=INK, capsize=4, lw=1.4,
                      xerr=[[max(0.0, new_ns - report.low_ns) / 1e6],
                            [max(0.0, report.high_ns - new_ns) / 1e6]])  # fmt: skip
        axis.set_xlim(left=0)
        axis.set_xlabel("ms of one step")
        return drawing

    found = table(
        [("what", TEXT), ("before ms", NUMBER), ("after ms", NUMBER)],
        [*((kind, before / 1e6, after / 1e6) for kind, (before, after) in sums.items()),
         ("the step", report.step_ns / 1e6, new_ns / 1e6),
         ("low end of the range", None, report.low_ns / 1e6),
         ("high end of the range", None, report.high_ns / 1e6)],
    )  # fmt: skip
    return Figure(
        "The step before and after",
        "Each part is time on the longest path through the step. The line below the second "
        "bar is the predicted range.",
        make, found, marks,
    )  # fmt: skip


_SIDES = ("current", "current")


def _path(bounds: Sequence[BoundRow]) -> Iterable[Figure]:
    """What the longest path goes through, part by part."""
    most = sorted(bounds, key=lambda b: -max(b.before_ns, b.after_ns))
    rows = [(f"{b.kind}: {b.of}" if b.of else b.kind, b.before_ns / 1e6, b.after_ns / 1e6)
            for b in most[:_MOST_ROWS]]  # fmt: skip
    if rows:
        yield _pairs(
            "The longest path through the step, part by part",
            "Time of each part of the step, before and after." + _left(bounds),
            rows, ("part", "ms of one step"), "path",
        )  # fmt: skip


def _classes(changes: Sequence[ChangedClass]) -> Iterable[Figure]:
    """Old and new time of a call of each class, what moves most first."""
    timed = sorted((c for c in changes if c.old_ns and c.new_ns), key=_moved, reverse=True)
    rows = [(_name(c.collective_class), (c.old_ns or 0.0) / 1e3, c.new_ns / 1e3)
            for c in timed[:_MOST_ROWS]]  # fmt: skip
    if rows:
        yield _pairs(
            "Time of one call, before and after",
            "Classes whose calls change the step most come first." + _left(timed),
            rows, ("class", "us of one call"), "change", log=True,
        )  # fmt: skip


def _pairs(
    title: str, text: str, rows: Sequence[tuple[str, float, float]], words: tuple[str, str],
    prefix: str, *, log: bool = False,
) -> Figure:  # fmt: skip
    """Rows with a hollow mark for the old value, and a full one for the new, joined by a line."""
    what, unit = words

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.rows([name for name, _, _ in rows])
        for i, (_, old, new) in enumerate(rows):
            colour = COLOURS[1] if new > old else COLOURS[2]
            if abs(new - old) <= _SAME * old:
                colour = _OTHER
            axis.plot([old, new], [i, i], color=colour, lw=2, zorder=2, gid=f"{prefix}-{i}")
            axis.plot(old, i, "o", ms=7, mfc="none", mec=INK, zorder=3)
            axis.plot(new, i, "o", ms=7, color=colour, zorder=3)
        for mark, colour, label in (("none", INK, "before"), (COLOURS[1], COLOURS[1], "longer"),
                                    (COLOURS[2], COLOURS[2], "shorter"),
                                    (_OTHER, _OTHER, "the same within 1 %")):  # fmt: skip
            axis.plot([], [], "o", ms=7, mfc=mark, mec=colour, label=label)
        if log:
            log_axis(axis, "x")
        axis.set_xlabel(unit)
        return drawing

    found = table(
        [(what, TEXT), (f"before, {unit}", NUMBER), (f"after, {unit}", NUMBER), ("ratio", NUMBER)],
        ((name, old, new, f"{new / old:.3f}" if old else None) for name, old, new in rows),
    )
    marks = {
        f"{prefix}-{i}": f"{name}\nbefore {figure(old, 4)}, after {figure(new, 4)} {unit}"
        for i, (name, old, new) in enumerate(rows)
    }
    return Figure(title, text, make, found, marks)


def _left(rows: Sequence[object]) -> str:
    left = len(rows) - _MOST_ROWS
    return f" {left} more are not drawn." if left > 0 else ""


def _name(key: CollectiveClass) -> str:
    size = "" if key.size_bytes is None else f" {format_size(key.size_bytes)}"
    return f"{key.op.value}{size}" + ("" if key.nranks is None else f" x{key.nranks}")


def _moved(change: ChangedClass) -> float:
    """Change of all calls of a class, in ns; what is not known moves nothing."""
    return 0.0 if change.old_ns is None else abs(change.new_ns - change.old_ns) * change.calls
