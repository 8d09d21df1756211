"""Calls of the CUDA or HIP runtime while a source is read: what each does, by its name."""

from __future__ import annotations

import re
from functools import lru_cache

from collscope.model.trace import Call

NOT_TOLD = -1
_KINDS = {
    "EventRecord": Call.RECORD, "EventRecordWithFlags": Call.RECORD,
    "StreamWaitEvent": Call.WAIT,
    "StreamSynchronize": Call.STREAM_SYNC,
    "DeviceSynchronize": Call.DEVICE_SYNC, "CtxSynchronize": Call.DEVICE_SYNC,
    "EventSynchronize": Call.EVENT_SYNC,
}  # fmt: skip
_API = re.compile(r"(?:cuda|hip|cu)([A-Z]\w*?)(?:_v\d+|_ptsz|_spt)*")


@lru_cache(maxsize=4096)
def call_kind(name: str) -> int:
    """What a call of the runtime or driver does by its name; `NOT_TOLD` where that orders nothing.

    Launches are known by what they launched.

    >>> call_kind("hipStreamWaitEvent"), call_kind("cudaEventRecord_ptsz"), call_kind("cudaFree")
    (<Call.WAIT: 2>, <Call.RECORD: 1>, -1)
    """
    found = _API.fullmatch(name)
    return NOT_TOLD if found is None else _KINDS.get(found[1], NOT_TOLD)
