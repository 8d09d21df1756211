"""One order of two sequences that share some elements (pure)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]


def interleave(n_reference: int, matched: Ints) -> tuple[Ints, Ints]:
    """Places in the common order of a reference and a sequence aligned with it.

    An element without partner stands behind its last neighbour that has one.

    n_reference  elements of the reference
    matched      per element of the sequence its partner in the reference, rising; -1: none
    returns the place of each element of the reference, and of each of the sequence

    >>> interleave(2, np.array([0, -1, 1]))
    (array([0, 2]), array([0, 1, 2]))
    """
    behind = np.maximum.accumulate(np.where(matched >= 0, matched, -1))
    extra = matched < 0
    slots = behind[extra] + 1  # new elements stand before this old index
    added_before = np.searchsorted(slots, np.arange(n_reference), side="right")
    moved = np.arange(n_reference) + added_before
    place = np.empty(len(matched), dtype=np.int64)
    place[~extra] = moved[matched[~extra]]
    place[extra] = slots + np.arange(len(slots))
    return moved, place
