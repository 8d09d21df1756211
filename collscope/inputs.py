"""The one way to open a file that is read: no pipe without a writer and no device holds it up."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

from collscope.errors import UnreadableError
from collscope.outputs import note_input


@contextmanager
def opened(path: str) -> Iterator[tuple[BinaryIO, bool]]:
    """A file or a pipe to be read; no output of the same command may take its place.

    A pipe that nobody writes into opens at once, and is empty.

    returns  the open file, and whether it is a regular one
    raises   UnreadableError when it cannot be opened, or is a device
    """
    note_input(path)
    with ExitStack() as held:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            held.callback(_close, handle)
            mode = os.fstat(handle).st_mode
            file = held.enter_context(os.fdopen(handle, "rb", closefd=False))
            if not stat.S_ISCHR(mode) and not stat.S_ISBLK(mode):
                os.set_blocking(handle, True)
        except OSError as error:
            why = f"{error.strerror}"
            raise UnreadableError(path, why, "Check the path and its permissions") from error
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise UnreadableError(
                path, "a device, not a file", "Name a file, or - for standard input"
            )
        yield file, stat.S_ISREG(mode)


def _close(handle: int) -> None:
    with suppress(OSError):  # what was read of it is whole
        os.close(handle)


def read_small(path: str, most_bytes: int, remedy: str) -> bytes:
    """All bytes of a file that should be small.

    remedy  what to do about a larger one
    raises  UnreadableError when it cannot be read, or holds more than `most_bytes`
    """
    with opened(path) as (file, _):
        try:
            content = file.read(most_bytes + 1)
        except OSError as error:
            raise UnreadableError(path, f"{error.strerror}", "Check the file") from error
    if len(content) > most_bytes:
        raise UnreadableError(path, f"larger than {most_bytes >> 20} MiB", remedy)
    return content
