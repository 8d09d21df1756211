"""Measurements of a label, by class, out of the store's views."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from collscope.errors import InputError
from collscope.stats import Samples
from collscope.store.measurements import measurement_labels, no_such_label
from collscope.units import count


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What two measurements must have in common to be compared."""

    op: str
    datatype: str
    redop: str
    nranks: int
    in_place: int  # -1: not known
    shape: str
    size_bytes: int

    @property
    def family(self) -> tuple[str | int, ...]:
        """The key without the size: what makes a curve."""
        return (self.op, self.datatype, self.redop, self.nranks, self.in_place, self.shape)


@dataclass(frozen=True, slots=True)
class Measured:
    """One class with one label."""

    samples: Samples
    busbw_gbps: float | None  # of `samples.time_us`
    calls: int | None  # of the class in the run it was planned from
    nnodes: int | None = None  # hosts; None: not known, or not always the same


@dataclass(frozen=True, slots=True)
class Label:
    """Every class of a label with right results, and under what circumstances it was measured."""

    name: str
    classes: dict[Key, Measured]
    left_out: int  # rows without a time: failed, timed out, skipped
    circumstances: dict[str, tuple[str, ...]]  # nnodes, method, backend, library, device, …
    failed: frozenset[Key] = frozenset()  # classes that failed or ran out of time at least once
    wrong: frozenset[Key] = frozenset()  # with a wrong result at least once: not in `classes`

    @property
    def measured(self) -> frozenset[Key]:
        """Every class that was measured, with whatever result."""
        return frozenset(self.failed | self.wrong | self.classes.keys())

    def status(self, key: Key) -> str:
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
_COLUMNS = (
    "op", "datatype", "redop", "nranks", "in_place", "shape", "size_bytes", *CIRCUMSTANCES,
    "measurement_id", "source_id", "round", "status", "n_wrong", "calls",
    "time_us_median", "busbw_gbps",
)  # fmt: skip
_FAILED = ("failed", "timeout")
_Row = dict[str, Any]


def load_labels(
    connection: sqlite3.Connection, names: Sequence[str], run: str | None = None
) -> list[Label]:
    """Measurements of the labels, rounds of one class together.

    run     only those of this run; None: those of every run
    raises  InputError when the store has no measurement of a label, or none that was carried out
    """
    samples = _samples(connection, names)
    return [_load(connection, name, run, samples) for name in names]


def _samples(connection: sqlite3.Connection, names: Sequence[str]) -> dict[int, list[float]]:
    """Samples of every measurement of the labels, in the order they were taken."""
    marks = ", ".join("?" * len(names))
    found: dict[int, list[float]] = defaultdict(list)
    query = (
        "SELECT measurement_id, time_us FROM measurement_samples WHERE measurement_id IN"
        f" (SELECT measurement_id FROM measurements WHERE label IN ({marks}))"
        " ORDER BY measurement_id, ordinal"
    )
    for measurement, time_us in connection.execute(query, list(names)):
        found[measurement].append(time_us)
    return found


def _load(
    connection: sqlite3.Connection, name: str, run: str | None, samples: dict[int, list[float]]
) -> Label:
    query = (
        f"SELECT {', '.join(f'm.{column}' for column in _COLUMNS)}, s.sha256 FROM measurements m"
        " LEFT JOIN sources s USING (source_id) WHERE m.label = ? AND m.run = COALESCE(?, m.run)"
        " ORDER BY m.measurement_id"
    )
    found = connection.execute(query, (name, run))
    rows = _once([dict(zip((*_COLUMNS, "sha256"), row, strict=True)) for row in found])
    if not rows:
        raise no_such_label(name, measurement_labels(connection))
    sized = [r for r in rows if r["size_bytes"]]
    failed = frozenset(_key(r) for r in sized if r["status"] in _FAILED)
    wrong = frozenset(_key(r) for r in sized if r["status"] == "wrong" or r["n_wrong"])
    timed = [r for r in sized if r["status"] in ("ok", "wrong") and r["time_us_median"]]
    usable = [r for r in timed if _key(r) not in wrong]
    if not (usable or failed or wrong):
        raise InputError(
            f"label '{name}': none of its {count(len(rows), 'measurement')} has a size and a time. "
            "Measure again, or choose another label."
        )
    grouped: dict[Key, list[_Row]] = defaultdict(list)
    for row in usable:
        grouped[_key(row)].append(row)
    for row in timed:
        row["scaled_from"] = row["scaled_from"] or _WHOLE
    circumstances = {
        c: tuple(sorted({str(r[c]) for r in timed if r[c] is not None})) for c in CIRCUMSTANCES
    }
    classes = {key: _measured(group, samples) for key, group in grouped.items()}
    return Label(name, classes, len(rows) - len(timed), circumstances, failed, wrong)


def _once(rows: Sequence[_Row]) -> list[_Row]:
    """Rows without those that another run has from a copy of the same file.

    Equal rows of one source are all kept: a file may well measure the same twice.
    """
    first: dict[Hashable, int] = {}
    kept = []
    for row in rows:
        same = (
            row["sha256"], _key(row), row["round"], row["status"], row["time_us_median"],
            row["n_wrong"], row["calls"],
        )  # fmt: skip
        if row["sha256"] is None or first.setdefault(same, row["source_id"]) == row["source_id"]:
            kept.append(row)
    return kept


def _key(row: _Row) -> Key:
    in_place = -1 if row["in_place"] is None else row["in_place"]
    return Key(
        row["op"],
        row["datatype"] or "",
        row["redop"] or "",
        row["nranks"] or 0,
        in_place,
        row["shape"] or "",
        row["size_bytes"],
    )


def _measured(rows: Sequence[_Row], samples: dict[int, list[float]]) -> Measured:
    """One class from its rows.

    A round is one of a source: rounds of two files did not take turns, whatever their numbers.
    A row without a round is one of its own.
    """
    rounds: dict[Hashable, tuple[float, ...]] = {}
    for row in rows:
        times = tuple(samples.get(row["measurement_id"], ())) or (row["time_us_median"],)
        alone = row["round"] is None
        at = (row["measurement_id"],) if alone else (row["source_id"], row["round"])
        rounds[at] = rounds.get(at, ()) + times
    nodes = {r["nnodes"] for r in rows}
    together = Samples(rounds)
    # Time and bus bandwidth of a row have the same product for every row of a class.
    products = [r["busbw_gbps"] * r["time_us_median"] for r in rows if r["busbw_gbps"] is not None]
    return Measured(
        together,
        products[0] / together.time_us if products else None,
        _calls(rows),
        nodes.pop() if len(nodes) == 1 else None,
    )


def _calls(rows: Sequence[_Row]) -> int | None:
    """Calls of a class: those of a round, as every round runs the same plan.

    Within a round a class may have several rows, of different roots or of overlapping
    communicators, each with calls of its own.
    """
    by_round: dict[Hashable, int] = defaultdict(int)
    for row in rows:
        if row["calls"] is not None:
            by_round[row["source_id"], row["round"]] += row["calls"]
    return max(by_round.values(), default=None)


def total_us(label: Label, key: Key, calls: int) -> float:
    """Time of so many calls of a class with a label, over all their ranks.

    Calls are summed over sibling communicators: without the ranks, the groups of two of a job
    would weigh as much as if they ran one after the other.
    """
    return calls * max(key.nranks, 1) * label.classes[key].samples.time_us
