"""The bytes of files: decompressed, hashed once, and bounded."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import sqlite3
import stat
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, BinaryIO

import zstandard

from collscope.errors import InputError
from collscope.ingest.foreign_sqlite import open_foreign
from collscope.ingest.paths import STDIN, printable
from collscope.units import format_size

if TYPE_CHECKING:
    from bz2 import BZ2Decompressor
    from lzma import LZMADecompressor
    from types import ModuleType

CHUNK_BYTES = 8 << 20  # the scanner shares each between two threads, which meet at its end
HEAD_BYTES = 65_536  # what readers tell their own files by
# Whole in memory: tables, CSVs, figures, recordings and profiles that are text.
MOST_WHOLE_BYTES = 512 << 20
# What a compressed file may become where the user says nothing. Logs of the recordings compress up
# to 89 times (zstd -19); a file of zeros compresses 28,000 times.
MOST_RATIO = 1000
ANY_RATIO_BYTES = 64 << 20  # so much may come of a file of any size
MOST_UNPACKED_BYTES = 64 << 30

_ZIP = b"PK\x03\x04"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_XZ, _BZIP2 = b"\xfd7zXZ\0", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")  # a block, or none
# A piece of zstd input of 4 bytes may stand for a block of 128 KiB: 64 MiB for one of these.
_ZSTD_PIECE, _GZIP_PIECE = 2 << 10, 256 << 10
_MOST_WINDOW_BYTES = 128 << 20  # what zstd's own command unpacks without being asked
_SPOOLED_BYTES = 64 << 20  # standard input in memory; more of it goes into a temporary file
_LZ4 = b"\x04\x22\x4d\x18"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_RAISE = "If that is right, give 'collscope ingest' a larger --max-size"


# What a damaged member of an archive raises.
_DAMAGE = (EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


class UnreadableError(InputError):
    """A file that cannot be opened, read on, or read safely; `reason` says why."""

    def __init__(self, path: str, reason: str, remedy: str) -> None:
        """Of one of many files the reason is told, and the others are read."""
        super().__init__(f"{path}: {reason}. {remedy}.")
        self.reason = reason


class ArchiveError(UnreadableError):
    """A tar or zip archive where one file is wanted."""


class Input:
    """One file, or standard input: its bytes decompressed, as often as they are asked for.

    What cannot be read twice is kept: the first 64 MiB in memory, more in a temporary file. The
    bytes are hashed once, as they are first read. UTF-16 with a byte order mark comes as UTF-8.
    """

    def __init__(
        self,
        path: str,
        file: BinaryIO,
        most_bytes: int | None = None,
        *,
        spooled: bool = False,
        inside: bool = False,
        packed_bytes: int | None = None,
    ) -> None:
        """Take an open file.

        most_bytes    what it may become, decompressed; None: the limits of this module
        spooled       keep what is read: for a file that cannot be read twice
        inside        it is no file of its own: a member of an archive, or standard input
        packed_bytes  what it takes in its archive; None: it is in none that compresses
        """
        self.path = path
        self.most_bytes = most_bytes
        self.inside = inside
        self.size_bytes = 0  # decompressed, given out so far in the latest reading
        self.truncated = False  # the compressed data ended early, or was damaged from there on
        self.cut_database = False  # an SQLite file without its last pages; known once it is opened
        self._file = file
        self._spool = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) if spooled else None  # noqa: SIM115 - closed below
        self._unpacked: IO[bytes] | None = None
        self._copy: tempfile.TemporaryDirectory[str] | None = None  # of an SQLite file
        self._packed_bytes = packed_bytes
        self._head = b""
        self._head_ends = False  # the file ends with it
        self._first = b""  # chunk of the file itself: its kind is told by it before it is read
        self._digest = hashlib.sha256()
        self._read_bytes = 0  # of the file itself: hashed, and spooled where it must be
        self._end: int | None = None  # of the file itself, once it is reached
        self._used_bytes = 0  # of the file itself, decompressed in the latest reading

    def close(self) -> None:
        """Let go of what was kept."""
        for kept in (self._spool, self._unpacked):
            if kept is not None:
                kept.close()
        if self._copy is not None:
            self._copy.cleanup()

    @property
    def name(self) -> str:
        """Of the file, without its folder; stdin."""
        return "stdin" if self.path == STDIN else PurePath(printable(self.path)).name

    @property
    def taken_bytes(self) -> int:
        """Of the file as it is, read so far."""
        return self._read_bytes

    @property
    def sha256(self) -> str:
        """Hash of the file as it is; reads to its end what is not read yet.

        raises  UnreadableError
        """
        while self._end is None:
            self._block(self._read_bytes)
        return self._digest.hexdigest()

    def head(self, most_bytes: int = HEAD_BYTES) -> bytes:
        """The first bytes: at most so many, fewer of a shorter file.

        raises  UnreadableError
        """
        if len(self._head) < most_bytes and not self._head_ends:
            parts, size = [], 0
            self.size_bytes = self._used_bytes = 0
            for chunk in self._as_utf8(self._decompressed(self._blocks())):
                parts.append(chunk)
                size += len(chunk)
                self.size_bytes = size
                if size >= most_bytes:
                    break
            else:
                self._head_ends = True
            self._head = b"".join(parts)[:most_bytes]
        return self._head[:most_bytes]

    def whole(self) -> bytes:
        """All bytes.

        raises  UnreadableError, also for more than are kept in memory
        """
        most = MOST_WHOLE_BYTES if self.most_bytes is None else self.most_bytes
        parts = []
        for chunk in self.chunks():
            if self.size_bytes > most:
                raise UnreadableError(
                    self.path,
                    f"more than {format_size(most)}, in a file that must be read as a whole",
                    _RAISE,
                )
            parts.append(chunk)
        return b"".join(parts)

    def text(self) -> str:
        """All text; bytes that are no UTF-8 become replacement characters.

        raises  UnreadableError, also for more than is kept in memory
        """
        return self.whole().decode("utf-8-sig", errors="replace")

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection | None]:
        """It as an SQLite file, from a copy: a profiler's WAL beside it is not touched.

        returns  None where it cannot be opened
        raises   UnreadableError
        """
        if self._copy is None:
            self._copy = tempfile.TemporaryDirectory()
            with Path(self._copy.name, "profile.db").open("wb+") as out:
                out.writelines(self.chunks())
                size = out.tell()
                out.seek(0)
                self.cut_database = size < _database_bytes(out.read(100))
        with ExitStack() as stack:
            try:
                opened = open_foreign(Path(self._copy.name, "profile.db"))
                connection = stack.enter_context(opened)
            except sqlite3.DatabaseError:
                connection = None
            yield connection

    def seekable(self) -> IO[bytes]:
        """All bytes, decompressed, as a file that can be read from anywhere.

        raises  UnreadableError
        """
        if self._spool is None and self._block(0).startswith(_ZIP):
            self._file.seek(0)
            return self._file
        self._unpacked = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115 - closed below
        self._unpacked.writelines(self.decompressed())
        self._unpacked.seek(0)
        return self._unpacked

    def chunks(self) -> Iterator[bytes]:
        """Chunks of at least one byte from the beginning on, read and hashed ahead in a thread.

        raises  UnreadableError, an ArchiveError for an archive
        """
        for number, chunk in enumerate(self.decompressed()):
            if number == 0 and (kind := archive_kind(chunk)):
                why = f"a {kind} archive, and its members are not read here"
                raise ArchiveError(self.path, why, "Unpack it, and name the unpacked files")
            yield chunk

    def decompressed(self) -> Iterator[bytes]:
        """What `chunks` gives, of an archive too.

        raises  UnreadableError
        """
        self.size_bytes = self._used_bytes = 0
        with ThreadPoolExecutor(1) as pool:

            def raw() -> Iterator[bytes]:
                at = 0
                upcoming = pool.submit(self._block, at)
                while block := upcoming.result():
                    at += len(block)
                    upcoming = pool.submit(self._block, at)
                    yield block

            for chunk in self._as_utf8(self._decompressed(raw())):
                self.size_bytes += len(chunk)
                yield chunk

    def _blocks(self) -> Iterator[bytes]:
        """The file's own bytes in chunks."""
        at = 0
        while block := self._block(at):
            at += len(block)
            yield block

    def _block(self, at: int) -> bytes:
        """The file's own bytes from `at` on, a chunk at most; what is new is hashed."""
        try:
            if at == 0 and self._first:
                return self._first
            if at < self._read_bytes:
                return self._again(at)
            block = self._file.read(CHUNK_BYTES) if self._end is None else b""
        except OSError as error:
            raise UnreadableError(self.path, f"{error.strerror}", "Check the file") from error
        except _DAMAGE:
            block, self.truncated = b"", True
        if not block:
            self._end = self._read_bytes
        elif self._spool is not None:
            self._spool.seek(0, os.SEEK_END)
            self._spool.write(block)
        if at == 0:
            self._first = block
        self._digest.update(block)
        self._read_bytes += len(block)
        return block

    def _again(self, at: int) -> bytes:
        """Bytes that were read before."""
        kept = self._file if self._spool is None else self._spool
        kept.seek(at)
        block = kept.read(min(CHUNK_BYTES, self._read_bytes - at))
        if kept is self._file:
            self._file.seek(self._read_bytes)
        return block

    def _decompressed(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
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
            yield from self._bounded(_chain(first, blocks), compressed=False)
        elif first:
            self._used_bytes = self._packed_bytes or 0
            yield from self._bounded(_chain(first, blocks))

    def _pieces(self, first: bytes, blocks: Iterator[bytes], size: int) -> Iterator[bytes]:
        """The same bytes in small pieces, which bounds what each becomes."""
        for block in _chain(first, blocks):
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
                    started = True
                    yield member.decompress(rest, CHUNK_BYTES)
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
            why = f"compressed with xz, and takes over {format_size(_MOST_WINDOW_BYTES)} to unpack"
            raise UnreadableError(self.path, why, "Unpack it first, with xz -d") from error

    def _module(self, name: str, what: str) -> ModuleType:
        """A module of Python that a build without the library's headers lacks."""
        try:
            return import_module(name)
        except ImportError as error:
            why = f"compressed with {what}, which this Python was built without"
            raise UnreadableError(self.path, why, "Unpack it first") from error

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
            why = f"compressed with zstd --long, which takes {format_size(needed)} to unpack"
            raise UnreadableError(self.path, why, "Unpack it first, with zstd -d --long=31")

    def _bounded(self, parts: Iterable[bytes], *, compressed: bool = True) -> Iterator[bytes]:
        """The same bytes in chunks, as long as they are within the limits."""
        parts = _joined(parts) if compressed else parts
        size = 0
        for k, chunk in enumerate(parts):
            if k == 0:
                self._refuse_foreign(chunk)
            size += len(chunk)
            self._check(size, compressed=compressed)
            yield chunk

    def _check(self, size: int, *, compressed: bool) -> None:
        why = over_limit(size, self.most_bytes, self._used_bytes if compressed else None)
        if why is not None:
            remedy = _RAISE if self.most_bytes is None else "Raise it, or leave the file out"
            raise UnreadableError(self.path, why, remedy)

    def _refuse_foreign(self, head: bytes) -> None:
        """Raise UnreadableError for what must be unpacked first: Python has no lz4."""
        if head.startswith(_LZ4):
            remedy = "Unpack it, and name the unpacked files"
            raise UnreadableError(self.path, "compressed with lz4", remedy)

    @staticmethod
    def _as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The same bytes, but UTF-16 text, as some Windows tools write it, becomes UTF-8."""
        first = next(chunks, b"")
        if not first.startswith(_UTF16) or not _is_utf16(first[:4096]):
            yield from _chain(first, chunks) if first else ()
            return
        decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        for chunk in _chain(first, chunks):
            if text := decoder.decode(chunk):
                yield text.encode()
        if rest := decoder.decode(b"", final=True):
            yield rest.encode()


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def over_limit(size: int, most_bytes: int | None, packed_bytes: int | None) -> str | None:
    """Why a file of so many bytes, decompressed, is too large; None: it is not.

    most_bytes    what the user allows; None: the limits of this module
    packed_bytes  compressed so far; None: it is not compressed
    """
    if most_bytes is not None:
        allowed = f"more than {format_size(most_bytes)}, which --max-size allows"
        return allowed if size > most_bytes else None
    if packed_bytes is None or size <= ANY_RATIO_BYTES:
        return None
    if size > MOST_RATIO * packed_bytes:
        return f"becomes more than {MOST_RATIO:,} times its size when it is decompressed"
    if size > MOST_UNPACKED_BYTES:
        return f"becomes more than {format_size(MOST_UNPACKED_BYTES)} when it is decompressed"
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


def archive_kind(head: bytes) -> str | None:
    """What kind of archive begins so: tar, zip; None for none.

    >>> archive_kind(b"PK\\3\\4"), archive_kind(b"host:1:1 [0] NCCL INFO")
    ('zip', None)
    """
    if head.startswith(_ZIP):
        return "zip"
    return "tar" if _is_tar(head) else None


def _is_tar(head: bytes) -> bool:
    """True for the header of a tar's first member, which has a checksum of its own."""
    try:
        return bool(tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape"))
    except tarfile.HeaderError:
        return False


def _database_bytes(header: bytes) -> int:
    """Bytes of an SQLite file by its header; 0 where that does not tell.

    Source: sqlite.org/fileformat.html, 1.3 "The Database Header": the number of pages holds where
    the change counter is that of the version which wrote it.
    """
    if len(header) < 100 or header[24:28] != header[92:96]:
        return 0
    page = int.from_bytes(header[16:18], "big")
    return int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)


def _is_utf16(head: bytes) -> bool:
    """True for text; a binary file may begin like a byte order mark."""
    text = head[: len(head) // 2 * 2].decode("utf-16", errors="replace")
    return "\ufffd" not in text[:-1] and "\0" not in text


@contextmanager
def open_input(path: str, most_bytes: int | None = None, *, once: bool = False) -> Iterator[Input]:
    """A file or standard input, to be read within the limits; `most_bytes` as `Input` has it.

    once    it is read once only: of standard input and pipes nothing is kept
    raises  UnreadableError when it cannot be opened, or is a device
    """
    with _opened(path) as file:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode) and path != STDIN
        kept = not once and not regular
        found = Input(path, file, most_bytes, spooled=kept, inside=path == STDIN)
        try:
            yield found
        finally:
            found.close()


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == STDIN:
        if sys.stdin is None:
            raise UnreadableError(path, "standard input is closed", "Name a file")
        yield sys.stdin.buffer
        return
    try:
        # A pipe that nobody writes into opens at once, and is empty.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = f"{error.strerror}"
        raise UnreadableError(path, why, "Check the path and its permissions") from error
    with os.fdopen(handle, "rb") as file:
        mode = os.fstat(handle).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise UnreadableError(
                path, "a device, not a file", "Name a file, or - for standard input"
            )
        os.set_blocking(handle, True)
        yield file
