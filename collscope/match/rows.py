"""Traces of all ranks as one table of rows, and what names a class of collectives (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model import BufferPlace, CollectiveClass, Datatype, Extent, Op, Redop, size_bytes
from collscope.model.trace import HostCalls, Ints, TraceCollective, TraceFile

UNKNOWN_LAUNCH = -(1 << 62)
_COLUMNS: dict[str, type[np.generic]] = {
    "trace": np.int32, "kind": np.int8, "stream": np.int32, "start": np.int64, "end": np.int64,
    "launch": np.int64, "entry": np.int32, "seq": np.int64, "name": np.int32,
}  # fmt: skip


class Rows(msgspec.Struct, frozen=True):
    """Rows of all traces, trace by trace, each in the order of start. Times in ns since `base`."""

    base_ns: int
    trace: npt.NDArray[np.int32]  # index of the trace
    bounds: Ints  # (traces + 1,) where each trace's rows begin
    kind: npt.NDArray[np.int8]  # `Kind`
    stream: npt.NDArray[np.int32]  # numbered over all traces
    start: Ints
    end: Ints
    launch: Ints  # `UNKNOWN_LAUNCH` where not known; before 0 for a launch before the first start
    entry: npt.NDArray[np.int32]  # into `entries`; -1: no collective
    seq: Ints
    name: npt.NDArray[np.int32]  # into `names`
    entries: tuple[TraceCollective, ...]
    names: tuple[str, ...]
    streams: tuple[tuple[int, str], ...]  # (trace, label) per stream
    ranks: tuple[int, ...]  # world rank per trace
    hosts: tuple[str | None, ...]
    steps: tuple[tuple[tuple[int, int], ...], ...]  # per trace, since base
    duplicates: tuple[int, ...] = ()  # indices of input traces left out: their rank came before
    world_size: int | None = None  # ranks of the job, where a trace has it
    least_size: int = 0  # ranks that it has at least: one more than the highest
    dialects: tuple[str, ...] = ()  # of the traces, each once
    group_ranks: tuple[
        tuple[tuple[int, ...], ...], ...
    ] = ()  # per trace the ranks of its groups, if known
    operators: bool = False  # a trace has those of its host
    steps_before: tuple[int | None, ...] = ()  # per trace the steps of the job before the marked

    def __len__(self) -> int:
        """Rows of all traces."""
        return len(self.start)

    def of(self, trace: int) -> slice:
        """Rows of one trace."""
        return slice(int(self.bounds[trace]), int(self.bounds[trace + 1]))


def title(key: CollectiveClass) -> str:
    """Name of a slice: operation and size."""
    size = key.size_bytes
    return key.op.value if size is None else f"{key.op.value} {size} B"


def class_key(entry: TraceCollective, nranks: int | None) -> CollectiveClass:
    """Class of a collective on a group of `nranks` ranks; a trace has neither place nor nodes."""
    op = Op.SEND_RECV if entry.op.point_to_point else entry.op
    count, size = api_count(entry, nranks), None
    if count is not None and entry.datatype is not None:
        size = size_bytes(op, count=count, datatype=entry.datatype, nranks=nranks)
    elif entry.count_bytes is not None:
        size = size_bytes(op, count=entry.count_bytes, datatype=Datatype.INT8, nranks=nranks)
    redop = Redop.of_label(entry.redop)
    return CollectiveClass(op, entry.datatype, redop, count, size, nranks=nranks)


def api_count(entry: TraceCollective, nranks: int | None) -> int | None:
    """Elements as the API's count argument has them; None where ranks differ in it.

    >>> api_count(TraceCollective(Op.REDUCE_SCATTER, in_count=64, out_count=16), 4)
    16
    """
    op, n_in, n_out = entry.op, entry.in_count, entry.out_count
    if op.sends is Extent.VARIED:
        return None
    if entry.count_bytes is not None:
        each = None if entry.datatype is None else entry.datatype.itemsize
        return None if not each or entry.count_bytes % each else entry.count_bytes // each
    if op.place is BufferPlace.PART_OF_RECV:
        return n_in
    if op.place is BufferPlace.PART_OF_SEND:
        return n_out
    known = [n for n in (n_in, n_out) if n is not None]
    if op.count_is_part:
        return max(known) // nranks if known and nranks else None
    return max(known, default=None)


def signature(entry: TraceCollective) -> tuple[object, ...]:
    """What must be equal on all ranks of one call."""
    count = None if entry.op in (Op.GATHER, Op.SCATTER) else api_count(entry, 1)
    return (entry.op, entry.datatype, count, entry.count_bytes)


def signatures(rows: Rows) -> Ints:
    """Per entry a number equal for those that may be one call, shape (entries + 1,)."""
    known: dict[tuple[object, ...], int] = {}
    numbers = [known.setdefault(signature(e), len(known)) for e in rows.entries]
    return np.array([*numbers, -1], dtype=np.int64)


def gather_rows(traces: Sequence[TraceFile]) -> Rows:
    """All traces as one table; of two with equal rank the first counts.

    A trace without a rank gets that of its file's name, where the names number all such traces;
    else the smallest number no other has.
    """
    kept, ranks, duplicates = _ranks(traces)
    files = [traces[k] for k in kept]
    entries: dict[TraceCollective, int] = {}
    names: dict[str, int] = {}
    streams: list[tuple[int, str]] = []
    base = min((int(f.columns.start_ns.min()) for f in files if len(f.columns)), default=0)
    parts: dict[str, list[npt.NDArray[Any]]] = defaultdict(list)
    for t, file in enumerate(files):
        c = file.columns
        entry_of = np.array([entries.setdefault(e, len(entries)) for e in file.collectives] + [-1])
        name_of = np.array([names.setdefault(n, len(names)) for n in file.names] + [-1])
        start = c.start_ns
        order = slice(None) if (start[1:] >= start[:-1]).all() else np.argsort(start, kind="stable")
        for column, values in (
            ("trace", np.full(len(c), t, np.int32)), ("kind", c.kind),
            ("stream", c.stream + len(streams)),
            ("start", start - base), ("end", np.maximum(c.end_ns, start) - base),
            ("launch", np.where(c.launch_ns >= 0, c.launch_ns - base, UNKNOWN_LAUNCH)),
            ("entry", entry_of[c.collective]), ("seq", c.seq), ("name", name_of[c.name]),
        ):  # fmt: skip
            parts[column].append(values[order].astype(_COLUMNS[column], copy=False))
        streams += [(t, label) for label in file.streams]
    # Of the largest traces, one column at a time is held twice.
    joined = {
        name: np.concatenate([*parts.pop(name, ()), np.empty(0, dtype=kind)])
        for name, kind in _COLUMNS.items()
    }
    return Rows(
        base_ns=base,
        bounds=np.concatenate([[0], np.cumsum([len(f.columns) for f in files])]).astype(np.int64),
        **joined,
        entries=tuple(entries),
        names=tuple(names),
        streams=tuple(streams),
        ranks=ranks,
        hosts=tuple(f.host for f in files),
        steps=tuple(tuple((s - base, e - base) for s, e in f.steps) for f in files),
        duplicates=duplicates,
        world_size=max((f.world_size for f in files if f.world_size), default=None),
        least_size=max(ranks, default=-1) + 1,
        dialects=tuple(sorted({f.dialect for f in files})),
        group_ranks=tuple(f.groups for f in files),
        operators=any(f.operators for f in files),
        steps_before=tuple(f.steps_before for f in files),
    )


def gather_host(traces: Sequence[TraceFile]) -> tuple[HostCalls | None, ...]:
    """Calls of the host of each trace that `gather_rows` keeps, in its order."""
    return tuple(traces[k].calls for k in gathered(traces))


def gathered(traces: Sequence[TraceFile]) -> list[int]:
    """Index of the trace that each of the traces of `gather_rows` is."""
    return _ranks(traces)[0]


def _ranks(traces: Sequence[TraceFile]) -> tuple[list[int], tuple[int, ...], tuple[int, ...]]:
    """Traces kept, in the order of rank; their ranks; those left out."""
    first: dict[int, int] = {}
    duplicates = []
    for k, trace in enumerate(traces):
        if trace.rank is not None and first.setdefault(trace.rank, k) != k:
            duplicates.append(k)
    by_name = ranked_by_name(traces)
    free = (r for r in range(2 * len(traces)) if r not in first)
    for k, trace in enumerate(traces):
        if trace.rank is None:
            first[trace.named_rank if by_name and trace.named_rank is not None else next(free)] = k
    ranks = tuple(sorted(first))
    return [first[r] for r in ranks], ranks, tuple(duplicates)


def ranked_by_name(traces: Sequence[TraceFile]) -> bool:
    """Whether the names of the files number all traces without a rank, each differently."""
    known_ranks = {trace.rank for trace in traces}
    named = [trace.named_rank for trace in traces if trace.rank is None]
    return None not in named and len(set(named)) == len(named) and known_ranks.isdisjoint(named)
