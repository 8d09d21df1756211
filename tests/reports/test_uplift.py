"""Formulas of the gain, against figures worked out by hand."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collscope.reports.efficiency.uplift import (
    GainPart,
    bootstrap,
    ceiling,
    gain,
    implied_share,
    predicted_gain,
    saved_share,
    split,
)

# The guide's profile: 29.27 % of GPU time in collectives; one AllReduce of 512 MiB on 8 GPUs.
FRACTION = 0.2927
# bus bandwidths in GB/s: as its replayer printed them (2 S/t), corrected (x 1.75/2), two roofs
PRINTED, CORRECTED, ACHIEVABLE, NOMINAL = 332.6, 291.0, 336.0, 448.0
TABLE = [
    # measured, roof, efficiency, saved points; gain %: all transfer, 0.8 of it, 0.8 and 0.7 exposed
    (PRINTED, ACHIEVABLE, 0.990, 0.30, 0.3, 0.24, 0.17),
    (CORRECTED, ACHIEVABLE, 0.866, 3.92, 4.1, 3.2, 2.2),
    (CORRECTED, NOMINAL, 0.650, 10.26, 11.4, 8.9, 6.1),
    (PRINTED, NOMINAL, 0.742, 7.54, 8.2, 6.4, 4.4),
]

times = st.floats(0.01, 1e6)


def _digits(value: float, like: float) -> float:
    """A value rounded to the digits that an expected figure has."""
    return round(value, len(str(like).partition(".")[2]))


@pytest.mark.parametrize(("busbw", "roof", "eta", "saved", "plain", "waits", "hidden"), TABLE)
def test_gain_of_the_guide(  # noqa: PLR0913, PLR0917 - a row of the table
    busbw: float, roof: float, eta: float, saved: float, plain: float, waits: float, hidden: float
) -> None:
    efficiency = busbw / roof
    assert _digits(efficiency, eta) == eta
    assert round(100 * saved_share([GainPart(FRACTION, efficiency)]), 2) == saved
    for part, expected in (
        (GainPart(FRACTION, efficiency), plain),
        (GainPart(FRACTION, efficiency, transfer=0.8), waits),
        (GainPart(FRACTION, efficiency, exposure=0.7, transfer=0.8), hidden),
    ):
        found = gain(saved_share([part]))
        assert found is not None
        assert _digits(100 * found, expected) == expected


def test_ceiling_of_the_guide() -> None:
    found = ceiling([GainPart(FRACTION, None)])
    assert found is not None
    assert round(100 * found, 1) == 41.4


def test_contention_is_not_counted_as_tunable() -> None:
    # 30 % of T, all transfer, twice as slow as alone, and alone at half of the roof:
    # 15 points alone, of which 7.5 are above the roof
    assert saved_share([GainPart(0.3, 0.5, contention=2.0)]) == pytest.approx(0.075)


def test_an_efficiency_above_one_gains_nothing() -> None:
    parts = [GainPart(0.2, 1.3), GainPart(0.1, None), GainPart(0.1, 0.5)]
    assert saved_share(parts) == pytest.approx(0.05)


def test_gain_has_no_value_when_everything_goes_away() -> None:
    assert gain(1.0) is None
    assert gain(0.0) == 0.0


# Images/s of a TensorFlow benchmark on Frontier with TCP, the plugin, and the plugin with GDR;
# the two nodes' all-reduces of 4 GiB became 57.43/8.03 and 109.0/8.03 times as fast.
FRONTIER = [
    (118874.19, 129670.74, 57.43 / 8.03, 0.097),
    (118874.19, 133778.7, 109.0 / 8.03, 0.120),
    (219602.73, 252821.21, 57.43 / 8.03, 0.153),
    (219602.73, 261120.75, 109.0 / 8.03, 0.172),
    (388282.87, 477924.70, 57.43 / 8.03, 0.218),
    (388282.87, 508689.71, 109.0 / 8.03, 0.256),
]


@pytest.mark.parametrize(("before", "after", "faster", "share"), FRONTIER)
def test_implied_share_of_frontier(
    before: float, after: float, faster: float, share: float
) -> None:
    actual = after / before - 1
    found = implied_share(actual, faster)
    assert found is not None
    # the published figures differ by one in the last digit where their gains were rounded first
    assert found == pytest.approx(share, abs=0.0011)
    assert predicted_gain(found, faster) == pytest.approx(actual)


def test_no_speed_up_implies_nothing() -> None:
    assert implied_share(0.1, 1.0) is None


def test_split_of_one_call() -> None:
    # 10 us on the links, 14 alone, 20 in the job
    parts = split(10, 14, 20)
    assert parts is not None
    assert (parts.roof, parts.tunable, parts.contention) == (10, 4, 6)


def test_split_of_a_call_faster_than_its_roof() -> None:
    parts = split(10, 8, None)
    assert parts is not None
    assert (parts.roof, parts.tunable, parts.contention) == (8, 0, 0)
    assert split(10, None, None) is None


@given(times, st.none() | times, st.none() | times)
def test_parts_add_up_and_are_never_negative(
    roof: float, alone: float | None, in_job: float | None
) -> None:
    parts = split(roof, alone, in_job)
    if parts is None:
        assert alone is None
        assert in_job is None
        return
    assert min(parts.contention, parts.tunable, parts.roof) >= 0
    whole = in_job if in_job is not None else alone
    assert parts.contention + parts.tunable + parts.roof == pytest.approx(whole)


def test_one_sample_and_one_roof_have_no_range() -> None:
    assert bootstrap([0.3], [[10.0]], [[8.0]], [inf]) is None
    assert bootstrap([], [], [[]], []) is None


def test_range_of_two_roofs_has_both_ends() -> None:
    # half of the resamples gain nothing, half 0.3 x (1 - 8/10) = 6 points
    found = bootstrap([0.3], [[10.0]], [[8.0], [10.0]], [inf])
    assert found is not None
    assert (found.low, round(found.high, 6)) == (0.0, round(1 / 0.94 - 1, 6))


def test_range_agrees_with_plain_resampling() -> None:
    rng = np.random.default_rng(7)
    samples = [list(rng.normal(100, 5, 7)), list(rng.normal(300, 30, 11)), [50.0]]
    weights, roofs = [0.1, 0.2, 0.05], [80.0, 250.0, 40.0]
    found = bootstrap(weights, samples, [roofs], [inf] * 3)
    plain = []
    for _ in range(4000):
        saved = 0.0
        for weight, roof, values in zip(weights, roofs, samples, strict=True):
            middle = float(np.median(rng.choice(values, len(values))))
            saved += weight * max(0.0, 1 - roof / middle)
        plain.append(1 / (1 - saved) - 1)
    low, middle, high = np.quantile(plain, (0.05, 0.5, 0.95))
    assert found is not None
    assert (found.low, found.median, found.high) == pytest.approx((low, middle, high), abs=0.002)


def test_range_is_the_same_every_time() -> None:
    arguments = ([0.3], [[9.0, 10.0, 11.0]], [[8.0]], [inf])
    assert bootstrap(*arguments) == bootstrap(*arguments)


def test_time_in_the_job_limits_what_can_be_won() -> None:
    # alone 20 us, but 12 in the job: at most 2 of 12 can go
    found = bootstrap([0.6], [[20.0, 20.0]], [[10.0]], [12.0])
    assert found is not None
    assert found.median == pytest.approx(1 / (1 - 0.6 * 2 / 12) - 1)
