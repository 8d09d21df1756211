"""Traces and recordings as bytes, and back: the store's private formats of `_trace`, `_recording`.

A trace is a msgpack header (tables, names and widths of the columns) and its columns, compressed
one by one with zstd: starts as differences, ends and launches relative to the start. A recording is
msgpack alone. What is read back is checked: a store may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import zstandard
from msgspec.structs import astuple, fields

from collscope.model.trace import (
    Call,
    GroupStatus,
    HostCalls,
    RecordedCall,
    RecordedCalls,
    TraceColumns,
    TraceFile,
)
from collscope.model.trace_collective import TraceCollective
from collscope.store.trace_header import (
    VERSION,
    TraceHeader,
    checked_bytes,
    header_of,
    same_version,
)

# Column, type in memory; stored as little-endian integers of the narrowest width that holds it.
_COLUMNS = {
    "kind": np.int8, "name": np.int32, "stream": np.int32, "start_ns": np.int64,
    "end_ns": np.int64, "launch_ns": np.int64, "collective": np.int32, "seq": np.int64,
}  # fmt: skip
_CALL_COLUMNS = {
    "kind": np.int8, "thread": np.int32, "start_ns": np.int64, "end_ns": np.int64,
    "stream": np.int32, "event": np.int32, "of_row": np.int32,
}  # fmt: skip
_WIDTHS = ("<i1", "<i2", "<i4", "<i8")
_NO_LAUNCH = np.int64(-1)
_T = TypeVar("_T")
# A call as the store writes it: the index of its collective in the table, and the other fields.
_Call = msgspec.defstruct(
    "_Call",
    [
        ("collective", int),
        *((f.name, f.type, msgspec.field(default=f.default)) for f in fields(RecordedCall)[1:]),
    ],
    array_like=True,
)


class _Recording(msgspec.Struct, array_like=True):
    """`RecordedCalls` with plain values."""

    version: int
    dialect: str
    collectives: tuple[TraceCollective, ...]
    calls: list[_Call]  # type: ignore[valid-type]
    rank: int | None
    world_size: int | None
    host: str | None
    pid: int | None
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    status: tuple[GroupStatus, ...]
    seq_per_op: bool
    coverage: str
    process: str | None = None
    part: int = 0


def encode_trace(trace: TraceFile) -> bytes:
    """Bytes of a trace, without its diagnostics."""
    c = trace.columns
    launched = c.launch_ns != _NO_LAUNCH
    launch = c.launch_ns - c.start_ns
    no_launch = int(launch[launched].max(initial=0)) + 1
    relative = {
        "start_ns": np.diff(c.start_ns, prepend=0),
        "end_ns": c.end_ns - c.start_ns,
        "launch_ns": np.where(launched, launch, no_launch),
    }
    columns = {name: relative.get(name, getattr(c, name)) for name in _COLUMNS}
    widths, parts = _packed(columns)
    call_widths, call_parts = ([], []) if trace.calls is None else _packed(_relative(trace.calls))
    header = TraceHeader(
        VERSION, trace.dialect, trace.names, trace.streams,
        trace.collectives, trace.rank, trace.world_size,
        trace.host, trace.device, trace.steps, len(c), no_launch, widths,
        0 if trace.calls is None else len(trace.calls), call_widths, trace.gpu,
        trace.groups, trace.named_rank, trace.operators, trace.steps_before,
    )  # fmt: skip
    head = msgspec.msgpack.encode(header)
    return b"".join([len(head).to_bytes(8, "little"), head, *parts, *call_parts])


def _relative(calls: HostCalls) -> dict[str, np.ndarray[Any, Any]]:
    """Columns of calls in small numbers: launches come in an order near that of the rows."""
    small = {
        "start_ns": np.diff(calls.start_ns, prepend=0),
        "end_ns": calls.end_ns - calls.start_ns,
        "of_row": np.diff(calls.of_row, prepend=0),
    }
    return {name: small.get(name, getattr(calls, name)) for name in _CALL_COLUMNS}


def _packed(
    columns: dict[str, np.ndarray[Any, Any]],
) -> tuple[list[tuple[str, int]], list[bytes]]:
    """Width and bytes of each column, and the bytes."""
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
    widths, parts = [], []
    for values in columns.values():
        width = _narrowest(values)
        parts.append(compressor.compress(np.ascontiguousarray(values.astype(width)).data))
        widths.append((width, len(parts[-1])))
    return widths, parts


def decode_trace(data: bytes, *, host: bool = True) -> TraceFile:
    """A trace from its bytes.

    host    with the calls of its host, where they are known
    raises  InputError when the bytes are damaged or not of this version
    """
    head, begin = header_of(data)
    columns = _checked(lambda: _columns(data, begin, head))
    return TraceFile(
        dialect=head.dialect,
        names=head.names,
        streams=head.streams,
        collectives=head.collectives,
        columns=columns,
        rank=head.rank,
        world_size=head.world_size,
        host=head.host,
        device=head.device,
        steps=head.steps,
        calls=_checked(lambda: _host_calls(data, begin, head)) if host else None,
        gpu=head.gpu,
        groups=head.groups,
        named_rank=head.named_rank,
        operators=head.operators,
        steps_before=head.steps_before,
    )


def _columns(data: bytes, at: int, head: TraceHeader) -> TraceColumns:
    found = _unpacked(data, at, zip(_COLUMNS.items(), head.columns, strict=True), head.rows)
    found["start_ns"] = start = np.cumsum(found["start_ns"])
    found["end_ns"] = start + found["end_ns"]
    launch = found["launch_ns"]
    found["launch_ns"] = np.where(launch == head.no_launch, _NO_LAUNCH, start + launch)
    tables = {"name": head.names, "stream": head.streams, "collective": head.collectives}
    for name, table in tables.items():
        if head.rows and not -1 <= found[name].min() <= found[name].max() < len(table):
            raise ValueError(f"column {name} points outside its table")
    return TraceColumns(**found)


def _host_calls(data: bytes, at: int, head: TraceHeader) -> HostCalls | None:
    if not head.call_columns:
        return None
    at += sum(size for _, size in head.columns)
    *own, last = zip(_CALL_COLUMNS.items(), head.call_columns, strict=True)
    found = _unpacked(data, at, own, head.calls)
    at += sum(size for _, size in head.call_columns[:-1])
    found |= _unpacked(data, at, [last], head.rows)
    found["start_ns"] = np.cumsum(found["start_ns"])
    found["end_ns"] += found["start_ns"]
    found["of_row"] = np.cumsum(found["of_row"], dtype=np.int32)
    limits = {"stream": len(head.streams), "of_row": head.calls, "kind": len(Call)}
    for name, limit in limits.items():
        if len(found[name]) and not -1 <= found[name].min() <= found[name].max() < limit:
            raise ValueError(f"column {name} of calls points outside its table")
    return HostCalls(**found)


def _unpacked(
    data: bytes,
    at: int,
    columns: Iterable[tuple[tuple[str, type[Any]], tuple[str, int]]],
    count: int,
) -> dict[str, Any]:
    """Columns of `count` values each that begin at a place of the bytes."""
    decompressor = zstandard.ZstdDecompressor()
    found: dict[str, Any] = {}
    for (name, dtype), (width, size) in columns:
        part = data[at : at + size]
        # What damaged bytes announce may be any size: nothing is allocated for it.
        if width not in _WIDTHS:
            raise ValueError(f"column {name} is of no integer type")
        if zstandard.frame_content_size(part) != count * np.dtype(width).itemsize:
            raise ValueError(f"column {name} has another length")
        raw = decompressor.decompress(part) if count else b""
        found[name] = np.frombuffer(raw, dtype=width, count=count).astype(dtype)
        at += size
    return found


def _narrowest(values: np.ndarray[Any, Any]) -> str:
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    return next(w for w in _WIDTHS if np.iinfo(w).min <= low and high <= np.iinfo(w).max)


def encode_recording(recorded: RecordedCalls) -> bytes:
    """Bytes of a recording, without its diagnostics."""
    table: dict[TraceCollective, int] = {}
    calls = []
    for call in recorded.calls:
        index = table.setdefault(call.collective, len(table))
        calls.append(_Call(index, *astuple(call)[1:]))
    plain = _Recording(
        VERSION, recorded.dialect, tuple(table), calls, recorded.rank,
        recorded.world_size, recorded.host, recorded.pid, recorded.groups, recorded.status,
        recorded.seq_per_op, recorded.coverage, recorded.process, recorded.part,
    )  # fmt: skip
    return zstandard.ZstdCompressor(level=1, write_checksum=True).compress(
        msgspec.msgpack.encode(plain)
    )


def decode_recording(data: bytes) -> RecordedCalls:
    """A recording from its bytes.

    raises  InputError when the bytes are damaged or not of this version
    """
    # Piece by piece: what damaged bytes announce may be any size.
    raw = _checked(lambda: zstandard.ZstdDecompressor().decompressobj().decompress(data))
    plain = _checked(lambda: msgspec.msgpack.decode(raw, type=_Recording))
    same_version(plain.version)
    return RecordedCalls(
        dialect=plain.dialect,
        calls=_checked(lambda: _calls(plain.calls, plain.collectives)),
        rank=plain.rank,
        world_size=plain.world_size,
        host=plain.host,
        pid=plain.pid,
        groups=plain.groups,
        status=plain.status,
        seq_per_op=plain.seq_per_op,
        coverage=plain.coverage,
        process=plain.process,
        part=plain.part,
    )


def _calls(calls: Sequence[Any], table: Sequence[TraceCollective]) -> tuple[RecordedCall, ...]:
    return tuple(RecordedCall(table[index], *values) for index, *values in map(astuple, calls))


def _checked(read: Callable[[], _T]) -> _T:
    """What `read` gives; anything that damaged bytes make it raise as one line."""
    return checked_bytes(read, zstandard.ZstdError)
