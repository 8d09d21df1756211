"""Measurements by class: which of them serve a class, and how far they are from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from collscope.model.collective_class import CollectiveClass, Distance, Gap
from collscope.model.measurement import Measurement
from collscope.model.op import Op


@dataclass(frozen=True, slots=True)
class Serving:
    """A measurement that serves a class, and what keeps it from being of exactly this class."""

    measurement: Measurement
    gaps: tuple[Gap, ...]
    distance: Distance


class MeasurementIndex:
    """Finds the measurements that serve a class, by the rule of `CollectiveClass.fits`."""

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        """Measurements of one setting."""
        self._whole: dict[tuple[Op, int | None], list[_Entry]] = defaultdict(list)
        self._scaled: dict[tuple[Op, int], list[_Entry]] = defaultdict(list)
        # of a remapped job: the ranks that all its larger communicators shrank to
        self._left: dict[int, int] = defaultdict(int)
        for m in measurements:
            entry = (m.collective_class, m)
            if m.scaled_from is None:
                self._whole[m.op, m.nranks].append(entry)
            else:
                self._scaled[m.op, m.scaled_from].append(entry)
                self._left[m.scaled_from] = max(self._left[m.scaled_from], m.nranks or 0)

    def serving(self, wanted: CollectiveClass) -> list[Serving]:
        """Measurements that serve a class, also failed ones; the nearest are not picked here."""
        found = []
        for known, m in self._whole.get((wanted.op, wanted.nranks), ()):
            gaps = wanted.fits(known)
            if gaps is not None:
                found.append(Serving(m, gaps, wanted.distance_of(known, gaps)))
        for job, left in self._left.items():
            if wanted.nranks is None or wanted.nranks > job:
                continue
            for known, m in self._scaled.get((wanted.op, job), ()):
                gaps = wanted.fits_scaled(known, min(wanted.nranks, left))
                if gaps is not None:
                    found.append(Serving(m, gaps, wanted.distance_of(known, gaps)))
        return found


_Entry = tuple[CollectiveClass, Measurement]
