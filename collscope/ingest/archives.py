"""Members of archives as files: read one after the other, and never written by their names."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, cast

import msgspec

from collscope.errors import UnreadableError
from collscope.ingest.decompress import over_limit
from collscope.ingest.files import Input, archive_kind, open_input

MOST_MEMBERS = 100_000
# Bits of a member's flags, and its methods: 4.4.4 and 4.4.5 of PKWARE's APPNOTE.TXT. Python's
# zipfile unpacks four, and raises NotImplementedError for the others.
_ENCRYPTED, _PATCHED, _STRONGLY_ENCRYPTED = 0x1, 0x20, 0x40
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_OTHER_METHODS = {1: "Shrink", 6: "Implode", 9: "Deflate64", 93: "Zstandard", 95: "XZ", 98: "PPMd"}
_NESTED = "an archive inside an archive: its members are not read"
_DAMAGED = "a damaged archive: nothing after the damage is read"


class Skipped(msgspec.Struct, frozen=True):
    """What of an archive is not read, and why; `path` as if the archive were a folder."""

    path: str
    reason: str


@contextmanager
def open_all(path: str, most_bytes: int | None = None) -> Iterator[Iterator[Input | Skipped]]:
    """A file, or every member of an archive; read each before asking for the next.

    most_bytes  as `Input` has it, of each of them
    raises      UnreadableError when it cannot be opened
    """
    with open_input(path, most_bytes) as file:
        kind = archive_kind(file.head())
        if kind is None:
            yield iter([file])
        else:
            yield _counted(path, _zip_members(file) if kind == "zip" else _tar_members(file))


def _counted(path: str, members: Iterator[Input | Skipped]) -> Iterator[Input | Skipped]:
    for number, member in enumerate(members):
        if number == MOST_MEMBERS:
            yield Skipped(path, f"more than {MOST_MEMBERS:,} members: the rest is not read")
            return
        yield member


def _tar_members(file: Input) -> Iterator[Input | Skipped]:
    """Members of a tar, also of one that is compressed; links in it lead nowhere."""
    reader = cast("IO[bytes]", io.BufferedReader(_Chunks(file.decompressed())))
    try:
        with tarfile.open(fileobj=reader, mode="r|") as archive:
            for member in archive:
                where = f"{file.path}/{member.name}"
                if member.isdir():
                    continue
                content = archive.extractfile(member) if member.isreg() else None
                if content is None:
                    yield Skipped(where, "a link or a device inside an archive, not a file")
                else:
                    yield from _member(where, cast("BinaryIO", content), file.most_bytes)
    except (tarfile.TarError, EOFError):
        yield Skipped(file.path, _DAMAGED)
        return
    if file.truncated:
        yield Skipped(file.path, _DAMAGED)


def _zip_members(file: Input) -> Iterator[Input | Skipped]:
    try:
        with zipfile.ZipFile(file.seekable()) as archive:
            for member in archive.infolist():
                where = f"{file.path}/{member.filename}"
                if member.is_dir():
                    continue
                if (why := _unreadable(member, file.most_bytes)) is not None:
                    yield Skipped(where, why)
                    continue
                with archive.open(member) as content:
                    packed = member.compress_size
                    yield from _member(where, cast("BinaryIO", content), file.most_bytes, packed)
    except NotImplementedError:  # the archive as a whole needs a newer version of the format
        yield Skipped(file.path, "a zip archive of an unknown version")
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError):
        yield Skipped(file.path, _DAMAGED)


def _unreadable(member: zipfile.ZipInfo, most_bytes: int | None) -> str | None:
    """Why a member is not opened, by its header; None for one that can be.

    The sizes in the header may be wrong, so the limits are also enforced while a member is read.
    """
    if member.flag_bits & (_ENCRYPTED | _STRONGLY_ENCRYPTED):
        return "encrypted"
    if member.flag_bits & _PATCHED:
        return "a patch of another file (compressed patched data)"
    if member.compress_type not in _METHODS:
        method = member.compress_type
        name = _OTHER_METHODS.get(method, f"method {method}")
        return f"compressed with {name} inside a zip archive, which is not supported"
    return over_limit(member.file_size, most_bytes, member.compress_size)


def _member(
    path: str, content: BinaryIO, most_bytes: int | None, packed_bytes: int | None = None
) -> Iterator[Input | Skipped]:
    member = Input(path, content, most_bytes, spooled=True, inside=True, packed_bytes=packed_bytes)
    try:
        if archive_kind(member.head()) is not None:
            yield Skipped(path, _NESTED)
        else:
            yield member
    except UnreadableError as error:
        yield Skipped(path, error.reason)
    finally:
        member.close()


class _Chunks(io.RawIOBase):
    """Chunks as a file that is read forwards."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object) -> int:
        """As `io.RawIOBase` has it."""
        into = memoryview(cast("bytearray", buffer)).cast("B")
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        part = self._rest[: len(into)]
        into[: len(part)] = part
        self._rest = self._rest[len(part) :]
        return len(part)
