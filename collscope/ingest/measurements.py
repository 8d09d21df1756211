"""Measurements into the store: what replay CSVs and benchmark tables have in common."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from collscope.ingest.adding import add_source, cut_short, stem, unusable
from collscope.ingest.files import open_input, printable
from collscope.ingest.result import Ingested
from collscope.model import MeasurementSet
from collscope.store import sources
from collscope.store.measurements import insert_measurements

# Reads a whole text; None when the text is of no dialect that it knows.
Parse = Callable[[str], MeasurementSet | None]

# What a source's kind is called, by the command that reads it.
CSV, TABLE = "csv", "table"
NO_CSV = "no replay CSV: neither collscope's nor rccl_replayer's header line"
NO_TABLE = "no known benchmark table: the output of nccl-tests or rccl-tests"


def ingest_measurements(  # noqa: PLR0913, PLR0917 - where from, where to, how, and two names
    connection: sqlite3.Connection,
    db: Path,
    run: str,
    path: str,
    parse: Parse,
    label: str | None,
    kind: str = CSV,
    *,
    again: bool = False,
) -> Ingested:
    """Put the measurements of one file into a run, in one transaction.

    parse    called once with the file's text
    label    for every measurement of the file; None: that of each row, else the file's stem
    kind     `CSV` or `TABLE`
    again    the file is read again, and replaces what it gave before, when it is in the run
    returns  status unusable, with nothing stored, when `parse` gives None or no measurements
    raises   InputError when the file cannot be read or the store refuses
    """
    with open_input(path) as reader:
        data = b"".join(reader.chunks())
    identity = sources.identity(reader.sha256, kind)
    if not again and sources.has_source(connection, run, identity):
        return Ingested(path, "known")
    found = parse(data.decode("utf-8", errors="replace")) if data else None
    if found is None or not found.measurements:
        reason = _why_unusable(found, kind)
        return unusable(path, reason, size=len(data), truncated=reader.truncated)
    diagnostics = [*found.diagnostics, *cut_short(reader)]
    row = sources.SourceRow(
        printable(path), identity, kind, found.dialect, found.library, found.library_version,
        lines=found.lines, parsed=len(found.measurements),
    )  # fmt: skip
    labelled = [m if label is None else replace(m, label=label) for m in found.measurements]

    def insert(run_key: int, source: int) -> None:
        insert_measurements(connection, run_key, source, labelled, stem(path))

    status = add_source(connection, db, run, row, diagnostics, insert, again=again)
    if status == "known":
        return Ingested(path, status)
    counts = (
        ("measurements", len(labelled)),
        ("samples", sum(len(m.samples_us) for m in labelled)),
    )
    return Ingested(path, status, found.dialect, counts, tuple(diagnostics))


def _why_unusable(found: MeasurementSet | None, kind: str) -> str:
    if found is None:
        return NO_CSV if kind == CSV else NO_TABLE
    return next((d.message for d in found.diagnostics), f"{found.dialect} without a measurement")
