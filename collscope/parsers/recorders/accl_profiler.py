"""RCCL's ``accl`` profiler plugin: a JSON object per completed collective of one communicator.

Fields: acclWriteRecord of accl_profiler.cc and README of ROCm/rocm-systems (projects/rccl, RCCL
2.30.4 to 2.31). Communicator, host and process are in the file's name alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope.model import Severity, parse_op
from collscope.model.trace import RecordedCall, RecordedCalls, TraceCollective
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
    sequence,
    text,
    whole_size,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

DIALECT = "accl_profiler"
_PERFORMANCE = re.compile(rb'"coll_perf"\s*:')
_OWN = re.compile(rb'"(?:decomposition|coll_n_channels_reported)"\s*:')
# accl_profiler_rank0_node-1_pid4711_0x7f8c496ae9f661.jsonl; at first without process and hash
_NAME = re.compile(
    r"accl_profiler_rank(\d{1,7})_(.{1,255}?)(?:_pid(\d{1,9})_(0x[0-9a-fA-F]{1,16}))?\.jsonl(?:\.\w+)?"
)
_LIMIT = 2**63

_GROUP_TEXT = (
    "The records do not name their communicator; the file's name should hold it "
    "(accl_profiler_rank…_pid…_0x….jsonl): they were left out. Restore the file's name."
)
_TORN_TEXT = "Records that are cut or damaged were skipped."
_OPERATION_TEXT = "Records without an operation were skipped."
_ENQUEUED_TEXT = (
    "Records without kernel times hold only the host's time to enqueue a call: that time was left"
    " out."
)
_OPEN_TEXT = (
    "The file has no summary: the process did not end its communicator, and records may be missing."
)


def sniff(head: bytes) -> bool:
    """True for the beginning of such a file."""
    return (
        head.lstrip()[:1] == b"{"
        and _PERFORMANCE.search(head) is not None
        and _OWN.search(head) is not None
    )


def parse(data: bytes, name: str) -> RecordedCalls:
    """Collectives of one rank of one communicator, in the order of the file.

    name   of the file, with communicator, host and process
    """
    notes = Notes()
    named = _NAME.fullmatch(re.split(r"[/\\]", name)[-1])
    group = communicator(named[4]) if named else None
    calls: list[RecordedCall] = []
    summary: Mapping[object, object] | None = None
    for line, record in json_objects(data.decode("utf-8", errors="replace")):
        if record is None:
            notes.add(Severity.DATA_LOSS, "torn_record", _TORN_TEXT, line)
        elif "summary" in record:
            summary = mapping(record.get("summary"))
        elif group is None:
            notes.add(Severity.DATA_LOSS, "record_without_communicator", _GROUP_TEXT, line)
        elif (call := _call(record, group, line, notes)) is not None:
            calls.append(call)
    calls = once(calls, call_once, notes)
    # The file begins with its communicator. What the plugin itself lost had numbers, too.
    note_missing(notes, max(lacking_calls(calls, first=0) - _complete(summary, notes), 0))
    if not calls:
        notes.add(Severity.NOTICE, "no_calls", "The recording holds no collectives.", 1)
    return RecordedCalls(
        dialect=DIALECT,
        calls=tuple(calls),
        host=named[2] if named else None,
        pid=int(named[3]) if named and named[3] else None,
        # ncclComm.seqNumber has one counter per function (comm.h since NCCL 2.23).
        seq_per_op=True,
        diagnostics=notes.diagnostics,
    )


def _call(
    record: Mapping[object, object], group: str, line: int, notes: Notes
) -> RecordedCall | None:
    # {"header":{"rank":0,"n_ranks":8},"coll_perf":{"coll":"AllReduce","coll_sn":10,
    #  "coll_msg_size_bytes":4194304,"coll_algo":"Ring","coll_proto":"Simple","coll_n_channels":4,
    #  "coll_exec_time_us":150.30,…,"coll_timing_source":"gpu_globaltimer","decomposition":{…},
    #  "event_trace_ts":{"kernel_events":[{"channel_id":0,"kernel_start_ts":123456,…}]}}}
    header, body = mapping(record.get("header")), mapping(record.get("coll_perf"))
    name = text(body.get("coll"))
    if name is None:
        notes.add(Severity.DATA_LOSS, "record_without_operation", _OPERATION_TEXT, line)
        return None
    op, nranks = parse_op(name), parse_int(header.get("n_ranks")) or None
    time_us = number(body.get("coll_exec_time_us"))
    # Its stamps are ticks of the device's clock, which no other rank's can be held against.
    if not sequence(mapping(body.get("event_trace_ts")).get("kernel_events")):
        notes.add(Severity.NOTICE, "enqueue_time", _ENQUEUED_TEXT, line)
        time_us = None
    part = parse_int(body.get("coll_msg_size_bytes"))
    call = RecordedCall(
        collective=TraceCollective(
            op=op,
            group=group,
            group_size=nranks,
            algorithm=name_of(body.get("coll_algo")),
            protocol=name_of(body.get("coll_proto")),
        ),
        seq=parse_int(body.get("coll_sn")),
        duration_ns=round(time_us * 1000) if time_us and time_us * 1000 < _LIMIT else None,
        state="completed",
        busbw_gbps=number(body.get("coll_busbw_gbs")) if time_us else None,
        group_rank=parse_int(header.get("rank")),
        size_bytes=whole_size(op, part, nranks),
        timing_source=text(body.get("coll_timing_source")),
    )
    agreed = without_contradiction(call, number(body.get("coll_algobw_gbs")), part)
    if agreed is not call:
        notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, line)
    return agreed


def _complete(summary: Mapping[object, object] | None, notes: Notes) -> int:
    """Calls that the plugin counted as lost."""
    # {"summary":{"dropped_collectives":0,"leaked_collectives":0,"pool_size":256,"complete":true}}
    if summary is None:
        notes.add(Severity.NOTICE, "no_summary", _OPEN_TEXT, 1)
        return 0
    lost = sum(parse_int(summary.get(f"{kind}_collectives")) or 0 for kind in ("dropped", "leaked"))
    if lost:
        message = (
            f"The plugin itself lost {lost} collectives: its pool was full, or they never ended."
        )
        notes.add(Severity.DATA_LOSS, "recorder_dropped", message, 1)
    return lost


READER = recorder_reader(DIALECT, sniff, parse)
