"""Numbers that lack in a file which numbers its records."""

from __future__ import annotations

from collections.abc import Iterable


def count_missing(numbers: Iterable[int], *, first: int | None = None) -> int:
    """How many numbers are missing between the least and the largest.

    numbers  in any order, each any number of times
    first    that the recorder begins with, where the file should reach back to it

    >>> count_missing([3, 4, 4, 7]), count_missing([3, 4], first=1), count_missing([])
    (2, 2, 0)
    """
    known = set(numbers)
    if not known:
        return 0
    least = min(known) if first is None else min(first, *known)
    return max(known) - least + 1 - len(known)
