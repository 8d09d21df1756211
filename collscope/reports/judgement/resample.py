"""Range of the gain: resampled measurements under one or two roofs. Needs numpy: import late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 500
SEED = 20240229  # fixed: a report is the same every time
_POOL = 10_000  # order statistics drawn for each number of samples
_BLOCK = 256  # classes at a time: 5 000 of them at once would take 40 MB per array


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

    The median of a resample of k values is the order statistic at a Beta((k+1)/2, (k+1)/2)
    quantile: exact for odd k, so one draw per class replaces k. Draws come from a pool by k,
    which is ten times as fast for thousands of classes.
    """
    counts = np.array([len(times) for times in samples])
    if not len(counts) or (counts.max() < 2 and len(ceilings) < 2):
        return None
    rng = np.random.default_rng(SEED)
    totals = np.zeros((len(ceilings), RESAMPLES))
    roofs, job, scale = np.array(ceilings), np.array(in_job), np.array(weights)
    for k in np.unique(counts):
        shape = (k + 1) / 2
        places = np.minimum((rng.beta(shape, shape, _POOL) * k).astype(int), k - 1)
        alike = np.flatnonzero(counts == k)
        for start in range(0, len(alike), _BLOCK):
            rows = alike[start : start + _BLOCK]
            ordered = np.sort(np.array([samples[row] for row in rows]), axis=1)
            index = places[rng.integers(0, _POOL, (len(rows), RESAMPLES))]
            alone = np.take_along_axis(ordered, index, axis=1)
            least = np.minimum(alone, job[rows, None])
            whole = np.where(np.isinf(job[rows, None]), alone, job[rows, None])
            for number, roof in enumerate(roofs):
                won = np.maximum(0.0, least - roof[rows, None]) / whole
                totals[number] += (scale[rows, None] * won).sum(axis=0)
    saved = np.minimum(totals.ravel(), 1 - 1e-9)
    low, middle, high = np.quantile(1 / (1 - saved) - 1, (0.05, 0.5, 0.95))
    return Spread(float(low), float(middle), float(high))
