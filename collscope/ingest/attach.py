"""Arm the recorders of a job that runs, for a while, and disarm them whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from collscope.errors import CollscopeError, InputError, RefusedError
from collscope.outputs import write_file
from collscope.parsers.recorders.own_recorder import GrowingProcess, GrowingRecording
from collscope.programs import kernel_fault

# Bits of the library's mask (native/recorder/plugin_api.h): what the recorder itself asks for.
CALL_EVENTS = 1 << 1 | 1 << 2 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12
# The phases of a kernel have another bit in RCCL.
KERNEL_EVENTS = 1 << 6 | 1 << 15
KERNEL_EVENTS_OF_RCCL = 1 << 6 | 1 << 16
# What a disarmed job asks for, by the recorder's level. At others it writes the mask by itself.
DISARMED = {"off": 0, "calls": CALL_EVENTS}
_HEAD = 1 << 16  # bytes of a file in which its first record is
_ATTEMPTS = 3  # to disarm


class NotDisarmedError(InputError):
    """A job may still be armed."""


class Recorders(msgspec.Struct, frozen=True):
    """The recorders that wrote into a folder."""

    processes: int
    levels: frozenset[str]  # at which they began
    faults: tuple[str, ...]  # why kernel events of their libraries are no default
    amd: bool

    @property
    def armed_level(self) -> str:
        """Level of an armed job: with a faulty library, the recorder's default is calls alone."""
        return "calls" if self.faults else "all"

    @property
    def armed_mask(self) -> int:
        """The library's mask at that level."""
        kernels = KERNEL_EVENTS_OF_RCCL if self.amd else KERNEL_EVENTS
        return CALL_EVENTS if self.faults else CALL_EVENTS | kernels


def recorders_in(folder: Path) -> Recorders:
    """The recorders of the files in a folder.

    raises  InputError where there is none: a job without the plugin cannot be armed
    """
    known = [p for path in folder.glob("*.collrec") if (p := _first_record(path)) is not None]
    if not known:
        raise InputError(
            f"{folder}: no recorder file. Start the job with NCCL_PROFILER_PLUGIN (its path: "
            "collscope doctor), COLLSCOPE_RECORDER_LEVEL=off and this folder as "
            "COLLSCOPE_RECORDER_DIR; a file appears ten seconds after the first communicator."
        )
    faults = {fault for p in known if (fault := kernel_fault(p.library_version or "")) is not None}
    levels = frozenset(p.level for p in known if p.level is not None)
    processes = len({(p.host, p.pid) for p in known})
    return Recorders(processes, levels, tuple(sorted(faults)), any(p.amd for p in known))


def _first_record(path: Path) -> GrowingProcess | None:
    recording = GrowingRecording()
    with suppress(FileNotFoundError), path.open("rb") as file:
        recording.feed(file.read(_HEAD))
    known = recording.process()
    return known if known.level is not None else None


@contextmanager
def armed(arm: Callable[[], None], disarm: Callable[[], None], by_hand: str) -> Iterator[None]:
    """Arm, and disarm at the end whatever it is.

    arm      raises RefusedError where nothing has changed
    by_hand  the command that disarms, for a person
    raises   NotDisarmedError where it cannot be disarmed; what `arm` raises
    """
    try:
        arm()
    except RefusedError:
        raise
    except CollscopeError as error:
        if _failed(disarm) is None:
            raise
        raise InputError(f"{error} If the job runs, disarm it: {by_hand}") from error
    try:
        yield
    finally:
        failed = _failed(disarm)
        for _ in range(_ATTEMPTS - 1):
            failed = failed and _failed(disarm)
        if failed is not None:
            raise NotDisarmedError(f"not disarmed: {failed} If the job still runs: {by_hand}")


def _failed(change: Callable[[], None]) -> CollscopeError | None:
    try:
        change()
    except CollscopeError as error:
        return error
    return None


def write_level(control: Path, level: str | None) -> None:
    """Put a level into a recorder's control file; None: no file, so that the job's own level holds.

    raises  InputError when it cannot be written
    """
    try:
        if level is None:
            control.unlink(missing_ok=True)
        else:
            write_file(control, f"{level}\n")
    except OSError as error:
        raise InputError(
            f"{control}: {error.strerror}. Name the file of COLLSCOPE_RECORDER_CONTROL."
        ) from error


def level_in(control: Path) -> str | None:
    """The level that a control file holds; None without one."""
    try:
        return control.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
