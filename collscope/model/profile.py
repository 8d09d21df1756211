"""Records of profiles: kernels and copies of one device."""

from __future__ import annotations

from dataclasses import dataclass, field

from collscope.model.diagnostic import Diagnostic


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """One row of a profile's "top" table: all executions of one kernel or copy."""

    name: str
    calls: int
    total_ns: int
    min_ns: int | None = None
    max_ns: int | None = None
    device: str | None = None
    kind: str = "kernel"  # kernel or copy
    reported_percentage: float | None = None  # as the source printed it


@dataclass(frozen=True, slots=True)
class KernelSpan:
    """One execution of a kernel on one device."""

    name: str
    start_ns: int
    end_ns: int
    device: str | None = None
    stream: str | None = None
    kind: str = "kernel"  # kernel or copy


@dataclass(frozen=True, slots=True)
class Profile:
    """What one profile holds: totals always, spans where the source has them."""

    dialect: str  # rpd, rocpd, nsys, rocprof_v1_stats, rocprofv3_stats, rocprofv3_trace, top_text
    totals: tuple[KernelTotal, ...]
    spans: tuple[KernelSpan, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """One table of a profile that is text."""

    line: int  # of its header, 1-based
    profile: Profile


@dataclass(frozen=True, slots=True)
class SizeBin:
    """How many messages or copies of one size range a function made."""

    function: str
    what: str  # MsgSz, HtoA, AtoH, AtoA
    low_bytes: int  # of the range, inclusive
    high_bytes: int | None  # exclusive; None: no upper end
    count: float  # mean of the processes, so it need not be whole


@dataclass(frozen=True, slots=True)
class ProfileSet:
    """The profiles of one file: several where a text holds several tables."""

    tables: tuple[ProfileTable, ...]  # at least one, which may be without rows
    bins: tuple[SizeBin, ...] = ()
