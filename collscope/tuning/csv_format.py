"""The CSV that the tuner plugin applies (docs/tuner.md): which setting for which collective.

Columns as in NVIDIA's example plugin: collective_type, min_bytes, max_bytes, algorithm, protocol,
channels, nNodes, nRanks, numPipeOps, regBuff; the last four may be missing, -1 is any. The first
row of the file that matches a call applies. This module and native/tuner/parse.cpp read alike.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

import msgspec

from collscope.errors import UsageError
from collscope.model import Diagnostic, Op, Severity
from collscope.parsers._notes import Notes
from collscope.parsers._rows import text_lines
from collscope.tuning.names import ALGORITHMS, COLLECTIVE_OF, COLLECTIVES, PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VERSION = 1
MOST_ROWS = 8192  # the plugin refuses a file with more
MOST_CHANNELS = 128  # of RCCL; NCCL has 64
_MARK = "# collscope.tuner_csv/"
_HEADER = (
    "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,"
    "numPipeOps,regBuff"
)
_FEWEST, _EXAMPLE_FEWEST, _MOST = 6, 8, 10
_LINE_BYTES = 255  # the example plugin reads lines into 256 bytes
_SIZE = re.compile(r"[0-9]{1,40}")
_NUMBER = re.compile(r"-?[0-9]{1,40}")
_LARGEST_SIZE = 2**64 - 1
_LARGEST_INT = 2**31 - 1
# channels, nNodes, nRanks, numPipeOps, regBuff: the least and the largest besides -1
_LIMITS = ((1, MOST_CHANNELS), (1, _LARGEST_INT), (1, _LARGEST_INT), (0, _LARGEST_INT), (0, 1))

_TEXTS = {
    "torn_row": "Rows without 6 to 10 columns were skipped.",
    "unknown_collective": "Rows of a collective that libraries do not ask a tuner about were"
    " skipped.",
    "bad_size": "Rows whose sizes are not two increasing numbers were skipped.",
    "unknown_algorithm": "Rows of an unknown algorithm were skipped.",
    "unknown_protocol": "Rows of an unknown protocol were skipped.",
    "bad_number": "Rows with channels or a condition out of range were skipped.",
}
_SHORT_TEXT = "Rows of 6 or 7 columns are read here, but NVIDIA's example plugin skips them."
_LONG_TEXT = "Lines of more than 255 bytes are read here, but NVIDIA's example plugin cuts them."
_VERSION_TEXT = f"The file is of another version than {VERSION}. Write it again with this release."
_MANY_TEXT = f"The file has more than {MOST_ROWS} rows: the plugin refuses it. Merge size ranges."


class TunerRow(msgspec.Struct, frozen=True):
    """One row: what it is for, and what it asks of the library.

    Sizes are nccl-tests sizes S in bytes, both ends included; for calls launched as one group the
    library passes their sum. None: any, or the library's own choice for `channels`.
    """

    op: Op
    min_bytes: int
    max_bytes: int | None  # None: no upper end
    algorithm: str  # one of names.ALGORITHMS
    protocol: str  # one of names.PROTOCOLS
    channels: int | None = None
    nnodes: int | None = None
    nranks: int | None = None
    pipe_ops: int | None = None  # operations of the group
    registered: bool | None = None  # user buffers are registered

    def matches(self, call: TunerCall) -> bool:
        """True when this row is for a call."""
        return (
            self.op is call.op
            and self.min_bytes <= call.size_bytes
            and (self.max_bytes is None or call.size_bytes <= self.max_bytes)
            and self.nnodes in (None, call.nnodes)
            and self.nranks in (None, call.nranks)
            and self.pipe_ops in (None, call.pipe_ops)
            and self.registered in (None, call.registered)
        )


class TunerCall(msgspec.Struct, frozen=True):
    """What the library passes to a plugin about a call."""

    op: Op
    size_bytes: int
    nranks: int
    nnodes: int = 1
    pipe_ops: int = 1
    registered: bool = False


class TunerFile(msgspec.Struct, frozen=True):
    """What a CSV holds; comments without their #, in order."""

    rows: tuple[TunerRow, ...]
    comments: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def parse(text: str | Iterable[str]) -> TunerFile:
    """Rows of a CSV, in order; those that the plugin would leave out are counted diagnostics.

    returns  no rows where the plugin would refuse the whole file: diagnostics ``other_version``
             and ``too_many_rows``
    """
    notes = Notes()
    rows: list[TunerRow] = []
    places: list[int] = []  # their lines
    comments: list[str] = []
    for at, line in enumerate(text_lines(text), start=1):
        content = line.strip(" \t\r")
        if content.startswith(_MARK):
            if content.removeprefix(_MARK) != str(VERSION):
                notes.add(Severity.ERROR, "other_version", _VERSION_TEXT, at, line)
                return TunerFile((), tuple(comments), notes.diagnostics)
        elif content.startswith("#"):
            if content != _HEADER:
                comments.append(content.removeprefix("#").removeprefix(" "))
        elif content:
            row = _row(content, at, notes)
            if row is not None:
                rows.append(row)
                places.append(at)
    if len(rows) > MOST_ROWS:
        notes.add(Severity.ERROR, "too_many_rows", _MANY_TEXT, places[MOST_ROWS])
        rows.clear()
    return TunerFile(tuple(rows), tuple(comments), notes.diagnostics)


def render(rows: Sequence[TunerRow], comments: Sequence[str] = ()) -> str:
    """A CSV that this plugin and NVIDIA's and RCCL's example plugins read alike.

    comments  the first lines; long ones are wrapped
    raises    UsageError for a row that no plugin could apply, and for more than `MOST_ROWS`
    """
    if len(rows) > MOST_ROWS:
        raise UsageError(f"tuner CSV: {len(rows)} rows. Merge size ranges to {MOST_ROWS} or fewer.")
    lines = [f"{_MARK}{VERSION}", _HEADER]
    for comment in comments:
        # 60 characters are at most 240 bytes of UTF-8: the example plugin reads a cut line's rest
        # as a row.
        wide = 240 if comment.isascii() else 60
        # A comment that looks like the first line of another version would refuse the file.
        text = f" {comment}" if f"# {comment}".startswith(_MARK) else comment
        lines += [f"# {part}".rstrip() for part in textwrap.wrap(text, wide) or [""]]
    for row in rows:
        line = _line(row)
        found = parse(line)
        if found.rows != (row,):
            what = found.diagnostics[0].message if found.diagnostics else "Its values are unknown."
            raise UsageError(f"tuner CSV, row '{line}': cannot be applied. {what}")
        lines.append(line)
    return "\n".join(lines) + "\n"


def _line(row: TunerRow) -> str:
    optional = (row.max_bytes, row.channels, row.nnodes, row.nranks, row.pipe_ops, row.registered)
    most, *rest = (-1 if value is None else int(value) for value in optional)
    values = (
        COLLECTIVE_OF.get(row.op, row.op.value), row.min_bytes, most, row.algorithm, row.protocol,
        *rest,
    )  # fmt: skip
    return ",".join(str(value) for value in values)


def _row(content: str, at: int, notes: Notes) -> TunerRow | None:
    # allreduce,65537,1048576,ring,simple,4,4,32,1,0
    cells = [cell.strip(" \t\r") for cell in content.split(",")]
    problem, row = _read(cells)
    if row is None:
        notes.add(Severity.DATA_LOSS, problem, _TEXTS[problem], at, content)
        return None
    if len(cells) < _EXAMPLE_FEWEST:
        notes.add(Severity.NOTICE, "short_row", _SHORT_TEXT, at, content)
    if len(content.encode(errors="replace")) > _LINE_BYTES:
        notes.add(Severity.NOTICE, "long_line", _LONG_TEXT, at, content)
    return row


def _read(cells: list[str]) -> tuple[str, TunerRow | None]:
    """A row, or the code of what is wrong with it."""
    if not _FEWEST <= len(cells) <= _MOST:
        return "torn_row", None
    collective, low, high, algorithm, protocol, *rest = cells
    op = COLLECTIVES.get(collective)
    sizes = _sizes(low, high)
    numbers = [
        _limited(text, *limits)
        for text, limits in zip((*rest, *["-1"] * (5 - len(rest))), _LIMITS, strict=True)
    ]
    problems = {
        "unknown_collective": op is None,
        "bad_size": sizes is None,
        "unknown_algorithm": algorithm not in ALGORITHMS,
        "unknown_protocol": protocol not in PROTOCOLS,
        "bad_number": None in numbers,
    }
    problem = next((code for code, wrong in problems.items() if wrong), "")
    if op is None or sizes is None or problem:
        return problem, None
    channels, nnodes, nranks, pipe_ops, registered = (None if n == -1 else n for n in numbers)
    return "", TunerRow(
        op, *sizes, algorithm, protocol, channels, nnodes, nranks, pipe_ops,
        None if registered is None else bool(registered),
    )  # fmt: skip


def _sizes(low: str, high: str) -> tuple[int, int | None] | None:
    if not _SIZE.fullmatch(low) or int(low) > _LARGEST_SIZE:
        return None
    if high == "-1" or (_SIZE.fullmatch(high) and int(high) == _LARGEST_SIZE):
        return int(low), None
    if not _SIZE.fullmatch(high) or not int(low) <= int(high) <= _LARGEST_SIZE:
        return None
    return int(low), int(high)


def _limited(text: str, least: int, largest: int) -> int | None:
    """A number from `least` to `largest`, or -1; None for everything else."""
    if not _NUMBER.fullmatch(text):
        return None
    value = int(text)
    return value if value == -1 or least <= value <= largest else None
