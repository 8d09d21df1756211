"""What a report holds: frozen records, shared by every output format; most are of `analysis`.

Units are in the field names; ns and bytes are integers; ratios lie in 0..1 and percentages in
0..100, each with its denominator in the description. None means "not in the source".
`schemas/report.schema.json` is made from these records and their comments (docs/generate.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Annotated, get_type_hints

import msgspec

from collscope.analysis.classes import ClassRow
from collscope.analysis.communicators import CommunicatorRow
from collscope.analysis.overview import DiagnosticRow, Header, SourceLines
from collscope.analysis.share import Share
from collscope.analysis.sizes import Histogram
from collscope.analysis.transports import FactRow, SettingRow, TransportRow
from collscope.reports.judgement import Judgement
from collscope.reports.part import Part
from collscope.reports.sections_timeline import TimelineReport
from collscope.reports.verdict.answer import StepSummary, VerdictEntry

SCHEMA = "collscope.report/1"


class Evidence(msgspec.Struct, frozen=True):
    """Where a finding comes from: a line of a source and what it says."""

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


class DeviationRow(msgspec.Struct, frozen=True):
    """Calls that one rank of one communicator lacks, or saw differently than its peers."""

    comm_id: int  # communicator
    rank: int  # in the communicator
    # missing, stopped (its log lacks the last calls) or differs
    what: Annotated[str, ("missing", "stopped", "differs")]
    calls: int  # how many
    detail: str | None  # of the first such call; of a rank that stopped its last call
    source: str | None  # the rank's source
    line: int | None  # of the first such call; None: it logged none


class Gap(msgspec.Struct, frozen=True):
    """A question the run's sources do not answer, and what would answer it."""

    question: str
    remedy: str


class Coverage(msgspec.Struct, frozen=True):
    """How much of the job the sources show."""

    sources: tuple[SourceLines, ...]
    calls_complete: int  # logged by every rank of their communicator
    calls_incomplete: int
    calls_unknown: int  # the number of ranks is not known
    deviations: tuple[DeviationRow, ...]
    diagnostics: tuple[DiagnosticRow, ...]
    gaps: tuple[Gap, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report says about one run."""

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks; without the drawings that need the store."""
        from collscope.reports.html.page import framed  # noqa: PLC0415
        from collscope.reports.render import render  # noqa: PLC0415

        return framed(render(self, "html"))

    schema: str = SCHEMA
    verdict: tuple[VerdictEntry, ...]  # why a step is long, the dearest cause first; never empty
    step: StepSummary
    header: Header
    shares: tuple[Share, ...]
    classes: tuple[ClassRow, ...]  # the top ones, see Header.classes for their number
    communicators: tuple[CommunicatorRow, ...]
    histograms: tuple[Histogram, ...]
    transports: tuple[TransportRow, ...]
    settings: tuple[SettingRow, ...]
    facts: tuple[FactRow, ...]
    judgement: Judgement
    timeline: TimelineReport
    findings: tuple[Finding, ...]
    coverage: Coverage

    @property
    def parts(self) -> Iterable[Part]:
        """Sections with data of their own, in the order of their fields."""
        return (getattr(self, name) for name in part_kinds())


@cache
def part_kinds() -> dict[str, type[Part]]:
    """Fields of `Report` that are parts, with their types."""
    hints = get_type_hints(Report).items()
    return {n: kind for n, kind in hints if isinstance(kind, type) and issubclass(kind, Part)}
