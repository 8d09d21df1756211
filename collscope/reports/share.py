"""The share section: how much of the GPU time the collectives take, and of which GPU time."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from collscope.reports.model import FamilyShare, KernelShare, Share, UnclassifiedName

# A pasted table whose percentages sum to less is an excerpt: what stands in it is no total.
WHOLE_TABLE_PERCENT = 99.5
# Half of GPU time in collectives, or a quarter at most: between them neither word is right.
COMMUNICATION_BOUND_PERCENT = 50.0
COMPUTE_BOUND_PERCENT = 25.0
# A GPU that idles for half of the traced time is bound by neither, whatever fills the rest.
IDLE_PERCENT = 50.0

_SHARES = """
SELECT v.source_id, s.path, s.dialect, v.collective_calls, v.collective_ns, v.kernel_ns,
       v.busy_ns, v.reported_percentage, v.reported_coverage
FROM share v JOIN sources s USING (source_id) WHERE v.run = ? AND s.run = v.run
ORDER BY v.source_id
"""

# One row per table row would do for the sums, but a profile may list each device.
_TOTALS = """
SELECT source_id, name, family, kind, SUM(calls), SUM(total_ns), SUM(reported_percentage), COUNT(*)
FROM kernel_totals WHERE run = ? GROUP BY source_id, name, family, kind
"""

_UNCLASSIFIED = """
SELECT path, excerpt, SUM(count) FROM diagnostics
WHERE run = ? AND code = 'unclassified_name' AND excerpt IS NOT NULL GROUP BY path, excerpt
ORDER BY SUM(count) DESC, excerpt
"""


class _Total(NamedTuple):
    name: str
    family: str | None
    kind: str
    calls: int
    total_ns: int
    reported: float | None
    rows: int


class _Profile(NamedTuple):
    source: str
    dialect: str
    collective_calls: int
    collective_ns: int
    kernel_ns: int
    busy_ns: int
    reported_percentage: float | None
    reported_coverage: float | None


def read_shares(connection: sqlite3.Connection, run: str) -> tuple[Share, ...]:
    """Share of GPU time in collectives, one per profile of the run."""
    totals: dict[int, list[_Total]] = defaultdict(list)
    for source_id, *columns in connection.execute(_TOTALS, (run,)):
        totals[source_id].append(_Total(*columns))
    names: dict[str, list[UnclassifiedName]] = defaultdict(list)
    for path, name, calls in connection.execute(_UNCLASSIFIED, (run,)):
        names[path].append(UnclassifiedName(name, calls))
    return tuple(
        _share(_Profile(path, *columns), totals[source_id], names[path])
        for source_id, path, *columns in connection.execute(_SHARES, (run,))
    )


def _share(
    profile: _Profile,
    totals: Sequence[_Total],
    unclassified: Sequence[UnclassifiedName],
) -> Share:
    coverage = profile.reported_coverage
    partial = coverage is not None and coverage < WHOLE_TABLE_PERCENT
    copies = any(total.kind == "copy" for total in totals)
    rows = sum(total.rows for total in totals)
    kernels = _kernels(totals, None if partial else profile.busy_ns)
    of_kernels, of_busy = _ratios(profile, partial)
    return Share(
        source=profile.source,
        dialect=profile.dialect,
        percent=_percent(profile, partial, of_busy),
        denominator=_denominator(profile.dialect, partial, copies, rows),
        rows=rows,
        partial=partial,
        collective_calls=profile.collective_calls,
        collective_ns=profile.collective_ns,
        kernel_ns=None if partial else profile.kernel_ns,
        busy_ns=None if partial else profile.busy_ns,
        share_of_kernels=of_kernels,
        share_of_busy=of_busy,
        reported_percentage=profile.reported_percentage,
        reported_coverage=coverage,
        families=_families(kernels),
        kernels=kernels,
        kernels_total=len(kernels),
        unclassified=tuple(unclassified),
    )


def _ratios(profile: _Profile, partial: bool) -> tuple[float | None, float | None]:
    """Ratios to all kernels, and to kernels and copies; None of an excerpt, which has no total."""
    if partial:
        return None, None
    return (
        profile.collective_ns / profile.kernel_ns if profile.kernel_ns else None,
        profile.collective_ns / profile.busy_ns if profile.busy_ns else None,
    )


def _percent(profile: _Profile, partial: bool, of_busy: float | None) -> float | None:
    if partial:
        return profile.reported_percentage or 0.0
    return None if of_busy is None else 100 * of_busy


def _denominator(dialect: str, partial: bool, copies: bool, rows: int) -> str:
    """What the percentage is of, in words."""
    plural = "s" if rows != 1 else ""
    # RPD's `top` lists copies beside kernels and computes its percentages over both.
    if partial and dialect == "top_text":
        return f"the profile's own total, kernels and copies; {rows} row{plural} pasted"
    if partial:
        return f"the profile's own total; {rows} row{plural} present"
    return "all kernels and copies" if copies else "all kernels; the profile lists no copies"


def _kernels(totals: Sequence[_Total], busy_ns: int | None) -> tuple[KernelShare, ...]:
    """Collective kernels by time; percentages over `busy_ns`, or as reported where it is None."""
    kernels = [
        KernelShare(
            name=total.name,
            family=total.family,
            calls=total.calls,
            total_ns=total.total_ns,
            mean_ns=total.total_ns / total.calls if total.calls else None,
            percent=100 * total.total_ns / busy_ns if busy_ns else total.reported,
        )
        for total in totals
        if total.family is not None
    ]
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.total_ns, kernel.name)))


def _families(kernels: Sequence[KernelShare]) -> tuple[FamilyShare, ...]:
    families = [
        _family(name, [kernel for kernel in kernels if kernel.family == name])
        for name in {kernel.family for kernel in kernels}
    ]
    return tuple(sorted(families, key=lambda family: (-family.total_ns, family.family)))


def _family(name: str, kernels: Sequence[KernelShare]) -> FamilyShare:
    percents = [kernel.percent for kernel in kernels if kernel.percent is not None]
    return FamilyShare(
        family=name,
        calls=sum(kernel.calls for kernel in kernels),
        total_ns=sum(kernel.total_ns for kernel in kernels),
        percent=sum(percents) if percents else None,
    )


def bound_by(share: Share) -> str | None:
    """What a profile's GPU time says the job is bound by; None where it does not tell.

    Of an excerpt, what is not shown may be collectives, or not: both ends must agree.
    """
    if share.percent is None:
        return None
    hidden = max(0.0, 100 - (share.reported_coverage or 0.0)) if share.partial else 0.0
    if share.percent >= COMMUNICATION_BOUND_PERCENT:
        return "Communication-bound"
    if share.percent + hidden <= COMPUTE_BOUND_PERCENT:
        return "Compute-bound"
    return None
