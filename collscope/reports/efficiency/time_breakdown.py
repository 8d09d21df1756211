"""Where the collective time of a run goes, and what the whole job would gain."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from enum import Enum
from math import inf

import msgspec
from msgspec.structs import replace

from collscope.reports.efficiency.jobs import job_of_profile
from collscope.reports.efficiency.judged_classes import Judged
from collscope.reports.efficiency.profile_kernels import ProfileKernel
from collscope.reports.efficiency.uplift import Part, Spread, bootstrap, ceiling, gain, saved_share
from collscope.reports.share.answer import Share, alike, hidden_percent
from collscope.reports.tolerances import ENOUGH_SAMPLES, SKEW_FACTOR

_WALL = """
SELECT TOTAL(span_ns), TOTAL(collective_ns), TOTAL(exposed_ns), COUNT(*),
    TOTAL(wait_ns) / TOTAL(wait_ns + transfer_ns + unknown_ns),
    EXISTS (SELECT 1 FROM call_times WHERE run = :run AND warm_up)
FROM rank_times WHERE run = :run
"""


class Fraction(msgspec.Struct, frozen=True):
    """How much of one job's time collectives take.

    value     ratio: to the wall time of the traced ranks, to all kernels and copies of several
              profiles, or to what one profile's share is of
    ranks     that were traced; None where profiles tell it
    warm_up   left out of the ranks' wall time
    hidden    ratio that an excerpt does not list, and that may be collectives too
    exposure  part of it with no compute kernel beside it; None: not known
    waiting   part of it that is known to be waiting
    profiles  it is told by; none where traces tell it
    job       that the profiles are named after; None: their names tell none
    """

    value: float
    ranks: int | None = None
    warm_up: bool = False
    hidden: float = 0.0
    exposure: float | None = None
    waiting: float = 0.0
    profiles: tuple[Share, ...] = ()
    job: str | None = None


def fractions_of(
    connection: sqlite3.Connection, run: str, shares: Sequence[Share], jobs: Sequence[str] = ()
) -> tuple[Fraction, ...]:
    """Collective shares of the time: of traces, which tell overlap, else of profiles.

    One for each job: profiles of one dialect with times are of the ranks of one job, unless they
    are named after different `jobs`; pasted tables and excerpts stand for themselves.
    """
    found = connection.execute(_WALL, {"run": run}).fetchone()
    span, collective, exposed, ranks, waiting, warm_up = found
    if span and collective:
        exposure = exposed / collective
        return (
            Fraction(
                collective / span, ranks, bool(warm_up), exposure=exposure, waiting=waiting or 0.0
            ),
        )
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
        yield Fraction(ratio, profiles=tuple(shares), job=job)
        return
    for share in shares:
        ratio, hidden = (share.percent or 0.0) / 100, hidden_percent(share) / 100
        yield Fraction(ratio, hidden=hidden, profiles=(share,), job=job)


class Basis(Enum):
    """What the collective time comes from."""

    IN_JOB = "in_job"  # transfer and waiting in the job, of all calls of their classes
    SEEN = "seen"  # the profiles', spread over the classes by the kernels that were seen
    EXPECTED = "expected"  # the profiles', spread over the classes by calls and expected time
    ALONE = "alone"  # times measured alone


class Breakdown(msgspec.Struct, frozen=True):
    """The collective time of the run over all devices: the sum of its parts; None: not known."""

    device_ns: float
    basis: Basis
    left_out: int  # classes without a time of this basis
    wait_ns: float | None
    contention_ns: float | None
    tunable_ns: float | None
    roof_ns: float | None
    unjudged_ns: float
    compared: bool  # classes have both a time in the job and one alone
    roofs: bool  # some class has a roof


def break_down(judged: Sequence[Judged], shares: Sequence[Share]) -> Breakdown | None:
    """Parts of the collective time over all devices; None when no class has any time.

    In the job where kernel times are known; else the profiles' collective time, spread over the
    classes by their expected times; else the time the classes took alone.
    """
    timed = [j for j in judged if j.job_us is not None]
    if timed:
        whole = sum(j.device_s or 0.0 for j in timed) * 1e9
        return _parts(timed, whole, 1.0, Basis.IN_JOB, len(judged) - len(timed))
    expected = [j for j in judged if j.device_s]
    whole = sum(j.device_s or 0.0 for j in expected) * 1e9
    profile = sum(share.collective_ns for share in shares)
    if not whole or not any(j.least_us is not None or j.roof is not None for j in expected):
        return None
    if profile:
        seen = any(j.kernel_us is not None for j in expected)
        basis = Basis.SEEN if seen else Basis.EXPECTED
        return _parts(expected, profile, profile / whole, basis)
    measured = [j for j in expected if j.alone_us is not None]
    whole = sum(j.device_s or 0.0 for j in measured) * 1e9
    return _parts(measured, whole, 1.0, Basis.ALONE) if whole else None


def _parts(
    judged: Sequence[Judged], whole: float, scale: float, basis: Basis, left_out: int = 0
) -> Breakdown:
    """Sums over classes; `scale` turns their expected times into those of `whole`."""
    in_job = any(j.job_us is not None for j in judged)
    compared = any(j.job_us is not None and j.alone_us is not None for j in judged)
    wait = sum(j.executions * (j.wait_us or 0.0) * 1000 for j in judged)
    contention = tunable = roof = 0.0
    for j in judged:
        parts = j.split
        if parts is not None:
            calls = j.executions * scale * 1000
            contention += parts.contention * calls
            tunable += parts.tunable * calls
            roof += parts.roof * calls
    rest = whole - (wait if in_job else 0.0) - contention - tunable - roof
    unjudged = rest if rest > 1e-9 * whole else 0.0  # below that it is rounding
    known = any(j.roof is not None and j.least_us is not None for j in judged)
    return Breakdown(
        device_ns=whole,
        basis=basis,
        left_out=left_out,
        wait_ns=wait if in_job else None,
        contention_ns=contention if compared and known else None,
        tunable_ns=tunable if known else None,
        roof_ns=roof if known else None,
        unjudged_ns=unjudged,
        compared=compared,
        roofs=any(j.roof is not None for j in judged),
    )


class Uplift(msgspec.Struct, frozen=True, kw_only=True):
    """End-to-end speed-up expected if every judged class ran at its roof; gains are ratios.

    fraction          collective share of one job's time
    judged            part of the collective time whose classes have an efficiency
    saved             part of the job's time that tuning could save
    gain              1 / (1 - saved) - 1
    low, median, high  5, 50 and 95 % of the bootstrap over classes measured alone; None: nothing
                      varies
    gain_if_alike     with classes that were not measured as efficient as those that were
    gain_skewed_low, gain_skewed_high  without the waiting of skewed kernels, transfers at the roof
                      and three times slower
    ceiling           at most, transfers free; None: the time is nothing else
    counted           classes with an efficiency
    unmeasured        those of them judged by their transfers in the job, without a replay
    in_job            transfers and waiting in the job are known
    unsplit           part of the kernels' time that may be either
    seen              kernels of the classes were seen in the job
    few_samples       a class has fewer than 10
    best_measured     the range holds the best of any label
    ceiling_range     a ceiling has a range of its own
    """

    fraction: Fraction
    judged: float
    saved: float
    gain: float
    low: float | None
    median: float | None
    high: float | None
    gain_if_alike: float
    gain_skewed_low: float | None
    gain_skewed_high: float | None
    ceiling: float | None
    counted: int
    unmeasured: int
    in_job: bool
    unsplit: float
    seen: bool
    few_samples: bool
    best_measured: bool
    ceiling_range: bool


def uplift_of(
    judged: Sequence[Judged], known: Fraction | None, kernels: Sequence[ProfileKernel]
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
    kernels_ns = sum(j.row.kernel_ns or 0 for j in expected)
    classes = [j for _, j in counted]
    return Uplift(
        fraction=known,
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
        counted=len(classes),
        unmeasured=sum(j.alone_us is None for j in classes),
        in_job=in_job,
        unsplit=sum(j.unsplit_ns for j in expected) / kernels_ns if kernels_ns else 0.0,
        seen=any(j.kernel_us is not None for j in classes),
        few_samples=any(
            j.alone_us is not None and len(j.match.samples_us) < ENOUGH_SAMPLES
            for j in classes
            if j.match
        ),
        best_measured=any(j.best is not None for j in classes),
        ceiling_range=any(
            j.roof is not None and j.roof.time_low_us < j.roof.time_high_us for j in classes
        ),
    )


def _spread(counted: Sequence[tuple[Part, Judged]]) -> Spread | None:
    """The gain's range: over the samples, and with the best of other labels as a roof.

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
    saved: float, fraction: float, kernels: Sequence[ProfileKernel]
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
            kernel.share * min(1.0, slower * kernel.roof_ns / kernel.mean_ns) for kernel in skewed
        )
        gains.append(gain(max(0.0, rest + transfer) * idle))
    return gains[0], gains[1]
