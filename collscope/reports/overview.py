"""How much of the job the sources show, and the questions that they leave open, in words."""

from __future__ import annotations

from collscope.reports.model import Report

# Diagnostics of sources that had more calls than could be read.
_LOST_CALLS = {
    "numbers_missing",
    "recorder_dropped",
    "second_dump",
    "torn_dump",
    "torn_last_line",
    "torn_record",
    "tuning_without_call",
}


def calls_lost(report: Report) -> bool:
    """Whether calls were made that a source should hold and does not."""
    return any(
        row.code in _LOST_CALLS and row.severity != "notice" for row in report.coverage.diagnostics
    )
