"""Student's distribution, for intervals from few samples (pure).

source  D. Wallace, Bounds on normal approximations to Student's and the chi-square distributions,
        1959: within 0.1 % of probability
"""

from __future__ import annotations

import math
from statistics import NormalDist

_NORMAL_FROM = 1e6  # degrees of freedom from which Student's distribution is the normal one


def t_to_normal(t: float, freedom: float) -> float:
    """The normal quantile as improbable as `t` with so many degrees of freedom."""
    f = min(max(freedom, 1.0), _NORMAL_FROM)
    size = (8 * f + 1) / (8 * f + 3) * math.sqrt(f * math.log1p(t * t / f))
    return math.copysign(size, t)


def t_quantile(probability: float, freedom: float) -> float:
    """Inverse of `t_to_normal`, of a probability."""
    f = min(max(freedom, 1.0), _NORMAL_FROM)
    z = NormalDist().inv_cdf(probability) * (8 * f + 3) / (8 * f + 1)
    return math.copysign(math.sqrt(f * math.expm1(z * z / f)), z)
