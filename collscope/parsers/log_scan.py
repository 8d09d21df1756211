"""NCCL and RCCL text logs: the native scanner (native/logscan) as a reader.

The rarer lines of what it finds go on to `collscope.parsers.nccl_log`. Imports little: the scan
runs while the modules that store what it finds are being loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from collscope._logscan import Scanner
from collscope.parsers.reader import Reader, anywhere

if TYPE_CHECKING:
    from collections.abc import Iterable

# Counters of the lines that tell something.
PARSED = ("coll", "call", "kernel", "tuning", "messages")


class LogScan(msgspec.Struct, frozen=True):
    """What the scanner made of a log."""

    tables: dict[str, Any]  # what `collscope._logscan.Scanner.finish` returned

    @property
    def is_log(self) -> bool:
        """True where a line of the library tells something."""
        return any(self.tables["counters"][name] for name in PARSED)


def scan(chunks: Iterable[bytes]) -> LogScan:
    """Scan a log, cut anywhere."""
    scanner = Scanner()
    try:
        for chunk in chunks:
            scanner.feed(chunk)
        return LogScan(scanner.finish())
    finally:
        # An error keeps this frame, to the end of the process where a thread's result holds it, and
        # nanobind reports what of native code is left then.
        del scanner


READER = Reader("nccl_log", "log", anywhere, lambda source, _hints: scan(source.chunks()))
