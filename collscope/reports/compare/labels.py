"""Measurements of a label, by class, out of the store's views."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from collscope.errors import InputError
from collscope.model import CollectiveClass, Gap
from collscope.stats import Samples
from collscope.store.measurements import (
    StoredMeasurement,
    measurement_labels,
    no_such_label,
    read_measurements,
)
from collscope.units import count


class MeasuredClass(msgspec.Struct, frozen=True):
    """One class with one label."""

    samples: Samples
    busbw_gbps: float | None  # of `samples.time_us`
    calls: int | None  # of the class in the run it was planned from


class Label(msgspec.Struct, frozen=True):
    """Every class of a label with right results, and under what circumstances it was measured."""

    name: str
    classes: dict[CollectiveClass, MeasuredClass]
    left_out: int  # rows without a time: failed, timed out, skipped
    circumstances: dict[str, tuple[str, ...]]  # nnodes, method, backend, library, device, …
    # classes that failed, ran out of time or contradict themselves at least once
    failed: frozenset[CollectiveClass] = frozenset()
    # with a wrong result at least once: not in `classes`
    wrong: frozenset[CollectiveClass] = frozenset()
    # classes that serve one of another label and bear its name, with what keeps them from it
    served: tuple[tuple[CollectiveClass, tuple[Gap, ...]], ...] = ()

    @property
    def measured(self) -> frozenset[CollectiveClass]:
        """Every class that was measured, whatever the result."""
        return frozenset(self.failed | self.wrong | self.classes.keys())

    def status(self, key: CollectiveClass) -> str:
        """`ok` where the class has a time; else why it has none: `wrong`, `failed` or `missing`."""
        if key in self.classes:
            return "ok"
        if key in self.wrong:
            return "wrong"
        return "failed" if key in self.failed else "missing"


CIRCUMSTANCES = ("nnodes", "method", "backend", "library", "device", "scaled_from")
# what a label should have one of
POOLED = ("method", "backend", "library", "device", "scaled_from")
_WHOLE = "not scaled"  # as the rank count of a job that was not remapped


def load_labels(
    connection: sqlite3.Connection, names: Sequence[str], run: str | None = None
) -> list[Label]:
    """Measurements of the labels, rounds of one class together.

    run     only those of this run; None: those of every run
    raises  InputError when the store has no measurement of a label, or none that was carried out
    """
    return [_load(connection, name, run) for name in names]


def _load(connection: sqlite3.Connection, name: str, run: str | None) -> Label:
    rows = _once((key_of(r), r) for r in read_measurements(connection, run=run, label=name))
    if not rows:
        raise no_such_label(name, measurement_labels(connection))
    sized = [(key, r) for key, r in rows if r.measurement.size_bytes]
    failed = frozenset(key for key, r in sized if r.measurement.failed)
    wrong = frozenset(key for key, r in sized if r.measurement.wrong)
    timed = [
        (key, r)
        for key, r in sized
        if r.measurement.status in ("ok", "wrong") and r.measurement.time_us_median
    ]
    usable = [(key, r) for key, r in timed if key not in wrong]
    if not (usable or failed or wrong):
        raise InputError(
            f"label '{name}': none of its {count(len(rows), 'measurement')} has a size and a time. "
            "Measure again, or name another label."
        )
    grouped: dict[CollectiveClass, list[StoredMeasurement]] = defaultdict(list)
    for key, row in usable:
        grouped[key].append(row)
    circumstances = {
        c: tuple(sorted({str(v) for _, r in timed if (v := _circumstance(r, c)) is not None}))
        for c in CIRCUMSTANCES
    }
    classes = {key: _measured(group) for key, group in grouped.items()}
    return Label(name, classes, len(rows) - len(timed), circumstances, failed=failed, wrong=wrong)


def _circumstance(row: StoredMeasurement, name: str) -> object:
    value = getattr(row.measurement, name)
    return _WHOLE if name == "scaled_from" and value is None else value


def key_of(row: StoredMeasurement) -> CollectiveClass:
    """The class that a measurement is compared by; with a known size the count adds nothing."""
    found = row.measurement.collective_class
    return replace(
        found,
        redop=found.redop if found.op.reduces else None,
        count=None,
        root=found.root if found.op.rooted else None,
    )


def aligned(first: Label, other: Label) -> Label:
    """A label whose classes are named like the matching classes of the first label.

    A class that serves no class of the first, or several equally well, keeps its name.
    """
    free: dict[Hashable, list[CollectiveClass]] = defaultdict(list)
    for key in first.measured - other.measured:
        free[key.op, key.nranks, key.size_bytes].append(key)
    pairs = sorted(
        (distance, wanted, key)
        for key in other.measured - first.measured
        for wanted in free[key.op, key.nranks, key.size_bytes]
        if (distance := wanted.distance(key)) is not None
    )
    near = Counter((d, key) for d, *both in pairs for key in both)
    names: dict[CollectiveClass, CollectiveClass] = {}
    for d, wanted, key in pairs:
        alone = near[d, key] == near[d, wanted] == 1
        if alone and key not in names and wanted not in names.values():
            names[key] = wanted
    served = [(wanted, wanted.fits(key) or ()) for key, wanted in names.items()]
    return replace(
        other,
        classes={names.get(key, key): m for key, m in other.classes.items()},
        served=tuple(served),
        failed=frozenset(names.get(key, key) for key in other.failed),
        wrong=frozenset(names.get(key, key) for key in other.wrong),
    )


def _once(
    rows: Iterable[tuple[CollectiveClass, StoredMeasurement]],
) -> list[tuple[CollectiveClass, StoredMeasurement]]:
    """Rows with their classes; of copies of one file in several runs only the first counts.

    Equal rows of one source are all kept: a file may well measure the same twice.
    """
    first: dict[Hashable, int] = {}
    kept = []
    for key, row in rows:
        m = row.measurement
        same = (row.sha256, key, m.round, m.status, m.time_us_median, m.n_wrong, m.calls)
        if first.setdefault(same, row.source_id) == row.source_id:
            kept.append((key, row))
    return kept


def _measured(rows: Sequence[StoredMeasurement]) -> MeasuredClass:
    """One class from its rows.

    A round is one of a source: rounds of two files did not take turns, whatever their numbers.
    A row without a round is one of its own.
    """
    rounds: dict[Hashable, tuple[float, ...]] = {}
    products = []
    for row in rows:
        m = row.measurement
        at = (row.measurement_id,) if m.round is None else (row.source_id, m.round)
        rounds[at] = rounds.get(at, ()) + m.times_us
        if m.busbw_gbps is not None:
            products.append(m.busbw_gbps * (m.time_us_median or 0.0))
    together = Samples(rounds)
    # Time and bus bandwidth of a row have the same product for every row of a class.
    busbw = products[0] / together.time_us if products else None
    return MeasuredClass(together, busbw, _calls(rows))


def _calls(rows: Sequence[StoredMeasurement]) -> int | None:
    """Calls of a class: those of a round, as every round runs the same plan.

    Within a round a class may have several rows, of overlapping communicators, each with calls of
    its own.
    """
    by_round: dict[Hashable, int] = defaultdict(int)
    for row in rows:
        if row.measurement.calls is not None:
            by_round[row.source_id, row.measurement.round] += row.measurement.calls
    return max(by_round.values(), default=None)


def total_us(label: Label, key: CollectiveClass, calls: int) -> float:
    """Time of so many calls of a class with a label, over all their ranks.

    Calls are summed over sibling communicators: without the ranks, the groups of two of a job
    would weigh as much as if they ran one after the other.
    """
    return calls * max(key.nranks or 1, 1) * label.classes[key].samples.time_us
