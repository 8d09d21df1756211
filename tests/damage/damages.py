"""What a damage is, and what its statement means.

A damage turns the files of one recording into damaged ones and states whether the damaged files
still *decide* the truth: whether a careful reader who has only them can see that something is
wrong or lost. It need not be able to restore what was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import msgspec

Files = Mapping[str, bytes]


class Damaged(msgspec.Struct, frozen=True):
    """Damaged files by name, and the statement. `why` holds for both answers."""

    files: Files
    decidable: bool
    why: str


# None: the damage has nothing to work on in this input (a log without TUNING lines, say).
Apply = Callable[[Files, Random, float], Damaged | None]


class Damage(msgspec.Struct, frozen=True):
    """A kind of damage; `severities` are what `apply` takes as its last argument."""

    name: str
    apply: Apply
    severities: tuple[float, ...] = (0.02, 0.1, 0.3)
    exam: bool = False  # of the second set, which is run to see whether mends are of classes


def one(files: Files, draw: Random) -> str:
    """A file's name."""
    return draw.choice(sorted(files))


def some(files: Files, draw: Random) -> list[str]:
    """One file, or all of them."""
    return sorted(files) if draw.random() < 0.5 else [one(files, draw)]


def without_one(why: str) -> Apply:
    """One of several files is missing, which `why` shows."""

    def apply(files: Files, draw: Random, _severity: float) -> Damaged | None:
        if len(files) < 2:
            return None
        gone = one(files, draw)
        return Damaged({n: data for n, data in files.items() if n != gone}, True, why)

    return apply
