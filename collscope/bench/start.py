"""What benchmarks of collscope-microbench share: start it, read its CSV, explain how it ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from msgspec.structs import replace

from collscope.errors import (
    CollscopeError,
    InputError,
    MissingToolError,
    ReplayError,
    UsageError,
)
from collscope.programs import MICROBENCH
from collscope.replay.launch import Ended, Job, find_program, run_job
from collscope.replay.mpi import RUN_ALONE, launched
from collscope.replay.session import Target, check_target

PROGRAM_OPTION = "--microbench"  # names another executable
# What the program's exit statuses mean. It has printed what was wrong.
_ERRORS: dict[int, type[CollscopeError]] = {2: UsageError, 3: InputError, 5: MissingToolError}


class BenchInterruptedError(ReplayError):
    """A signal ended the benchmark; what was finished is kept."""

    exit_code = 130


def check_start(where: str, target: Target) -> None:
    """Refuse, before anything starts, what cannot work.

    where   name of the benchmark
    raises  UsageError under a launcher of ranks; InputError for files that cannot be written
    """
    if launched(os.environ) is not None:
        raise UsageError(f"{where}: started by srun or mpirun. {RUN_ALONE}")
    check_target(target)


def start_microbench(job: Job, csv: Path, what: str) -> Ended:
    """Run a benchmark to its end; its messages go to standard error.

    job     its program None: the one of this installation
    csv     where its rows go: a terminal shows their number
    what    is measured, for the terminal
    raises  MissingToolError when a program is missing; KeyboardInterrupt after the ranks ended
    """
    path = find_program(MICROBENCH, job.program, PROGRAM_OPTION)
    return run_job(replace(job, program=path), None, lambda: f"{what}: {_rows(csv)} rows so far")


def _rows(csv: Path) -> int:
    """Rows of a CSV that is being written: lines but for comments and the names of columns."""
    lines = sum(not line.startswith("#") for line in read_csv(csv).splitlines())
    return max(0, lines - 1)


def read_csv(csv: Path) -> str:
    """Text of the CSV of a benchmark; empty without the file.

    raises  InputError when it cannot be read
    """
    try:
        return csv.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(f"{csv}: {error.strerror}. Check the path given by --csv.") from error


def error_of(
    ended: Ended | None,
    where: str,
    target: Target,
    *,
    rows: int,
    good: int,
    program: str = MICROBENCH,
) -> CollscopeError | None:
    """The error of a program that failed; None when all went well.

    ended   None: interrupted
    rows    that the benchmark left
    good    of them, those with a result
    program  that was started
    raises  that error when there are no rows at all
    """
    kept = f"{good} rows are kept in {os.path.relpath(target.csv or target.db)}."
    error = _error_of(ended, where, kept if good else "Nothing was measured.", program)
    if not rows:
        raise error or ReplayError(f"{where}: ended without a result. Check that it is {program}.")
    return error


def _error_of(ended: Ended | None, where: str, kept: str, program: str) -> CollscopeError | None:
    if ended is None:
        return BenchInterruptedError(f"{where}: interrupted. {kept}")
    if ended.signal is not None:
        name = signal.Signals(ended.signal).name
        return ReplayError(f"{where}: a process was killed by signal {name}. {kept}")
    if ended.status == 0:
        return None
    kind = _ERRORS.get(ended.status, ReplayError)
    return kind(f"{where}: {program} ended with status {ended.status}, see above. {kept}")
