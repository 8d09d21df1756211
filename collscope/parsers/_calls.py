"""Calls of the CUDA or HIP runtime while a source is read: what each does, by its name."""

from __future__ import annotations

import re
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model import Diagnostic, Severity
from collscope.model.profile import ProfiledCalls
from collscope.model.trace import Call, HostCalls
from collscope.parsers._columns import Index, as_numpy, launches

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from collscope.model.trace import Ints
    from collscope.parsers._columns import Floats

UNKNOWN = -1
_KINDS = {
    "EventRecord": Call.RECORD, "EventRecordWithFlags": Call.RECORD,
    "StreamWaitEvent": Call.WAIT,
    "StreamSynchronize": Call.STREAM_SYNC,
    "DeviceSynchronize": Call.DEVICE_SYNC, "CtxSynchronize": Call.DEVICE_SYNC,
    "EventSynchronize": Call.EVENT_SYNC,
}  # fmt: skip
# cudaLaunchKernel, cudaLaunchKernelExC_v11060, cuLaunchKernelEx, hipExtModuleLaunchKernel,
# cudaLaunchCooperativeKernel
_LAUNCH = re.compile(r"Launch(?:Cooperative)?Kernel")
_API = re.compile(r"(?:cuda|hip|cu)([A-Z]\w*?)(?:_v\d+|_ptsz|_spt)*")
_LIMIT = 2**63
_EXCEPTIONAL = 100  # of so many launches, the kernel of one may lack


class Launches(msgspec.Struct, frozen=True):
    """Launches of one kernel each; numbers rise in the order of the calls."""

    number: Ints  # (launches,) what executions name them by
    start: Ints | Floats
    named: npt.NDArray[np.bool_]  # an execution does


@lru_cache(maxsize=4096)
def call_kind(name: str) -> int:
    """What a call of the runtime or driver does by its name; `UNKNOWN` where that orders nothing.

    Launches are known by what they launched.

    >>> call_kind("hipStreamWaitEvent"), call_kind("cudaEventRecord_ptsz"), call_kind("cudaFree")
    (<Call.WAIT: 2>, <Call.RECORD: 1>, -1)
    """
    found = _API.fullmatch(name)
    return UNKNOWN if found is None else _KINDS.get(found[1], UNKNOWN)


@lru_cache(maxsize=4096)
def is_launch(name: str) -> bool:
    """Whether a call launches one kernel.

    >>> is_launch("cudaLaunchKernelExC_v11060"), is_launch("hipGraphLaunch")
    (True, False)
    """
    return _LAUNCH.search(name) is not None


def is_relevant_call(name: str) -> bool:
    """Whether a call matters whatever it launched: it orders GPU work, launches or captures it."""
    return call_kind(name) != UNKNOWN or is_launch(name) or may_capture(name)


def may_capture(name: str) -> bool:
    """Whether a launch behind the call may be into a graph: then no kernel follows it."""
    return "BeginCapture" in name


def ends_capture(name: str) -> bool:
    """Whether a call ends what `may_capture` begins."""
    return "EndCapture" in name


def without_kernel(
    launch: Launches, host_end: float, waited: float, gpu: tuple[float, float]
) -> tuple[int, int]:
    """Launches of one process without their kernel, and all launches.

    Those behind the last that has one do not count where the profiler stopped while the GPU was
    still at work: the host's calls and the rows then end together, and the host has not waited for
    the device since. In 60 recorded traces with 260 000 launches there is no launch without its
    kernel.

    launch    the launches of one kernel each
    host_end  end of the last call
    waited    start of the last that waited for the device; -inf without
    gpu       end of the last row, and what the longest of the last rows takes
    """
    number, first = np.unique(launch.number, return_index=True)
    named = np.flatnonzero(launch.named[first])
    if not len(named):
        return 0, 0
    last = int(named[-1])
    before = last + 1 - len(named)
    behind = launch.start[first[last + 1 :]]
    ended, running = gpu
    if abs(host_end - ended) <= running:
        behind = behind[behind < waited]
    return before + len(behind), len(number)


def end_and_longest(start: Ints | Floats, lasts: Ints | Floats) -> tuple[float, float]:
    """When the last of some rows ends, and what the longest of their last tenth takes."""
    if not len(start):
        return 0.0, 0.0
    late = start >= np.quantile(start, 0.9)
    return float((start + lasts).max()), float(lasts[late].max())


def lost_kernels(lost: int, launched: int) -> Diagnostic:
    """The diagnostic of kernels that a source shows being launched, and does not hold.

    Where one in a hundred lacks, figures of the GPU's time are off by as much.
    """
    if lost * _EXCEPTIONAL > launched:
        message = (
            "The trace lacks kernels that were launched: call counts are lower bounds, and what "
            "the GPU did meanwhile is not known. Trace fewer steps, so that the profiler drops "
            "none."
        )
        return Diagnostic(Severity.DATA_LOSS, "many_kernels_lost", message, count=lost)
    message = (
        "The trace lacks kernels that were launched: its GPU idles less than it seems, and "
        "computes more. Trace fewer steps, so that the profiler drops none."
    )
    return Diagnostic(Severity.DATA_LOSS, "kernels_lost", message, count=lost)


def missing_numbers(lost: int, numbered: int) -> Diagnostic:
    """The diagnostic of executions that a source numbers, and does not hold.

    Where one in a hundred lacks, figures of the GPU's time are off by as much.
    """
    message = (
        "The numbering of kernels or copies has gaps: the missing ones are not in the file, which "
        "may be an excerpt or damaged."
    )
    if lost * _EXCEPTIONAL > numbered:
        message += " How the GPU spent its time is not known."
        return Diagnostic(
            Severity.DATA_LOSS, "many_kernels_lost", message, count=min(lost, _LIMIT - 1)
        )
    return Diagnostic(Severity.DATA_LOSS, "kernels_lost", message, count=lost)


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
        # Launches of one kernel each: process, number, start.
        self._launches = array("q")
        self._captures = False

    def add(
        self, name: object, number: object, where: tuple[object, object], times: tuple[object, ...]
    ) -> None:
        """Keep a call.

        name    of the function, as ``cudaStreamWaitEvent_v3020``
        number  what executions name it by
        where   process and thread
        times   start and end, ns
        """
        start, end = times
        own = number if isinstance(number, int) and 0 < number < _LIMIT else 0
        kind = UNKNOWN
        if isinstance(name, str):
            kind = call_kind(name)
            if own and is_launch(name) and isinstance(start, int):
                self._launches.extend((self._processes[where[0]], own, _within(start)))
            elif may_capture(name):
                self._captures = True
        if kind == UNKNOWN and own not in self._launched:
            return
        if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end < _LIMIT):
            return
        self._number.append(own)
        self._process.append(self._processes[where[0]])
        self._thread.append(self._threads[where])
        self._start.append(start)
        self._end.append(end)
        self._kind.append(kind)
        self._stream.append(UNKNOWN)
        self._event.append(UNKNOWN)

    def set_stream(self, place: int, stream: str | None, event: object) -> None:
        """Set the stream of a call, named as executions name it, and its event."""
        if stream is not None:
            self._stream[place] = self._streams[stream]
        if event is not None:
            self._event[place] = self._events[self._process[place], event]

    def __len__(self) -> int:
        """Calls kept."""
        return len(self._number)

    def lost(self, gpu: tuple[float, float]) -> Iterator[Diagnostic]:
        """That kernels were launched which are not among the executions.

        gpu  end of the last execution, ns, and what the longest of the last ones takes
        """
        launches = as_numpy(self._launches, np.int64).reshape(-1, 3)
        if self._captures or not len(launches):
            return
        process, start, end = (
            as_numpy(column, kind)
            for column, kind in (
                (self._process, np.int32),
                (self._start, np.int64),
                (self._end, np.int64),
            )
        )
        lost = launched = 0
        for own in np.unique(launches[:, 0]).tolist():
            own_rows = launches[launches[:, 0] == own]
            named = np.array([number in self._launched for number in own_rows[:, 1].tolist()])
            of_process = process == own
            waits = start[of_process & (as_numpy(self._kind, np.int8) == Call.DEVICE_SYNC)]
            host_end = max(int(own_rows[:, 2].max()), int(end[of_process].max(initial=0)))
            waited = float(waits.max()) if len(waits) else -np.inf
            lacking, of_process_launched = without_kernel(
                Launches(own_rows[:, 1], own_rows[:, 2], named), host_end, waited, gpu
            )
            lost, launched = lost + lacking, launched + of_process_launched
        if lost:
            yield lost_kernels(lost, launched)

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


def host_calls(
    calls: ProfiledCalls | None, number: Ints, others: Ints, streams: Index[str]
) -> tuple[Ints, HostCalls | None]:
    """Start of the call behind each row of a device, -1 where not known, and its process' calls.

    A process that launched work on other devices, too, orders the work of all: None for its calls.

    number   of the call behind each row; 0: unknown
    others   numbers of the calls behind the rows of all other devices
    streams  labels of the device's streams; those that only calls name are added
    """
    if calls is None:
        return np.full(len(number), -1, dtype=np.int64), None
    call, other = (launches(rows, calls.number, calls.start_ns) for rows in (number, others))
    launch = np.where(call < 0, -1, calls.start_ns[call])
    process = np.unique(calls.process[call[call >= 0]])
    if len(process) != 1 or (calls.process[other[other >= 0]] == process[0]).any():
        return launch, None
    kind = calls.kind.copy()
    kind[call[call >= 0]] = Call.LAUNCH
    kept = np.flatnonzero((kind != UNKNOWN) & (calls.process == process[0]))
    kept = kept[np.argsort(calls.start_ns[kept], kind="stable")]
    place = np.full(len(kind) + 1, -1, dtype=np.int32)
    place[kept] = np.arange(len(kept))
    label = np.array([*(streams[name] for name in calls.streams), UNKNOWN], dtype=np.int32)
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


def _within(start: int) -> int:
    """The time where it fits a column, else 0."""
    return start if 0 <= start < _LIMIT else 0


# {"event":"0x7f12","stream":"0x55ce"}, graphExec = 0x24922d90 | stream = 0x0
_ARGUMENT = re.compile(
    r"\b(stream|event)\"?\s{0,9}[:=]\s{0,9}\"?(0x[0-9a-fA-F]{1,16}|\(nil\)|nullptr)"
)
_NULL = "0x0"


def pointer(text: object) -> str | None:
    """A printed pointer in one spelling; None where the text is none.

    >>> pointer("0x00007F1"), pointer("(nil)"), pointer("5")
    ('0x7f1', '0x0', None)
    """
    if text in ("(nil)", "nullptr"):
        return _NULL
    if not isinstance(text, str) or not re.fullmatch("0x[0-9a-fA-F]{1,16}", text):
        return None
    return f"0x{int(text, 16):x}"


def stream_and_event(text: object) -> tuple[str | None, str | None]:
    """Pointers of the stream and the event among a call's printed arguments.

    >>> stream_and_event("graphExec = 0x24922d90 | stream = 0x0")
    ('0x0', None)
    """
    found = dict(_ARGUMENT.findall(text)) if isinstance(text, str) else {}
    return pointer(found.get("stream")), pointer(found.get("event"))
