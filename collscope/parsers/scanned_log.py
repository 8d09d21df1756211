"""What the native scanner makes of a text log."""

from __future__ import annotations

from typing import Any

import msgspec

# Counters of the lines that tell something.
PARSED = ("coll", "call", "kernel", "tuning", "messages")


class LogScan(msgspec.Struct, frozen=True):
    """What the scanner made of a log."""

    tables: dict[str, Any]  # what `collscope._logscan.Scanner.finish` returned
    unended: str = ""  # the end of a last line without a line end

    @property
    def is_log(self) -> bool:
        """True where a line of the library tells something."""
        return any(self.tables["counters"][name] for name in PARSED)
