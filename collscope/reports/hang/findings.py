"""The rule about a run that hangs: its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.reports.hang.text import ADVICE, verdict_lines
from collscope.reports.report.answer import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collscope.reports.report.answer import Report

_UNDECIDED = "Add the run's other files: collscope hang dumps/ logs/ stderr/"


def hang(report: Report) -> Iterable[Finding]:
    """Who holds up the run."""
    verdict = report.hang
    if verdict is None:
        return
    lines = dict(verdict_lines(verdict))
    who = lines.pop("Verdict").rstrip(".") if verdict.decided else "no rank identified"
    lines = {head: text for head, text in lines.items() if head not in ("Verdict", "What to do")}
    yield Finding(
        severity="problem",
        code="hang",
        title=f"the job hangs: {who}",
        detail=" ".join(f"{head}: {text}" for head, text in lines.items()),
        advice=ADVICE[verdict.what[0]] if verdict.decided else _UNDECIDED,
    )


RULES = (hang,)
