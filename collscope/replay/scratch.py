"""The folder for the plans of one replay, and these plans as files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from collscope.errors import InputError
from collscope.replay.plan import Plan
from collscope.replay.text import plan_text
from collscope.temporary import temporary_folder


@contextmanager
def scratch_folder(csv: Path | None, *, local: bool = False) -> Iterator[Path]:
    """A new folder, removed at the end.

    It lies next to `csv`, the file of the results, else in the working folder: the ranks of other
    hosts find it there if these share a file system at all. Where the working folder cannot be
    written, or all is `local` to this host, it lies where the system keeps temporary files.

    raises  InputError when no folder can be made
    """
    beside = None if local else Path.cwd() if csv is None else csv.absolute().parent
    if csv is None and beside is not None and not os.access(beside, os.W_OK):
        beside = None
    with ExitStack() as held:
        try:
            folder = held.enter_context(temporary_folder("replay", beside))
        except OSError as error:
            where = beside or error.filename or "temporary files"
            what = f"{where}: {error.strerror}. Name another file with --csv."
            raise InputError(what) from error
        yield folder


def write_plan(plan: Plan, path: Path) -> Path:
    """The plan's file, for the replayer.

    raises  InputError when it cannot be written, as on a full disk
    """
    try:
        path.write_text(plan_text(plan), "utf-8")
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}. It must hold the plan for the ranks. Make room there, or "
            "name a file in another folder with --csv."
        ) from error
    return path
