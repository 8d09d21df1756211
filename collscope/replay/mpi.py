"""Under which launcher this process runs, and how each launcher starts ranks.

Flags differ by implementation: Hydra (MPICH, Intel MPI) stops at `--oversubscribe` and
`--allow-run-as-root`, and Open MPI refuses to start without them where they apply.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from collscope.errors import MissingToolError, UsageError
from collscope.programs import INSTALL_MPI, launchers, mpi_version, named_file

_VERSION_TIMEOUT_S = 30  # for `mpiexec --version`
# Remedy for a command that starts its ranks itself, but was started by a launcher.
RUN_ALONE = "Run the command without a launcher; under Slurm, add --mpiexec 'srun --mpi=pmi2'."

# Variables of rank and number of ranks, by launcher; the first pair that is set counts.
_RANK_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # Hydra; srun --mpi=pmi2; Cray PALS
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),  # srun --mpi=pmix
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # srun with another or no plugin
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),  # flux run
)


class LaunchedRank(msgspec.Struct, frozen=True):
    """This process among those that a launcher started."""

    rank: int
    size: int


def launched(environment: Mapping[str, str]) -> LaunchedRank | None:
    """This process's place when srun or mpirun started several; None when it runs alone.

    >>> launched({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"})
    LaunchedRank(rank=3, size=8)
    """
    for rank, size in _RANK_VARIABLES:
        values = environment.get(rank, ""), environment.get(size, "")
        if all(value.isdigit() for value in values):
            place = LaunchedRank(int(values[0]), int(values[1]))
            # One task is a shell within an allocation: the launcher is still to be started.
            return place if place.size > 1 else None
    return None


class Launcher(msgspec.Struct, frozen=True):
    """A program that starts MPI ranks."""

    path: Path
    implementation: str  # MPICH, Open MPI, Intel MPI, Slurm
    arguments: tuple[str, ...] = ()  # of the user, such as --gpus-per-node=8


def launcher_words(given: str) -> tuple[Path, tuple[str, ...]]:
    """Program and arguments of what names a launcher; a file whose name has blanks is one too.

    raises  UsageError for quotes that do not end

    >>> launcher_words("srun --gpus-per-node=8")
    (PosixPath('srun'), ('--gpus-per-node=8',))
    """
    try:
        words = [given] if Path(given).is_file() else shlex.split(given)
    except ValueError as error:
        raise UsageError(f"--mpiexec {given}: {error}. End the quotation.") from error
    if not words:
        raise UsageError("--mpiexec: no program. Name one, as in --mpiexec srun.")
    return Path(named_file(words[0])), tuple(words[1:])


def find_launcher(given: str | None) -> Launcher:
    """The launcher to use: the one given, else `mpiexec` beside this Python, else in PATH.

    given   program and arguments
    raises  MissingToolError when there is none, or it is none that is known
    """
    path, arguments = launcher_words(given) if given else (next(iter(launchers()), None), ())
    if path is None:
        raise MissingToolError(
            "replay: no mpiexec next to this Python or in PATH. Run "
            f"{INSTALL_MPI}, load your site's MPI, or name a launcher with --mpiexec."
        )
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror if isinstance(error, OSError) else "does not answer"
        raise MissingToolError(f"{path}: {why}. Name another launcher with --mpiexec.") from error
    version = mpi_version(done.stdout.decode(errors="replace"))
    if version is None:
        raise MissingToolError(
            f"{path}: neither MPICH's, Open MPI's nor Intel MPI's mpiexec, nor srun. Start the "
            "ranks yourself ('LAUNCHER collscope replay ...') or name another with --mpiexec."
        )
    return Launcher(path, version.rpartition(" ")[0], arguments)


def launch_command(
    launcher: Launcher, processes: int, environment: Sequence[tuple[str, str]], *, root: bool
) -> list[str]:
    """Arguments that stand before the program and start it `processes` times.

    environment  variables for the ranks alone, passed in the launcher's own way
    root         this process is the superuser's
    """
    start = [str(launcher.path), *launcher.arguments, "-n", str(processes)]
    if launcher.implementation == "Slurm":
        # srun hands its own environment on: its default is ALL, unless SLURM_EXPORT_ENV differs.
        return [*start, "--export=ALL"]
    if launcher.implementation == "Open MPI":
        # It binds each rank to a core by default, and with it the network threads of the library.
        if "--bind-to" not in launcher.arguments:
            start += ["--bind-to", "none"]
        if root:
            start += ["--allow-run-as-root"]
        if processes > _slots():
            start += ["--oversubscribe"]
        return start + [part for name, value in environment for part in ("-x", f"{name}={value}")]
    return start + [part for name, value in environment for part in ("-genv", name, value)]


def _slots() -> int:
    """Ranks that Open MPI starts here without --oversubscribe, outside of an allocation."""
    if "SLURM_JOB_ID" in os.environ:
        return 1 << 30
    # It counts cores; the system may show two threads for each.
    return max(1, len(os.sched_getaffinity(0)) // 2)
