"""JSON for chrome://tracing of rocprof v1 (``results.json``) and of ``rpd2tracing.py``.

source  ROCm/rocprofiler bin/tblextr.py (rocprof v1); ROCm/rocmProfileData tools/rpd2tracing.py.
        Both write numbers as texts. rocprof also has nanoseconds, next to the event's microseconds.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from collscope.model import Diagnostic, Profile, Severity
from collscope.parsers._rows import Rows, kind_of, number
from collscope.parsers.reader import one_profile, text_profile_reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROCPROF, RPD = "rocprof_v1_json", "rpd2tracing"
_DECODER = json.JSONDecoder()
# { "traceEvents":[{}
# ,{"args":{"name":"CPU HIP API"},"ph":"M","pid":2,"name":"process_name","sort_index":0}
_ROCPROF = re.compile(r'\s*\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}\s*,')
_ROCPROF_NAME = re.compile(r'"name"\s*:\s*"(?:CPU HIP API|CPU HSA API|COPY|GPU\d{1,3})"')
# [ {}
# ,{"name": "process_name", "ph": "M", "pid":"2","args":{"name":"GPU2"}}
_RPD = re.compile(
    r'\s*(?:\{\s*"traceEvents"\s*:\s*)?\[\s*\{\s*\}\s*,\s*\{\s*"name"\s*:\s*"process_name"\s*,'
)
_GPU = re.compile(r"GPU(\d{1,6})")
_GAP = re.compile(r"[\s,]*")
_KERNEL = "KernelExecution"
_HEAD = 65_536
_CUT_TEXT = "The JSON ends early or is damaged: the events before that were kept."
_COARSE_TEXT = (
    "The file has whole microseconds: the sum of many short kernels may be too low. The RPD file "
    "that it was made from has nanoseconds."
)


def sniff_text(head: str) -> bool:
    """True for the beginning of either document."""
    return _dialect(head) is not None


def parse(text: str) -> Profile:
    """Spans and totals of kernels and copies, in ns."""
    dialect = _dialect(text[:_HEAD]) or RPD
    rows = Rows()
    gpus: dict[str, str] = {}
    events = list(_events(text, rows))
    for event in events:
        named = event.get("args")
        if event.get("name") == "process_name" and isinstance(named, dict):
            gpus[str(event.get("pid"))] = str(named.get("name"))
    for place, event in enumerate(events, start=1):
        if event.get("ph") != "X":
            continue
        if dialect == ROCPROF:
            _add_rocprof(rows, event, place)
        elif (gpu := _GPU.fullmatch(gpus.get(str(event.get("pid")), ""))) is not None:
            _add_rpd(rows, event, gpu[1], place)
    if dialect == RPD and not rows.empty:
        rows.note(Diagnostic(Severity.NOTICE, "whole_microseconds", _COARSE_TEXT))
    return rows.profile(dialect)


def _dialect(head: str) -> str | None:
    if _RPD.match(head):
        return RPD
    return ROCPROF if _ROCPROF.match(head) and _ROCPROF_NAME.search(head) else None


def _events(text: str, rows: Rows) -> Iterator[Mapping[str, Any]]:
    """The objects of the first list, one by one: a document that is cut has those before."""
    at = text.find("[") + 1
    while True:
        gap = _GAP.match(text, at)
        at = at if gap is None else gap.end()
        if text[at : at + 1] == "]":
            return
        try:
            event, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            rows.note(Diagnostic(Severity.DATA_LOSS, "cut_json", _CUT_TEXT))
            return
        if isinstance(event, dict):
            yield event


def _add_rocprof(rows: Rows, event: Mapping[str, Any], place: int) -> None:
    """An event of a GPU or of a copy: those of the host name no device."""
    args = event.get("args")
    if not isinstance(args, dict) or "dev-id" not in args:
        return
    name = event.get("name")
    row = (name, args.get("BeginNs"), args.get("EndNs"), args["dev-id"], args.get("stream-id"))
    rows.add_span(row, kind_of(str(name)), place, int(number(args.get("pid")) or 0))


def _add_rpd(rows: Rows, event: Mapping[str, Any], gpu: str, place: int) -> None:
    begin_us, lasted_us = number(event.get("ts")), number(event.get("dur"))
    start = end = None
    if begin_us is not None and lasted_us is not None:
        start, end = int(begin_us * 1_000), int((begin_us + lasted_us) * 1_000)
    args = event.get("args")
    name = event.get("name")
    if name == _KERNEL and isinstance(args, dict):  # its name is in "desc", or the other way
        name = args.get("desc") or name
    rows.add_span((name, start, end, gpu, event.get("tid")), kind_of(str(name)), place)


READER = text_profile_reader(
    "rocm_json", sniff_text, lambda text: one_profile(parse(text)), alone=True
)
