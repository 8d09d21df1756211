"""What this machine has of what collscope uses, and the command that mends what is missing.

GPU libraries and MPI are opened in child processes: one that is broken can crash or hang its
child, and shows as an answer here. Nothing heavy is imported into the calling process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

import collscope
from collscope.gpu_vendors import LIBRARIES, VENDORS, Library
from collscope.programs import (
    INSTALL_MPI,
    KERNEL_FAULTS,
    Answer,
    ask,
    has_unseen_kernels,
    installed_recorder,
    installed_replayer,
    kernel_fault,
    launchers,
    mpi_version,
    profiler_interface,
)
from collscope.writing import folded

# schemas/views use window functions, which SQLite has since 3.25.0 (sqlite.org/changes.html).
MIN_SQLITE = (3, 25, 0)
NATIVE_MODULES = (
    "collscope._logscan",
    "collscope._align",
    "collscope._tracescan",
    "collscope._play",
    "collscope._picklejson",
)
PACKAGES = ("typer", "numpy", "msgspec", "zstandard")
# Imported by what uses them alone.
LATER_PACKAGES = (
    ("polars", "to_polars() in Python"),
    ("pandas", "to_pandas() in Python"),
    ("matplotlib", "--plot and HTML pages"),
    ("jinja2", "HTML pages"),
)

_REINSTALL = "pip install --force-reinstall WHEEL, or in the source folder: pip install ."
# What lies in the working folder is none of ours.
_CHILD = (
    "import sys; sys.path[:] = filter(None, sys.path)\n"
    "from {0} import {1}; sys.stdout.write({1}(*sys.argv[1:]))"
)


class Check(msgspec.Struct, frozen=True):
    """One thing looked for."""

    name: str
    found: bool | None  # None: unknown
    detail: str  # version and place, or what was wrong
    fix: str | None = None  # command or commands that mend it
    required: bool = False  # ingest and report do not work without it


def diagnose(db: Path = Path("collscope.db")) -> tuple[Check, ...]:
    """Every check, in the order in which a reader wants them; takes about a second.

    db  the store that commands would open; it need not exist
    """
    with ThreadPoolExecutor() as pool:
        libraries = [pool.submit(_check_library, library) for library in LIBRARIES]
        launchers_found = pool.submit(_check_launchers)
        of_libraries = [check for future in libraries for check in future.result()]
        checks = [
            _check_python(),
            _check_collscope(),
            *map(_check_native, NATIVE_MODULES),
            _check_sqlite(),
            *map(_check_package, PACKAGES),
            *(_check_package(package, use) for package, use in LATER_PACKAGES),
            _check_writable(db),
            *launchers_found.result(),
            *of_libraries,
            *map(_check_program, ("rocm-smi", "nvidia-smi")),
            _check_replayer(),
            _check_recorder(of_libraries),
        ]
    return tuple(checks)


def render(checks: Sequence[Check], columns: int | None = None) -> str:
    """Checks as aligned text, one line each and one more for what mends it, with a summary.

    columns  of the terminal, at which lines wrap; None: no wrapping
    """
    words = {True: "ok", False: "missing", None: "unknown"}
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        lines += _folded(f"{words[check.found]:<8} {check.name:<{width}}  ", check.detail, columns)
        if check.fix is not None:
            lines += _folded(" " * (width + 11), f"to fix: {check.fix}", columns)
    lacking = [check.name for check in checks if check.required and check.found is not True]
    if lacking == ["store"]:
        lines.append("ingest cannot write here: store. report can read an existing store.")
    elif lacking:
        lines.append(f"ingest and report cannot work: {', '.join(lacking)}.")
    else:
        ready = "ingest and report have all they need; they use neither a GPU nor MPI."
        lines += _folded("", ready, columns)
    lines += _folded("", _for_replay(checks), columns)
    return "\n".join(lines) + "\n"


def _folded(before: str, text: str, columns: int | None) -> list[str]:
    if columns is None:
        return [before + text]
    return folded(text, columns, before, " " * len(before))


def _for_replay(checks: Sequence[Check]) -> str:
    """What replay, tune and bench have, in one sentence."""
    found = {check.name for check in checks if check.found}
    lacking = [name for name in ("mpiexec", "replayer") if name not in found]
    if lacking:
        return f"replay, tune and bench cannot start ranks: {', '.join(lacking)}."
    if any({v.runtime.devices, v.collectives.name} <= found for v in VENDORS):
        return "replay, tune and bench have all they need."
    return "replay, tune and bench have MPI, but no GPU with its library: use --backend host."


def _check_python() -> Check:
    found = sys.version_info >= (3, 10)
    fix = None if found else "make a virtual environment with Python 3.10 or newer"
    return Check("Python", found, f"{platform.python_version()} ({sys.executable})", fix, True)


def _check_collscope() -> Check:
    return Check(
        "collscope", True, f"{collscope.__version__} ({Path(__file__).parent})", None, True
    )


def _check_native(module: str) -> Check:
    try:
        importlib.import_module(module)
    except ImportError as error:
        return Check(module, False, str(error), _REINSTALL, True)
    return Check(module, True, "imports", None, True)


def _check_sqlite() -> Check:
    found = sqlite3.sqlite_version_info >= MIN_SQLITE
    wanted = ".".join(map(str, MIN_SQLITE))
    fix = None if found else f"use a Python that is linked with SQLite {wanted} or newer"
    return Check("SQLite", found, sqlite3.sqlite_version, fix, True)


def _version_of(package: str) -> str | None:
    """Installed version of a distribution, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_package(package: str, use: str | None = None) -> Check:
    """A package that everything needs, or only one `use`."""
    version = _version_of(package)
    if version is None:
        detail = "not installed" if use is None else f"not installed; needed for {use}"
        return Check(package, False, detail, f"pip install {package}", use is None)
    return Check(package, True, version, None, use is None)


def _check_writable(db: Path) -> Check:
    """A store needs a writable file and folder: SQLite puts its log next to the database."""
    folder = db.resolve().parent
    fix = "change to a folder that you may write to, or pass --db"
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Check("store", False, f"{folder}: {error.strerror}", fix, True)
    if db.exists() and not os.access(db, os.W_OK):
        return Check("store", False, f"{db.resolve()}: not writable", fix, True)
    state = "exists, writable" if db.exists() else "not created yet, folder writable"
    return Check("store", True, f"{db.resolve()} ({state})", None, True)


def _check_program(name: str) -> Check:
    path = shutil.which(name)
    return Check(name, path is not None, path or "not in PATH")


def _check_launchers() -> list[Check]:
    """``mpiexec`` next to this Python (from a wheel) and, when it is another one, in PATH."""
    paths = launchers()
    if not paths:
        return [Check("mpiexec", False, "not in PATH, not next to Python", INSTALL_MPI)]
    return [_check_launcher(str(path)) for path in paths]


def _check_launcher(path: str) -> Check:
    answer = ask([path, "--version"])
    version = mpi_version(answer.stdout)
    if version is None:
        wrong = answer.error or "prints no known version"
        return Check("mpiexec", None, f"{path}: {wrong}", INSTALL_MPI)
    return Check("mpiexec", True, f"{version} ({path})")


def _check_replayer() -> Check:
    """The executable of `collscope replay`, asked for its version."""
    try:
        path = installed_replayer()
    except ImportError:  # reported with the native modules
        path = None
    if path is None:
        return Check("replayer", False, "not part of this installation", _REINSTALL)
    answer = ask([str(path), "--version"])
    if answer.error is not None:
        return Check("replayer", False, f"{path}: {answer.error}", INSTALL_MPI)
    return Check("replayer", True, f"{answer.stdout.strip()} ({path})")


def _check_recorder(libraries: Sequence[Check]) -> Check:
    """The profiler plugin of `collscope record --level`, and which libraries take it.

    It is not loaded.
    libraries  checks of those that were found
    """
    try:
        path = installed_recorder()
    except ImportError:  # reported with the native modules
        path = None
    if path is None:
        return Check("recorder", False, "not part of this installation", _REINSTALL)
    found = [
        recorder_support(check.name, check.detail.split()[0])
        for check in libraries
        if check.found and check.name in {vendor.collectives.name for vendor in VENDORS}
    ]
    takes = "; ".join(found) or (
        "no NCCL or RCCL found here: unknown whether the job's library supports it"
    )
    return Check("recorder", True, f"{path} ({takes})")


def collective_libraries() -> tuple[tuple[str, str], ...]:
    """NCCL and RCCL where this Python and the loader find them, each with its version."""
    with ThreadPoolExecutor() as pool:
        checks = pool.map(_check_library, (vendor.collectives for vendor in VENDORS))
    return tuple((c.name, c.detail.split()[0]) for of in checks for c in of if c.found)


def recorder_support(library: str, version: str) -> str:
    """Whether a library takes the recorder, in words.

    >>> recorder_support("NCCL", "2.28.9"), recorder_support("RCCL", "2.22.3")
    ('NCCL 2.28.9 supports it as v5', 'RCCL 2.22.3 does not support it: needs 2.26 or later')
    """
    interface = profiler_interface(version)
    if not version[:1].isdecimal():
        return f"unknown whether {library} supports it: its version is unknown"
    if interface is None:
        return f"{library} {version} does not support it: needs 2.26 or later"
    fault = kernel_fault(version)
    which = "level calls only" if version in KERNEL_FAULTS else "by default at level calls"
    harm = f", {which}: {fault}" if fault else ""
    unseen = " (its DDA kernels bypass it)" if has_unseen_kernels(library, version) else ""
    return f"{library} {version} supports it as v{interface}{unseen}{harm}"


def _check_library(library: Library) -> list[Check]:
    """The library's check and, for a runtime, one of the devices it counts."""
    answer = _run_child("collscope.gpu_libraries", "probe", library.name)
    if answer.error is not None:
        return [Check(library.name, None, answer.error, library.fix)]
    return library_checks(library, json.loads(answer.stdout))


def library_checks(library: Library, answer: dict[str, str | int | None]) -> list[Check]:
    """Checks from an answer of `gpu_libraries.probe`."""
    if answer["path"] is None:
        return [Check(library.name, False, str(answer["reason"]), library.fix)]
    checks = [Check(library.name, True, f"{answer['version']} ({answer['path']})")]
    if library.count_symbol is not None:
        checks.append(_devices(library, answer["status"], answer["devices"]))
    return checks


def _devices(library: Library, status: str | int | None, devices: str | int | None) -> Check:
    # 35 cudaErrorInsufficientDriver and 100 {cuda,hip}ErrorNoDevice: no GPU, or no driver for it.
    if status in (35, 100) or (status == 0 and not devices):
        return Check(
            library.devices, False, f"no usable GPU ({library.count_symbol} returns {status})"
        )
    if status != 0:
        return Check(library.devices, None, f"{library.count_symbol} returns {status}")
    return Check(library.devices, True, str(devices))


def _run_child(module: str, function: str, *arguments: str) -> Answer:
    """Call a function that returns text in a child process."""
    return ask([sys.executable, "-c", _CHILD.format(module, function), *arguments])
