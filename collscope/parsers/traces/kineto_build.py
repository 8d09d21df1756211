"""The records of a PyTorch profiler trace, once all its events are collected."""

from __future__ import annotations

from array import array
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from collscope.kernel_names import OTHER_LIBRARIES
from collscope.model import Diagnostic, Op, Severity
from collscope.model.trace import Call, HostCalls, Ints, Kind, TraceCollective, TraceFile
from collscope.parsers._calls import UNKNOWN, end_and_longest, lost_kernels
from collscope.parsers._columns import Floats, Index, as_numpy
from collscope.parsers._notes import Notes
from collscope.parsers._sides import CODE, CONTRADICT_TEXT
from collscope.parsers.traces import kineto_calls
from collscope.parsers.traces._named import from_name
from collscope.parsers.traces._table import RowTimes, columns
from collscope.parsers.traces.engine_steps import EngineStep, of_one_kind
from collscope.parsers.traces.kineto_captures import collectives_of_captures
from collscope.parsers.traces.kineto_slices import LATEST_US
from collscope.parsers.traces.launch_shapes import SizeRange, reduced_bytes
from collscope.units import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collscope.kernel_names import KernelName
    from collscope.parsers.traces.kineto_collect import Collector
    from collscope.parsers.traces.kineto_header import Header

_TOGETHER = (Op.SEND, Op.RECV, Op.SEND_RECV, Op.UNKNOWN)  # several may launch one kernel
_LARGEST_WORLD = 1 << 31
_SHOWN_RANGES = 3
_MOST_LISTED = 1 << 22  # ranks that the groups of one file list in all: 40 bytes each


def trace_files(seen: Collector, header: Header, problems: list[Diagnostic]) -> list[TraceFile]:
    """One trace; one per device, when a process without rank ran kernels on several."""
    call = seen.host.launched_by(as_numpy(seen.rows.correlation, np.int64))
    thread = np.append(as_numpy(seen.host.thread, np.int32), -1)[call]
    launch_us = np.append(as_numpy(seen.host.start, np.float64), np.nan)[call]
    named = _look_up(seen, thread, launch_us)
    _compare(seen)
    collectives, contradictions = _collectives(seen, header)
    times = _times(seen, header, launch_us)
    rank, world_size = _identity(seen, header)
    notes = (
        *problems,
        *_notes(seen, named),
        *_lost(seen, named.alone),
        *contradictions,
    )
    marked = seen.steps
    if not marked:
        engine, left = of_one_kind(seen.engine_steps)
        marked = [(step.start_us, step.duration_us) for step in engine]
        notes = (*notes, *_other_steps(engine, left))
    steps = np.array(marked, dtype=np.float64).reshape(-1, 2)
    step_start = _ns(steps[:, 0], seen.origin_us, header.base_ns)
    step_end = step_start + np.rint(steps[:, 1] * 1000).astype(np.int64)
    parts = _parts(seen, rank)
    return [
        TraceFile(
            dialect="kineto",
            names=seen.names.values,
            streams=_stream_labels(seen, which),
            collectives=collectives,
            columns=columns(seen.rows, times, which),
            rank=rank,
            world_size=world_size,
            device=(device := _main_device(seen, which)),
            gpu=_gpu(header, device),
            groups=tuple(g for g in header.groups.values() if rank in g and len(g) > 1),
            library_version=header.library_version,
            steps=tuple(sorted(zip(step_start.tolist(), step_end.tolist(), strict=True))),
            calls=_host_calls(seen, header, call, times) if len(parts) == 1 else None,
            operators=seen.cpu,
            steps_before=seen.steps_before,
            diagnostics=notes,
        )
        for which in parts
    ]


def _other_steps(kept: list[EngineStep], left: int) -> Iterable[Diagnostic]:
    """Steps that the engine marked and that are left out: of another kind, or apart."""
    if left:
        what, other = "only generate", "read prompts"
        if not kept[0].decode:
            what, other = other, what
        message = (
            "Some steps that the engine marked are left out: only the longest series of steps "
            f"counts that {what} ({len(kept)}); the other steps {other}, or are separate from it."
        )
        yield Diagnostic(Severity.NOTICE, "steps_of_another_kind", message, count=left)


def _host_calls(seen: Collector, header: Header, of_row: Ints, times: RowTimes) -> HostCalls | None:
    """Calls that launched something or order GPU work; None where the trace has none.

    of_row   place of the call behind each row, -1 where not known
    """
    host = seen.host
    kind = as_numpy(host.kind, np.int8).copy()
    kind[of_row[of_row >= 0]] = Call.LAUNCH
    start_us = as_numpy(host.start, np.float64)
    duration = as_numpy(host.duration, np.float64)
    absolute = start_us + seen.origin_us
    kept = np.flatnonzero((kind != UNKNOWN) & (absolute >= 0) & (absolute < LATEST_US))
    if not len(kept):
        return None
    start = _ns(start_us[kept], seen.origin_us, header.base_ns)
    order = np.argsort(start, kind="stable")
    kept, start = kept[order], start[order]
    end = start + np.rint(np.maximum(duration[kept], 0) * 1000).astype(np.int64)
    place = np.full(len(kind) + 1, -1, dtype=np.int32)
    place[kept] = np.arange(len(kept))
    stream_event = np.full((len(kept), 2), -1, dtype=np.int32)
    correlation = as_numpy(host.correlation, np.int64)[kept]
    waits = host.waits
    for k in np.flatnonzero(kind[kept] >= Call.WAIT).tolist() if waits else ():
        stream_event[k] = waits.get(int(correlation[k]), (-1, -1))
    # Rows are in the order in which they were read; the trace has them by start.
    rows = np.argsort(times.start_ns, kind="stable")
    return HostCalls(
        kind=kind[kept],
        thread=as_numpy(host.thread, np.int32)[kept],
        start_ns=start,
        end_ns=end,
        stream=stream_event[:, 0],
        event=stream_event[:, 1],
        of_row=place[of_row][rows],
    )


class _Named(NamedTuple):
    """How many kernels of collectives have only their name, and how many have their capture."""

    alone: int
    in_graphs: int  # launched by graphs, NCCL's and RCCL's
    others: int  # of other libraries
    captured: int  # launched by graphs, with the collective of their capture
    why: str  # those in graphs have no capture; "": the trace holds none
    shapes: Counter[SizeRange]  # kernels by what their launch shape determines


def _look_up(seen: Collector, thread: Ints, launch_us: Floats) -> _Named:
    """Find the collectives of kernels without arguments.

    By the capture of their graph, by External id, by the record_param_comms or else the annotation
    or operator that launched them, or by name. thread and launch_us are of the rows' launches.
    """
    rows, host, alone, in_graphs, others = seen.rows, seen.host, 0, 0, 0
    captured, why = collectives_of_captures(seen, launch_us)
    shapes: Counter[SizeRange] = Counter()
    for row, external in seen.unnamed:
        if row in captured:
            rows.collective[row] = captured[row]
            continue
        where = int(thread[row]), float(launch_us[row])
        number = host.records.with_external(external)
        if number < 0:
            number = host.records.around(*where)
        if number >= 0:
            rows.collective[row] = host.records.place[number]
            rows.seq[row] = host.records.seq[number]
            continue
        number = host.annotations.around(*where)
        if number >= 0:
            rows.collective[row] = seen.annotation(number)
            continue
        hint = seen.hint(rows.name[row])
        number = host.symmetric.around(*where)
        if number >= 0 and hint is not None and hint.family in OTHER_LIBRARIES:
            rows.collective[row] = host.symmetric.place[number]
            continue
        rows.collective[row] = seen.place_of(hint, partial(_named, hint))
        if hint is not None and hint.family in OTHER_LIBRARIES:
            others += 1
            name = seen.names.values[rows.name[row]]
            size = reduced_bytes(name, rows.blocks[row], seen.threads.get(row, 0))
            if size is not None:
                shapes[size] += 1
        elif rows.correlation[row] in host.graphs:
            in_graphs += 1
        else:
            alone += 1
    return _Named(alone, in_graphs, others, len(captured), why, shapes)


def _named(hint: KernelName | None, _known: kineto_calls.Known) -> kineto_calls.Described:
    return kineto_calls.Described(from_name(hint))


def _compare(seen: Collector) -> None:
    """Give kernels that name another collective than their call what the two agree in."""
    records = seen.host.records
    for row, external in seen.named:
        number = records.with_external(external)
        if number < 0:
            continue
        own, other = seen.rows.collective[row], records.place[number]
        both = partial(kineto_calls.from_both, seen.described[own], seen.described[other])
        seen.rows.collective[row] = seen.place_of((own, other), both)


def _collectives(
    seen: Collector, header: Header
) -> tuple[tuple[TraceCollective, ...], list[Diagnostic]]:
    """The table of the collectives that rows have; the rows then hold places in it.

    Second: kernels whose fields contradict each other, and kinds of collectives that lost the ranks
    of their group, since the file names too many in all.
    """
    known = kineto_calls.Known(header.groups, header.world_size)
    notes = Notes()
    if header.contradicts:
        notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, None, "distributedInfo: world_size")
    used = as_numpy(seen.rows.collective, np.int32).copy()
    rows = np.flatnonzero(used >= 0)
    uses = np.stack([used[rows], as_numpy(seen.rows.blocks, np.int32)[rows]])
    kinds, kind, number = np.unique(uses, axis=1, return_inverse=True, return_counts=True)
    table: Index[TraceCollective] = Index()
    final = np.empty(kinds.shape[1], dtype=np.int32)
    lists: dict[tuple[int, ...], tuple[int, ...]] = {}  # groups of the same ranks share one
    left, unlisted = _MOST_LISTED, 0
    for k, (place, blocks) in enumerate(kinds.T.tolist()):
        found, wrong = seen.describe[place](known)
        if wrong:
            notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, None, wrong, count=int(number[k]))
        if found.description is None and found.group in header.descriptions:
            found = replace(found, description=header.descriptions[found.group])
        ranks = found.group_ranks or ()
        if ranks not in lists and len(ranks) <= left:
            lists[ranks] = ranks
            left -= len(ranks)
        unlisted += ranks not in lists
        if ranks:
            found = replace(found, group_ranks=lists.get(ranks))
        final[k] = table[replace(found, blocks=None if blocks < 0 else blocks)]
    used[rows] = final[kind]
    seen.rows.collective = array("i", used.tobytes())
    return table.values, [*notes.diagnostics, *_unlisted(unlisted)]


def _times(seen: Collector, header: Header, launch_us: Floats) -> RowTimes:
    start = _ns(as_numpy(seen.rows.start, np.float64), seen.origin_us, header.base_ns)
    duration = np.rint(as_numpy(seen.rows.duration, np.float64) * 1000).astype(np.int64)
    known = (launch_us + seen.origin_us >= 0) & (launch_us + seen.origin_us < LATEST_US)
    launch = _ns(np.where(known, launch_us, 0), seen.origin_us, header.base_ns)
    return RowTimes(start, start + duration, np.where(known, launch, -1))


def _ns(time_us: Floats, origin_us: int, base_ns: int) -> Ints:
    """Microseconds in ns, exact where the float is: whole and broken part are scaled apart."""
    whole_us = np.floor(time_us)
    part = np.rint((time_us - whole_us) * 1000).astype(np.int64)
    found: Ints = (whole_us.astype(np.int64) + origin_us) * 1000 + part + base_ns
    return found


def _identity(seen: Collector, header: Header) -> tuple[int | None, int | None]:
    """Rank and world size: of the header, else from the collectives."""
    rank, world_size = header.rank, header.world_size
    if rank is None:
        ranks_found = (kineto_calls.own_rank(args) for args in seen.described.values())
        ranks = Counter(found for found in ranks_found if found is not None).most_common(1)
        rank = ranks[0][0] if ranks else None
    if world_size is None:
        arguments = seen.described.values()
        sizes = [a.group_size or 0 for a in arguments if a.description == "default_pg"]
        size = max(sizes, default=0)
        world_size = size if 0 < size < _LARGEST_WORLD else None
    return rank, world_size


def _parts(seen: Collector, rank: int | None) -> list[Ints]:
    """Rows of each trace to give out, by device."""
    devices = as_numpy(seen.rows.device, np.int32)
    labels = ["" if device is None else str(device) for device in seen.devices.values]
    busy = np.unique(devices[as_numpy(seen.rows.kind, np.int8) == Kind.KERNEL])
    if rank is not None or sum(labels[device] != "" for device in busy) < 2:
        return [np.arange(len(devices))]
    order = sorted(range(len(labels)), key=lambda place: (len(labels[place]), labels[place]))
    return [np.flatnonzero(devices == device) for device in order]


def _stream_labels(seen: Collector, which: Ints) -> tuple[str, ...]:
    """The stream's number; with the device before it where the rows are of several devices."""
    several = len(np.unique(as_numpy(seen.rows.device, np.int32)[which])) > 1
    return tuple(
        f"{device}/{stream}" if several else str(stream) for device, stream in seen.streams.values
    )


def _main_device(seen: Collector, which: Ints) -> str | None:
    """The device with the most rows."""
    counts = np.bincount(as_numpy(seen.rows.device, np.int32)[which])
    if not len(counts):
        return None
    device = seen.devices.values[int(counts.argmax())]
    return None if device is None else str(device)


def _why_unnamed(seen: Collector) -> str:
    """Why a kernel has no arguments: they come with the operator that launched it."""
    if not seen.cpu:
        return (
            "They need CPU activities, which the trace lacks: ingest the job's logs too "
            "(collscope record), or profile with ProfilerActivity.CPU."
        )
    if seen.described:
        return (
            "The host launched these before the profiler began, outside torch.distributed, or "
            "after coalesced calls."
        )
    return "PyTorch 2.4 and later record them."


def _gpu(header: Header, device: str | None) -> str | None:
    """Name of the device; where its number is unknown, that of all devices if they share one."""
    names = set(header.gpus.values())
    return header.gpus.get(device or "") or (names.pop() if len(names) == 1 else None)


def _unlisted(number: int) -> Iterable[Diagnostic]:
    """Kinds of collectives whose groups name more ranks than are kept."""
    if number:
        message = (
            f"The process groups name more than {_MOST_LISTED:,} ranks in all: the ranks of further"
            " groups are not known."
        )
        yield Diagnostic(Severity.DATA_LOSS, "impossible_number", message, count=number)


def _lost(seen: Collector, alone: int) -> Iterable[Diagnostic]:
    """Kernels that were launched and are not there; activities without times count apart.

    alone  collective kernels without a call; calls without a kernel may have launched them: calls
           that are coalesced launch theirs later, outside of the call
    """
    start, lasts = (as_numpy(c, np.float64) for c in (seen.rows.start, seen.rows.duration))
    correlation = as_numpy(seen.rows.correlation, np.int64)
    lost, launched = seen.host.without_kernel(correlation, end_and_longest(start, lasts))
    lost -= seen.bad
    calls, recorded = _calls_without(seen)
    calls = max(0, calls - alone)
    if lost + calls > 0:
        yield lost_kernels(lost + calls, max(launched, recorded))


def _calls_without(seen: Collector) -> tuple[int, int]:
    """Recorded calls whose kernel and launch are both gone, and all that have a kernel each.

    Only kinds count that have kernels in the trace, each of one call: calls of one group may launch
    one kernel together; calls of other backends and of no bytes launch none.
    """
    host = seen.host
    known = set(host.records.externals)
    if host.captures or not seen.launched_by - {-1} <= known:
        return 0, 0
    # Their lists of ranks are long, and not needed here.
    described = (describe(kineto_calls.Known({})).collective for describe in seen.describe)
    kinds = [replace(found, group_ranks=None) for found in described]
    kind = [(found.op, found.group) for found in kinds]
    present = {
        kind[host.records.place[number]]
        for external, number in host.records.externals.items()
        if external in seen.launched_by
    }
    alone = {
        place
        for place, found in enumerate(kinds)
        if kind[place] in present
        and found.op not in _TOGETHER
        and found.in_count
        and found.out_count
    }
    lacking, recorded = host.records.without(seen.launched_by, alone)
    starts = np.sort(as_numpy(host.launch_start, np.float64))
    begin = np.array([host.records.start[k] for k in lacking])
    end = np.array([host.records.end[k] for k in lacking])
    # A launch inside is there, and counted where its kernel is gone.
    gone = np.searchsorted(starts, begin) == np.searchsorted(starts, end)
    return int(gone.sum()), recorded


def _ranges(shapes: Counter[SizeRange]) -> str:
    """The ranges of most kernels."""
    texts = []
    for (least, most), kernels in shapes.most_common(_SHOWN_RANGES):
        size = f"{least:,} bytes or more" if most is None else f"{least:,} to {most:,} bytes"
        texts.append(f"{size} ({count(kernels, 'kernel')})")
    return ", ".join(texts)


def _notes(seen: Collector, named: _Named) -> list[Diagnostic]:
    alone, in_graphs, others = named.alone, named.in_graphs, named.others
    found = []
    if named.captured:
        message = (
            "Sizes of collective kernels that a CUDA or HIP graph launched are those of the calls"
            " in the graph's capture: its kernels run in the order of the capture."
        )
        found.append(Diagnostic(Severity.NOTICE, "sizes_of_capture", message, count=named.captured))
    if seen.bad:
        message = "GPU activities without a usable time and duration were skipped."
        found.append(Diagnostic(Severity.DATA_LOSS, "untimed_activity", message, count=seen.bad))
    if alone:
        message = (
            "Collective kernels are known by name only: the traces alone do not show their sizes "
            f"and groups. {_why_unnamed(seen)}"
        )
        found.append(Diagnostic(Severity.NOTICE, "no_collective_arguments", message, count=alone))
    if in_graphs:
        message = (
            "Collective kernels launched by a CUDA or HIP graph are known by name only: PyTorch "
            "records no sizes and groups when a graph runs. NCCL's log has them where the graph "
            "is captured: record it as well (collscope record). So has a trace with CPU activities "
            "that holds the capture."
        )
        message = f"{message} {named.why}".rstrip()
        found.append(Diagnostic(Severity.NOTICE, "graph_collectives", message, count=in_graphs))
    if others:
        message = (
            "Collective kernels of other libraries than NCCL and RCCL are known by name only: the"
            " operation is a hint, and NCCL's log holds no sizes and groups of them. CPU activities"
            " hold sizes of PyTorch's symmetric memory alone, from before its graphs are captured."
        )
        message = f"{message} {named.why}".rstrip()
        found.append(Diagnostic(Severity.NOTICE, "other_libraries", message, count=others))
    if named.shapes:
        message = (
            "By the source of PyTorch's symmetric memory, the thread blocks of its kernels show how"
            f" much they reduce: {_ranges(named.shapes)}."
        )
        found.append(
            Diagnostic(
                Severity.NOTICE, "sizes_of_launch_shape", message, count=named.shapes.total()
            )
        )
    if seen.unknown:
        message = "Unknown kernels with a name like a collective's: not counted as collectives."
        name, count = next(iter(seen.unknown)), sum(seen.unknown.values())
        found.append(
            Diagnostic(
                Severity.NOTICE, "unknown_collective_kernel", message, None, name[:200], count
            )
        )
    if not len(seen.rows) and not seen.bad:
        message = "The trace holds no GPU activity. Profile with the CUDA (or HIP) activity."
        found.append(Diagnostic(Severity.NOTICE, "no_gpu_activity", message))
    return found
