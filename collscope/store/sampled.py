"""Rows of a source that have samples: one key for a row and for each of its samples."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from collscope.store.sources import next_id


def insert_sampled(
    connection: sqlite3.Connection,
    tables: tuple[str, str],
    columns: Sequence[str],
    rows: Sequence[tuple[Sequence[object], Sequence[float]]],
) -> None:
    """Rows with every sample, in order.

    tables   of the rows and of the samples; the first column of both is the key
    columns  of the rows, the key first
    rows     values behind the key, and samples in us
    """
    table, samples = tables
    first = next_id(connection, table, columns[0])
    connection.executemany(
        f"INSERT INTO {table} ({','.join(columns)}) VALUES ({','.join('?' * len(columns))})",
        [(key, *values) for key, (values, _) in enumerate(rows, start=first)],
    )
    connection.executemany(
        f"INSERT INTO {samples} VALUES (?,?,?)",
        [
            (key, ordinal, time_us)
            for key, (_, times_us) in enumerate(rows, start=first)
            for ordinal, time_us in enumerate(times_us)
        ],
    )
