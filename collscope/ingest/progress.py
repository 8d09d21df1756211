"""How files are read: how far an ingest is, and what a file may become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collscope.ingest.workers import Workers


class Progress:
    """Receives ingest progress, perhaps from several threads; this base ignores it."""

    def begin(self, paths: Sequence[str]) -> None:
        """These files are going to be read, in this order."""

    def read(self, path: str, done_bytes: int) -> None:
        """So many bytes of a file are read, as it lies there; of members of archives nothing."""

    def finish(self, path: str) -> None:
        """A file is read and stored."""

    def match(self) -> None:
        """All files are; what they hold is being put together."""

    def end(self) -> None:
        """That is done, or will not be."""


NO_PROGRESS = Progress()


class Reading(msgspec.Struct, frozen=True):
    """How the files of an ingest are read.

    progress    receives how far it is
    most_bytes  what one file may become, decompressed; None: the limits of `ingest.decompress`
    workers     who reads the files; None: this process alone
    """

    progress: Progress = NO_PROGRESS
    most_bytes: int | None = None
    workers: Workers | None = None


DEFAULT_READING = Reading()
