"""Where the collective time of a run goes, and what the whole job would gain."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from collscope.analysis.jobs import job_of_profile
from collscope.analysis.share import Share, alike, hidden_percent
from collscope.analysis.uplift import Part, ceiling, gain, saved_share
from collscope.reports.judgement.judged import Judged
from collscope.reports.judgement.records import Decomposition, JudgedKernel, TimePart, Uplift
from collscope.reports.share import denominator
from collscope.units import count, count_of

if TYPE_CHECKING:
    from collscope.analysis.resample import Spread

# A transfer in the job may be slower than its roof by this much before the rest is called waiting.
SKEW_FACTOR = 3.0
# A class measured alone must take over twice as long in the job: most of it is not its transfer.
MOSTLY = 2.0

_WALL = """
SELECT TOTAL(span_ns), TOTAL(collective_ns), TOTAL(exposed_ns), COUNT(*),
    EXISTS (SELECT 1 FROM call_times WHERE run = :run AND warm_up)
FROM rank_times WHERE run = :run
"""

_INSIDE = "not known: contained in the parts below; no kernel times of two ranks or more"


@dataclass(frozen=True, slots=True)
class Fraction:
    """How much of one job's time collectives take.

    value     ratio to what `denominator` names
    hidden    ratio that an excerpt does not list, and that may be collectives too
    exposure  part of it with no compute kernel beside it; None: not known
    profiles  it is told by; none where traces tell it
    job       that the profiles are named after; None: their names tell none
    """

    value: float
    denominator: str
    hidden: float = 0.0
    exposure: float | None = None
    profiles: tuple[Share, ...] = ()
    job: str | None = None


def fractions_of(
    connection: sqlite3.Connection, run: str, shares: Sequence[Share], jobs: Sequence[str] = ()
) -> tuple[Fraction, ...]:
    """From traces, which have wall time and overlap, else from profiles; none without either.

    One for each job: profiles of one dialect with times are of the ranks of one job, unless they
    are named after different `jobs`; pasted tables and excerpts stand for themselves.
    """
    found = connection.execute(_WALL, {"run": run}).fetchone()
    span, collective, exposed, ranks, warm_up = found
    if span and collective:
        of = f"wall time of {count(ranks, 'traced rank')}{', warm-up left out' * warm_up}"
        return (Fraction(collective / span, of, exposure=exposed / collective),)
    groups: dict[str | None, list[Share]] = {}
    for share in shares:
        if share.percent is not None:
            groups.setdefault(job_of_profile(share.source, jobs), []).append(share)
    return tuple(
        fraction for job, same in groups.items() for fraction in _fractions_of_job(job, same)
    )


def _fractions_of_job(job: str | None, shares: Sequence[Share]) -> Iterable[Fraction]:
    busy = sum(share.busy_ns or 0 for share in shares)
    if alike(shares) and all(share.busy_ns for share in shares):
        ratio = sum(share.collective_ns for share in shares) / busy
        of = f"all kernels and copies of {len(shares)} profiles together"
        yield Fraction(ratio, of, profiles=tuple(shares), job=job)
        return
    for share in shares:
        ratio, hidden = (share.percent or 0.0) / 100, hidden_percent(share) / 100
        yield Fraction(ratio, denominator(share), hidden, profiles=(share,), job=job)


def decompose(judged: Sequence[Judged], shares: Sequence[Share]) -> Decomposition | None:
    """Parts of the collective time over all devices; None when no class has any time.

    In the job where kernel times are known; else the profiles' collective time, spread over the
    classes by their expected times; else the time the classes took alone.
    """
    timed = [j for j in judged if j.job_us is not None]
    if timed:
        whole = sum(j.device_s or 0.0 for j in timed)
        left = len(judged) - len(timed)
        basis = "transfer + waiting in the job, all calls of their classes"
        basis += f"; {left} classes without kernel times left out" if left else ""
        return _parts(timed, whole, 1.0, basis)
    expected = [j for j in judged if j.device_s]
    whole = sum(j.device_s or 0.0 for j in expected)
    profile = sum(share.collective_ns for share in shares) / 1e9
    if not whole or not any(j.least_us is not None or j.roof is not None for j in expected):
        return None
    if profile:
        seen = any(j.kernel_us is not None for j in expected)
        by = "the kernels that were seen" if seen else "calls x expected time"
        basis = f"profile's collective kernels, spread over the classes by {by}"
        return _parts(expected, profile, profile / whole, basis)
    measured = [j for j in expected if j.alone_us is not None]
    whole = sum(j.device_s or 0.0 for j in measured)
    basis = "times measured alone x calls; the job's own time is not known"
    return _parts(measured, whole, 1.0, basis) if whole else None


def _parts(judged: Sequence[Judged], whole: float, scale: float, basis: str) -> Decomposition:
    """Sums over classes; `scale` turns their expected seconds into those of `whole`."""
    in_job = any(j.job_us is not None for j in judged)
    compared = any(j.job_us is not None and j.alone_us is not None for j in judged)
    wait = sum(j.executions * (j.wait_us or 0.0) / 1e6 for j in judged)
    contention = tunable = roof = 0.0
    for j in judged:
        parts = j.split
        if parts is not None:
            seconds = j.executions * scale / 1e6
            contention += parts.contention * seconds
            tunable += parts.tunable * seconds
            roof += parts.roof * seconds
    rest = whole - (wait if in_job else 0.0) - contention - tunable - roof
    unjudged = rest if rest > 1e-9 * whole else 0.0  # below that it is rounding
    known = any(j.roof is not None and j.least_us is not None for j in judged)
    rows: tuple[tuple[str, float | None, str], ...] = (
        (
            "wait",
            wait if in_job else None,
            "kernel before the last rank came" if in_job else _INSIDE,
        ),
        (
            "contention",
            contention if compared and known else None,
            "transfer in the job - measured alone"
            if compared
            else ("not known: no replay; contained in tunable" if in_job else _INSIDE),
        ),
        ("tunable", tunable if known else None, "measured - roof" if known else _no_roof(judged)),
        ("roof", roof if known else None, "roof x calls" if known else _no_roof(judged)),
        ("unjudged", unjudged, "classes without a measurement or a roof"),
    )
    return Decomposition(
        whole,
        basis,
        tuple(
            TimePart(name, seconds, None if seconds is None or not whole else seconds / whole, why)
            for name, seconds, why in rows
        ),
    )


def _no_roof(judged: Sequence[Judged]) -> str:
    if any(j.roof is not None for j in judged):
        return "not known: nothing measured on GPUs (collscope replay, collscope ingest csv)"
    return "not known: no roof (--system NAME, or --system fit)"


def uplift_of(
    judged: Sequence[Judged], known: Fraction | None, kernels: Sequence[JudgedKernel]
) -> Uplift | None:
    """Expected gain; None when no fraction is known, or no class has an efficiency.

    kernels  of the one profile that `known` is told by, to tell what waits; empty where there are
             several
    """
    expected = [j for j in judged if j.device_s]
    whole = sum(j.device_s or 0.0 for j in expected)
    if known is None or not whole:
        return None
    fraction = known.value
    parts = [j.part(fraction * (j.device_s or 0.0) / whole) for j in expected]
    counted = [
        (part, j) for part, j in zip(parts, expected, strict=True) if part.efficiency is not None
    ]
    if not counted:
        return None
    judged_part = sum(part.fraction for part, _ in counted) / fraction if fraction else 0.0
    saved = saved_share(parts)
    alike = min(saved / judged_part if judged_part else 0.0, fraction)
    spread = _spread(counted)
    low, high = _skewed(saved, fraction, kernels)
    in_job = any(j.job_us is not None for j in expected)
    return Uplift(
        profiles=tuple(share.source for share in known.profiles),
        fraction=fraction,
        denominator=known.denominator,
        judged=judged_part,
        saved=saved,
        gain=gain(saved) or 0.0,
        low=None if spread is None else spread.low,
        median=None if spread is None else spread.median,
        high=None if spread is None else spread.high,
        gain_if_alike=gain(alike) or 0.0,
        gain_skewed_low=None if in_job else low,
        gain_skewed_high=None if in_job else high,
        ceiling=ceiling(parts),
        assumptions=tuple(_assumptions([j for _, j in counted], known, in_job, judged_part)),
    )


def _spread(counted: Sequence[tuple[Part, Judged]]) -> Spread | None:
    """Over the samples of the measurements, and over the best of other labels as a roof.

    A class known only by its transfers in the job may be slowed by the job alone: the lower end
    counts nothing for it.
    """
    measured = [(part, j) for part, j in counted if j.alone_us is not None]
    spread = _bootstrap(counted)
    if spread is None or len(measured) == len(counted):
        return spread
    least = _bootstrap(measured)
    low = least.low if least is not None else gain(saved_share([part for part, _ in measured]))
    return replace(spread, low=low or 0.0)


def _bootstrap(counted: Sequence[tuple[Part, Judged]]) -> Spread | None:
    from collscope.analysis.resample import bootstrap  # noqa: PLC0415 - numpy

    weights, samples, in_job = [], [], []
    roofs, lower, upper, best = [], [], [], []
    for part, j in counted:
        assert j.roof is not None
        weights.append(part.fraction * part.exposure * part.transfer)
        alone = j.match.samples_us if j.match is not None and j.alone_us is not None else ()
        samples.append(alone or (j.least_us or 0.0,))
        roofs.append(j.roof.time_us)
        lower.append(j.roof.time_low_us)
        upper.append(j.roof.time_high_us)
        best.append(j.roof.time_us if j.best is None else j.best.time_us)
        in_job.append(inf if j.transfer_us is None else j.transfer_us)
    ceilings = [roofs] if lower == upper else [lower, roofs, upper]
    if any(j.best is not None for _, j in counted):
        ceilings.append(best)
    return bootstrap(weights, samples, ceilings, in_job)


def _skewed(
    saved: float, fraction: float, kernels: Sequence[JudgedKernel]
) -> tuple[float | None, float | None]:
    """Gain without the waiting of skewed kernels: transfers at the roof, and three times slower."""
    skewed = [kernel for kernel in kernels if kernel.skewed]
    if not skewed or not fraction:
        return None, None
    idle = saved / fraction
    rest = fraction - sum(kernel.share for kernel in skewed)
    gains = []
    for slower in (1.0, SKEW_FACTOR):
        transfer = sum(
            kernel.share * min(1.0, slower * kernel.roof_us / kernel.mean_us) for kernel in skewed
        )
        gains.append(gain(max(0.0, rest + transfer) * idle))
    return gains[0], gains[1]


def _assumptions(
    counted: Sequence[Judged], known: Fraction, in_job: bool, judged_part: float
) -> list[str]:
    notes = ["all collective time is exposed (overlap with compute is not known): an upper bound"]
    if known.exposure is not None:
        notes = [f"{100 * known.exposure:.1f} % of every class is exposed, as of all collectives"]
    if known.hidden:
        notes.append(
            f"what the profile does not list, {100 * known.hidden:.2f} % of the time, has no "
            "collectives: if it has, more can be gained"
        )
    if not in_job:
        notes += [
            "waiting and contention are not known: all collective time counts as transfer",
            "classes share the collective time by the kernels that were seen in the job"
            if any(j.kernel_us is not None for j in counted)
            else "classes share the collective time by calls x measured time (roof time where "
            "nothing was measured)",
        ]
    elif any(j.alone_us is None for j in counted):
        measured = sum(j.alone_us is not None for j in counted)
        notes.append(
            "judged by the transfers in the job, without a replay: "
            f"{count_of(len(counted) - measured, len(counted), 'class', 'classes')}; the lower"
            " end of a range counts no gain for them"
        )
    if judged_part < 0.9995:
        notes.append("no gain is counted for classes without a measurement")
    if any(j.alone_us is not None and len(j.match.samples_us) < 10 for j in counted if j.match):
        notes.append("fewer than 10 samples of some classes: the range is a rough one")
    if any(j.best is not None for j in counted):
        notes.append("the range is over the samples, the ceiling's own range and the best measured")
    elif any(j.roof is not None and j.roof.time_low_us < j.roof.time_high_us for j in counted):
        notes.append("the range is over the samples and the ceiling's own range")
    return notes
