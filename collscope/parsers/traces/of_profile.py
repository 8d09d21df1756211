"""Traces of the single executions that a profile holds, one per device."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from collscope.kernel_names import classify
from collscope.model.profile import ProfiledDevice
from collscope.model.trace import Call, HostCalls, Kind, TraceCollective, TraceColumns, TraceFile
from collscope.parsers._calls import NOT_TOLD
from collscope.parsers._columns import Index, launches
from collscope.parsers.traces._named import from_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collscope.kernel_names import KernelName
    from collscope.model import KernelSpan, Profile
    from collscope.model.profile import ProfiledCalls
    from collscope.model.trace import Ints


def profile_traces(profile: Profile) -> list[TraceFile]:
    """Traces of a profile; none where it has totals only.

    What a collective is stands in its kernel's name, where the profile tells no more.
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
    kinds = [Kind.KERNEL if s.kind == "kernel" else Kind.COPY for s in ordered]
    stream = np.array([streams[s.stream or "0"] for s in ordered], dtype=np.int32)
    number = np.array([s.call or 0 for s in ordered], dtype=np.int64)
    launch, calls = _host_calls(profile, device, number, streams)
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
    known = {told.device: told for told in profile.devices}.get(device, ProfiledDevice(device))
    return TraceFile(
        profile.dialect, names.values, streams.values, entries.values, columns, rank=known.rank,
        world_size=known.world_size, host=known.host, device=device, calls=calls, gpu=known.gpu,
    )  # fmt: skip


def _host_calls(
    profile: Profile, device: str | None, number: Ints, streams: Index[str]
) -> tuple[Ints, HostCalls | None]:
    """Start of the call behind each row, and the calls of the process that used the device.

    A process that used several devices orders the work of all: its calls are left out.
    number  of the call behind each row; 0: not told
    """
    calls = profile.calls
    if calls is None:
        return np.full(len(number), -1, dtype=np.int64), None
    call = launches(number, calls.number, calls.start_ns)
    launch = np.where(call < 0, -1, calls.start_ns[call])
    process = np.unique(calls.process[call[call >= 0]])
    if len(process) != 1 or _shared(profile, calls, device, int(process[0])):
        return launch, None
    kind = calls.kind.copy()
    kind[call[call >= 0]] = Call.LAUNCH
    kept = np.flatnonzero((kind != NOT_TOLD) & (calls.process == process[0]))
    kept = kept[np.argsort(calls.start_ns[kept], kind="stable")]
    place = np.full(len(kind) + 1, -1, dtype=np.int32)
    place[kept] = np.arange(len(kept))
    label = np.array([*(streams[name] for name in calls.streams), NOT_TOLD], dtype=np.int32)
    _, thread = np.unique(calls.thread[kept], return_inverse=True)
    return launch, HostCalls(
        kind=kind[kept],
        thread=thread.astype(np.int32),
        start_ns=calls.start_ns[kept],
        end_ns=calls.end_ns[kept],
        stream=label[calls.stream[kept]],
        event=calls.event[kept],
        of_row=place[call],
    )


def _shared(profile: Profile, calls: ProfiledCalls, device: str | None, process: int) -> bool:
    """Whether a process launched work on another device, too."""
    others = np.array(
        [span.call or 0 for span in profile.spans if span.device != device], dtype=np.int64
    )
    call = launches(others, calls.number, calls.start_ns)
    return bool((calls.process[call[call >= 0]] == process).any())
