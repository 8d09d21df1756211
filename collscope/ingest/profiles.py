"""Profiles into the store: SQLite files by their tables, text by its first lines."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from collscope import parsers
from collscope.ingest.adding import OTHER_KIND, add_source, cut_short, unusable
from collscope.ingest.files import Input, printable
from collscope.ingest.foreign_sqlite import open_foreign
from collscope.ingest.result import Ingested
from collscope.kernel_names import looks_related
from collscope.model import Diagnostic, Profile, Severity
from collscope.parsers import key_averages, perftools
from collscope.parsers._sqlite import base_tables
from collscope.store import sources

_SQLITE_MAGIC = b"SQLite format 3\0"
_HEAD_CHARACTERS = 4096
_NO_DATABASE = (
    "an SQLite file without the tables of RPD, rocpd or Nsight Systems (views are not read), or "
    "damaged"
)
_NO_PROFILE = (
    "no known profile: RPD, rocpd, Nsight Systems SQLite, rocprof CSV, pasted 'top' or key_averages"
)
_DOCUMENT_CHARACTERS = 1 << 20  # looked through for a pasted table


@dataclass(frozen=True, slots=True)
class _Given:
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
    known = [sources.identity(file.sha256, kind) for kind in ("profile", "trace")]
    if database and any(sources.has_source(connection, run, own) for own in known):
        return Ingested(path, "known")
    if database:
        profile = read_sqlite(file.chunks())
        profiles = [] if profile is None else [(printable(path), profile)]
        bins: list[tuple[object, ...]] = []
    else:
        profiles, bins = _read(file.text(), printable(path))
    if not profiles:
        code, why = ("no_tables", _NO_DATABASE) if database else (OTHER_KIND, _NO_PROFILE)
        return unusable(path, code, why, size=file.size_bytes, truncated=file.truncated)
    results = []
    for number, (name, profile) in enumerate(profiles, start=1):
        own = known[0] if number == 1 else f"{known[0]}:{number}"
        row = sources.SourceRow(name, own, "profile", profile.dialect)
        # Which functions moved what is told once per file, with its first table.
        given = _Given(row, profile, bins if number == 1 else [], cut_short(file))
        results.append(_stored(connection, store, run, given))
    if all(result.status == "known" for result in results):
        return Ingested(path, "known")
    return _summary(path, results)


def _read(text: str, path: str) -> tuple[list[tuple[str, Profile]], list[tuple[object, ...]]]:
    """Profiles of a text, each with the name of its source, and messages and copies by size.

    Several only of pasted tables, sizes only of a perftools report.
    """
    profile = _parse_text(text)
    bins: list[tuple[object, ...]] = []
    if isinstance(profile, perftools.SizeTable):
        found: Sequence[key_averages.Table | perftools.Table] = profile.tables
        bins = [astuple(size_bin) for size_bin in profile.bins]
    elif profile is not None and profile.dialect == key_averages.DIALECT:
        found = key_averages.tables(text)
    else:
        return [] if profile is None else [(path, profile)], bins
    # A log often holds one per rank or per phase; those of the host alone say nothing.
    useful = [table for table in found if table.profile.totals] or found[:1]
    first, *others = useful
    further = [
        (f"{path} (table {k}, line {table.line})", table.profile)
        for k, table in enumerate(others, start=2)
    ]
    return [(path, first.profile), *further], bins


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


def is_sqlite(data: bytes) -> bool:
    """True for the bytes of an SQLite file."""
    return data[:16] == _SQLITE_MAGIC


def read_sqlite(chunks: Iterable[bytes]) -> Profile | None:
    """Profile of an SQLite file, read from a copy: a profiler's WAL beside it is not touched."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "profile.db"
        with copy.open("wb") as out:
            out.writelines(chunks)
        try:
            with open_foreign(copy) as profile:
                parser = parsers.sqlite_parser(base_tables(profile))
                return parser.parse(profile) if parser else None
        except (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError):
            return None


def text_profile(head: bytes) -> bool:
    """True for the first bytes of a profile that is text."""
    text = head[: 4 * _HEAD_CHARACTERS].decode("utf-8-sig", errors="replace")
    return parsers.text_parser(text[:_HEAD_CHARACTERS]) is not None


def _parse_text(text: str) -> Profile | perftools.SizeTable | None:
    return _parse_beginning(text, _HEAD_CHARACTERS) or _pasted(text)


def _parse_beginning(text: str, characters: int) -> Profile | perftools.SizeTable | None:
    """Profile of the dialect that the first characters show; None when they show none."""
    head = text[:characters]
    if parser := parsers.text_parser(head):
        found: Profile = parser.parse(text)
        return found
    return perftools.parse(text) if perftools.sniff_text(head) else None


def _pasted(text: str) -> Profile | perftools.SizeTable | None:
    """A profiler's table further down in a document; None when no row of one can be read."""
    found = _parse_beginning(text, _DOCUMENT_CHARACTERS)
    first = found.tables[0].profile if isinstance(found, perftools.SizeTable) else found
    return found if first is not None and first.totals else None


def _unclassified(profile: Profile) -> list[Diagnostic]:
    """Names that speak of ccl but are no known collective: for a look by a person."""
    return [
        Diagnostic(
            Severity.NOTICE,
            "unclassified_name",
            "a kernel name with 'ccl' that is no known collective: not counted as one",
            excerpt=total.name[:200],
            count=total.calls,
        )
        for total in profile.totals
        if looks_related(total.name)
    ]
