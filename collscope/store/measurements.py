"""Measurements of a source: replays and benchmark tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import fields

from collscope.model import Measurement
from collscope.store.sampled import insert_sampled

# Columns of _measurement that are fields of the record by the same name.
_FIELDS = tuple(f.name for f in fields(Measurement) if f.name not in ("label", "samples_us"))


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


def forget_source(connection: sqlite3.Connection, run: str, sha256: str) -> None:
    """Remove a source of this identity from a run, with all that came from it, if it is there."""
    connection.execute(
        "DELETE FROM _source WHERE sha256 = ?"
        " AND run_id = (SELECT run_id FROM _run WHERE label = ?)",
        (sha256, run),
    )


def communicator_sizes(connection: sqlite3.Connection, run: str) -> list[int]:
    """Distinct numbers of ranks of the run's communicators, ascending."""
    rows = connection.execute(
        "SELECT DISTINCT nranks FROM communicators WHERE run = ? AND nranks IS NOT NULL"
        " ORDER BY nranks",
        (run,),
    )
    return [int(nranks) for (nranks,) in rows]
