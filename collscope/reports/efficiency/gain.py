"""What the whole job would gain if its collectives ran at their ceilings, and what that assumes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import msgspec
from msgspec.structs import replace

from collscope.model.note import Note
from collscope.reports.efficiency.judged_classes import Judged
from collscope.reports.efficiency.profile_kernels import ProfileKernel
from collscope.reports.efficiency.time_breakdown import Fraction
from collscope.reports.efficiency.uplift import (
    GainPart,
    Spread,
    bootstrap,
    ceiling,
    gain,
    saved_share,
)
from collscope.reports.tolerances import ENOUGH_SAMPLES, SKEW_FACTOR
from collscope.units import count_of

_LITTLE = 0.0005  # of a time, less than the printed digits show
RANGE_NOTES = ("range_with_best", "range_with_ceiling")  # on a range: they assume nothing


class Uplift(msgspec.Struct, frozen=True, kw_only=True):
    """Speed-up of the job if every judged class ran at its reachable speed; gains are ratios."""

    fraction: Fraction  # collective share of one job's time
    judged: float  # part of the collective time whose classes have an efficiency
    saved: float  # part of the job's time that tuning could save
    gain: float  # 1 / (1 - saved) - 1
    low: float | None  # 5 % of the bootstrap over classes measured alone; None: nothing varies
    median: float | None
    high: float | None  # 95 %
    gain_if_alike: float  # with classes that were not measured as efficient as those that were
    gain_skewed_low: (
        float | None
    )  # without the waiting of skewed kernels, transfers at reachable speed
    gain_skewed_high: float | None  # the same, transfers three times slower
    # at most, if transfers took no time; what is known to be waiting stays. None: the time is
    # nothing else
    ceiling: float | None
    in_job: bool  # transfers and waiting in the job are known
    assumptions: tuple[Note, ...]


def uplift_of(
    judged: Sequence[Judged], known: Fraction | None, kernels: Sequence[ProfileKernel]
) -> Uplift | None:
    """Expected gain; None when no fraction is known, or no class has an efficiency.

    kernels  of the one profile that `known` comes from, to show what waits; empty where there are
             several
    """
    expected = [j for j in judged if j.device_ns]
    total_ns = sum(j.device_ns or 0.0 for j in expected)
    if known is None or not total_ns:
        return None
    shares = [j.step_share for j in expected]
    if known.ranks is not None and sum(shares) > 0:
        # Collectives that run at the same time take that time once.
        shares = [share * known.at_once for share in shares]
        known = replace(known, value=sum(shares), of_steps=True)
    else:
        shares = [known.value * (j.device_ns or 0.0) / total_ns for j in expected]
    fraction = known.value
    parts = [j.part(share) for share, j in zip(shares, expected, strict=True)]
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
    in_job = any(j.job_ns is not None for j in expected)
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
        in_job=in_job,
        assumptions=tuple(_assumptions(known, expected, judged_part, in_job=in_job)),
    )


def _spread(counted: Sequence[tuple[GainPart, Judged]]) -> Spread | None:
    """The gain's range: over the samples, and with the best of other labels as a roof.

    A class known only by its transfers in the job may be slowed by the job alone: the lower end
    counts nothing for it.
    """
    measured = [(part, j) for part, j in counted if j.alone_ns is not None]
    spread = _bootstrap(counted)
    if spread is None or len(measured) == len(counted):
        return spread
    least = _bootstrap(measured)
    low = least.low if least is not None else gain(saved_share([part for part, _ in measured]))
    return replace(spread, low=low or 0.0)


def _bootstrap(counted: Sequence[tuple[GainPart, Judged]]) -> Spread | None:
    weights, samples, in_job = [], [], []
    roofs, lower, upper, best = [], [], [], []
    for part, j in counted:
        assert j.roof is not None
        weights.append(part.fraction * part.exposure * part.transfer)
        alone = j.match.samples_ns if j.match is not None and j.alone_ns is not None else ()
        samples.append(alone or (j.least_ns or 0.0,))
        roofs.append(j.roof.time_ns)
        lower.append(j.roof.time_low_ns)
        upper.append(j.roof.time_high_ns)
        best.append(j.roof.time_ns if j.best is None else j.best.time_ns)
        in_job.append(inf if j.row.transfer_ns is None else j.row.transfer_ns)
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


def _assumptions(
    known: Fraction, expected: Sequence[Judged], judged_part: float, *, in_job: bool
) -> Iterable[Note]:
    """What a gain rests on; `expected` are the classes with a time."""
    counted = [j for j in expected if j.roof is not None and j.least_ns is not None]
    yield from _exposure(known)
    yield from _times(expected, counted, in_job=in_job)
    if judged_part < 1 - _LITTLE:
        yield Note(
            "not_measured",
            {"share": 1 - judged_part},
            "no gain is counted for unmeasured classes",
        )
    alone = [j for j in counted if j.match is not None and j.alone_ns is not None]
    if any(len(j.match.samples_ns) < ENOUGH_SAMPLES for j in alone if j.match is not None):
        yield Note("few_samples", {}, "some classes have fewer than 10 samples: the range is rough")
    if any(j.best is not None for j in counted):
        yield Note(
            "range_with_best",
            {},
            f"{_range_of(counted, in_job=in_job)} the spread of the samples, the range of the "
            "reachable speed, and the best measurement of any label",
        )
    elif any(j.roof is not None and j.roof.time_low_ns < j.roof.time_high_ns for j in counted):
        yield Note(
            "range_with_ceiling",
            {},
            f"{_range_of(counted, in_job=in_job)} the spread of the samples and the range of the "
            "reachable speed",
        )


def _range_of(counted: Sequence[Judged], *, in_job: bool) -> str:
    """What follows holds for a whole range, or for its upper end where nothing was replayed."""
    if any(j.alone_ns is not None for j in counted):
        return "the range covers"
    return "'at most' allows for" if in_job else "the upper end covers"


def _any_of(some: int, every: int) -> str:
    """How many classes, as the object of a negation."""
    if some < every:
        return count_of(some, every, "class", "classes")
    return "the class" if every == 1 else f"any of the {every} classes"


def _exposure(known: Fraction) -> Iterable[Note]:
    """How much of the collective time counts."""
    if known.exposure is None:
        yield Note(
            "all_exposed",
            {},
            (
                "all collective time is exposed (overlap with compute is not known): the gain is "
                "an upper bound"
            ),
        )
    else:
        yield Note(
            "exposed",
            {"share": known.exposure},
            (
                f"the same part of every class is exposed: {100 * known.exposure:.1f} %, the mean "
                "over all collectives"
            ),
        )
    if known.hidden:
        yield Note(
            "not_listed",
            {"share": known.hidden},
            f"the {100 * known.hidden:.2f} % of the time that the profile does not list has "
            "no collectives; if it has some, the gain can be larger",
        )


def _times(
    expected: Sequence[Judged], counted: Sequence[Judged], *, in_job: bool
) -> Iterable[Note]:
    """What stands for waiting and transfer where they are not measured."""
    unmeasured = sum(j.alone_ns is None for j in counted)
    if not in_job:
        yield Note(
            "waits_unknown",
            {},
            (
                "all collective time counts as transfer, because waiting and contention are not "
                "known"
            ),
        )
        seen = any(j.kernel_ns is not None for j in counted)
        by = "calls x measured time (reachable time where nothing was measured)"
        if seen:
            by = "the kernels recorded in the job"
        yield Note(
            "shared_by",
            {"seen": seen},
            f"the classes share the collective time in proportion to {by}",
        )
    elif unmeasured:
        yield Note(
            "judged_in_job",
            {"classes": unmeasured, "of": len(counted)},
            "other work in the job does not slow the transfers of "
            f"{_any_of(unmeasured, len(counted))}. Only a replay can confirm this, so "
            "these savings are not certain",
        )
    kernels_ns = sum(j.row.kernel_ns or 0 for j in expected)
    unsplit = sum(j.unsplit_ns for j in expected) / kernels_ns if kernels_ns else 0.0
    if in_job and unsplit >= _LITTLE:
        yield Note(
            "unsplit",
            {"share": unsplit},
            f"for the step without any transfer, the {100 * unsplit:.1f} % of the kernel time that "
            "may be waiting or transfer counts as transfer",
        )
