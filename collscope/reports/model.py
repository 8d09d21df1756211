"""What a report holds: frozen records, one per section, shared by every output format.

Units are in the field names; ns and bytes are integers; ratios lie in 0..1 and percentages in
0..100, each with its denominator in the description. None means "not in the source".
`schemas/report.schema.json` is made from these records and their comments (docs/generate.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, get_type_hints

from collscope.analysis.classes import ClassRow
from collscope.analysis.share import Share
from collscope.reports.judgement import Judgement
from collscope.reports.part import Part
from collscope.reports.timeline_records import TimelineReport

SCHEMA = "collscope.report/1"


@dataclass(frozen=True, slots=True)
class SourceCount:
    """How many sources of one kind and dialect the run has."""

    kind: str
    dialect: str
    sources: int


@dataclass(frozen=True, slots=True)
class Header:
    """What the run consists of."""

    run: str
    sources: tuple[SourceCount, ...]
    libraries: tuple[str, ...]  # "rccl 2.21.5", also cuda, hip, rocm, driver
    hosts: tuple[str, ...]
    processes: int  # distinct (source, host, pid) behind the communicators' ranks
    gpus: int | None  # distinct devices of those processes, None when no line names one
    ranks: int | None  # of the job: as a trace tells them, else of the largest communicator
    gpu_names: tuple[str, ...]  # as traces tell them
    nodes: int | None  # hosts of the communicator with the most
    communicators: int
    classes: int
    calls: int
    total_bytes: int  # over the calls whose size is known
    calls_without_size: int


@dataclass(frozen=True, slots=True)
class OpCalls:
    """Number of calls of one operation."""

    op: str
    calls: int


@dataclass(frozen=True, slots=True)
class CommunicatorRow:
    """One communicator and what went over it."""

    comm_id: int
    nranks: int | None
    nnodes: int | None
    parent_id: int | None
    matched_by: str  # commId, parent/color, globalrank, inferred
    name: str | None  # what the program calls it
    ranks_seen: int
    missing_ranks: str | None  # compact: ranks without a line, None when all were seen
    world_ranks: str | None  # compact: 0-3 or 0,2 or 0-56:8 (first-last:step)
    calls: int
    total_bytes: int
    ops: tuple[OpCalls, ...]


@dataclass(frozen=True, slots=True)
class Bin:
    """Calls with low_bytes <= size < high_bytes."""

    low_bytes: int
    high_bytes: int | None  # None: no upper limit
    calls: int
    total_bytes: int
    ops: tuple[OpCalls, ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Message sizes (nccl-tests size of one call) in bins."""

    name: Annotated[str, ("perftools", "powers_of_two")]
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class TransportRow:
    """Connections of one kind."""

    transport: str
    net: str | None
    gdr: bool | None  # GPUDirect RDMA; None: not a NET link
    pairs: int  # directed pairs of ranks, per communicator
    mixed: int  # pairs of a row without GDR that have it on other channels
    channels: int  # over those pairs
    intra_node: int  # pairs on one host
    inter_node: int  # pairs on two hosts
    unknown: int  # pairs whose hosts the sources do not tell
    source: str  # of the first line that says so
    line: int
    excerpt: str | None  # that line's message


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One value of one variable that the library said it used."""

    name: str
    value: str
    origin: str  # environment, config, invalid
    processes: int  # that logged this value
    of_processes: int  # that logged any setting
    source: str  # of the first such line
    line: int
    excerpt: str | None  # that line's message


@dataclass(frozen=True, slots=True)
class FactRow:
    """A statement of the library (network, plugin, warning), counted over the sources."""

    kind: str
    value: str
    count: int
    source: str
    line: int
    excerpt: str | None  # that line's message


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a finding comes from: a line of a source and what it says."""

    source: str
    line: int | None
    text: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that costs time or limits what the report can say, and what to do about it."""

    severity: Annotated[str, ("problem", "warning", "note")]
    code: str  # stable snake_case name
    title: str
    detail: str
    advice: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceLines:
    """What became of the lines of one source."""

    source: str
    kind: str
    dialect: str
    library: str | None
    library_version: str | None
    lines: int | None
    parsed: int | None
    ignored: int | None
    foreign_lines: int | None
    damaged: int | None


@dataclass(frozen=True, slots=True)
class DiagnosticRow:
    """One kind of content problem, counted over the sources."""

    # info, notice, data_loss, error
    severity: Annotated[str, ("error", "data_loss", "notice", "info")]
    code: str
    message: str
    count: int
    sources: int  # sources it was seen in
    source: str | None  # the first of them; None: found while matching
    line: int | None
    excerpt: str | None


@dataclass(frozen=True, slots=True)
class DeviationRow:
    """Calls that one rank of one communicator lacks, or saw otherwise than its peers."""

    comm_id: int  # communicator
    rank: int  # in the communicator
    # missing, stopped (its log lacks the last calls) or differs
    what: Annotated[str, ("missing", "stopped", "differs")]
    calls: int  # how many
    detail: str | None  # of the first such call; of a rank that stopped its last call
    source: str | None  # the rank's source
    line: int | None  # of the first such call; None: it logged none


@dataclass(frozen=True, slots=True)
class Gap:
    """A question the run's sources do not answer, and what would answer it."""

    question: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the job the sources show."""

    sources: tuple[SourceLines, ...]
    calls_complete: int  # logged by every rank of their communicator
    calls_incomplete: int
    calls_unknown: int  # the number of ranks is not known
    deviations: tuple[DeviationRow, ...]
    diagnostics: tuple[DiagnosticRow, ...]
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a report says about one run."""

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks; without the drawings that need the store."""
        from collscope.reports.html.page import framed  # noqa: PLC0415
        from collscope.reports.render import render  # noqa: PLC0415

        return framed(render(self, "html"))

    schema: str = SCHEMA
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
