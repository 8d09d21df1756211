"""Recorded calls for Perfetto and chrome://tracing: a process of the viewer for each rank, a track
for each communicator.

A call with a GPU time is a slice, on the GPU's clock, shifted so that no slice of the process
begins before the host's call, and one of them with it. A call without a GPU time is an instant, at
the host's call.
source  Trace Event Format (Google): phases M, X and i; times in µs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collscope.reports.rendering.trace_file import Event, write_trace
from collscope.units import count, format_size

if TYPE_CHECKING:
    from collscope.model.trace import RecordedCall
    from collscope.reports.recorded.answer import RecordedProcess

_MOST = 200_000  # calls that viewers open well


def export_recorded(
    processes: Sequence[RecordedProcess], output: Path, most: int | None = None
) -> str:
    """Write the file, compressed where its name ends in .gz; returns what it holds in words.

    most    calls at most, the longest; None: as many as viewers open well
    raises  InputError for a file that cannot be written
    """
    timed = [c for process in processes for c in process.calls if _is_slice(c)]
    placed = sum(c.start_ns is not None for process in processes for c in process.calls)
    limit = _MOST if most is None else most
    least = 0
    if placed > limit:
        lengths = sorted((c.duration_ns or 0 for c in timed), reverse=True)
        least = lengths[limit - 1] if limit <= len(lengths) else 1
    written = write_trace(recorded_events(processes, least), output)
    if not written:
        return ""
    slices = sum((c.duration_ns or 0) >= least for c in timed)
    instants = 0 if least else placed - len(timed)
    left = placed - slices - instants
    rest = (
        f" {count(left, 'call')} left out: the shortest, and those without a GPU time (--limit)."
        * (left > 0)
    )
    return (
        f"{output}: {count(slices, 'call')} with a GPU time as slices, {instants:,} without "
        f"as instants, {written}. Slices use the GPU's clock, shifted so that none begins "
        f"before the host's call.{rest}"
    )


def recorded_events(processes: Sequence[RecordedProcess], least_ns: int = 0) -> Iterator[Event]:
    """Events of all processes on the clocks of their hosts, metadata first.

    least_ns  shorter slices are left out, and with any above 0 the instants
    """
    first = min(
        (c.start_ns for process in processes for c in process.calls if c.start_ns), default=0
    )
    above = max((process.rank or 0 for process in processes), default=0) + 1
    for number, process in enumerate(processes):
        pid = above + number if process.rank is None else process.rank
        tracks: dict[tuple[str | None, int | None], int] = {}
        for call in process.calls:
            tracks.setdefault((call.collective.group, call.group_rank), len(tracks))
        yield _meta("process_name", pid, 0, {"name": _title(process)})
        yield _meta("process_sort_index", pid, 0, {"sort_index": pid})
        for (group, rank), tid in tracks.items():
            yield _meta("thread_name", pid, tid, {"name": f"{group}, rank {rank}"})
        shift = min(
            (_begin(c) - (c.start_ns or 0) for c in process.calls if _is_slice(c)), default=0
        )
        for call in process.calls:
            if call.start_ns is None:
                continue
            tid = tracks[call.collective.group, call.group_rank]
            if not _is_slice(call):
                if not least_ns:
                    yield {"ph": "i", "s": "t", **_of(call, pid, tid, call.start_ns - first)}
            elif (took := call.kernel_ns or 0) >= least_ns:
                begin = _begin(call) - shift - first
                yield {"ph": "X", "dur": took / 1000, **_of(call, pid, tid, begin)}


def _is_slice(call: RecordedCall) -> bool:
    return bool(call.start_ns and call.kernel_ns and call.kernel_end_ns is not None)


def _begin(call: RecordedCall) -> int:
    """On the GPU's clock."""
    return (call.kernel_end_ns or 0) - (call.kernel_ns or 0)


def _title(process: RecordedProcess) -> str:
    where = ", ".join(str(part) for part in (process.host, process.pid) if part is not None)
    return f"process ({where})" if process.rank is None else f"rank {process.rank} ({where})"


def _meta(name: str, pid: int, tid: int, arguments: Event) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": arguments}


def _of(call: RecordedCall, pid: int, tid: int, at_ns: int) -> Event:
    what = call.collective
    counted = what.in_count if what.in_count is not None else what.out_count
    itemsize = None if what.datatype is None else what.datatype.itemsize
    size = None if counted is None or itemsize is None else counted * itemsize
    arguments = {
        "group": what.group, "seq": call.seq, "nranks": what.group_size, "count": counted,
        "root": what.root, "peer": what.peer, "algorithm": what.algorithm,
        "protocol": what.protocol,
    }  # fmt: skip
    return {
        "name": what.op.value if size is None else f"{what.op.value} {format_size(size)}",
        "cat": "recorded",
        "ts": at_ns / 1000,
        "pid": pid,
        "tid": tid,
        "args": {name: value for name, value in arguments.items() if value is not None},
    }
