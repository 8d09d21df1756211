"""Sequences aligned that lost elements, orders of logs merged, rows grouped: native/align."""

import numpy as np
from numpy.typing import NDArray

def align(reference: NDArray[np.uint64], sequence: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Index in `reference` of the partner of each element of `sequence`, or -1.

    Partners are equal and rise strictly; their number is the largest possible (longest common
    subsequence; Myers 1986) up to 20000 insertions and deletions. Beyond that values that occur
    once on both sides are paired first. Memory is linear in the lengths; releases the GIL.
    """

def group(keys: NDArray[np.int32], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows grouped by key 0..count-1: their order, and where each key's rows begin and end in it.

    Rows of a key rise. ValueError for another key. Linear time; releases the GIL.
    """

class ChainMerger:
    """The nodes 0..nodes-1 in an order in which those of every chain rise.

    Smaller nodes come first where no chain decides; where chains contradict each other, the link
    that closes the circle is left out. Linear time; releases the GIL. Chains are not kept: memory
    is that of the nodes, and of what chains say that the one before did not.
    """

    def __init__(self, nodes: int) -> None:
        """ValueError for a negative number."""

    def add(self, chain: NDArray[np.int32]) -> None:
        """Take the nodes of one chain in its order.

        A node's first occurrence counts; what is no node, such as -1, is passed over.
        """

    def merge(self) -> tuple[NDArray[np.int32], int]:
        """The order of all nodes, and how many contradictions the chains have."""
