"""Measurements of a store: written from a source, and read by label and run."""

from __future__ import annotations

import difflib
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from collscope.errors import InputError
from collscope.model import Datatype, Measurement, parse_op

# Columns of _measurement that are fields of the record by the same name.
_HINTS, _LISTED = 3, 5  # labels named where one is not known: similar ones, else the first
_FIELDS = tuple(f for f in Measurement.__struct_fields__ if f not in ("label", "samples_us"))
# The same and the label, in the order of the record; its samples stand before the last.
_READ = tuple(f for f in Measurement.__struct_fields__ if f != "samples_us")


def insert_measurements(
    connection: sqlite3.Connection,
    run: int,
    source: int,
    measurements: Sequence[Measurement],
    label: str,
) -> None:
    """Measurements of a source with every sample, in order.

    label  label of those that have none of their own
    """
    # Reading needs no numpy, which takes longer to load than a report's measurements.
    from collscope.store.sampled import insert_sampled  # noqa: PLC0415

    insert_sampled(
        connection,
        ("_measurement", "_sample"),
        ("measurement_id", "run_id", "source_id", "label", *_FIELDS),
        [
            ((run, source, m.label or label, *(_value(m, name) for name in _FIELDS)), m.samples_us)
            for m in measurements
        ],
    )


def _value(m: Measurement, name: str) -> object:
    if name == "op":
        return m.op.value
    if name == "datatype":
        return None if m.datatype is None else m.datatype.value
    return getattr(m, name)


def count_copies(connection: sqlite3.Connection, source: int) -> int:
    """Measurements of a source that equal, to the last digit, ones of its run's other sources.

    Least, median and largest time of several samples do not come out alike twice.
    """
    columns = "op, size_bytes, nranks, time_us_median, time_us_min, time_us_max"
    query = (
        f"SELECT {columns} FROM _measurement WHERE source_id {{}} ? AND time_us_min < time_us_max"
        " AND run_id = (SELECT run_id FROM _source WHERE source_id = ?)"
    )
    others = set(connection.execute(query.format("<>"), (source, source)))
    return sum(row in others for row in connection.execute(query.format("="), (source, source)))


def remove_source_by_hash(connection: sqlite3.Connection, run: str, sha256: str) -> None:
    """Remove a source of this identity from a run, with all that came from it, if it is there."""
    connection.execute(
        "DELETE FROM _source WHERE sha256 = ?"
        " AND run_id = (SELECT run_id FROM _run WHERE label = ?)",
        (sha256, run),
    )


class StoredMeasurement(msgspec.Struct, frozen=True):
    """A measurement and where it is in the store."""

    measurement_id: int
    run: str
    source_id: int
    sha256: str  # of the file's bytes
    measurement: Measurement

    @property
    def label(self) -> str:
        """Setting, library or machine measured."""
        return self.measurement.label or ""


def read_measurements(
    connection: sqlite3.Connection, *, run: str | None = None, label: str | None = None
) -> tuple[StoredMeasurement, ...]:
    """Measurements with every sample, in the order in which they were read.

    run, label  only those of this run, of this label; None: of every one
    """
    given = {"run": run, "label": label}
    named = [f"m.{name} = :{name}" for name, value in given.items() if value is not None]
    where = f"WHERE {' AND '.join(named)}" if named else ""
    # Samples know their run: without a label no join is needed for each of them.
    of_label = "JOIN measurements m USING (measurement_id) " if label is not None else "m "
    samples: dict[int, list[float]] = defaultdict(list)
    for measurement, time_us in connection.execute(
        f"SELECT measurement_id, time_us FROM measurement_samples {of_label}{where}"
        " ORDER BY measurement_id, ordinal",
        given,
    ):
        samples[measurement].append(time_us)
    columns = ", ".join(f"m.{name}" for name in _READ)
    rows = connection.execute(
        f"SELECT m.measurement_id, m.run, m.source_id, s.sha256, {columns} FROM measurements m"
        f" JOIN sources s USING (source_id) {where} ORDER BY m.measurement_id",
        given,
    )
    return tuple(
        StoredMeasurement(key, of_run, source, sha256, _measurement(values, samples.get(key, ())))
        for key, of_run, source, sha256, *values in rows
    )


def _measurement(values: Sequence[Any], samples_us: Sequence[float]) -> Measurement:
    op, datatype, redop, root, count, size, in_place, *rest, line = values
    parts = (
        parse_op(op),
        Datatype.of_label(datatype),
        redop,
        root,
        count,
        size,
        None if in_place is None else bool(in_place),
        *rest,
        tuple(samples_us),
        line,
    )
    return Measurement(*parts)


def measurement_labels(connection: sqlite3.Connection, run: str | None = None) -> list[str]:
    """Labels of the measurements, in order; of a run, or of every one."""
    query = "SELECT DISTINCT label FROM measurements WHERE run = COALESCE(?, run) ORDER BY label"
    return [label for (label,) in connection.execute(query, (run,))]


def no_such_label(name: str, known: Sequence[str], what: str = "measurements") -> InputError:
    """The error for a label that nothing has.

    known  what could have been meant
    what   what the label should be of
    """
    if not known:
        return InputError(
            f"label '{name}': there are no {what}. Measure with collscope replay, or read a table"
            " with collscope ingest table."
        )
    nearest = difflib.get_close_matches(name, known, n=_HINTS, cutoff=0.5)
    if nearest:
        return InputError(
            f"label '{name}': no {what}. Did you mean {' or '.join(map(repr, nearest))}?"
        )
    names = ", ".join(map(repr, known[:_LISTED])) + ", …" * (len(known) > _LISTED)
    return InputError(
        f"label '{name}': no {what} (labels: {names}). Choose one, or measure with"
        " collscope replay --label."
    )


def communicator_sizes(connection: sqlite3.Connection, run: str) -> list[int]:
    """Distinct numbers of ranks of the run's communicators, ascending."""
    rows = connection.execute(
        "SELECT DISTINCT nranks FROM communicators WHERE run = ? AND nranks IS NOT NULL"
        " ORDER BY nranks",
        (run,),
    )
    return [int(nranks) for (nranks,) in rows]
