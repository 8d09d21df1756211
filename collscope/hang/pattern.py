"""The loop that a rank repeats, and the call with which the rank leaves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collscope.hang.records import Call

_TURNS = 2  # repetitions that make a pattern: one turn, and a second that equals it


class Leaving(msgspec.Struct, frozen=True):
    """How a rank leaves the pattern that it repeated."""

    call: Call
    what: tuple[str, ...]


class Pattern(msgspec.Struct, frozen=True):
    """What a rank repeats, and how it left it: None when it kept it to its last call."""

    period: int
    leaving: Leaving | None


def pattern_of(calls: Sequence[Call]) -> Pattern | None:
    """The shortest pattern that most of the calls repeat; None without one."""
    marks = [(call.group, call.op, call.count, call.datatype) for call in calls]
    open_at = next((n for n, call in enumerate(calls) if not call.completed), len(calls))
    for period in range(1, len(marks) // (_TURNS + 1) + 1):
        start, end = _longest_run(marks, period)
        if end - start < max(_TURNS * period, len(marks) // 2):
            continue
        if end == len(marks):
            return Pattern(period, None)
        # A loop that ended before the calls that hang, as of another phase, says nothing of them;
        # the host runs ahead of the first open call, and what it left out may be one turn back.
        if end < open_at - period:
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


def _what(
    marks: Sequence[tuple[str, str, int | None, str | None]], place: int, period: int
) -> tuple[str, ...]:
    made = marks[place]
    expected = marks[place - period]
    following = marks[place - period + 1] if period > 1 else expected
    after = marks[place + 1] if place + 1 < len(marks) else None
    if after == expected:
        return ("different_order",) if made == following else ("extra_call",)
    if made == following and period > 1:
        # The call that was left out may come next: too few calls follow to know.
        return (
            ("host_never_called",)
            if after is not None
            else ("host_never_called", "different_order")
        )
    if after == following:
        return ("different_call",)
    return (
        ("different_call", "extra_call")
        if made[0] == expected[0]
        else ("different_order", "extra_call")
    )
