"""Paths as the user gives them, to streams of bytes."""

from __future__ import annotations

import glob
import hashlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import zstandard

from collscope.errors import InputError

CHUNK_BYTES = 8 << 20  # the scanner shares each between two threads, which meet at its end
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
STDIN = "-"


def expand(paths: list[str]) -> list[str]:
    """Files of the given paths: files, folders (all files below), globs, and ``-``.

    raises  InputError when a path names nothing
    """
    found: list[str] = []
    for path in paths:
        try:
            there = path == STDIN or Path(path).exists()
        except OSError as error:  # a name too long for the file system
            raise InputError(f"{path}: {error.strerror}. Check the path.") from error
        names = [path] if there else sorted(glob.glob(path))  # noqa: PTH207 - may be absolute
        if not names:
            raise InputError(f"{path}: no such file or folder. Check the path.")
        for name in names:
            folder = name != STDIN and Path(name).is_dir()
            files = (
                sorted(str(p) for p in Path(name).rglob("*") if p.is_file()) if folder else [name]
            )
            if not files:
                raise InputError(f"{name}: an empty folder. Name the folder that holds the files.")
            found += files
    return list(dict.fromkeys(found))


def printable(path: str) -> str:
    """The path as text for the store and the screen; file names may be any bytes."""
    return os.fsencode(path).decode(errors="replace")


@dataclass(slots=True)
class Reader:
    """Decompressed chunks of one file; `sha256` and `truncated` hold after the last chunk."""

    path: str
    sha256: str = ""
    size_bytes: int = 0  # given out so far
    truncated: bool = False  # the compressed data ended early, or was damaged from there on
    _file: BinaryIO = field(default=sys.stdin.buffer if sys.stdin else None)  # type: ignore[assignment]

    def chunks(self) -> Iterator[bytes]:
        """Chunks of at least one byte, read and hashed ahead by another thread."""
        digest = hashlib.sha256()
        with ThreadPoolExecutor(1) as pool:

            def raw() -> Iterator[bytes]:
                upcoming = pool.submit(self._read, digest.update)
                while block := upcoming.result():
                    upcoming = pool.submit(self._read, digest.update)
                    yield block

            for chunk in self._decompressed(raw()):
                self.size_bytes += len(chunk)
                yield chunk
        self.sha256 = digest.hexdigest()

    def _read(self, update: Callable[[bytes], None]) -> bytes:
        try:
            block = self._file.read(CHUNK_BYTES)
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror}. Check the file.") from error
        update(block)
        return block

    def _decompressed(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        first = next(blocks, b"")
        if first[:2] == _GZIP:
            yield from self._gunzip(first, blocks)
        elif first[:4] == _ZSTD:
            yield from self._unzstd(first, blocks)
        elif first:
            yield first
            yield from blocks

    def _gunzip(self, block: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """All members of a gzip file, as `cat a.gz b.gz` makes them."""
        member = zlib.decompressobj(wbits=31)
        try:
            while block:
                if out := member.decompress(block, CHUNK_BYTES):
                    yield out
                block = member.unconsumed_tail
                if member.eof:
                    block = member.unused_data.lstrip(b"\0")
                    member = zlib.decompressobj(wbits=31)
                    started = bool(block)
                else:
                    started = True
                if not block:
                    block = next(blocks, b"")
                    if not block:
                        self.truncated = started
        except zlib.error:
            self.truncated = True
        for _ in blocks:  # the rest is hashed all the same
            pass

    def _unzstd(self, block: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """All frames of a zstd file."""
        frame = zstandard.ZstdDecompressor().decompressobj()
        fresh = True
        try:
            while block:
                fresh = False
                if out := frame.decompress(block):
                    yield out
                block = frame.unused_data if frame.eof else b""
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                    fresh = True
                block = block or next(blocks, b"")
            self.truncated = not fresh
        except zstandard.ZstdError:
            self.truncated = True
        for _ in blocks:
            pass


@contextmanager
def open_input(path: str) -> Iterator[Reader]:
    """A reader of a file or of standard input.

    raises  InputError when it cannot be opened
    """
    if path == STDIN:
        yield Reader(path)
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below, its opening explained here
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}. Check the path and its permissions."
        ) from error
    with file:
        yield Reader(path, _file=file)
