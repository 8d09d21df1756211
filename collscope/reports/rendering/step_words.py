"""The steps of traced runs side by side, in words and tables."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence

from collscope.reports.compare.answer import PartCell, PartComparison, TracedParts, TracedSteps
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, Table, scaled, table
from collscope.reports.tolerances import TOTAL_THRESHOLD
from collscope.timeline.tolerances import HOST_STARTS, STARTS
from collscope.units import count

PAIRED = (
    "Measured in turns: ratios and speed-ups are paired by round (the median over the rounds "
    "of the ratio within one). They can differ from the quotient of the times, which are "
    "medians over the rounds."
)

_LONGEST_LABEL = 20  # of a label in a column's heading
_MOST_CLASSES = 20  # rows of a table
_NARROW = 1.1  # most / least of a step that needs no advice
_PARTS = {
    "step": "step, as recorded",
    "unprofiled": "step without the profiler",
    "compute": "compute",
    "collectives": "collectives, with waiting",
    "exposed": "exposed part of them",
    "waiting": "waiting",
    "idle": "idle",
}
_STEP_FROM = {
    "marks": "marked by the profiler",
    "graphs": "(found by launches of graphs)",
    "kernels": "(found by recurring kernels)",
    "period": "(found by recurring collectives)",
    "given": "as given at ingest",
}
_PARTS_NOTE = (
    "Times are us a step. The step is the mean on the rank with the longest steps. The other rows "
    "are means over steps and ranks, so they do not add up to the step. compute: as recorded, so "
    "slower where a collective runs at the same time. waiting: summed over the collectives. A row "
    "has no interval where its variation between recordings is not known."
)
WITHOUT_PROFILER = (
    "Step without the profiler: estimated. Its interval covers the profiler's cost on the hosts, "
    f"which the traces do not show, and run-to-run variation ({100 * STARTS:.0f} % of a step, "
    f"{100 * HOST_STARTS:.0f} % of host work). We assume that the profiler does not slow the GPUs."
)
UNPROFILED_UNKNOWN = (
    "Without the profiler, the ratio of the steps is unknown, because a run has a single step. "
    "Record several."
)
_RANKS_NOTE = (
    "Ranks whose change differs from the mean over the ranks by more than "
    f"{100 * TOTAL_THRESHOLD:.0f} % of the step."
)


def heading_names(labels: Sequence[str], instead: Sequence[str]) -> dict[str, str]:
    """Names of the labels for headings; others where one is too long."""
    if max(map(len, labels)) <= _LONGEST_LABEL:
        return {label: label for label in labels}
    return dict(zip(labels, instead, strict=True))


def runs_words(traced: TracedParts) -> str:
    """What the steps of each run are."""
    return f"The steps were recorded with the profiler. {'; '.join(map(_run, traced.runs))}."


def _run(run: TracedSteps) -> str:
    ranks = count(run.ranks, "rank")
    if run.world_size is not None and run.ranks < run.world_size:
        ranks = f"{run.ranks} of {count(run.world_size, 'rank')}"
    if not run.steps:
        return f"{run.label}: none found, {ranks}"
    return f"{run.label}: {count(run.steps, 'step')} {_STEP_FROM[run.step_from]}, {ranks}"


def step_sections(
    traced: TracedParts, short: Mapping[str, str], *, judged: bool = False
) -> list[Section]:
    """The step and its parts; ranks that changed apart from the others.

    short   what the runs are called in headings
    judged  beside a verdict, which has the advice; new time / old time instead of the speed-up
    """
    all_ranks = [p for p in traced.parts if p.rank is None]
    if not all_ranks:
        return []
    sections = [
        Section(
            "Step",
            (
                _part_table(all_ranks, short, judged),
                _PARTS_NOTE,
                *_profiler(traced, advise=not judged),
            ),
        )
    ]
    differing = [p for p in traced.parts if p.rank is not None and _differs_from_mean(p, all_ranks)]
    if differing:
        sections.append(Section("Ranks", (_RANKS_NOTE, _part_table(differing, short, judged))))
    if traced.kernels and len(traced.kernels[0].cells) > 1:
        sections.append(
            Section("Kernel time of collectives", tuple(_kernels(traced, short, judged)))
        )
    return sections


def _profiler(traced: TracedParts, *, advise: bool) -> Iterator[str]:
    """How the step without the profiler is estimated, and, as advice, how to narrow it."""
    known = [
        (run.unprofiled_low_ns, run.unprofiled_high_ns)
        for run in traced.runs
        if run.unprofiled_low_ns is not None and run.unprofiled_high_ns is not None
    ]
    if len(known) < len(traced.runs):
        return
    (step,) = (p for p in traced.parts if p.part == "unprofiled")
    single = any(cell.low is None for cell in step.cells[1:])
    yield UNPROFILED_UNKNOWN if single else WITHOUT_PROFILER
    if not advise or all(high < _NARROW * low for low, high in known):
        return
    first, other = (run.label for run in traced.runs[:2])
    yield measure_steps(traced.runs[0].store, first, other)


def _kernels(traced: TracedParts, short: Mapping[str, str], ratios: bool) -> Iterator[str | Table]:
    yield (
        "Times are us a step, with waiting: each rank's kernels, then the mean over the ranks. A "
        "call's transfer can be longer than this mean, because it lasts until the last rank's "
        "kernel ends."
    )
    columns = [("class", TEXT), ("size B", NUMBER), ("ranks", NUMBER)]
    for place, label in enumerate(short.values()):
        columns.append((f"{label} us", NUMBER))
        columns += [("ratio" if ratios else "speed-up", NUMBER)] * bool(place)
    rows = []
    for kernel in traced.kernels[:_MOST_CLASSES]:
        row: list[object] = [kernel.key.kind, kernel.key.size_bytes, kernel.key.nranks]
        for place, cell in enumerate(kernel.cells):
            row.append(scaled(cell.time_ns, 1e3))
            if place:
                row.append(_ratio(cell)[0] if ratios else cell.speed_up)
        rows.append(row)
    yield table(columns, rows)
    if len(traced.kernels) > _MOST_CLASSES:
        yield f"{len(traced.kernels) - _MOST_CLASSES} more classes are in JSON and CSV."


def _differs_from_mean(part: PartComparison, all_ranks: Sequence[PartComparison]) -> bool:
    """Whether a rank's change matters beside that of all ranks."""
    by_part = {p.part: p for p in all_ranks}
    mean, step = by_part.get(part.part), by_part.get("step")
    if mean is None or step is None:
        return False
    matters = TOTAL_THRESHOLD * (step.cells[0].time_ns or math.inf)
    for own, other in zip(part.cells[1:], mean.cells[1:], strict=True):
        change, usual = _change(part.cells[0], own), _change(mean.cells[0], other)
        if change is not None and usual is not None and abs(change - usual) > matters:
            return True
    return False


def _change(first: PartCell, other: PartCell) -> float | None:
    if first.time_ns is None or other.time_ns is None:
        return None
    return other.time_ns - first.time_ns


def _part_table(parts: Sequence[PartComparison], short: Mapping[str, str], ratios: bool) -> Table:
    columns = [("part", TEXT), *([("rank", NUMBER)] if parts[0].rank is not None else [])]
    for label in short.values():
        columns.append((f"{label} us", NUMBER))
        if label != next(iter(short.values())):
            what = "ratio" if ratios else "speed-up"
            columns += [(what, NUMBER), ("95 % from", NUMBER), ("to", NUMBER)]
    rows = []
    for part in parts:
        row: list[object] = [_PARTS[part.part], *([part.rank] if part.rank is not None else [])]
        for place, cell in enumerate(part.cells):
            # A step without the profiler was not measured: the ratio alone is estimated.
            row.append(None if part.part == "unprofiled" else scaled(cell.time_ns, 1e3))
            if place:
                row += _ratio(cell) if ratios else (cell.speed_up, cell.low, cell.high)
        rows.append(row)
    return table(columns, rows)


def _ratio(cell: PartCell) -> tuple[float | None, float | None, float | None]:
    """New time / old time with its interval."""
    return (
        None if cell.speed_up is None else 1 / cell.speed_up,
        None if cell.high is None else 1 / cell.high,
        None if cell.low is None else 1 / cell.low,
    )


def measure_steps(store: str, first: str, other: str) -> str:
    """What settles how two steps differ, where only traces are known."""
    return (
        "Measure the step of both runs without the profiler, in several starts: this gives the"
        f" difference. To see how much of it comes from the collectives of '{other}', run"
        f" '{predict_command(store, first, other)}', where N is the step of '{first}' that you"
        " measured."
    )


def predict_command(store: str, first: str, other: str) -> str:
    """The command that compares two traced runs from the first's step without the profiler."""
    words = ["collscope", "predict", "--db", store, "--run", first, "--with", other]
    return f"{shlex.join(words)} --step-ms N"
