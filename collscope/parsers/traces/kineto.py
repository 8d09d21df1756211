"""Traces of the PyTorch profiler (Kineto), 2023 to today: CUDA and HIP, whole or cut.

Event categories and arguments: kineto's output_json.cpp and ActivityType.cpp. What a collective
kernel is comes from its own arguments (2024 and later), from the record_param_comms that launched
it (early 2024), from the annotation around its launch, or from its name. One file of several ranks
is TraceLens's (TraceFusion), which gives each event the rank of its trace.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.model import Diagnostic, Severity
from collscope.parsers.reader import trace_reader
from collscope.parsers.traces._array import LARGEST, ArrayReader
from collscope.parsers.traces.kineto_build import trace_files
from collscope.parsers.traces.kineto_collect import Collector
from collscope.parsers.traces.kineto_header import read_header
from collscope.parsers.traces.kineto_slices import Slice, Slicer
from collscope.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collscope.model.trace import TraceFile
    from collscope.parsers.traces.kineto_events import Event

_OPENING = re.compile(rb'(?<!\\)"traceEvents"\s{0,99}:\s{0,99}\[|\A\s{0,999}\[(?=\s{0,999}\{)')
_SIGNS = re.compile(rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:')
_EVENTS = re.compile(
    rb'\s*\[\s*\{[^\x00]*?"cat"\s*:\s*"(?:kernel|cpu_op|cuda_|gpu_|ac2g|fwdbwd|user_annotation|'
    rb"python_function)"
)


def sniff(head: bytes) -> bool:
    """True for the beginning of a trace of the PyTorch profiler, or of its bare event array."""
    return bool(_SIGNS.search(head) or _EVENTS.match(head))


def parse(chunks: Iterable[bytes], name: str) -> list[TraceFile]:
    """The trace of one rank; of each device, when a process without rank drove several.

    chunks   the decompressed file, in order
    name     what diagnostics call the file
    """
    slicer = Slicer()
    reader: ArrayReader[Event, Slice] = ArrayReader(chunks, _OPENING, slicer.open, slicer.scanned)
    collectors: dict[int | None, Collector] = defaultdict(Collector)
    for part in reader:
        if isinstance(part, Slice):
            collectors[None].add(part)
            continue
        for rank, events in _of_ranks(part, several=slicer.several).items():
            collectors[rank].add(slicer.of_events(events))
    header, problems = read_header(reader.head, reader.tail), _problems(reader, name)
    if len(collectors) > 1:
        # What names no rank orders nothing: titles of processes and threads.
        collectors.pop(None, None)
    found: list[TraceFile] = []
    for rank, collector in collectors.items() or [(None, Collector())]:
        own = header if rank is None else replace(header, rank=rank)
        found += trace_files(collector, own, [] if found else problems)
    return found


def _of_ranks(events: list[Event], *, several: bool) -> dict[int | None, list[Event]]:
    """Events by the rank that their arguments name, where a trace is of several."""
    if not several:
        return {None: events}
    found: dict[int | None, list[Event]] = defaultdict(list)
    for event in events:
        found[None if event.args is None else event.args.of_rank].append(event)
    return found


def _problems(reader: ArrayReader[Event, Slice], name: str) -> list[Diagnostic]:
    found = []
    if reader.large:
        message = (
            f"{name} holds more than {format_size(LARGEST)} in one event or before the events: "
            "that part is not read."
        )
        found.append(Diagnostic(Severity.DATA_LOSS, "large_value", message))
    elif reader.cut:
        message = f"{name} ends inside the events: it was cut, or not written to its end."
        found.append(Diagnostic(Severity.DATA_LOSS, "truncated_trace", message))
    if reader.deep:
        message = "Trace events nested too deep to be read were skipped."
        found.append(Diagnostic(Severity.DATA_LOSS, "deep_event", message, count=reader.deep))
    if reader.malformed:
        message = "Malformed trace events were skipped."
        count = reader.malformed
        found.append(Diagnostic(Severity.DATA_LOSS, "malformed_event", message, count=count))
    return found


READER = trace_reader("kineto", sniff, parse)
