"""Traces and recordings of a run in the store, and what the analysis of them found."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import astuple

from collscope import stamps
from collscope.ingest.lateness import lateness
from collscope.match.consistency import CallFinding, Consistency
from collscope.model.diagnostic import TIMES_UNKNOWN
from collscope.model.trace import Ints, Kind, RecordedCalls, TraceFile
from collscope.store.sources import name_ids, next_id
from collscope.store.trace_columns import (
    decode_recording,
    decode_trace,
    encode_recording,
    encode_trace,
)
from collscope.timeline.analyse import RankedTimeline, Timeline
from collscope.timeline.recorded_waits import RecordedWaits
from collscope.timeline.records import LateRank, RankOverlap, RankTimes
from collscope.timeline.steps import Steps

_ROWS_PER_INSERT = 1 << 14  # as Python's objects, which take five times the columns' memory
_KINDS = {Kind.KERNEL: "kernel", Kind.COPY: "copy", Kind.MEMSET: "copy"}


class StoredTraces(msgspec.Struct, frozen=True):
    """The traces and recordings of a run, with the keys of their rows.

    Rows whose times cannot be true are left out: stores of before may hold such.
    """

    traces: list[TraceFile]
    trace_ids: list[int]
    kernel_ids: list[Ints]  # per trace, of its rows
    recordings: list[RecordedCalls]
    recording_sources: list[int]  # per recording the key of its source

    def __bool__(self) -> bool:
        """True when the run has any."""
        return bool(self.traces or self.recordings)


def load_traces(connection: sqlite3.Connection, run: int, *, host: bool) -> StoredTraces:
    """Traces and recordings of a run, in the order in which they were read.

    host  with the calls of the traces' hosts, which take as much memory as the rows
    """
    rows = connection.execute(
        "SELECT trace_id, first_kernel, columns FROM _trace JOIN _source USING (source_id)"
        " WHERE run_id = ? ORDER BY trace_id",
        (run,),
    )
    recordings = connection.execute(
        "SELECT source_id, calls FROM _recording JOIN _source USING (source_id)"
        " WHERE run_id = ? ORDER BY recording_id",
        (run,),
    ).fetchall()
    traces: list[TraceFile] = []
    trace_ids: list[int] = []
    kernel_ids: list[Ints] = []
    for trace_id, first_kernel, columns in rows:
        trace, kept = stamps.believed_trace(decode_trace(columns, host=host))
        traces.append(trace)
        trace_ids.append(trace_id)
        kernel_ids.append(first_kernel + kept)
    believed = [stamps.believed_recording(decode_recording(calls)) for _, calls in recordings]
    sources = [source for source, _ in recordings]
    return StoredTraces(traces, trace_ids, kernel_ids, believed, sources)


def load_traced_run(connection: sqlite3.Connection, run: str) -> tuple[StoredTraces, int | None]:
    """Traces of a run with the calls of their hosts; steps in each, where given at ingest."""
    query = "SELECT run_id, steps FROM _run WHERE label = ?"
    run_id, steps = connection.execute(query, (run,)).fetchone()
    return load_traces(connection, run_id, host=True), steps


def insert_trace(connection: sqlite3.Connection, source: int, trace: TraceFile) -> None:
    """One rank's trace: its kernels, and the columns for the matching, which stores totals."""
    first = next_id(connection, "_kernel", "kernel_id")
    own = np.unique(trace.columns.name[trace.columns.collective >= 0]).tolist()
    known = name_ids(connection, trace.names, [trace.names[k] for k in own])
    ids = np.array([known[name] for name in trace.names] or [0])
    connection.execute(
        "INSERT INTO _trace (source_id, rank, world_size, host, device, first_kernel, kernels,"
        " columns, gpu) VALUES (?,?,?,?,?,?,?,?,?)",
        (
            source, trace.rank, trace.world_size, trace.host, trace.device, first,
            len(trace.columns), encode_trace(trace), trace.gpu,
        ),
    )  # fmt: skip
    for begin in range(0, len(trace.columns), _ROWS_PER_INSERT):
        _insert_kernels(connection, source, trace, ids, (first, begin))


def _insert_kernels(
    connection: sqlite3.Connection,
    source: int,
    trace: TraceFile,
    ids: Ints,
    at: tuple[int, int],
) -> None:
    """Rows of `_kernel` for a part of a trace; `at` is the trace's first key and the part's."""
    first, begin = at
    part = slice(begin, begin + _ROWS_PER_INSERT)
    c = trace.columns
    streams = [*trace.streams, None]
    blocks = [*(collective.blocks for collective in trace.collectives), None]
    connection.executemany(
        "INSERT INTO _kernel (kernel_id, source_id, name_id, kind, device, stream, rank, start_ns,"
        f" end_ns, launch_ns, blocks) VALUES (?,{source},?,?,?,?,?,?,?,NULLIF(?, -1),?)",
        zip(
            range(first + begin, first + len(c)),
            ids[c.name[part]].tolist(),
            [_KINDS[kind] for kind in c.kind[part].tolist()],
            [trace.device] * len(c.kind[part]),
            [streams[k] for k in c.stream[part].tolist()],
            [trace.rank] * len(c.kind[part]),
            c.start_ns[part].tolist(),
            c.end_ns[part].tolist(),
            c.launch_ns[part].tolist(),
            [blocks[k] for k in c.collective[part].tolist()],
            strict=False,
        ),
    )


def store_totals(
    connection: sqlite3.Connection,
    traces: Sequence[TraceFile],
    first_rows: Sequence[int],
    trace_ids: Sequence[int],
) -> None:
    """Replace the calls and time per kernel name and kind of traces by those after the warm-up.

    first_rows  per trace its first row after the warm-up
    """
    keys = [
        connection.execute(
            "SELECT source_id FROM _trace WHERE trace_id = ?", (trace_id,)
        ).fetchone()[0]
        for trace_id in trace_ids
    ]
    connection.executemany(
        "DELETE FROM _kernel_total WHERE source_id = ?", [(source,) for source in set(keys)]
    )
    ids = name_ids(connection, {name for trace in traces for name in trace.names})
    for source, trace, first in zip(keys, traces, first_rows, strict=True):
        _insert_totals(connection, source, trace, ids, first)


def _insert_totals(
    connection: sqlite3.Connection, source: int, trace: TraceFile, ids: dict[str, int], first: int
) -> None:
    c = trace.columns
    is_copy = c.kind[first:] != Kind.KERNEL
    keys, group = np.unique(c.name[first:] * 2 + is_copy, return_inverse=True)
    if not len(keys):
        return
    duration = c.end_ns[first:] - c.start_ns[first:]
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(keys)))
    columns = zip(
        keys.tolist(),
        np.bincount(group).tolist(),
        *(f.reduceat(duration[order], starts).tolist() for f in (np.add, np.minimum, np.maximum)),
        strict=True,
    )
    connection.executemany(
        "INSERT INTO _kernel_total VALUES (?,?,?,?,?,?,?,?,NULL)",
        [
            (
                source, ids[trace.names[key // 2]], "copy" if key % 2 else "kernel", trace.device,
                *values,
            )
            for key, *values in columns
        ],
    )  # fmt: skip


def insert_recording(connection: sqlite3.Connection, source: int, recorded: RecordedCalls) -> None:
    """One rank's recording of calls."""
    made = [call.start_ns for call in recorded.calls if call.start_ns is not None]
    connection.execute(
        "INSERT INTO _recording (source_id, rank, calls, host, begin_ns, end_ns, callback_ns,"
        " process, part) VALUES (?,?,?,?,?,?,?,?,?)",
        (
            source, recorded.rank, encode_recording(recorded), recorded.host,
            min(made, default=None), max(made, default=None), recorded.callback_ns,
            recorded.process, recorded.part,
        ),
    )  # fmt: skip


def has_doubtful_trace(connection: sqlite3.Connection, run: int) -> bool:
    """Whether something was found in a trace of a run that makes all times of it unknown."""
    codes = ",".join("?" * len(TIMES_UNKNOWN))
    query = (
        "SELECT EXISTS (SELECT 1 FROM _diagnostic d JOIN _source s USING (source_id)"
        f" WHERE d.run_id = ? AND s.kind = 'trace' AND d.code IN ({codes}))"
    )
    return bool(connection.execute(query, (run, *TIMES_UNKNOWN)).fetchone()[0])


def clear_totals(connection: sqlite3.Connection, trace_ids: Sequence[int]) -> None:
    """Forget the calls and time per kernel name of traces, as their times are not known."""
    connection.executemany(
        "DELETE FROM _kernel_total WHERE source_id ="
        " (SELECT source_id FROM _trace WHERE trace_id = ?)",
        [(trace_id,) for trace_id in trace_ids],
    )


def store_ranks(
    connection: sqlite3.Connection,
    timeline: RankedTimeline,
    trace_of_rank: Sequence[int],
    *,
    known: bool,
) -> None:
    """Clock, overlap, waiting and lateness of each rank.

    trace_of_rank  key in `_trace` of each of the timeline's ranks
    known          times are; else there are clocks only
    """
    clocks = timeline.clocks
    late = {late.rank: late for late in timeline.late}
    rows = []
    for t, (key, times, overlap) in enumerate(
        zip(trace_of_rank, timeline.ranks, timeline.overlaps, strict=True)
    ):
        clock = (
            int(clocks.offset[t]), float(clocks.error[t]), float(clocks.drift[t]),
            int(clocks.component[t]), int(clocks.used[t]),
        )  # fmt: skip
        figures = _figures(overlap, times, late[times.rank])
        rows.append((key, times.rank, *clock, *(figures if known else [None] * len(figures))))
        if not known:
            continue
        connection.executemany(
            "INSERT INTO _trace_stream VALUES (?,?,?,?,?)",
            [(key, *astuple(stream)) for stream in overlap.streams],
        )
    # Kernels of a trace without a rank belong to the rank that it was assigned.
    connection.executemany(
        "UPDATE _kernel SET rank = ?1 FROM _trace t WHERE t.trace_id = ?2 AND t.rank IS NULL"
        " AND kernel_id >= t.first_kernel AND kernel_id < t.first_kernel + t.kernels",
        [(row[1], row[0]) for row in rows],
    )
    connection.executemany(f"INSERT INTO _trace_rank VALUES ({','.join('?' * 31)})", rows)


def store_steps(
    connection: sqlite3.Connection, timeline: Timeline, steps: Steps, trace_of_rank: Sequence[int]
) -> None:
    """Steps of each rank; none where none recur.

    trace_of_rank  key in `_trace` of each of the timeline's ranks
    """
    if steps.source == "window" or not len(steps.traces):
        return
    ends = steps.ends(timeline.rows.end).astype(np.int64) + timeline.rows.base_ns
    connection.executemany(
        "INSERT INTO _trace_step VALUES (?,?,?,?,?)",
        (
            (trace_of_rank[trace], ordinal, int(begin), int(end), steps.source)
            for column, trace in enumerate(steps.traces.tolist())
            for ordinal, (begin, end) in enumerate(pairwise(ends[:, column]))
        ),
    )


def _figures(overlap: RankOverlap, times: RankTimes, late: LateRank) -> tuple[float | None, ...]:
    """Columns of `_trace_rank` behind those of the clock."""
    return (
        overlap.span_ns, overlap.compute_ns, overlap.copy_ns, overlap.collective_ns,
        overlap.exposed_ns, overlap.hidden_ns, overlap.copy_only_ns, overlap.idle_ns,
        times.calls, times.duration_ns, times.transfer_ns, times.wait_ns, times.unknown_ns,
        *lateness(late), late.inherited_ns, late.first_rank,
    )  # fmt: skip


def store_call_times(
    connection: sqlite3.Connection, timeline: Timeline | RecordedWaits, call_ids: Ints
) -> None:
    """Times of the timeline's calls; `call_ids` are their keys, -1 for those left out."""
    calls, times = timeline.calls, timeline.times
    ranks = np.array([*timeline.rows.ranks, -1])
    columns = (
        call_ids, calls.seen, calls.nranks, times.transfer, times.start_skew, times.end_skew,
        ranks[times.last], times.lateness, times.warm_up, times.suspect, calls.mismatched,
    )  # fmt: skip
    _insert_chosen(
        connection,
        "INSERT INTO _call_time VALUES (?,?,NULLIF(?, -1),NULLIF(?, -1),NULLIF(?, -1),"
        "NULLIF(?, -1),NULLIF(?, -1),NULLIF(?, -1),?,?,?)",
        columns,
        call_ids >= 0,
    )


def store_kernel_calls(
    connection: sqlite3.Connection,
    timeline: Timeline,
    call_ids: Ints,
    kernel_ids: Sequence[Ints],
) -> None:
    """Which call each collective kernel executed, and its part of the waiting.

    call_ids    key of each of the timeline's calls, -1 for those left out
    kernel_ids  keys of the rows of each of the timeline's traces
    """
    calls, times = timeline.calls, timeline.times
    call = calls.call_of_part
    kernel = np.concatenate([*kernel_ids, np.empty(0, dtype=np.int64)])[calls.row]
    split = (times.wait >= 0) & ~times.warm_up[call]
    columns = (
        kernel,
        call_ids[call],
        np.where(split, times.part_transfer, -1),
        np.where(split, times.wait, -1),
        timeline.exposed[calls.row],
    )
    _insert_chosen(
        connection,
        "INSERT INTO _kernel_call VALUES (?,?,NULLIF(?, -1),NULLIF(?, -1),?)",
        columns,
        columns[1] >= 0,
    )


def store_recorded_times(
    connection: sqlite3.Connection,
    waits: RecordedWaits,
    call_ids: Ints,
    sources: Sequence[int],
) -> None:
    """GPU times of recorded calls as kernels, their transfer and waiting, and each rank's.

    call_ids  key of each of the calls, -1 for those left out
    sources   key of the source of each GPU
    """
    rows, calls, times = waits.rows, waits.calls, waits.times
    store_call_times(connection, waits, call_ids)
    first = next_id(connection, "_kernel", "kernel_id")
    ranks = [rank if rank >= 0 else None for rank in rows.ranks]
    connection.executemany(
        "INSERT INTO _kernel (kernel_id, source_id, kind, rank, start_ns, end_ns)"
        " VALUES (?,?,'kernel',?,?,?)",
        (
            (first + k, sources[gpu], ranks[gpu], start, end)
            for k, (gpu, start, end) in enumerate(
                zip(
                    rows.trace.tolist(),
                    (rows.start + rows.base_ns).tolist(),
                    (rows.end + rows.base_ns).tolist(),
                    strict=True,
                )
            )
        ),
    )
    call = calls.call_of_part
    split = (times.wait >= 0) & ~times.warm_up[call]
    columns = (
        first + calls.row,
        call_ids[call],
        np.where(split, times.part_transfer, -1),
        np.where(split, times.wait, -1),
    )
    _insert_chosen(
        connection,
        "INSERT INTO _kernel_call VALUES (?,?,NULLIF(?, -1),NULLIF(?, -1),NULL)",
        columns,
        columns[1] >= 0,
    )
    connection.executemany(
        f"INSERT INTO _rank_wait VALUES ({','.join('?' * 16)})",
        [(first + row, *astuple(found), *lateness(late)) for row, found, late in waits.ranks],
    )


def _insert_chosen(
    connection: sqlite3.Connection,
    statement: str,
    columns: Sequence[np.ndarray],
    chosen: npt.NDArray[np.bool_],
) -> None:
    """Insert the chosen rows of columns of equal length."""
    places = np.flatnonzero(chosen)
    for begin in range(0, len(places), _ROWS_PER_INSERT):
        part = places[begin : begin + _ROWS_PER_INSERT]
        connection.executemany(
            statement, zip(*(column[part].tolist() for column in columns), strict=True)
        )


def store_consistency(connection: sqlite3.Connection, run: int, found: Consistency) -> None:
    """How far each recorded rank got, and what the recordings disagree on."""
    connection.executemany(
        "INSERT INTO _progress VALUES (?,?,?,?,?,?,?)",
        [(run, *astuple(progress)) for progress in found.progress],
    )
    store_disagreements(connection, run, "recording", found.findings)


def store_disagreements(
    connection: sqlite3.Connection, run: int, origin: str, findings: Iterable[CallFinding]
) -> None:
    """What ranks disagree on, by recordings or traces."""
    connection.executemany(
        "INSERT INTO _disagreement VALUES (?,?,?,?,?,?,?,?,?)",
        [
            (
                run, origin, f.kind, f.group, msgspec.json.encode(f.ranks).decode(), f.world_ranks,
                f.seq, f.message, f.count,
            )
            for f in findings
        ],
    )  # fmt: skip
