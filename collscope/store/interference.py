"""Compute and collectives at the same time: rows of a source."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from collscope.model import Interference
from collscope.store.sources import next_id

# Columns of _interference that are fields of the record by the same name.
_FIELDS = tuple(f for f in Interference.__struct_fields__ if f != "label")


def insert_interference(
    connection: sqlite3.Connection,
    run: int,
    source: int,
    measurements: Sequence[Interference],
    label: str,
) -> None:
    """Measurements of a source, in order.

    label  label of those that have none of their own
    """
    first = next_id(connection, "_interference", "interference_id")
    names = ("interference_id", "run_id", "source_id", "label", *_FIELDS)
    connection.executemany(
        f"INSERT INTO _interference ({','.join(names)}) VALUES ({','.join('?' * len(names))})",
        [
            (first + i, run, source, m.label or label, *(_value(m, name) for name in _FIELDS))
            for i, m in enumerate(measurements)
        ],
    )


def _value(m: Interference, name: str) -> object:
    if name == "op":
        return m.op.value
    if name == "datatype":
        return None if m.datatype is None else m.datatype.value
    value = getattr(m, name)
    return json.dumps(value) if isinstance(value, tuple) else value
