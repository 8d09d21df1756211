"""Measurements of a run out of the store's views, and those that belong to a class."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from collscope.errors import InputError
from collscope.model import Measurement, Op, Redop
from collscope.reports.model import ClassRow

_COLUMNS = (
    "measurement_id", "label", "op", "datatype", "redop", "count", "size_bytes", "in_place",
    "nranks", "nnodes", "shape", "time_us_median", "busbw_gbps", "n_wrong", "backend", "status",
    "scaled_from", "source_id",
)  # fmt: skip

_SAMPLES = """
SELECT measurement_id, time_us FROM measurement_samples WHERE run = ?
ORDER BY measurement_id, ordinal
"""

_Key = tuple[object, ...]
_ClassKey = tuple[
    str, str | None, str | None, int | None, int | None, bool | None, int | None, int | None,
    str | None,
]  # fmt: skip
# A trace tells no reduction, and a custom one is replayed as Sum: then any will do.
_UNTOLD = (None, Redop.CUSTOM.value)


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement of the run; columns as in the view `measurements`."""

    measurement_id: int
    label: str
    op: str
    datatype: str | None
    redop: str | None
    count: int | None
    size_bytes: int | None
    in_place: int | None
    nranks: int | None
    nnodes: int | None
    shape: str | None
    time_us_median: float | None
    busbw_gbps: float | None
    n_wrong: int | None
    backend: str | None
    status: str
    scaled_from: int | None
    source_id: int
    samples_us: tuple[float, ...]

    @property
    def usable(self) -> bool:
        """A time of correct results."""
        return self.status == "ok" and not self.n_wrong and (self.time_us_median or 0) > 0

    @property
    def wrong(self) -> bool:
        """Carried out, with a wrong result."""
        return self.status == "wrong" or bool(self.n_wrong)

    @property
    def on_host(self) -> bool:
        """Measured in host memory."""
        return self.backend == "host"

    @property
    def times_us(self) -> tuple[float, ...]:
        """Every sample, or the median where the source gives nothing else."""
        return self.samples_us or (self.time_us_median or 0.0,)


@dataclass(frozen=True, slots=True)
class Match:
    """Measurements that belong to one class.

    rows        of one shape; empty when all that match failed, or one gave a wrong result
    marks       what keeps them from being of exactly this class
    samples_us  every sample, or the median where a source gives nothing else
    time_us     median of the samples
    """

    rows: tuple[Row, ...]
    marks: tuple[str, ...]
    samples_us: tuple[float, ...] = ()
    time_us: float | None = None

    @property
    def scaled(self) -> bool:
        """True when fewer ranks were measured than the job has."""
        return any(row.scaled_from is not None for row in self.rows)

    @property
    def on_host(self) -> bool:
        """True when host memory was measured, not the links between GPUs."""
        return any(row.on_host for row in self.rows)


def read_measurements(connection: sqlite3.Connection, run: str) -> tuple[Row, ...]:
    """Every measurement of the run, in the order in which they were read."""
    samples: dict[int, list[float]] = defaultdict(list)
    for measurement, time_us in connection.execute(_SAMPLES, (run,)):
        samples[measurement].append(time_us)
    query = f"SELECT {', '.join(_COLUMNS)} FROM measurements WHERE run = ? ORDER BY measurement_id"
    return tuple(
        Row(*(*columns, tuple(samples.get(columns[0], ()))))
        for columns in connection.execute(query, (run,))
    )


def labels_of(rows: Iterable[Row]) -> tuple[str, ...]:
    """Labels of the measurements, the most recent last."""
    latest = {row.label: row.measurement_id for row in rows}
    return tuple(sorted(latest, key=latest.__getitem__))


def choose_labels(rows: Iterable[Row], wanted: str | None) -> Sequence[str | None]:
    """The wanted label, else all, the one to judge first; (None,) when there is none at all.

    Those of the most recent source come first. The order of rows within a source says nothing
    about time: of its labels that with the most classes comes first, of equals the first.

    raises  InputError when the run has no measurement of the wanted label
    """
    labels: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        labels[row.label].append(row)
    if wanted is None:
        return sorted(labels, key=lambda name: _turn(labels[name])) or (None,)
    if wanted not in labels:
        known = ", ".join(f"'{label}'" for label in labels) or "none"
        raise InputError(
            f"label '{wanted}': the run has no such measurements (labels: {known}). "
            "Choose one of them, or measure with collscope replay --label."
        )
    return (wanted,)


def _turn(rows: Sequence[Row]) -> tuple[int, int, int]:
    """Sorts labels into the order in which they are tried, from the rows of one."""
    classes = {(*_key(row, row.nranks), row.redop, row.in_place, row.shape) for row in rows}
    return -max(row.source_id for row in rows), -len(classes), rows[0].measurement_id


def share_source(rows: Iterable[Row], label: str) -> bool:
    """Whether the latest source of a label has another label too."""
    by_source: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        by_source[row.source_id].add(row.label)
    return len(by_source[max(s for s, labels in by_source.items() if label in labels)]) > 1


def as_measurement(row: Row) -> Measurement:
    """What `roofline.fit` looks at."""
    return Measurement(
        op=op_of(row.op),
        size_bytes=row.size_bytes,
        nranks=row.nranks,
        nnodes=row.nnodes,
        time_us_median=row.time_us_median,
        n_wrong=row.n_wrong,
        status=row.status,
    )


def op_of(name: str) -> Op:
    """Operation of a stored name."""
    try:
        return Op(name)
    except ValueError:
        return Op.UNKNOWN


def as_classes(rows: Iterable[Row]) -> tuple[ClassRow, ...]:
    """What was measured as classes of no calls, for a run that holds nothing else."""
    keys = dict.fromkeys(
        (
            row.op, row.datatype, row.redop, row.count, row.size_bytes,
            None if row.in_place is None else bool(row.in_place),
            row.nranks, row.nnodes, row.shape,
        )
        for row in rows
        if row.size_bytes and row.nranks
    )  # fmt: skip
    return tuple(_class_of_no_calls(number, key) for number, key in enumerate(keys, start=1))


def _class_of_no_calls(number: int, key: _ClassKey) -> ClassRow:
    op, datatype, redop, count, size_bytes, in_place, nranks, nnodes, shape = key
    return ClassRow(
        class_id=number, op=op, datatype=datatype, redop=redop, root=None, count=count,
        size_bytes=size_bytes, in_place=in_place, nranks=nranks, nnodes=nnodes, shape=shape,
        backend="native", calls=0, total_bytes=None, share_of_bytes=None, algorithm=None,
        protocol=None, channels=None, tuned_calls=0, kernel_calls=None, kernel_observations=None,
        transfer_ns=None, wait_ns=None, kernel_ns=None,
    )  # fmt: skip


class Matcher:
    """Finds the measurements of a class; those of the closest shape, and says what differs."""

    def __init__(self, rows: Iterable[Row]) -> None:
        """Measurements of one label."""
        self._rows: dict[_Key, list[Row]] = defaultdict(list)
        self._scaled: dict[_Key, list[Row]] = defaultdict(list)
        # of a remapped job: the ranks that all its larger communicators shrank to
        self._left: dict[int, int] = defaultdict(int)
        for row in rows:
            if row.scaled_from is None:
                self._rows[_key(row, row.nranks)].append(row)
            else:
                self._scaled[_scaled_key(row, row.nranks, row.scaled_from)].append(row)
                self._left[row.scaled_from] = max(self._left[row.scaled_from], row.nranks or 0)

    def match(self, row: ClassRow) -> Match | None:
        """Measurements of a class, None when none is of its operation, type, size and ranks."""
        found = self._candidates(row)
        found = [r for r in found if row.redop in _UNTOLD or r.redop == row.redop]
        same = [r for r in found if _agrees(r.in_place, row.in_place) and _shape(r) == _shape(row)]
        if not same:
            return None
        told = [r for r in same if r.usable or r.wrong]
        if not told:
            return Match((), (f"replay {same[0].status}",))
        best = min(_distance(r, row) for r in told)
        chosen = tuple(r for r in told if _distance(r, row) == best)
        if any(r.wrong for r in chosen):
            return Match((), ("replay wrong",))
        samples = tuple(time for r in chosen for time in r.times_us)
        return Match(chosen, tuple(_marks(chosen, row)), samples, median(samples))

    def _candidates(self, row: ClassRow) -> list[Row]:
        found = list(self._rows.get(_key(row, row.nranks), ()))
        for job, left in self._left.items():
            if row.nranks is not None and row.nranks <= job:
                found += self._scaled.get(_scaled_key(row, min(row.nranks, left), job), ())
        return found


def _scaled_key(row: Row | ClassRow, ranks: int | None, job: int) -> _Key:
    """Remapping keeps the count where there is one, while the size of many operations shrinks."""
    counted = ("size", row.size_bytes) if row.count is None else ("count", row.count)
    return (row.op, row.datatype, *counted, ranks, job)


def _key(row: Row | ClassRow, ranks: int | None) -> _Key:
    """What must be equal; the count stands for the size where there is none."""
    size = ("count", row.count) if row.size_bytes is None else ("size", row.size_bytes)
    return (row.op, row.datatype, *size, ranks)


def _agrees(one: int | None, other: int | None) -> bool:
    return one is None or other is None or bool(one) == bool(other)


def _shape(row: Row | ClassRow) -> str:
    return (row.shape or row.op).lower()


def _distance(measured: Row, row: ClassRow) -> tuple[bool, bool, bool]:
    """How far a measurement is from the class: smaller is better, element by element."""
    return (
        measured.scaled_from is not None,
        measured.nnodes != row.nnodes,
        measured.in_place is None or row.in_place is None,
    )


def _marks(chosen: Sequence[Row], row: ClassRow) -> Iterable[str]:
    measured = chosen[0]
    if measured.scaled_from is not None:
        yield (
            f"measured on {measured.nranks} ranks, scaled"
            if measured.nranks != row.nranks
            else f"measured in a job of fewer than its {measured.scaled_from} ranks, scaled"
        )
    if measured.nnodes != row.nnodes and measured.scaled_from is None:
        if measured.nnodes is None or row.nnodes is None:
            yield "nodes not known"
        else:
            yield f"measured on {measured.nnodes} nodes"
    if measured.in_place is None or row.in_place is None:
        yield "place not known"
    if row.redop in _UNTOLD and measured.redop is not None:
        yield "reduction not known"
    if measured.on_host:
        yield "measured in host memory"
