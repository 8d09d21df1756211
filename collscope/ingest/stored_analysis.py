"""What the analysis of a run's traces found, as bytes in the store, and back.

A byte with the version, then one zstd frame of msgpack: the records of the analysis, with arrays as
the bytes of little-endian numbers of the narrowest width that holds them. What follows from the
rows of the traces is left out. What is read back is checked: a store may come from anywhere.
"""

from __future__ import annotations

import sqlite3
from typing import Any, get_args

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard
from msgspec.structs import replace

from collscope.errors import InputError
from collscope.match.groups import Group
from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import HostCalls, Ints
from collscope.timeline.analyse import Timeline
from collscope.timeline.clocks import Clocks
from collscope.timeline.steps import Steps
from collscope.timeline.waits import CallTimes

VERSION = 1
_WIDTHS = ("<i1", "<i2", "<i4", "<i8", "<f8")
_NONE: Ints = np.empty(0, dtype=np.int64)
_OF_CALLS = ("seq", "class_", "expected", "nranks", "mismatched", "p2p", "offsets")
_TIMES_OF_CALLS = (
    "known", "transfer", "shortest", "start_skew", "end_skew", "last", "lateness", "suspect",
    "impossible", "warm_up",
)  # fmt: skip


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    """An analysis without the columns that follow from others, and from the rows."""

    rows: tuple[int, ...]  # of each trace
    calls: Calls  # `row`: of each trace's parts, as differences
    clocks: Clocks
    times: CallTimes
    steps: Steps  # `rows` as differences
    exposed: Ints  # (rows of collectives,)
    group: Ints  # (rows of collectives,) into `calls.groups`; -1: none
    class_ids: Ints  # (calls,)


class StoredAnalysis(msgspec.Struct, frozen=True):
    """The analysis of a run's traces, and the classes that the store counts its calls in."""

    timeline: Timeline
    class_ids: Ints  # (calls,) keys of the run's classes; -1: left out


def store_analysis(connection: sqlite3.Connection, run: int, found: StoredAnalysis) -> None:
    """Keep the analysis of a run that has none."""
    connection.execute("INSERT INTO _analysis VALUES (?,?)", (run, encode_analysis(found)))


def load_analysis(
    connection: sqlite3.Connection, run: str, rows: Rows, host: tuple[HostCalls | None, ...]
) -> StoredAnalysis:
    """The analysis of a run, named by its label.

    rows, host  of its traces
    raises      InputError when there is none, or it is damaged or of other traces
    """
    query = "SELECT found FROM _analysis JOIN _run USING (run_id) WHERE label = ?"
    row = connection.execute(query, (run,)).fetchone()
    try:
        if row is None:
            raise InputError("there is none")
        return decode_analysis(row[0], rows, host)
    except InputError as error:
        raise InputError(
            f"store: the analysis of run '{run}' cannot be read ({error})."
            f" Run 'collscope runs rematch {run}'."
        ) from error


def encode_analysis(found: StoredAnalysis) -> bytes:
    """Bytes of an analysis."""
    timeline = found.timeline
    rows, calls, steps = timeline.rows, timeline.calls, timeline.steps
    group = np.full(len(rows), -1)
    for number, own in enumerate(calls.groups):
        for members_rows in own.rows:
            group[members_rows] = number
    collective = rows.entry >= 0
    stored = _Stored(
        tuple(np.diff(rows.bounds).tolist()),
        replace(
            calls,
            groups=tuple(replace(g, rows=()) for g in calls.groups),
            offsets=calls.seen,
            row=np.diff(calls.row[_by_trace(calls.trace)], prepend=0),
        ),
        timeline.clocks,
        replace(timeline.times, arrival=_NONE, start=_NONE, end=_NONE, part_transfer=_NONE),
        replace(steps, rows=np.diff(steps.rows, prepend=0), pauses=steps.pauses.ravel()),
        timeline.exposed[collective],
        group[collective],
        found.class_ids,
    )
    plain = msgspec.msgpack.encode(stored, enc_hook=_packed)
    compressed = zstandard.ZstdCompressor(level=1, write_checksum=True).compress(plain)
    return VERSION.to_bytes(1, "little") + compressed


def _by_trace(trace: npt.NDArray[np.int32]) -> Ints:
    """Order of parts in which the rows of each trace rise, but where calls of groups overlap."""
    return np.argsort(trace, kind="stable")


def _packed(value: object) -> tuple[int, bytes]:
    """A column as the index of its width and its bytes."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} in an analysis")
    width = "<f8"
    if value.dtype.kind != "f":
        low, high = int(value.min(initial=0)), int(value.max(initial=0))
        width = next(w for w in _WIDTHS if np.iinfo(w).min <= low and high <= np.iinfo(w).max)
    return _WIDTHS.index(width), value.astype(width).tobytes()


def _unpacked(kind: type, value: object) -> np.ndarray[Any, Any]:
    """A column of a record; `kind` is the annotation of its field."""
    width, data = msgspec.convert(value, tuple[int, bytes])
    (dtype,) = get_args(get_args(kind)[1])
    found = np.frombuffer(data, dtype=_WIDTHS[width])
    if (found.dtype.kind == "f") != issubclass(dtype, np.floating):
        raise ValueError("a column is of another type")
    return found.astype(dtype)


_DECODER = msgspec.msgpack.Decoder(_Stored, dec_hook=_unpacked)


def decode_analysis(data: bytes, rows: Rows, host: tuple[HostCalls | None, ...]) -> StoredAnalysis:
    """An analysis from its bytes.

    rows, host  of the traces it is of
    raises      InputError when the bytes are damaged, of another version or of other traces
    """
    try:
        if data[0] != VERSION:
            raise InputError(f"it has format version {data[0]}, this release reads {VERSION}")
        # Piece by piece: what damaged bytes announce may be any size.
        plain = zstandard.ZstdDecompressor().decompressobj().decompress(data[1:])
        stored = _DECODER.decode(plain)
        if stored.rows != tuple(np.diff(rows.bounds).tolist()):
            raise InputError("it belongs to other traces")
        calls = _calls(stored, rows)
        _check_clocks(stored.clocks, len(rows.ranks))
        timeline = Timeline(
            rows=rows,
            calls=calls,
            clocks=stored.clocks,
            times=_times(stored, rows, calls),
            steps=_steps(stored.steps, rows),
            exposed=_of_all_rows(stored.exposed, rows, 0),
            host=host,
        )
    except (msgspec.MsgspecError, zstandard.ZstdError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"damaged: {error}") from error
    return StoredAnalysis(timeline, stored.class_ids)


def _require(what: str, *conditions: bool | np.bool_) -> None:
    if not all(conditions):
        raise ValueError(f"{what} contradict each other")


def _within(values: np.ndarray[Any, Any], limit: int, least: int = 0) -> bool:
    return not len(values) or bool(least <= values.min() and values.max() < limit)


def _of_all_rows(values: Ints, rows: Rows, other: int) -> Ints:
    """A column of the rows of collectives as one of all rows, with `other` for the rest."""
    collective = rows.entry >= 0
    _require("columns of rows", len(values) == int(collective.sum()))
    found = np.full(len(rows), other)
    found[collective] = values
    return found


def _calls(stored: _Stored, rows: Rows) -> Calls:
    calls, traces, n = stored.calls, len(rows.ranks), len(stored.calls.group)
    seen, groups = calls.offsets, len(calls.groups)
    _require("lengths of calls", *(len(getattr(calls, name)) == n for name in _OF_CALLS))
    _require("lengths of calls", len(stored.class_ids) == n, len(calls.realigned) == groups)
    parts = len(calls.trace)
    _require("parts of calls", _within(seen, parts + 1, 1), int(seen.sum()) == parts)
    _require("parts of calls", len(calls.row) == parts, _within(calls.trace, traces))
    row = np.empty(parts, dtype=np.int64)
    row[_by_trace(calls.trace)] = np.cumsum(calls.row)
    _require("rows of calls", _within(row, len(rows)), _within(calls.unpaired, len(rows)))
    _require("rows of calls", np.array_equal(rows.trace[row], calls.trace))
    _require("groups of calls", _within(calls.group, groups))
    _require("groups of calls", *(0 <= t < traces for g in calls.groups for t in g.members))
    _require("classes of calls", np.array_equal(np.unique(calls.class_), range(len(calls.classes))))
    _require("calls beyond a trace", *(0 <= c < n and 0 <= t < traces for c, t in calls.outside))
    group = _of_all_rows(stored.group, rows, -1)
    _require("groups of rows", _within(group, groups, -1))
    return replace(
        calls,
        groups=tuple(
            _with_rows(g, np.flatnonzero(group == number), rows)
            for number, g in enumerate(calls.groups)
        ),
        offsets=np.concatenate([[0], np.cumsum(seen)]),
        row=row,
    )


def _with_rows(group: Group, own: Ints, rows: Rows) -> Group:
    """A group with its rows, by member."""
    of_trace = np.split(own, np.searchsorted(own, rows.bounds[1:-1]))
    return replace(group, rows=tuple(of_trace[t] for t in group.members))


def _check_clocks(clocks: Clocks, traces: int) -> None:
    columns = (clocks.offset, clocks.error, clocks.drift, clocks.component, clocks.used)
    _require("clocks", *(len(column) == traces for column in columns))


def _times(stored: _Stored, rows: Rows, calls: Calls) -> CallTimes:
    """Times with those that follow from the rows and clocks."""
    times, n = stored.times, len(calls)
    _require("times of calls", *(len(getattr(times, name)) == n for name in _TIMES_OF_CALLS))
    _require("times of calls", len(times.wait) == len(calls.row))
    _require("times of calls", _within(times.last, len(rows.ranks), -1))
    _require("calls of the warm-up", *(0 <= w.call < n for w in times.excluded))
    _require("calls of the warm-up", *(0 <= w.group < len(calls.groups) for w in times.excluded))
    start = stored.clocks.align(rows.start[calls.row], calls.trace)
    end = stored.clocks.align(rows.end[calls.row], calls.trace)
    return replace(
        times,
        arrival=np.maximum.reduceat(start, calls.offsets[:-1]) if n else _NONE,
        start=start,
        end=end,
        part_transfer=np.where(times.known[calls.call_of_part], end - start - times.wait, -1),
    )


def _steps(steps: Steps, rows: Rows) -> Steps:
    last, bounds, traces = np.cumsum(steps.rows), steps.bounds, len(steps.traces)
    _require("steps", _within(last, len(rows)), _within(steps.traces, len(rows.ranks)))
    _require("steps", len(steps.count) == traces, not len(steps.pauses) % 3)
    _require("steps", *(len(bounds) == (count + 1) * traces for count in steps.count.tolist()))
    _require("steps", len(bounds) == 0 or (traces > 0 and bounds[0] == 0))
    _require("steps", (np.diff(bounds) > 0).all(), _within(bounds, len(last)))
    pauses = steps.pauses.reshape(-1, 3)
    _require("pauses", _within(pauses[:, 0], len(rows.ranks)))
    return replace(steps, rows=last, pauses=pauses)
