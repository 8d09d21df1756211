"""What a report holds: frozen records, shared by every output format; most are other answers.

Units are in the field names; ns and bytes are integers; ratios lie in 0..1 and percentages in
0..100, each with its denominator in the description. None means "not in the source".
`schemas/report.schema.json` is made from these records and their comments (docs/generate.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from collscope.hang.records import Verdict
from collscope.model import Op
from collscope.reports.calls.answer import ClassRow, CommunicatorRow, Histogram
from collscope.reports.coverage.answer import Coverage, Header
from collscope.reports.efficiency.answer import Judgement
from collscope.reports.fabric.answer import FactRow, SettingRow, TransportRow
from collscope.reports.share.answer import Share
from collscope.reports.share.recorded import RecordedShare
from collscope.reports.verdict.answer import StepSummary, VerdictEntry
from collscope.reports.waiting.answer import TimelineReport

SCHEMA = "collscope.report/2"


class Evidence(msgspec.Struct, frozen=True):
    """Where a finding comes from: a line of a source and its text."""

    source: str
    line: int | None
    text: str | None


class Finding(msgspec.Struct, frozen=True):
    """Something that costs time or limits what the report can say, and what to do about it."""

    severity: Annotated[str, ("problem", "warning", "note")]
    code: str  # stable snake_case name
    title: str
    detail: str
    advice: str
    evidence: tuple[Evidence, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report shows about one run."""

    schema: str = SCHEMA
    verdict: tuple[VerdictEntry, ...]  # why a step is long, the dearest cause first; never empty
    step: StepSummary
    header: Header
    shares: tuple[Share, ...]
    recorded_share: RecordedShare | None = None  # by GPU times of recordings; None: there are none
    classes: tuple[ClassRow, ...]  # the top ones, see Header.classes for their number
    communicators: tuple[CommunicatorRow, ...]
    histograms: tuple[Histogram, ...]
    transports: tuple[TransportRow, ...]
    settings: tuple[SettingRow, ...]
    facts: tuple[FactRow, ...]
    judgement: Judgement
    timeline: TimelineReport
    hang: Verdict | None  # who holds up the run, by its flight recorder dumps; null: no rank waits
    findings: tuple[Finding, ...]
    coverage: Coverage


def report_ops(report: Report) -> Sequence[Op]:
    """Every operation of a report: each has one colour in all of its drawings."""
    classes = {row.op for row in report.classes} | {row.op for row in report.judgement.classes}
    drawn = {row.op for h in report.histograms for b in h.bins for row in b.ops}
    return sorted(classes | drawn, key=str)


# Diagnostics of sources that had more calls than could be read.
_LOST_CALLS = {
    "invalid_number_line",
    "numbers_missing",
    "recorder_dropped",
    "repeated_line",
    "second_dump",
    "torn_dump",
    "torn_last_line",
    "torn_line",
    "torn_record",
    "tuning_without_call",
}


def calls_lost(report: Report) -> bool:
    """Whether calls were made that a source should hold and does not."""
    return any(
        row.code in _LOST_CALLS and row.severity != "notice" for row in report.coverage.diagnostics
    )


def counts_are_lower_bounds(report: Report) -> bool:
    """Whether calls may have been made that the run does not hold: lost, or of ranks not seen."""
    return calls_lost(report) or any(row.missing_ranks for row in report.communicators)
