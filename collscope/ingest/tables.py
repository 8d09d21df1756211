"""Benchmark tables and application figures into the store."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path, PurePath

from collscope.ingest.files import STDIN, open_input, printable
from collscope.ingest.measurements import TABLE, ingest_measurements
from collscope.ingest.result import Ingested
from collscope.model import Diagnostic, Severity
from collscope.parsers import metrics, tables
from collscope.store import sources
from collscope.store.connection import transaction
from collscope.store.metrics import insert_metrics

METRIC = "metric"  # what the kind of such a source is called


def ingest_table(
    connection: sqlite3.Connection, db: Path, run: str, path: str, hints: tables.TableHints
) -> Ingested:
    """Put the benchmark tables of one file into the store, in one transaction.

    hints   what the user says of the tables; the file's name is added here
    raises  InputError when the file cannot be read or the store refuses
    """
    name = "" if path == STDIN else PurePath(printable(path)).name
    named = replace(hints, name=name)
    return ingest_measurements(
        connection, db, run, path, lambda text: tables.parse(text, named), None, TABLE
    )


def ingest_metric(
    connection: sqlite3.Connection, db: Path, run: str, path: str, hints: metrics.MetricHints
) -> Ingested:
    """Put an application's figures of one file into the store, in one transaction.

    raises  InputError when the file cannot be read or the store refuses
    """
    with open_input(path) as reader:
        data = b"".join(reader.chunks())
    identity = sources.identity(reader.sha256, METRIC)
    if sources.has_source(connection, run, identity):
        return Ingested(path, "known")
    found = metrics.parse(data.decode("utf-8", errors="replace"), hints)
    if found is None:
        reason = (
            "no figure found: numbers with a unit, CSV with units in its column names, or lines "
            "with train_runtime"
        )
        return Ingested(path, "unusable", reason=reason if data else "the file is empty")
    diagnostics = list(found.diagnostics)
    if reader.truncated:
        text = "the compressed file ends early: what was read before its end is kept"
        diagnostics.append(Diagnostic(Severity.DATA_LOSS, "truncated_compression", text))
    row = sources.SourceRow(
        printable(path), identity, METRIC, found.dialect,
        lines=found.lines, parsed=len(found.metrics),
    )  # fmt: skip
    stem = "stdin" if path == STDIN else PurePath(printable(path)).name.split(".")[0] or "file"
    with transaction(connection, db):
        if sources.has_source(connection, run, identity):
            return Ingested(path, "known")  # another process was faster
        run_key = sources.run_id(connection, run)
        source = sources.insert_source(connection, run_key, row)
        insert_metrics(connection, run_key, source, found.metrics, stem)
        sources.insert_diagnostics(connection, run_key, source, diagnostics)
    counts = (("figures", len(found.metrics)),)
    return Ingested(path, "added", found.dialect, counts, tuple(diagnostics))
