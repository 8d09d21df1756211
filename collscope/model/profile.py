"""Records of profiles: kernels and copies of one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from collscope.model.diagnostic import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

    from collscope.model.trace import Ints, TraceCollective

_NAMES = {
    "nsys": "Nsight Systems", "rocpd": "rocprofv3", "rocprof_json": "rocprofv3", "rpd": "RPD",
}  # fmt: skip


def other_profilers(dialects: Iterable[str]) -> tuple[str, ...]:
    """Profilers beside that of PyTorch, by the dialects of traces: what they cost is not known.

    >>> other_profilers(("kineto", "rocpd", "rocprof_json", "a_new_one"))
    ('rocprofv3', 'a_new_one')
    """
    return tuple(dict.fromkeys(_NAMES.get(d, d) for d in dialects if d != "kineto"))


class KernelTotal(msgspec.Struct, frozen=True):
    """One row of a profile's "top" table: all executions of one kernel or copy."""

    name: str
    calls: int
    total_ns: int
    min_ns: int | None = None
    max_ns: int | None = None
    device: str | None = None
    kind: str = "kernel"  # kernel or copy
    reported_percentage: float | None = None  # as the source printed it


class KernelSpan(msgspec.Struct, frozen=True):
    """One execution of a kernel on one device."""

    name: str
    start_ns: int
    end_ns: int
    device: str | None = None
    stream: str | None = None
    kind: str = "kernel"  # kernel or copy
    call: int | None = None  # number of the runtime call that launched it
    blocks: int | None = None  # thread blocks
    collective: TraceCollective | None = None  # where the source has more than the name


class ProfiledCalls(msgspec.Struct, frozen=True):
    """Calls of the CUDA or HIP runtime in a profile, in columns of equal length, in any order."""

    number: Ints  # what `KernelSpan.call` names; 0: nothing names it
    process: npt.NDArray[np.int32]  # numbered by the first call
    thread: npt.NDArray[np.int32]  # likewise; threads of two processes differ
    kind: npt.NDArray[np.int8]  # `model.trace.Call`; -1: known only by what it launched
    start_ns: Ints
    end_ns: Ints
    stream: npt.NDArray[np.int32]  # into `streams`; -1: unknown
    event: npt.NDArray[np.int32]  # events of two processes differ; -1: unknown
    streams: tuple[str, ...]  # labels as those of spans


class ProfiledDevice(msgspec.Struct, frozen=True):
    """One device in a profile."""

    device: str | None  # as in spans
    rank: int | None = None  # world rank of the one process that used it
    world_size: int | None = None
    host: str | None = None
    gpu: str | None = None  # what it is, as NVIDIA H200


class Profile(msgspec.Struct, frozen=True):
    """What one profile holds: totals always, spans where the source has them."""

    dialect: str  # rpd, rocpd, nsys, rocprof_v1_stats, rocprofv3_stats, rocprofv3_trace, top_text
    totals: tuple[KernelTotal, ...]
    spans: tuple[KernelSpan, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = msgspec.field(default=())
    calls: ProfiledCalls | None = None  # None: the source lacks them
    devices: tuple[ProfiledDevice, ...] = ()


class ProfileTable(msgspec.Struct, frozen=True):
    """One table of a profile that is text."""

    line: int  # of its header, 1-based
    profile: Profile


class SizeBin(msgspec.Struct, frozen=True):
    """How many messages or copies of one size range a function made."""

    function: str
    what: str  # MsgSz, HtoA, AtoH, AtoA
    low_bytes: int  # of the range, inclusive
    high_bytes: int | None  # exclusive; None: no upper end
    count: float  # mean of the processes, so it need not be whole


class ProfileSet(msgspec.Struct, frozen=True):
    """The profiles of one file: several where a text holds several tables."""

    tables: tuple[ProfileTable, ...]  # at least one, which may be without rows
    bins: tuple[SizeBin, ...] = ()
