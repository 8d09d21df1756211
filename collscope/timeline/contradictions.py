"""What traces of one job cannot be at once, so that figures of them are not known (pure)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.model import Diagnostic, Severity
from collscope.timeline.analyse import Timeline
from collscope.timeline.steps import Steps
from collscope.units import count, format_time

_EXCEPTIONAL = 100  # of so many rows, the launch of one may lack
# Ranks that meet in every step have equal means; one step more or less waited for at either end of
# a few is no contradiction yet.
_UNLIKE = 1.25


def contradictions(timeline: Timeline, steps: Steps) -> list[Diagnostic]:
    """Contradictions between the ranks' traces, and what steps cannot be told from."""
    return [*_ends(timeline), *_launches(timeline.rows, steps), *_steps(timeline, steps)]


def _ends(timeline: Timeline) -> Iterable[Diagnostic]:
    """Calls that a rank left before another came, more of them than a single wrong row makes.

    One offset and drift of each clock cannot explain them, so the others' waits are no better.
    """
    impossible = int(timeline.times.impossible.sum())
    if impossible > 1 and impossible * _EXCEPTIONAL > len(timeline.calls):
        text = (
            f"of {count(len(timeline.calls), 'call')} many have ranks that leave before another"
            " comes, which no difference of clocks explains: a clock jumped, or times are wrong"
        )
        yield Diagnostic(Severity.DATA_LOSS, "ends_apart", text, count=impossible)


def _launches(rows: Rows, steps: Steps) -> Iterable[Diagnostic]:
    """Steps that were found by launches, of which many lack."""
    if steps.source not in ("kernels", "period"):
        return
    lacking = 0
    for t in range(len(rows.ranks)):
        launch = rows.launch[rows.of(t)]
        known = np.flatnonzero(launch != UNKNOWN_LAUNCH)
        # Rows before the first known one may have been launched before the profiler began.
        unknown = int((launch[known[0] :] == UNKNOWN_LAUNCH).sum()) if len(known) else 0
        lacking += unknown * (unknown * _EXCEPTIONAL > len(launch))
    if lacking:
        text = (
            "kernels and copies without the call that launched them, though others have theirs:"
            " calls were removed from the traces, or lost, and steps are not known without them"
        )
        yield Diagnostic(Severity.DATA_LOSS, "launches_unknown", text, count=lacking)


def _steps(timeline: Timeline, steps: Steps) -> Iterable[Diagnostic]:
    """Steps of ranks that meet in collectives, and so last equally long, that do not."""
    if steps.source == "window" or not len(steps.traces):
        return
    ends = steps.ends(timeline.rows.end)
    mean = (ends[-1] - ends[0]) / steps.count
    component = timeline.clocks.component[steps.traces]
    for number in np.unique(component).tolist():
        own = mean[component == number]
        if own.max() > _UNLIKE * own.min():
            least, most = format_time(float(own.min())), format_time(float(own.max()))
            text = (
                f"steps of ranks that wait for each other take {least} to {most}: they are not the"
                " same steps, or rows are lost, and the step time is not known"
            )
            yield Diagnostic(Severity.DATA_LOSS, "steps_differ", text, count=len(own))
