"""Drawings of a report as SVG that follows the page's colours, each with its data as a table."""

from __future__ import annotations

from collections.abc import Sequence

from collscope.reports.model import Report


def report_ops(report: Report) -> Sequence[str]:
    """Every operation of a report: each has one colour in all of its drawings."""
    classes = {row.op for row in report.classes} | {row.op for row in report.judgement.classes}
    return sorted(classes | {row.op for h in report.histograms for b in h.bins for row in b.ops})
