"""Start collscope-microbench, and say what its end means."""

from __future__ import annotations

import signal
from pathlib import Path

from collscope.errors import (
    CollscopeError,
    InputError,
    MissingToolError,
    ReplayError,
    UsageError,
)
from collscope.programs import MICROBENCH
from collscope.replay.launch import Ended, Job, find_program, run_job

PROGRAM_OPTION = "--microbench"  # names another executable
# What the program's exit statuses mean; it has said itself what was wrong.
_ERRORS: dict[int, type[CollscopeError]] = {2: UsageError, 3: InputError, 5: MissingToolError}


def start_microbench(
    arguments: tuple[str, ...],
    processes: int,
    *,
    environment: tuple[tuple[str, str], ...] = (),
    program: Path | None = None,
    launcher: Path | None = None,
) -> Ended:
    """Run a benchmark to its end; its messages go to standard error.

    arguments  the benchmark's name and its options
    program    None: the one of this installation
    raises     MissingToolError when a program is missing; KeyboardInterrupt after the ranks ended
    """
    path = find_program(MICROBENCH, program, PROGRAM_OPTION)
    return run_job(Job(arguments, processes, environment, path, launcher), None)


def error_of(ended: Ended, where: str, kept: str) -> CollscopeError | None:
    """What an end means, None when all went well.

    kept  a sentence: what is finished, and where it is
    """
    if ended.signal is not None:
        name = signal.Signals(ended.signal).name
        return ReplayError(f"{where}: a process was ended by signal {name}. {kept}")
    if ended.status == 0:
        return None
    kind = _ERRORS.get(ended.status, ReplayError)
    return kind(f"{where}: {MICROBENCH} ended with status {ended.status}, see above. {kept}")
