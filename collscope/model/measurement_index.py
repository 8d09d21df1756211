"""Measurements by class: which of them serve a class, and how far they are from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from collscope.model.collective_class import CollectiveClass, Distance, Gap
from collscope.model.measurement import Measurement
from collscope.model.op import Op


class Serving(NamedTuple):
    """A measurement that serves a class, and what keeps it from being of exactly this class."""

    measurement: Measurement
    collective_class: CollectiveClass  # of the measurement
    gaps: tuple[Gap, ...]
    distance: Distance


class MeasurementIndex:
    """Finds the measurements that serve a class, by the rule of `CollectiveClass.fits`."""

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        """Measurements of one setting."""
        self._whole: dict[tuple[Op, int | None], dict[int | None, list[_Entry]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._scaled: dict[tuple[Op, int], list[_Entry]] = defaultdict(list)
        # of a remapped job: the ranks that all its larger communicators shrank to
        self._left: dict[int, int] = defaultdict(int)
        for m in measurements:
            entry = (m.collective_class, m)
            if m.scaled_from is None:
                self._whole[m.op, m.nranks][m.size_bytes].append(entry)
            else:
                self._scaled[m.op, m.scaled_from].append(entry)
                self._left[m.scaled_from] = max(self._left[m.scaled_from], m.nranks or 0)

    def serving(self, wanted: CollectiveClass) -> list[Serving]:
        """Measurements that serve a class, also failed ones; the nearest are not picked here."""
        found = []
        for known, m in self._of_size(wanted):
            gaps = wanted.fits(known)
            if gaps is not None:
                found.append(Serving(m, known, gaps, wanted.distance_of(known, gaps)))
        for job, left in self._left.items():
            if wanted.nranks is None or wanted.nranks > job:
                continue
            for known, m in self._scaled.get((wanted.op, job), ()):
                gaps = wanted.fits_scaled(known, min(wanted.nranks, left))
                if gaps is not None:
                    found.append(Serving(m, known, gaps, wanted.distance_of(known, gaps)))
        return found

    def _of_size(self, wanted: CollectiveClass) -> Iterable[_Entry]:
        """Measurements of the operation and ranks whose size is not another one."""
        by_size = self._whole.get((wanted.op, wanted.nranks), {})
        if wanted.size_bytes is None:
            return chain.from_iterable(by_size.values())
        return (*by_size.get(wanted.size_bytes, ()), *by_size.get(None, ()))


_Entry = tuple[CollectiveClass, Measurement]
