"""Calls of the CUDA or HIP runtime while a source is read: what each does, by its name."""

from __future__ import annotations

import re
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from collscope.model.profile import ProfiledCalls
from collscope.model.trace import Call
from collscope.parsers._columns import Index, as_numpy

if TYPE_CHECKING:
    from collections.abc import Container

NOT_TOLD = -1
_KINDS = {
    "EventRecord": Call.RECORD, "EventRecordWithFlags": Call.RECORD,
    "StreamWaitEvent": Call.WAIT,
    "StreamSynchronize": Call.STREAM_SYNC,
    "DeviceSynchronize": Call.DEVICE_SYNC, "CtxSynchronize": Call.DEVICE_SYNC,
    "EventSynchronize": Call.EVENT_SYNC,
}  # fmt: skip
_API = re.compile(r"(?:cuda|hip|cu)([A-Z]\w*?)(?:_v\d+|_ptsz|_spt)*")
_LIMIT = 2**63


@lru_cache(maxsize=4096)
def call_kind(name: str) -> int:
    """What a call of the runtime or driver does by its name; `NOT_TOLD` where that orders nothing.

    Launches are known by what they launched.

    >>> call_kind("hipStreamWaitEvent"), call_kind("cudaEventRecord_ptsz"), call_kind("cudaFree")
    (<Call.WAIT: 2>, <Call.RECORD: 1>, -1)
    """
    found = _API.fullmatch(name)
    return NOT_TOLD if found is None else _KINDS.get(found[1], NOT_TOLD)


class CallRows:
    """Calls that launched something or order GPU work; the others are not kept."""

    def __init__(self, launched: Container[int]) -> None:
        """Start without a call; `launched` are the numbers that executions name."""
        self._launched = launched
        self._threads: Index[object] = Index()
        self._streams: Index[str] = Index()
        self._events: Index[object] = Index()
        self._number, self._start, self._end = array("q"), array("q"), array("q")
        self._process, self._thread = array("i"), array("i")
        self._kind, self._stream, self._event = array("b"), array("i"), array("i")
        self._processes: Index[object] = Index()

    def add(
        self, name: object, number: object, where: tuple[object, object], times: tuple[object, ...]
    ) -> None:
        """Keep a call.

        name    of the function, as ``cudaStreamWaitEvent_v3020``
        number  what executions name it by
        where   process and thread
        times   start and end, ns
        """
        kind = call_kind(name) if isinstance(name, str) else NOT_TOLD
        own = number if isinstance(number, int) and 0 < number < _LIMIT else 0
        if kind == NOT_TOLD and own not in self._launched:
            return
        start, end = times
        if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end < _LIMIT):
            return
        self._number.append(own)
        self._process.append(self._processes[where[0]])
        self._thread.append(self._threads[where])
        self._start.append(start)
        self._end.append(end)
        self._kind.append(kind)
        self._stream.append(NOT_TOLD)
        self._event.append(NOT_TOLD)

    def tell(self, place: int, stream: str | None, event: object) -> None:
        """Set the stream of a call, named as executions name it, and its event."""
        if stream is not None:
            self._stream[place] = self._streams[stream]
        if event is not None:
            self._event[place] = self._events[self._process[place], event]

    def __len__(self) -> int:
        """Calls kept."""
        return len(self._number)

    def columns(self) -> ProfiledCalls | None:
        """The calls; None where there are none."""
        if not self._number:
            return None
        return ProfiledCalls(
            number=as_numpy(self._number, np.int64),
            process=as_numpy(self._process, np.int32),
            thread=as_numpy(self._thread, np.int32),
            kind=as_numpy(self._kind, np.int8),
            start_ns=as_numpy(self._start, np.int64),
            end_ns=as_numpy(self._end, np.int64),
            stream=as_numpy(self._stream, np.int32),
            event=as_numpy(self._event, np.int32),
            streams=self._streams.values,
        )
