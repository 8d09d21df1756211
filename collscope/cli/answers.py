"""Where the answer of a command goes, and in which format."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from collscope.cli.options import append, print_stderr, write, write_bytes
from collscope.errors import InputError, UsageError

ENDINGS = {
    ".txt": "text", ".md": "md", ".markdown": "md", ".json": "json", ".jsonl": "jsonl",
    ".csv": "csv", ".html": "html", ".htm": "html", ".xml": "junit", ".parquet": "parquet",
}  # fmt: skip
"""Format by the ending of a file's name."""

SUMMARY = "GITHUB_STEP_SUMMARY"
"""Names the file whose Markdown GitHub shows with a step of a workflow; each step appends."""


class Target(NamedTuple):
    """One place for an answer."""

    path: Path | None  # None: standard output
    format: str
    appended: bool = False


def targets(
    given: Enum | None,
    outputs: Sequence[Path] | None,
    formats: type[Enum],
    *,
    summary: bool = False,
) -> tuple[Target, ...]:
    """Targets of `-o`, each in the format that its ending names, or all in that of `--format`.

    given    value of --format; None: not given. Of several targets it is that of those whose
             ending names no format of the command
    outputs  values of -o; ``-`` is standard output
    formats  that the command has; the first is that of standard output and of names without ending
    summary  the command's Markdown goes into GitHub's summary of a step, too
    raises   UsageError for an ending that names no format, or none of the command's
    """
    names = [str(choice.value) for choice in formats]
    found = []
    for output in outputs or (Path("-"),):
        path = None if str(output) == "-" else output
        own = None if path is None else ENDINGS.get(path.suffix.lower())
        if given is not None and (len(outputs or ()) < 2 or own not in names):
            found.append(Target(path, str(given.value)))
        elif path is None or not path.suffix:
            found.append(Target(path, names[0]))
        else:
            found.append(Target(path, _of_ending(path, names)))
    if summary and os.environ.get(SUMMARY):
        found.append(Target(Path(os.environ[SUMMARY]), "md", appended=True))
    return tuple(found)


def _of_ending(path: Path, names: Sequence[str]) -> str:
    ending = path.suffix.lower()
    format = ENDINGS.get(ending, "")
    if format in names:
        return format
    known = ", ".join(e for e, name in ENDINGS.items() if name in names)
    what = f"means {format}, which this command does not write" if format else "names no format"
    raise UsageError(
        f"-o {path}: the ending {path.suffix} {what}. Use one of {known}, or give --format."
    )


def write_answer(
    places: Sequence[Target],
    render: Callable[[str], str | bytes],
    verdict: Callable[[], str] | None = None,
) -> None:
    """Write an answer to its targets.

    On a terminal, the files that were written are named.
    render   gives the answer in a format
    verdict  gives its outcome in a line, for people where all of the answer goes into files
    raises   InputError when a target cannot be written
    """
    rendered: dict[str, str | bytes] = {}
    for place in places:
        if place.format not in rendered:
            rendered[place.format] = render(place.format)
        answer = rendered[place.format]
        if isinstance(answer, bytes):
            write_bytes(answer, place.path)
        elif place.appended and place.path is not None:
            _add_to_summary(answer, place.path)
        else:
            write(answer, place.path, commands=place.format == "github")
    files = [place.path for place in places if not place.appended and place.path is not None]
    if sys.stderr is not None and sys.stderr.isatty():
        for path in files:
            print_stderr(f"{path}: written")
    if verdict is not None and len(files) == sum(not place.appended for place in places):
        print_stderr(verdict())


def _add_to_summary(answer: str, path: Path) -> None:
    """Append to the summary of the step; a failure changes neither the answer nor the exit code."""
    try:
        append(answer, path)
    except InputError as error:
        print_stderr(f"collscope: {SUMMARY}: {error}")
