"""What one rank saw of one communicator: pointers split into generations (pure).

A communicator pointer is an address of one process, reused after the communicator is destroyed.
A *handle* is one life of such a pointer: the lines between one initialisation and the next.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope._align import group
from collscope.model import CommInit, CommTopology, LogRecord
from collscope.model.comm_handle import CommHandle
from collscope.model.scanned_log import LogCalls, LogComms

Ints = npt.NDArray[Any]
RANKS_DIFFER = "contradicting_fields"  # the diagnostic of numbers of ranks that contradict


def has_init_lines(handle: CommHandle) -> bool:
    """Whether the log has INIT lines of a handle."""
    identity = (handle.comm_hash, handle.parent_ptr, handle.bus_id, handle.function)
    return any(value is not None for value in identity)


def resolve_handles(
    comms: LogComms, coll: LogCalls, records: Iterable[LogRecord]
) -> tuple[list[CommHandle], Ints, int]:
    """Handles of one source, and for every row of `coll` the index of its handle, shape (rows,).

    Where the INIT lines of a handle give another number of ranks than its calls, that of the two is
    taken which a line of one node confirms, else none; the third value counts such handles.

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
    topologies = [r for r in records if isinstance(r, CommTopology)]
    alone = _learn_topology(handles, topologies)
    differing = _agree_on_ranks(handles, _ranks_of_calls(pairs, comms, coll), alone)
    return _number_generations(handles), of_row, differing


def _ranks_of_calls(
    pairs: Sequence[tuple[int, int]], comms: LogComms, coll: LogCalls
) -> dict[int, int]:
    """Number of ranks that most calls of a handle give."""
    rows = np.bincount(coll.comm, minlength=len(comms.ptr)).tolist()
    by_number: dict[int, Counter[int]] = defaultdict(Counter)
    for handle, comm in pairs:
        if (nranks := int(comms.nranks[comm])) > 0:
            by_number[handle][nranks] += rows[comm]
    return {handle: found.most_common(1)[0][0] for handle, found in by_number.items()}


def _agree_on_ranks(
    handles: list[CommHandle], of_calls: Mapping[int, int], alone: Mapping[int, int]
) -> int:
    """Take the number of ranks that two signs agree on; returns where INIT and calls do not.

    alone  number of local ranks of handles whose communicator is on one node: all of its ranks
    """
    differing = 0
    for handle, nranks in of_calls.items():
        own = handles[handle]
        if own.nranks in (None, nranks):
            continue
        differing += 1
        local = alone.get(handle)
        agreed = local if local in (own.nranks, nranks) else None
        handles[handle] = replace(own, nranks=agreed)
    return differing


def agree_by_comm_id(handles: Sequence[CommHandle]) -> tuple[list[CommHandle], int]:
    """Handles with one number of ranks per commId; and how many gave another number.

    A commId is random, so that it is of one communicator: the number that most give is taken, and
    none where two are as frequent. Where a rank is there with both numbers, a commId is no sign.
    """
    own: dict[int, list[int]] = defaultdict(list)
    for i, handle in enumerate(handles):
        if handle.comm_hash is not None:
            own[handle.comm_hash].append(i)
    found, differing = list(handles), 0
    for members in own.values():
        known = Counter(n for i in members if (n := handles[i].nranks) is not None)
        sizes = {handles[i].nranks for i in members}
        ranks = {(handles[i].nranks, handles[i].rank) for i in members}
        if len(sizes) < 2 or not known or len({rank for _, rank in ranks}) < len(ranks):
            continue
        (most, times), *others = known.most_common(2)
        agreed = most if not others or others[0][1] < times else None
        differing += sum(handles[i].nranks not in (None, agreed) for i in members)
        for i in members:
            found[i] = replace(handles[i], nranks=agreed)
    return found, differing


def rows_by(keys: Ints, n: int) -> tuple[Ints, Ints]:
    """Rows grouped by key 0..n-1: their order, and where each key's rows begin and end in it."""
    return group(np.ascontiguousarray(keys, dtype=np.int32), n)


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
    news = {f: value for f in _INIT_FIELDS if (value := getattr(init, f)) is not None}
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
        # Lines before the first life, then those of each: both rise.
        cuts = np.searchsorted(coll.line[rows], [life.first_line for life in lives]).tolist()
        for epoch, (begin, end) in enumerate(pairwise([0, *cuts, len(rows)]), start=-1):
            if begin < end:
                chosen = rows[begin:end]
                handle = intern(process, ptr, epoch, comm, int(coll.line[chosen[0]]))
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


def _learn_topology(handles: list[CommHandle], topologies: list[CommTopology]) -> dict[int, int]:
    """Fill the number of nodes; returns the number of local ranks of handles on one node."""
    alone: dict[int, int] = {}
    by_pointer: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, handle in enumerate(handles):
        by_pointer[handle.process, handle.comm_ptr].append(i)
    for topology in topologies:
        lives = by_pointer.get((topology.process, topology.comm_ptr), [])
        before = [i for i in lives if handles[i].first_line <= topology.line] or lives[:1]
        if before:
            last = max(before, key=lambda i: handles[i].first_line)
            handles[last] = replace(handles[last], nnodes=topology.nnodes)
            if topology.nnodes == 1:
                alone[last] = topology.local_ranks
    return alone


def _number_generations(handles: list[CommHandle]) -> list[CommHandle]:
    seen: dict[tuple[int, int], int] = defaultdict(int)
    numbered = list(handles)
    for i in sorted(range(len(handles)), key=lambda i: handles[i].first_line):
        where = (handles[i].process, handles[i].comm_ptr)
        numbered[i] = replace(handles[i], generation=seen[where])
        seen[where] += 1
    return numbered
