"""A folder for the plans of one replay; those of replays that were killed are removed.

A folder is held locked (flock) from its first moment on: the lock ends with the process, however
that ends. Its name tells the boot of the kernel it was made in, and only those of this boot are
judged by their lock, since not every shared file system carries locks from host to host.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collscope.errors import InputError
from collscope.replay.plan import Plan
from collscope.replay.text import plan_text

_PREFIX = ".collscope-replay-"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4): another one after each boot


@contextmanager
def scratch_folder(csv: Path | None, *, local: bool = False) -> Iterator[Path]:
    """A new folder, removed at the end.

    It lies beside `csv`, the file of the results, else in the working folder: the ranks of other
    hosts find it there if these share a file system at all. Where the working folder cannot be
    written, or all is `local` to this host, it lies where the system keeps temporary files.

    raises  InputError when no folder can be made
    """
    temporary = Path(tempfile.gettempdir())
    beside = temporary if local else Path.cwd() if csv is None else csv.absolute().parent
    _remove_abandoned(beside)
    with contextlib.ExitStack() as held:
        try:
            if csv is None and not os.access(beside, os.W_OK):
                beside = temporary
            folder = _locked_folder(beside, held)
        except OSError as error:
            what = f"{beside}: {error.strerror}. Name another file with --csv."
            raise InputError(what) from error
        yield folder


def write_plan(plan: Plan, path: Path) -> Path:
    """The plan's file, for the replayer.

    raises  InputError when it cannot be written, as on a full disk
    """
    try:
        path.write_text(plan_text(plan))
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}. It would hold the plan for the ranks: make room there, or "
            "name a file in another folder with --csv."
        ) from error
    return path


def _locked_folder(beside: Path, held: contextlib.ExitStack) -> Path:
    """A new folder; `held` unlocks it at its end, once it is removed.

    raises  OSError
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{_boot_id()}-", dir=beside))
        with contextlib.ExitStack() as unless_ours:
            unless_ours.callback(shutil.rmtree, folder, ignore_errors=True)
            # Until it is locked another process may take it for abandoned.
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                handle = _open_folder(folder)
                held.callback(os.close, handle)
                _lock(handle)
                if os.path.samestat(os.fstat(handle), folder.stat()):
                    held.push(unless_ours.pop_all())
                    return folder


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def _lock(handle: int) -> None:
    """Lock a folder; where there are no locks, nobody but its owner removes it.

    raises  BlockingIOError when another process has
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass


def _remove_abandoned(beside: Path) -> None:
    boot = _boot_id()
    for folder in beside.glob(f"{_PREFIX}{boot}-*") if boot else ():
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            handle = _open_folder(folder)
            held.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
