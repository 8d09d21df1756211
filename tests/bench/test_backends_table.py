"""The table of benchmarks/gpu/backends.py: which backend is surely faster at which size."""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence

import pytest
from inputs import ROOT

SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "gpu" / "backends.py"))
ROUNDS = [1.0, 1.02, 0.99, 1.01, 1.0, 0.98, 1.03, 1.0]


def lines(samples: Mapping[tuple[int, str], Sequence[float]]) -> list[str]:
    return list(SCRIPT["choices"](samples))


def test_the_fastest_backend_and_its_interval() -> None:
    nccl = [20 * one for one in ROUNDS]
    found = lines(
        {
            (8192, "nccl"): nccl,
            (8192, "one-shot"): [one / 2 for one in nccl],
            (8192, "two-shot"): [0.8 * one for one in nccl],
        }
    )
    assert found[1].split()[:4] == ["8192", "20.00", "10.00", "16.00"]
    assert found[1].endswith("one-shot: 0.500 of nccl (0.500 to 0.500)")


def test_a_difference_that_the_rounds_do_not_hold_is_none() -> None:
    other = [20 * one for one in reversed(ROUNDS)]
    found = lines({(64, "nccl"): [20 * one for one in ROUNDS], (64, "one-shot"): other})
    assert found[1].endswith("nccl (no other is surely faster)")


@pytest.mark.parametrize(("rounds", "low"), [(5, None), (6, 1.0), (15, 4.0)])
def test_the_interval_is_that_of_order_statistics(rounds: int, low: float | None) -> None:
    """Of 15 values the 4th and the 12th: tables of the sign test."""
    values = [float(k + 1) for k in range(rounds)]
    found = SCRIPT["interval"](values)
    assert found == (None if low is None else (low, rounds + 1 - low))
