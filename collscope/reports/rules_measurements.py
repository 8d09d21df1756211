"""Rules about what was measured: times that fall, curves far from reachable, places that differ.

They look at the judged classes, which are those of one label. A time counts where its results were
right; what the ceiling's own range explains is no finding.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate

from collscope.reports.judgement import IN_JOB, JudgedClass
from collscope.reports.model import Finding, Report
from collscope.units import count, format_size

# A larger message that takes less than this part of a smaller one's time: beyond the noise of a
# benchmark's mean (nccl-tests on four H200: repetitions within 3 %).
FALLS = 0.85
# In place and out of place move the same data over the links; a copy within a GPU is far faster.
PLACES_DIFFER = 1.3
# Below this part of the reachable ceiling at large messages something is switched off or broken.
FAR = 0.5
_LARGE = 16 << 20  # bytes from which a time is bandwidth
_MOST = 4


def times_fall(report: Report) -> Iterable[Finding]:
    """A larger message took less time than a smaller one of the same family."""
    found = []
    for rows in _families(report, places=True).values():
        ordered = sorted(rows, key=lambda r: r.size_bytes or 0)
        sizes = [row.size_bytes or 0 for row in ordered]
        least_from = _least_from(ordered)
        for small in ordered:
            larger = bisect_left(sizes, 2 * (small.size_bytes or 0))
            if larger == len(ordered):
                break
            least = least_from[larger]
            if (least.measured_us or 0) < FALLS * (small.measured_us or 0):
                found.append(((small.measured_us or 0) / (least.measured_us or 1), small, least))
    if not found:
        return
    found.sort(key=lambda one: -one[0])
    told = "; ".join(
        f"{_what(small)} took {_us(small)}, but {format_size(large.size_bytes)} {_us(large)}"
        for _, small, large in found[:_MOST]
    )
    yield Finding(
        severity="warning",
        code="times_fall",
        title=f"{count(len(found), 'size')} took longer than a larger message",
        detail=f"{told}.",
        advice="Measure again with more iterations: a first touch of memory, another job or a "
        "failing link shows like this. Where it stays, another algorithm or protocol would be "
        "faster at the slow size (collscope tune).",
    )


def _least_from(ordered: Sequence[JudgedClass]) -> list[JudgedClass]:
    """For each place, the row of the shortest time from there on; of equal ones the first."""
    return list(accumulate(reversed(ordered), _shorter))[::-1]


def _shorter(one: JudgedClass, other: JudgedClass) -> JudgedClass:
    """The row of the shorter time; of equal ones the other."""
    return other if (other.measured_us or 0) <= (one.measured_us or 0) else one


def places_differ(report: Report) -> Iterable[Finding]:
    """In place and out of place of one class take different times."""
    found = []
    for rows in _families(report, places=False).values():
        by_size: dict[int, dict[bool, JudgedClass]] = defaultdict(dict)
        for row in rows:
            if row.in_place is not None and row.size_bytes:
                by_size[row.size_bytes][row.in_place] = row
        for pair in by_size.values():
            if len(pair) == 2:
                fast, slow = sorted(pair.values(), key=lambda r: r.measured_us or 0.0)
                ratio = (slow.measured_us or 0) / (fast.measured_us or 1)
                if ratio > PLACES_DIFFER:
                    found.append((ratio, slow, fast))
    if not found:
        return
    found.sort(key=lambda one: -one[0])
    told = "; ".join(
        f"{_what(slow)} {'in' if slow.in_place else 'out of'} place {_us(slow)}, "
        f"{'in' if fast.in_place else 'out of'} place {_us(fast)} ({ratio:.2f} x)"
        for ratio, slow, fast in found[:_MOST]
    )
    yield Finding(
        severity="note",
        code="places_differ",
        title=f"in place and out of place differ at {count(len(found), 'size')}",
        detail=f"{told}.",
        advice="Both move the same data over the links. Measure again: the slower one may have "
        "touched its memory for the first time.",
    )


def far_below_reachable(report: Report) -> Iterable[Finding]:
    """Large messages stay below half of the reachable ceiling, at every large size measured."""
    found = []
    for rows in _families(report, places=False).values():
        large = [
            r for r in rows
            if (r.size_bytes or 0) >= _LARGE and r.efficiency is not None and not r.calls
        ]  # fmt: skip
        best = max(large, key=lambda r: r.efficiency or 0.0, default=None)
        if best is not None and best.measured_us and best.roof_high_us is not None:
            # by the ceiling's slow end, so that its own uncertainty is no finding
            part = best.roof_high_us / best.measured_us
            if part < FAR:
                found.append((part, best))
    if not found:
        return
    found.sort(key=lambda one: one[0])
    told = "; ".join(
        f"{_what(row)} reaches {row.busbw_gbps:.4g} of {row.roof_gbps:.4g} GB/s at best"
        for _, row in found[:_MOST]
        if row.busbw_gbps and row.roof_gbps
    )
    yield Finding(
        severity="problem",
        code="far_below_reachable",
        title=f"large messages reach at most {100 * found[-1][0]:.0f} % of what the library can "
        "reach here",
        detail=f"{told}.",
        advice="Look at which transport carries it (NCCL_DEBUG=INFO, lines with 'via'): TCP "
        "instead of RDMA, no GPUDirect, fewer NICs or links than the machine has, or another "
        "machine than --system names.",
    )


def _families(report: Report, *, places: bool) -> dict[tuple[object, ...], Sequence[JudgedClass]]:
    """Measured classes that differ in size only, and in place unless `places`."""
    found: dict[tuple[object, ...], list[JudgedClass]] = defaultdict(list)
    for row in report.judgement.classes:
        if row.size_bytes and row.measured_us and IN_JOB not in row.marks:
            key = (row.op, row.datatype, row.redop, row.nranks, row.in_place if places else None)
            found[key].append(row)
    return dict(found)


def _what(row: JudgedClass) -> str:
    return f"{row.op} of {format_size(row.size_bytes)} on {row.nranks} ranks"


def _us(row: JudgedClass) -> str:
    return f"{row.measured_us:.5g} us"


RULES = (far_below_reachable, times_fall, places_differ)
