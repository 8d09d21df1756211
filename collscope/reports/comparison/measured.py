"""Measurements of a label, by class, out of the store's views."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from collscope.errors import InputError
from collscope.reports.comparison.noise import Samples


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
    busbw_gbps: float | None  # of the median time
    calls: int | None  # of the class in the run it was planned from
    n_wrong: int


@dataclass(frozen=True, slots=True)
class Label:
    """Every usable class of a label, and under what circumstances it was measured."""

    name: str
    classes: dict[Key, Measured]
    left_out: int  # rows without a time: failed, timed out, skipped
    circumstances: dict[str, tuple[str, ...]]  # nnodes, method, backend, library, device, …


CIRCUMSTANCES = ("nnodes", "method", "backend", "library", "device", "scaled_from")
_COLUMNS = (
    "op", "datatype", "redop", "nranks", "in_place", "shape", "size_bytes", *CIRCUMSTANCES,
    "measurement_id", "round", "status", "n_wrong", "calls", "time_us_median", "busbw_gbps",
)  # fmt: skip
_USABLE = ("ok", "wrong")  # a wrong result is kept: it has a time, and must be told
_Row = dict[str, Any]


def labels_of(connection: sqlite3.Connection) -> list[str]:
    """Every label that the store has measurements of, in order."""
    query = "SELECT DISTINCT label FROM measurements ORDER BY label"
    return [row[0] for row in connection.execute(query)]


def load_labels(connection: sqlite3.Connection, names: Sequence[str]) -> list[Label]:
    """Measurements of the labels, rounds of one class together.

    raises  InputError when the store has no measurement of a label
    """
    samples = _samples(connection, names)
    return [_load(connection, name, samples) for name in names]


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


def _load(connection: sqlite3.Connection, name: str, samples: dict[int, list[float]]) -> Label:
    query = (
        f"SELECT {', '.join(_COLUMNS)} FROM measurements WHERE label = ? ORDER BY measurement_id"
    )
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in connection.execute(query, (name,))]
    if not rows:
        known = ", ".join(f"'{known}'" for known in labels_of(connection)) or "none"
        raise InputError(f"label '{name}': no measurements (labels: {known}). Choose one of them.")
    usable = [r for r in rows if r["status"] in _USABLE and r["time_us_median"] and r["size_bytes"]]
    grouped: dict[Key, list[_Row]] = defaultdict(list)
    for row in usable:
        grouped[_key(row)].append(row)
    circumstances = {
        c: tuple(sorted({str(r[c]) for r in usable if r[c] is not None})) for c in CIRCUMSTANCES
    }
    classes = {key: _measured(group, samples) for key, group in grouped.items()}
    return Label(name, classes, len(rows) - len(usable), circumstances)


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
    """One class from its rows; rows without a round are rounds of their own."""
    rounds: dict[int, tuple[float, ...]] = {}
    for row in rows:
        times = tuple(samples.get(row["measurement_id"], ())) or (row["time_us_median"],)
        number = row["round"] if row["round"] is not None else -1 - len(rounds)
        rounds[number] = rounds.get(number, ()) + times
    bandwidths = [r["busbw_gbps"] for r in rows if r["busbw_gbps"] is not None]
    calls = [r["calls"] for r in rows if r["calls"] is not None]
    return Measured(
        Samples(rounds),
        median(bandwidths) if bandwidths else None,
        calls[0] if calls else None,
        sum(r["n_wrong"] or 0 for r in rows),
    )
