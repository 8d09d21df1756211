"""Whether there is a GPU to tune on, asked before anything is measured."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from collscope.errors import MissingToolError
from collscope.replay.launch import find_replayer
from collscope.replay.mpi import find_launcher, launch_command
from collscope.replay.session import Session

_PROBE_S = 120.0  # srun may wait for its nodes
# cuda GPUs: 4 | cuda GPUs: no usable GPU: no CUDA-capable device is detected
_FOUND = re.compile(rb"^\w+ GPUs: [1-9]", re.MULTILINE)
# hip: unusable: RCCL: librccl.so.1 not found. Give its path with --library, or …
_ANSWERED = re.compile(rb"^\w+(?:: unusable| GPUs): ", re.MULTILINE)
NO_GPU = (
    "tune: no GPU here that NCCL or RCCL can use ('collscope doctor' says why). Run it where the "
    "job runs, or name the library with --library."
)


def require_gpu(session: Session, processes: int) -> None:
    """Refuse to tune where there are no GPUs; a library that is named is taken at its word.

    processes  that a launch starts; several come from the launcher, perhaps on other hosts
    raises     MissingToolError
    """
    method = session.method
    if method.backend == "host":
        raise MissingToolError(
            "tune: --backend host has no settings to tune. Run it on GPUs, where the job runs."
        )
    if method.library is None and _has_no_gpu(session, processes):
        raise MissingToolError(NO_GPU)


def _has_no_gpu(session: Session, processes: int) -> bool:
    """True when the replayer says so; what is wrong with a launch, the first launch tells."""
    replayer = find_replayer(session.replayer)
    command = _probe(replayer, session)
    if processes > 1:
        launcher = find_launcher(session.launcher)
        command[:0] = launch_command(launcher, 1, (), root=os.geteuid() == 0)
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(_ANSWERED.search(done.stdout)) and not _FOUND.search(done.stdout)


def _probe(replayer: Path, session: Session) -> list[str]:
    method = session.method
    command = [str(replayer), "--probe", "--backend", method.backend]
    return [*command, "--runtime", method.runtime] if method.runtime else command
