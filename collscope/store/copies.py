"""Plain copies of a source: what `bench memcpy` measured."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import fields
from itertools import count

from collscope.parsers.memcpy_csv import CopyTime
from collscope.store.sources import next_id

# Columns of _copy that are fields of the record by the same name.
_FIELDS = tuple(f.name for f in fields(CopyTime) if f.name not in ("label", "samples_us"))


def insert_copies(
    connection: sqlite3.Connection, run: int, source: int, copies: Sequence[CopyTime], label: str
) -> None:
    """Copies of a source with every sample, in order.

    label  label of those that have none of their own
    """
    keys = range(next_id(connection, "_copy", "copy_id"), 2**63)
    names = ("copy_id", "run_id", "source_id", "label", *_FIELDS)
    connection.executemany(
        f"INSERT INTO _copy ({','.join(names)}) VALUES ({','.join('?' * len(names))})",
        [
            (key, run, source, c.label or label, *(getattr(c, name) for name in _FIELDS))
            for key, c in zip(keys, copies, strict=False)
        ],
    )
    connection.executemany(
        "INSERT INTO _copy_sample VALUES (?,?,?)",
        [
            (key, ordinal, time_us)
            for key, c in zip(keys, copies, strict=False)
            for ordinal, time_us in zip(count(), c.samples_us)
        ],
    )
