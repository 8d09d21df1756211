"""RCCL kernel-trace lines paired into kernel times (pure).

KL opens a block's work, KE closes it, CL closes one work item and opens the next of the same
kernel. A kernel has one such pair per block (channel). Times are seconds of that GPU's own clock:
durations can be compared between ranks, starts cannot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import astuple, replace

from collscope import stamps
from collscope.model import Diagnostic, Severity
from collscope.model.diagnostic import TIMES_UNKNOWN
from collscope.model.scanned_log import LogKernels, rows_of
from collscope.model.traced_kernel import TracedKernel

NONE = 0xFFFFFFFF
KL, CL, KE = 0, 1, 4
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no product loses a bit
COUNTER_MASK = (1 << 25) - 1  # counters are cut to 25 bits (ROCm 6.2 on)


_TRACE_COLUMNS = (
    "process", "kind", "time_ns", "rank", "block", "channel", "op_count", "name", "bus_id",
    "nranks", "comm_ptr", "line",
)  # fmt: skip


def lines_once(trace: LogKernels) -> tuple[LogKernels, int]:
    """The scanner's `kernel` columns without lines that were there before, and how many are not.

    The GPU's clock has a time for each line of a block: one that is equal in every column was
    written once, and is repeated in the log.
    """
    columns = astuple(trace)[:-1]  # but the line
    n = len(trace.line)
    if not n:
        return trace, 0
    mixed = np.zeros(n, dtype=np.uint64)  # one number per line, for sorting
    for column in columns:
        mixed = mixed * _MIXER + column.astype(np.uint64)
    _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
    if len(first) == n:
        return trace, 0
    before = first[inverse]
    repeated = before != np.arange(n)
    for column in columns:
        repeated &= column == column[before]
    return rows_of(trace, ~repeated), int(repeated.sum())


def pair_kernels(
    trace: LogKernels, names: Sequence[str]
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
                "kernel-end lines (KE) without their kernel-start line (KL): logging began later, "
                "or the line was lost",
                line=orphans[0],
                count=len(orphans),
            )
        )
    if unclosed:
        found.append(
            Diagnostic(
                Severity.NOTICE,
                "kernel_without_end",
                "kernel-start lines (KL) without their kernel-end line (KE): the kernels have no "
                "duration",
                line=unclosed[0].line,
                count=len(unclosed),
            )
        )
    return kernels, found


def _believed(spans: Sequence[TracedKernel]) -> tuple[list[TracedKernel], list[Diagnostic]]:
    """Spans without the ends that cannot be true (see `collscope.stamps`); and their diagnostics.

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
        clock_problems = stamps.diagnostics(found, partial(_at_line, own))
        # Rows that contradict each other too often: which of a clock's are right is unknown.
        unknown = any(note.code in TIMES_UNKNOWN for note in clock_problems)
        for row in np.flatnonzero(~found.believed | unknown).tolist():
            kept[rows[row]] = replace(own[row], end_ns=None)
        for note in clock_problems:
            before = notes.get(note.code)
            notes[note.code] = replace(note, count=note.count + (before.count if before else 0))
    return kept, list(notes.values())


def _at_line(spans: Sequence[TracedKernel], row: int) -> str:
    return f"kernel begun at line {spans[row].line}"


def _spans(trace: LogKernels, names: Sequence[str]) -> tuple[list[TracedKernel], list[int]]:
    """One record per block and work item; lines of KE without an open KL."""
    open_spans: dict[tuple[int, ...], TracedKernel] = {}
    latest: dict[tuple[int, ...], tuple[int, ...]] = {}  # of each block, what it opened last
    done: list[TracedKernel] = []
    ended: list[_End] = []
    orphans: list[int] = []
    columns = (getattr(trace, name).tolist() for name in _TRACE_COLUMNS)
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
    """The value of a line, else that of the line before it in its block."""
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
        return (self.span.op_count ^ self.op_count) & COUNTER_MASK == 0


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
