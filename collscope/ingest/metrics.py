"""Application figures into the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import cast

from collscope.ingest.adding import (
    OTHER_KIND,
    add_source,
    cut_short,
    identity_of,
    known,
    stem,
    unusable,
)
from collscope.ingest.files import Input
from collscope.ingest.paths import printable
from collscope.ingest.result import Ingested
from collscope.model import MetricSet
from collscope.parsers import registry
from collscope.parsers.hints import Hints, MetricHints
from collscope.store import sources
from collscope.store.metrics import insert_metrics

METRIC = "metric"  # what the kind of such a source is called


def ingest_metric(
    connection: sqlite3.Connection,
    db: Path,
    run: str,
    file: Input,
    hints: MetricHints,
    *,
    rated: bool = False,
) -> Ingested:
    """Put an application's figures of one file into the store, in one transaction.

    rated   figures without any unit are none: numbers in a file may be anything
    hints   the user's facts about the figures; with any, a file that is there is read again
    raises  InputError when the file cannot be read or the store refuses
    """
    path = file.path
    identity = identity_of(connection, run, file, METRIC)
    reread = hints != MetricHints()
    if not reread and sources.has_source(connection, run, identity):
        return known(connection, run, path, identity)
    read = registry.read(METRIC, file, file.head(), Hints(metric=hints))
    found = cast("MetricSet | None", read)
    if found is not None and not found.metrics:
        why = found.diagnostics[0]
        return unusable(path, why.code, why.message, size=file.size_bytes, truncated=file.truncated)
    if found is None or (rated and all(m.unit is None for m in found.metrics)):
        reason = (
            "no figure found: one number with its unit per line, CSV with units in its column "
            "names, records (JSON lines, Hugging Face Trainer's), or tables 'per second'"
        )
        return unusable(path, OTHER_KIND, reason, size=file.size_bytes, truncated=file.truncated)
    diagnostics = [*found.diagnostics, *cut_short(file)]
    row = sources.SourceRow(
        printable(path), identity, METRIC, found.dialect,
        lines=found.lines, parsed=len({m.line for m in found.metrics}),
    )  # fmt: skip

    def insert(run_key: int, source: int) -> None:
        insert_metrics(connection, run_key, source, found.metrics, stem(path))

    status = add_source(connection, db, run, row, diagnostics, insert, reread=reread)
    if status == "known":
        return known(connection, run, path, identity)
    counts = (("figures", len(found.metrics)),)
    return Ingested(path, status, found.dialect, counts, tuple(diagnostics))
