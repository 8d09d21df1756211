"""Observations of one source as bytes, and back: the store's private `_segment` format.

Layout: msgpack header (version, array names, dtypes and lengths, signatures, settings) and the
arrays one after the other, each as its one value where all are equal (task and group mostly are),
else in the narrowest integers and compressed with zstd; line and opCount, which grow, as
differences. Handles are stored as rows of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import numpy as np
import zstandard

from collscope.errors import InputError
from collscope.match.observations import (
    COLUMNS,
    Ints,
    Observations,
    Signature,
    TuningSetting,
    constant,
)
from collscope.match.run_rows import LoadedRows
from collscope.model import Op
from collscope.model.comm_handle import CommHandle

_VERSION = 2
_GROWING = ("line", "op_count")
# Integers that a column may be stored as, with the least and the greatest.
_WIDTHS = tuple((f"<i{n}", -(1 << 8 * n - 1), (1 << 8 * n - 1) - 1) for n in (1, 2, 4))
_contexts = threading.local()  # of zstd: for a small log making one takes longer than using it


class _Header(msgspec.Struct):
    version: int
    arrays: list[tuple[str, str, str, int]]  # name, dtype, dtype stored, length
    signatures: list[tuple[str, str, int, int, int, int, int]]
    settings: list[tuple[str | None, str | None, int | None, str | None]]


def encode(observed: Observations) -> bytes:
    """Bytes of everything but the handles."""
    arrays = {**observed.columns, **{f"tuning.{n}": a for n, a in observed.tuning.items()}}
    packed = {name: _pack(a, growing=name in _GROWING) for name, a in arrays.items()}
    header = _Header(
        _VERSION,
        [(name, a.dtype.str, packed[name][0], len(a)) for name, a in arrays.items()],
        [
            (s.op.value, s.backend, s.count, s.datatype, s.redop, s.root, s.flags)
            for s in observed.signatures
        ],
        [(s.algorithm, s.protocol, s.channels, s.kernel) for s in observed.tuning_settings],
    )
    head = msgspec.msgpack.encode(header)
    parts = [len(head).to_bytes(8, "little"), head]
    for _, data in packed.values():
        parts += [len(data).to_bytes(8, "little"), data]
    return b"".join(parts)


def _pack(array: Ints, *, growing: bool) -> tuple[str, bytes]:
    """An array in the narrowest signed integers, a growing one's differences: dtype and bytes.

    The bytes are one value where all are equal, else compressed with zstd.
    """
    if not len(array):
        return _WIDTHS[0][0], _compress(array)
    if array.strides == (0,) and not growing:
        array = array[:1]
    elif growing:
        # Of unsigned values a step back wraps around to the negative difference.
        signed = array.view(np.dtype(f"i{array.itemsize}"))
        array = signed.copy()
        array[1:] -= signed[:-1]
    low, high = int(array.min()), int(array.max())
    narrow = next((d for d, least, most in _WIDTHS if least <= low and high <= most), None)
    array = (array[:1] if low == high else array).astype(narrow or array.dtype, copy=False)
    return array.dtype.str, array.tobytes() if low == high else _compress(array)


def _compress(array: Ints) -> bytes:
    if not hasattr(_contexts, "compressor"):
        _contexts.compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
    data: bytes = _contexts.compressor.compress(np.ascontiguousarray(array).data)
    return data


def _decompress(data: bytes) -> bytes:
    if not hasattr(_contexts, "decompressor"):
        _contexts.decompressor = zstandard.ZstdDecompressor()
    found: bytes = _contexts.decompressor.decompress(data)
    return found


def _widen(array: Ints, dtype: str, *, growing: bool) -> Ints:
    """The values that `_narrow` was given."""
    if len(array) and array.strides == (0,) and not (growing and array[0]):
        return constant(array[0].astype(dtype), len(array))
    return np.cumsum(array, dtype=dtype) if growing else array.astype(dtype, copy=False)


def _unpack(data: bytes, dtype: str, count: int) -> Ints:
    """The array that `_pack` was given."""
    if not count:
        return np.empty(0, dtype)
    # A zstd frame is longer than any single value: its magic alone takes 4 bytes, its header more.
    if len(data) == np.dtype(dtype).itemsize:
        return constant(np.frombuffer(data, dtype)[0], count)
    return np.frombuffer(_decompress(data), dtype=dtype, count=count)


def decode(data: bytes, handles: Sequence[CommHandle]) -> Observations:
    """Observations from their bytes and their handles.

    raises  InputError when the bytes are not of this version
    """
    header, _ = _header(data)
    rows = decode_rows(data, COLUMNS)
    return Observations(handles, _signatures(header), *rows, _settings(header))


def decode_rows(data: bytes, names: Collection[str]) -> LoadedRows:
    """Some columns of observations from their bytes, and the settings of the rows.

    raises  InputError when the bytes are not of this version
    """
    header, at = _header(data)
    try:
        arrays = _arrays(data, at, header, names)
    except (zstandard.ZstdError, ValueError, TypeError) as error:
        raise InputError(f"store: observations are damaged ({error}). Ingest again.") from error
    columns = {n: a for n, a in arrays.items() if not n.startswith("tuning.")}
    tuning = {n.removeprefix("tuning."): a for n, a in arrays.items() if n.startswith("tuning.")}
    return LoadedRows(_with_absent_columns(columns, names, _rows(header)), tuning)


def decode_head(data: bytes) -> tuple[list[Signature], list[TuningSetting], int]:
    """Signatures, tuning settings and rows of observations, from their bytes.

    raises  InputError when the bytes are not of this version
    """
    header, _ = _header(data)
    return _signatures(header), _settings(header), _rows(header)


def _signatures(header: _Header) -> list[Signature]:
    return [Signature(Op(s[0]), *s[1:]) for s in header.signatures]


def _settings(header: _Header) -> list[TuningSetting]:
    return [TuningSetting(*s) for s in header.settings]


def _header(data: bytes) -> tuple[_Header, int]:
    """The header, and where the columns begin."""
    try:
        length = int.from_bytes(data[:8], "little")
        header = msgspec.msgpack.decode(data[8 : 8 + length], type=_Header)
    except msgspec.MsgspecError as error:
        raise InputError(f"store: observations cannot be read ({error}). Ingest again.") from error
    if header.version != _VERSION:
        raise InputError(
            f"store: observations of another version ({header.version}). Ingest again."
        )
    return header, 8 + length


def _rows(header: _Header) -> int:
    # Stores of schema 8 and before called communicator handles streams.
    return next((n for name, _, _, n in header.arrays if name in ("handle", "stream")), 0)


def _with_absent_columns(
    columns: dict[str, Ints], names: Collection[str], rows: int
) -> dict[str, Ints]:
    """The columns, with those that older stores lack: -1 in each row."""
    later = {name: COLUMNS[name] for name in names if name not in columns}
    return columns | {n: constant(np.dtype(dtype).type(-1), rows) for n, dtype in later.items()}


def _arrays(
    data: bytes, at: int, header: _Header, names: Collection[str]
) -> dict[str, np.ndarray[Any, Any]]:
    """Columns that follow the header, by name; those of tuning always."""
    arrays = {}
    for name, dtype, stored, count in header.arrays:
        size = int.from_bytes(data[at : at + 8], "little")
        # Stores of schema 8 and before called communicator handles streams.
        column = "handle" if name == "stream" else name
        if column in names or column.startswith("tuning."):
            narrow = _unpack(data[at + 8 : at + 8 + size], stored, count)
            arrays[column] = _widen(narrow, dtype, growing=column in _GROWING)
        at += 8 + size
    return arrays
