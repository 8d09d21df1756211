"""Rules about what was measured: times that fall with size, costly switches of algorithm, curves
far below the reachable ceiling, places that differ, rounds and nodes slower than the others.

They look at the classes of the judged label. A time counts only where its results were right. What
the range of the ceiling explains is no finding.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from math import sqrt

from collscope.reports.efficiency.judged_classes import JudgedClass
from collscope.reports.efficiency.marks import IN_JOB
from collscope.reports.report.answer import Finding, Report
from collscope.reports.tolerances import (
    BANDWIDTH_BYTES,
    FAR_BELOW_CEILING,
    MAX_SIZE_STEP,
    PLACES_FINDING,
    RINGS_SPREAD,
    TIME_FALLS,
    TIME_JUMPS,
)
from collscope.units import are, count, format_size

_MOST = 4
_OUTLIERS = {
    "round": "Another job, clocks or a link disturbed it. Exclude it or measure again; compare and "
    "check use medians over the rounds.",
    "node": "Take the node out of the job and test it: clocks, power limit, links (nvidia-smi "
    "topo, rocm-smi --showtopo), NIC speed, other processes.",
}


_Case = tuple[float, JudgedClass, JudgedClass]  # how bad, above 1, and its classes


def times_fall(report: Report) -> Iterable[Finding]:
    """A larger message took less time than a smaller one of the same family."""
    found = _worst(report, _falls)
    if found:
        yield Finding(
            severity="warning",
            code="times_fall",
            title=f"{count(len(found), 'size')} took longer than a larger message",
            detail=_listed(
                f"{_what(small)} took {_us(small)}, but {format_size(large.size_bytes)} "
                f"{_us(large)}"
                for _, small, large in found
            ),
            advice="Measure again with more iterations: first use of the memory, another job or a "
            "failing link can cause this. If it remains, another algorithm or protocol would "
            "be faster at the slow size (collscope tune).",
        )


def _falls(rows: Sequence[JudgedClass]) -> Iterator[_Case]:
    """Rows of a family that took longer than a larger message: by what factor, and which."""
    ordered = sorted(rows, key=lambda r: r.size_bytes or 0)
    sizes = [row.size_bytes or 0 for row in ordered]
    least_from = _least_from(ordered)
    for small in ordered:
        larger = bisect_left(sizes, 2 * (small.size_bytes or 0))
        if larger == len(ordered):
            break
        least = least_from[larger]
        if (least.measured_ns or 0) < TIME_FALLS * (small.measured_ns or 0):
            yield (small.measured_ns or 0) / (least.measured_ns or 1), small, least


def _least_from(ordered: Sequence[JudgedClass]) -> list[JudgedClass]:
    """For each place, the row of the shortest time from there on; of equal ones the first."""
    return list(accumulate(reversed(ordered), _shorter))[::-1]


def _shorter(one: JudgedClass, other: JudgedClass) -> JudgedClass:
    """The row of the shorter time; of equal ones the other."""
    return other if (other.measured_ns or 0) <= (one.measured_ns or 0) else one


def switch_costs(report: Report) -> Iterable[Finding]:
    """The bandwidth falls from one size to the next, and stays: calls of half the size are faster.

    A size that took longer than a larger one is an outlier of its own (`times_fall`).
    """
    found = _worst(report, _jumps)
    if found:
        listed = _listed(
            f"{_what(small)} took {_us(small)}, {format_size(large.size_bytes)} {_us(large)}"
            f"{_switch(small, large)}"
            for _, small, large in found
        )
        yield Finding(
            severity="warning",
            code="switch_costs",
            title=f"bandwidth falls at {count(len(found), 'size')}, by up to "
            f"{100 * (1 - 1 / found[0][0]):.0f} %",
            detail=f"{listed} Several calls of the smaller size would have taken less time.",
            advice="If it remains when measured again, the library switches algorithm or protocol "
            "at the wrong size, or a transport's buffers end there. collscope tune tries the "
            "alternatives on both sides. NCCL_DEBUG_SUBSYS=TUNING (rccl-tests -A 1) shows "
            "what the library chooses.",
        )


def _jumps(rows: Sequence[JudgedClass]) -> Iterator[_Case]:
    """Neighbouring sizes of a family: the time over that at the bandwidth of the smaller size."""
    fallen = {small.class_id for _, small, _ in _falls(rows)}
    ordered = [row for row in rows if row.class_id not in fallen]
    for small, large in pairwise(sorted(ordered, key=lambda r: r.size_bytes or 0)):
        ratio = (large.size_bytes or 0) / (small.size_bytes or 1)
        jump = (large.measured_ns or 0) / (small.measured_ns or 1) / ratio
        if 1 < ratio <= MAX_SIZE_STEP and jump > TIME_JUMPS:
            yield jump, small, large


def _switch(small: JudgedClass, large: JudgedClass) -> str:
    if None in (small.choice, large.choice) or small.choice == large.choice:
        return ""
    return f" ({small.choice}, then {large.choice})"


def places_differ(report: Report) -> Iterable[Finding]:
    """In place and out of place of one class take different times."""
    found = _worst(report, _places_differ, places=False)
    if found:
        yield Finding(
            severity="note",
            code="places_differ",
            title=f"in place and out of place differ at {count(len(found), 'size')}",
            detail=_listed(
                f"{_what(slow)} {'in' if slow.in_place else 'out of'} place {_us(slow)}, "
                f"{'in' if fast.in_place else 'out of'} place {_us(fast)} ({ratio:.2f} x)"
                for ratio, slow, fast in found
            ),
            advice="Both move the same data over the links. Measure again: the slower one may have "
            "used its memory for the first time.",
        )


def _places_differ(rows: Sequence[JudgedClass]) -> Iterator[_Case]:
    """Sizes of a family whose places differ: by what factor, the slower and the faster.

    One rank alone copies out of place, and does nothing in place.
    """
    by_size: dict[int, dict[bool, JudgedClass]] = defaultdict(dict)
    for row in rows:
        if row.in_place is not None and row.size_bytes and row.nranks != 1:
            by_size[row.size_bytes][row.in_place] = row
    for pair in by_size.values():
        if len(pair) == 2:
            fast, slow = sorted(pair.values(), key=lambda r: r.measured_ns or 0.0)
            ratio = (slow.measured_ns or 0) / (fast.measured_ns or 1)
            if ratio > PLACES_FINDING:
                yield ratio, slow, fast


def far_below_reachable(report: Report) -> Iterable[Finding]:
    """Large messages stay below half of the reachable ceiling, at every large size measured."""
    found = _worst(report, _far, places=False)
    if found:
        yield Finding(
            severity="problem",
            code="far_below_reachable",
            title=f"large messages reach at most {100 / found[-1][0]:.0f} % of the library's "
            "reachable speed here",
            detail=_listed(
                f"{_what(row)} reaches {row.busbw_gbps:.4g} of {row.roof.busbw_gbps:.4g} GB/s at"
                " best"
                for _, row, _ in found
                if row.busbw_gbps and row.roof
            ),
            advice="Check which transport carries it (NCCL_DEBUG=INFO, lines with 'via'): TCP "
            "instead of RDMA, no GPUDirect, fewer NICs or links than the machine has, or "
            "another machine than --system names.",
        )


def nvls_not_in_use(report: Report) -> Iterable[Finding]:
    """Large all-reduces take as long as rings do, on GPUs whose switches can reduce."""
    rows = [row for row in report.judgement.classes if _at_rings_speed(row)]
    worst = max(rows, key=lambda r: (r.recoverable_ns or 0.0, r.size_bytes or 0), default=None)
    if worst is None or worst.roof is None:
        return
    us, roof, rings = (
        (ns or 0.0) / 1000 for ns in (worst.measured_ns, worst.roof.time_ns, worst.roof.by_rings_ns)
    )
    seconds = sum(row.recoverable_ns or 0.0 for row in rows) / 1e9
    job = f" Over all devices that is {seconds:.3g} s of the run." if seconds else ""
    yield Finding(
        severity="warning",
        code="nvls_not_in_use",
        title=f"at the ring's speed: NVLS is not in use, which costs {us - roof:.4g} us in each "
        f"{worst.op} of {format_size(worst.size_bytes)}",
        detail=f"{_what(worst)} takes {us:.4g} us; rings take {rings:.4g} us here, and the "
        f"switches' own reduction {roof:.4g} us.{job}",
        advice="Check whether NVLS is on: NCCL_NVLS_ENABLE, NCCL_ALGO, NVLS lines of "
        "NCCL_DEBUG=INFO, the node's fabric manager, and virtual machines without multicast.",
    )


def _at_rings_speed(row: JudgedClass) -> bool:
    """Nearer to the rings' time than to that of the switches, which is far from it."""
    time, roof = row.measured_ns, row.roof
    if not time or roof is None or not roof.by_rings_ns or (row.size_bytes or 0) < BANDWIDTH_BYTES:
        return False
    # halfway between the two, as a ratio; a run that is slower than rings has another cause
    middle = sqrt(roof.by_rings_ns * roof.time_ns)
    return max(middle, roof.time_high_ns) < time < roof.by_rings_ns * RINGS_SPREAD


def _far(rows: Sequence[JudgedClass]) -> Iterator[_Case]:
    """The best large message of a family, if even it is far off: its time over the ceiling's."""
    large = [
        r for r in rows
        if (r.size_bytes or 0) >= BANDWIDTH_BYTES and r.efficiency is not None and not r.calls
    ]  # fmt: skip
    best = max(large, key=lambda r: r.efficiency or 0.0, default=None)
    if best is not None and best.measured_ns and best.roof is not None:
        # by the ceiling's slow end, so that its own uncertainty is no finding
        ratio = best.measured_ns / best.roof.time_high_ns
        if ratio > 1 / FAR_BELOW_CEILING:
            yield ratio, best, best


def _worst(
    report: Report,
    cases: Callable[[Sequence[JudgedClass]], Iterable[_Case]],
    *,
    places: bool = True,
) -> list[_Case]:
    """What a rule finds in the families of classes, the worst first; `places` as `_families`."""
    found = (case for rows in _families(report, places=places) for case in cases(rows))
    return sorted(found, key=lambda case: -case[0])


def _listed(cases: Iterable[str]) -> str:
    """The worst cases as one sentence."""
    return "; ".join(islice(cases, _MOST)) + "."


def outliers(report: Report) -> Iterable[Finding]:
    """Rounds and nodes whose typical class took longer than in the others."""
    for kind, why in _OUTLIERS.items():
        rows = [row for row in report.judgement.outliers if row.kind == kind]
        if rows:
            listed = "; ".join(
                f"{kind} {row.name} takes {row.ratio:.2f} times the usual time "
                f"({count(row.classes, 'class', 'classes')}, {count(row.others, f'other {kind}')})"
                for row in rows[:_MOST]
            )
            names = ", ".join(row.name for row in rows[:_MOST])
            yield Finding(
                severity="warning",
                code=f"outlier_{kind}",
                title=(
                    f"{kind}{'s' * (len(rows) > 1)} {names} {are(len(rows))} slower than the rest"
                ),
                detail=f"Measurements of '{report.judgement.label}': {listed}.",
                advice=why,
            )


def _families(report: Report, *, places: bool) -> Iterable[Sequence[JudgedClass]]:
    """Measured classes that differ in size only, and in place unless `places`."""
    found: dict[tuple[object, ...], list[JudgedClass]] = defaultdict(list)
    for row in report.judgement.classes:
        if row.size_bytes and row.measured_ns and not any(m.code == IN_JOB for m in row.marks):
            key = (row.op, row.datatype, row.redop, row.nranks, row.in_place if places else None)
            found[key].append(row)
    return found.values()


def _what(row: JudgedClass) -> str:
    return f"{row.op} of {format_size(row.size_bytes)} on {row.nranks} ranks"


def _us(row: JudgedClass) -> str:
    return f"{(row.measured_ns or 0) / 1000:.5g} us"


RULES = (nvls_not_in_use, far_below_reachable, times_fall, switch_costs, places_differ, outliers)
