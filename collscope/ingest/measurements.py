"""Measurements into the store: what replay CSVs and benchmark tables have in common."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath

from collscope.ingest.files import STDIN, open_input, printable
from collscope.ingest.result import Ingested
from collscope.model import Diagnostic, MeasurementSet, Severity
from collscope.store import sources
from collscope.store.connection import transaction
from collscope.store.measurements import insert_measurements

# Reads a whole text; None when the text is of no dialect that it knows.
Parse = Callable[[str], MeasurementSet | None]

# What a source's kind is called, by the command that reads it.
CSV, TABLE = "csv", "table"
_KNOWN = {
    CSV: "no replay CSV: neither collscope's nor rccl_replayer's header line",
    TABLE: "no known benchmark table: the output of nccl-tests or rccl-tests",
}


def ingest_measurements(  # noqa: PLR0913, PLR0917 - where from, where to, how, and two names
    connection: sqlite3.Connection,
    db: Path,
    run: str,
    path: str,
    parse: Parse,
    label: str | None,
    kind: str = CSV,
) -> Ingested:
    """Put the measurements of one file into a run, in one transaction.

    parse    called once with the file's text
    label    for every measurement of the file; None: that of each row, else the file's stem
    kind     `CSV` or `TABLE`
    returns  status unusable, with nothing stored, when `parse` gives None or no measurements
    raises   InputError when the file cannot be read or the store refuses
    """
    with open_input(path) as reader:
        data = b"".join(reader.chunks())
    identity = sources.identity(reader.sha256, kind)
    if sources.has_source(connection, run, identity):
        return Ingested(path, "known")
    found = parse(data.decode("utf-8", errors="replace")) if data else None
    if found is None or not found.measurements:
        return Ingested(path, "unusable", reason=_why_unusable(data, found, kind))
    diagnostics = list(found.diagnostics)
    if reader.truncated:
        text = "the compressed file ends early: what was read before its end is kept"
        diagnostics.append(Diagnostic(Severity.DATA_LOSS, "truncated_compression", text))
    row = sources.SourceRow(
        printable(path), identity, kind, found.dialect, found.library, found.library_version,
        lines=found.lines, parsed=len(found.measurements),
    )  # fmt: skip
    labelled = [m if label is None else replace(m, label=label) for m in found.measurements]
    with transaction(connection, db):
        if sources.has_source(connection, run, identity):
            return Ingested(path, "known")  # another process was faster
        run_key = sources.run_id(connection, run)
        source = sources.insert_source(connection, run_key, row)
        insert_measurements(connection, run_key, source, labelled, _stem(path))
        sources.insert_diagnostics(connection, run_key, source, diagnostics)
    counts = (
        ("measurements", len(labelled)),
        ("samples", sum(len(m.samples_us) for m in labelled)),
    )
    return Ingested(path, "added", found.dialect, counts, tuple(diagnostics))


def _why_unusable(data: bytes, found: MeasurementSet | None, kind: str) -> str:
    if not data:
        return "the file is empty"
    if found is None:
        return _KNOWN[kind]
    return next((d.message for d in found.diagnostics), f"{found.dialect} without a measurement")


def _stem(path: str) -> str:
    """Label of a file's measurements when nothing else names them.

    >>> _stem("runs/h200.csv.gz"), _stem("-")
    ('h200', 'stdin')
    """
    return "stdin" if path == STDIN else PurePath(printable(path)).name.split(".")[0] or "file"
