"""NCCL Inspector: one JSON object per completed collective, formats v4.0 to v4.3 and v5.0.

Fields: inspector.cc and inspector_json.cc of NVIDIA/nccl 2.28 to 2.30 (plugins/profiler/inspector,
before that ext-profiler/inspector; RCCL ships the same). The format string stayed "v4.0" while
fields came and went, so what a record has is looked at, not its version.
"""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.model import Op, Severity, bus_bandwidth, parse_op
from collscope.model.trace import KERNEL_GPU, RecordedCall, RecordedCalls, TraceCollective
from collscope.parsers._notes import Notes
from collscope.parsers._sides import CODE, CONTRADICT_TEXT
from collscope.parsers.reader import recorder_reader
from collscope.parsers.recorders._bandwidths import without_contradiction
from collscope.parsers.recorders._numbering import (
    call_once,
    lacking_calls,
    note_missing,
    once,
)
from collscope.parsers.recorders._values import (
    communicator,
    json_objects,
    mapping,
    name_of,
    number,
    parse_int,
    text,
    whole_size,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SIGNS = re.compile(rb'"(?:inspector_output_format_version|coll_perf|p2p_perf|dump_stats)"\s*:')
_LIMIT = 2**63
_WEIGHED_NS = 20_000
_MOST_GBPS = 2000.0  # no GPU of 2026 has a fabric of 2 TB/s each way (MI455X: 1.8)

_SHORT_TEXT = (
    "The GPU times are about ten times too short and were left out: RCCL's Inspector took ticks "
    "of 100 MHz for nanoseconds until April 2026 (rocm-systems PR 4725). Record with a newer "
    "release."
)


def sniff(head: bytes) -> bool:
    """True for the beginning of an Inspector file, one record per line or spread over lines."""
    return head.lstrip()[:1] == b"{" and _SIGNS.search(head) is not None


def parse(data: bytes, name: str) -> RecordedCalls:
    """Collectives and point-to-point calls of one process, in the order of the file.

    name   unused: every record, or the marker above it, names host and process
    """
    reader = _Reader()
    for line, record in json_objects(data.decode("utf-8", errors="replace")):
        if record is None:
            message = "Records that are cut or damaged were skipped."
            reader.notes.add(Severity.DATA_LOSS, "torn_record", message, line)
        else:
            reader.read(line, record)
    return reader.recorded()


class _Reader:
    """Records read so far, and the context that a v4.3 marker gives to those below it."""

    def __init__(self) -> None:
        self.notes = Notes()
        self._calls: list[RecordedCall] = []
        # By the call's id: its line, and what is left of it.
        self._contradicting: dict[int, tuple[int, RecordedCall]] = {}
        self._header: Mapping[object, object] = {}
        self._left = 0  # records that still belong to the last marker
        self._host: str | None = None
        self._pid: int | None = None
        self._dropped: dict[tuple[object, object], int] = {}

    def read(self, line: int, record: Mapping[object, object]) -> None:
        """Take one object of the file."""
        own = mapping(record.get("header"))
        metadata = mapping(record.get("metadata"))
        self._host = self._host or text(metadata.get("hostname"))
        self._pid = self._pid or parse_int(metadata.get("pid"))
        if "dump_stats" in record:
            self._mark(line, own, mapping(record.get("dump_stats")))
            return
        if "proxy_trace" in record:
            self._left -= 1
            return
        for key, prefix in (("coll_perf", "coll"), ("p2p_perf", "p2p")):
            if isinstance(record.get(key), dict):
                self._add(line, own, mapping(record.get(key)), prefix)
                return
        message = "Objects without a collective were skipped."
        self.notes.add(Severity.NOTICE, "unread_record", message, line)

    def recorded(self) -> RecordedCalls:
        """Everything read."""
        dropped = sum(self._dropped.values())
        if dropped:
            message = f"Inspector itself lost {dropped} records: its ring buffers overflowed."
            self.notes.add(Severity.DATA_LOSS, "recorder_dropped", message, 1)
        if self._left > 0:
            message = f"The last dump announces {self._left} more records, so the file is cut."
            self.notes.add(Severity.DATA_LOSS, "torn_dump", message, 1)
        if not self._calls:
            message = "The recording holds no collectives."
            self.notes.add(Severity.NOTICE, "no_calls", message, 1)
        calls = tuple(once(self._calls, call_once, self.notes))
        # What the ring buffers dropped had numbers, too.
        note_missing(self.notes, max(lacking_calls(calls) - dropped, 0))
        if _too_short(calls):
            self.notes.add(Severity.DATA_LOSS, "times_too_short", _SHORT_TEXT, 1)
            calls = tuple(map(_untimed, calls))
        else:
            calls = tuple(map(self._agreed, calls))
        return RecordedCalls(
            dialect="inspector",
            calls=calls,
            host=self._host,
            pid=self._pid,
            # ncclComm.seqNumber has one counter per function (comm.h since NCCL 2.23).
            seq_per_op=True,
            diagnostics=self.notes.diagnostics,
        )

    def _agreed(self, call: RecordedCall) -> RecordedCall:
        line, agreed = self._contradicting.get(id(call), (0, call))
        self.notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, line, count=agreed is not call)
        return agreed

    def _mark(
        self, line: int, header: Mapping[object, object], stats: Mapping[object, object]
    ) -> None:
        # {"header":{…},"metadata":{…},"dump_stats":{"coll_records":2,"coll_dropped_total":0,…}}
        self._header = header
        counts = (parse_int(stats.get(f"{kind}_records")) for kind in ("coll", "p2p", "proxy"))
        self._left = sum(count or 0 for count in counts)
        for kind in ("coll", "p2p"):
            lost = parse_int(stats.get(f"{kind}_dropped_total"))
            if lost:
                # The counter is of the communicator's life: its last value is the sum.
                key = (f"{communicator(header.get('id'))} {parse_int(header.get('rank'))}", kind)
                self._dropped[key] = lost

    def _add(
        self,
        line: int,
        own: Mapping[object, object],
        body: Mapping[object, object],
        prefix: str,
    ) -> None:
        if not own or own.get("id") == self._header.get("id"):
            # Records between two markers belong to the first; a number of them is only announced.
            # Those of v4.1 and v4.2 have a context of their own as well.
            self._left -= 1
        header = own or self._header
        group = communicator(header.get("id"))
        if group is None:
            message = "Records without a communicator were skipped."
            self.notes.add(Severity.DATA_LOSS, "record_without_communicator", message, line)
            return
        name = text(body.get(prefix))
        if name is None:
            message = "Records without an operation were skipped."
            self.notes.add(Severity.DATA_LOSS, "record_without_operation", message, line)
            return
        call = _call(header, body, prefix, group, parse_op(name))
        algbw = number(body.get(f"{prefix}_algobw_gbs"))
        self._calls.append(call)
        agreed = without_contradiction(call, algbw)
        if agreed is not call:
            self._contradicting[id(call)] = line, agreed


def _call(
    header: Mapping[object, object],
    body: Mapping[object, object],
    prefix: str,
    group: str,
    op: Op,
) -> RecordedCall:
    nranks = parse_int(header.get("n_ranks")) or None
    # coll_exec_time_us is a whole number of µs; a float in derived plugins.
    time_us = number(body.get(f"{prefix}_exec_time_us"))
    start, end = _times(mapping(body.get("event_trace_ts")), prefix)
    return RecordedCall(
        collective=TraceCollective(
            op=op,
            group=group,
            group_size=nranks,
            peer=parse_int(body.get("p2p_peer")),
            algorithm=name_of(body.get("coll_algo")),
            protocol=name_of(body.get("coll_proto")),
        ),
        seq=parse_int(body.get(f"{prefix}_sn")),
        start_ns=start,
        end_ns=end,
        duration_ns=round(time_us * 1000) if time_us and time_us * 1000 < _LIMIT else None,
        state="completed",
        busbw_gbps=number(body.get(f"{prefix}_busbw_gbs")),
        group_rank=parse_int(header.get("rank")),
        size_bytes=whole_size(op, parse_int(body.get(f"{prefix}_msg_size_bytes")), nranks),
        timing_source=text(body.get(f"{prefix}_timing_source")),
    )


def _too_short(calls: Sequence[RecordedCall]) -> bool:
    """True where the GPU's times cannot be true: by the host's stamps, or by what they would mean.

    RCCL's Inspector took ticks of 100 MHz for nanoseconds until rocm-systems PR 4725 (April 2026).
    """
    timed = [c for c in calls if c.timing_source == KERNEL_GPU and c.duration_ns]
    # Beside short times the host's own delay weighs.
    stamped = [
        (c.end_ns - c.start_ns) / c.duration_ns
        for c in timed
        if c.start_ns and c.end_ns and c.duration_ns and c.duration_ns >= _WEIGHED_NS
    ]
    if stamped and 8 < median(stamped) < 12:
        return True
    return any((_busbw(c) or 0) > _MOST_GBPS for c in timed)


def _busbw(call: RecordedCall) -> float | None:
    return bus_bandwidth(
        call.collective.op,
        size=call.size_bytes,
        time_s=None if call.duration_ns is None else call.duration_ns * 1e-9,
        nranks=call.collective.group_size,
    )


def _untimed(call: RecordedCall) -> RecordedCall:
    """The call without its GPU time."""
    if call.timing_source != KERNEL_GPU:
        return call
    return replace(call, duration_ns=None, busbw_gbps=None)


def _times(trace: Mapping[object, object], prefix: str) -> tuple[int | None, int | None]:
    """When it began and ended in ns: of its kernels on all channels, else of the host's call."""
    # "event_trace_ts":{"coll_start_ts":…,"coll_stop_ts":…,"kernel_events":[{"kernel_start_ts":…}]}
    events = trace.get("kernel_events")
    kernels = [mapping(event) for event in events] if isinstance(events, list) else []
    starts = [t for kernel in kernels if (t := parse_int(kernel.get("kernel_start_ts")))]
    stops = [t for kernel in kernels if (t := parse_int(kernel.get("kernel_stop_ts")))]
    start = min(starts, default=parse_int(trace.get(f"{prefix}_start_ts")) or None)
    stop = max(stops, default=parse_int(trace.get(f"{prefix}_stop_ts")) or None)
    return _from_us(start), _from_us(stop)


def _from_us(time_us: int | None) -> int | None:
    return None if time_us is None or time_us * 1000 >= _LIMIT else time_us * 1000


READER = recorder_reader("inspector", sniff, parse)
