"""Sequences that lost elements aligned, orders of several logs merged; native (native/align)."""

import numpy as np
from numpy.typing import NDArray

def align(reference: NDArray[np.uint64], sequence: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Index in `reference` of the partner of each element of `sequence`, or -1.

    Partners are equal and rise strictly; their number is the largest possible (longest common
    subsequence; Myers 1986) up to 20000 insertions and deletions. Beyond that values that occur
    once on both sides are paired first. Memory is linear in the lengths; releases the GIL.
    """

def merge_order(
    chain: NDArray[np.int32], node: NDArray[np.int32], nodes: int
) -> tuple[NDArray[np.int32], int]:
    """The nodes 0..nodes-1 in an order in which those of every chain rise; contradictions found.

    chain  per occurrence the chain it is in, from 0; rows of one chain stand in its order
    node   per occurrence the node; negative: none. A node's first occurrence in a chain counts.

    Smaller nodes come first where no chain decides; where chains contradict each other, the link
    that closes the circle is left out. Linear time; releases the GIL. ValueError when the lengths
    differ.
    """
