"""Hosts that wait for their GPU, small calls, slow copies (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collscope.model.trace import Call, Kind
from collscope.timeline.graph import FIRST
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import (
    LATENCY_NS,
    MAX_ROWS_BETWEEN,
    MIN_ALIKE_COPIES,
    MIN_SMALL_CALLS,
    MIN_WAITS,
    PLAIN_INTERVALS,
    REUSED_FACTOR,
    SMALL_CALL_NS,
)
from collscope.timeline.steps import layered
from collscope.timeline.tolerances import MIN_LAYER_KERNELS

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


# reduce_kernel<512, 1, ReduceOp<float, MeanOps<...>, unsigned int, float, 4, 4>>, for c10::BFloat16
# ..., 4, 8>>: how many values a thread reads at a time follows from their type.
_TYPES = re.compile(r"c10::\w+|float|double|<\d+|, \d+")
# at_cuda_detail::cub::...::DeviceReduceSingleTileKernel, DeviceSelect, unique_by_key: what PyTorch
# counts elements with before it allocates memory for them. Sums of values are reduce_kernel<...>
_COUNTS = re.compile(r"\b(hip)?cub::|\brocprim::")


# Memcpy DtoD (Device -> Device), Memcpy HtoD (...), CopyHostToDevice: nothing for a host to read.
_INSIDE = re.compile(r"DtoD|HtoD|(Device|Host)ToDevice")


def sync_nodes(job: Job, trace: int | None = None) -> Ints:
    """Nodes (less `FIRST`) of calls that make a host wait for its GPU, in whole steps."""
    found = []
    for node, (of, call) in job.sync_call.items():
        if trace is not None and of != trace:
            continue
        kind = job.call_kind(of, call)
        copy = kind is Call.LAUNCH and job.rows.kind[_first_row(job, of, call)] == Kind.COPY
        if kind >= Call.STREAM_SYNC or copy:
            found.append(node)
    return np.array(sorted(found), dtype=np.int64)


def _first_row(job: Job, trace: int, call: int) -> int:
    calls = job.host[trace]
    assert calls is not None
    own = np.flatnonzero(calls.of_row == call)
    return int(job.rows.bounds[trace] + own[0]) if len(own) else 0


def inside_steps(job: Job, nodes: Ints) -> Ints:
    """Those that take place in whole steps."""
    if not len(nodes):
        return nodes
    begin, finish = job.steps.span(job.rows.end, len(job.rows.ranks))
    shift = job.graph.time[job.graph.start_node - FIRST] - job.rows.start
    trace = job.graph.trace[nodes]
    of = np.array([int(shift[job.rows.bounds[t]]) for t in trace.tolist()], dtype=np.int64)
    time = job.graph.time[nodes] - of
    return nodes[(time > begin[trace]) & (time <= finish[trace])]


def _avoidable(job: Job, trace: int) -> Ints:
    """Waits of a host but for those in which it reads how much there is of something.

    Right before an exchange it reads how much it has to send; behind a kernel that counts elements,
    how much memory they need.
    """
    nodes = sync_nodes(job, trace)
    order = job.launched(trace)
    if not len(nodes) or not len(order):
        return nodes
    nodes = nodes[np.argsort(job.graph.time[nodes], kind="stable")]
    exchange = np.append(0, np.cumsum(job.exchange[order]))
    first = np.searchsorted(job.rows.launch[order], job.graph.time[nodes] - _shift(job, order))
    last = np.minimum(first + MAX_ROWS_BETWEEN, len(order))
    counted = np.array([bool(_COUNTS.search(name)) for name in job.rows.names] + [False])
    behind = np.zeros(len(job.rows) + 1, dtype=bool)  # the last one: no row
    behind[order[1:]] = counted[job.rows.name[order[:-1]]] & (job.rows.kind[order[1:]] == Kind.COPY)
    awaited = job.graph.lasted[1:, nodes]
    counts = behind[awaited].any(axis=0)
    # Who has copied nothing to the host since the wait before reads nothing.
    to_host = np.array([not _INSIDE.search(name) for name in job.rows.names] + [False])
    copied = (job.rows.kind[order] == Kind.COPY) & to_host[job.rows.name[order]]
    copied_before = np.append(0, np.cumsum(copied))
    since = np.maximum.accumulate(np.append(0, first[:-1]))
    reads = (copied_before[first] > copied_before[since]) | (awaited < 0).all(axis=0)
    found: Ints = nodes[((exchange[last] == exchange[first]) | ~reads) & ~counts]
    return found


def blocking_calls(job: Job) -> Iterator[Candidate]:
    """Calls in which hosts wait for their GPU, and launch nothing meanwhile."""
    per_rank = {t: inside_steps(job, _avoidable(job, t)) for t in job.traces}
    counts = {t: len(n) / max(1, job.count) for t, n in per_rank.items()}
    least = min(counts.values(), default=0)
    for trace in job.traces:
        if counts[trace] >= MIN_WAITS and counts[trace] > 2 * least + 1:
            yield _blocking(job, (trace,), per_rank, usual=least >= 1)
    # One call at the end of a step, which reads the loss, is usual.
    if least >= MIN_WAITS:
        yield _blocking(job, (), per_rank, usual=True)


def _longest_of_steps(job: Job, trace: int, nodes: Ints) -> Ints:
    """The longest wait of each step: a host that reads once reads where it is far ahead."""
    calls = job.host[trace]
    if calls is None or not len(nodes):
        return nodes[:0]
    call = np.array([job.sync_call[n][1] for n in nodes.tolist()])
    end = calls.end_ns[call] - job.rows.base_ns
    step = np.searchsorted(job.ends[:, job.traces.index(trace)], end)
    order = np.lexsort((end - calls.start_ns[call] + job.rows.base_ns, step))
    last = np.append(np.diff(step[order]) > 0, True)
    found: Ints = nodes[order[last]]
    return found


def _blocking(
    job: Job, traces: tuple[int, ...], per_rank: dict[int, Ints], *, usual: bool
) -> Candidate:
    """What waits cost; `usual`: one in each step stays, as it does in a job without a cause."""
    waits = np.zeros(len(job.graph.time), dtype=bool)
    duration, host = np.ones(len(job.rows)), np.zeros(len(job.rows))
    chosen = traces or tuple(job.traces)
    checked = []
    passes = {t: _reads_of_passes(job, t, per_rank[t]) for t in chosen}
    of_layers, kept = usual, 0
    for trace in chosen:
        nodes = _avoidable(job, trace)
        read = _what_is_read(job, trace, nodes)
        checked.append(_checks_for_nan(job, read))
        if usual and not checked[-1]:
            # What is read once a step is nothing that is read in every layer.
            in_layers = _reads_of_layers(job, trace, nodes)
            of_layers &= len(in_layers) > 0
            once = _longest_of_steps(job, trace, np.setdiff1d(nodes, in_layers))
            kept += len(inside_steps(job, once))
            nodes = np.setdiff1d(nodes, once)
            read = _what_is_read(job, trace, nodes)
        if passes[trace] and not checked[-1]:
            read = read[:0]
        waits[nodes] = True
        duration[read], host[read] = 0.0, job.interval[read]
        if traces:
            behind, longer = _pauses_behind(job, trace, nodes)
            host[behind] = longer
    count = sum(len(per_rank[t]) for t in chosen) / len(chosen) / max(1, job.count)
    name = usual_call(job, np.concatenate([per_rank[t] for t in chosen]))
    # A few reads a step are usual: of the loss, the norm of the gradients, a check of their scale.
    avoidable = count >= MIN_SMALL_CALLS and not all(passes.values())
    if all(checked):
        # Forward, such a job also writes down the Python stack of every operation: without that a
        # host needs a usual interval for a launch, or a few.
        rest = (duration > 0) & np.isin(job.rows.trace, chosen)
        hosts = [
            np.where(rest, np.maximum(job.interval - few * job.usual_interval, 0.0), host)
            for few in PLAIN_INTERVALS
        ]
        changes = [Change(waits=waits, duration=duration, host_ns=h) for h in hosts]
        return Candidate(
            "blocking_sync", tuple(job.rows.ranks[t] for t in traces), "calls",
            Evidence("nan_checks", name=name, count=count),
            changes=(changes[0],), others=tuple(changes[1:]),
        )  # fmt: skip
    return Candidate(
        "blocking_sync", tuple(job.rows.ranks[t] for t in traces), "calls",
        Evidence("blocking_calls", name=name, count=count, usual=float(kept > 0)),
        changes=(Change(waits=waits, duration=duration, host_ns=host),),
        counted=count >= MIN_SMALL_CALLS, certain=avoidable, at_power_cap=True,
        surely=not avoidable and not of_layers,
    )  # fmt: skip


def usual_call(job: Job, nodes: Ints) -> str:
    """Kind of most of the calls that make a host wait."""
    names = [job.call_kind(*job.sync_call[n]).name for n in nodes.tolist()]
    return max(sorted(set(names)), key=names.count)


def _pauses_behind(job: Job, trace: int, nodes: Ints) -> tuple[Ints, Floats]:
    """Rows right behind waits for whose launch the host pauses, and how much longer it takes than
    another's: it works on what it has read."""
    other = job.like(trace)
    if other is None:
        return nodes[:0], np.empty(0)
    order = job.launched(trace)
    first = np.searchsorted(job.rows.launch[order], job.graph.time[nodes] - _shift(job, order))
    own, partner = job.beside(trace, other)
    follows = np.isin(own, order[first[first < len(order)]]) & (partner >= 0)
    behind, there = own[follows], partner[follows]
    alone = job.interval - job.queued
    longer = alone[behind] - alone[there]
    far = longer > job.stall
    return behind[far], longer[far]


def _shift(job: Job, rows: Ints) -> int:
    """ns from times of rows of one trace to those of the graph."""
    return int(job.graph.time[job.graph.start_node[rows[0]] - FIRST] - job.rows.start[rows[0]])


def _reads_of_passes(job: Job, trace: int, nodes: Ints) -> bool:
    """Whether most waits are reads with many launches between them: a value of each pass of a
    model, which may decide what comes next, as the end of a text."""
    place = np.flatnonzero(np.isin(job.launched(trace), _copies(job, nodes)))
    far = np.count_nonzero(np.diff(place) > MIN_SMALL_CALLS)
    return bool(2 * far > len(nodes))


def _copies(job: Job, nodes: Ints) -> list[int]:
    """Rows of the copies that waits are for."""
    return [
        r for n in nodes.tolist() for r in job.graph.lasted[1:, n].tolist()
        if r >= 0 and job.rows.kind[r] == Kind.COPY
    ]  # fmt: skip


def _reads_of_layers(job: Job, trace: int, nodes: Ints) -> Ints:
    """Waits for a value of each layer; none, if these are few.

    Kernels of one kind make these values. Between two of them stands one layer, in which nothing
    recurs; between values of two passes of a model stand its layers.
    """
    order = job.launched(trace)
    place = np.flatnonzero(np.isin(order, _copies(job, nodes)))
    place = place[place > 0]
    if not len(place):
        return nodes[:0]
    names = job.rows.name[order].astype(np.int64)
    kind = families((*job.rows.names, ""))[names[place - 1]]
    place = place[kind == np.bincount(kind).argmax()]
    one = [
        b - a > MIN_SMALL_CALLS and layered(names[a + 1 : b]) < MIN_LAYER_KERNELS
        for a, b in pairwise(place.tolist())
    ]
    inside = np.count_nonzero(job.step_of_row[order[place]] >= 0)
    if inside < MIN_SMALL_CALLS * job.count or sum(one) < MIN_ALIKE_COPIES * len(one):
        return nodes[:0]
    found: Ints = nodes[np.isin(job.graph.lasted[1:, nodes], order[place]).any(axis=0)]
    return found


def _checks_for_nan(job: Job, read: Ints) -> bool:
    """Whether what is read are the checks of `torch.autograd.set_detect_anomaly`.

    An element that is not equal to itself, then "is any": at::native::...CompareEqFunctor, and
    reduce_kernel<... or_kernel_cuda ...>, PyTorch 2.11.
    """
    names = {job.rows.names[n] for n in np.unique(job.rows.name[read]).tolist() if n >= 0}
    return any("CompareEqFunctor" in n for n in names) and any("or_kernel" in n for n in names)


def families(names: Sequence[str]) -> Ints:
    """A number for each kernel, equal for those that do the same with values of other types.

    A model of several types runs each of its kernels for all of them.
    """
    _, found = np.unique([_TYPES.sub("", name) for name in names], return_inverse=True)
    return found


def _what_is_read(job: Job, trace: int, nodes: Ints) -> Ints:
    """Rows that make the values which a host waits for: what stands before most of such copies."""
    order = job.launched(trace)
    place = np.flatnonzero(np.isin(order, _copies(job, nodes)))
    found = [order[place]]
    if len(place) < MIN_SMALL_CALLS * job.count:
        return np.empty(0, dtype=np.int64)
    cleared = job.rows.kind[order] == Kind.MEMSET
    alike = families((*job.rows.names, ""))
    for _ in range(MIN_SMALL_CALLS):
        place = place[place > 0] - 1
        # What a kernel adds up is cleared before it, where it has several blocks.
        clear = cleared[place] & (place > 0)
        kernels = place - clear
        if not len(place):
            break
        _, number = np.unique(alike[job.rows.name[order[kernels]]], return_inverse=True)
        often = np.bincount(number)
        same = number == int(often.argmax())
        if (
            often.max() < MIN_ALIKE_COPIES * len(place)
            or job.rows.entry[order[kernels[same][0]]] >= 0
        ):
            break
        found += [order[kernels[same]], order[place[same & clear]]]
        place = kernels[same]
    return np.unique(np.concatenate(found))


def small_calls(job: Job) -> Iterator[Candidate]:
    """Many small collectives that follow each other: one call would do."""
    calls, graph, rows = job.calls, job.graph, job.rows
    if not len(calls):
        return
    part_transfer = graph.transfer
    shortest = np.minimum.reduceat(part_transfer, calls.offsets[:-1])
    size = np.array([-1 if c.size_bytes is None else c.size_bytes for c in calls.classes])
    small_class = size[calls.class_]
    small = np.where(small_class >= 0, small_class <= 1 << 16, shortest <= SMALL_CALL_NS)
    small &= ~calls.p2p
    of_row = np.zeros(len(rows), dtype=bool)
    of_row[calls.row] = small[calls.call_of_part]
    duration = np.ones(len(rows))
    host = np.zeros(len(rows))
    inner = np.zeros(len(rows), dtype=bool)
    count = 0
    last = -1
    for trace in job.traces:
        order = job.launched(trace)
        at = np.flatnonzero(of_row[order])
        if not len(at):
            return
        # Between the calls of a burst are copies of results alone. Kernels may need one call's
        # result for the next, as the layers of a model do; a large call is no part of one call.
        large = (rows.entry[order] >= 0) & ~of_row[order]
        kernels = np.cumsum(job.compute[order] | large)[at]
        cuts = np.flatnonzero((np.diff(kernels) > 0) | (np.diff(at) > MAX_ROWS_BETWEEN)) + 1
        for burst in np.split(at, cuts):
            if len(burst) < MIN_SMALL_CALLS:
                continue
            burst_rows = order[burst[0] : burst[-1] + 2]
            inner[burst_rows] = True
            own = order[burst]
            # Before the first call and after the last the host may do something else as well.
            between, ends = job.interval[burst_rows], burst_rows[[0, -1]]
            host[burst_rows] = between
            host[ends] = np.minimum(job.interval[ends], np.median(between[1:-1]))
            count += int((job.step_of_row[own] >= 0).sum())
            last = int(own[-1])
    if not count:
        return
    copies = inner & (rows.entry < 0)
    duration[copies] = 0.0
    transfer = np.where(inner[calls.row], 0.0, 1.0)
    waits = np.zeros(len(graph.time), dtype=bool)
    for node in sync_nodes(job).tolist():
        awaited = graph.before[1:, node]
        row = graph.lasted[1:, node]
        behind = [
            int(r)
            for r, b in zip(row.tolist(), awaited.tolist(), strict=True)
            if b >= FIRST and r >= 0
        ]
        waits[node] = bool(behind) and all(inner[r] for r in behind)
    spent = float((rows.end - rows.start)[inner & (rows.entry >= 0) & (job.step_of_row >= 0)].sum())
    ranks, held = len(job.traces), len(inside_steps(job, np.flatnonzero(waits)))
    yield Candidate(
        "small_calls", (), "calls",
        Evidence("small_calls", job.name(last), count=count / job.count / ranks,
                 ms=spent / job.count / ranks / 1e6, usual=held / job.count / ranks),
        changes=(Change(host_ns=host, duration=duration, transfer=transfer, waits=waits),),
        # If no host waits for them, they cost what it takes to launch them: in another start hosts
        # may be no limit.
        counted=True, certain=2 * held >= count,
    )  # fmt: skip


def slow_copies(job: Job) -> Iterator[Candidate]:
    """Copies between host and GPU from memory that is not pinned, which its host waits for.

    Not those so short that a host reads a value with them, or sends one: it waits for the value.
    """
    names = job.rows.names
    rows = pageable_copies(job)
    inside = rows & (job.step_of_row >= 0)
    if not inside.any():
        return
    longest = int(np.where(inside, job.rows.end - job.rows.start, 0).argmax())
    kept = np.where(rows, 0.0, 1.0)
    # A copy is longer where its host writes to memory for the first time. Whether it gets such
    # memory depends on what else it has allocated, as a profiler does.
    to_host = np.array([_INSIDE.search(n) is None for n in names] + [False])[job.rows.name]
    reused = np.where(to_host, np.maximum(kept, 1 - REUSED_FACTOR), kept)
    others = (_without_copies(job, reused),) if to_host[inside].any() else ()
    ranks = {int(t) for t in job.rows.trace[inside]}
    chosen = (
        () if len(ranks) == len(job.traces) else tuple(sorted(job.rows.ranks[t] for t in ranks))
    )
    duration = (job.rows.end - job.rows.start)[inside]
    yield Candidate(
        "slow_transfer", chosen, "copies",
        Evidence("copies", names[int(job.rows.name[longest])],
                 count=float(inside.sum()) / job.count / len(ranks),
                 ms=float(duration.sum()) / job.count / len(ranks) / 1e6),
        changes=(_without_copies(job, kept),),
        others=others, counted=True, direct=bool(others),
    )  # fmt: skip


def pageable_copies(job: Job) -> Bools:
    """(rows,) copies between host and GPU from memory that is not pinned, of more than a value."""
    slow = np.array(["pageable" in n.lower() for n in job.rows.names] + [False])
    found: Bools = (job.rows.kind == Kind.COPY) & slow[job.rows.name]
    return found & (job.rows.end - job.rows.start > LATENCY_NS)


def _without_copies(job: Job, kept: Floats) -> Change:
    """Copies that last a part of their time; no host waits for those that last none.

    kept  (rows,) that part
    """
    waits = np.zeros(len(job.graph.time), dtype=bool)
    for node in sync_nodes(job).tolist():
        held = [r for r in job.graph.lasted[1:, node].tolist() if r >= 0]
        waits[node] = bool(held) and not kept[held].any()
    return Change(duration=kept, waits=waits, host_ns=job.call_ns * (1 - kept))


def blocking_launches(job: Job) -> Iterator[Candidate]:
    """Launches that return when their kernel is done: CUDA_LAUNCH_BLOCKING, or a debugger."""
    chosen = np.unique(job.rows.trace[job.waited_for]).tolist()
    if not chosen:
        return
    found = np.where(job.waited_for, job.call_ns, 0.0)
    inside = (found > 0) & (job.step_of_row >= 0)
    ranks = () if len(chosen) == len(job.traces) else tuple(job.rows.ranks[t] for t in chosen)
    yield Candidate(
        "blocking_sync", ranks, "calls",
        Evidence("blocking_calls", "LAUNCH", count=float(inside.sum()) / job.count / len(chosen),
                 ms=float(found[inside].sum()) / job.count / len(chosen) / 1e6),
        changes=(Change(host_ns=job.blocked),), at_power_cap=True, counted=True, exact=True,
    )  # fmt: skip
