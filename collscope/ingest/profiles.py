"""Profiles into the store: SQLite files by their tables, text by its first lines."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from urllib.parse import quote

from collscope import parsers
from collscope.ingest.adding import add_source, cut_short, unusable
from collscope.ingest.files import open_input, printable
from collscope.ingest.result import Ingested
from collscope.kernel_names import looks_related
from collscope.model import Diagnostic, Profile, Severity
from collscope.parsers import perftools
from collscope.store import sources

_SQLITE_MAGIC = b"SQLite format 3\0"
_HEAD_CHARACTERS = 4096
_DOCUMENT_CHARACTERS = 1 << 20  # looked through for a pasted table


def ingest_profile(connection: sqlite3.Connection, store: Path, run: str, path: str) -> Ingested:
    """Put one profile into the store, in one transaction.

    raises  InputError when the file cannot be read or the store refuses
    """
    with open_input(path) as reader:
        data = b"".join(reader.chunks())
    # The kernels of an SQLite profile are the same whichever command reads them.
    kinds = ("profile", "trace") if is_sqlite(data) else ("profile",)
    known = [sources.identity(reader.sha256, kind) for kind in kinds]
    if any(sources.has_source(connection, run, identity) for identity in known):
        return Ingested(path, "known")
    profile = read_sqlite(data) if is_sqlite(data) else _parse_text(data)
    if profile is None:
        return unusable(path, _why_unusable(data), size=len(data), truncated=reader.truncated)
    bins = _bins(data) if profile.dialect == "perftools" else []
    diagnostics = [*profile.diagnostics, *_unclassified(profile), *cut_short(reader)]
    row = sources.SourceRow(printable(path), known[0], "profile", profile.dialect)

    def insert(_run_key: int, source: int) -> None:
        sources.insert_profile(connection, source, profile.totals, profile.spans)
        connection.executemany(
            "INSERT INTO _message_bin VALUES (?,?,?,?,?,?)", [(source, *b) for b in bins]
        )

    if add_source(connection, store, run, row, diagnostics, insert) == "known":
        return Ingested(path, "known")
    counts = (
        ("kernel names", len(profile.totals)),
        ("kernel executions", len(profile.spans)),
        ("message sizes", len(bins)),
    )
    return Ingested(path, "added", profile.dialect, counts, tuple(diagnostics))


def is_sqlite(data: bytes) -> bool:
    """True for the bytes of an SQLite file."""
    return data[:16] == _SQLITE_MAGIC


def read_sqlite(data: bytes) -> Profile | None:
    """Profile of an SQLite file, read from a copy: a profiler's WAL beside it is not touched."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "profile.db"
        copy.write_bytes(data)
        uri = f"file:{quote(str(copy))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as profile:
            try:
                rows = profile.execute(
                    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
                ).fetchall()
            except (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError):
                return None
            parser = parsers.sqlite_parser({name for (name,) in rows})
            return parser.parse(profile) if parser else None


def text_profile(head: bytes) -> bool:
    """True for the first bytes of a profile that is text."""
    text = head[: 4 * _HEAD_CHARACTERS].decode("utf-8", errors="replace")
    return parsers.text_parser(text[:_HEAD_CHARACTERS]) is not None


def _parse_text(data: bytes) -> Profile | None:
    text = data.decode("utf-8", errors="replace")
    parser = parsers.text_parser(text[:_HEAD_CHARACTERS])
    if parser:
        found: Profile = parser.parse(text)
        return found
    if perftools.sniff_text(text[:_HEAD_CHARACTERS]):
        return perftools.parse(text).profile
    return _pasted(text)


def _pasted(text: str) -> Profile | None:
    """A profiler's table further down in a document; None when no row of one can be read."""
    head = text[:_DOCUMENT_CHARACTERS]
    parser = parsers.text_parser(head)
    profile: Profile | None = parser.parse(text) if parser else None
    if profile is None and perftools.sniff_text(head):
        profile = perftools.parse(text).profile
    return profile if profile and profile.totals else None


def _bins(data: bytes) -> list[tuple[object, ...]]:
    """Messages and copies by size of a perftools report."""
    found = perftools.parse(data.decode("utf-8", errors="replace")).bins
    return [astuple(size_bin) for size_bin in found]


def _why_unusable(data: bytes) -> str:
    if is_sqlite(data):
        return "an SQLite file without the tables of RPD, rocpd or Nsight Systems, or damaged"
    if b" NCCL INFO " in data[:65536]:
        return "looks like a log: use 'collscope ingest log'"
    return (
        "no known profile: RPD, rocpd, Nsight Systems SQLite, rocprof CSV, pasted 'top' or "
        "key_averages"
    )


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
