"""Labels of made-up measurements, for the tests of comparisons and verdicts."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import msgspec

from collscope.model import CollectiveClass, Datatype, Op, Redop
from collscope.reports.compare.labels import CIRCUMSTANCES, Label, MeasuredClass
from collscope.stats import Samples


def key(size: int, op: str = "AllReduce", in_place: int = 1) -> CollectiveClass:
    """A class of eight ranks on one node."""
    found = Op(op)
    redop = Redop.SUM if found.reduces else None
    return CollectiveClass(
        found, Datatype.BFLOAT16, redop, None, size, None, bool(in_place), 8, 1, None
    )


def label(
    name: str,
    times: Mapping[CollectiveClass, Mapping[int, tuple[float, ...]]],
    calls: int | None = 100,
) -> Label:
    """A label from its samples in us by class and round."""
    classes = {k: MeasuredClass(Samples(rounds), None, calls) for k, rounds in times.items()}
    return Label(name, classes, 0, dict.fromkeys(CIRCUMSTANCES, ()))


class Noise(msgspec.Struct, frozen=True):
    """Log-normal noise between samples, and between the launches (rounds) they are taken in."""

    sigma: float
    launch: float = 0.0
    rounds: int = 5
    samples: int = 11


def noisy_label(
    name: str, rng: random.Random, base: Mapping[CollectiveClass, float], noise: Noise
) -> Label:
    """A label whose classes take `base` microseconds, give or take."""
    times: dict[CollectiveClass, dict[int, tuple[float, ...]]] = {}
    for k, microseconds in base.items():
        times[k] = {}
        for number in range(noise.rounds):
            shift = rng.gauss(0, noise.launch)
            times[k][number] = tuple(
                microseconds * math.exp(shift + rng.gauss(0, noise.sigma))
                for _ in range(noise.samples)
            )
    return label(name, times)
