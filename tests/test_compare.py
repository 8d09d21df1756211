"""Comparisons of labels: effects and their certainty, crossovers, totals, refusals."""

from __future__ import annotations

import math
import random

import pytest

from collscope.errors import InputError
from collscope.reports.comparison.compare import compare
from collscope.reports.comparison.noise import Samples, discoveries, effects, sigma
from tests.measured_builder import Noise, key, label, noisy_label


def one(*times: float) -> dict[int, tuple[float, ...]]:
    return {0: times}


def test_speed_up_is_the_ratio_of_the_medians() -> None:
    # Medians 10 and 5: twice as fast.
    a = label("a", {key(1024): one(9, 10, 11)})
    b = label("b", {key(1024): one(5, 5, 6)})
    row = compare([a, b]).classes[0]
    assert [cell.time_us for cell in row.cells] == [10, 5]
    assert row.cells[1].speed_up == pytest.approx(2)


def test_rounds_in_common_are_compared_pair_by_pair() -> None:
    # A drift of 100 % over the rounds hits both labels; in each round b takes 1.25 times as long.
    drift = {0: (100.0,), 1: (120.0,), 2: (150.0,), 3: (200.0,)}
    slower = {r: tuple(1.25 * t for t in samples) for r, samples in drift.items()}
    effect = effects([(Samples(drift), Samples(slower))])[0]
    assert effect.paired
    assert math.exp(effect.log_ratio) == pytest.approx(1.25)
    assert effect.error == pytest.approx(0, abs=1e-12)
    assert effect.p_slower() < 0.001


def test_one_sample_each_has_no_error() -> None:
    effect = effects([(Samples(one(10)), Samples(one(11)))])[0]
    assert effect.error is None
    assert effect.half_width() is None
    assert effect.p_slower() == 1


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    # 400 simulated A-against-A comparisons of normal noise: 95 % of the intervals hold 0.
    rng = random.Random(1)
    covered = 0
    for _ in range(400):
        a, b = (noisy_label(n, rng, {key(1): 10.0}, Noise(0.05, rounds=7, samples=5)) for n in "ab")
        effect = effects([(a.classes[key(1)].samples, b.classes[key(1)].samples)])[0]
        half = effect.half_width()
        assert half is not None
        covered += abs(effect.log_ratio) <= half
    assert 0.90 <= covered / 400 <= 0.99


def test_sigma_agrees_with_the_standard_deviation_of_normal_noise() -> None:
    rng = random.Random(2)
    assert sigma([rng.gauss(0, 3) for _ in range(4001)]) == pytest.approx(3, rel=0.05)
    assert sigma([1, 2, 3]) == pytest.approx(1)  # by hand: variance (1 + 0 + 1) / 2


def test_discoveries_by_hand() -> None:
    # Benjamini-Hochberg at 5 % of five: bounds .01 .02 .03 .04 .05; .03 <= .03 is the last that
    # holds, so the three smallest are accepted although .025 > .02.
    assert discoveries([0.20, 0.005, 0.025, 0.03, 0.9], 0.05) == [False, True, True, True, False]
    assert discoveries([0.5, 0.6], 0.05) == [False, False]


def test_crossover_is_the_first_size_at_which_another_label_leads() -> None:
    sizes = [1024, 2048, 4096, 8192]
    a = label("a", {key(s): one(float(t)) for s, t in zip(sizes, (1, 2, 4, 8), strict=True)})
    b = label("b", {key(s): one(float(t)) for s, t in zip(sizes, (3, 3, 3, 3), strict=True)})
    found = compare([a, b]).crossovers
    assert [(c.size_bytes, c.before, c.to) for c in found] == [(4096, "a", "b")]


def test_weights_say_what_it_means_for_a_job() -> None:
    # 10 calls of 100 us and 1 call of 1000 us; b halves the first: 2000 us become 1500 us.
    a = label("a", {key(1): one(100), key(2): one(1000)})
    b = label("b", {key(1): one(50), key(2): one(1000)})
    comparison = compare([a, b], "job", {key(1): 10, key(2): 1})
    assert comparison.totals[1].time_ratio == pytest.approx(0.75)
    assert [row.weight for row in comparison.classes] == [pytest.approx(0.5)] * 2


def test_an_out_of_place_outlier_is_noted() -> None:
    a = label("gdr", {key(1 << 25, in_place=0): one(1810.3), key(1 << 25): one(886.4)})
    b = label("other", {key(1 << 25): one(900)})
    (note,) = [n for n in compare([b, a]).notes if "out of place" in n]
    assert "33554432 B takes 1810.3 us out of place and 886.4 us in place (2.04 x)" in note


def test_labels_without_a_common_class_are_refused_with_the_reason() -> None:
    a, b = label("a", {key(1): one(1)}), label("b", {key(2): one(1)})
    with pytest.raises(InputError, match=r"no common classes \(size_bytes 1 against 2\)"):
        compare([a, b])
