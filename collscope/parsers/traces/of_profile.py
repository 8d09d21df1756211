"""Traces of the single executions that a profile holds, one per device."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from collscope.kernel_names import classify
from collscope.model.profile import ProfiledDevice
from collscope.model.trace import Kind, TraceCollective, TraceColumns, TraceFile
from collscope.parsers._calls import host_calls
from collscope.parsers._columns import Index
from collscope.parsers.traces._named import from_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collscope.kernel_names import KernelName
    from collscope.model import KernelSpan, Profile

_FILL = re.compile(r"\[CUDA memset|Fill(?:Buffer|Image)|Memset")  # see parsers._rows._COPY


def profile_traces(profile: Profile) -> list[TraceFile]:
    """Traces of a profile; none where it has totals only.

    The kernel's name identifies a collective, where the profile has nothing better.
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
    names: Index[str] = Index()
    streams: Index[str] = Index()
    entries: Index[TraceCollective] = Index()
    hints: dict[str, KernelName | None] = {}
    collective = np.full(len(ordered), -1, dtype=np.int32)
    for k, span in enumerate(ordered):
        if span.kind != "kernel":
            continue
        if span.name not in hints:
            hints[span.name] = classify(span.name)
        hint = hints[span.name]
        if hint is not None:
            entry = span.collective or from_name(hint)
            collective[k] = entries[replace(entry, blocks=span.blocks)]
    kinds = [
        Kind.KERNEL if s.kind == "kernel" else Kind.MEMSET if _FILL.match(s.name) else Kind.COPY
        for s in ordered
    ]
    stream = np.array([streams[s.stream or "0"] for s in ordered], dtype=np.int32)
    number = np.array([s.call or 0 for s in ordered], dtype=np.int64)
    others = np.array([s.call or 0 for s in profile.spans if s.device != device], dtype=np.int64)
    launch, calls = host_calls(profile.calls, number, others, streams)
    columns = TraceColumns(
        kind=np.array(kinds, dtype=np.int8),
        name=np.array([names[s.name] for s in ordered], dtype=np.int32),
        stream=stream,
        start_ns=np.array([s.start_ns for s in ordered], dtype=np.int64),
        end_ns=np.array([s.end_ns for s in ordered], dtype=np.int64),
        launch_ns=launch,
        collective=collective,
        seq=np.full(len(ordered), -1, dtype=np.int64),
    )
    known = {found.device: found for found in profile.devices}.get(device, ProfiledDevice(device))
    return TraceFile(
        profile.dialect, names.values, streams.values, entries.values, columns, rank=known.rank,
        world_size=known.world_size, host=known.host, device=device, calls=calls, gpu=known.gpu,
    )  # fmt: skip
