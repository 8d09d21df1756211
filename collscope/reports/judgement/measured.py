"""Measurements of a run, and those that serve a class of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from collscope.analysis.classes import ClassRow
from collscope.model import CollectiveClass, Gap, Measurement, MeasurementIndex, Serving
from collscope.store.measurements import StoredMeasurement, no_such_label
from collscope.units import count


@dataclass(frozen=True, slots=True)
class Match:
    """Measurements that serve one class.

    measured    the nearest; empty when all that serve failed, or one gave a wrong result
    marks       what keeps them from being of exactly this class
    gaps        the same as codes
    samples_us  every sample, or the median where a source gives nothing else
    time_us     median of the samples
    """

    measured: tuple[Measurement, ...]
    marks: tuple[str, ...]
    gaps: tuple[Gap, ...] = ()
    samples_us: tuple[float, ...] = ()
    time_us: float | None = None

    @property
    def scaled(self) -> bool:
        """True when fewer ranks were measured than the job has."""
        return Gap.SCALED in self.gaps

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

    Those of the most recent source come first. The order of rows within a source says nothing
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
    """What was measured as classes of no calls, for a run that holds nothing else."""
    classes = dict.fromkeys(m.collective_class for m in measurements if m.size_bytes and m.nranks)
    return tuple(_class_of_no_calls(number, c) for number, c in enumerate(classes, start=1))


def _class_of_no_calls(number: int, c: CollectiveClass) -> ClassRow:
    return ClassRow(
        class_id=number, op=c.op.value, datatype=None if c.datatype is None else c.datatype.value,
        redop=None if c.redop is None else c.redop.value, root=c.root, count=c.count,
        size_bytes=c.size_bytes, in_place=c.in_place, nranks=c.nranks, nnodes=c.nnodes,
        shape=c.shape, backend="native", calls=0, total_bytes=None, share_of_bytes=None,
        algorithm=None, protocol=None, channels=None, tuned_calls=0, kernel_calls=None,
        kernel_observations=None, transfer_ns=None, wait_ns=None, split_ns=None,
        seen_calls=None, seen_kernels=None, kernel_ns=None,
    )  # fmt: skip


class Matcher:
    """Finds the nearest measurements of a class, and says what differs."""

    def __init__(self, measurements: Iterable[Measurement], *, own: bool = False) -> None:
        """Measurements of one label.

        own  the classes are those of the measurements: nothing but equality will do
        """
        self._index = MeasurementIndex(measurements)
        self._own = own

    def match(self, row: ClassRow) -> Match | None:
        """Measurements of a class, None when none serves it (`CollectiveClass.fits`)."""
        wanted = row.collective_class
        found = self._index.serving(wanted)
        if self._own:
            found = [s for s in found if s.collective_class == wanted]
        if not found:
            return None
        told = [s for s in found if s.measurement.usable or s.measurement.wrong]
        if not told:
            return Match((), (f"replay {found[0].measurement.status}",))
        chosen = told
        if len(told) > 1:
            nearest = min(s.distance for s in told)
            chosen = [s for s in told if s.distance == nearest]
        measured = tuple(s.measurement for s in chosen)
        if any(m.wrong for m in measured):
            return Match((), ("replay wrong",))
        gaps = chosen[0].gaps
        if self._own:
            gaps = tuple(gap for gap in gaps if gap is Gap.SCALED)
        samples = tuple(time for m in measured for time in m.times_us)
        marks = tuple(_marks(chosen, gaps, row))
        return Match(measured, marks, gaps, samples, median(samples))


_WORDS = {
    Gap.NODES_UNKNOWN: "nodes not known",
    Gap.SHAPE_UNKNOWN: "shape not known",
    Gap.PLACE_UNKNOWN: "place not known",
    Gap.DATATYPE_UNKNOWN: "datatype not known",
    Gap.REDOP_UNKNOWN: "reduction not known",
    Gap.ROOT_UNKNOWN: "root not known",
}


def words_of(gaps: Iterable[Gap], measured: Sequence[CollectiveClass]) -> Iterable[str]:
    """Gaps but that of scaling in words; `measured` are the classes that serve."""
    for gap in gaps:
        if gap is Gap.NODES_DIFFER:
            nodes = sorted({c.nnodes for c in measured if c.nnodes is not None})
            yield f"measured on {' and '.join(count(n, 'node') for n in nodes)}"
        elif gap is Gap.ROOT_DIFFERS:
            roots = sorted({c.root for c in measured if c.root is not None})
            yield f"measured with root {' and '.join(map(str, roots))}"
        elif gap is not Gap.SCALED:
            yield _WORDS[gap]


def _marks(chosen: Sequence[Serving], gaps: Sequence[Gap], row: ClassRow) -> Iterable[str]:
    first = chosen[0].measurement
    if Gap.SCALED in gaps and first.nranks != row.nranks:
        yield f"measured on {count(first.nranks, 'rank')}, scaled"
    elif Gap.SCALED in gaps:
        yield f"measured in a job of fewer than its {first.scaled_from} ranks, scaled"
    yield from words_of(gaps, [s.collective_class for s in chosen])
    if any(s.measurement.on_host for s in chosen):
        yield "measured in host memory"
