"""What the replayer finds where its ranks would run: GPUs, and the library that it would use."""

from __future__ import annotations

import os
import re
import subprocess

import msgspec

from collscope.replay.launch import find_replayer
from collscope.replay.mpi import find_launcher, launch_command
from collscope.replay.session import Session

_PROBE_S = 120.0  # srun may wait for its nodes
# cuda GPUs: 4 | cuda GPUs: no usable GPU: no CUDA-capable device is detected
_GPUS = re.compile(r"^\w+ GPUs: [1-9]", re.MULTILINE)
# hip: unusable: RCCL: librccl.so.1 not found. Give its path with --library, or …
_ANSWER = re.compile(r"^\w+(?:: unusable| GPUs): ", re.MULTILINE)
# cuda collectives: nccl 2.28.9, /usr/lib/libnccl.so.2
_LIBRARY = re.compile(r"^\w+ collectives: (\w+) (\d+)\.(\d+)", re.MULTILINE)


class Probed(msgspec.Struct, frozen=True):
    """An answer of `collscope-replayer --probe`."""

    gpus: bool | None  # with libraries that work; None: it gave no answer
    library: str | None  # nccl or rccl
    version: tuple[int, int]  # of the library; (0, 0) where there is none


def probe(session: Session, processes: int = 1) -> Probed:
    """Ask the replayer of a session, with its backend, library and runtime.

    processes  that a launch starts; of several one is started by the launcher, perhaps elsewhere
    raises     MissingToolError when a program is missing
    """
    method = session.method
    command = [str(find_replayer(session.replayer)), "--probe", "--backend", method.backend]
    for option, value in (("--library", method.library), ("--runtime", method.runtime)):
        command += [option, value] if value else []
    if processes > 1:
        launcher = find_launcher(session.launcher)
        command[:0] = launch_command(launcher, 1, (), root=os.geteuid() == 0)
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Probed(None, None, (0, 0))  # the first launch shows what is wrong with it
    return answer_of(done.stdout.decode(errors="replace"))


def answer_of(text: str) -> Probed:
    """What the replayer printed (native/replayer/gpu/probe.cpp)."""
    gpus = bool(_GPUS.search(text)) if _ANSWER.search(text) else None
    found = _LIBRARY.search(text)
    if found is None:
        return Probed(gpus, None, (0, 0))
    return Probed(gpus, found[1], (int(found[2]), int(found[3])))
