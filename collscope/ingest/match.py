"""The matching of a run's logs, stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.errors import InputError
from collscope.store.connection import (
    DAMAGED,
    open_readonly,
    open_store,
    snapshot,
    sqlite_errors_as_input_errors,
    transaction,
    wrong_values,
)
from collscope.writing import one_line

if TYPE_CHECKING:
    from collscope.match.copies import Originals
    from collscope.match.run import Matched
    from collscope.model import Diagnostic
    from collscope.model.traced_kernel import TracedKernel
    from collscope.timeline.kernel_waits import KernelWaits

_TWICE_TEXT = (
    "processes with lines on the same communicator in two logs: if one log is a copy of the other,"
    " their calls count twice"
)
_ONCE_TEXT = (
    "call lines that appear twice in the logs (same communicator id, rank, process and calls): "
    "counted once"
)
_GROWN_TEXT = "logs that grew since they were last read: the new reading replaces the earlier one"
_DOUBTFUL_TEXT = (
    "communicators that a process joins twice in one log, with different calls: if lines are "
    "duplicated there, their calls count twice"
)
_SEVERAL_TEXT = (
    "GPUs used by several processes: this run mixes several jobs or starts, and its totals "
    "combine them; give each a run of its own (--run NAME)"
)
_LACKING_TEXT = (
    "calls in which the kernel of one rank is missing: other ranks may have waited for it, so "
    "transfer and waiting are not known"
)
MATCH_FAILED = "match_failed"  # the diagnostic of a run that could not be matched
_INTERRUPTED = "its ingest was interrupted, or is not finished yet"
_WHY = 200  # characters of a reason
# What makes a run's numbers those of more, or less, than one job, and kernel times of no class.
_NOTICE_CODES = (
    "several_jobs",
    "counted_once",
    "grown_log",
    "communicator_twice",
    "process_in_two_logs",
    "rank_claimed_twice",
    "rank_by_calls",
    "rank_traced_twice",
    "several_periods",
    "kernel_without_call",
    "kernel_end_apart",
    "impossible_call",
    "trace_not_placed",
    "traces_apart",
    "ends_apart",
    "clock_jump",
    "clock_drift",
    "steps_differ",
    "launches_unknown",
    "sizes_of_log",
    "no_sizes_of_log",
)


def match_stored(connection: sqlite3.Connection, store: Path, run: str) -> list[Diagnostic]:
    """Match the run again if its sources changed; the calls of before stay until it is done.

    Of several processes that ingest at once, the one that adds the last source has the last word.
    A run, or a period of it, that cannot be matched is marked, and other runs stay readable.

    returns  the notices of an ingest (`_NOTICE_CODES`); none where nothing changed
    """
    # Imported here, as they take longer than many a command that only reads.
    from collscope.ingest.periods import read_periods

    row = connection.execute("SELECT run_id, matched FROM _run WHERE label = ?", (run,)).fetchone()
    if row is None:
        return []
    found = [] if row[1] else _tried(connection, store, row[0], run)
    # Of an earlier ingest, too, which may have ended before it came to them.
    periods = "SELECT label FROM _run WHERE period_of = ? AND NOT matched ORDER BY run_id"
    for (period,) in connection.execute(periods, (row[0],)).fetchall():
        failed = _tried(connection, store, None, period)
        found += [d for d in failed if d.code == MATCH_FAILED]
    if not any(d.code == "several_periods" for d in found):
        return found
    held = "; ".join(f"{p.run}: {p.words}" for p in read_periods(connection, run))
    return [
        replace(d, message=f"{d.message}. {held}") if d.code == "several_periods" else d
        for d in found
    ]


def _tried(
    connection: sqlite3.Connection, store: Path, run: int | None, label: str
) -> list[Diagnostic]:
    """The notices of a run's matching; that it failed, where it did.

    run     its key; None: it is looked up
    raises  InputError for what SQLite refuses, which is of the store and not of the run
    """
    if run is None:
        (run,) = connection.execute("SELECT run_id FROM _run WHERE label = ?", (label,)).fetchone()
    try:
        return _matched(connection, store, run)
    except Exception as error:  # whatever it is: a run must not keep others from being read
        if _of_store(error.__cause__):
            raise
        why = one_line(str(error) or type(error).__name__)[:_WHY]
    from collscope.model import Diagnostic, Severity
    from collscope.store.sources import insert_diagnostics

    note = Diagnostic(Severity.ERROR, MATCH_FAILED, unmatched_text(label, why))
    with transaction(connection, store):
        connection.execute(
            "DELETE FROM _diagnostic WHERE run_id = ? AND source_id IS NULL AND code = ?",
            (run, MATCH_FAILED),
        )
        insert_diagnostics(connection, run, None, [note])
        connection.execute("UPDATE _run SET match_error = ?, due = 0 WHERE run_id = ?", (why, run))
    return [note]


def _of_store(cause: BaseException | None) -> bool:
    """True for an error of SQLite that is not of the values it was given: a lock, a full disk."""
    of_values = sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError
    if not isinstance(cause, sqlite3.DatabaseError) or isinstance(cause, of_values):
        return False
    return "integer overflow" not in str(cause)


def _matched(connection: sqlite3.Connection, store: Path, run: int) -> list[Diagnostic]:
    """Match a run, and store what comes of it."""
    from collscope.ingest.grown import forget_grown
    from collscope.ingest.periods import separate_periods
    from collscope.ingest.same_recordings import forget_same_recordings
    from collscope.ingest.stored_calls import (
        has_logs,
        has_traces,
        is_superseded,
        load_run,
        store_matching,
        with_parts_joined,
        without_copies,
    )
    from collscope.match.run import match_run
    from collscope.model import Diagnostic, Severity

    with transaction(connection, store):
        grown = forget_grown(connection, run)
        same = forget_same_recordings(connection, run)
    periods = separate_periods(connection, store, run)
    with snapshot(connection, store):
        given, originals = without_copies(load_run(connection, run))
        given, rotated = with_parts_joined(given)
        matched = match_run(given.logged, given.processes, given.kernels)
        waits = _kernel_waits(given.kernels, matched)
        matched.diagnostics += _of_processes(connection, run, originals, rotated)
        if grown:
            matched.diagnostics.append(
                Diagnostic(Severity.NOTICE, "grown_log", _GROWN_TEXT, count=grown)
            )
        if periods:
            matched.diagnostics.append(_of_periods(periods, logs=has_logs(connection, run)))
        traces = has_traces(connection, run)
        traced = _match_traces(connection, run, matched) if traces else None
    with transaction(connection, store):
        if is_superseded(connection, run, given):
            return []
        first_call = store_matching(connection, run, given, matched, waits)
        if traced is not None:
            traced(first_call)
    return [*same, *(d for d in matched.diagnostics if d.code in _NOTICE_CODES)]


def rematch(store: Path, run: str) -> list[Diagnostic]:
    """Match a run again, matched or not; returns the notices of it, as at ingest.

    raises  InputError when the store refuses, or has no such run
    """
    with closing(open_store(store)) as connection:
        require_known(connection, store, run)
        with transaction(connection, store):
            connection.execute("UPDATE _run SET matched = 0 WHERE label = ?", (run,))
        return match_stored(connection, store, run)


def match_due(connection: sqlite3.Connection, store: Path) -> None:
    """Finish a migration: match the runs that it made due, each in a transaction of its own.

    What the ingest would say of them is in the view `diagnostics`.
    """
    due = connection.execute("SELECT label FROM _run WHERE due > 0 ORDER BY run_id").fetchall()
    for (run,) in due:
        with transaction(connection, store):
            connection.execute("UPDATE _run SET due = due - 1 WHERE label = ?", (run,))
        match_stored(connection, store, run)


def _kernel_waits(kernels: Sequence[TracedKernel], matched: Matched) -> KernelWaits | None:
    """Waits by the kernel trace of the run's logs; None where it has none.

    Imported here: most logs have none, and a run without needs none of it.
    """
    if matched.joined is None:
        return None
    from collscope.model import Diagnostic, Severity
    from collscope.timeline.kernel_waits import kernel_waits

    waits = kernel_waits(kernels, matched.joined)
    if waits.incomplete:
        note = Diagnostic(
            Severity.NOTICE, "kernel_ranks_missing", _LACKING_TEXT, count=waits.incomplete
        )
        matched.diagnostics.append(note)
    return waits


def _of_periods(periods: list[str], *, logs: bool) -> Diagnostic:
    """Notice of profiled periods, starts or jobs that have runs of their own.

    logs  the run holds logs, too
    """
    from collscope.model import Diagnostic, Severity

    text = (
        "profiled periods, starts or jobs whose ranks already have a trace, or whose collectives "
        f"end at other times, became runs of their own ({', '.join(periods)})"
    )
    if logs:
        text += (
            ". The logs are joined to the traces that were read first; to join them to other "
            "traces, ingest those traces and the logs with --run NAME"
        )
    return Diagnostic(Severity.NOTICE, "several_periods", text, count=len(periods))


def _of_processes(
    connection: sqlite3.Connection, run: int, originals: Originals, rotated: set[tuple[str, int]]
) -> list[Diagnostic]:
    """Notices of lines that appear twice in the logs, and of processes that share a GPU.

    rotated  processes whose log is in parts
    """
    from collscope.ingest.stored_calls import processes_in_two_logs, shared_gpus
    from collscope.model import Diagnostic, Severity

    doubled = processes_in_two_logs(connection, run) - originals.copied_processes - rotated
    counts = (
        ("counted_once", _ONCE_TEXT, len(originals.lost_rows)),
        ("communicator_twice", _DOUBTFUL_TEXT, originals.doubtful),
        ("process_in_two_logs", _TWICE_TEXT, len(doubled)),
        ("several_jobs", _SEVERAL_TEXT, shared_gpus(connection, run)),
    )
    return [Diagnostic(Severity.NOTICE, code, text, count=n) for code, text, n in counts if n]


def _match_traces(
    connection: sqlite3.Connection, run: int, matched: Matched
) -> Callable[[int], None]:
    """Join the run's traces to its calls; returns what stores them, given the first call's key.

    Imported here: a run of logs alone needs none of it.
    """
    from collscope.ingest.match_traces import match_traces, store_trace_match
    from collscope.ingest.stored_traces import has_doubtful_trace, load_traces

    (steps,) = connection.execute("SELECT steps FROM _run WHERE run_id = ?", (run,)).fetchone()
    given = load_traces(connection, run, host=False)
    found = match_traces(given, matched, steps, doubted=has_doubtful_trace(connection, run))
    return lambda first_call: store_trace_match(connection, run, found, first_call)


@contextmanager
def reading(store: Path) -> Iterator[sqlite3.Connection]:
    """A store for reading; closed at the end.

    All queries see the state at the first query, whatever other processes write meanwhile. Nothing
    is written but the migration of an older store.

    raises  InputError when the store cannot be read, also in the middle
    """
    with sqlite_errors_as_input_errors(store):
        connection = _opened(store)
        try:
            with snapshot(connection, store):
                yield connection
        except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
            wrong = wrong_values(connection)
            if wrong is None:
                raise
            raise InputError(f"{store}: {wrong}: {DAMAGED}") from error
        finally:
            connection.close()


def _opened(store: Path) -> sqlite3.Connection:
    """Open a store for reading, after finishing what a migration made due."""
    connection = open_readonly(store)
    if connection.execute("SELECT EXISTS (SELECT 1 FROM _run WHERE due > 0)").fetchone()[0]:
        connection.close()
        with closing(open_store(store)) as writer:
            match_due(writer, store)
        connection = open_readonly(store)
    return connection


def unmatched(connection: sqlite3.Connection) -> dict[str, str]:
    """The runs that are not matched, each with the reason."""
    rows = connection.execute(
        "SELECT label, match_error FROM _run WHERE NOT matched ORDER BY label"
    ).fetchall()
    return {run: _INTERRUPTED if why is None else why for run, why in rows}


def unmatched_text(run: str, why: str) -> str:
    """That a run is not matched, and what to do."""
    return f"run '{run}': its calls are not matched ({why}). {_remedy(run)}"


def _remedy(run: str) -> str:
    return f"Run 'collscope runs rematch {run}', or remove it with 'collscope runs rm {run}'."


def require_run(connection: sqlite3.Connection, store: Path, run: str) -> None:
    """Raise InputError when the store does not hold the run, or it is not matched."""
    require_known(connection, store, run)
    require_matched(connection, store, run)


def require_matched(connection: sqlite3.Connection, store: Path, run: str) -> None:
    """Raise InputError when the run is there and not matched."""
    why = unmatched(connection).get(run)
    if why is not None:
        raise InputError(f"{store}: {unmatched_text(run, why)}")


def require_known(connection: sqlite3.Connection, store: Path, run: str) -> None:
    """Raise InputError when the store does not hold the run, naming those it does."""
    runs = [r[0] for r in connection.execute("SELECT DISTINCT run FROM sources ORDER BY run")]
    if not runs:
        raise InputError(f"{store}: the store is empty. Run 'collscope ingest auto PATH' first.")
    if run not in runs:
        known = ", ".join(f"'{r}'" for r in runs)
        raise InputError(f"{store}: no run '{run}' (runs: {known}). Name one of them.")
