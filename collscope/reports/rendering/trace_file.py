"""Trace events as a file that Perfetto and chrome://tracing open."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from collscope.errors import InputError, UsageError
from collscope.outputs import binary_standard_output, replaced

Event = dict[str, object]
_LEVEL = 6  # of gzip


def require_trace_name(output: Path) -> None:
    """Raise UsageError for a file that no viewer takes for a trace by its name."""
    if str(output) != "-" and not output.name.endswith((".json", ".json.gz")):
        raise UsageError(f"{output}: neither .json nor .json.gz. Name such a file with -o.")


def write_trace(shown: Iterable[Event], output: Path) -> str:
    """Write the events, compressed where the name ends in .gz; their number and bytes in words.

    Nothing is returned of those to standard output.
    raises  InputError for a file that cannot be written
    """
    try:
        if str(output) == "-":
            _write_events(shown, binary_standard_output())
            sys.stdout.flush()
            return ""
        events = _write(shown, output)
        return f"{events:,} events, {output.stat().st_size:,} bytes"
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "standard output" if str(output) == "-" else str(output)
        raise InputError(f"{where}: {error.strerror}. Name another file with -o.") from error


def _write(shown: Iterable[Event], output: Path) -> int:
    """Write event by event, so that no whole document stands in memory; returns their number."""
    with ExitStack() as stack:
        file = stack.enter_context(replaced(output))
        out: BinaryIO = file
        if output.name.endswith(".gz"):
            # No time in the header: equal stores give equal files.
            zipped = gzip.GzipFile("", "wb", _LEVEL, file, mtime=0)
            out = cast("BinaryIO", stack.enter_context(zipped))
        return _write_events(shown, out)


def _write_events(shown: Iterable[Event], out: BinaryIO) -> int:
    encoder = msgspec.json.Encoder()
    events = 0
    out.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
    for event in shown:
        out.write((b",\n" if events else b"") + encoder.encode(event))
        events += 1
    out.write(b"\n]}\n")
    return events
