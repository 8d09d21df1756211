"""Collectives of a stored run as a file for Perfetto and chrome://tracing."""

from __future__ import annotations

from pathlib import Path

from collscope.reports.predict.answer import RunTimelines
from collscope.reports.predict.words import origin_words
from collscope.reports.rendering.cause_words import cause_title
from collscope.reports.rendering.trace_file import write_trace
from collscope.timeline.perfetto import MOST_PARTS, Simulated, longest_calls, trace_events


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
    written = write_trace(trace_events(timeline, limit, shown.recorded, predicted, marked), output)
    if not written:
        return ""
    calls = len(longest_calls(timeline, limit))
    left_out = len(timeline.calls) - calls
    rest = f", without the {left_out:,} shortest calls (--limit)" if left_out else ""
    return f"{output}: {calls:,} calls, {written}{rest}"
