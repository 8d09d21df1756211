"""One file as a small store in memory: what a worker makes of it, and how the writer takes it.

A part holds what one process would have put into the store itself, so any executor reads any kind
of file, and only the writer touches the store.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from collscope.ingest.adding import known
from collscope.ingest.paths import printable
from collscope.ingest.progress import NO_PROGRESS
from collscope.ingest.read import READERS
from collscope.ingest.result import Ingested
from collscope.kernel_names import counting_as_collectives
from collscope.store.connection import deserialised, empty_store, transaction
from collscope.store.copy_sources import copy_sources
from collscope.store.sources import has_source, same_content

# What of a file does not depend on other files of its run, as ranks and copies of measurements do.
_INDEPENDENT_KINDS = {"log", "trace"}
_SOURCES = "SELECT path, dialect, label, sha256 FROM _source JOIN _run USING (run_id)"
_IN_MEMORY = Path("a store in memory")  # in errors alone


class Job(msgspec.Struct, frozen=True):
    """What a worker must know in addition to the path of a file."""

    kind: str  # the command: log, trace, auto
    run: str
    most_bytes: int | None
    collectives: tuple[tuple[str, str], ...]  # patterns and operations of --collective
    folder: str  # that relative paths begin in


class LogPart(msgspec.Struct, frozen=True):
    """What a worker made of one file."""

    store: bytes | None  # None: the writer is to read the file
    results: tuple[Ingested, ...]


def read_part(job: Job, path: str) -> LogPart:
    """Read a file into a store of its own; runs in a worker.

    raises  UnreadableError
    """
    if Path.cwd() != Path(job.folder):
        os.chdir(job.folder)
    patterns = tuple((re.compile(pattern), op) for pattern, op in job.collectives)
    with closing(empty_store()) as connection, counting_as_collectives(patterns):
        read = READERS[job.kind]
        found = read(connection, _IN_MEMORY, job.run, path, job.most_bytes, NO_PROGRESS.read)
        kinds = {kind for (kind,) in connection.execute("SELECT DISTINCT kind FROM _source")}
        if not kinds <= _INDEPENDENT_KINDS:
            return LogPart(None, ())
        return LogPart(connection.serialize() if kinds else b"", tuple(found))


def take_part(connection: sqlite3.Connection, store: Path, part: LogPart) -> list[Ingested]:
    """Put what a worker made of a file into the store, in one transaction.

    raises  InputError when the store refuses
    """
    if not part.store:
        return list(part.results)
    with closing(deserialised(part.store)) as given, transaction(connection, store):
        stored = {
            (path, dialect): known(connection, run, path, same)
            for path, dialect, run, identity in given.execute(_SOURCES)
            for same in same_content(identity)
            if has_source(connection, run, same)
        }
        copy_sources(given, connection, str)
    return [stored.get((printable(result.path), result.dialect), result) for result in part.results]
