"""Programs that are started as processes: our own, and the launchers of MPI jobs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from collscope.outputs import note_input

REPLAYER = "collscope-replayer"
RECORDER = "libcollscope-recorder.so"
# Why kernel events are no default; native/recorder/settings.cpp has the same. In these releases
# they do harm.
KERNEL_FAULTS = {
    "2.27.7": "NCCL 2.27.7 writes out of bounds with kernel events (NVIDIA/nccl#2039)",
    "2.30.3": "NCCL 2.30.3 may crash with kernel events (NVIDIA/nccl#2112)",
    "2.31.2": "kernel events of NCCL 2.31.2 cost 4 to 13 % (NVIDIA/nccl#2355)",
}
# From here on the library counts calls with kernel events alone, and the GPU counts all calls.
_TIMES_NEED_ALL_FROM = (2, 31)
TIMES_NEED_ALL = (
    "GPU times of NCCL 2.31 and later are of other calls once a call had no kernel events "
    "(NVIDIA/nccl#2369)"
)
# Versions of the profiler interface and the first release of NCCL, and of RCCL, that has them
# (native/recorder/plugin_api.h).
_INTERFACES = ((7, (2, 31)), (6, (2, 29)), (5, (2, 28)), (4, (2, 27)), (3, (2, 26)))
# RCCL from ROCm 7.14 on runs DDA kernels, which no profiler plugin sees.
_DDA_FROM = (2, 30)
MICROBENCH = "collscope-microbench"
INSTALL_MPI = "pip install 'collscope[replay]'"  # the mpich wheel
# A GPU runtime that finds eight GPUs asleep takes seconds to count them.
_ANSWER_TIMEOUT_S = 30


class Answer(msgspec.Struct, frozen=True):
    """What a program printed, and why that is not to be used."""

    stdout: str
    error: str | None


def ask(command: list[str]) -> Answer:
    """Run a program that prints something short and ends."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_ANSWER_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return Answer("", f"gave no answer within {_ANSWER_TIMEOUT_S} s")
    except OSError as error:
        return Answer("", f"did not start: {error.strerror}")
    stdout = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return Answer(stdout, None)
    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    return Answer(stdout, ": ".join([f"it ended with {how}", *last]))


def named_file(text: str) -> str:
    """What a person names as a program or a library, as a shell and a linker take it.

    With a slash it is that file, from whatever folder it is started; without one it is a name that
    is looked up in PATH or where libraries are. (`Path` would make the name `x` of the file `./x`.)
    """
    if "/" not in text:
        return text
    note_input(text)
    return str(Path(text).absolute())


def installed(name: str) -> Path | None:
    """`REPLAYER` or `MICROBENCH` as built with this installation; None when it was not built."""
    # The build puts _bin next to the native modules, in a wheel as in an editable install.
    import collscope._logscan as native  # noqa: PLC0415 - doctor reports a native part that fails

    path = Path(native.__file__).parent / "_bin" / name
    return path if path.is_file() else None


def installed_recorder() -> Path | None:
    """The profiler plugin that was built with this installation; None when it was not built."""
    import collscope._logscan as native  # noqa: PLC0415 - as `installed` does

    path = Path(native.__file__).parent / "_lib" / RECORDER
    return path if path.is_file() else None


def profiler_interface(library_version: str) -> int | None:
    """Version of the profiler interface that a release of NCCL or RCCL has; None: not ours.

    >>> profiler_interface("2.28.9"), profiler_interface("2.25.1"), profiler_interface("?")
    (5, None, None)
    """
    release = _release(library_version)
    return next((version for version, since in _INTERFACES if release >= since), None)


def kernel_fault(library_version: str) -> str | None:
    """Why kernel events of a release are no default of the recorder; None where they are.

    >>> kernel_fault("2.30.7") is None, kernel_fault("2.32.3") == TIMES_NEED_ALL
    (True, True)
    """
    later = _release(library_version) >= _TIMES_NEED_ALL_FROM
    return KERNEL_FAULTS.get(library_version, TIMES_NEED_ALL if later else None)


def has_unseen_kernels(library: str, library_version: str) -> bool:
    """Whether a library has collectives that no profiler plugin sees.

    >>> has_unseen_kernels("RCCL", "2.30.4"), has_unseen_kernels("NCCL", "2.30.4")
    (True, False)
    """
    return library == "RCCL" and _release(library_version) >= _DDA_FROM


def _release(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def installed_replayer() -> Path | None:
    """The replayer that was built with this installation; None when it was not built."""
    return installed(REPLAYER)


def launchers() -> tuple[Path, ...]:
    """Every `mpiexec`: next to this Python (from a wheel) first, then another one in PATH.

    The replayer is linked with the MPI next to this Python where there is one, and a launcher of
    another implementation would start each rank as a job of its own.
    """
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    in_path = shutil.which("mpiexec")
    found = dict.fromkeys(path for path in (beside, in_path) if path is not None)
    return tuple(Path(path) for path in found)


def mpi_version(text: str) -> str | None:
    """Implementation and version from what ``mpiexec --version`` prints; None when unknown.

    >>> mpi_version("mpiexec (OpenRTE) 4.1.4")
    'Open MPI 4.1.4'
    """
    patterns = (
        # MPICH 5.0.2: "HYDRA build details:\n    Version:                                 5.0.2"
        ("MPICH", r"HYDRA build details:\s+Version:\s+(\S+)"),
        # Open MPI 4.1: "mpiexec (OpenRTE) 4.1.4"; 5.0: "mpiexec (Open MPI) 5.0.11"
        ("Open MPI", r"\((?:OpenRTE|Open MPI)\) (\S+)"),
        # Intel MPI: "Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619"
        ("Intel MPI", r"Intel\(R\) MPI Library.*Version (\S+)"),
        # Slurm: "slurm 23.11.4"
        ("Slurm", r"^slurm(?:-wlm)? (\S+)"),
    )
    for name, pattern in patterns:
        match = re.search(pattern, text)
        if match is not None:
            return f"{name} {match[1]}"
    return None
