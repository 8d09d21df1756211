"""Findings: what costs time or hides something, each by its own rule over a finished report.

A rule is a pure function from a report to findings; adding one is a function in the file of its
subject (sources, fabric, environment, calls, judgement, timeline) and a line in that file's RULES.
"""

from __future__ import annotations

from collscope.reports.calls import findings as rules_calls
from collscope.reports.coverage import findings as rules_sources
from collscope.reports.efficiency import (
    findings as rules_judgement,
)
from collscope.reports.efficiency import (
    measured_findings as rules_measurements,
)
from collscope.reports.fabric import (
    findings as rules_fabric,
)
from collscope.reports.fabric import (
    settings_findings as rules_environment,
)
from collscope.reports.report.answer import Finding, Report
from collscope.reports.waiting import findings as rules_timeline

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

SEVERITIES = ("problem", "warning", "note")


def find(report: Report) -> tuple[Finding, ...]:
    """Findings of every rule, problems before warnings before notes, then in the order of `RULES`.

    report  with all its classes: rules about sizes and time look at every one
    """
    findings = [finding for rule in RULES for finding in rule(report)]
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))
