"""Option types and output helpers that commands share."""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from collscope.cli.values import complete_run
from collscope.errors import InputError, UsageError
from collscope.outputs import (
    CLOSED,
    binary_standard_output,
    replaced,
    require_folder,
    require_output,
    write_file,
)
from collscope.writing import as_utf8, folded, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from collscope.ingest.result import Ingested
    from collscope.reports.rendering.page import Figure


class Format(str, Enum):
    """Output formats: `FORMATS` of reports/rendering/formats.py, too slow to load for a help."""

    TEXT = "text"
    MD = "md"
    CSV = "csv"
    JSON = "json"
    HTML = "html"


class RowsFormat(str, Enum):
    """Output formats of the rows of a query."""

    TEXT = "text"
    MD = "md"
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"
    HTML = "html"
    PARQUET = "parquet"


class TuneFormat(str, Enum):
    """Output formats of a tune."""

    TEXT = "text"
    MD = "md"
    JSON = "json"
    HTML = "html"


class CheckFormat(str, Enum):
    """Output formats of a verdict."""

    TEXT = "text"
    MD = "md"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"
    HTML = "html"


def checked_label(label: str | None) -> str | None:
    """Refuse a name that the store cannot hold (bytes that are no UTF-8), and an unset `$NAME`."""
    label = None if label is None else as_utf8(label)
    if label is not None and not label.isprintable():
        raise typer.BadParameter("a label must be printable UTF-8 text")
    if label is not None and not label.strip():
        raise typer.BadParameter("the label is empty. Give one, or leave the option out")
    return label


def _size(text: str) -> int:
    from collscope.units import parse_size

    return parse_size(text)


DB_VARIABLE = "COLLSCOPE_DB"
RUN_VARIABLE = "COLLSCOPE_RUN"
SYSTEM_VARIABLE = "COLLSCOPE_SYSTEM"
Db = Annotated[Path, typer.Option("--db", envvar=DB_VARIABLE, help="The store, an SQLite file.")]
Run = Annotated[
    str,
    typer.Option(
        "--run",
        envvar=RUN_VARIABLE,
        autocompletion=complete_run,
        help="Name of the run; a store holds several.",
        callback=checked_label,
    ),
]
MaxSize = Annotated[
    int | None,
    typer.Option(
        "--max-size",
        help="Largest file to read, decompressed, such as 20G.",
        metavar="SIZE",
        parser=_size,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("-q", "--quiet", help="One line for all files; the default above 20 files."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Treat lost or damaged data as an error.")]


def require_writable(path: Path, option: str) -> None:
    """Refuse, before any work, a file that an output must not replace, or without its folder.

    option  that names the file; with ``-`` it names standard output
    """
    if str(path) != "-":
        if path.is_dir():
            raise UsageError(f"{path}: a folder. Name a file with {option}.")
        require_output(path, option)
        require_folder(path, option)


def _checked_outputs(paths: list[Path] | None) -> list[Path] | None:
    for path in paths or ():
        require_writable(path, "-o")
    return paths


Output = Annotated[
    list[Path] | None,
    typer.Option(
        "-o", "--output", callback=_checked_outputs, dir_okay=False,
        help="Write to a file, in the format of its ending; - is standard output. May be repeated.",
    ),
]  # fmt: skip
FORMAT_HELP = "Output format. Default: by the ending of -o, else text."
FormatOption = Annotated[Format | None, typer.Option("--format", help=FORMAT_HELP)]
RowsFormatOption = Annotated[RowsFormat | None, typer.Option("--format", help=FORMAT_HELP)]
TuneFormatOption = Annotated[TuneFormat | None, typer.Option("--format", help=FORMAT_HELP)]
CheckFormatOption = Annotated[CheckFormat | None, typer.Option("--format", help=FORMAT_HELP)]
SYSTEM = "a name of 'roofline --list', a file, or NODE+NETWORK"
DEFAULT_DB = Path("collscope.db")


def write(text: str, output: Path | None, *, commands: bool = False, option: str = "-o") -> None:
    """Print a text, or put it into a file; characters that a terminal would obey are escaped.

    commands  the text is commands for a machine that runs tests
    option    that names the file
    raises  InputError when the file, or standard output, cannot be written
    """
    ended = not text or text.endswith("\n") or output is not None  # no rows are no lines
    text = text if ended else text + "\n"
    text = visible(text, commands=commands)
    if output is None:
        _print(text)
        return
    try:
        write_file(output, text)
    except OSError as error:
        another = f"Name another file with {option}"
        raise InputError(f"{output}: {error.strerror}. {another}.") from error


def write_bytes(data: bytes, output: Path | None) -> None:
    """Write bytes to standard output, or into a file.

    raises  InputError when the file, or standard output, cannot be written
    """
    try:
        if output is None:
            binary_standard_output().write(data)
            sys.stdout.flush()
        else:
            with replaced(output) as file:
                file.write(data)
    except BrokenPipeError:
        raise
    except OSError as error:
        if output is None:
            discard_output(sys.stdout)
            raise InputError(write_error_message(error)) from error
        raise InputError(f"{output}: {error.strerror}. Name another file with -o.") from error


def append(text: str, output: Path) -> None:
    """Add a text to the end of a file.

    raises  InputError when the file cannot be written
    """
    try:
        with output.open("a", encoding="utf-8") as file:
            file.write(visible(text.rstrip("\n")) + "\n\n")
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}. Check its name.") from error


def write_figures(figures: Sequence[Figure], path: Path, why_none: str) -> None:
    """Write the page's figures into the file of `--plot`, and name it; say why there are none."""
    if not figures:
        print_stderr(f"plot: nothing to draw: {why_none}")
        return
    from collscope.reports.rendering.plot import write_plot

    write_plot(figures, path)
    print_stderr(f"plot: {path}")


def print_stderr(text: str) -> None:
    """Write a line to standard error.

    Where it cannot be written, as on a full disk, the exit code still reports what became of the
    command: Python's own, for an error of this write, is that of a regression.
    """
    try:
        sys.stderr.write(one_line(text) + "\n")
        sys.stderr.flush()
    except OSError:
        discard_output(sys.stderr)


def _print(text: str) -> None:
    if sys.stdout is None:  # a shell's `>&-`, whatever the stubs say
        raise InputError(CLOSED)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        # A terminal of another encoding shows ? for what it has not.
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()  # while an error can still be reported
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output(sys.stdout)
        raise InputError(write_error_message(error)) from error


def write_error_message(error: OSError) -> str:
    """The message where standard output cannot be written."""
    return f"standard output: {error.strerror}. Make room, or write to a file."


def discard_output(stream: TextIO) -> None:
    """Standard output or error cannot be written: drop what is left, which Python would try at its
    end.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def summarise(
    ingest: Callable[[], list[Ingested]], strict: bool, *, quiet: bool = False
) -> list[Ingested]:
    """Ingest, and print what became of every input; or of all together.

    quiet   a line for all inputs instead of one for each; the default where they are many
    raises  InputError when a run could not be matched, and with `strict` when data was lost or a
            file could not be used; IngestInterruptedError after the lines of what was finished
    """
    from collscope.ingest.match import MATCH_FAILED
    from collscope.ingest.result import IngestInterruptedError

    try:
        results = ingest()
    except IngestInterruptedError as error:
        _print_results(error.results, quiet=quiet)
        raise
    _print_results(results, quiet=quiet)
    unmatched = [d.message for r in results for d in r.diagnostics if d.code == MATCH_FAILED]
    if unmatched:
        raise InputError(f"{unmatched[0]} What was read is in the store.")
    lossy = [r.path for r in results if r.lost_data or r.status == "unusable"]
    if strict and lossy:
        raise InputError(
            f"{lossy[0]}: data was lost or skipped (--strict). What could be read is in the store:"
            " query the view diagnostics."
        )
    return results


def _print_results(results: list[Ingested], *, quiet: bool) -> None:
    from collscope.ingest.result import summary_lines
    from collscope.reports.rendering.text import WIDTH, terminal_width

    width = terminal_width()
    lines = [one_line(line) for line in summary_lines(results, quiet=quiet)]
    if width is not None:  # what is piped stays one line for each, for grep and tail
        lines = [part for line in lines for part in _hanging(line, min(width, WIDTH))]
    if lines:
        write("\n".join(lines), None)


def _hanging(line: str, width: int) -> list[str]:
    """A line, and below it what a terminal has no room for, further in."""
    begin = " " * (len(line) - len(line.lstrip()))
    return folded(line.lstrip(), width, begin, f"{begin}    ")
