"""What opening and closing memory handles of another process costs, as a benchmark prints it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope.model import CopyTime, MeasurementSet, Severity
from collscope.parsers._notes import Notes
from collscope.parsers._rows import text_lines
from collscope.parsers.reader import Reader, anywhere
from collscope.parsers.tables._columns import size_of

if TYPE_CHECKING:
    from collscope.parsers.hints import TableHints

DIALECT = "ipc_handles"
# Buffe size: 4.00 KB        (the program's spelling)
_BUFFER = re.compile(r"\s*Buffer? size:\s*(\S{1,12}(?: ?[KMGT]?i?B)?)\s*", re.IGNORECASE)
# Average cudaIpcOpenMemHandle time: 1016.29 us
_TIME = re.compile(
    r"\s*(?:Average )?(?:cuda|hip)Ipc(Open|Close)MemHandle time:\s*"
    r"(\d{1,12}(?:\.\d{1,9})?)\s*(us|ms)\s*",
    re.IGNORECASE,
)
_TO_US = {"us": 1.0, "ms": 1e3}

_SIZE_TEXT = "Times of handles without a readable buffer size were left out."


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Times of opening and closing a handle, by size of its buffer; devices are not known."""
    notes = Notes()
    found: list[CopyTime] = []
    size: int | None = None
    last = 0
    for last, raw in enumerate(text_lines(text), start=1):
        line = raw[:400]
        if buffer := _BUFFER.fullmatch(line):
            size = size_of(buffer[1])
        elif time := _TIME.fullmatch(line):
            if size is None:
                notes.add(Severity.DATA_LOSS, "bad_size", _SIZE_TEXT, last, line)
                continue
            found.append(
                CopyTime(
                    f"ipc_{time[1].lower()}",
                    size,
                    label=hints.label,
                    time_us_median=float(time[2]) * _TO_US[time[3].lower()],
                    line=last,
                )
            )
        elif line.strip():
            size = None
    return MeasurementSet(DIALECT, lines=last, diagnostics=notes.diagnostics, copies=tuple(found))


READER = Reader(DIALECT, "table", anywhere, lambda source, hints: parse(source.text(), hints.table))
