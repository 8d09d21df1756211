"""NCCL and RCCL text logs: the native scanner (native/logscan) as a reader.

The rarer lines of what it finds go on to `collscope.parsers.nccl_log`. Imports little: the scan
runs while the modules that store what it finds are being loaded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope._logscan import Scanner
from collscope.model.diagnostic import Severity
from collscope.model.scanned_log import LogScan
from collscope.parsers.reader import Reader, anywhere

if TYPE_CHECKING:
    from collections.abc import Iterable


_END_BYTES = 4096  # the end of a longer last line shows nothing
_LEVEL = re.compile(r"(?:^| )NCCL (?:INFO|CALL|TRACE|WARN) ?(.*)$")
# banff-cyxtera-s78-4:52942:52942 [5]     a line that ends before what it is about
_BEGINNING = re.compile(r"[^\s:]{1,255}:\d+:\d+ \[\d{0,3}\]?\s*(?:N|NC|NCC|NCCL|NCCL I\w{0,3})?")
_CUT = (
    Severity.DATA_LOSS,
    "the log ends in the middle of a line, before anything can be read: the writer was stopped or "
    "the copy is cut, and an unknown number of lines is missing",
)
_PERHAPS = (
    Severity.NOTICE,
    "the last line has no line end, so the log may be cut there: later lines would be missing",
)


def scan(chunks: Iterable[bytes]) -> LogScan:
    """Scan a log, cut anywhere."""
    scanner = Scanner()
    end = b""
    try:
        for chunk in chunks:
            scanner.feed(chunk)
            end = (end + chunk)[-_END_BYTES:] if len(chunk) < _END_BYTES else chunk[-_END_BYTES:]
        unended = end.rpartition(b"\n")[2].decode("utf-8", errors="replace")
        return LogScan.of(scanner.finish(), unended)
    finally:
        # An error keeps this frame, to the end of the process where a thread's result holds it, and
        # nanobind reports what of native code is left then.
        del scanner


def cut_end(found: LogScan) -> tuple[Severity, str] | None:
    """Whether the log ends in a line that is cut, and how sure that is; None: in none.

    A line of the library that ends within ``HOST:PID:TID [DEVICE] NCCL INFO AllReduce: opCount`` is
    cut. The scanner knows by itself whether a line of a call is. Of other lines nobody knows: the
    library ends each with a line end, but a copy may have lost it. Text of the program is none.
    """
    line = found.unended.rstrip("\r")
    known = zip(found.processes.host, found.processes.pid, strict=True)
    if level := _LEVEL.search(line):
        calls = [f"{op}: opCount" for op in found.ops]
        if any(call.startswith(level[1]) for call in calls):
            return _CUT
        beginnings = [*(f"{op}: " for op in found.ops), "## ["]
        complete = level[1].startswith(tuple(beginnings)) or level[1].endswith("COMPLETE")
        return None if complete else _PERHAPS
    prefixes = {f"{host}:{pid}:" for host, pid in known if host and pid is not None}
    cut = line.strip() and (
        _BEGINNING.fullmatch(line) or any(p.startswith(line) or p in line for p in prefixes)
    )
    return _CUT if cut else None


READER = Reader("nccl_log", "log", anywhere, lambda source, _hints: scan(source.chunks()))
