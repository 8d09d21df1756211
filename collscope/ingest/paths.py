"""Paths as the user gives them, to the files that they name."""

from __future__ import annotations

import glob
import os
import stat
from pathlib import Path

import msgspec

from collscope.errors import InputError

STDIN = "-"
# Commands that write what an address names to standard output.
_READERS = {
    "s3": "aws s3 cp {} -", "gs": "gcloud storage cat {}", "hdfs": "hdfs dfs -cat {}",
    "http": "curl -fsSL {}", "https": "curl -fsSL {}",
}  # fmt: skip


class Expanded(msgspec.Struct, frozen=True):
    """The files that some paths name, and what was found below them that is no file."""

    files: list[str]
    skipped: list[tuple[str, str]] = msgspec.field(default_factory=list)  # path, why


def expand_files(paths: list[str]) -> list[str]:
    """Files of the given paths, as `expand` finds them, where each must be one.

    raises  InputError for what is none
    """
    found = expand(paths)
    for path, why in found.skipped:
        raise InputError(f"{printable(path)}: {why}. Move it away, or name the files.")
    return found.files


def expand(paths: list[str]) -> Expanded:
    """Files of the given paths: files, folders (all files below), globs, and ``-``.

    Links to folders are followed. Below a folder, what cannot be listed and what is neither a file
    nor a folder is skipped, and named.
    raises  InputError when a path names nothing
    """
    found: list[str] = []
    skipped: list[tuple[str, str]] = []
    for path in paths:
        for name in _named(path):
            if name == STDIN or not Path(name).is_dir():
                found.append(name)
                continue
            files, others = _below(name)
            if not files and not others:
                raise InputError(f"{name}: an empty folder. Name the folder that holds the files.")
            found += files
            skipped += others
    return Expanded(list(dict.fromkeys(found)), list(dict.fromkeys(skipped)))


def _named(path: str) -> list[str]:
    """What one path of the command line names: itself, or what a glob finds."""
    if not path:  # of an unset variable; Path takes it for the current folder
        raise InputError("a path is empty. Name a file or folder.")
    try:
        there = path == STDIN or Path(path).exists()
    except OSError as error:  # a name too long for the file system
        raise InputError(f"{path}: {error.strerror}. Check the path.") from error
    names = [path] if there else sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - may be absolute
    if not names:
        if os.path.islink(path):  # noqa: PTH114 - does not raise where the path cannot be
            raise InputError(f"{path}: a link to nothing. Check where it points.")
        scheme, is_address, _ = path.partition("://")
        if is_address:
            command = _READERS.get(scheme.lower(), "COMMAND {}").format(path)
            raise InputError(
                f"{path}: an address, but collscope reads files. Run '{command} | collscope "
                "ingest auto -'."
            )
        if glob.has_magic(path):
            raise InputError(f"{path}: a pattern that matches no file. Check the path.")
        raise InputError(f"{path}: no such file or folder. Check the path.")
    return names


def _below(folder: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Files below a folder in the order of their names, and what is none, with the reason."""
    files: list[str] = []
    skipped: list[tuple[str, str]] = []
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        try:
            known = Path(path).stat()
            if (known.st_dev, known.st_ino) in seen:  # a link back up, or a second one
                continue
            seen.add((known.st_dev, known.st_ino))
            inside = sorted(str(p) for p in Path(path).iterdir())
        except OSError as error:
            skipped.append((path, f"a folder that cannot be read: {error.strerror}"))
            continue
        for name in inside:
            why = _no_file(name)
            if why is None:
                files.append(name)
            elif why:
                skipped.append((name, why))
            else:
                waiting.append(name)
    return sorted(files), sorted(skipped)


def _no_file(path: str) -> str | None:
    """Why a path is no file to be read: empty for a folder, None for a file."""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return "a link to nothing"
    except OSError as error:
        return f"{error.strerror}"
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return ""
    if stat.S_ISFIFO(mode):
        return "a named pipe (FIFO), not a file"
    return "a socket, not a file" if stat.S_ISSOCK(mode) else "a device, not a file"


def printable(path: str) -> str:
    """The path as text for the store and the screen; file names may be any bytes."""
    return os.fsencode(path).decode(errors="replace")
