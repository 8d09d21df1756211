"""A folder for the plans of one replay; those of replays that were killed are removed.

A folder's owner holds a file in it locked (flock): the lock ends with the process, however that
ends. Only folders of this boot of this kernel are judged by their lock, since not every shared file
system carries locks from host to host.
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
from collscope.outputs import boot_id
from collscope.replay.plan import Plan
from collscope.replay.text import plan_text

_PREFIX = ".collscope-replay-"
_OWNER = "owner"


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
    try:
        if csv is None and not os.access(beside, os.W_OK):
            beside = temporary
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=beside))
    except OSError as error:
        raise InputError(f"{beside}: {error.strerror}. Name another file with --csv.") from error
    try:
        with _owned(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """The folder is this process's; the file that says so appears once it is locked."""
    with contextlib.ExitStack() as held:
        # Where there are no locks, or no room, nobody but the owner removes the folder.
        with contextlib.suppress(OSError):
            # Unbuffered: what a full disk refuses is not tried again when the file is closed.
            file = held.enter_context((folder / "new").open("wb", buffering=0))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(boot_id().encode())
            (folder / "new").rename(folder / _OWNER)
        yield


def _remove_abandoned(beside: Path) -> None:
    for folder in beside.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError), (folder / _OWNER).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.read() == boot_id() != "":
                shutil.rmtree(folder, ignore_errors=True)
