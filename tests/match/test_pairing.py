"""Partners of timed collectives in two sequences."""

from __future__ import annotations

import numpy as np

from collscope.match.pairing import Sequence3, pair_by_time

US = 1_000


def broadcasts(begin_us: list[float], lasts_us: list[float]) -> Sequence3:
    """Calls of one signature."""
    start, lasts = ((np.array(v) * US).astype(np.int64) for v in (begin_us, lasts_us))
    return np.zeros(len(start), dtype=np.int64), start, start + lasts


def test_short_kernels_between_long_ones_keep_their_order() -> None:
    """The ranks' clocks are 12 us apart, and short kernels follow each other every 6 us."""
    lasts = [500.0, *[4.0] * 8, 500.0, *[4.0] * 8, 500.0]
    begin = np.concatenate([[0.0], np.cumsum(np.array(lasts) + 2.0)[:-1]])
    reference = broadcasts([*begin], lasts)
    other = broadcasts([*(begin + 12)], lasts)
    found = pair_by_time(reference, other, shared_clock=True)
    assert found.partner.tolist() == [*range(len(lasts))]


def test_where_the_ranks_call_unlike_numbers_of_them_time_tells() -> None:
    """The other rank does not hold the third of eight short kernels."""
    lasts = [500.0, *[4.0] * 8, 500.0]
    begin = np.concatenate([[0.0], np.cumsum(np.array(lasts) + 2.0)[:-1]])
    kept = [k for k in range(len(lasts)) if k != 3]
    other = broadcasts([float(begin[k]) for k in kept], [lasts[k] for k in kept])
    found = pair_by_time(broadcasts([*begin], lasts), other, shared_clock=True)
    assert found.partner.tolist() == kept
