"""The verdict on steps, where the recordings of the run show a hang or other problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.reports.verdict.answer import MsPerStep, VerdictEntry
from collscope.reports.verdict.text import NOTHING_TO_FIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collscope.hang.records import Verdict
    from collscope.reports.report.answer import Finding

# Findings of jobs that may have stopped: their whole steps are not all of the job.
_STOPPED = (
    "ranks_stopped", "ranks_open", "ranks_different", "ranks_different_size", "ranks_disagree",
)  # fmt: skip


def before_hang(
    verdict: tuple[VerdictEntry, ...], hang: Verdict, title: str, command: str
) -> tuple[VerdictEntry, ...]:
    """The hang first, then the causes that make steps long; a verdict without causes ends there.

    title    of the finding of the hang
    command  that gives its verdict
    """
    sure = f" ({hang.certainty})" if hang.certainty else ""
    who = title.partition(": ")[2]
    shown = f"The recordings of this run show a hang{sure}: {who}."
    first, *_ = verdict
    named = first.cause not in ("none", "unknown")
    if first.cause == "none":
        shown += f" In the traced steps: {first.evidence[:1].lower()}{first.evidence[1:]}"
    entry = VerdictEntry(
        "unknown", "likely", (), "", MsPerStep(None, None, None), shown,
        f"Run {command} for the verdict of the hang.",
    )  # fmt: skip
    return (entry, *(verdict if named else ()))


def with_problems(
    verdict: tuple[VerdictEntry, ...], findings: Sequence[Finding]
) -> tuple[VerdictEntry, ...]:
    """A verdict without causes names the problem that the findings show.

    It does not state that nothing is to fix then. Where ranks stopped, `none` is not certain: the
    whole steps are not all of the job.
    """
    first, *_ = verdict
    stopped = [f for f in findings if f.code in _STOPPED]
    problems = [f for f in findings if f.severity == "problem"]
    # Without steps, the section Findings is near, and only a hang is what people look for here.
    found = (
        [*stopped, *problems] if first.cause == "none" else [f for f in stopped if f in problems]
    )
    if first.cause not in ("none", "unknown") or not found:
        return verdict
    advice = f"The findings show: {found[0].title}. "
    if found[0] in stopped:
        advice += "If the job hung, collscope hang PATH names the rank, from its recordings. "
    return (
        replace(
            first,
            certainty="likely" if stopped else first.certainty,
            advice=advice + first.advice.removeprefix(f"{NOTHING_TO_FIX} "),
        ),
    )
