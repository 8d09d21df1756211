"""A wiring, a cut of it, and what the capacity of a cut is divided by; see `cut`."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    import numpy as np

_Members = TypeVar("_Members", float, "np.ndarray")


class Weight(Enum):
    """What the capacity leaving U is divided by; n is the number of GPUs."""

    ONE = "1"
    INSIDE = "|U|"
    OUTSIDE = "n - |U|"
    PAIRS = "|U| (n - |U|)"


class Wiring(msgspec.Struct, frozen=True):
    """Directed capacities between GPUs (the first `gpus` nodes) and switches, in GB/s."""

    gpus: int
    capacity: tuple[tuple[float, ...], ...]

    def restricted(self, members: tuple[int, ...]) -> Wiring:
        """The wiring of some GPUs only; switches stay, other GPUs do not forward."""
        kept = (*members, *range(self.gpus, len(self.capacity)))
        return Wiring(len(members), tuple(tuple(self.capacity[i][j] for j in kept) for i in kept))

    def reversed(self) -> Wiring:
        """Every link turned round: what is true of sending becomes true of receiving."""
        return Wiring(self.gpus, tuple(zip(*self.capacity, strict=True)))

    def without_forwarding(self, source: int, target: int) -> Wiring:
        """Two GPUs and the switches: what a transfer has that no third GPU forwards."""
        return self.restricted((source, target))


class Cut(msgspec.Struct, frozen=True):
    """A minimum: the ratio in GB/s and the GPUs of the set that gives it."""

    ratio_gbps: float
    inside: tuple[int, ...]


def divisor(weight: Weight, members: _Members, gpus: int) -> _Members | float:
    """`weight` for a number of GPUs inside, or for an array of them: an array, or one number."""
    if weight is Weight.ONE:
        return 1.0
    if weight is Weight.INSIDE:
        return members
    return gpus - members if weight is Weight.OUTSIDE else members * (gpus - members)
