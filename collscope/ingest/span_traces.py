"""Kernel rows of an SQLite profile as traces, one per device (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from collscope.kernel_names import classify
from collscope.model import KernelSpan, Profile
from collscope.model.trace import Kind, TraceCollective, TraceColumns, TraceFile
from collscope.parsers.traces._named import from_name


def profile_traces(profile: Profile) -> list[TraceFile]:
    """Traces of a profile's single executions; none where it has totals only.

    Such a profile tells no rank, no process group and no size: what a collective is stands in its
    kernel's name alone.
    """
    by_device: dict[str | None, list[KernelSpan]] = defaultdict(list)
    for span in profile.spans:
        by_device[span.device].append(span)
    devices = sorted(by_device, key=lambda device: device or "")
    traces = [_trace(profile, device, by_device[device]) for device in devices]
    # What was found while reading is of the file, not of one device.
    return [replace(traces[0], diagnostics=profile.diagnostics), *traces[1:]] if traces else []


def _trace(profile: Profile, device: str | None, spans: Sequence[KernelSpan]) -> TraceFile:
    ordered = sorted(spans, key=lambda span: span.start_ns)
    names: dict[str, int] = defaultdict(count().__next__)
    streams: dict[str, int] = defaultdict(count().__next__)
    name = np.array([names[s.name] for s in ordered], dtype=np.int32)
    stream = np.array([streams[s.stream or "0"] for s in ordered], dtype=np.int32)
    entries: dict[TraceCollective, int] = {}
    of_name = []
    for text in names:
        hints = classify(text)
        entry = None if hints is None else from_name(hints)
        of_name.append(-1 if entry is None else entries.setdefault(entry, len(entries)))
    unknown = np.full(len(ordered), -1, dtype=np.int64)
    kinds = [Kind.KERNEL if s.kind == "kernel" else Kind.COPY for s in ordered]
    columns = TraceColumns(
        kind=np.array(kinds, dtype=np.int8),
        name=name,
        stream=stream,
        start_ns=np.array([s.start_ns for s in ordered], dtype=np.int64),
        end_ns=np.array([s.end_ns for s in ordered], dtype=np.int64),
        launch_ns=unknown,
        collective=np.array(of_name, dtype=np.int32)[name],
        seq=unknown,
    )
    return TraceFile(
        profile.dialect, tuple(names), tuple(streams), tuple(entries), columns, device=device
    )
