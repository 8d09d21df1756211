"""Observations of one source as bytes, and back: the store's private `_segment` format.

Layout: msgpack header (version, array names, dtypes and lengths, signatures, settings) and the
arrays one after the other, all compressed with zstd. Streams are stored as rows of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import zstandard

from collscope.errors import InputError
from collscope.match.observations import Observations, Signature, TuningSetting
from collscope.match.streams import Stream
from collscope.model import Op

_VERSION = 1


class _Header(msgspec.Struct):
    version: int
    arrays: list[tuple[str, str, int]]
    signatures: list[tuple[str, str, int, int, int, int, int]]
    settings: list[tuple[str | None, str | None, int | None, str | None]]


def encode(observed: Observations) -> bytes:
    """Bytes of everything but the streams."""
    arrays = {**observed.columns, **{f"tuning.{n}": a for n, a in observed.tuning.items()}}
    header = _Header(
        _VERSION,
        [(name, a.dtype.str, len(a)) for name, a in arrays.items()],
        [
            (s.op.value, s.backend, s.count, s.datatype, s.redop, s.root, s.flags)
            for s in observed.signatures
        ],
        [(s.algorithm, s.protocol, s.channels, s.kernel) for s in observed.tuning_settings],
    )
    head = msgspec.msgpack.encode(header)
    compressor = zstandard.ZstdCompressor(level=1, threads=-1, write_checksum=True)
    parts = [len(head).to_bytes(8, "little"), head]
    parts += [compressor.compress(np.ascontiguousarray(a).data) for a in arrays.values()]
    sizes = [len(p).to_bytes(8, "little") for p in parts[2:]]
    return b"".join([*parts[:2], *(x for pair in zip(sizes, parts[2:], strict=True) for x in pair)])


def decode(data: bytes, streams: Sequence[Stream]) -> Observations:
    """Observations from their bytes and their streams.

    raises  InputError when the bytes are not of this version
    """
    try:
        length = int.from_bytes(data[:8], "little")
        header = msgspec.msgpack.decode(data[8 : 8 + length], type=_Header)
    except msgspec.MsgspecError as error:
        raise InputError(f"store: observations cannot be read ({error}). Ingest again.") from error
    if header.version != _VERSION:
        raise InputError(f"store: observations of version {header.version}. Ingest again.")
    try:
        arrays = _arrays(data, 8 + length, header)
    except (zstandard.ZstdError, ValueError, TypeError) as error:
        raise InputError(f"store: observations are damaged ({error}). Ingest again.") from error
    return Observations(
        streams,
        [Signature(Op(s[0]), *s[1:]) for s in header.signatures],
        {n: a for n, a in arrays.items() if not n.startswith("tuning.")},
        {n.removeprefix("tuning."): a for n, a in arrays.items() if n.startswith("tuning.")},
        [TuningSetting(*s) for s in header.settings],
    )


def _arrays(data: bytes, at: int, header: _Header) -> dict[str, np.ndarray[Any, Any]]:
    """The columns that follow the header, by name."""
    decompressor = zstandard.ZstdDecompressor()
    arrays = {}
    for name, dtype, count in header.arrays:
        size = int.from_bytes(data[at : at + 8], "little")
        raw = decompressor.decompress(data[at + 8 : at + 8 + size]) if count else b""
        arrays[name] = np.frombuffer(raw, dtype=dtype, count=count)
        at += 8 + size
    return arrays
