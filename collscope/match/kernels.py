"""RCCL kernel-trace lines paired into kernel times, and kernels joined to calls (pure).

KL opens a block's work, KE closes it, CL closes one work item and opens the next of the same
kernel. A kernel has one such pair per block (channel). Times are seconds of that GPU's own clock:
durations can be compared between ranks, starts cannot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collscope.kernel_names import classify
from collscope.match.observations import Ints, Observations
from collscope.model import Diagnostic, Op, Severity

NONE = 0xFFFFFFFF
KL, CL, KE = 0, 1, 4
# Kernel-trace counters are cut to 25 bits (ROCm 6.2 on); 12 and 15 bits for point-to-point.
_COUNTER_MASK = (1 << 25) - 1
_SYMMETRIC = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL, Op.ALL_TO_ALLV)


_TRACE_COLUMNS = (
    "process", "kind", "time_ns", "rank", "block", "channel", "op_count", "name", "bus_id",
    "nranks", "comm_ptr", "line",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """One kernel's work on one rank. Times in ns of the GPU's clock; end None: never printed."""

    process: int
    name: str
    rank: int
    nranks: int | None
    bus_id: int | None
    comm_ptr: int | None
    op_count: int
    start_ns: int
    end_ns: int | None
    blocks: int
    line: int


def pair_kernels(
    trace: dict[str, Any], names: Sequence[str]
) -> tuple[list[TracedKernel], list[Diagnostic]]:
    """Kernels of one source from the scanner's `kernel` columns, in line order of their start."""
    spans, orphans = _spans(trace, names)
    kernels = _merge_blocks(spans)
    unclosed = [k for k in kernels if k.end_ns is None]
    found = []
    if orphans:
        found.append(
            Diagnostic(
                Severity.NOTICE,
                "kernel_end_without_start",
                "KE lines whose KL is not in the log: logging began later, or the line was lost",
                line=orphans[0],
                count=len(orphans),
            )
        )
    if unclosed:
        found.append(
            Diagnostic(
                Severity.NOTICE,
                "kernel_without_end",
                "KL lines without a KE: their kernels have no duration",
                line=unclosed[0].line,
                count=len(unclosed),
            )
        )
    return kernels, found


def _spans(trace: dict[str, Any], names: Sequence[str]) -> tuple[list[TracedKernel], list[int]]:
    """One record per block and work item; lines of KE without an open KL."""
    open_spans: dict[tuple[int, ...], TracedKernel] = {}
    done: list[TracedKernel] = []
    orphans: list[int] = []
    for values in zip(*(trace[c].tolist() for c in _TRACE_COLUMNS), strict=True):
        process, kind, time_ns, rank, block, channel, op_count, name, bus, nranks, ptr, line = (
            values
        )
        # CL of older builds has no busId and nRanks: the block's open kernel is found without.
        where = (process, rank, block, channel, ptr)
        current = open_spans.get(where)
        if kind == KE:
            if current is None:
                orphans.append(line)
            else:
                done.append(replace(open_spans.pop(where), end_ns=time_ns))
            continue
        if kind not in (KL, CL):
            continue
        if current is not None:
            done.append(replace(current, end_ns=time_ns if kind == CL else None))
        open_spans[where] = TracedKernel(
            process,
            names[name] if name != NONE else "",
            rank,
            nranks if nranks >= 0 else (current.nranks if current else None),
            bus if bus >= 0 else (current.bus_id if current else None),
            ptr or None,
            op_count,
            time_ns,
            None,
            1,
            line,
        )
    return done + list(open_spans.values()), orphans


def _merge_blocks(spans: Iterable[TracedKernel]) -> list[TracedKernel]:
    """Blocks of one kernel joined: same rank, opCount and name, and overlapping in time."""
    groups: dict[tuple[Any, ...], list[TracedKernel]] = defaultdict(list)
    for s in spans:
        groups[s.process, s.bus_id, s.rank, s.nranks, s.comm_ptr, s.op_count, s.name].append(s)
    kernels: list[TracedKernel] = []
    for group in groups.values():
        group.sort(key=lambda s: s.start_ns)
        current: TracedKernel | None = None
        for s in group:
            if current is None or (current.end_ns is not None and s.start_ns >= current.end_ns):
                kernels += [current] if current else []
                current = s
                continue
            ends = [e for e in (current.end_ns, s.end_ns) if e is not None]
            current = replace(
                current,
                end_ns=max(ends, default=None),
                blocks=current.blocks + 1,
                line=min(current.line, s.line),
            )
        kernels += [current] if current else []
    return sorted(kernels, key=lambda k: k.line)


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel's call, and the parts of its duration; None: cannot be told apart."""

    kernel: int
    call: int
    transfer_ns: int | None
    wait_ns: int | None


def join_kernels(
    kernels: Sequence[TracedKernel], observed: Observations, call_of_row: Ints, ops: Sequence[Op]
) -> list[KernelCall]:
    """Kernels with the call they executed.

    kernels      their `process` counts over all sources, as `Stream.process` does
    call_of_row  per row of `observed`, its call or -1
    ops          operation per call
    """
    streams: dict[tuple[int, int | None], list[int]] = defaultdict(list)
    for i, s in enumerate(observed.streams):
        streams[s.process, s.rank].append(i)
    wanted: dict[int, list[int]] = defaultdict(list)  # stream -> kernels
    for k, kernel in enumerate(kernels):
        fits = [i for i in streams[kernel.process, kernel.rank] if _same_comm(kernel, observed, i)]
        if len(fits) == 1:
            wanted[fits[0]].append(k)
    pairs: list[tuple[int, int]] = []
    counts = np.unique([k.op_count & _COUNTER_MASK for k in kernels]).astype(np.uint64)
    rows = np.flatnonzero(np.isin(observed.columns["op_count"] & _COUNTER_MASK, counts))
    stream_of = observed.columns["stream"][rows]
    for stream, ks in wanted.items():
        own = rows[stream_of == stream]
        pairs += _by_op_count(ks, kernels, own.tolist(), observed, call_of_row)
    return _split_waiting(pairs, kernels, ops)


def _same_comm(kernel: TracedKernel, observed: Observations, stream: int) -> bool:
    s = observed.streams[stream]
    if kernel.comm_ptr is not None and kernel.comm_ptr != s.comm_ptr:
        return False
    if None not in (kernel.bus_id, s.bus_id) and kernel.bus_id != s.bus_id:
        return False
    return kernel.nranks is None or s.nranks is None or kernel.nranks == s.nranks


def _by_op_count(
    ks: list[int],
    kernels: Sequence[TracedKernel],
    rows: list[int],
    observed: Observations,
    call_of_row: Ints,
) -> list[tuple[int, int]]:
    """Kernels of one stream with calls of equal opCount and operation, in order."""
    signatures, sig = observed.signatures, observed.columns["sig"]
    waiting: dict[tuple[int, Op], list[int]] = defaultdict(list)
    for row in rows:
        op = signatures[int(sig[row])].op
        op = Op.SEND_RECV if op.point_to_point else op
        call = int(call_of_row[row])
        known = waiting[int(observed.columns["op_count"][row]) & _COUNTER_MASK, op]
        if call >= 0 and call not in known:
            known.append(call)
    pairs = []
    for k in ks:
        hint = classify(kernels[k].name)
        named = [o for o in Op if hint and hint.op_hint == o.value]
        count = kernels[k].op_count & _COUNTER_MASK
        queue = next((waiting[count, o] for o in named or Op if waiting.get((count, o))), [])
        if queue:
            pairs.append((k, queue.pop(0)))
    return pairs


def _split_waiting(
    pairs: list[tuple[int, int]], kernels: Sequence[TracedKernel], ops: Sequence[Op]
) -> list[KernelCall]:
    """Transfer and wait of each kernel: the call's shortest kernel over ranks waited for nobody.

    Only for operations at whose end all ranks meet, and with two ranks or more.
    source  reference: the last rank to arrive waits for none, so min over ranks of the duration
            is the transfer (as in TraceLens' and DeepSpeed's straggler reports)
    """
    durations: dict[int, list[int]] = defaultdict(list)
    for k, call in pairs:
        end = kernels[k].end_ns
        if end is not None:
            durations[call].append(end - kernels[k].start_ns)
    joined = []
    for k, call in pairs:
        end = kernels[k].end_ns
        known = ops[call] in _SYMMETRIC and len(durations[call]) > 1 and end is not None
        transfer = min(durations[call]) if known else None
        wait = (
            end - kernels[k].start_ns - transfer
            if end is not None and transfer is not None
            else None
        )
        joined.append(KernelCall(k, call, transfer, wait))
    return joined
