"""The step that a job repeats, found in the order of its calls (pure)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

_MOST_STEP = 5_000  # calls of a step
_MOST_LOOKED_AT = 20_000  # calls from the end on


def last_cycle(calls: Sequence[Hashable]) -> tuple[int, int] | None:
    """Where the last repetition of a cycle begins, and its length; None without two repetitions.

    Of all lengths the one whose repetition reaches furthest back from the end, of equal ones the
    shortest: three equal halves of a step do not pass for steps, as the repetition ends with them.

    >>> last_cycle("xabbabbabb"), last_cycle("abc")
    ((7, 3), None)
    """
    seen = calls[-_MOST_LOOKED_AT:]
    best, reach = 0, 0
    for length in range(1, min(len(seen) // 2, _MOST_STEP) + 1):
        same = 0
        for later, earlier in zip(reversed(seen), reversed(seen[:-length]), strict=False):
            if later != earlier:
                break
            same += 1
        if same >= length and same + length > reach:
            best, reach = length, same + length
    return (len(calls) - best, best) if best else None
