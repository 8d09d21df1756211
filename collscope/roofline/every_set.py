"""The minimum cut by looking at every set of nodes; apart from `cut`, as reports may do without."""

from __future__ import annotations

import numpy as np

from collscope.roofline.wiring import Cut, Weight, Wiring, divisor


def smallest_of_all_cuts(
    wiring: Wiring, weight: Weight, inside: int | None, outside: int | None
) -> Cut:
    """Minimum over every set of nodes, as bit masks built by doubling: one pass per node."""
    capacity = np.array(wiring.capacity)
    leaving = np.zeros(1)
    members = np.zeros(1)
    for node in range(len(capacity)):
        # Joining U, a node adds its links to the outside and hides the links between it and U.
        to_set = _sums(capacity[node, :node] + capacity[:node, node])
        leaving = np.concatenate([leaving, leaving + capacity[node].sum() - to_set])
        members = np.concatenate([members, members + (node < wiring.gpus)])
    masks = np.arange(len(leaving))
    allowed = (members > 0) & (members < wiring.gpus)
    if inside is not None:
        allowed &= (masks >> inside) & 1 == 1
    if outside is not None:
        allowed &= (masks >> outside) & 1 == 0
    masks, leaving, members = masks[allowed], leaving[allowed], members[allowed]
    ratios = leaving / divisor(weight, members, wiring.gpus)
    best = int(np.argmin(ratios))
    mask = int(masks[best])
    # The capacities are sums and differences of the same floats: a cut of 0 may come out as -1e-14.
    ratio = max(0.0, float(ratios[best]))
    return Cut(ratio, tuple(gpu for gpu in range(wiring.gpus) if mask >> gpu & 1))


def _sums(values: np.ndarray) -> np.ndarray:
    """Sum of `values` over every subset, indexed by bit mask."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums
