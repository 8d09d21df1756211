"""What one rank saw of one communicator: pointers split into generations (pure).

A communicator pointer is an address of one process, reused after the communicator is destroyed.
A *handle* is one life of such a pointer: the lines between one initialisation and the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.model import CommInit, CommTopology, LogRecord
from collscope.model.comm_handle import CommHandle
from collscope.model.scanned_log import LogCalls, LogComms

Ints = npt.NDArray[Any]


def begun(handle: CommHandle) -> bool:
    """Whether the log has INIT lines of a handle."""
    identity = (handle.comm_hash, handle.parent_ptr, handle.bus_id, handle.function)
    return any(value is not None for value in identity)


def resolve_handles(
    comms: LogComms, coll: LogCalls, records: Iterable[LogRecord]
) -> tuple[list[CommHandle], Ints]:
    """Handles of one source, and for every row of `coll` the index of its handle, shape (rows,).

    comms    the scanner's communicator pointers
    coll     the scanner's rows of calls, in line order
    records  the parsed INIT and topology lines of the same source
    """
    records = list(records)
    epochs = _epochs(record for record in records if isinstance(record, CommInit))
    handles: list[CommHandle] = []
    index: dict[tuple[int, int, int, int], int] = {}

    def intern(process: int, ptr: int, epoch: int, comm: int, line: int) -> int:
        known = epochs.get((process, ptr), [])
        slot = (process, ptr, epoch, comm if epoch < 0 else -1)
        if slot not in index:
            index[slot] = len(handles)
            base = known[epoch] if epoch >= 0 else CommHandle(process, ptr, 0, line)
            handles.append(base)
        return index[slot]

    for (process, ptr), lives in epochs.items():
        for epoch in range(len(lives)):
            intern(process, ptr, epoch, -1, 0)
    of_row, pairs = _handle_of_rows(comms, coll, epochs, intern)
    _learn_from_comms(handles, pairs, comms)
    _learn_topology(handles, [r for r in records if isinstance(r, CommTopology)])
    return _number_generations(handles), of_row


def rows_by(keys: Ints, n: int) -> tuple[Ints, Ints]:
    """Rows grouped by key 0..n-1: their order, and where each key's rows begin and end in it."""
    # numpy sorts 16-bit integers by radix, five times as fast as wider ones.
    narrow = keys.astype(np.uint16) if n <= 1 << 16 else keys
    order = np.argsort(narrow, kind="stable")
    counts = np.bincount(keys, minlength=n)
    return order, np.concatenate([[0], np.cumsum(counts)])


def _epochs(inits: Iterable[CommInit]) -> dict[tuple[int, int], list[CommHandle]]:
    """Lives of each (process, pointer) in line order: each has one Init START, one COMPLETE and one
    CALL line, or some of them.
    """
    lives: dict[tuple[int, int], list[CommHandle]] = defaultdict(list)
    had: dict[tuple[int, int], set[tuple[bool, bool]]] = {}  # kinds of lines of the last life
    for init in sorted(inits, key=lambda r: r.line):
        where = (init.process, init.comm_ptr)
        known = lives[where]
        same = bool(known) and known[-1].rank == init.rank and known[-1].nranks == init.nranks
        kind = (init.complete, init.traced)
        if init.complete and same and kind not in had[where]:
            known[-1] = _merge(known[-1], init)
        else:
            known.append(_merge(CommHandle(*where, 0, init.line), init))
            had[where] = set()
        had[where].add(kind)
    return lives


def _merge(handle: CommHandle, init: CommInit) -> CommHandle:
    news = {f: getattr(init, f) for f in _INIT_FIELDS if getattr(init, f) is not None}
    return replace(handle, **news)


_INIT_FIELDS = (
    "rank", "nranks", "function", "cuda_dev", "nvml_dev", "bus_id", "comm_hash", "parent_ptr",
    "split_count", "color", "key",
)  # fmt: skip


def _handle_of_rows(
    comms: LogComms,
    coll: LogCalls,
    epochs: Mapping[tuple[int, int], list[CommHandle]],
    intern: Callable[[int, int, int, int, int], int],
) -> tuple[Ints, list[tuple[int, int]]]:
    """CommHandle of every row: by pointer, and by line where a pointer lived more than once.

    returns also the (handle, comm) pairs that occur
    """
    pairs = []
    of_row = np.full(len(coll.comm), -1, dtype=np.int32)
    order, bounds = rows_by(coll.comm, len(comms.ptr))
    for comm, (process, ptr) in enumerate(
        zip(comms.process.tolist(), comms.ptr.tolist(), strict=True)
    ):
        rows = order[bounds[comm] : bounds[comm + 1]]
        if not len(rows):
            continue
        lives = epochs.get((process, ptr))
        if lives is None:
            of_row[rows] = handle = intern(process, ptr, -1, comm, int(coll.line[rows[0]]))
            pairs.append((handle, comm))
            continue
        lines = coll.line[rows]
        starts = [life.first_line for life in lives]
        epoch_of = np.searchsorted(starts, lines, side="right") - 1
        for epoch in np.unique(epoch_of).tolist():
            chosen = rows[epoch_of == epoch]
            line = int(coll.line[chosen[0]])
            handle = intern(process, ptr, epoch, comm, line)
            of_row[chosen] = handle
            pairs.append((handle, comm))
    return of_row, pairs


def _learn_from_comms(
    handles: list[CommHandle], pairs: list[tuple[int, int]], comms: LogComms
) -> None:
    """Fill nranks and global rank that the COLL lines themselves carry."""
    for handle, comm in pairs:
        nranks, rank = int(comms.nranks[comm]), int(comms.global_rank[comm])
        old = handles[handle]
        handles[handle] = replace(
            old,
            nranks=old.nranks if old.nranks is not None or nranks < 0 else nranks,
            global_rank=old.global_rank if rank < 0 else rank,
            rank=old.rank if old.rank is not None or rank < 0 else rank,
        )


def _learn_topology(handles: list[CommHandle], topologies: list[CommTopology]) -> None:
    by_pointer: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, handle in enumerate(handles):
        by_pointer[handle.process, handle.comm_ptr].append(i)
    for topology in topologies:
        lives = by_pointer.get((topology.process, topology.comm_ptr), [])
        before = [i for i in lives if handles[i].first_line <= topology.line] or lives[:1]
        if before:
            last = max(before, key=lambda i: handles[i].first_line)
            handles[last] = replace(handles[last], nnodes=topology.nnodes)


def _number_generations(handles: list[CommHandle]) -> list[CommHandle]:
    seen: dict[tuple[int, int], int] = defaultdict(int)
    numbered = list(handles)
    for i in sorted(range(len(handles)), key=lambda i: handles[i].first_line):
        where = (handles[i].process, handles[i].comm_ptr)
        numbered[i] = replace(handles[i], generation=seen[where])
        seen[where] += 1
    return numbered
