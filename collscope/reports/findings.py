"""Findings: what costs time or hides something, each by its own rule over a finished report.

A rule is a pure function from a report to findings; adding one is a function in the file of its
subject (sources, fabric, environment, calls, judgement, timeline) and a line in that file's RULES.
"""

from __future__ import annotations

from msgspec.structs import replace

from collscope.reports import (
    rules_calls,
    rules_environment,
    rules_fabric,
    rules_judgement,
    rules_measurements,
    rules_sources,
    rules_timeline,
)
from collscope.reports.model import Finding, Report

# First what makes every number doubtful; then time that was lost, a late rank before the classes
# that show it, slow collectives before it where they cost more; then what may cost some, and what
# only limits the report.
RULES = (
    *rules_sources.RULES,
    rules_judgement.slow_collectives,
    *rules_timeline.RULES,
    *rules_judgement.RULES,
    *rules_measurements.RULES,
    *rules_fabric.RULES,
    *rules_environment.RULES,
    *rules_calls.RULES,
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
