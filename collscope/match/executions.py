"""Traced kernels put together that executed one call, logged or not (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.kernel_names import classify
from collscope.match.communicators import join_communicators, world_ranks
from collscope.match.kernels import COUNTER_MASK
from collscope.match.observations import Ints, Observations
from collscope.match.run_rows import RunRows
from collscope.match.tolerances import ELAPSED_SCATTER_NS, MAX_GPU_CLOCK_DRIFT
from collscope.model import CollectiveClass, Op
from collscope.model.comm_handle import CommHandle, Process
from collscope.model.traced_kernel import TracedKernel

# Counters of point-to-point work are cut to 16 (to ROCm 6.1), 12 (6.2 and 6.3) or 15 bits (RCCL
# 2.22).
_P2P_BITS = (12, 15, 16)
_UNCLEAR = -1  # handle of a kernel that several fit


class Gpu(NamedTuple):
    """A GPU of a process. Its clock stamps its kernels, and no other GPU's."""

    process: int
    bus_id: int | None


class Execution(msgspec.Struct, frozen=True):
    """The kernels that executed one call, at most one of a rank."""

    call: int | None  # None: no log line is of it, and all its ranks' kernels are there
    comm: int  # executions with one number are of one communicator
    key: CollectiveClass  # of an unlogged call operation and ranks only
    kernels: tuple[int, ...]


class JoinedKernels(msgspec.Struct, frozen=True):
    """Traced kernels over all ranks."""

    executions: list[Execution]
    ranks: dict[Gpu, int]  # world rank of each GPU, where each has one of its own
    world_ranks: list[int | None]  # per handle of the logs, with the GPUs of their kernels
    wrong_ends: set[int]  # kernels whose end cannot be that of their call; they are of no execution


def join_kernels(
    kernels: Sequence[TracedKernel],
    run: RunRows,
    processes: Sequence[Process],
    digests: Sequence[int],
    calls_of: Mapping[int, Ints],
    classes: Sequence[CollectiveClass],
) -> tuple[list[tuple[int, int]], JoinedKernels]:
    """Kernels with the call they executed, and those of each call over its ranks.

    kernels      their `process` counts over all sources, as `CommHandle.process` does
    digests      per handle of `run`, as `join_communicators` takes it
    calls_of     call of each row of a handle, -1 for none
    classes      per call
    """
    streams = _Streams(kernels, run.handles, processes, digests)
    pairs = _logged(kernels, streams, run, calls_of)
    by_call: dict[int, list[int]] = defaultdict(list)
    for k, call in pairs:
        by_call[call].append(k)
    executions = [
        streams.execution(call, classes[call], own) for call, own in sorted(by_call.items())
    ]
    executions += streams.unlogged(set(range(len(kernels))) - {k for k, _ in pairs})
    timed = [
        replace(e, kernels=tuple(k for k in e.kernels if kernels[k].end_ns is not None))
        for e in executions
    ]
    wrong_ends = _wrong_ends([e.kernels for e in timed if e.key.op.synchronises], kernels)
    believed = [
        replace(e, kernels=tuple(k for k in e.kernels if k not in wrong_ends)) for e in timed
    ]
    world = world_ranks(streams.handles, streams.comms)
    joined = JoinedKernels(
        [e for e in believed if e.kernels],
        streams.ranks(world),
        world[: len(run.handles)],
        wrong_ends,
    )
    return pairs, joined


class _Streams:
    """Which communicator each kernel is of.

    A stream is what one GPU executed as one rank of a communicator. The log's handle with that rank
    identifies it; without one, its rank alone does, as for a handle without calls.
    """

    def __init__(
        self,
        kernels: Sequence[TracedKernel],
        logged: Sequence[CommHandle],
        processes: Sequence[Process],
        digests: Sequence[int],
    ) -> None:
        self._kernels = kernels
        of_rank: dict[tuple[int, int | None], list[int]] = defaultdict(list)
        for i, s in enumerate(logged):
            of_rank[s.process, s.rank].append(i)
        self.handles = list(logged)
        known: dict[tuple[int | None, ...], int] = {}
        self.handle_of: list[int] = []  # per kernel
        for kernel in kernels:
            key = (kernel.process, kernel.rank, kernel.bus_id, kernel.nranks, kernel.comm_ptr)
            if key not in known:
                fits = [
                    i for i in of_rank[kernel.process, kernel.rank] if _same_comm(kernel, logged[i])
                ]
                known[key] = fits[0] if len(fits) == 1 else self._own(kernel, fits)
            self.handle_of.append(known[key])
        self.logged = [h if 0 <= h < len(logged) else _UNCLEAR for h in self.handle_of]
        for kernel, h in zip(kernels, self.handle_of, strict=True):
            if h >= 0 and self.handles[h].bus_id is None:
                self.handles[h] = replace(self.handles[h], bus_id=kernel.bus_id)
            if h >= len(logged):
                self.handles[h] = replace(self.handles[h], last_line=kernel.line)
        silent = [0] * (len(self.handles) - len(logged))
        self.comms = join_communicators(self.handles, processes, [*digests, *silent])
        self._comm_of = {i: c for c, comm in enumerate(self.comms) for i in comm.members.values()}

    def _own(self, kernel: TracedKernel, fits: Sequence[int]) -> int:
        """A handle for kernels that no line of a call fits; `_UNCLEAR` where several do."""
        if fits:
            return _UNCLEAR
        ptr = kernel.comm_ptr or 0
        own = CommHandle(
            kernel.process, ptr, 0, kernel.line, kernel.rank, kernel.nranks, bus_id=kernel.bus_id
        )
        self.handles.append(own)
        return len(self.handles) - 1

    def execution(
        self, call: int | None, key: CollectiveClass, kernels: Sequence[int]
    ) -> Execution:
        """Kernels of one call."""
        return Execution(call, self._comm_of[self.handle_of[kernels[0]]], key, tuple(kernels))

    def unlogged(self, kernels: Iterable[int]) -> Iterator[Execution]:
        """Kernels of one communicator with one counter and operation, one of each of its ranks.

        Where a rank has more than one of them, all must have as many: the order distinguishes them.
        """
        named = {name: _op_named(name) for name in {k.name for k in self._kernels}}
        found: dict[tuple[int, int, Op], dict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for k in sorted(kernels):
            kernel, handle = self._kernels[k], self.handle_of[k]
            op = named[kernel.name]
            if handle != _UNCLEAR and op is not None and op is not Op.SEND_RECV:
                place = (self._comm_of[handle], kernel.op_count & COUNTER_MASK, op)
                found[place][handle].append(k)
        for (comm, _, op), of_rank in found.items():
            rows = list(of_rank.values())
            if len(rows) == self.comms[comm].nranks and len({len(row) for row in rows}) == 1:
                key = CollectiveClass(op, nranks=len(rows))
                for one in zip(*rows, strict=True):
                    yield self.execution(None, key, one)

    def ranks(self, world: Sequence[int | None]) -> dict[Gpu, int]:
        """World rank of each GPU; none where two GPUs would have the same, as in two jobs.

        world  per handle
        """
        found: dict[Gpu, int] = {}
        for kernel, handle in zip(self._kernels, self.handle_of, strict=True):
            rank = None if handle == _UNCLEAR else world[handle]
            if rank is not None:
                found[Gpu(kernel.process, kernel.bus_id)] = rank
        return found if len(set(found.values())) == len(found) else {}


def _logged(
    kernels: Sequence[TracedKernel], streams: _Streams, run: RunRows, calls_of: Mapping[int, Ints]
) -> list[tuple[int, int]]:
    """Kernels with the logged call that they executed."""
    wanted: dict[int, list[int]] = defaultdict(list)  # handle -> kernels
    for k, handle in enumerate(streams.logged):
        if handle != _UNCLEAR:
            wanted[handle].append(k)
    pairs: list[tuple[int, int]] = []
    counts = np.unique([k.op_count & COUNTER_MASK for k in kernels]).astype(np.uint64)
    named = {name: _op_named(name) for name in {k.name for k in kernels}}
    for handle, ks in wanted.items():
        own = run.rows([handle], ("sig", "op_count"))
        p2p = [k for k in ks if named[kernels[k].name] is Op.SEND_RECV]
        last = int(own.columns["op_count"].max(initial=0))
        unclear = set(p2p) if _may_have_wrapped(p2p, kernels, last) else set()
        rows = np.flatnonzero(np.isin(own.columns["op_count"] & COUNTER_MASK, counts))
        waiting = _waiting(rows, own, calls_of.get(handle))
        keys = {
            k: (kernels[k].op_count & COUNTER_MASK, named[kernels[k].name])
            for k in ks
            if k not in unclear
        }
        pairs += _in_order(keys, waiting)
    return pairs


def _may_have_wrapped(p2p: list[int], kernels: Sequence[TracedKernel], last: int) -> bool:
    """True if the counters of a handle's Send and Recv kernels may have begun again from 0.

    Which of several calls such a counter means is not known: a trace keeps the last kernels only.

    last  the highest opCount of the handle's rows
    """
    highest = max((kernels[k].op_count & COUNTER_MASK for k in p2p), default=0)
    bits = next((b for b in _P2P_BITS if highest < 1 << b), None)
    return bits is not None and last >= 1 << bits


def _op_named(name: str) -> Op | None:
    """Operation in a kernel's name."""
    hint = classify(name)
    return next((op for op in Op if hint and hint.op_hint == op.value), None)


def _same_comm(kernel: TracedKernel, s: CommHandle) -> bool:
    if kernel.comm_ptr is not None and kernel.comm_ptr != s.comm_ptr:
        return False
    if None not in (kernel.bus_id, s.bus_id) and kernel.bus_id != s.bus_id:
        return False
    return kernel.nranks is None or s.nranks is None or kernel.nranks == s.nranks


_Waiting = dict[tuple[int, Op], deque[int]]  # calls in order by counter and operation


def _waiting(rows: Ints, own: Observations, calls: Ints | None) -> _Waiting:
    """Calls of some rows of one handle.

    own    all its rows
    calls  of each of them, -1 for none; None: the handle is of no communicator
    """
    if calls is None:
        return {}
    signatures, columns = own.signatures, own.columns
    waiting: dict[tuple[int, Op], dict[int, None]] = defaultdict(dict)  # ordered sets
    for sig, count, call in zip(
        columns["sig"][rows].tolist(), columns["op_count"][rows].tolist(), calls[rows].tolist(),
        strict=True,
    ):  # fmt: skip
        op = signatures[sig].op
        op = Op.SEND_RECV if op.point_to_point else op
        if call >= 0:
            waiting[count & COUNTER_MASK, op][call] = None
    return {key: deque(calls) for key, calls in waiting.items()}


def _in_order(
    keys: Mapping[int, tuple[int, Op | None]], waiting: _Waiting
) -> list[tuple[int, int]]:
    """Kernels of one handle with calls of equal counter and operation, in order.

    Where several calls share a counter and fewer kernels do, some were lost: which is not known,
    and none is joined.

    keys  counter and operation, if its name has it, per kernel
    """
    needed = Counter(keys.values())
    pairs = []
    for k, (count, named) in keys.items():
        fitting = Op if named is None else (named,)
        queue = next((waiting[count, op] for op in fitting if waiting.get((count, op))), None)
        if queue and len(queue) <= needed[count, named]:
            pairs.append((k, queue.popleft()))
        needed[count, named] -= 1
    return pairs


def _wrong_ends(calls: Iterable[Sequence[int]], kernels: Sequence[TracedKernel]) -> set[int]:
    """Kernels whose ends contradict those of the other ranks, so that no wait follows from them.

    All ranks leave such a call together, to within its transfer. Their clocks differ by a constant,
    so the time from the end of one call to the end of the next is the same on every rank: in the
    guide's log 218 us on four ranks, to the microsecond. A rank that waits 1 000 s ends its call
    1 000 s after the one before, and so does the rank it waits for; where only one rank's clock
    moved on, that clock jumped. With three ranks or more the median shows whose; with two,
    neither is believed.

    calls  kernels with an end of each, in order
    """
    wrong_ends: set[int] = set()
    last: dict[Gpu, tuple[int, int]] = {}  # call and end before
    for call, own in enumerate(calls):
        since: dict[int, dict[int, int]] = defaultdict(dict)  # call before -> kernel -> ns since
        for k in own:
            before = last.get(gpu_of(kernels[k]))
            if before is not None:
                since[before[0]][k] = _end(kernels[k]) - before[1]
        for elapsed in since.values():
            wrong_ends |= _disagreeing(elapsed, kernels)
        for k in own:
            if k not in wrong_ends:
                last[gpu_of(kernels[k])] = call, _end(kernels[k])
    return wrong_ends


def gpu_of(kernel: TracedKernel) -> Gpu:
    """The GPU that ran a kernel."""
    return Gpu(kernel.process, kernel.bus_id)


def _duration(kernel: TracedKernel) -> int:
    return _end(kernel) - kernel.start_ns


def _end(kernel: TracedKernel) -> int:
    assert kernel.end_ns is not None  # kernels without an end are asked for nothing
    return kernel.end_ns


def _disagreeing(elapsed: Mapping[int, int], kernels: Sequence[TracedKernel]) -> set[int]:
    """Kernels of one call whose time since the previous call differs from the majority's."""
    if len(elapsed) < 2:
        return set()
    middle = float(np.median(list(elapsed.values())))
    shortest = min(_duration(kernels[k]) for k in elapsed)
    bound = max(ELAPSED_SCATTER_NS, 2 * shortest) + MAX_GPU_CLOCK_DRIFT * abs(middle)
    if max(elapsed.values()) - min(elapsed.values()) <= bound:
        return set()
    if len(elapsed) == 2:
        return set(elapsed)
    return {k for k, ns in elapsed.items() if abs(ns - middle) > bound}
