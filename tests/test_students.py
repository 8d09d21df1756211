"""Student's distribution against scipy's."""

from __future__ import annotations

import pytest

from collscope.stats import t_quantile, t_tail

stats = pytest.importorskip("scipy.stats")
FREEDOMS = (1, 1.3, 2, 2.5, 3, 4, 5, 7.7, 10, 30, 100, 1e3, 1e5, 9e5)


@pytest.mark.parametrize("freedom", [*FREEDOMS, 1e7])
@pytest.mark.parametrize("t", [-50, -8, -3, -1, -0.1, 0, 1e-9, 0.1, 0.5, 1, 2, 3, 5, 8, 20])
def test_the_tail(t: float, freedom: float) -> None:
    # From a million degrees of freedom on it is taken for the normal distribution.
    within = 1e-9 if freedom in FREEDOMS else 5e-3
    expected = float(stats.t.sf(t, freedom))
    assert t_tail(t, freedom) == pytest.approx(expected, rel=within, abs=1e-250)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("p", [1e-5, 5e-4, 1e-3, 0.025, 0.1, 0.5, 0.6, 0.9, 0.95, 0.975, 0.9995])
def test_the_quantile(p: float, freedom: float) -> None:
    expected = float(stats.t.ppf(p, freedom))
    assert t_quantile(p, freedom) == pytest.approx(expected, rel=1e-5, abs=1e-9)
