"""Progress and messages of a running job, passed on to standard error."""

from __future__ import annotations

import re
import sys
import threading
from typing import IO

from collscope.writing import one_line

# "class 3 of 40: AllReduce Bfloat16 8388608 bytes, 4 ranks: 123.4 GB/s busbw, 21 s left"
_PROGRESS = re.compile(r"class \d+ of \d+: ")
# Hydra after a signal: "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"
# Open MPI: "… process rank 1 with PID 71 on node n1 exited on signal 9 (Killed)."
_SIGNALLED = re.compile(r"EXIT STRING: .*\(signal (\d+)\)|exited on signal (\d+)")
# Hydra's comment on a death, which our own message reports.
_BANNER = re.compile(
    r"=+$|=   |YOUR APPLICATION TERMINATED|This typically refers|Please see the FAQ"
)
_CLEAR = "\r\x1b[K"
_PATIENCE_S = 5.0  # for the last lines, after the job has ended


class Relay:
    """Passes on the lines of a job's output as they come, and notes a signal that ended a rank.

    On a terminal progress lines replace each other.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        """Begin to read, in a thread."""
        self.signal: int | None = None
        self._stream = stream
        self.terminal = sys.stderr.isatty()
        self._passing = False  # a progress line is on the terminal
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the last lines; a stray process that keeps the pipe open is not waited for."""
        self._thread.join(_PATIENCE_S)
        if not self._thread.is_alive():
            self._stream.close()
        self._write("")

    def show(self, text: str) -> None:
        """Show the job's progress on the terminal, until the next line."""
        self._write(text, passing=True)

    def _read(self) -> None:
        for line in self._stream:
            text = line.decode(errors="replace").rstrip("\r\n")
            found = _SIGNALLED.search(text)
            if found is not None:
                self.signal = int(found[1] or found[2])
            if text.strip() and not _BANNER.match(text):
                self._write(text, passing=self.terminal and _PROGRESS.match(text) is not None)

    def _write(self, text: str, *, passing: bool = False) -> None:
        with self._writing:
            cleared = _CLEAR if self._passing else ""
            self._passing = passing
            end = "" if passing or not text else "\n"
            sys.stderr.write(f"{cleared}{one_line(text)}{end}")
            sys.stderr.flush()
