"""Figures of an application in the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from collscope.model import Metric


def insert_metrics(
    connection: sqlite3.Connection, run: int, source: int, metrics: Sequence[Metric], label: str
) -> None:
    """Figures of a source, in order.

    label  label of those that have none of their own
    """
    connection.executemany(
        "INSERT INTO _metric (run_id, source_id, name, value, unit, higher_is_better, label, line)"
        " VALUES (?,?,?,?,?,?,?,?)",
        [
            (run, source, m.name, m.value, m.unit, m.higher_is_better, m.label or label, m.line)
            for m in metrics
        ],
    )
