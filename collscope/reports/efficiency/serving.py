"""Which measurements serve a class, how exactly, and which label of a run is judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import median
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from collscope.model import CollectiveClass, Distance, Gap, Measurement, Op
from collscope.reports.calls.answer import ClassRow
from collscope.store.measurements import StoredMeasurement, no_such_label

_Entry = tuple[CollectiveClass, Measurement]


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
        self._by_group: dict[tuple[Op, int | None], dict[int | None, list[_Entry]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._scaled: dict[tuple[Op, int], list[_Entry]] = defaultdict(list)
        # of a remapped job: the ranks that all its larger communicators shrank to
        self._left: dict[int, int] = defaultdict(int)
        for m in measurements:
            entry = (m.collective_class, m)
            if m.scaled_from is None:
                self._by_group[m.op, m.nranks][m.size_bytes].append(entry)
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
        """Measurements of the operation and ranks with the same size, or none known."""
        by_size = self._by_group.get((wanted.op, wanted.nranks), {})
        if wanted.size_bytes is None:
            return chain.from_iterable(by_size.values())
        return (*by_size.get(wanted.size_bytes, ()), *by_size.get(None, ()))


class Match(msgspec.Struct, frozen=True):
    """Measurements that serve one class.

    nearest     those of the least distance
    measured    of these what the time is of; empty where there is none
    gaps        what keeps them from being of exactly this class
    status      ok; else why there is no time: wrong, failed, timeout, skipped
    samples_ns  every sample, or the median where a source gives nothing else
    time_ns     median of the samples
    """

    nearest: tuple[Serving, ...] = ()
    measured: tuple[Measurement, ...] = ()
    gaps: tuple[Gap, ...] = ()
    status: str = "ok"
    samples_ns: tuple[float, ...] = ()
    time_ns: float | None = None

    def aside(self) -> Match:
        """The same without its time: the job's own shows more."""
        return replace(self, measured=(), samples_ns=(), time_ns=None)

    @property
    def scaled(self) -> bool:
        """True when fewer ranks were measured than the job has."""
        return bool(self.measured) and Gap.SCALED in self.gaps

    @property
    def on_host(self) -> bool:
        """True when host memory was measured, not the links between GPUs."""
        return any(m.on_host for m in self.measured)


def labels_of(rows: Iterable[StoredMeasurement]) -> tuple[str, ...]:
    """Labels of the measurements, the most recent last."""
    latest = {row.label: row.measurement_id for row in rows}
    return tuple(sorted(latest, key=latest.__getitem__))


def choose_labels(rows: Iterable[StoredMeasurement], wanted: str | None) -> Sequence[str | None]:
    """The wanted label, else all, the one to judge first; (None,) when there is none at all.

    Those of the most recent source come first. The order of rows within a source means nothing
    about time: of its labels that with the most classes comes first, of equals the first.

    raises  InputError when the run has no measurement of the wanted label
    """
    labels: dict[str, list[StoredMeasurement]] = defaultdict(list)
    for row in rows:
        labels[row.label].append(row)
    if wanted is None:
        if len(labels) < 2:
            return list(labels) or (None,)
        return sorted(labels, key=lambda name: _turn(labels[name])) or (None,)
    if wanted not in labels:
        raise no_such_label(wanted, sorted(labels), "measurements in this run")
    return (wanted,)


def _turn(rows: Sequence[StoredMeasurement]) -> tuple[int, int, int]:
    """Sorts labels into the order in which they are tried, from the rows of one."""
    classes = {row.measurement.collective_class for row in rows}
    return -max(row.source_id for row in rows), -len(classes), rows[0].measurement_id


def share_source(rows: Iterable[StoredMeasurement], label: str) -> bool:
    """Whether the latest source of a label has another label too."""
    by_source: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        by_source[row.source_id].add(row.label)
    return len(by_source[max(s for s, labels in by_source.items() if label in labels)]) > 1


def as_classes(measurements: Iterable[Measurement]) -> tuple[ClassRow, ...]:
    """The measured classes as classes without calls, for a run that holds nothing else."""
    classes = dict.fromkeys(m.collective_class for m in measurements if m.size_bytes and m.nranks)
    return tuple(_class_of_no_calls(number, c) for number, c in enumerate(classes, start=1))


def _class_of_no_calls(number: int, c: CollectiveClass) -> ClassRow:
    return ClassRow(
        class_id=number, op=c.op, datatype=c.datatype, redop=c.redop, root=c.root, count=c.count,
        size_bytes=c.size_bytes, in_place=c.in_place, nranks=c.nranks, nnodes=c.nnodes,
        shape=c.shape, backend="native", calls=0, total_bytes=None, share_of_bytes=None,
        algorithm=None, protocol=None, channels=None, tuned_calls=0, kernel_calls=None,
        kernel_observations=None, transfer_ns=None, wait_ns=None, split_ns=None,
        seen_calls=None, seen_kernels=None, kernel_ns=None,
    )  # fmt: skip


class Matcher:
    """Finds the nearest measurements of a class, and lists what differs."""

    def __init__(self, measurements: Iterable[Measurement], *, own: bool = False) -> None:
        """Measurements of one label.

        own  the classes are those of the measurements: nothing but equality will do
        """
        self._index = MeasurementIndex(measurements)
        self._own = own

    def match(self, row: ClassRow) -> Match | None:
        """The nearest measurements that serve a class (`CollectiveClass.fits`); None: none does."""
        wanted = row.collective_class
        found = self._index.serving(wanted)
        if self._own:
            found = [s for s in found if s.collective_class == wanted]
        if not found:
            return None
        decided = [s for s in found if s.measurement.usable or s.measurement.wrong]
        if not decided:
            return Match(status=found[0].measurement.status)
        chosen = decided
        if len(decided) > 1:
            nearest = min(s.distance for s in decided)
            chosen = [s for s in decided if s.distance == nearest]
        measured = tuple(s.measurement for s in chosen)
        if any(m.wrong for m in measured):
            return Match(status="wrong")
        gaps = chosen[0].gaps
        if self._own:
            gaps = tuple(gap for gap in gaps if gap is Gap.SCALED)
        times_us = [us for m in measured for us in m.times_us]
        samples_ns = tuple(1000 * us for us in times_us)
        return Match(tuple(chosen), measured, gaps, "ok", samples_ns, 1000 * median(times_us))
