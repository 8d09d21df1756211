"""Waits and late ranks by the GPU times of recorded calls, by the rules for traces (pure).

There are two kinds of recordings. Some have the end of each call on the GPU's clock: the ends give
the offsets of the clocks. Others have durations only. Then we assume that all ranks leave a
synchronising call together: the last rank to arrive has the shortest duration, and each other rank
waited for the difference. Transfer and waiting of rooted calls are not known from durations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.match.recordings import RecordedGroup, RecordedPart
from collscope.match.rows import UNKNOWN_LAUNCH, Rows, signature
from collscope.match.traces import Calls
from collscope.model import CollectiveClass
from collscope.model.trace import Kind
from collscope.timeline.clocks import estimate_clocks
from collscope.timeline.late import late_ranks
from collscope.timeline.records import LateRank, RankTimes
from collscope.timeline.tolerances import END_NOISE_NS
from collscope.timeline.waits import CallTimes, call_times, rank_times


class RecordedWaits(msgspec.Struct, frozen=True):
    """Waits by the GPU times of a run's recordings. Times in ns."""

    rows: Rows  # one trace a GPU; one whose world rank is not known has a negative one
    calls: Calls  # those with a time on any rank
    times: CallTimes
    places: tuple[tuple[int, int], ...]  # per call: group, and number in it
    recordings: tuple[int, ...]  # per GPU the recording that it is of
    ranks: tuple[tuple[int, RankTimes, LateRank], ...]  # one of its rows, by rank


class _Gpu(NamedTuple):
    """What stamps or times calls for itself: a process, or one of its ranks in one group."""

    recording: int
    of_group: tuple[int, int] | None = None  # group, rank in it, of a process with several ranks


class _Timed(NamedTuple):
    """One rank's time of a call."""

    gpu: _Gpu
    end_ns: int
    lasted_ns: int


class _Call(NamedTuple):
    """A call with the times of those ranks that have one."""

    place: tuple[int, int]  # group, number in it
    key: CollectiveClass
    nranks: int | None
    mismatched: bool
    parts: tuple[_Timed, ...]


def recorded_waits(groups: Sequence[RecordedGroup]) -> RecordedWaits | None:
    """Waits of all calls with GPU times, and of the ranks; None where no call has one."""
    several = _several_ranks(groups)
    stamped = all(
        part.call.kernel_end_ns is not None
        for group in groups
        for parts in group.parts
        for part in parts
        if part.call.kernel_ns
    )
    found = list(_stamped(groups, several) if stamped else _together(groups, several))
    if not found:
        return None
    gpus = sorted({part.gpu for call in found for part in call.parts}, key=str)
    world = _world_ranks(groups, gpus)
    number = {gpu: n for n, gpu in enumerate(gpus)}
    parts = sorted(
        (number[part.gpu], part.end_ns - part.lasted_ns, part.end_ns, k)
        for k, call in enumerate(found)
        for part in call.parts
    )
    rows = _rows([(gpu, start, end) for gpu, start, end, _ in parts], world)
    calls = _calls(found, np.array([k for *_, k in parts]), rows)
    clocks = estimate_clocks(rows, calls)
    if not stamped:
        # Ends that we assume to be equal show no scatter.
        clocks = replace(clocks, error=np.maximum(clocks.error, END_NOISE_NS))
    times = call_times(rows, calls, clocks)
    if not stamped:
        times = replace(times, end_skew=np.full_like(times.end_skew, -1))
    late = {one.rank: one for one in late_ranks(rows, calls, times, clocks)}
    return RecordedWaits(
        rows,
        calls,
        times,
        tuple(call.place for call in found),
        tuple(gpu.recording for gpu in gpus),
        tuple(
            (int(rows.bounds[n]), of, late[of.rank])
            for n, of in enumerate(rank_times(rows, calls, times))
            if world[n] is not None
        ),
    )


def _several_ranks(groups: Sequence[RecordedGroup]) -> set[int]:
    """Recordings of processes that are several ranks of a group."""
    found: set[int] = set()
    for group in groups:
        for parts in group.parts:
            numbers = [part.recording for part in parts]
            if len(set(numbers)) < len(numbers):
                found |= {number for number in numbers if numbers.count(number) > 1}
    return found


def _gpu(part: RecordedPart, group: int, several: set[int]) -> _Gpu:
    if part.recording not in several:
        return _Gpu(part.recording)
    return _Gpu(
        part.recording, (group, -1 if part.call.group_rank is None else part.call.group_rank)
    )


def _timed(
    groups: Sequence[RecordedGroup],
) -> Iterator[tuple[tuple[int, int], CollectiveClass, list[RecordedPart], bool]]:
    """Calls with a GPU time on any rank: place, class, the parts that have one, equal calls."""
    for g, group in enumerate(groups):
        for k, (key, parts) in enumerate(zip(group.group.classes, group.parts, strict=True)):
            own = [part for part in parts if part.call.kernel_ns]
            if own:
                equal = len({signature(part.call.collective) for part in parts}) == 1
                yield (g, k), key, own, equal


def _stamped(groups: Sequence[RecordedGroup], several: set[int]) -> Iterator[_Call]:
    """Calls with their ends on the GPUs' clocks."""
    for place, key, parts, equal in _timed(groups):
        own = tuple(
            _Timed(_gpu(p, place[0], several), p.call.kernel_end_ns or 0, p.call.kernel_ns or 0)
            for p in parts
        )
        yield _Call(place, key, groups[place[0]].group.size, not equal, own)


def _together(groups: Sequence[RecordedGroup], several: set[int]) -> Iterator[_Call]:
    """Synchronising calls, each behind the one before it, with one end for all its ranks."""
    end = 0
    for place, key, parts, equal in _timed(groups):
        if not key.op.synchronises:
            continue
        end += max(part.call.kernel_ns or 0 for part in parts)
        own = tuple(
            _Timed(_gpu(part, place[0], several), end, part.call.kernel_ns or 0) for part in parts
        )
        yield _Call(place, key, groups[place[0]].group.size, not equal, own)


def _world_ranks(groups: Sequence[RecordedGroup], gpus: Sequence[_Gpu]) -> list[int | None]:
    """World rank of each GPU; None for all where two would have the same, or one has none.

    Where no recording has them, ranks of the largest group are those of the job.
    """
    numbered = any(group.group.numbered for group in groups)
    largest = max(groups, key=lambda group: group.group.size or 0)
    rank_of: dict[int, int | None] = {}
    for group in (largest,) if numbered else groups:
        for part in chain.from_iterable(group.parts):
            rank_of.setdefault(part.recording, part.rank)
    found = [rank_of.get(gpu.recording) if gpu.of_group is None else None for gpu in gpus]
    return [None] * len(gpus) if None in found or len(set(found)) < len(found) else found


def _rows(parts: Sequence[tuple[int, int, int]], ranks: Sequence[int | None]) -> Rows:
    """Calls as rows of traces, one trace a GPU; what a recorder does not write is unknown.

    parts  GPU, start and end of each, sorted
    """
    n = len(parts)
    gpu, start, end = np.array(parts, dtype=np.int64).T
    base = int(start.min())
    nothing = np.full(n, -1, dtype=np.int64)
    return Rows(
        base_ns=base,
        trace=gpu.astype(np.int32),
        bounds=np.searchsorted(gpu, np.arange(len(ranks) + 1)),
        kind=np.full(n, Kind.KERNEL, dtype=np.int8),
        stream=gpu.astype(np.int32),
        start=start - base,
        end=end - base,
        launch=np.full(n, UNKNOWN_LAUNCH),
        entry=nothing.astype(np.int32),
        seq=nothing,
        name=nothing.astype(np.int32),
        entries=(),
        names=(),
        streams=tuple((t, "") for t in range(len(ranks))),
        ranks=tuple(-1 - t if rank is None else rank for t, rank in enumerate(ranks)),
        hosts=(None,) * len(ranks),
        steps=((),) * len(ranks),
    )


def _calls(found: Sequence[_Call], call_of_row: np.ndarray, rows: Rows) -> Calls:
    """The calls as those of traces; their order is that of `found`."""
    order = np.lexsort((rows.trace, call_of_row))
    number: dict[CollectiveClass, int] = {}
    class_ = [number.setdefault(call.key, len(number)) for call in found]
    nranks = np.array([call.nranks or -1 for call in found], dtype=np.int32)
    group = np.array([call.place[0] for call in found], dtype=np.int32)
    return Calls(
        groups=(),
        classes=tuple(number),
        group=group,
        seq=np.array([call.place[1] for call in found], dtype=np.int64),
        class_=np.array(class_, dtype=np.int32),
        expected=nranks,
        nranks=nranks,
        mismatched=np.array([call.mismatched for call in found]),
        p2p=np.zeros(len(found), dtype=bool),
        offsets=np.concatenate([[0], np.cumsum(np.bincount(call_of_row, minlength=len(found)))]),
        row=order,
        trace=rows.trace[order],
        realigned=(),
        unpaired=np.empty(0, dtype=np.int64),
    )
