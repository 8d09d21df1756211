"""Which classes are worth tuning (pure).

A class weighs calls x (time now - roof) x exposed share: the seconds that could be saved. Without a
roof all its time counts, so that "not worth it" is reported only where that is sure.
source  reference: docs/tune.md; the formula of the gain is that of docs/report.md
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collscope.errors import UsageError
from collscope.units import OTHER_UNIT

COVERED = 0.95  # of the weight, in the classes that are tuned
LEAST = 0.01  # of the job's time: the smallest saving that is worth a tune


class Weighed(msgspec.Struct, frozen=True):
    """One class; times of one call in us."""

    class_id: int  # of the plan
    calls: float  # that one rank makes
    now_us: float  # measured with the job's own setting
    roof_us: float | None = None
    exposed: float = 1.0  # part of its time that compute does not hide

    @property
    def time_s(self) -> float:
        """Exposed seconds of all its calls."""
        return self.calls * self.now_us * self.exposed / 1e6

    @property
    def weight_s(self) -> float:
        """Of them, those above the roof."""
        above = self.now_us - (self.roof_us or 0.0)
        return self.calls * max(0.0, above) * self.exposed / 1e6


class Worth(msgspec.Struct, frozen=True):
    """Which classes to tune, or why none; seconds on one rank."""

    kept: tuple[int, ...]  # class ids, largest possible saving first
    left_out: tuple[int, ...]
    weight_s: float  # of all classes
    share: float | None  # of the job's time; None: the test could not be made
    worth_it: bool
    why: str


def worth(classes: Sequence[Weighed], job_s: float | None) -> Worth:
    """The fewest classes that hold 95 % of the possible saving.

    job_s   time of the job on one rank that the calls are of; None: not known
    raises  UsageError when the calls cannot be made in that time
    """
    ordered = sorted(classes, key=lambda c: (-c.weight_s, c.class_id))
    total = sum(c.weight_s for c in ordered)
    kept: list[int] = []
    covered = 0.0
    for c in ordered:
        if covered >= COVERED * total or c.weight_s <= 0:
            break
        kept.append(c.class_id)
        covered += c.weight_s
    left_out = tuple(c.class_id for c in ordered if c.class_id not in kept)
    share = None if job_s is None or job_s <= 0 else total / job_s
    if share is not None and share > OTHER_UNIT:
        raise UsageError(
            f"job's time of {job_s:.3g} s: too short, its calls alone take {total:.3g} s above"
            " their ceilings. Give --step-ms in milliseconds, for the steps of the plan (--steps)."
        )
    bound = "" if all(c.roof_us is not None for c in classes) else "at most "
    if share is not None and share < LEAST:
        why = f"{bound}{100 * share:.2g} % of the job's time could be saved, less than 1 %"
        return Worth((), tuple(c.class_id for c in ordered), total, share, False, why)
    if not kept:
        return Worth((), left_out, total, share, False, "every class already runs at its ceiling")
    if share is None:
        why = "the job's time is unknown, so it is unknown whether a tune is worth it"
    else:
        why = f"{bound}{100 * share:.3g} % of the job's time could be saved"
    return Worth(tuple(kept), left_out, total, share, True, why)
