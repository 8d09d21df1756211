"""The bytes of files: opened, read once, hashed, and given out decompressed."""

from __future__ import annotations

import codecs
import hashlib
import os
import sqlite3
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path, PurePath
from typing import IO, BinaryIO

from collscope.errors import UnreadableError
from collscope.ingest.decompress import CHUNK_BYTES, RAISE_LIMIT, Decompressor, is_compressed
from collscope.ingest.foreign_sqlite import database_bytes, open_foreign
from collscope.ingest.paths import STDIN, printable
from collscope.inputs import opened
from collscope.outputs import note_input
from collscope.parsers.reader import text_of
from collscope.temporary import temporary_folder
from collscope.units import format_size

HEAD_BYTES = 65_536  # what readers recognise their files by
# Whole in memory: tables, CSVs, figures, recordings and profiles that are text.
MOST_WHOLE_BYTES = 512 << 20
_ZIP = b"PK\x03\x04"
_SPOOLED_BYTES = 64 << 20  # standard input in memory; more of it goes into a temporary file
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What a damaged member of an archive raises.
_DAMAGE = (EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


class ArchiveError(UnreadableError):
    """A tar or zip archive where one file is wanted."""


class Input:
    """One file, or standard input: its bytes decompressed, any number of times.

    What cannot be read twice is kept: the first 64 MiB in memory, more in a temporary file. The
    bytes are hashed once, at the first reading, unless nobody asks for the hash. UTF-16 with a byte
    order mark comes as UTF-8.
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

        most_bytes    what it may become, decompressed; None: the limits of `decompress`
        spooled       keep what is read: for a file that cannot be read twice
        inside        it is no file of its own: a member of an archive, or standard input
        packed_bytes  what it takes in its archive; None: it is in none that compresses
        """
        self.path = path
        self.most_bytes = most_bytes
        self.inside = inside
        self.size_bytes = 0  # decompressed, given out so far in the latest reading
        self.cut_database = False  # an SQLite file without its last pages; known once it is opened
        self._file = file
        self._spool = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) if spooled else None  # noqa: SIM115 - closed below
        self._unpacked: IO[bytes] | None = None
        self._copy: Path | None = None  # of an SQLite file
        self._held = ExitStack()  # what ends with this: the folder of the copy
        self._decompressor = Decompressor(path, most_bytes, packed_bytes)
        self._damaged = False  # the member of an archive, from some place on
        self._head = b""
        self._head_ends = False  # the file ends with it
        self._first = b""  # chunk of the file itself: shows its kind before it is read
        self._digest: hashlib._Hash | None = hashlib.sha256()  # None: nobody asks for it
        self._content: str | None = None  # hash of what is given out, once it is known
        self._read_bytes = 0  # of the file itself: hashed, and spooled where it must be
        self._end: int | None = None  # of the file itself, once it is reached

    def close(self) -> None:
        """Let go of what was kept."""
        for kept in (self._spool, self._unpacked):
            if kept is not None:
                kept.close()
        self._held.close()

    def leave_unhashed(self) -> None:
        """Do not hash what is read; then nobody may ask for `sha256`."""
        self._digest = None

    @property
    def name(self) -> str:
        """Of the file, without its folder; stdin."""
        return "stdin" if self.path == STDIN else PurePath(printable(self.path)).name

    @property
    def truncated(self) -> bool:
        """In the part that was read, the data ended early or was damaged."""
        return self._damaged or self._decompressor.truncated

    @property
    def taken_bytes(self) -> int:
        """Bytes of the unchanged file that were read so far."""
        return self._read_bytes

    @property
    def packed_head(self) -> bytes:
        """The first bytes of the file, packed if it is packed; reads nothing twice.

        raises  UnreadableError
        """
        return self._block(0)[:512]

    @property
    def sha256(self) -> str:
        """Hash of the unchanged file; reads the rest of it first.

        raises  UnreadableError
        """
        assert self._digest is not None  # see `leave_unhashed`
        while self._end is None:
            self._block(self._read_bytes)
        return self._digest.hexdigest()

    @property
    def content_sha256(self) -> str:
        """Hash of the decompressed bytes: a file and its compressed copy have the same one.

        raises  UnreadableError
        """
        if self._content is None and not is_compressed(self._block(0)):
            self._content = self.sha256
        if self._content is None:
            digest = hashlib.sha256()
            for chunk in self._decompressor.decompress(self._blocks()):
                digest.update(chunk)
            self._content = digest.hexdigest()
        return self._content

    def head(self, most_bytes: int = HEAD_BYTES) -> bytes:
        """The first bytes: at most so many, fewer of a shorter file.

        raises  UnreadableError
        """
        if len(self._head) < most_bytes and not self._head_ends:
            parts, size = [], 0
            self.size_bytes = 0
            for chunk in self._as_utf8(self._decompressor.decompress(self._blocks())):
                parts.append(chunk)
                size += len(chunk)
                self.size_bytes = size
                if size >= most_bytes:
                    break
            else:
                self._head_ends = True
            self._head = b"".join(parts)[:most_bytes]
        return self._head[:most_bytes]

    def read_all(self) -> bytes:
        """All bytes.

        raises  UnreadableError, also for more than are kept in memory
        """
        most = MOST_WHOLE_BYTES if self.most_bytes is None else self.most_bytes
        parts = []
        for chunk in self.chunks():
            if self.size_bytes > most:
                raise UnreadableError(
                    self.path,
                    f"more than {format_size(most)}, the limit for files that must be read as a "
                    "whole",
                    RAISE_LIMIT,
                )
            parts.append(chunk)
        return b"".join(parts)

    def text(self) -> str:
        """All text; bytes that are no UTF-8 become replacement characters.

        raises  UnreadableError, also for more than is kept in memory
        """
        return text_of(self.read_all())

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection | None]:
        """It as an SQLite file, from a copy: a profiler's WAL next to it is not touched.

        returns  None where it cannot be opened
        raises   UnreadableError
        """
        if self._copy is None:
            self._copy = self._held.enter_context(temporary_folder("profile")) / "profile.db"
            with self._copy.open("wb+") as out:
                out.writelines(self.chunks())
                size = out.seek(0, os.SEEK_END)
                out.seek(0)
                self.cut_database = size < database_bytes(out.read(100))
        with ExitStack() as stack:
            try:
                opened = open_foreign(self._copy)
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
                why = f"a {kind} archive; its members are not read here"
                raise ArchiveError(self.path, why, "Unpack it, and name the unpacked files")
            yield chunk

    def decompressed(self) -> Iterator[bytes]:
        """What `chunks` gives, of an archive too.

        raises  UnreadableError
        """
        self.size_bytes = 0
        if len(self._block(0)) < CHUNK_BYTES:
            # All of it: to start a thread takes longer than to read a small file, and an archive
            # may have a hundred thousand.
            for chunk in self._as_utf8(self._decompressor.decompress(self._blocks())):
                self.size_bytes += len(chunk)
                yield chunk
            return
        with ThreadPoolExecutor(1) as pool:

            def raw() -> Iterator[bytes]:
                at = 0
                upcoming = pool.submit(self._block, at)
                try:
                    while block := upcoming.result():
                        at += len(block)
                        upcoming = pool.submit(self._block, at)
                        yield block
                finally:
                    del upcoming  # as in `ScansAhead.take`

            for chunk in self._as_utf8(self._decompressor.decompress(raw())):
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
                return self._reread(at)
            block = self._file.read(CHUNK_BYTES) if self._end is None else b""
        except OSError as error:
            raise UnreadableError(self.path, f"{error.strerror}", "Check the file") from error
        except _DAMAGE:
            block, self._damaged = b"", True
        if not block:
            self._end = self._read_bytes
        elif self._spool is not None:
            self._spool.seek(0, os.SEEK_END)
            self._spool.write(block)
        if at == 0:
            self._first = block
        if self._digest is not None:
            self._digest.update(block)
        self._read_bytes += len(block)
        return block

    def _reread(self, at: int) -> bytes:
        """Bytes that were read before."""
        kept = self._file if self._spool is None else self._spool
        kept.seek(at)
        block = kept.read(min(CHUNK_BYTES, self._read_bytes - at))
        if kept is self._file:
            self._file.seek(self._read_bytes)
        return block

    @staticmethod
    def _as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The same bytes, but UTF-16 text, as some Windows tools write it, becomes UTF-8."""
        first = next(chunks, b"")
        if not first.startswith(_UTF16) or not _is_utf16(first[:4096]):
            yield from chain((first,), chunks) if first else ()
            return
        decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        for chunk in chain((first,), chunks):
            if text := decoder.decode(chunk):
                yield text.encode()
        if rest := decoder.decode(b"", final=True):
            yield rest.encode()


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
    with _opened(path) as (file, regular):
        kept = not once and not regular
        found = Input(path, file, most_bytes, spooled=kept, inside=path == STDIN)
        try:
            yield found
        finally:
            found.close()


@contextmanager
def _opened(path: str) -> Iterator[tuple[BinaryIO, bool]]:
    """The open file, and whether it is a regular one."""
    if path == STDIN:
        note_input("/dev/stdin")
        if sys.stdin is None:
            raise UnreadableError(path, "standard input is closed", "Name a file")
        yield sys.stdin.buffer, False
        return
    with opened(path) as found:
        yield found
