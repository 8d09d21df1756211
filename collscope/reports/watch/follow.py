"""New bytes of the recordings below a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from collscope.errors import InputError
from collscope.parsers.recorders.own_recorder import GrowingRecording, NewRecords

_NAME = re.compile(r"(.+)\.(\d+)\.collrec")  # HOST.PID.TOKEN.N.collrec
_PART = 1 << 20


class Followed:
    """Recordings below a folder: files that appear, grow, rotate and vanish."""

    def __init__(self, folder: Path) -> None:
        """Start before the first byte.

        raises  InputError where there is no folder
        """
        if not folder.is_dir():
            raise InputError(
                f"{folder}: no such folder. Name the folder of COLLSCOPE_RECORDER_DIR."
            )
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._recordings: dict[str, GrowingRecording] = {}

    def poll(self) -> Iterator[tuple[str, GrowingRecording, NewRecords]]:
        """What came since the last time: process, its recording, its new calls."""
        for process, _, path in sorted(self._files()):
            recording = self._recordings.setdefault(process, GrowingRecording())
            if path not in self._read:
                self._read[path] = 0
                recording.begin_file()
            for part in self._new_parts(path):
                yield process, recording, recording.feed(part)

    def _files(self) -> Iterator[tuple[str, int, Path]]:
        # A process ends a file before it begins the next one: by number, each is read to its end.
        for folder, _, names in os.walk(self._folder):
            for name in names:
                if found := _NAME.fullmatch(name):
                    yield f"{folder}/{found[1]}", int(found[2]), Path(folder, name)

    def _new_parts(self, path: Path) -> Iterator[bytes]:
        try:
            with path.open("rb") as file:
                file.seek(self._read[path])
                while part := file.read(_PART):
                    self._read[path] += len(part)
                    yield part
        except FileNotFoundError:
            return  # rotation removes the oldest
