"""Compressed files unpacked piece by piece, within limits: gzip, zstd, xz and bzip2."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING

import zstandard

from collscope.errors import UnreadableError
from collscope.units import format_size

if TYPE_CHECKING:
    from bz2 import BZ2Decompressor
    from lzma import LZMADecompressor
    from types import ModuleType

CHUNK_BYTES = 512 << 10  # measured: hashed and scanned in the processor's cache
# Limits of a decompressed file unless the user sets one. Logs of the recordings compress up
# to 89 times (zstd -19); a file of zeros compresses 28,000 times.
MOST_RATIO = 1000
ANY_RATIO_BYTES = 64 << 20  # so much may come of a file of any size
MOST_UNPACKED_BYTES = 64 << 30

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_XZ, _BZIP2 = b"\xfd7zXZ\0", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")  # a block, or none
# A piece of zstd input of 4 bytes may stand for a block of 128 KiB: 64 MiB for one of these.
_ZSTD_PIECE, _GZIP_PIECE = 2 << 10, 256 << 10
_MOST_WINDOW_BYTES = 128 << 20  # what zstd's own command unpacks without being asked
_LZ4 = b"\x04\x22\x4d\x18"
RAISE_LIMIT = "If that is right, give 'collscope ingest' a larger --max-size"


def is_compressed(head: bytes) -> bool:
    """Whether a file that begins so is unpacked here."""
    return head.startswith((_GZIP, _ZSTD, _XZ)) or _BZIP2.match(head) is not None


class Decompressor:
    """Unpacks one file, any number of times; the first bytes show the format."""

    def __init__(self, path: str, most_bytes: int | None, packed_bytes: int | None) -> None:
        """Of the file at `path`.

        most_bytes    what it may become; None: the limits of this module
        packed_bytes  what it takes in its archive; None: it is in none that compresses
        """
        self.truncated = False  # the compressed data ended early, or was damaged from there on
        self._path = path
        self._most_bytes = most_bytes
        self._packed_bytes = packed_bytes
        self._used_bytes = 0  # of the file itself, in the latest reading

    def decompress(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """What the file's own bytes become, in chunks.

        raises  UnreadableError
        """
        self._used_bytes = 0
        first = next(blocks, b"")
        if first[:2] == _GZIP:
            yield from self._bounded(self._gunzip(self._pieces(first, blocks, _GZIP_PIECE)))
        elif first[:4] == _ZSTD:
            yield from self._bounded(self._unzstd(self._pieces(first, blocks, _ZSTD_PIECE)))
        elif first.startswith(_XZ):
            yield from self._bounded(self._unxz(self._pieces(first, blocks, _GZIP_PIECE)))
        elif _BZIP2.match(first):
            pieces = self._pieces(first, blocks, _GZIP_PIECE)
            new = self._module("bz2", "bzip2").BZ2Decompressor
            yield from self._bounded(self._members(new, pieces))
        elif first and self._packed_bytes is None:
            yield from self._bounded(chain((first,), blocks), compressed=False)
        elif first:
            self._used_bytes = self._packed_bytes or 0
            yield from self._bounded(chain((first,), blocks))

    def _pieces(self, first: bytes, blocks: Iterator[bytes], size: int) -> Iterator[bytes]:
        """The same bytes in small pieces, which bounds what each becomes."""
        for block in chain((first,), blocks):
            for start in range(0, len(block), size):
                piece = block[start : start + size]
                self._used_bytes += len(piece)
                yield piece

    def _gunzip(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """All members of a gzip file, as `cat a.gz b.gz` makes them."""
        member, started = zlib.decompressobj(wbits=31), False
        try:
            for piece in pieces:
                rest = piece if started else piece.lstrip(b"\0")
                while rest:
                    started, before = True, member.copy()
                    try:
                        yield member.decompress(rest, CHUNK_BYTES)
                    except zlib.error:  # nothing of the piece comes; byte by byte, what is good
                        yield from (before.decompress(bytes((byte,))) for byte in rest)
                        raise
                    rest = member.unconsumed_tail
                    if member.eof:
                        rest = member.unused_data.lstrip(b"\0")
                        member, started = zlib.decompressobj(wbits=31), False
            self.truncated = started
        except zlib.error:
            self.truncated = True

    def _unzstd(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """All frames of a zstd file."""
        unpacker = zstandard.ZstdDecompressor()
        frame, started = unpacker.decompressobj(), False
        try:
            for piece in pieces:
                rest = piece
                while rest:
                    if not started:
                        self._check_window(rest)
                    started = True
                    yield frame.decompress(rest)
                    rest = frame.unused_data if frame.eof else b""
                    if frame.eof:
                        frame, started = unpacker.decompressobj(), False
            self.truncated = started
        except zstandard.ZstdError:
            self.truncated = True

    def _unxz(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """All streams of an xz file."""
        lzma = self._module("lzma", "xz")
        try:
            yield from self._members(
                lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_WINDOW_BYTES), pieces
            )
        except lzma.LZMAError as error:
            if "Memory usage limit" not in str(error):
                self.truncated = True
                return
            why = (
                f"compressed with xz; unpacking needs over {format_size(_MOST_WINDOW_BYTES)} of "
                "memory"
            )
            raise UnreadableError(self._path, why, "Unpack it first, with xz -d") from error

    def _module(self, name: str, what: str) -> ModuleType:
        """A module of Python that a build without the library's headers lacks."""
        try:
            return import_module(name)
        except ImportError as error:
            why = f"compressed with {what}, which this Python was built without"
            raise UnreadableError(self._path, why, "Unpack it first") from error

    def _members(
        self,
        new: Callable[[], BZ2Decompressor | LZMADecompressor],
        pieces: Iterator[bytes],
    ) -> Iterator[bytes]:
        """All members, each unpacked by a new one of Python's decompressors."""
        member, started = new(), False
        try:
            for piece in pieces:
                rest = piece
                while rest or (started and not member.needs_input):
                    if not started:
                        rest = rest.lstrip(b"\0")  # between the streams of an xz file
                        if not rest:
                            break
                    started = True
                    yield member.decompress(rest, CHUNK_BYTES)
                    rest = b""
                    if member.eof:
                        rest, member, started = member.unused_data, new(), False
            self.truncated = started
        except OSError:  # bzip2's for damage
            self.truncated = True

    def _check_window(self, frame: bytes) -> None:
        """Raise UnreadableError for a frame of `zstd --long` that takes too much memory."""
        try:
            needed = zstandard.get_frame_parameters(frame).window_size
        except zstandard.ZstdError:  # its header goes on in the next piece, or is none
            return
        if needed > _MOST_WINDOW_BYTES:
            why = f"compressed with zstd --long; unpacking needs {format_size(needed)} of memory"
            raise UnreadableError(self._path, why, "Unpack it first, with zstd -d --long=31")

    def _bounded(self, parts: Iterable[bytes], *, compressed: bool = True) -> Iterator[bytes]:
        """The same bytes in chunks, while they are within the limits."""
        parts = _joined(parts) if compressed else parts
        size = 0
        for k, chunk in enumerate(parts):
            if k == 0:
                self._refuse_foreign(chunk)
            size += len(chunk)
            self._check(size, compressed=compressed)
            yield chunk

    def _check(self, size: int, *, compressed: bool) -> None:
        why = over_limit(size, self._most_bytes, self._used_bytes if compressed else None)
        if why is not None:
            remedy = RAISE_LIMIT if self._most_bytes is None else "Raise it, or leave the file out"
            raise UnreadableError(self._path, why, remedy)

    def _refuse_foreign(self, head: bytes) -> None:
        """Raise UnreadableError for what must be unpacked first: Python has no lz4."""
        if head.startswith(_LZ4):
            remedy = "Unpack it, and name the unpacked files"
            raise UnreadableError(self._path, "compressed with lz4", remedy)


def over_limit(size: int, most_bytes: int | None, packed_bytes: int | None) -> str | None:
    """Why a file of so many bytes, decompressed, is too large; None: it is not.

    most_bytes    what the user allows; None: the limits of this module
    packed_bytes  compressed so far; None: it is not compressed
    """
    if most_bytes is not None:
        allowed = f"more than {format_size(most_bytes)}, the limit of --max-size"
        return allowed if size > most_bytes else None
    if packed_bytes is None or size <= ANY_RATIO_BYTES:
        return None
    if size > MOST_RATIO * packed_bytes:
        return f"becomes more than {MOST_RATIO:,} times its size when decompressed"
    if size > MOST_UNPACKED_BYTES:
        return f"becomes more than {format_size(MOST_UNPACKED_BYTES)} when decompressed"
    return None


def _joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in parts of a chunk or more."""
    held, size = [], 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if size:
        yield b"".join(held)
