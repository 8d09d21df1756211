"""The rule about a run that hangs: its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.reports.hang.text import verdict_lines
from collscope.reports.report.answer import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collscope.reports.report.answer import Report

_ADVICE = {
    "host_never_called": "Check the rank's stack (py-spy dump) and its data loader.",
    "dead": "Check its stderr and its host's log.",
    "silent": "Check its exit status, the kernel's log, and whether the process is stopped.",
    "peer_missing": "Check the pipeline's schedule.",
    "gpu_not_finished": "Check its GPU: Xid lines, a kernel that does not end.",
    "not_initialised": "Check its start, its network, its stderr.",
}
_CODE = "Check the code that makes the call."
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
        advice=_ADVICE.get(verdict.what[0], _CODE) if verdict.decided else _UNDECIDED,
    )


RULES = (hang,)
