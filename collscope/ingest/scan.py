"""Logs through the scanner, a large one ahead of the log that is being stored.

Imports little: the scanner runs while the modules that store what it finds are being loaded.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from collscope.ingest.files import Input, open_input
from collscope.ingest.progress import NO_PROGRESS, Reading
from collscope.model.scanned_log import LogScan
from collscope.parsers.log_scan import scan

Report = Callable[[str, int], None]  # path, bytes of the file read so far


class Scanned(msgspec.Struct, frozen=True):
    """What the scanner made of one file."""

    path: str
    sha256: str
    size_bytes: int  # after decompression
    truncated: bool  # the compressed data ended early
    found: LogScan
    own: bool = False  # a store or an answer of collscope: what it quotes of logs is no log


# What an answer begins with, as JSON, a page, Markdown and text.
_OWN = re.compile(
    rb'\s*(?:\{\s*"schema"\s*:\s*"collscope\.|<!doctype html>.{0,4000}?<title>collscope'
    rb"|(?:# )?collscope (?:\w+, run |report|check|compare|predict|hang))",
    re.DOTALL,
)
_SQLITE = b"SQLite format 3\0"
_AHEAD_BYTES = 1 << 20  # handing a smaller file to a thread takes longer than to scan it


def scan_log(file: Input, report: Report = NO_PROGRESS.read) -> Scanned:
    """Scan one file; `report` receives the progress.

    raises  UnreadableError
    """
    found = scan(_with_progress(file, report))
    head = file.head()
    own = head.startswith(_SQLITE) or _OWN.match(head) is not None
    return Scanned(file.path, file.sha256, file.size_bytes, file.truncated, found, own)


def _with_progress(file: Input, report: Report) -> Iterator[bytes]:
    """Chunks of a file; progress is reported after each."""
    for chunk in file.chunks():
        yield chunk
        report(file.path, file.taken_bytes)


class ScansAhead:
    """Scans of some files in their order, a large one begun while that before is being stored."""

    def __init__(self, paths: list[str], reading: Reading) -> None:
        """Begin with the first file."""
        self._paths = iter(paths)
        self._reading = reading
        self._stopped = False
        self._pool = ThreadPoolExecutor(1)
        self._ahead = self._begin()

    def __enter__(self) -> ScansAhead:
        """The scans themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give up what was begun and not taken."""
        self._stopped = True
        self._pool.shutdown(cancel_futures=True)
        self._ahead = "", None  # see `take`

    def take(self, path: str) -> Scanned:
        """The scan of `path`, passing over files before it.

        raises  InputError when it cannot be read
        """
        begun = ""
        while begun != path:
            (begun, scanned), self._ahead = self._ahead, self._begin()
        if scanned is None:
            return self._scan(path)
        try:
            return scanned.result()
        finally:
            # An error holds the frames that it went through. Held in one of them it would be a
            # cycle: at its end Python looks for none, and the scanner of the file would be left.
            del scanned

    def _begin(self) -> tuple[str, Future[Scanned] | None]:
        """The next file and its scan; None where that is left to `take`."""
        path = next(self._paths, "")
        return path, None if _is_small(path) else self._pool.submit(self._scan, path)

    def _scan(self, path: str) -> Scanned:
        with open_input(path, self._reading.most_bytes, once=True) as file:
            return scan_log(file, self._report)

    def _report(self, path: str, done: int) -> None:
        if self._stopped:
            raise CancelledError
        self._reading.progress.read(path, done)


def _is_small(path: str) -> bool:
    """Whether it is a regular file of few bytes, or none that can be found."""
    try:
        found = Path(path).stat()
    except OSError:
        return True
    return stat.S_ISREG(found.st_mode) and found.st_size < _AHEAD_BYTES
