"""Successive halving over launches: which settings each class still has in a round (pure)."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from statistics import median

from collscope.tuning.decide import Rounds

# Our choices, described in docs/tune.md.
ROUNDS = 5  # at most
HALVED_AFTER = (1, 2)  # rounds after which the slower half goes; then all that are left stay
_FEWEST = 2  # settings of a class that stay in any case
PRESENT_EVERY = 8  # launches after which the present setting is measured again


def survivors(times: Mapping[str, Rounds], always: Collection[str], done: int) -> set[str]:
    """Settings of a class that go into the next round.

    times   of the class by setting; those without a time are out
    always  settings that stay whatever they take: the present one and the default
    done    rounds behind
    """
    ranked = sorted(
        (name for name, rounds in times.items() if rounds and name not in always),
        key=lambda name: (_relative(times, name, always), name),
    )
    if done in HALVED_AFTER:
        ranked = ranked[: max(_FEWEST, -(-len(ranked) // 2))]
    return {*ranked, *(name for name in always if times.get(name))}


def _relative(times: Mapping[str, Rounds], name: str, always: Collection[str]) -> float:
    """Time of a setting over that of the first reference of the same rounds, for drift."""
    rounds = times[name]
    for reference in sorted(always):
        other = times.get(reference) or {}
        common = rounds.keys() & other.keys()
        if common:
            return median(rounds[r] / other[r] for r in common)
    return median(rounds.values())


def order(alive: Collection[str], present: str, rng: random.Random) -> list[str]:
    """Launches of a round: settings in random order, the present one first and every few launches.

    A round of the present setting alone is one launch.
    """
    others = sorted(set(alive) - {present})
    rng.shuffle(others)
    launches: list[str] = []
    for number, name in enumerate(others):
        if number % PRESENT_EVERY == 0:
            launches.append(present)
        launches.append(name)
    return launches or [present]


def fitting(candidates: Sequence[str], launch_s: float, left_s: float) -> int:
    """How many candidates there is time for.

    launch_s  of one launch of all classes
    left_s    without what the confirmation needs

    The first round has all of them, the second half of them, the third a few.
    """
    for number in range(len(candidates), 0, -1):
        rounds = (number, -(-number // 2), max(_FEWEST, -(-number // 4)))
        launches = sum(n + 1 + n // PRESENT_EVERY for n in rounds) + len(rounds)
        if launches * launch_s <= left_s:
            return number
    return 0
