"""The loop that a rank repeats, and the call with which the rank leaves it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collscope.hang.records import Call

_Mark = tuple[str, str, int | None, str | None, int | None]  # what makes two calls equal

_TURNS = 2  # repetitions that make a pattern: one turn, and a second that equals it
# Turns that a host makes ahead of a GPU that waits: sooner or later it reads a result, as a loss.
TURNS_AHEAD = 8


class Leaving(msgspec.Struct, frozen=True):
    """How a rank leaves the pattern that it repeated."""

    call: Call
    what: tuple[str, ...]


class Pattern(msgspec.Struct, frozen=True):
    """What a rank repeats, and how it left it: None when it kept it to its last call."""

    period: int
    leaving: Leaving | None


def pattern_of(calls: Sequence[Call], ahead: int = 0) -> Pattern | None:
    """The shortest pattern that most of the calls repeat; None without one.

    ahead  calls by which a host may be ahead of the first open one, where they are not recorded
    """
    marks = [(call.group, call.op, call.count, call.datatype, call.root) for call in calls]
    open_at = next((n for n, call in enumerate(calls) if not call.completed), len(calls))
    for period in range(1, len(marks) // (_TURNS + 1) + 1):
        start, end = _longest_run(marks, period)
        if end - start < max(_TURNS * period, len(marks) // 2):
            continue
        if end == len(marks):
            return Pattern(period, None)
        # A loop that ended before the calls that hang belongs to another phase and is no evidence;
        # the host runs ahead of the first open call, and what it left out may be one turn back.
        if end < open_at - max(period, ahead):
            return None
        return Pattern(period, Leaving(calls[end], _what(marks, end, period)))
    return None


def _longest_run(marks: Sequence[object], period: int) -> tuple[int, int]:
    best = (period, period)
    start = period
    for place in range(period, len(marks) + 1):
        if place < len(marks) and marks[place] == marks[place - period]:
            continue
        if place - start > best[1] - best[0]:
            best = (start, place)
        start = place + 1
    return best


def _what(marks: Sequence[_Mark], place: int, period: int) -> tuple[str, ...]:
    """Changes of the loop after which the calls are those that the rank made; several look alike
    where few calls follow.
    """
    made = marks[place : place + 2 * period]
    turn = marks[place - period : place]
    loop = [turn[n % period] for n in range(len(made) + period)]
    known = made[0] in turn
    found = []
    if period > 1 and made == loop[1 : len(made) + 1]:
        skipped = turn[0]
        found.append("peer_missing" if skipped[1] == "SendRecv" else "host_never_called")
    if made[1:] == loop[: len(made) - 1]:
        found.append("extra_call")
    if made[1:] == loop[1 : len(made)] and (len(made) > 1 or not known):
        found.append("different_call")
    if known and _reordered(made, turn, loop):
        found.append("different_order")
    return tuple(found) or (("different_call",) if not known else ("different_order", "extra_call"))


def _reordered(made: Sequence[_Mark], turn: Sequence[_Mark], loop: Sequence[_Mark]) -> bool:
    """Whether the calls are some of a turn in another order, and go on as the loop does."""
    for length in range(2, len(turn) + 1):
        if len(made) < length:
            # Cut before the order is complete: they are calls of the turn, each once.
            return not Counter(made) - Counter(turn)
        if Counter(made[:length]) == Counter(turn[:length]):
            return list(made[length:]) == list(loop[length : len(made)])
    return False
