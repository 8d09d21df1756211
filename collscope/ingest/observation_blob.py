"""Observations of one source as bytes, and back: the store's private `_segment` format.

Layout: msgpack header (version, array names, dtypes and lengths, signatures, settings) and the
arrays one after the other, each as its one value where all are equal (task and group mostly are),
else in the narrowest integers and compressed with zstd; line and opCount, which grow, as
differences. Handles are stored as rows of their own.
"""

from __future__ import annotations

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
from collscope.model import Op
from collscope.model.comm_handle import CommHandle

_VERSION = 2
_GROWING = ("line", "op_count")
_WIDTHS = ("<i1", "<i2", "<i4")


class _Header(msgspec.Struct):
    version: int
    arrays: list[tuple[str, str, str, int]]  # name, dtype, dtype stored, length
    signatures: list[tuple[str, str, int, int, int, int, int]]
    settings: list[tuple[str | None, str | None, int | None, str | None]]


def encode(observed: Observations) -> bytes:
    """Bytes of everything but the handles."""
    arrays = {**observed.columns, **{f"tuning.{n}": a for n, a in observed.tuning.items()}}
    packed = {name: _narrow(a, growing=name in _GROWING) for name, a in arrays.items()}
    header = _Header(
        _VERSION,
        [(name, a.dtype.str, packed[name].dtype.str, len(a)) for name, a in arrays.items()],
        [
            (s.op.value, s.backend, s.count, s.datatype, s.redop, s.root, s.flags)
            for s in observed.signatures
        ],
        [(s.algorithm, s.protocol, s.channels, s.kernel) for s in observed.tuning_settings],
    )
    head = msgspec.msgpack.encode(header)
    compressor = zstandard.ZstdCompressor(level=1, threads=-1, write_checksum=True)
    parts = [len(head).to_bytes(8, "little"), head]
    parts += [_pack(a, compressor) for a in packed.values()]
    sizes = [len(p).to_bytes(8, "little") for p in parts[2:]]
    return b"".join([*parts[:2], *(x for pair in zip(sizes, parts[2:], strict=True) for x in pair)])


def _narrow(array: Ints, *, growing: bool) -> Ints:
    """The same values in the narrowest signed integers, a growing array's as differences."""
    if growing and len(array):
        # Of unsigned values a step back wraps around to the negative difference.
        signed = array.view(np.dtype(f"i{array.itemsize}"))
        array = np.concatenate([signed[:1], np.diff(signed)])
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    narrow = next((d for d in _WIDTHS if np.iinfo(d).min <= low and high <= np.iinfo(d).max), None)
    return array if narrow is None else array.astype(narrow, copy=False)


def _widen(array: Ints, dtype: str, *, growing: bool) -> Ints:
    """The values that `_narrow` was given."""
    if len(array) and array.strides == (0,) and not (growing and array[0]):
        return constant(array[0].astype(dtype), len(array))
    return np.cumsum(array, dtype=dtype) if growing else array.astype(dtype, copy=False)


def _pack(array: Ints, compressor: zstandard.ZstdCompressor) -> bytes:
    """Bytes of an array: one value where all are equal, else zstd."""
    if len(array) and (array == array[0]).all():
        return array[:1].tobytes()
    return compressor.compress(np.ascontiguousarray(array).data)


def _unpack(data: bytes, dtype: str, count: int, decompressor: zstandard.ZstdDecompressor) -> Ints:
    """The array that `_pack` was given."""
    if not count:
        return np.empty(0, dtype)
    # A zstd frame is longer than any single value: its magic alone takes 4 bytes, its header more.
    if len(data) == np.dtype(dtype).itemsize:
        return constant(np.frombuffer(data, dtype)[0], count)
    return np.frombuffer(decompressor.decompress(data), dtype=dtype, count=count)


def decode(
    data: bytes, handles: Sequence[CommHandle], names: Collection[str] = COLUMNS
) -> Observations:
    """Observations from their bytes and their handles.

    names   of the columns that are wanted
    raises  InputError when the bytes are not of this version
    """
    header, at = _header(data)
    try:
        arrays = _arrays(data, at, header, names)
    except (zstandard.ZstdError, ValueError, TypeError) as error:
        raise InputError(f"store: observations are damaged ({error}). Ingest again.") from error
    return Observations(
        handles,
        _signatures(header),
        _with_absent_columns(
            {n: a for n, a in arrays.items() if not n.startswith("tuning.")},
            names,
            _rows(header),
        ),
        {n.removeprefix("tuning."): a for n, a in arrays.items() if n.startswith("tuning.")},
        _settings(header),
    )


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
    decompressor = zstandard.ZstdDecompressor()
    arrays = {}
    for name, dtype, stored, count in header.arrays:
        size = int.from_bytes(data[at : at + 8], "little")
        # Stores of schema 8 and before called communicator handles streams.
        column = "handle" if name == "stream" else name
        if column in names or column.startswith("tuning."):
            narrow = _unpack(data[at + 8 : at + 8 + size], stored, count, decompressor)
            arrays[column] = _widen(narrow, dtype, growing=column in _GROWING)
        at += 8 + size
    return arrays
