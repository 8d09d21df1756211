"""Parts of files, read by workers ahead of the writer, which takes them in the files' order.

So the store is the same whoever reads the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path

from collscope.errors import UnreadableError
from collscope.ingest.parts import Job, LogPart, read_part
from collscope.ingest.paths import STDIN
from collscope.ingest.workers import Workers

# Executors that may break before the writer reads the rest itself: what kills each worker, such as
# want of memory, would kill the next ones too.
_MOST_BROKEN = 3
_AHEAD = 2  # files for each worker that are read and not stored yet: they are held in memory


class PartsAhead:
    """Parts of files in their order, read ahead of who takes them."""

    def __init__(self, workers: Workers, job: Job, paths: Sequence[str]) -> None:
        """Begin with the first files."""
        self.lost = 0  # workers that ended early, and executors that broke
        self._workers = workers
        self._job = job
        self._waiting = [path for path in paths if path != STDIN and Path(path).is_file()]
        self._begun: dict[str, Future[LogPart]] = {}
        self._begin()

    def take(self, path: str) -> LogPart | None:
        """The part of a file; None where the caller is to read it.

        raises  UnreadableError when it cannot be read
        """
        while path in self._begun:
            try:
                part = self._begun[path].result()
            except UnreadableError:
                self._done(path)
                raise
            except BrokenExecutor:
                self._restart()
                continue
            except Exception:
                self.lost += 1
                self._done(path)
                return None
            self._done(path)
            return part
        return None

    def _done(self, path: str) -> None:
        del self._begun[path]
        self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._begun) < _AHEAD * self._workers.width:
            path = self._waiting.pop(0)
            try:
                self._begun[path] = self._workers.submit(read_part, self._job, path)
            except BrokenExecutor:
                self._waiting.insert(0, path)
                self._restart()

    def _restart(self) -> None:
        """Read in a new executor what the broken one has begun; nothing after many have broken.

        A lasting executor breaks when each of its workers is lost, and there is no new one.
        """
        self.lost += not self._workers.lasting
        read = {path: f for path, f in self._begun.items() if f.done() and f.exception() is None}
        self._waiting = [path for path in self._begun if path not in read] + self._waiting
        self._begun = read
        self._workers.close()
        if self.lost >= _MOST_BROKEN or self._workers.lasting:
            self._waiting = []
        self._begin()
