"""What sources of a run hold, as the line of ingest counts it."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

_FAMILY = (
    "run_id IN (SELECT run_id FROM _run WHERE label = :run"
    " OR period_of = (SELECT run_id FROM _run WHERE label = :run))"
)
# A file of several tables has a source for each: IDENTITY, IDENTITY:2, …
_SOURCES = f"""
SELECT source_id, dialect FROM _source
WHERE (sha256 = :identity OR sha256 LIKE :identity || ':%') AND {_FAMILY} ORDER BY source_id
"""
# Only what is stored as rows: a log's observations are in one value.
_COUNTS = (
    ("lines", "SELECT SUM(lines) FROM _source WHERE kind = 'log' AND source_id IN ({})"),
    (
        "kernel names",
        "SELECT COUNT(*) FROM _kernel_total JOIN _source USING (source_id)"
        " WHERE _source.kind = 'profile' AND source_id IN ({})",
    ),
    ("message sizes", "SELECT COUNT(*) FROM _message_bin WHERE source_id IN ({})"),
    ("kernels and copies", "SELECT SUM(kernels) FROM _trace WHERE source_id IN ({})"),
    ("measurements", "SELECT COUNT(*) FROM _measurement WHERE source_id IN ({})"),
    ("copies", "SELECT COUNT(*) FROM _copy WHERE source_id IN ({})"),
    ("interference rows", "SELECT COUNT(*) FROM _interference WHERE source_id IN ({})"),
    ("figures", "SELECT COUNT(*) FROM _metric WHERE source_id IN ({})"),
)
_LABELS = """
SELECT label FROM _measurement WHERE source_id IN ({}) GROUP BY label ORDER BY MIN(measurement_id)
"""


class Contents(NamedTuple):
    """What the sources of one file hold."""

    dialect: str
    counts: tuple[tuple[str, int], ...]
    labels: tuple[str, ...]  # of measurements


def contents(connection: sqlite3.Connection, run: str, identity: str) -> Contents:
    """What a run holds of the file with this identity; nothing where it is not in the run."""
    found = connection.execute(_SOURCES, {"run": run, "identity": identity}).fetchall()
    keys = ",".join(str(int(source)) for source, _ in found)
    counts = tuple(
        (what, int(number))
        for what, query in _COUNTS
        for (number,) in connection.execute(query.format(keys))
        if number
    )
    labels = tuple(label for (label,) in connection.execute(_LABELS.format(keys)))
    return Contents(found[0][1] if found else "", counts, labels)
