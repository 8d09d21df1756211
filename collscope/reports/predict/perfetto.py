"""Collectives of a stored run as a file for Perfetto and chrome://tracing."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from collscope.errors import InputError, UsageError
from collscope.outputs import replaced
from collscope.reports.predict.answer import RunTimelines
from collscope.reports.predict.words import origin_words
from collscope.reports.rendering.cause_words import cause_title
from collscope.timeline.perfetto import MOST_PARTS, Event, Simulated, longest_calls, trace_events

_LEVEL = 6  # of gzip


def require_trace_name(output: Path) -> None:
    """Raise UsageError for a file that no viewer takes for a trace by its name."""
    if str(output) != "-" and not output.name.endswith((".json", ".json.gz")):
        raise UsageError(f"{output}: neither .json nor .json.gz. Name such a file with -o.")


def export_trace(shown: RunTimelines, output: Path, most: int | None) -> str:
    """Write the file, compressed where its name ends in .gz; returns what it holds in words.

    most    kernels at most; None: as many as viewers open well
    raises  InputError for a file that cannot be written
    """
    timeline, predicted = shown.timeline, None
    if shown.predicted is not None and shown.times_from is not None:
        name = f"predicted with {origin_words(shown.times_from)}"
        predicted = Simulated(name, shown.predicted)
    limit = MOST_PARTS if most is None else most
    marked = [(cause_title(cause.cause, cause.ranks), marks) for cause, marks in shown.causes]
    try:
        shown_events = trace_events(timeline, limit, shown.recorded, predicted, marked)
        if str(output) == "-":
            _write_events(shown_events, sys.stdout.buffer)
            sys.stdout.flush()
            return ""
        events = _write(shown_events, output)
        size = output.stat().st_size
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}. Name another file with -o.") from error
    calls = len(longest_calls(timeline, limit))
    left_out = len(timeline.calls) - calls
    rest = f", the {left_out:,} shortest calls left out (--limit)" if left_out else ""
    return f"{output}: {calls:,} calls, {events:,} events, {size:,} bytes{rest}"


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
