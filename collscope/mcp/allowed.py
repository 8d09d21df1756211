"""Which files an assistant may name: those below the folders that the user allows."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from collscope.errors import UsageError
from collscope.ingest.paths import STDIN, expand


class Allowed(msgspec.Struct, frozen=True):
    """Folders whose files may be read, and which may hold stores."""

    folders: tuple[Path, ...]  # resolved

    def files(self, paths: list[str]) -> list[str]:
        """Every file that the paths name: files, folders, globs.

        raises  UsageError for a path, or a link below one, that leads out of the folders;
                InputError when a path names nothing
        """
        for path in paths:
            if path == STDIN:
                raise UsageError("-: standard input carries the protocol. Name a file.")
            self.path(_fixed_part(path))
        found = expand(paths).files
        for path in found:
            self.path(path)
        return found

    def path(self, name: str) -> Path:
        """A path, with links followed.

        raises  UsageError when it lies outside the folders
        """
        found = Path(name).resolve()
        if not any(found == folder or folder in found.parents for folder in self.folders):
            below = ", ".join(str(folder) for folder in self.folders)
            raise UsageError(
                f"{name}: outside the allowed folders ({below}). Ask the user to start the server"
                " with --allow FOLDER."
            )
        return found

    def name(self, name: str | None) -> str | None:
        """A label, a run or a system that may be the path of a file instead.

        raises  UsageError when it is one outside the folders
        """
        if name is not None and (os.sep in name or Path(name).exists()):
            self.path(name)
        return name


def _fixed_part(pattern: str) -> str:
    """The folder of a glob before its first wildcard; a path without one unchanged."""
    parts = Path(pattern).parts
    wild = next((k for k, part in enumerate(parts) if any(c in part for c in "*?[")), None)
    return pattern if wild is None else str(Path(*parts[:wild]) if wild else Path())
