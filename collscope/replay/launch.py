"""Start the replayer on its ranks, wait for it, and leave nothing running behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType

import msgspec

from collscope.errors import MissingToolError
from collscope.programs import INSTALL_MPI, REPLAYER, ask, installed
from collscope.replay.mpi import LaunchedRank, find_launcher, launch_command
from collscope.replay.progress import Relay

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_GRACE_S = 10.0  # for the launcher to end its ranks after it was asked to
_PROGRESS_EVERY_S = 1.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # signals that would end this process


class Job(msgspec.Struct, frozen=True):
    """What one start of the replayer, or another program of ours, needs."""

    arguments: tuple[str, ...]  # of the program
    processes: int
    environment: tuple[tuple[str, str], ...] = ()  # for the ranks, added to what they inherit
    program: Path | None = None  # of MPI; None: the installed replayer
    launcher: str | None = None  # with its arguments; None: found by itself
    unset: tuple[str, ...] = ()  # variables that the ranks must not inherit; `environment` wins


class Ended(msgspec.Struct, frozen=True):
    """How a job ended."""

    status: int  # exit status of the replayer or its launcher
    signal: int | None = None  # that ended a rank


def find_replayer(given: Path | None) -> Path:
    """The replayer to start.

    raises  MissingToolError when it is not there
    """
    return find_program(REPLAYER, given, "--replayer")


def find_program(name: str, given: Path | None, option: str) -> Path:
    """The executable to start: the one given, else that of this installation.

    option  names one on the command line
    raises  MissingToolError when it is not there, or the libmpi it is linked with is not
    """
    path = given or installed(name)
    if path is None:
        raise MissingToolError(
            f"{name}: not part of this installation. Reinstall collscope, or name one with "
            f"{option}."
        )
    if "/" not in str(path):  # a name; as every program that is started, it is one of PATH
        path = Path(shutil.which(path) or path)
    if "/" not in str(path):
        raise MissingToolError(f"{path}: not in PATH. Name a file, as in {option} ./{path}.")
    if not os.access(path, os.X_OK) or path.is_dir():
        raise MissingToolError(f"{path}: not an executable. Name another one with {option}.")
    if given is None and (wrong := ask([str(path), "--version"]).error) is not None:
        raise MissingToolError(
            f"{name}: {wrong}. Run {INSTALL_MPI}, load an MPI of MPICH's binary interface, or name "
            f"a program that was built with your site's MPI with {option}."
        )
    return path


def run_job(
    job: Job, place: LaunchedRank | None, progress: Callable[[], str] | None = None
) -> Ended:
    """Run a job to its end, its messages passed on to standard error as they come.

    place     where this process is one of several that a launcher started; the job is then this
              rank's part only
    progress  text on the job's progress; called every second where standard error is a terminal
    raises    MissingToolError when a program is missing; KeyboardInterrupt after the ranks ended
    """
    program = find_replayer(job.program)
    given = dict(job.environment)
    unset = [name for name in job.unset if name not in given]
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    command = [str(program), *job.arguments]
    if unset:
        # On other hosts a rank may get variables from a shell there as well. An empty value would
        # not do: to the libraries that is a setting too.
        command[:0] = ["env", *(part for name in unset for part in ("-u", name))]
    # One process is a job of MPI without a launcher.
    if place is None and job.processes > 1:
        launcher = find_launcher(job.launcher)
        command[:0] = launch_command(
            launcher, job.processes, job.environment, root=os.geteuid() == 0
        )
        if launcher.implementation == "Slurm":
            environment.update(job.environment)
    else:
        environment.update(job.environment)
    return _run(command, environment, progress)


def _run(
    command: Sequence[str], environment: dict[str, str], progress: Callable[[], str] | None
) -> Ended:
    with _held() as mask, _started(command, environment, mask) as process:
        assert process.stdout is not None
        relay = Relay(process.stdout)
        try:
            with _forwarding(process, mask):
                status = _wait(process, relay, progress if relay.terminal else None)
        finally:
            relay.finish()
    return Ended(abs(status), -status if status < 0 else relay.signal)


def _wait(
    process: subprocess.Popen[bytes], relay: Relay, progress: Callable[[], str] | None
) -> int:
    """The exit status of a process that ended; `progress` is shown while it runs."""
    while progress is not None and process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PROGRESS_EVERY_S)
        relay.show(progress())
    return process.wait()


@contextlib.contextmanager
def _held() -> Iterator[Collection[int]]:
    """Signals wait until they can be forwarded; gives the mask to be set then.

    One that comes while a process is started would be lost: Python drops what is raised in the
    functions that it calls around a fork.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def _started(
    command: Sequence[str], environment: dict[str, str], mask: Collection[int]
) -> Iterator[subprocess.Popen[bytes]]:
    """The process, in a session of its own: what outlives the block is killed, children too."""
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # Hydra reports a dead rank there
            stderr=subprocess.STDOUT,
            start_new_session=True,
            close_fds=False,  # a rank talks to its launcher through an inherited descriptor
            preexec_fn=lambda: _end_with_parent(mask),  # noqa: PLW1509 - no thread runs yet
        )
    except OSError as error:
        raise MissingToolError(
            f"{command[0]}: {error.strerror}. Check the file and its permissions."
        ) from error
    try:
        yield process
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _end_with_parent(mask: Collection[int]) -> None:
    """Let the kernel send SIGTERM when collscope ends, even by SIGKILL; restore the signal mask."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class _Interrupted(KeyboardInterrupt):
    """A signal that asks this process to end."""


@contextlib.contextmanager
def _forwarding(process: subprocess.Popen[bytes], mask: Collection[int]) -> Iterator[None]:
    """Hand a signal that would end this process to the job, and end when the job has ended.

    What is ignored stays so: `nohup` ignores SIGHUP, a shell's background job SIGINT.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        raise _Interrupted(number)

    handled = [n for n in _ENDING if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in handled}
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield
    except _Interrupted:
        # The launcher ends its ranks on SIGTERM; one that does not is killed by `_started`.
        for number in handled:
            signal.signal(number, signal.SIG_IGN)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
