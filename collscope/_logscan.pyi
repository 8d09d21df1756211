"""Scanner of NCCL and RCCL text logs, native (native/logscan): bytes in, columns out.

Index columns are uint32 with 0xFFFFFFFF for "none"; every array is one-dimensional, contiguous and
owns its memory. Formats: ncclEnqueueCheck and debug.cc of NVIDIA/nccl 2.4-2.30 and ROCm/rccl.
"""

from typing import Any

class Scanner:
    """Scans one log. Content never raises: damage is counted and sampled.

    One scanner serves one log and one thread at a time.
    """

    def __init__(self) -> None: ...
    def feed(self, data: bytes) -> None:
        """Take the next piece, cut anywhere; how a log is cut does not change the result.

        Releases the GIL and copies only the unfinished last line. A line beyond 1 MiB is cut there.
        Raises RuntimeError after `finish`.
        """

    def finish(self) -> dict[str, Any]:
        """Flush the last line and return the tables; the scanner is spent afterwards.

        They are those of `collscope.model.scanned_log.LogScan`, which says what columns hold.
        """
