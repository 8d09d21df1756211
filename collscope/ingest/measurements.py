"""Measurements into the store: those of CSVs and of benchmark tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TypeVar, cast

from msgspec.structs import replace

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
from collscope.ingest.paths import STDIN, printable
from collscope.ingest.result import Ingested
from collscope.model import (
    CopyTime,
    Diagnostic,
    Interference,
    Measurement,
    MeasurementSet,
    Severity,
)
from collscope.parsers import registry
from collscope.parsers.hints import Hints, TableHints
from collscope.store import sources
from collscope.store.copies import insert_copies
from collscope.store.interference import insert_interference
from collscope.store.measurements import communicator_sizes, count_copies, insert_measurements

# What a source's kind is called, by the command that reads it.
CSV, TABLE = "csv", "table"
NO_CSV = (
    "not a CSV of collscope's replay or benchmarks, nor of rccl_replayer: their header line is "
    "missing"
)
_COPIED_TEXT = (
    "measurements equal others of this run to the last digit: one file holds a copy of the other's,"
    " and both count"
)
NO_TABLE = "not a known benchmark table (such as the output of nccl-tests or rccl-tests)"


def ingest_csv(
    connection: sqlite3.Connection,
    db: Path,
    run: str,
    file: Input,
    nranks: int | None,
    label: str | None,
) -> Ingested:
    """Put one CSV of measurements into a run, in one transaction.

    nranks  ranks that an rccl_replayer CSV was measured on, which the file lacks; None:
            those of the run's communicators, where all have the same number
    label   for every row; None: each row's own
    With either, a file that is in the run already is read again.
    raises  InputError when the file cannot be read or the store refuses
    """
    sizes = communicator_sizes(connection, run)
    known = sizes[0] if len(sizes) == 1 else None
    reread = nranks is not None or label is not None
    hints = Hints(nranks=nranks or known)
    return ingest_measurements(connection, db, run, file, CSV, hints, label, reread=reread)


def ingest_table(
    connection: sqlite3.Connection, db: Path, run: str, file: Input, hints: TableHints
) -> Ingested:
    """Put the benchmark tables of one file into a run, in one transaction.

    hints   the user's facts about the tables; the file's name is added here; with any, a file that
            is there is read again
    raises  InputError when the file cannot be read or the store refuses
    """
    name = "" if file.path == STDIN else PurePath(printable(file.path)).name
    named, reread = Hints(table=replace(hints, name=name)), hints != TableHints()
    return ingest_measurements(connection, db, run, file, TABLE, named, None, reread=reread)


def ingest_measurements(  # noqa: PLR0913, PLR0917 - where from, where to, how, and two names
    connection: sqlite3.Connection,
    db: Path,
    run: str,
    file: Input,
    kind: str,
    hints: Hints,
    label: str | None,
    *,
    reread: bool = False,
) -> Ingested:
    """Put the measurements of one file into a run, in one transaction.

    kind     `CSV` or `TABLE`: which readers are asked
    label    for every measurement of the file; None: that of each row, else the file's stem
    reread   the file is read again, and replaces what it gave before, when it is in the run
    returns  status unusable, with nothing stored, when no reader finds a measurement
    raises   InputError when the file cannot be read or the store refuses
    """
    path = file.path
    identity = identity_of(connection, run, file, kind)
    if not reread and sources.has_source(connection, run, identity):
        return known(connection, run, path, identity)
    found = cast("MeasurementSet | None", registry.read(kind, file, file.head(), hints))
    if found is None or not found.rows:
        code, reason = _why_unusable(found, kind)
        return unusable(path, code, reason, size=file.size_bytes, truncated=file.truncated)
    diagnostics = [*found.diagnostics, *cut_short(file)]
    row = sources.SourceRow(
        printable(path), identity, kind, found.dialect, found.library, found.library_version,
        lines=found.lines, parsed=len({r.line for r in found.rows}),
    )  # fmt: skip

    named = stem(path) if label is None else label

    def insert(run_key: int, source: int) -> None:
        copied = _labelled(found.copies, label)
        beside = _labelled(found.interference, label)
        measured = _labelled(found.measurements, label)
        insert_copies(connection, run_key, source, copied, named)
        insert_interference(connection, run_key, source, beside, named)
        insert_measurements(connection, run_key, source, measured, named)
        if equal := count_copies(connection, source):
            diagnostics.append(
                Diagnostic(Severity.NOTICE, "copied_measurements", _COPIED_TEXT, count=equal)
            )

    status = add_source(connection, db, run, row, diagnostics, insert, reread=reread)
    if status == "known":
        return known(connection, run, path, identity)
    counts = (
        ("measurements", len(found.measurements)),
        ("copies", len(found.copies)),
        ("interference rows", len(found.interference)),
        ("samples", sum(_samples(row) for row in found.rows)),
    )
    labels = tuple(dict.fromkeys(m.label or named for m in _labelled(found.measurements, label)))
    return Ingested(path, status, found.dialect, counts, tuple(diagnostics), labels=labels)


_Row = TypeVar("_Row", Measurement, CopyTime, Interference)


def _labelled(rows: Sequence[_Row], label: str | None) -> list[_Row]:
    return [row if label is None else replace(row, label=label) for row in rows]


def _samples(row: Measurement | CopyTime | Interference) -> int:
    return (row.covered or 0) if isinstance(row, Interference) else len(row.samples_us)


def _why_unusable(found: MeasurementSet | None, kind: str) -> tuple[str, str]:
    """Code and words."""
    if found is None:
        return OTHER_KIND, NO_CSV if kind == CSV else NO_TABLE
    why = next(iter(found.diagnostics), None)
    nothing = ("no_measurement", f"{found.dialect} without a measurement")
    return nothing if why is None else (why.code, why.message)
