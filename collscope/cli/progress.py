"""The progress line of an ingest on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from collscope.ingest.progress import NO_PROGRESS, Progress
from collscope.units import count_of

_SILENT_S = 1.0  # shorter ingests print no line
_EVERY_S = 0.2
_MIN_DONE_SHARE = 0.05  # of all bytes: before that, the rate of the first files is no guide
_CLEAR = "\r\x1b[K"
_COLUMNS = 80  # of a terminal of unknown width


def progress() -> Progress:
    """A line on standard error where that is a terminal, else nothing."""
    return Line() if sys.stderr is not None and sys.stderr.isatty() else NO_PROGRESS


def progress_text(files: str, done_bytes: int, all_bytes: int, seconds: float) -> str:
    """How far a job is, its rate and the time left at that rate.

    all_bytes  0 where unknown, such as standard input

    >>> progress_text("3 of 72 files", 45 << 20, 360 << 20, 9.0)
    '3 of 72 files, 45 of 360 MiB, 5 MiB/s, 63 s left'
    >>> progress_text("0 of 72 files", 1 << 20, 360 << 20, 9.0)
    '0 of 72 files, 1 of 360 MiB, 9 s so far'
    """
    done, every = (f"{value / (1 << 20):.3g}" for value in (done_bytes, all_bytes))
    of = f"{done} of {every} MiB" if all_bytes else f"{done} MiB"
    if not all_bytes or done_bytes < _MIN_DONE_SHARE * all_bytes:
        return f"{files}, {of}, {seconds:.0f} s so far"
    rate = done_bytes / seconds
    left = (all_bytes - done_bytes) / rate
    return f"{files}, {of}, {rate / (1 << 20):.3g} MiB/s, {left:.0f} s left"


class Line(Progress):
    """Files, bytes, rate and the time left, on one line that is written again and again."""

    def __init__(self) -> None:
        """Nothing is printed before `begin`."""
        self._sizes: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._finished = 0
        self._matching = False
        self._ended = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)

    def begin(self, paths: Sequence[str]) -> None:
        """Ask how large the files are, and write from now on."""
        self._sizes = {path: _size(path) for path in paths}
        self._writer.start()

    def read(self, path: str, done_bytes: int) -> None:
        """Note it."""
        self._done[path] = done_bytes

    def finish(self, path: str) -> None:
        """Note it."""
        self._done[path] = self._sizes[path] or self._done.get(path, 0)
        self._finished += 1

    def match(self) -> None:
        """Note it."""
        self._matching = True

    def end(self) -> None:
        """Leave nothing on the terminal."""
        self._ended.set()
        self._writer.join()

    def _write(self) -> None:
        begun = time.monotonic()
        if self._ended.wait(_SILENT_S):
            return
        while not self._ended.wait(_EVERY_S):
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
            text = self._text(time.monotonic() - begun)
            sys.stderr.write(_CLEAR + text[: columns - 1])
            sys.stderr.flush()
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()

    def _text(self, seconds: float) -> str:
        files = count_of(self._finished, len(self._sizes), "file")
        if self._matching:
            return f"{files}, matching the calls of all ranks, {seconds:.0f} s so far"
        known = [(self._done.get(path, 0), size) for path, size in self._sizes.items()]
        done = sum(min(done, size) if size else done for done, size in known)
        return progress_text(files, done, sum(size for _, size in known), seconds)


def _size(path: str) -> int:
    """Bytes of a file; 0 of what has no size, as standard input."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
