"""Rounds and nodes that are slower than the others in what was measured (pure)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated

import msgspec

from collscope.model import CollectiveClass, Measurement
from collscope.reports.tolerances import LONG_CALL_US, MIN_PLACES, SLOWER_PLACE


class Outlier(msgspec.Struct, frozen=True):
    """A round or a node that was slower than the others."""

    kind: Annotated[str, ("round", "node")]  # round, node
    name: str
    ratio: float  # of its time to the usual one, in its typical class
    classes: int  # compared
    others: int  # rounds or nodes


_Times = Mapping[CollectiveClass, Mapping[Hashable, float]]  # us of a class, by round or node


def outliers_of(measured: Sequence[Measurement], label: str | None) -> Iterator[Outlier]:
    """Outliers among the rounds and nodes of a label, the slowest first.

    Nodes are compared by measurements within one node, where each was measured: under one label,
    or each under a label of its own.
    """
    usable = [m for m in measured if m.usable and (m.time_us_median or 0) >= LONG_CALL_US]
    own = [m for m in usable if m.label == label]
    yield from _slower("round", _times((m, m.round) for m in own))
    alone = [m for m in usable if m.nnodes == 1 and m.host]
    hosts: dict[str | None, set[str | None]] = defaultdict(set)
    for m in alone:
        hosts[m.label].add(m.host)
    if len(hosts[label]) == 1 and all(len(names) == 1 for names in hosts.values() if names):
        yield from _slower("node", _times((m, m.host) for m in alone))
    else:
        yield from _slower("node", _times((m, m.host) for m in alone if m.label == label))


def _times(measured: Iterable[tuple[Measurement, Hashable]]) -> _Times:
    """Times by class and place; none where there are too few places to compare."""
    placed = [(m, place) for m, place in measured if place is not None]
    if len({place for _, place in placed}) <= MIN_PLACES:
        return {}
    samples: dict[CollectiveClass, dict[Hashable, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for m, place in placed:
        if m.time_us_median:
            samples[m.collective_class][place].append(m.time_us_median)
    return {
        key: {place: median(times) for place, times in places.items()}
        for key, places in samples.items()
    }


def _slower(kind: str, times: _Times) -> Iterator[Outlier]:
    """Places whose typical class takes longer than with the median of all places."""
    ratios: dict[Hashable, list[float]] = defaultdict(list)
    for places in times.values():
        if len(places) > MIN_PLACES:
            usual = median(places.values())
            for place, time in places.items():
                ratios[place].append(time / usual)
    found = [
        (math.exp(median(math.log(r) for r in own)), place, len(own))
        for place, own in ratios.items()
        if len(own) >= MIN_PLACES
    ]
    for ratio, place, classes in sorted(found, key=lambda one: (-one[0], str(one[1]))):
        if ratio > SLOWER_PLACE:
            yield Outlier(kind, str(place), ratio, classes, len(ratios) - 1)
