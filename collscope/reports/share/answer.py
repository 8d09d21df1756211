"""Share: how much GPU time the collectives take, and the denominator."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from collscope.model.diagnostic import TIMES_UNKNOWN
from collscope.reports.share.rocprof_files import kernels_of, totals_shadowed_by_traces
from collscope.reports.tolerances import (
    COMMUNICATION_BOUND_PERCENT,
    COMPUTE_BOUND_PERCENT,
    COPY_BOUND_PERCENT,
    MIN_BOUND_NAMES,
    WHOLE_TABLE_PERCENT,
)

# Its rows are functions of the host: one that is no collective may start some inside.
HOST_FUNCTIONS = "perftools"
# A file of these may hold several tables, of phases as well as of ranks.
PASTED_TABLES = ("key_averages", HOST_FUNCTIONS)

_SHARES = """
SELECT v.source_id, s.path, s.dialect, v.collective_calls, v.collective_ns, v.kernel_ns,
       v.busy_ns, v.reported_percentage, v.reported_coverage
FROM share v JOIN sources s USING (source_id) WHERE v.run = :run AND s.run = v.run
AND NOT EXISTS (SELECT 1 FROM diagnostics d WHERE d.run = s.run AND d.path = s.path
                AND d.code IN (SELECT value FROM json_each(:unknown)))
ORDER BY v.source_id
"""

# One row per table row would do for the sums, but a profile may list each device.
_TOTALS = """
SELECT source_id, name, family, kind, CAST(TOTAL(calls) AS INTEGER),
       CAST(TOTAL(total_ns) AS INTEGER), SUM(reported_percentage), COUNT(*)
FROM kernel_totals WHERE run = ? GROUP BY source_id, name, family, kind
"""

_UNCLASSIFIED = """
SELECT path, excerpt, SUM(count) FROM diagnostics
WHERE run = ? AND code = 'unclassified_name' AND excerpt IS NOT NULL GROUP BY path, excerpt
ORDER BY SUM(count) DESC, excerpt
"""


_WARM_UP = """
WITH warm AS (
    SELECT k.source_id, COUNT(*) AS calls FROM kernels k
    JOIN call_times t ON t.run = k.run AND t.call_id = k.call_id
    WHERE k.run = :run AND t.warm_up GROUP BY k.source_id)
SELECT w.source_id, w.calls, SUM(r.calls) FROM warm w
JOIN traces t ON t.run = :run AND t.source_id = w.source_id AND t.used
JOIN rank_times r ON r.run = t.run AND r.rank = t.rank GROUP BY w.source_id
"""


class Whole(Enum):
    """What a share is of."""

    KERNELS_AND_COPIES = "kernels_and_copies"
    KERNELS = "kernels"  # the profile lists no copies
    PRINTED = "printed"  # the profile's own total
    PRINTED_WITH_COPIES = "printed_with_copies"  # the same, of kernels and copies


class Bound(Enum):
    """What a job's GPU time is bound by."""

    COMMUNICATION = "communication"
    COMPUTE = "compute"
    COPIES = "copies"


class FamilyShare(msgspec.Struct, frozen=True):
    """Collective kernels of one family (nccl, rccl, msccl, mscclpp, custom) in one profile."""

    family: str
    calls: int
    total_ns: int
    percent: float | None  # of the profile's denominator


class KernelShare(msgspec.Struct, frozen=True):
    """One collective kernel's total in one profile, all devices together."""

    name: str
    family: str
    calls: int
    total_ns: int
    mean_ns: float | None
    percent: float | None  # of the profile's denominator


class UnclassifiedName(msgspec.Struct, frozen=True):
    """A kernel name with "ccl" that is no known collective, and is not counted as one."""

    name: str
    calls: int


class Share(msgspec.Struct, frozen=True):
    """Share of GPU time in collectives, of one profile."""

    source: str
    dialect: str
    percent: float | None  # the answer, of `denominator`
    denominator: Whole
    # copies and memsets as far as the profile lists them, of the same denominator
    copies_percent: float
    rows: int  # rows of the profile's table
    partial: bool  # the table is an excerpt: its own percentages are used
    collective_calls: int
    collective_ns: int
    kernel_ns: int | None  # all kernels, None for an excerpt
    busy_ns: int | None  # kernels and copies, None for an excerpt
    share_of_kernels: float | None  # ratio to kernel_ns
    share_of_busy: float | None  # ratio to busy_ns
    reported_percentage: float | None  # sum of what the source printed for the collectives
    reported_coverage: float | None  # sum of everything it printed; 100 when whole
    families: tuple[FamilyShare, ...]
    kernels: tuple[KernelShare, ...]
    kernels_total: int  # collective kernel names before the cut to the top ones
    # its calls that other sums leave out as warm-up, by the traces of other ranks
    warm_up_calls: int
    unclassified: tuple[UnclassifiedName, ...]


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
    """Share of GPU time in collectives, one per profile of the run with kernels.

    None of a profile whose times contradict each other.
    """
    totals: dict[int, list[_Total]] = defaultdict(list)
    for source_id, *columns in connection.execute(_TOTALS, (run,)):
        totals[source_id].append(_Total(*columns))
    names: dict[str, list[UnclassifiedName]] = defaultdict(list)
    for path, name, calls in connection.execute(_UNCLASSIFIED, (run,)):
        names[path].append(UnclassifiedName(name, calls))
    given = {"run": run, "unknown": json.dumps(TIMES_UNKNOWN)}
    profiles = {key: _Profile(*columns) for key, *columns in connection.execute(_SHARES, given)}
    warm_up = {key: (own, calls) for key, own, calls in connection.execute(_WARM_UP, {"run": run})}
    return tuple(
        _share(
            profile, totals[source_id], names[profile.source],
            _included(profile.collective_calls, *warm_up.get(source_id, (0, 0))),
        )
        for source_id, profile in _one_per_process(profiles, totals).items()
        if not _copies_alone(profile)
    )  # fmt: skip


def _included(counted: int, warm_up: int, others: int) -> int:
    """Warm-up calls among those counted.

    warm_up  of the source, by all traces of the run
    others   calls of the source's ranks that are no warm-up
    """
    return max(0, min(warm_up, counted - others))


def _one_per_process(
    profiles: dict[int, _Profile], totals: dict[int, list[_Total]]
) -> dict[int, _Profile]:
    """Profiles with the copies that rocprofv3 lists in a file beside; the copies join `totals`.

    What a trace beside it holds again is left out. An excerpt has no total to add copies to.
    """
    keys = {profile.source: key for key, profile in profiles.items()}
    left_out = totals_shadowed_by_traces(keys)
    joined = {key: profile for key, profile in profiles.items() if profile.source not in left_out}
    for copies, kernels in kernels_of(keys).items():
        source, target = keys[copies], keys[kernels]
        if _copies_alone(joined[source]) and not _partial(joined[target]):
            busy_ns = joined[target].busy_ns + joined[source].busy_ns
            joined[target] = joined[target]._replace(busy_ns=busy_ns)
            totals[target] += totals[source]
    return joined


def _copies_alone(profile: _Profile) -> bool:
    """Whether a profile has copies only: it shows nothing about the share of collectives."""
    return not (profile.kernel_ns or profile.collective_ns or _partial(profile))


def _partial(profile: _Profile) -> bool:
    coverage = profile.reported_coverage
    return coverage is not None and coverage < WHOLE_TABLE_PERCENT


def _share(
    profile: _Profile,
    totals: Sequence[_Total],
    unclassified: Sequence[UnclassifiedName],
    warm_up_calls: int,
) -> Share:
    coverage = profile.reported_coverage
    partial = _partial(profile)
    copies = any(total.kind == "copy" for total in totals)
    rows = sum(total.rows for total in totals)
    printed = _as_printed(profile, partial)
    kernels = _kernels(totals, None if printed else profile.busy_ns)
    of_kernels, of_busy = _ratios(profile, partial)
    return Share(
        source=profile.source,
        dialect=profile.dialect,
        percent=_percent(profile, printed, of_busy),
        copies_percent=_copies(totals, None if printed else profile.busy_ns),
        denominator=_denominator(profile.dialect, printed, copies),
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
        warm_up_calls=warm_up_calls,
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


def _as_printed(profile: _Profile, partial: bool) -> bool:
    """Whether the source's own percentages are the share: its table may leave rows out."""
    coverage = profile.reported_coverage
    cut = profile.dialect == "key_averages" and coverage is not None and coverage < 100
    return partial or cut


def _percent(profile: _Profile, printed: bool, of_busy: float | None) -> float | None:
    if profile.dialect == HOST_FUNCTIONS and not profile.collective_ns:
        return None
    if printed:
        return profile.reported_percentage or 0.0
    return None if of_busy is None else 100 * of_busy


def _denominator(dialect: str, printed: bool, copies: bool) -> Whole:
    # RPD's `top` lists copies beside kernels and computes its percentages over both.
    if printed:
        return Whole.PRINTED_WITH_COPIES if dialect == "top_text" else Whole.PRINTED
    return Whole.KERNELS_AND_COPIES if copies else Whole.KERNELS


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


def _copies(totals: Sequence[_Total], busy_ns: int | None) -> float:
    """Percent in copies over `busy_ns`, or as reported where it is None."""
    copies = [total for total in totals if total.kind == "copy"]
    if busy_ns:
        return 100 * sum(total.total_ns for total in copies) / busy_ns
    return sum(total.reported or 0.0 for total in copies)


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


def bound_by(share: Share) -> Bound | None:
    """What bounds the job, by a profile's GPU time; None where it does not show.

    Of an excerpt, what is not shown may be collectives, or not: both ends must agree.
    """
    if share.percent is None or share.rows < MIN_BOUND_NAMES:
        return None
    hidden = hidden_percent(share)
    if share.percent >= COMMUNICATION_BOUND_PERCENT:
        return Bound.COMMUNICATION
    if share.copies_percent >= COPY_BOUND_PERCENT:
        return Bound.COPIES
    if share.percent + hidden <= COMPUTE_BOUND_PERCENT:
        compute = 100 - share.percent - hidden - share.copies_percent
        return Bound.COMPUTE if compute >= 100 - COPY_BOUND_PERCENT else None
    return None


def alike(shares: Sequence[Share]) -> bool:
    """Whether profiles look like those of one job's ranks: several of one dialect, no tables."""
    dialects = {share.dialect for share in shares}
    return len(shares) > 1 and len(dialects) == 1 and dialects.isdisjoint(PASTED_TABLES)


def hidden_percent(share: Share) -> float:
    """Percent of the GPU time that may be further collectives."""
    if share.dialect == HOST_FUNCTIONS:
        return 100 - (share.percent or 0.0)
    return max(0.0, 100 - (share.reported_coverage or 0.0)) if share.partial else 0.0
