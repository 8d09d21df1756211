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
