"""What the ingest commands do: every input in turn, then the matching.

Modules that need numpy are imported where they are used: the first log is being scanned meanwhile.
"""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.errors import InputError, UnreadableError
from collscope.ingest.files import ArchiveError, Input, open_input
from collscope.ingest.paths import STDIN, Expanded, expand, printable
from collscope.ingest.progress import DEFAULT_READING, Reading
from collscope.ingest.read import READERS, read_members
from collscope.ingest.scan import ScansAhead
from collscope.interrupts import ctrl_c_deferred
from collscope.kernel_names import current_name_patterns
from collscope.outputs import note_input
from collscope.store.connection import (
    is_store,
    open_store,
    remove_empty,
    sqlite_errors_as_input_errors,
)
from collscope.store.runs import sizes_by_logs
from collscope.units import count_of

if TYPE_CHECKING:
    from collscope.ingest.ahead import PartsAhead
    from collscope.ingest.result import Ingested
    from collscope.parsers.hints import MetricHints, TableHints

    _Ingest = Callable[[sqlite3.Connection, Input], Ingested]
    _IngestPath = Callable[[sqlite3.Connection, str], list[Ingested]]  # all that a file holds


_LOST_TEXT = (
    "workers that ended while they read a file: the file was read again, and nothing is missing"
)


def ingest_logs(
    paths: list[str], db: Path, run: str, reading: Reading = DEFAULT_READING
) -> list[Ingested]:
    """Put logs into a run and match its calls.

    raises  InputError when none of the paths holds a usable log
    """
    given = expand(paths)
    read = _reader("log", db, run, reading)
    if _shared(given.files, reading):
        return _ingest_all(given, db, run, read, reading, "log")
    with ScansAhead(given.files, reading) as scans:
        from collscope.ingest.logs import store_log

        def every(connection: sqlite3.Connection, path: str) -> list[Ingested]:
            try:
                return [store_log(connection, db, run, scans.take(path))]
            except ArchiveError:
                if path == STDIN or not Path(path).is_file():  # it cannot be read again
                    raise
            return read(connection, path)

        return _ingest_all(given, db, run, every, reading, "log")


def ingest_profiles(
    paths: list[str], db: Path, run: str, reading: Reading = DEFAULT_READING
) -> list[Ingested]:
    """Put profiles into a run.

    raises  InputError when none of the paths holds a usable profile
    """
    from collscope.ingest.profiles import ingest_profile

    return _ingest(
        "profile", paths, db, run, lambda c, file: ingest_profile(c, db, run, file), reading
    )


def ingest_traces(
    paths: list[str],
    db: Path,
    run: str,
    reading: Reading = DEFAULT_READING,
    steps: int | None = None,
) -> list[Ingested]:
    """Put traces, recordings and tables of totals into a run, and match its calls.

    steps   in each trace of the run; None: they are found
    raises  InputError when none of the paths holds a usable one
    """
    read = _reader("trace", db, run, reading)
    return _ingest_all(expand(paths), db, run, read, reading, "trace", steps)


def ingest_csvs(
    paths: list[str],
    db: Path,
    run: str,
    nranks: int | None = None,
    label: str | None = None,
    reading: Reading = DEFAULT_READING,
) -> list[Ingested]:
    """Put replay CSVs into a run; `nranks` and `label` as `collscope.ingest.replays` has them.

    raises  InputError when none of the paths holds a usable CSV
    """
    from collscope.ingest.measurements import ingest_csv

    def one(connection: sqlite3.Connection, file: Input) -> Ingested:
        return ingest_csv(connection, db, run, file, nranks, label)

    return _ingest("csv", paths, db, run, one, reading)


def ingest_tables(
    paths: list[str], db: Path, run: str, hints: TableHints, reading: Reading = DEFAULT_READING
) -> list[Ingested]:
    """Put benchmark tables into a run; `hints` hold for every file.

    raises  InputError when none of the paths holds a usable table
    """
    from collscope.ingest.measurements import ingest_table

    return _ingest(
        "table", paths, db, run, lambda c, file: ingest_table(c, db, run, file, hints), reading
    )


def ingest_metrics(
    paths: list[str], db: Path, run: str, hints: MetricHints, reading: Reading = DEFAULT_READING
) -> list[Ingested]:
    """Put an application's figures into a run; `hints` hold for every file.

    raises  InputError when none of the paths holds a figure
    """
    from collscope.ingest.metrics import ingest_metric

    return _ingest(
        "metric", paths, db, run, lambda c, file: ingest_metric(c, db, run, file, hints), reading
    )


def ingest_auto(
    paths: list[str], db: Path, run: str, reading: Reading = DEFAULT_READING
) -> list[Ingested]:
    """Put each path into a run as every kind that `collscope.ingest.auto` finds in it.

    raises  InputError when none of the paths is usable
    """
    return _ingest_all(expand(paths), db, run, _reader("auto", db, run, reading), reading)


def _reader(kind: str, db: Path, run: str, reading: Reading) -> _IngestPath:
    def read(connection: sqlite3.Connection, path: str) -> list[Ingested]:
        report = reading.progress.read
        return READERS[kind](connection, db, run, path, reading.most_bytes, report)

    return read


def _shared(files: list[str], reading: Reading) -> bool:
    """Whether workers read these files."""
    return reading.workers is not None and reading.workers.worth(files)


def _ingest(
    kind: str, paths: list[str], db: Path, run: str, one: _Ingest, reading: Reading
) -> list[Ingested]:
    def every(connection: sqlite3.Connection, path: str) -> list[Ingested]:
        return read_members(path, reading.most_bytes, lambda file: [one(connection, file)])

    return _ingest_all(expand(paths), db, run, every, reading, kind)


def _ahead(files: list[str], reading: Reading, kind: str | None, run: str) -> PartsAhead | None:
    """What workers make of the files; None where this process reads them."""
    if reading.workers is None or not _shared(files, reading):
        return None
    from collscope.ingest.ahead import PartsAhead
    from collscope.ingest.parts import Job

    patterns = tuple((pattern.pattern, op) for pattern, op in current_name_patterns())
    job = Job(kind or "auto", run, reading.most_bytes, patterns, str(Path.cwd()))
    return PartsAhead(reading.workers, job, files)


def _taken(ahead: PartsAhead, every: _IngestPath, db: Path) -> _IngestPath:
    """What puts a path into the store as a worker has read it, or else by `every`."""
    from collscope.ingest.parts import take_part

    def take(connection: sqlite3.Connection, path: str) -> list[Ingested]:
        part = ahead.take(path)
        if part is None or part.store is None:
            return every(connection, path)
        return take_part(connection, db, part)

    return take


def _ingest_all(  # noqa: PLR0913, PLR0917 - what, where to, how
    given: Expanded,
    db: Path,
    run: str,
    every: _IngestPath,
    reading: Reading,
    kind: str | None = None,
    steps: int | None = None,
) -> list[Ingested]:
    """Every file in turn, then the matching.

    kind   the command; None: it reads all kinds
    steps  in each trace of the run; None: they are found
    """
    from collscope.ingest.match import match_stored
    from collscope.ingest.result import Ingested, IngestInterruptedError
    from collscope.model import Diagnostic, Severity
    from collscope.store.sources import set_steps
    from collscope.temporary import remove_abandoned

    files = given.files
    skipped = [Ingested(printable(path), "unusable", reason=why) for path, why in given.skipped]
    alone = len(files) + len(skipped) == 1
    results: list[Ingested] = []
    progress = reading.progress
    done = 0
    for path in files:
        if path != STDIN:
            note_input(path)
    with _store(db) as connection:
        progress.begin(files)
        try:
            ahead = _ahead(files, reading, kind, run)
            read_path = every if ahead is None else _taken(ahead, every, db)
            for done, path in enumerate(files):  # noqa: B007 - how many are, where it ends early
                results += _tolerant(read_path, connection, path, alone=alone)
                if steps is not None:
                    set_steps(connection, db, run, steps)
                progress.finish(path)
            done = len(files)
            progress.match()
            notices = match_stored(connection, db, run)
            if ahead is not None and ahead.lost:
                notices.append(
                    Diagnostic(Severity.NOTICE, "worker_lost", _LOST_TEXT, count=ahead.lost)
                )
            if sizes_by_logs(connection, run):
                results = [_without(r, "no_collective_arguments") for r in results]
        except KeyboardInterrupt as error:
            read = count_of(done, len(files), "file")
            verb = "is" if len(files) == 1 else "are"
            kept = f"{read} {verb} read and kept in {db}; run the command again to continue."
            usable = any(r.status != "unusable" for r in results)
            raise IngestInterruptedError(
                f"ingest: interrupted. {kept if usable else 'Nothing was stored.'}", results
            ) from error
        finally:
            progress.end()
    # A killed ingest left its copies; once its files are known, none of them is copied again.
    remove_abandoned()
    results += skipped
    if results and all(r.status == "unusable" for r in results):
        more = f" (and {len(results) - 1} more)" if len(results) > 1 else ""
        reason = str(results[0].reason).removesuffix(".")
        remedy = _instead(files[0], kind, results[0]) if files else ""
        raise InputError(f"{results[0].path}{more}: {reason}. Nothing was stored.{remedy}")
    of_run = Ingested(f"run '{run}'", "matched", diagnostics=tuple(notices))
    return [*results, of_run] if notices else results


def _without(result: Ingested, code: str) -> Ingested:
    """What became of an input, without a notice that the run's other sources have overtaken."""
    return replace(result, diagnostics=tuple(d for d in result.diagnostics if d.code != code))


def _instead(path: str, kind: str | None, result: Ingested) -> str:
    """What to do with a file that the command of `kind` refused; may be empty."""
    if is_store(Path(path)):
        return f" It is a store: name it with --db {shlex.quote(path)}."
    other = None if kind is None or result.code == "own_output" else _other_kind(path, kind)
    return f" It looks like a {other}: use 'collscope ingest {other}'." if other else ""


def _other_kind(path: str, kind: str) -> str | None:
    """The command that reads what the command of `kind` refused, where it is known."""
    from collscope.ingest.auto import kind_of

    if path == STDIN or not Path(path).is_file():
        return None
    try:
        with open_input(path) as file:
            found = kind_of(file)
    except UnreadableError:
        return None
    return None if found == kind else found


def _tolerant(
    every: _IngestPath, connection: sqlite3.Connection, path: str, *, alone: bool
) -> list[Ingested]:
    """One input of many must not keep the others out: what cannot be read is unusable."""
    from collscope.ingest.result import Ingested

    try:
        found = every(connection, path)
    except UnreadableError as error:
        if alone:
            raise
        found = [Ingested(path, "unusable", reason=error.reason)]
    except UnicodeEncodeError:  # of a pickle: text with half of a character, which no store takes
        found = [Ingested(path, "unusable", reason="it holds text that is not Unicode")]
    return [replace(result, path=printable(result.path)) for result in found]


@contextmanager
def _store(db: Path) -> Iterator[sqlite3.Connection]:
    """The store for writing; one that is made here and gets no source does not stay."""
    new = not db.exists()
    from collscope.ingest.match import match_due

    connection: sqlite3.Connection | None = None
    try:
        with ctrl_c_deferred():  # a store that is half made could not be removed
            connection = open_store(db)
        with sqlite_errors_as_input_errors(db):
            match_due(connection, db)
            yield connection
    finally:
        if connection is not None:
            if new:
                remove_empty(connection, db)
            connection.close()
