"""Profiles into the store: SQLite files by their tables, text by its first lines."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import msgspec
from msgspec.structs import astuple

from collscope.ingest.adding import OTHER_KIND, add_source, cut_short, identity_of, known, unusable
from collscope.ingest.files import Input
from collscope.ingest.paths import printable
from collscope.ingest.result import Ingested
from collscope.kernel_names import looks_related
from collscope.model import Diagnostic, Profile, ProfileSet, Severity
from collscope.parsers import registry
from collscope.parsers.hints import Hints
from collscope.parsers.reader import Fit, is_sqlite
from collscope.store import sources

PROFILE = "profile"  # what the kind of such a source is called
_NO_DATABASE = (
    "an SQLite file without the tables of RPD, rocpd or Nsight Systems (views are not read), or "
    "damaged"
)
# CREATE TABLE OPS ("BeginNs" INTEGER, "EndNs" INTEGER, "dev-id" INTEGER, …: bin/dform.py
_ROCPROF_V1 = re.compile(rb'CREATE TABLE (?:OPS|KERN|COPY|HIP) \("(?:BeginNs|Index)"')
_ROCPROF_DATABASE = (
    "the database of rocprof v1: ingest the .json or the .stats.csv that rocprof writes next to it"
)
_CUT_DATABASE = (
    "an SQLite file that ends before its last page; no profile can be read from the rest: copy "
    "the original again"
)
_NO_PROFILE = (
    "not a known profile: RPD, rocpd, Nsight Systems SQLite, rocprof CSV, pasted 'top' or"
    " key_averages"
)


class _Given(msgspec.Struct, frozen=True):
    """One profile on its way into the store."""

    row: sources.SourceRow
    profile: Profile
    bins: list[tuple[object, ...]]  # messages by size
    cut: list[Diagnostic]


def ingest_profile(connection: sqlite3.Connection, store: Path, run: str, file: Input) -> Ingested:
    """Put the profiles of one file into the store, each a source of its own.

    raises  InputError when the file cannot be read or the store refuses
    """
    path, database = file.path, is_sqlite(file.head())
    # The kernels of an SQLite profile are the same whichever command reads them.
    identity = identity_of(connection, run, file, PROFILE)
    for own in (identity, sources.identity(file.sha256, "trace")):
        if database and sources.has_source(connection, run, own):
            return known(connection, run, path, own)
    found = read_profiles(file)
    if found is None:
        code, why = ("no_tables", _NO_DATABASE) if database else (OTHER_KIND, _NO_PROFILE)
        if database and _ROCPROF_V1.search(file.head()):
            why = _ROCPROF_DATABASE
        if file.cut_database:
            why = _CUT_DATABASE
        return unusable(path, code, why, size=file.size_bytes, truncated=file.truncated)
    if not found.bins and not any(t.profile.totals or t.profile.spans for t in found.tables):
        problems = [d for table in found.tables for d in table.profile.diagnostics]
        worst = min(problems, key=lambda d: d.severity is not Severity.ERROR, default=None)
        code, why = ("no_rows", _NO_PROFILE) if worst is None else (worst.code, worst.message)
        return unusable(path, code, why, size=file.size_bytes, truncated=file.truncated)
    results = []
    bins: list[tuple[object, ...]] = [astuple(size_bin) for size_bin in found.bins]
    for number, (name, profile) in enumerate(_named(found, printable(path)), start=1):
        own = identity if number == 1 else f"{identity}:{number}"
        row = sources.SourceRow(name, own, PROFILE, profile.dialect)
        # The message sizes of functions are stored once per file, with its first table.
        given = _Given(row, profile, bins if number == 1 else [], cut_short(file))
        results.append(_stored(connection, store, run, given))
    if all(result.status == "known" for result in results):
        return known(connection, run, path, identity)
    return _summary(path, results)


def read_profiles(file: Input) -> ProfileSet | None:
    """Profiles of a file; None where it holds none.

    raises  UnreadableError
    """
    head = file.head()
    found = registry.read(PROFILE, file, head, Hints())
    if not isinstance(found, ProfileSet):
        return None
    # Further down in a document, a header without a row that can be read is no table.
    begins = registry.fit(PROFILE, head) > Fit.PART
    return found if begins or found.tables[0].profile.totals else None


def _named(found: ProfileSet, path: str) -> list[tuple[str, Profile]]:
    """Each profile of a file with the name of its source."""
    # A log often holds one per rank or per phase; those of the host alone say nothing.
    useful = [table for table in found.tables if table.profile.totals] or found.tables[:1]
    first, *others = useful
    further = [
        (f"{path} (table {k}, line {table.line})", table.profile)
        for k, table in enumerate(others, start=2)
    ]
    return [(path, first.profile), *further]


def _stored(connection: sqlite3.Connection, store: Path, run: str, given: _Given) -> Ingested:
    """One profile as a source, in one transaction."""
    profile, bins = given.profile, given.bins
    diagnostics = [*profile.diagnostics, *_unclassified(profile), *given.cut]

    def insert(_run_key: int, source: int) -> None:
        sources.insert_profile(connection, source, profile.totals, profile.spans)
        connection.executemany(
            "INSERT INTO _message_bin VALUES (?,?,?,?,?,?)", [(source, *b) for b in bins]
        )

    status = add_source(connection, store, run, given.row, diagnostics, insert)
    counts = (
        ("kernel names", len(profile.totals)),
        ("kernel executions", len(profile.spans)),
        ("message sizes", len(bins)),
    )
    return Ingested(given.row.path, status, profile.dialect, counts, tuple(diagnostics))


def _summary(path: str, results: list[Ingested]) -> Ingested:
    """What became of a file with one or several profiles."""
    first = results[0]
    counts = tuple(
        (what, sum(dict(result.counts)[what] for result in results)) for what, _ in first.counts
    )
    tables = (("tables", len(results) if len(results) > 1 else 0),)
    found = tuple(d for result in results for d in result.diagnostics)
    return Ingested(path, "added", first.dialect, (*tables, *counts), found)


def _unclassified(profile: Profile) -> list[Diagnostic]:
    """Names that speak of ccl but are no known collective: for a look by a person."""
    return [
        Diagnostic(
            Severity.NOTICE,
            "unclassified_name",
            "kernel names with 'ccl' that are not a known collective: not counted as one",
            excerpt=total.name[:200],
            count=total.calls,
        )
        for total in profile.totals
        if looks_related(total.name)
    ]
