"""RCCL kernel-trace lines paired into kernel times, and kernels joined to calls (pure).

KL opens a block's work, KE closes it, CL closes one work item and opens the next of the same
kernel. A kernel has one such pair per block (channel). Times are seconds of that GPU's own clock:
durations can be compared between ranks, starts cannot.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from collscope import stamps
from collscope.kernel_names import classify
from collscope.match.observations import Ints, Observations
from collscope.model import Diagnostic, Op, Severity

NONE = 0xFFFFFFFF
KL, CL, KE = 0, 1, 4
# Kernel-trace counters are cut to 25 bits (ROCm 6.2 on), those of point-to-point work to 16
# (to ROCm 6.1), 12 (6.2 and 6.3) or 15 bits (RCCL 2.22).
_COUNTER_MASK = (1 << 25) - 1
_P2P_BITS = (12, 15, 16)
_AGREE_NS = 1_000_000  # ends of one call scatter by less, or by less than twice its transfer
_DRIFT = 1e-3  # of GPU clocks against each other; crystals keep to a tenth of it


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
    # While blocks are joined: place among the work items of a fused kernel, and which block it is.
    item: int = 0
    block: int = 0
    channel: int = 0


def pair_kernels(
    trace: dict[str, Any], names: Sequence[str]
) -> tuple[list[TracedKernel], list[Diagnostic]]:
    """Kernels of one source from the scanner's `kernel` columns, in line order of their start."""
    spans, orphans = _spans(trace, names)
    unclosed = [k for k in _merge_blocks(spans) if k.end_ns is None]
    spans, found = _believed(spans)
    kernels = _merge_blocks(spans)
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


def _believed(spans: Sequence[TracedKernel]) -> tuple[list[TracedKernel], list[Diagnostic]]:
    """Spans without the ends that cannot be true (see `collscope.stamps`); what is told of them.

    The rows of a block of one communicator run one after the other. Each process' GPU has a clock
    of its own, so that its spans are held against each other only.
    """
    clocks: dict[tuple[int, int | None], list[int]] = defaultdict(list)
    for i, s in enumerate(spans):
        if s.end_ns is not None:
            clocks[s.process, s.bus_id].append(i)
    kept = list(spans)
    notes: dict[str, Diagnostic] = {}
    for rows in clocks.values():
        own = [spans[i] for i in rows]
        known: dict[tuple[int | None, ...], int] = {}
        blocks = [
            known.setdefault((s.comm_ptr, s.rank, s.nranks, s.block, s.channel), len(known))
            for s in own
        ]
        found = stamps.judge(
            np.array([s.start_ns for s in own], dtype=np.int64),
            np.array([s.end_ns for s in own], dtype=np.int64),
            np.array(blocks, dtype=np.int64),
            np.ones(len(own), dtype=bool),
        )
        for row in np.flatnonzero(~found.believed).tolist():
            kept[rows[row]] = replace(own[row], end_ns=None)
        for note in stamps.diagnostics(found, partial(_at_line, own)):
            before = notes.get(note.code)
            notes[note.code] = replace(note, count=note.count + (before.count if before else 0))
    return kept, list(notes.values())


def _at_line(spans: Sequence[TracedKernel], row: int) -> str:
    return f"kernel begun at line {spans[row].line}"


def _spans(trace: dict[str, Any], names: Sequence[str]) -> tuple[list[TracedKernel], list[int]]:
    """One record per block and work item; lines of KE without an open KL."""
    open_spans: dict[tuple[int, ...], TracedKernel] = {}
    latest: dict[tuple[int, ...], tuple[int, ...]] = {}  # of each block, what it opened last
    done: list[TracedKernel] = []
    ended: list[_End] = []
    orphans: list[int] = []
    columns = (trace[c].tolist() for c in _TRACE_COLUMNS)
    for process, kind, time_ns, rank, block, channel, op_count, name, bus, nranks, ptr, line in zip(
        *columns, strict=True
    ):
        # A rank number is of a communicator: kernels of two on one GPU may run at once. CL has no
        # busId and nRanks in some builds: it is of what the block opened last.
        slot = (process, rank, block, channel, ptr)
        where = (*slot, bus, nranks) if bus >= 0 or slot not in latest else latest[slot]
        current = open_spans.get(where)
        if kind == KE:
            if current is None:
                orphans.append(line)
            else:
                ended.append(_End(open_spans.pop(where), time_ns, op_count, line))
            continue
        if kind not in (KL, CL):
            continue
        if current is not None:
            done.append(replace(current, end_ns=time_ns if kind == CL else None))
        latest[slot] = where
        open_spans[where] = TracedKernel(
            process=process,
            name=names[name] if name != NONE else "",
            rank=rank,
            nranks=_known(nranks, current.nranks if current else None),
            bus_id=_known(bus, current.bus_id if current else None),
            comm_ptr=ptr or None,
            op_count=op_count,
            start_ns=time_ns,
            end_ns=None,
            blocks=1,
            line=line,
            item=current.item + 1 if current and kind == CL else 0,
            block=block,
            channel=channel,
        )
    closed, strangers = _close(ended)
    return done + closed + list(open_spans.values()), sorted(orphans + strangers)


def _known(printed: int, before: int | None) -> int | None:
    """What a line says, else what the one before it in its block said."""
    return printed if printed >= 0 else before


class _End(NamedTuple):
    """A span and the KE line that stands next in its block."""

    span: TracedKernel
    time_ns: int
    op_count: int
    line: int

    @property
    def own(self) -> bool:
        """True if KL and KE bear the same counter."""
        return (self.span.op_count ^ self.op_count) & _COUNTER_MASK == 0


def _close(ended: Sequence[_End]) -> tuple[list[TracedKernel], list[int]]:
    """Spans with their ends; lines of KE that end another kernel.

    Where KE bears its kernel's counter, as in most builds, one with another counter ends a kernel
    whose KL was lost, and the open one's KE was lost too (the device's buffer was overrun).
    """
    telling = 2 * sum(e.own for e in ended) > len(ended)
    closed = [replace(e.span, end_ns=e.time_ns if e.own or not telling else None) for e in ended]
    return closed, [e.line for e in ended if telling and not e.own]


def _merge_blocks(spans: Iterable[TracedKernel]) -> list[TracedKernel]:
    """Blocks of one kernel joined: same rank, opCount, name and item, and overlapping in time."""
    groups: dict[tuple[Any, ...], list[TracedKernel]] = defaultdict(list)
    for s in spans:
        work = (s.op_count, s.name, s.item)
        groups[(s.process, s.bus_id, s.rank, s.nranks, s.comm_ptr, work)].append(s)
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
) -> tuple[list[KernelCall], int]:
    """Kernels with the call they executed, and how many end where their call cannot have ended.

    kernels      their `process` counts over all sources, as `CommHandle.process` does
    call_of_row  per row of `observed`, its call or -1
    ops          operation per call
    """
    handles: dict[tuple[int, int | None], list[int]] = defaultdict(list)
    for i, s in enumerate(observed.handles):
        handles[s.process, s.rank].append(i)
    wanted: dict[int, list[int]] = defaultdict(list)  # handle -> kernels
    for k, kernel in enumerate(kernels):
        fits = [i for i in handles[kernel.process, kernel.rank] if _same_comm(kernel, observed, i)]
        if len(fits) == 1:
            wanted[fits[0]].append(k)
    pairs: list[tuple[int, int]] = []
    counts = np.unique([k.op_count & _COUNTER_MASK for k in kernels]).astype(np.uint64)
    rows = np.flatnonzero(np.isin(observed.columns["op_count"] & _COUNTER_MASK, counts))
    handle_of = observed.columns["handle"][rows]
    named = {name: _op_named(name) for name in {k.name for k in kernels}}
    for handle, ks in wanted.items():
        p2p = [k for k in ks if named[kernels[k].name] is Op.SEND_RECV]
        unclear = set(p2p) if _may_have_wrapped(p2p, kernels, observed, handle) else set()
        waiting = _waiting(rows[handle_of == handle].tolist(), observed, call_of_row)
        keys = {
            k: (kernels[k].op_count & _COUNTER_MASK, named[kernels[k].name])
            for k in ks
            if k not in unclear
        }
        pairs += _in_order(keys, waiting)
    return _split_waiting(pairs, kernels, ops)


def _may_have_wrapped(
    p2p: list[int], kernels: Sequence[TracedKernel], observed: Observations, handle: int
) -> bool:
    """True if the counters of a handle's Send and Recv kernels may have begun again from 0.

    Which of several calls such a counter means is not known: a trace keeps the last kernels only.
    """
    highest = max((kernels[k].op_count & _COUNTER_MASK for k in p2p), default=0)
    bits = next((b for b in _P2P_BITS if highest < 1 << b), None)
    last = observed.columns["op_count"][observed.columns["handle"] == handle].max(initial=0)
    return bits is not None and bool(last >= 1 << bits)


def _op_named(name: str) -> Op | None:
    """Operation that a kernel's name tells."""
    hint = classify(name)
    return next((op for op in Op if hint and hint.op_hint == op.value), None)


def _same_comm(kernel: TracedKernel, observed: Observations, handle: int) -> bool:
    s = observed.handles[handle]
    if kernel.comm_ptr is not None and kernel.comm_ptr != s.comm_ptr:
        return False
    if None not in (kernel.bus_id, s.bus_id) and kernel.bus_id != s.bus_id:
        return False
    return kernel.nranks is None or s.nranks is None or kernel.nranks == s.nranks


_Waiting = dict[tuple[int, Op], deque[int]]  # calls in order by counter and operation


def _waiting(rows: list[int], observed: Observations, call_of_row: Ints) -> _Waiting:
    """Calls of one handle's rows."""
    signatures, sig = observed.signatures, observed.columns["sig"]
    waiting: dict[tuple[int, Op], dict[int, None]] = defaultdict(dict)  # ordered sets
    for row in rows:
        op = signatures[int(sig[row])].op
        op = Op.SEND_RECV if op.point_to_point else op
        call = int(call_of_row[row])
        if call >= 0:
            waiting[int(observed.columns["op_count"][row]) & _COUNTER_MASK, op][call] = None
    return {key: deque(calls) for key, calls in waiting.items()}


def _in_order(
    keys: Mapping[int, tuple[int, Op | None]], waiting: _Waiting
) -> list[tuple[int, int]]:
    """Kernels of one handle with calls of equal counter and operation, in order.

    Where several calls share a counter and fewer kernels do, some were lost: which is not known,
    and none is joined.

    keys  counter and operation, if its name tells it, per kernel
    """
    asked = Counter(keys.values())
    pairs = []
    for k, (count, named) in keys.items():
        fitting = Op if named is None else (named,)
        queue = next((waiting[count, op] for op in fitting if waiting.get((count, op))), None)
        if queue and len(queue) <= asked[count, named]:
            pairs.append((k, queue.popleft()))
        asked[count, named] -= 1
    return pairs


def _split_waiting(
    pairs: list[tuple[int, int]], kernels: Sequence[TracedKernel], ops: Sequence[Op]
) -> tuple[list[KernelCall], int]:
    """Transfer and wait of each kernel: the call's shortest kernel over ranks waited for nobody.

    Only for operations at whose end all ranks meet, and with two ranks or more whose ends agree.
    returns  also the number of kernels whose end does not
    source   reference: the last rank to arrive waits for none, so min over ranks of the duration
             is the transfer (as in TraceLens' and DeepSpeed's straggler reports)
    """
    by_call: dict[int, list[int]] = defaultdict(list)
    for k, call in pairs:
        if kernels[k].end_ns is not None and ops[call].synchronises:
            by_call[call].append(k)
    apart = _ends_apart(by_call, kernels)
    shortest = {
        call: min(_duration(kernels[k]) for k in own)
        for call, own in ((c, [k for k in ks if k not in apart]) for c, ks in by_call.items())
        if len(own) > 1
    }
    joined = []
    for k, call in pairs:
        transfer = None
        if kernels[k].end_ns is not None and k not in apart:
            transfer = shortest.get(call)
        wait = None if transfer is None else _duration(kernels[k]) - transfer
        joined.append(KernelCall(k, call, transfer, wait))
    return joined, len(apart)


def _duration(kernel: TracedKernel) -> int:
    assert kernel.end_ns is not None  # kernels without an end are asked for nothing
    return kernel.end_ns - kernel.start_ns


def _ends_apart(by_call: Mapping[int, Iterable[int]], kernels: Sequence[TracedKernel]) -> set[int]:
    """Kernels whose ends contradict those of the other ranks, so that no wait follows from them.

    All ranks leave such a call together, to within its transfer. Their clocks differ by a constant,
    so the time from the end of one call to the end of the next is the same on every rank: in the
    guide's log 218 us on four ranks, to the microsecond. A rank that waits 1 000 s ends its call
    1 000 s after the one before, and so does the rank it waits for; where only one rank's clock
    moved on, that clock jumped. Of three ranks and more the median tells whose; of two, neither is
    believed.
    """
    apart: set[int] = set()
    last: dict[tuple[int, int | None], tuple[int, int]] = {}  # GPU -> call and end before
    for call, own in sorted(by_call.items()):
        since: dict[int, dict[int, int]] = defaultdict(dict)  # call before -> kernel -> ns since
        for k in own:
            before = last.get((kernels[k].process, kernels[k].bus_id))
            if before is not None:
                since[before[0]][k] = _end(kernels[k]) - before[1]
        for elapsed in since.values():
            apart |= _disagreeing(elapsed, kernels)
        for k in own:
            if k not in apart:
                last[kernels[k].process, kernels[k].bus_id] = call, _end(kernels[k])
    return apart


def _end(kernel: TracedKernel) -> int:
    return kernel.start_ns + _duration(kernel)


def _disagreeing(elapsed: Mapping[int, int], kernels: Sequence[TracedKernel]) -> set[int]:
    """Of kernels of one call, those whose time since the call before is not that of the others."""
    if len(elapsed) < 2:
        return set()
    middle = float(np.median(list(elapsed.values())))
    shortest = min(_duration(kernels[k]) for k in elapsed)
    bound = max(_AGREE_NS, 2 * shortest) + _DRIFT * abs(middle)
    if max(elapsed.values()) - min(elapsed.values()) <= bound:
        return set()
    if len(elapsed) == 2:
        return set(elapsed)
    return {k for k, ns in elapsed.items() if abs(ns - middle) > bound}
