"""Values that no schedule over a system's links can reach: a wrong label, system or measurement."""

from __future__ import annotations

from msgspec.structs import replace

from collscope.analysis.check import Check
from collscope.analysis.verdict import Decision, Reason, Verdict
from collscope.reports.compare.limits import Limits


def limited(check: Check, limits: Limits) -> Check:
    """The verdict with impossible values named; none when every class has one."""
    common = {row.key for row in check.classes if row.ratio is not None}
    found = tuple(v for v in limits.impossible if v.key in common)
    check = replace(check, impossible=found, notes=(*check.notes, *limits.notes))
    if not common or {v.key for v in found} != common:
        return check
    return replace(check, decision=Decision(Verdict.NO_VERDICT, Reason.IMPOSSIBLE, limits.system))
