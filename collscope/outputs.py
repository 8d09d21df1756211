"""Files on their way out: complete, replacing no needed file and leaving nothing behind.

Every file that collscope writes by itself goes through `replaced`; what another program writes for
it (the CSV of the replayer) is held to `require_output` before that starts.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from collscope.errors import InputError

CLOSED = "standard output: closed. Open it, or write to a file with -o."
_SQLITE = b"SQLite format 3\0"  # sqlite.org/fileformat2.html, 1.3.1
# The first bytes of a journal and of a write-ahead log (sqlite.org/fileformat2.html, 3 and 4.1);
# the index of the log has none, and goes by its name.
_OF_SQLITE = (b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_BESIDE = ("-wal", "-shm", "-journal")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")  # of s3://bucket/key, as a Path
_PREFIX = ".collscope-"
_PROCESSES = Path("/proc/self/ns/pid")  # names the space that process numbers are of

_inputs: set[str] = set()  # files that this command reads, by their real paths
_noted: set[str] = set()  # the same, as the command has them
_stores: set[str] = set()  # its stores
_sources: set[str] = set()  # files that its stores name as their sources
_outputs: dict[str, str] = {}  # the option that names an output, by its real path


def begin_command() -> None:
    """Forget the inputs of an earlier command of this process."""
    _inputs.clear()
    _noted.clear()
    _stores.clear()
    _sources.clear()
    _outputs.clear()


def note_input(path: str) -> None:
    """A file that is read or run: no output of the same command may take its place."""
    if path not in _noted:  # finding the real path takes longer than to open the file
        _noted.add(path)
        _inputs.add(os.path.realpath(path))


def note_store(path: Path) -> None:
    """A store that is used, whether or not it is there yet."""
    _stores.add(os.path.realpath(path))


def note_sources(paths: Iterable[str]) -> None:
    """Files that a store was made of: it can be made again only while they are there."""
    _sources.update(paths)


def require_store(path: Path) -> None:
    """Refuse what is no file, and an input of this command: an empty one would become a store.

    raises  InputError
    """
    _require_file(path, "--db")
    target = os.path.realpath(path)
    try:
        empty = not Path(target).stat().st_size
    except OSError:
        return
    if empty and any(_same(target, name) for name in _inputs):
        raise InputError(f"{path}: an empty input of this command. Name another file with --db.")


def _require_file(path: Path, option: str) -> None:
    """Refuse an address, which `Path` turns into s3:/bucket, and SQLite's name for a memory store.

    raises  InputError
    """
    if str(path) == ":memory:":
        raise InputError(f"{path}: not a file, but a store must be one. Name a file with {option}.")
    if _ADDRESS.match(str(path)) and not path.parent.exists():
        raise InputError(f"{path}: an address, but collscope writes files. Name one with {option}.")


def require_folder(path: Path, option: str = "-o") -> None:
    """Refuse, before any work, a file whose folder is not there.

    option  that names the file
    raises  InputError with the command that makes the folder
    """
    folder = path.parent
    if folder.is_dir():
        return
    another = f"name another file with {option}"
    if os.path.lexists(folder):
        raise InputError(f"{path}: {folder} is no folder. {another.capitalize()}.")
    raise InputError(
        f"{path}: no such folder. Make it with 'mkdir -p {shlex.quote(str(folder))}', or {another}."
    )


def require_output(path: Path, option: str = "") -> None:
    """Refuse a file that an output must not replace, under whatever name or link.

    option  that names the file
    raises  InputError for a store or another SQLite file, a file that SQLite keeps next to one, a
            source of the store, an input or a program of this command, another option's output
    """
    _require_file(path, option or "-o")
    target = os.path.realpath(path)
    why = None
    # In this order: to open and close a store releases the locks that SQLite holds on it.
    if any(_same(target, name + end) for name in _stores for end in ("", *_BESIDE)):
        why = "a store or a part of one"
    elif any(_same(target, name) for name in _inputs):
        why = "an input of this command"
    elif Path(target).exists() and any(_same(target, name) for name in _sources):
        why = "a source of the store"
    elif option and _outputs.setdefault(target, option) != option:
        why = f"the output of {_outputs[target]}"
    elif _head(target).startswith((_SQLITE, *_OF_SQLITE)) or any(
        target.endswith(end) and _head(target.removesuffix(end)).startswith(_SQLITE)
        for end in _BESIDE
    ):
        why = "a store or another SQLite file, or a part of one"
    if why is not None:
        named = f" with {option}" if option else ""
        raise InputError(
            f"{path}: {why}, which the output would overwrite. Name another file{named}."
        )


def _same(target: str, other: str) -> bool:
    """Whether two paths lead to one file, hard links too."""
    if target == other:
        return True
    try:
        return Path(target).samefile(other)
    except OSError:
        return False


def _head(path: str) -> bytes:
    """The first bytes of a regular file that can be read; else none."""
    try:
        if not Path(path).is_file():
            return b""
        with Path(path).open("rb", buffering=0) as file:
            return file.read(len(_SQLITE))
    except OSError:
        return b""


def binary_standard_output() -> BinaryIO:
    """Standard output for bytes.

    raises  InputError where it is closed
    """
    # A shell's `>&-` leaves None there, whatever the stubs say.
    if sys.stdout is None:
        raise InputError(CLOSED)
    return sys.stdout.buffer


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file for writing that takes the place of `path` once all of it is written.

    Until then, and when anything fails, `path` is as it was. What is no regular file (a pipe,
    /dev/stdout) is written as it stands.

    raises  OSError; InputError for what `require_output` refuses
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    require_output(path)
    target = Path(os.path.realpath(path))  # a link stays, and leads to the new file
    mode = target.stat().st_mode if target.exists() else None
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(13, "Permission denied", str(path))
    _remove_abandoned(target.parent)
    aside = target.with_name(f"{_PREFIX}{os.getpid()}-{_place()}-{os.urandom(4).hex()}")
    try:
        with aside.open("xb") as file:
            if mode is not None:
                aside.chmod(mode)
            yield file
            file.flush()
            os.fsync(file.fileno())  # a full disk may show only here
        aside.replace(target)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def write_file(path: Path, text: str) -> None:
    """A text as a file, `replaced` as a whole.

    raises  OSError; InputError for what `require_output` refuses
    """
    with replaced(path) as file:
        file.write(text.encode("utf-8", "replace"))


def _place() -> str:
    """Where this process's number holds: the boot and the space of process numbers; may be empty.

    Other hosts, and containers of this one, may write into the same folder: their numbers say
    nothing here.
    """
    try:
        space = _PROCESSES.readlink().name
    except OSError:
        return ""
    from collscope.temporary import boot_id  # noqa: PLC0415 - start-up: it brings tempfile

    boot = boot_id()
    return f"{boot[:16]}x{''.join(c for c in space if c.isdigit())}" if boot else ""


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed commands left: of this user, and of processes that have ended here.

    A number that another process has by now keeps its file until that has ended, too.
    """
    place = _place()
    if not place:
        return
    with suppress(OSError):
        for found in folder.glob(f"{_PREFIX}*-{place}-*"):
            number = found.name.removeprefix(_PREFIX).partition("-")[0]
            with suppress(OSError):
                about = found.lstat()
                ours = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid()
                if ours and number.isdecimal() and not Path("/proc", number).exists():
                    found.unlink()
