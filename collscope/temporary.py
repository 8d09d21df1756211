"""Temporary folders; those of processes that were killed are removed by the next that makes one.

A folder is held locked (flock) from its first moment on: the lock ends with the process, however
that ends. Its name holds the boot of the kernel it was made in, and only those of this boot are
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

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4): another one after each boot


@contextmanager
def temporary_folder(purpose: str, beside: Path | None = None) -> Iterator[Path]:
    """A new folder, removed at the end.

    purpose  a word in its name
    beside   the folder it lies in; None: where the system keeps temporary files
    raises   OSError when it cannot be made
    """
    where = Path(tempfile.gettempdir()) if beside is None else beside
    remove_abandoned(where)
    with contextlib.ExitStack() as held:
        yield _locked_folder(where, f".collscope-{purpose}-{boot_id()}-", held)


def remove_abandoned(where: Path | None = None) -> None:
    """Remove the folders of processes that were killed; None: where the system keeps such files."""
    boot = boot_id()
    if boot:
        for folder in (where or Path(tempfile.gettempdir())).glob(f".collscope-*-{boot}-*"):
            _remove_abandoned(folder)


def _locked_folder(where: Path, prefix: str, held: contextlib.ExitStack) -> Path:
    """A new folder; at its end `held` removes it, and then unlocks it.

    raises  OSError
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
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
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


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


def _remove_abandoned(folder: Path) -> None:
    """Remove a folder of this user that no process holds locked."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as held:
        handle = _open_folder(folder)
        held.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)


def boot_id() -> str:
    """A name of this boot of this kernel, of hexadecimal digits; empty where there is none."""
    try:
        return _BOOT_ID.read_text().strip().replace("-", "")
    except OSError:
        return ""
