"""Records of traces: what a rank's GPU and host did, as the trace parsers give it out.

Times are integer ns on the clock of the source. Columns are numpy arrays of equal length, since a
trace has up to millions of kernels; what repeats is in a table once and is named by its index.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model.diagnostic import Diagnostic
from collscope.model.trace_collective import TraceCollective as TraceCollective  # noqa: PLC0414 - also from here

Ints = npt.NDArray[np.int64]
KERNEL_GPU = "kernel_gpu"  # a recorded duration by the GPU's own clock


class Kind(IntEnum):
    """What a row of `TraceColumns` is."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2


class TraceColumns(msgspec.Struct, frozen=True):
    """Everything a GPU executed, in the order of its start; -1 where not known."""

    kind: npt.NDArray[np.int8]  # `Kind`
    name: npt.NDArray[np.int32]  # into TraceFile.names
    stream: npt.NDArray[np.int32]  # into TraceFile.streams
    start_ns: Ints
    end_ns: Ints
    launch_ns: Ints  # start of the host call that launched it
    collective: npt.NDArray[np.int32]  # into TraceFile.collectives; -1: no collective
    seq: Ints  # the source's own number of the collective in its group

    def __len__(self) -> int:
        """Rows."""
        return len(self.start_ns)


class Call(IntEnum):
    """What a host call of `HostCalls` does."""

    LAUNCH = 0  # of the rows that name it
    RECORD = 1  # an event, on a stream that no source names
    WAIT = 2  # a stream waits for an event
    STREAM_SYNC = 3  # the host waits for a stream,
    DEVICE_SYNC = 4  # for everything,
    EVENT_SYNC = 5  # or for an event


class HostCalls(msgspec.Struct, frozen=True):
    """Calls of the CUDA or HIP runtime that order GPU work, in the order of their start.

    `stream` and `event` are -1 where unknown: a plain trace of the PyTorch profiler has neither,
    one with enable_cuda_sync_events both for waits, and the stream of a stream's synchronisation.
    """

    kind: npt.NDArray[np.int8]  # `Call`
    thread: npt.NDArray[np.int32]  # numbered by the first call
    start_ns: Ints
    end_ns: Ints
    stream: npt.NDArray[np.int32]  # into TraceFile.streams
    event: npt.NDArray[np.int32]  # numbers of the source; events that live at once differ
    of_row: npt.NDArray[np.int32]  # (rows,) call that launched each row of the trace; -1: not known

    def __len__(self) -> int:
        """Calls."""
        return len(self.kind)


class TraceFile(msgspec.Struct, frozen=True):
    """One rank's trace, or one device's."""

    dialect: str
    names: tuple[str, ...]
    streams: tuple[str, ...]
    collectives: tuple[TraceCollective, ...]
    columns: TraceColumns
    rank: int | None = None  # world rank
    world_size: int | None = None
    host: str | None = None
    device: str | None = None
    library_version: str | None = None
    steps: tuple[tuple[int, int], ...] = ()  # (start_ns, end_ns) of profiler steps, where marked
    calls: HostCalls | None = None  # None: the source lacks them
    gpu: str | None = None  # what the device is, as NVIDIA H200
    named_rank: int | None = None  # by the file's name, where the trace has no rank
    groups: tuple[tuple[int, ...], ...] = ()  # world ranks of the process groups it is in, if known
    operators: bool = False  # the profiler recorded those of the host: its CPU activities
    steps_before: int | None = None  # of the job, before the first one marked; None: unknown
    diagnostics: tuple[Diagnostic, ...] = msgspec.field(default=())


class RecordedCall(msgspec.Struct, frozen=True, gc=False):
    """One rank's collective without GPU times: flight recorder, Inspector, RCCL recorder, …"""

    collective: TraceCollective
    seq: int | None
    start_ns: int | None = None  # host clock, where known
    end_ns: int | None = None
    duration_ns: int | None = None  # of the collective, where known
    state: str | None = None  # scheduled, started, completed; captured: into a graph, not executed
    busbw_gbps: float | None = None  # as reported
    group_rank: int | None = None  # this rank's number in the group
    size_bytes: int | None = None  # nccl-tests size S, where only bytes are known
    in_place: bool | None = None
    timing_source: str | None = None  # KERNEL_GPU; kernel_cpu, collective_cpu (Inspector)
    # equal for calls of a rank and group launched as one; None: unknown
    together: int | None = None
    frames: tuple[str, ...] = ()  # where the host made a call that is open, the innermost first
    timeout_ns: int | None = None  # after which the recorder's watchdog ends the job
    kernel_end_ns: int | None = None  # of its GPU time, on one clock of the recording's GPU
    channels: int | None = None

    @property
    def kernel_ns(self) -> int | None:
        """GPU time of the call's kernels; None where the duration is not known, or of the host."""
        return self.duration_ns if self.timing_source == KERNEL_GPU else None


class GroupStatus(msgspec.Struct, frozen=True, array_like=True):
    """How far a rank got in one group, by the recorder's own counters of sequence numbers.

    Stores hold it as an array, as they do `TraceCollective`.
    """

    group: str
    last_enqueued: int | None = None
    last_started: int | None = None
    last_completed: int | None = None


class RecordedCalls(msgspec.Struct, frozen=True):
    """What one rank's recorder file holds."""

    dialect: str
    calls: tuple[RecordedCall, ...]
    rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    pid: int | None = None
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()  # (group, world ranks)
    library_version: str | None = None
    status: tuple[GroupStatus, ...] = ()
    seq_per_op: bool = False  # `seq` counts each operation of a group by itself
    coverage: str = "sample"  # whole; tail: of a ring buffer, without gaps; sample: any may lack
    callback_ns: int | None = None  # that the recorder took from the job's threads, where known
    process: str | None = None  # names the process among all, where its recording is in parts
    part: int = 0  # place of this one among them
    diagnostics: tuple[Diagnostic, ...] = msgspec.field(default=())

    @property
    def distinct(self) -> bool:
        """False where two ranks may have equal recordings: it shows no rank, process or time."""
        shown = (self.rank, self.pid, self.process, *(call.start_ns for call in self.calls))
        return any(value is not None for value in shown)
