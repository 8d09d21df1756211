"""Waits and late ranks by the kernel trace in RCCL's logs, by the rules for traces (pure).

Every GPU stamps its kernels with a clock of its own. In the guide's log those of eight GPUs of one
host are 0.7 ms apart, so that not even ranks of one host are assumed to share one: the ends of the
calls give the offsets (`collscope.timeline.clocks`), and we assume that all ranks leave a
synchronising call together.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from collscope.match.executions import JoinedKernels, gpu_of
from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.match.traces import Calls
from collscope.model import CollectiveClass
from collscope.model.trace import Kind
from collscope.model.traced_kernel import TracedKernel
from collscope.timeline.clocks import estimate_clocks
from collscope.timeline.late import late_ranks
from collscope.timeline.records import LateRank, RankTimes
from collscope.timeline.waits import call_times, rank_times


class KernelWaits(msgspec.Struct, frozen=True):
    """What the kernel trace of a run's logs shows together. Times in ns."""

    kernels: dict[int, tuple[int, int]]  # transfer and wait of each kernel where both are known
    ranks: tuple[tuple[int, RankTimes, LateRank], ...]  # one of its kernels, by rank
    incomplete: int  # synchronising calls that lack a rank's kernel


def kernel_waits(kernels: Sequence[TracedKernel], joined: JoinedKernels) -> KernelWaits:
    """Waits of all kernels, and of the ranks where each GPU is known to be one.

    kernels  what `joined` counts
    """
    executions = joined.executions
    gpus = sorted({gpu_of(kernels[k]) for e in executions for k in e.kernels}, key=str)
    if not gpus:
        return KernelWaits({}, (), 0)
    place = {gpu: t for t, gpu in enumerate(gpus)}
    parts = sorted(
        (place[gpu_of(kernels[k])], kernels[k].start_ns, k) for e in executions for k in e.kernels
    )
    row_of = {k: row for row, (_, _, k) in enumerate(parts)}
    known_ranks = [joined.ranks.get(gpu) for gpu in gpus]
    rows = _rows([k for _, _, k in parts], kernels, [t for t, _, _ in parts], known_ranks)
    calls = _calls(joined, row_of, rows)
    clocks = estimate_clocks(rows, calls)
    times = call_times(rows, calls, clocks)
    known = times.wait >= 0
    split = zip(calls.row[known], times.part_transfer[known], times.wait[known], strict=True)
    late = {found.rank: found for found in late_ranks(rows, calls, times, clocks)}
    first = {t: k for t, _, k in reversed(parts)}
    return KernelWaits(
        {parts[row][2]: (int(transfer), int(wait)) for row, transfer, wait in split},
        tuple(
            (first[t], found, late[found.rank])
            for t, found in enumerate(rank_times(rows, calls, times))
            if known_ranks[t] is not None
        ),
        sum(e.key.op.synchronises and len(e.kernels) != e.key.nranks for e in executions),
    )


def _rows(
    order: Sequence[int],
    kernels: Sequence[TracedKernel],
    gpu: Sequence[int],
    ranks: Sequence[int | None],
) -> Rows:
    """Kernels as rows of traces, one trace a GPU; what a kernel trace lacks is unknown.

    A GPU whose rank is not known gets a number that no rank has.
    """
    n = len(order)
    nothing = np.full(n, -1, dtype=np.int64)
    base = min(kernels[k].start_ns for k in order)
    return Rows(
        base_ns=base,
        trace=np.array(gpu, dtype=np.int32),
        bounds=np.searchsorted(gpu, np.arange(len(ranks) + 1)),
        kind=np.full(n, Kind.KERNEL, dtype=np.int8),
        stream=np.array(gpu, dtype=np.int32),
        start=np.array([kernels[k].start_ns - base for k in order], dtype=np.int64),
        end=np.array([(kernels[k].end_ns or 0) - base for k in order], dtype=np.int64),
        launch=np.full(n, UNKNOWN_LAUNCH),
        entry=nothing.astype(np.int32),
        seq=nothing,
        name=nothing.astype(np.int32),
        entries=(),
        names=(),
        streams=tuple((t, "") for t in range(len(ranks))),
        ranks=tuple(-1 - t if rank is None else rank for t, rank in enumerate(ranks)),
        hosts=(None,) * len(ranks),
        steps=((),) * len(ranks),
    )


def _calls(joined: JoinedKernels, row_of: dict[int, int], rows: Rows) -> Calls:
    """Executions as calls of traces, in the order of their communicators and rows."""
    found = sorted(
        ((e.comm, sorted(row_of[k] for k in e.kernels), e.key) for e in joined.executions),
        key=lambda one: one[:2],
    )
    comms = np.array([comm for comm, _, _ in found], dtype=np.int32)
    row = np.array([r for _, own, _ in found for r in own])
    number: dict[CollectiveClass, int] = {}
    class_ = [number.setdefault(key, len(number)) for _, _, key in found]
    nranks = np.array([key.nranks or -1 for _, _, key in found], dtype=np.int32)
    nothing = np.zeros(len(found), dtype=bool)
    return Calls(
        groups=(),
        classes=tuple(number),
        group=comms,
        seq=np.arange(len(comms)) - np.searchsorted(comms, comms),
        class_=np.array(class_, dtype=np.int32),
        expected=nranks,
        nranks=nranks,
        mismatched=nothing,
        p2p=nothing,
        offsets=np.cumsum([0, *(len(own) for _, own, _ in found)]),
        row=row,
        trace=rows.trace[row],
        realigned=(),
        unpaired=np.empty(0, dtype=np.int64),
    )
