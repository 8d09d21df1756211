"""`collscope sanitize`: a copy that can be shared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collscope.cli.options import print_stderr, write


def sanitize(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="A file, an archive, a store, or a folder.")
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The copy: a new file or folder.")],
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="SECRET", help=("Same secret, same names. Default: a new secret.")
        ),
    ] = None,
) -> None:
    """Copy logs, traces or a store without names, for sharing.

    Replaces hosts, users, paths, pointers, addresses and other names by others of the same shape.
    A file whose names cannot all be identified is not copied.
    """
    from collscope.sanitize.copies import sanitize as copy
    from collscope.units import count

    found = copy(source, target, key)
    write(f"{target}: {count(found.files, 'file')}, {count(found.names, 'name')} replaced", None)
    for refused in found.refused:
        print_stderr(f"{refused.path}: no copy: {refused.reason}")
