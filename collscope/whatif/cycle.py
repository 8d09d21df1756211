"""The step that a job repeats, found in the order of its calls (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_MOST_STEP = 5_000  # calls of a step
_MOST_LOOKED_AT = 20_000  # calls from the end on


def last_cycle(calls: Sequence[int]) -> tuple[int, int] | None:
    """Where the last repetition of a cycle begins, and its length; None without two repetitions.

    Of all lengths the one whose repetition reaches furthest back from the end, of equal ones the
    shortest: three equal parts of a step do not pass for steps, as the repetition ends with them.

    >>> last_cycle([9, 1, 2, 2, 1, 2, 2, 1, 2, 2]), last_cycle([1, 2, 3])
    ((7, 3), None)
    """
    seen = np.array(calls[-_MOST_LOOKED_AT:], dtype=np.int64)
    best, reach = 0, 0
    for length in range(1, min(len(seen) // 2, _MOST_STEP) + 1):
        differs = (seen[length:] != seen[:-length])[::-1]
        same = int(differs.argmax()) if differs.any() else len(differs)
        if same >= length and same + length > reach:
            best, reach = length, same + length
    return (len(calls) - best, best) if best else None
