"""The range of a prediction: what the new step is with one thing otherwise (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from collscope.timeline.assumptions import clock_change
from collscope.timeline.prediction.contention_change import ContentionReading
from collscope.timeline.prediction.host_pace import PaceRange
from collscope.timeline.prediction.scenarios import Player, Scenario
from collscope.timeline.tolerances import GIVEN_STEP_ERROR, HOST_STARTS
from collscope.timeline.transfer_factors import Factors


def alternatives(
    player: Player, middle: Scenario, factors: Factors, host: PaceRange,
    readings: tuple[ContentionReading, ContentionReading, ContentionReading],
    seen_host: float | None,
) -> Iterator[tuple[float, ...]]:  # fmt: skip
    """New step against the old one with one thing otherwise that is not known, thing by thing.

    seen_host  the host's pace where rows wait only for what a recorded start shows; None: they do
    """
    old = player.old_step(middle.host, middle.contention)

    def ratio(other: Scenario) -> float:
        """The same reading before and after."""
        before = player.old_step(other.host, other.contention, seen=other.seen)
        return player.new_step(other) / (before or old)

    yield tuple(ratio(replace(middle, host=pace)) for pace in {host.low, host.high} - {host.middle})
    if not factors.exact:
        yield tuple(player.new_step(replace(middle, factor=factor)) / old
                    for factor in (factors.low, factors.high))  # fmt: skip
    if seen_host is not None:
        yield (ratio(replace(middle, host=seen_host, seen=True)),)
    yield tuple(
        ratio(replace(middle, contention=r)) for r in readings[1:] if r is not middle.contention
    )


def other_hosts(player: Player, middle: Scenario, host: PaceRange) -> tuple[float, ...]:
    """New step against the old one where the other start's host has a pace of its own.

    Where the host does not show in the recorded step at all, any of its paces is as likely.
    """
    least, most = (player.old_step(pace, middle.contention) for pace in (host.low, host.high))
    hidden = not host.determined and most <= least * (1 + GIVEN_STEP_ERROR)
    paces = (host.low, host.high) if hidden else (host.middle, host.middle)
    return tuple(
        player.new_step(replace(middle, host=pace * change))
        / player.old_step(pace, middle.contention)
        for pace, change in zip(paces, (1 - HOST_STARTS, 1 + HOST_STARTS), strict=True)
    )


def other_waits(player: Player, middle: Scenario, old: float) -> tuple[float, ...]:
    """New step against the old one where what has no known cause goes, or grows.

    As multiprocessors that another stream's kernels hold: it may depend on the collectives.
    """
    return tuple(player.new_step(replace(middle, unexplained=k)) / old for k in (0.0, 2.0))


def other_clock(player: Player, middle: Scenario, old: float, ratio: float) -> float:
    """New step against the old one where the GPU is at its power cap: its clock changes.

    Collectives take less power than compute: where the step gets longer by them, compute gets
    faster, and the other way round. No trace shows whether the GPU is at the cap. What the clock
    follows is the step that it makes: the ratio that it was taken from is the one that is found.
    """

    def with_clock(of: float) -> float:
        clocked = replace(middle.contention, alone=middle.contention.alone / clock_change(of))
        return player.new_step(replace(middle, contention=clocked)) / old

    first = with_clock(ratio)
    if first == ratio:
        return ratio
    second = with_clock(first)
    slope = (second - first) / (first - ratio)  # not positive
    return (first - slope * ratio) / (1 - slope)


def prediction_range(
    ratio: float, others: list[tuple[float, ...]], margin: float
) -> tuple[float, float]:
    """Ends of the range: what is not known is independent of each other, and adds in squares.

    others  ratios with one thing otherwise, thing by thing
    margin  part of the ratio, both ways
    """
    down = [max(0.0, *(1 - other / ratio for other in thing)) for thing in others if thing]
    up = [max(0.0, *(other / ratio - 1 for other in thing)) for thing in others if thing]
    low, high = (float(np.hypot.reduce([margin, *parts])) for parts in (down, up))
    return ratio * max(0.0, 1 - low), ratio * (1 + high)
