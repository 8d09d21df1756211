"""Files, archives, folders and stores as copies without names: all of one, or nothing."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import re
import shlex
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import zstandard

from collscope.errors import InputError, UnreadableError, UsageError
from collscope.ingest.archives import Skipped, open_all
from collscope.ingest.auto import DOCUMENT_BYTES
from collscope.ingest.files import Input, archive_kind
from collscope.ingest.merge import publish, scratch_beside
from collscope.ingest.paths import expand, printable
from collscope.ingest.profiles import read_profiles
from collscope.outputs import note_input
from collscope.parsers import registry
from collscope.parsers.hints import Hints
from collscope.parsers.reader import Fit, is_sqlite
from collscope.parsers.recorders import flight_pickle, own_recorder
from collscope.sanitize.document import Document, is_document
from collscope.sanitize.names import Names, new_key
from collscope.sanitize.stored import sanitize_store
from collscope.sanitize.text import Text
from collscope.sanitize.words import is_kept
from collscope.store.connection import is_store

_SQLITE_TEXT = (
    "an SQLite file that is not a store, so its names cannot be identified. Ingest it, and "
    "sanitize the store"
)
_BINARY_TEXT = "neither text nor a known recording, so its names cannot be identified"
_CUT_TEXT = "compressed and cut or damaged: unpack it, and sanitize what can be unpacked"
_PICKLE_TEXT = "a pickle that is damaged, or holds more than plain values"
_VERSION_TEXT = "a recording of a newer format"
_CONTROLS = re.compile(rb"[\x01-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_MOST_CONTROLS = 1 / 20  # of a text's bytes: a torn log holds some
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold
_Pack = Callable[[bytes], bytes]
_PACKS: tuple[tuple[bytes, _Pack], ...] = (
    (b"\x1f\x8b", lambda data: gzip.compress(data, mtime=0)),
    (b"\x28\xb5\x2f\xfd", lambda data: zstandard.ZstdCompressor().compress(data)),
    (b"\xfd7zXZ\0", lzma.compress),
    (b"BZh", bz2.compress),
)


class Refused(msgspec.Struct, frozen=True):
    """A file without a copy, and why."""

    path: str
    reason: str


class Sanitized(msgspec.Struct, frozen=True):
    """What became of the inputs."""

    files: int  # with a copy; members of archives count
    names: int  # different names that were replaced
    refused: tuple[Refused, ...]


class _RefusedError(Exception):
    """A file that is not known well enough."""


def sanitize(source: Path, target: Path, key: str | None = None) -> Sanitized:
    """Copy a file, an archive, a store, or all files below a folder, under other names.

    What is not known well enough gets no copy. The target appears once it is whole.

    key     a secret: the same one gives the same names; None: one that nobody has
    raises  UsageError when the target exists; InputError when nothing could be copied, or nothing
            can be written there
    """
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target}: exists. Name a new one.")
    if not target.absolute().parent.is_dir():
        folder = shlex.quote(str(target.parent))
        raise InputError(f"{target}: no such folder. Make it with 'mkdir -p {folder}'.")
    given = expand([str(source)])
    with scratch_beside(target) as scratch:
        made = scratch / "copy"
        copier = _Copier(Names(new_key() if key is None else key.encode(), is_kept), scratch)
        copier.refused += [Refused(printable(path), why) for path, why in given.skipped]
        for path in given.files:
            inside = Path(path).relative_to(source) if source.is_dir() else Path()
            copier.copy(path, made, inside)
        if not copier.files:
            first = copier.refused[0]
            raise InputError(f"{first.path}: {first.reason}. Name another file.")
        try:
            if made.is_dir():
                made.rename(target)
            else:
                publish(made, target)
        except OSError as error:
            raise InputError(f"{target}: {error.strerror}. Name another one.") from error
    return Sanitized(copier.files, len(copier.names.replaced), tuple(copier.refused))


class _Copier:
    """Copies files one by one, under one secret."""

    def __init__(self, names: Names, scratch: Path) -> None:
        self.files = 0
        self.refused: list[Refused] = []
        self.names = names
        self._scratch = scratch
        self._text = Text(names)

    def copy(self, path: str, made: Path, inside: Path) -> None:
        """Copy a file; `inside` is where it lies below the folder that is copied."""
        note_input(path)
        target = made / self._place(str(inside)) if inside.parts else made
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if is_sqlite(_head(path)):
                self._copy_database(Path(path), target)
                return
            with open_all(path) as members:
                self._copy_members(path, members, target)
        except _RefusedError as error:
            self.refused.append(Refused(printable(path), str(error)))
        except UnreadableError as error:
            self.refused.append(Refused(printable(path), error.reason))

    def _copy_database(self, path: Path, target: Path) -> None:
        if not is_store(path):
            raise _RefusedError(_SQLITE_TEXT)
        sanitize_store(path, target, self._scratch, self._text)
        self.files += 1

    def _copy_members(self, path: str, members: Iterator[Input | Skipped], target: Path) -> None:
        first = next(members, None)
        if first is None:
            raise _RefusedError("an archive without files")
        if isinstance(first, Input) and first.path == path:
            pack = _packing(first.packed_head)
            data = self._content(first)
            with target.open("wb") as out:
                out.write(pack(b"".join(data))) if pack else out.writelines(data)
            self.files += 1
            return
        write = _write_zip if archive_kind(_head(path)) == "zip" else _write_tar
        copies = self._members(path, first, members)
        begun = self.files
        write(target, copies, _packing(_head(path)))
        if self.files == begun:
            target.unlink()

    def _members(
        self, path: str, first: Input | Skipped, others: Iterator[Input | Skipped]
    ) -> Iterator[tuple[str, bytes]]:
        """Names and content of an archive's members."""
        member: Input | Skipped | None = first
        while member is not None:
            if isinstance(member, Skipped):
                self.refused.append(Refused(printable(member.path), member.reason))
            else:
                try:
                    if is_sqlite(member.head()):
                        raise _RefusedError(_SQLITE_TEXT)
                    pack = _packing(member.packed_head)
                    data = b"".join(self._content(member))
                    yield (
                        self._place(member.path.removeprefix(f"{path}/")),
                        pack(data) if pack else data,
                    )
                    self.files += 1
                except _RefusedError as error:
                    self.refused.append(Refused(printable(member.path), str(error)))
                except UnreadableError as error:
                    self.refused.append(Refused(printable(member.path), error.reason))
            member = next(others, None)

    def _place(self, path: str) -> str:
        """Another path of a copy; nothing of it leads out of its folder."""
        parts = [part for part in printable(path).split("/") if part not in ("", ".", "..")]
        return self._text.path("/".join(parts)) if parts else "copy"

    def _content(self, file: Input) -> Iterable[bytes]:
        """The bytes of a copy.

        raises  _RefusedError, UnreadableError
        """
        head = file.head()
        if own_recorder.sniff(head):
            return [self._recording(file.read_all())]
        if flight_pickle.sniff(head):
            return [self._pickle(file.read_all())]
        if is_sqlite(head):
            raise _RefusedError(_SQLITE_TEXT)
        if not _is_text(head):
            raise _RefusedError(_BINARY_TEXT)
        return self._of_text(file, head)

    def _of_text(self, file: Input, head: bytes) -> Iterator[bytes]:
        kernels = _kernels(file, head)
        if is_document(head):
            document = Document(self._text, kernels)
            yield _bytes(document(_decoded(file.read_all())))
        else:
            text = Text(self.names, kernels) if kernels else self._text
            for lines in _lines(file.chunks()):
                if not _is_text(lines):
                    raise _RefusedError(_BINARY_TEXT)
                yield _bytes(text.line(_decoded(lines)))
        if file.truncated:
            raise _RefusedError(_CUT_TEXT)

    def _recording(self, data: bytes) -> bytes:
        if not own_recorder.is_current(data):
            raise _RefusedError(_VERSION_TEXT)
        return own_recorder.with_other_names(data, _Renamed(self._text))

    def _pickle(self, data: bytes) -> bytes:
        try:
            dump = flight_pickle.load_plain(data)
        # What a damaged pickle raises is not documented.
        except Exception as error:
            raise _RefusedError(_PICKLE_TEXT) from error
        return pickle.dumps(Document(self._text).values(dump), protocol=2)


class _Renamed:
    """What names of a recording become."""

    def __init__(self, text: Text) -> None:
        self.host, self.text = text.host, text
        self._names = text.names

    def hash(self, value: int) -> int:
        """A communicator, a stream, or the process's token."""
        return int(self._names.hexadecimal(f"{value:x}"), 16)

    def buffer(self, value: int) -> int:
        """The address of a buffer."""
        return int(self._names.pointer(f"{value:x}"), 16)


def _head(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(512)
    except OSError as error:
        raise UnreadableError(path, f"{error.strerror}", "Check the file") from error


def _packing(head: bytes) -> _Pack | None:
    """What compresses like the file that begins so."""
    return next((pack for magic, pack in _PACKS if head.startswith(magic)), None)


def _is_text(data: bytes) -> bool:
    """Whether bytes are text: torn logs may hold zeros, and some bytes of no character."""
    shown = data.replace(b"\0", b"")
    wrong = len(_CONTROLS.findall(shown)) + shown.decode("utf-8", "replace").count("\ufffd")
    return bool(shown) and wrong <= _MOST_CONTROLS * len(shown)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines, several at once."""
    rest = b""
    for chunk in chunks:
        lines, end, tail = chunk.rpartition(b"\n")
        if end:
            yield rest + lines + end
            rest = tail
        else:
            rest += tail
    if rest:
        yield rest


def _kernels(file: Input, head: bytes) -> frozenset[str]:
    """Names of kernels and copies that a trace or a profile holds, as its reader finds them."""
    if registry.fit("trace", head) is Fit.WHOLE:
        found = registry.read("trace", file, head, Hints())
        if isinstance(found, list):
            return frozenset(name for trace in found for name in trace.names)
        return frozenset()
    small = len(file.head(DOCUMENT_BYTES + 1)) <= DOCUMENT_BYTES
    if not small and registry.fit("profile", head) <= Fit.PART:
        return frozenset()
    profiles = read_profiles(file)
    totals = (t.name for table in profiles.tables for t in table.profile.totals) if profiles else ()
    return frozenset(name for name in totals if not ("/" in name and ".py" in name))


def _write_zip(target: Path, members: Iterable[tuple[str, bytes]], _pack: _Pack | None) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)


def _write_tar(target: Path, members: Iterable[tuple[str, bytes]], pack: _Pack | None) -> None:
    """A tar whose members have no owner and no time."""
    with tarfile.open(target, "w") as archive:
        for name, data in members:
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    if pack is not None:
        packed = target.with_name(f"{target.name}.packed")
        packed.write_bytes(pack(target.read_bytes()))
        packed.replace(target)
