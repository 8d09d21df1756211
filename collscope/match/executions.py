"""Traced kernels joined to the calls that they executed (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collscope.kernel_names import classify
from collscope.match.kernels import COUNTER_MASK, TracedKernel
from collscope.match.observations import Ints, Observations
from collscope.model import Op

# Counters of point-to-point work are cut to 16 (to ROCm 6.1), 12 (6.2 and 6.3) or 15 bits (RCCL
# 2.22).
_P2P_BITS = (12, 15, 16)
_AGREE_NS = 1_000_000  # ends of one call scatter by less, or by less than twice its transfer
_DRIFT = 1e-3  # of GPU clocks against each other; crystals keep to a tenth of it


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
    counts = np.unique([k.op_count & COUNTER_MASK for k in kernels]).astype(np.uint64)
    rows = np.flatnonzero(np.isin(observed.columns["op_count"] & COUNTER_MASK, counts))
    handle_of = observed.columns["handle"][rows]
    named = {name: _op_named(name) for name in {k.name for k in kernels}}
    for handle, ks in wanted.items():
        p2p = [k for k in ks if named[kernels[k].name] is Op.SEND_RECV]
        unclear = set(p2p) if _may_have_wrapped(p2p, kernels, observed, handle) else set()
        waiting = _waiting(rows[handle_of == handle].tolist(), observed, call_of_row)
        keys = {
            k: (kernels[k].op_count & COUNTER_MASK, named[kernels[k].name])
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
    highest = max((kernels[k].op_count & COUNTER_MASK for k in p2p), default=0)
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
            waiting[int(observed.columns["op_count"][row]) & COUNTER_MASK, op][call] = None
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
