"""Alignment of two sequences of which one may have lost elements, native (native/align)."""

import numpy as np
from numpy.typing import NDArray

def align(reference: NDArray[np.uint64], sequence: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Index in `reference` of the partner of each element of `sequence`, or -1.

    Partners are equal and rise strictly; their number is the largest possible (longest common
    subsequence; Myers 1986) up to 20000 insertions and deletions. Beyond that values that occur
    once on both sides are paired first. Memory is linear in the lengths; releases the GIL.
    """
