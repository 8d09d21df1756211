"""The verdict as the first cards of a page, and one step of two ranks with the cause marked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING

from collscope.errors import InputError
from collscope.reports.rendering.cause_words import cause_sentence
from collscope.reports.rendering.drawing import COLOURS, PARTS, WAITING, Sheet
from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.page import Fact, Figure
from collscope.reports.verdict.answer import StepSummary, VerdictEntry, read_diagnosis
from collscope.reports.verdict.text import title
from collscope.units import count, figure

if TYPE_CHECKING:
    from collscope.reports.rendering.drawing import Drawing
    from collscope.timeline.step_causes.one_step import OneStep

_HEADS = {"none": "Nothing stands out", "unknown": "Not known"}


def names_causes(verdict: tuple[VerdictEntry, ...]) -> bool:
    """Whether the verdict names a cause."""
    return all(entry.cause not in _HEADS for entry in verdict)


def cards(verdict: tuple[VerdictEntry, ...], step: StepSummary) -> Iterator[Fact]:
    """A card for each cause: what, how much, and why."""
    for entry in verdict:
        if entry.cause in _HEADS:
            head = _HEADS[entry.cause] if step.hang is None else "The job hangs"
            yield Fact("Verdict", head, f"{entry.evidence} {entry.advice}")
            continue
        ms = entry.ms_per_step
        yield Fact(
            f"{cause_sentence(entry.cause, entry.ranks)} ({entry.certainty})",
            f"{ms.value:.3g} ms a step ({ms.low:.3g} to {ms.high:.3g})",
            f"{entry.evidence} {entry.advice}",
        )


_FINEST = 800  # parts of the step: what is shorter is not drawn
_COMPUTE, _IDLE, _CAUSE = "#8C959F", "#E7EBEF", "#D1242F"
# Row of a rank's two, height, words, colour and hatch.
_DRAWN = {
    "idle": (0.5, 1.5, "idle", _IDLE, ""),
    "compute": (0.0, 0.6, "compute and copies", _COMPUTE, ""),
    "transfer": (1.0, 0.6, "collectives: transfer", COLOURS[0], ""),
    "waiting": (1.0, 0.6, "collectives: waiting", *PARTS[WAITING]),
    "cause": (0.5, 0.22, "", _CAUSE, ""),
}


def step_drawing(
    connection: sqlite3.Connection, run: str, verdict: tuple[VerdictEntry, ...], step: StepSummary
) -> Figure | None:
    """One step of the rank that the first cause is about and of the one it was compared with.

    run  its label
    """
    from collscope.timeline.step_causes.one_step import one_step  # noqa: PLC0415 - numpy

    if step.recorded_ms is None:
        return None
    first = next((entry for entry in verdict if entry.cause not in _HEADS), verdict[0])
    try:
        found, recorded = read_diagnosis(connection, run, step_ms=step.given_ms)
    except InputError:
        return None
    marks = next(
        (m for c, m in zip(found.causes, found.marks, strict=True)
         if (c.cause, tuple(sorted(c.ranks))) == (first.cause, first.ranks)), (),
    )  # fmt: skip
    drawn = one_step(recorded, marks)
    return None if drawn is None else _figure(drawn, title(first) if marks else "")


def _figure(found: OneStep, cause: str) -> Figure:
    from collscope.timeline.step_causes.one_step import drawn  # noqa: PLC0415 - numpy

    ranks = [lane.rank for lane in found.lanes]
    parts = {
        part: (*style[:2], style[2] or cause, *style[3:])
        for part, style in _DRAWN.items()
        if part != "cause" or cause
    }
    least = found.length_ns / _FINEST

    def make(sheet: Sheet) -> Drawing:
        rows = "compute", "collectives"
        names = [f"rank {rank}: {row}" for rank in ranks for row in rows]
        drawing, axis = sheet.rows(names, 0.4)
        for part, (row, height, words, colour, hatch) in parts.items():
            for k, lane in enumerate(found.lanes):
                spans = list(drawn(lane.spans[part], least, join=part != "idle"))
                bars = axis.barh(
                    [2 * k + row] * len(spans), [(e - b) / 1e6 for b, e in spans],
                    left=[b / 1e6 for b, _ in spans], height=height, color=colour, hatch=hatch,
                    label=words if spans else None, edgecolor="white", linewidth=0,
                    zorder=1 if part == "idle" else 3 if part == "cause" else 2,
                )  # fmt: skip
                for bar in bars:
                    bar.set_gid(f"lane-{lane.rank}-{part}")
        axis.set_xlim(0, found.length_ns / 1e6)
        axis.set_xlabel("ms from the beginning of the step, on the common clock")
        return drawing

    numbers = {
        (lane.rank, part): lane.total_ns(part) / 1e6 for lane in found.lanes for part in parts
    }
    columns = [(f"{words} ms", NUMBER) for _, _, words, *_ in parts.values()]
    return Figure(
        f"One step of {count(len(ranks), 'rank')}",
        f"Recorded step {found.number + 1}, {figure(found.length_ns / 1e6)} ms, with the profiler."
        + (f" Red: {cause}." if cause else " No cause is marked.")
        + f" What is shorter than {figure(least / 1e3)} us is not drawn.",
        make,
        table(
            [("rank", TEXT), *columns],
            ((rank, *(numbers[rank, part] for part in parts)) for rank in ranks),
        ),
        {
            f"lane-{rank}-{part}": f"rank {rank}\n{parts[part][2]}\n{ms:.3f} ms in this step"
            for (rank, part), ms in numbers.items()
        },
    )  # fmt: skip
