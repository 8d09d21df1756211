"""Findings: what costs time or hides something, each by its own rule over a finished report.

A rule is a pure function from a report to findings; adding one is a function in the `findings` of
the question whose answer it judges, and a line in that file's RULES.
"""

from __future__ import annotations

from msgspec.structs import replace

from collscope.reports.calls import findings as of_calls
from collscope.reports.coverage import findings as of_coverage
from collscope.reports.efficiency import findings as of_efficiency
from collscope.reports.efficiency import measured_findings as of_measured
from collscope.reports.fabric import findings as of_fabric
from collscope.reports.fabric import settings_findings as of_settings
from collscope.reports.hang import findings as of_hang
from collscope.reports.report.answer import Finding, Report
from collscope.reports.waiting import findings as of_waiting

# First what makes every number doubtful; then time that was lost, a late rank before the classes
# that show it, slow collectives before it where they cost more; then what may cost some, and what
# only limits the report.
RULES = (
    *of_coverage.RULES,
    *of_hang.RULES,
    of_efficiency.slow_collectives,
    *of_waiting.RULES,
    *of_efficiency.RULES,
    *of_measured.RULES,
    *of_fabric.RULES,
    *of_settings.RULES,
    *of_calls.RULES,
)

_OF_LATENESS = ("straggler", "late_node")
SEVERITIES = ("problem", "warning", "note")


def find(report: Report) -> tuple[Finding, ...]:
    """Findings of every rule, problems before warnings before notes, then in the order of `RULES`.

    report  with all its classes: rules about sizes and time look at every one
    """
    findings = [finding for rule in RULES for finding in rule(report)]
    if report.verdict[0].cause == "none":
        # The whole steps show that no rank's lateness costs them anything.
        findings = [replace(f, severity="note") if f.code in _OF_LATENESS else f for f in findings]
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))
