"""Range of the gain: resampled measurements under one or two roofs. Needs numpy: import late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collscope.stats import RESAMPLES, SEED, resampled_medians


@dataclass(frozen=True, slots=True)
class Spread:
    """Gain over resampled measurements: 5 %, 50 % and 95 % quantiles."""

    low: float
    median: float
    high: float


def bootstrap(
    weights: Sequence[float],
    samples: Sequence[Sequence[float]],
    ceilings: Sequence[Sequence[float]],
    in_job: Sequence[float],
) -> Spread | None:
    """Spread of the gain over resampled measurements and over the ceilings.

    weights   f e phi of each class
    samples   times of each class alone in us, at least one
    ceilings  one sequence per ceiling: roof times of the classes in us
    in_job    transfers of the classes in the job in us; infinite where not known
    returns   None when nothing can vary: one sample per class, one ceiling
    """
    counts = np.array([len(times) for times in samples])
    if not len(counts) or (counts.max() < 2 and len(ceilings) < 2):
        return None
    rng = np.random.default_rng(SEED)
    totals = np.zeros((len(ceilings), RESAMPLES))
    roofs, job, scale = np.array(ceilings), np.array(in_job), np.array(weights)
    for rows, alone in resampled_medians(samples, rng):
        least = np.minimum(alone, job[rows, None])
        whole = np.where(np.isinf(job[rows, None]), alone, job[rows, None])
        for number, roof in enumerate(roofs):
            won = np.maximum(0.0, least - roof[rows, None]) / whole
            totals[number] += (scale[rows, None] * won).sum(axis=0)
    saved = np.minimum(totals.ravel(), 1 - 1e-9)
    low, middle, high = np.quantile(1 / (1 - saved) - 1, (0.05, 0.5, 0.95))
    return Spread(float(low), float(middle), float(high))
