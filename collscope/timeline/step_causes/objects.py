"""Collectives of Python objects: their sizes, their bytes, and hosts that read both (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model import Op
from collscope.model.trace import Kind
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import LATENCY_NS, MIN_WAITS
from collscope.timeline.step_causes.waits import sync_nodes, waits_for

Bools = npt.NDArray[np.bool_]

# What torch.distributed sends sizes and bytes with: all_gather_object, gather_object,
# broadcast_object_list, scatter_object_list. It reduces none.
_OPS = (
    Op.ALL_GATHER, Op.ALL_GATHERV, Op.BROADCAST, Op.GATHER, Op.SCATTER,
    Op.SEND_RECV, Op.SEND, Op.RECV,
)  # fmt: skip
_FROM_HOST = re.compile(r"HtoD|HostToDevice")
# Sizes are torch.long: they are cleared, compared, added up. Several objects are put together.
_OF_SIZES = re.compile(r"\blong\b|CatArray")


class _Object(msgspec.Struct, frozen=True):
    """What may be one rank's part in a collective of objects; places among its launches."""

    first: int  # what it copies to the GPU, or the call of the sizes
    sizes: int  # call
    last: int  # what it reads last, or the call of the bytes
    sends: bool
    knows: bool  # reads the sizes
    reads: bool  # reads the bytes, too


class _Rows(msgspec.Struct, frozen=True):
    """What a rank's rows are, in the order of their launches."""

    call: Bools  # short collective that may carry objects
    sent: Bools  # copy from pageable memory of the host
    read: Bools  # copy to the host, which waits for it
    small: Bools  # copy, memset, or kernel that works on sizes


def objects(job: Job) -> Iterator[Candidate]:
    """Two or more collectives of Python objects a step, wherever they stand in it.

    A host that sends copies the pickled object and its size to the GPU. All send the sizes; who
    receives reads these, to know how much memory the bytes need. All send the bytes, and who
    receives reads them.
    """
    found = _found(job)
    counts = {
        t: sum(int(job.step_of_row[job.launched(t)[o.sizes]] >= 0) for o in own)
        for t, own in found.items()
    }
    chosen = [t for t in job.traces if counts[t] >= MIN_WAITS * job.count]
    if not chosen:
        return
    gone, host = np.zeros(len(job.rows), dtype=bool), np.zeros(len(job.rows))
    spent = 0.0
    for trace in chosen:
        order, before = job.launched(trace), -1
        for each in found[trace]:
            rows = order[each.first : each.last + 1]
            gone[rows] = True
            host[rows] = job.interval[rows]
            if each.first != before + 1:
                # Before the first of several the host may do something else as well.
                host[rows[0]] = min(job.interval[rows[0]], job.usual_interval)
            if job.step_of_row[rows[-1]] >= 0:
                spent += float(job.rows.end[rows[-1]] - job.rows.start[rows[0]])
            before = each.last
    each_rank = job.count * len(chosen)
    yield Candidate(
        "blocking_sync",
        () if len(chosen) == len(job.traces) else tuple(sorted(job.rows.ranks[t] for t in chosen)),
        "calls",
        Evidence("objects", count=sum(counts[t] for t in chosen) / each_rank,
                 ms=spent / each_rank / 1e6),
        changes=(
            Change(host_ns=host, duration=np.where(gone, 0.0, 1.0),
                   transfer=np.where(gone[job.calls.row], 0.0, 1.0),
                   waits=waits_for(job, gone)),
        ),
        counted=True, exact=True, at_power_cap=True,
    )  # fmt: skip


def _found(job: Job) -> dict[int, list[_Object]]:
    """Collectives of objects of each trace: every rank sends or receives, and one reads what came.

    Who sends to the others reads nothing, and who receives copies nothing to its GPU.
    """
    possible: dict[int, list[_Object]] = {t: [] for t in job.traces}
    by_row: dict[int, _Object] = {}
    for trace in job.traces:
        order, rows = job.launched(trace), _rows(job, trace)
        places = np.flatnonzero(rows.call).tolist()
        for sizes, payload in pairwise(places):
            found = _object(rows, sizes, payload)
            if found is not None:
                possible[trace].append(found)
                by_row[int(order[sizes])] = found
    known: set[int] = set()
    offsets = job.calls.offsets.tolist()
    for begin, end in pairwise(offsets):
        parts = [by_row.get(row) for row in job.calls.row[begin:end].tolist()]
        present = [part for part in parts if part is not None]
        sent = len(present) == len(parts) and any(p.sends for p in present)
        if sent and any(p.knows and p.reads for p in present):
            known.update(job.calls.row[begin:end].tolist())
    return {
        trace: [o for o in own if int(job.launched(trace)[o.sizes]) in known]
        for trace, own in possible.items()
    }


def _object(rows: _Rows, sizes: int, payload: int) -> _Object | None:
    """A rank's part in a collective of objects with these two calls; None: they are something else.

    Between the calls nothing new comes from the host.
    """
    inner = slice(sizes + 1, payload)
    if not rows.small[inner].all() or rows.sent[inner].any():
        return None
    first = place = sizes
    copied = 0
    while place > 0 and (
        rows.sent[place - 1] or (rows.small[place - 1] and not rows.read[place - 1])
    ):
        place -= 1
        if rows.sent[place]:
            first, copied = place, copied + 1
    last = place = payload
    while place + 1 < len(rows.small) and rows.small[place + 1] and not rows.sent[place + 1]:
        place += 1
        if rows.read[place]:
            last = place
    knows = bool(rows.read[inner].any())
    sends = copied >= MIN_WAITS  # an object and its size
    if not sends and not knows:
        return None
    return _Object(first if sends else sizes, sizes, last, sends, knows, last > payload)


def _rows(job: Job, trace: int) -> _Rows:
    """What a rank's rows are."""
    order, rows, calls = job.launched(trace), job.rows, job.calls
    may = np.array([entry.op in _OPS for entry in rows.entries] + [False])[rows.entry]
    short = np.zeros(len(rows), dtype=bool)
    short[calls.row] = job.graph.transfer <= LATENCY_NS
    copy = rows.kind == Kind.COPY
    names = [*rows.names, ""]
    from_host = np.array([
        bool(_FROM_HOST.search(n)) and "pinned" not in n.lower() for n in names
    ])[rows.name]  # fmt: skip
    of_sizes = np.array([bool(_OF_SIZES.search(n)) for n in names])[rows.name]
    brief = rows.end - rows.start <= LATENCY_NS
    waited = np.zeros(len(rows) + 1, dtype=bool)  # the last one: no row
    waited[job.graph.lasted[1:, sync_nodes(job, trace)]] = True
    small = brief & (rows.entry < 0) & (~job.compute | of_sizes)
    found = _Rows(
        call=may & short & (rows.entry >= 0), sent=copy & from_host & brief,
        read=copy & ~from_host & waited[:-1], small=small,
    )  # fmt: skip
    return _Rows(*(values[order] for values in msgspec.structs.astuple(found)))
